//! The proof that a subscriber with another text gives the same bytes: for its examples, alone and in
//! a batch if it makes batches, and for its tests.

use std::{fmt::Write as _, sync::Arc};

use engine::{
    event::catalogue::{self, CatalogueEntry, OwnSeverities},
    pipeline::{row::Row, rule::Subscriber},
};

use super::{
    templates::{examples, input, rows_of},
    tests::only,
    timeline,
};
use crate::config::{case::SubscriberTest, compile::Compiled};

/// Rows of the batch of examples.
const ROWS: usize = 3;

/// What gave the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Proven {
    /// The number of its examples.
    pub examples: usize,
    /// The number of its tests.
    pub tests: usize,
}

/// The first difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Different {
    /// The example or the test.
    pub what: String,
    /// What was made of it.
    pub before: String,
    /// What would be made of it.
    pub after: String,
}

/// Compares what the subscriber `id` makes in `before` and in `after`, of the examples and the tests
/// that it has in `before`.
///
/// Errors: the first difference.
pub fn same_bytes(before: &Compiled, after: &Compiled, id: &str) -> Result<Proven, Different> {
    let rule = |compiled: &'_ Compiled| {
        compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == id).cloned()
    };
    let (Some(own), Some(other)) = (rule(before), rule(after)) else {
        let what = format!("`{id}` is no subscriber then");
        return Err(Different { what, before: String::new(), after: String::new() });
    };
    let shipped: Vec<&CatalogueEntry> = catalogue::types().collect();
    let known: Vec<_> = shipped.into_iter().chain(&before.events).collect();
    let examples = examples(&own, before, &known);
    let alone = examples.iter().map(|event| (format!("one `{}`", event.event_type), rows_of(&own, [event])));
    let several = rows_of(&own, examples.iter().cycle().take(ROWS));
    let has_batches = own.batching.collects() && !several.is_empty();
    let several = has_batches.then(|| ("three events".to_owned(), several));
    for (what, rows) in alone.chain(several) {
        compare(what, render(&own, before, &rows), render(&other, after, &rows))?;
    }
    let tests = before.tests.get(&own.id).map(Vec::as_slice).unwrap_or_default();
    for test in tests {
        compare(
            format!("the test `{}`", test.name),
            played(&own, before, test),
            played(&other, after, test),
        )?;
    }
    Ok(Proven { examples: examples.len(), tests: tests.len() })
}

fn compare(what: String, before: String, after: String) -> Result<(), Different> {
    if before == after { Ok(()) } else { Err(Different { what, before, after }) }
}

fn render(rule: &Subscriber, compiled: &Compiled, rows: &[Row]) -> String {
    let rendered = rule.output.layout.render(&compiled.rules.templates, &input(rule, rows));
    match rendered.failure {
        Some(failure) => format!("{}\nfails: {}", rendered.content, failure.message),
        None => rendered.content,
    }
}

/// All bytes that a test leads to.
fn played(rule: &Subscriber, compiled: &Compiled, test: &SubscriberTest) -> String {
    let rules = Arc::new(only(&compiled.rules, &rule.id, test));
    let played = timeline::play(rules, &OwnSeverities::new(&compiled.events), rule, test);
    let mut text = String::new();
    for made in played.made_by(&rule.id) {
        let _ = writeln!(text, "at {} ms:\n{}", made.at.as_millis(), made.notification.content.text());
    }
    for released in &played.released {
        let _ = writeln!(text, "released at {} ms:\n{}", released.at.as_millis(), released.injection.text);
    }
    for failure in &played.failures {
        let _ = writeln!(text, "fails: {}", failure.payload.as_str());
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };

    const SUBSCRIBER: &str = "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"a.b\"]\n[output]\none = \"n: {{ payload.n }}\"\n\
        [output.table]\nkey = \"ns\"\ncolumns = [\"n\"]\n\
        [[tests]]\nname = \"two\"\nat = [[\"0s\", \"a.b\", { n = 1 }], [\"1s\", \"a.b\", { n = 2 }]]\nexpect = [{ at = \"2s\" }]\n";

    fn compiled(template: Option<&str>) -> Compiled {
        let file = |layer, name: &str, text: &str| SourceFile {
            layer,
            name: name.into(),
            path: name.into(),
            text: text.into(),
        };
        let own = file(LayerKind::System, "subscribers/x.toml", SUBSCRIBER);
        let template = template.map(|text| file(LayerKind::User, "templates/x.toon.j2", text));
        let compiled = compile(&Sources::shipped().with([own].into_iter().chain(template), []), &[]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        compiled
    }

    #[test]
    fn each_byte_of_examples_and_tests_counts() {
        const SAME: &str = "{% if count == 1 %}\nn: {{ events[0].payload.n }}\n{% else %}\n{{ rows|toon(key=\"ns\", columns=[\"n\"]) }}\n{% endif %}\n";
        let before = compiled(None);
        let proven = same_bytes(&before, &compiled(Some(SAME)), "x");
        assert_eq!(proven, Ok(Proven { examples: 2, tests: 1 }));
        for (from, to, what) in [("\nn:", "\nm:", "one `a.b`"), ("\"ns\"", "\"ms\"", "three events")] {
            let different =
                same_bytes(&before, &compiled(Some(&SAME.replace(from, to))), "x").expect_err(what);
            assert_eq!(different.what, what);
            assert_ne!(different.before, different.after);
        }
        // Only the test has a batch of two.
        let two = SAME.replace("{% if count == 1 %}", "{% if count == 2 %}\ntwo: 2\n{% elif count == 1 %}");
        let different = same_bytes(&before, &compiled(Some(&two)), "x").expect_err("it differs");
        assert_eq!((different.what.as_str(), &*different.after), ("the test `two`", "at 2000 ms:\ntwo: 2\n"));
    }
}
