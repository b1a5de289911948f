//! Runs the `[[tests]]` of subscribers in simulated time.

use std::sync::Arc;

use engine::{
    event::{
        EventType,
        catalogue::{self, OwnSeverities},
    },
    nearest::nearest,
    notification::SubscriberId,
    pipeline::rule::Subscriber,
    rules::CompiledRules,
    sorted::SortedSet,
};

use super::{
    because,
    compare::{self, Update},
    failed_part,
    failure::{Failure, Line, Wrong},
    timeline::{self, Played},
};
use crate::config::{
    case::{Step, SubscriberTest},
    compile::Compiled,
    report::{Diagnostic, Place, shown},
};

/// Runs the tests in the files `own`, and returns those that fail.
pub(super) fn findings(compiled: &Compiled, own: &SortedSet<&Arc<str>>) -> Vec<Diagnostic> {
    let cases = Cases::new(compiled);
    let failed = |case: Case<'_>| match case.run() {
        Ok(()) => Vec::new(),
        Err(Wrong::Invalid(found)) => found,
        Err(Wrong::Failed(failure)) => vec![failed(&failure, case.index, case.test)],
    };
    cases.iter().filter(|case| own.contains(&case.test.place.file)).flat_map(failed).collect()
}

/// A failed test as a finding, at the first expectation that is not met.
fn failed(failure: &Failure, index: usize, test: &SubscriberTest) -> Diagnostic {
    let message = format!("test `{}` fails: {}", test.name, failure.sentence());
    let found = Diagnostic::error(failure.place().clone(), format!("tests[{index}]"), message);
    let shown = |line: &Line| {
        let place = line.place.as_ref().map(|place| format!("  line {}", place.line()));
        format!("{}{}", line.text.trim(), place.unwrap_or_default())
    };
    let because = failure.because_lines();
    let lines: Vec<String> = failure.failed.iter().chain(because.iter().skip(1)).map(shown).collect();
    if lines.is_empty() { found } else { found.with_note(lines.join("\n")) }
}

/// The tests of compiled subscribers.
#[derive(Debug)]
pub struct Cases<'c> {
    compiled: &'c Compiled,
    severities: OwnSeverities,
}

/// A test with its subscriber.
#[derive(Debug, Clone, Copy)]
pub struct Case<'c> {
    cases: &'c Cases<'c>,
    rule: &'c Subscriber,
    index: usize,
    /// The test.
    pub test: &'c SubscriberTest,
}

impl<'c> Cases<'c> {
    /// Takes the subscribers and their tests from `compiled`.
    pub fn new(compiled: &'c Compiled) -> Self {
        Self { compiled, severities: OwnSeverities::new(&compiled.events) }
    }

    /// Every test, in the order of the subscribers' ids.
    pub fn iter(&'c self) -> impl Iterator<Item = Case<'c>> {
        self.compiled.rules.subscribers.iter().flat_map(move |rule| {
            let tests = self.compiled.tests.get(&rule.id).into_iter().flatten().enumerate();
            tests.map(move |(index, test)| Case { cases: self, rule, index, test })
        })
    }

    /// A test of the subscriber `id`, if there is such a one.
    pub(super) fn case<'t>(&'t self, id: &SubscriberId, test: &'t SubscriberTest) -> Option<Case<'t>> {
        let rule = self.compiled.rules.subscribers.iter().find(|rule| rule.id == *id)?;
        Some(Case { cases: self, rule, index: 0, test })
    }

    fn is_known(&self, event_type: &EventType) -> bool {
        catalogue::find(event_type.as_str()).is_some()
            || self.compiled.events.iter().any(|entry| entry.event_type == *event_type)
    }
}

impl<'c> Case<'c> {
    /// The id of the subscriber.
    pub fn subscriber(&self) -> &'c str {
        self.rule.id.as_str()
    }

    /// This subscriber with another test.
    #[must_use]
    pub fn with(self, test: &'c SubscriberTest) -> Self {
        Self { test, ..self }
    }

    /// Plays the test, and compares what happened with what it expects.
    ///
    /// Errors: everything that differs, with an explanation; or what the test names and does not
    /// exist.
    pub fn run(&self) -> Result<(), Wrong> {
        let invalid = self.invalid();
        if !invalid.is_empty() {
            return Err(Wrong::Invalid(invalid));
        }
        let Self { cases: Cases { compiled, .. }, rule, test, .. } = self;
        let played = self.play();
        let unmet = compare::unmet(&played, rule, test);
        if unmet.is_empty() {
            return Ok(());
        }
        let files = compiled.files.get(&rule.id).map(Vec::as_slice).unwrap_or_default();
        Err(Wrong::Failed(Failure {
            unmet,
            failed: failed_part::lines(&played.failures, compiled),
            because: because::because(&played, rule, files),
        }))
    }

    /// The new values of `decoded` and `text` with which the failed test would pass; `None` if
    /// something else differs, or the test counts ends or expects nothing, which is written by hand.
    pub fn updates(&self) -> Option<Vec<Update>> {
        compare::updates(&self.play(), self.rule, self.test)
    }

    pub(super) fn play(&self) -> Played {
        let Self { cases: Cases { compiled, severities }, rule, test, .. } = self;
        let rules = only(&compiled.rules, &rule.id, test);
        timeline::play(Arc::new(rules), severities, rule, test)
    }

    /// What the test names and does not exist: event types, and other subscribers.
    fn invalid(&self) -> Vec<Diagnostic> {
        let Self { cases, rule, index, test } = self;
        let subscribers = &cases.compiled.rules.subscribers;
        let takes = |event_type: &EventType| {
            let mut rules = subscribers.iter().filter(|other| is_used(other, &rule.id, test));
            rules.any(|rule| takes(rule, event_type)) || cases.is_known(event_type)
        };
        let events = test.events().filter(|(_, event)| !takes(&event.event_type));
        let mut found: Vec<_> =
            events.map(|(step, event)| type_not_taken(rule, step, &event.event_type, *index)).collect();
        let ids: Vec<&str> = subscribers.iter().map(|rule| rule.id.as_str()).collect();
        let unknown = |id: &SubscriberId, place: Place, key: &str| {
            let message = format!("there is no subscriber `{}`", shown(id.as_str()));
            let found = Diagnostic::error(place, format!("tests[{index}].{key}"), message);
            let meant = nearest(id.as_str(), ids.iter().copied());
            (!ids.contains(&id.as_str())).then(|| found.with_nearest(meant))
        };
        found.extend(test.with.iter().filter_map(|(id, place)| unknown(id, place.clone(), "with")));
        for step in &test.at {
            let place = |id: &SubscriberId| step.place.first_name(id.as_str());
            let named = step.action.subscribers().into_iter();
            found.extend(
                named.filter_map(|id| unknown(id, place(id).unwrap_or_else(|| step.place.clone()), "at")),
            );
        }
        found
    }
}

/// Whether an event of a type concerns the subscriber.
fn takes(rule: &Subscriber, event_type: &EventType) -> bool {
    rule.patterns().any(|pattern| pattern.matches_text(event_type.as_str()))
}

fn type_not_taken(rule: &Subscriber, step: &Step, event_type: &EventType, index: usize) -> Diagnostic {
    let message = format!("`{}` does not match `{event_type}`, so it has no effect", rule.id);
    let types = rule.types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    Diagnostic::error(step.place.clone(), format!("tests[{index}].at"), message)
        .with_note(format!("it takes {types}"))
}

/// The rules with only the tested subscriber and those that the test names, each with what it leaves
/// to earlier files of its id, as in the daemon.
pub(super) fn only(rules: &CompiledRules, id: &SubscriberId, test: &SubscriberTest) -> CompiledRules {
    let used = rules.subscribers.iter().filter(|rule| is_used(rule, id, test));
    let budget = test.budget.as_ref().unwrap_or(&rules.budget).clone();
    CompiledRules { subscribers: used.cloned().collect(), budget, ..rules.clone() }
}

/// Whether a subscriber is in the engine of a test of `tested`.
fn is_used(rule: &Subscriber, tested: &SubscriberId, test: &SubscriberTest) -> bool {
    let mut named = test.with.iter().map(|(other, _)| other);
    rule.is_part_of(tested) || named.any(|other| rule.is_part_of(other))
}

#[cfg(test)]
mod examples {
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };

    const PAGER: &str = "[subscriber]\nid = \"pager\"\n[events]\ntypes = [\"pager.alert.*\"]\n\
        where = \"payload.zone != 'test'\"\n[batching]\nwindow_ms = 2000\ndedupe_key = \"payload.name\"\n\
        [limits]\nttl = \"10m\"\n[output]\npriority = \"high\"\n\
        one = \"alert: {{ payload.name }} in {{ payload.zone }}\"\n\
        sentence = \"{{ payload.name }} fired\"\n\
        [output.table]\nkey = \"alerts\"\ncolumns = [\"name\", \"zone\"]\n";
    const OTHER: &str = "[subscriber]\nid = \"zones\"\n[events]\ntypes = [\"pager.zone.*\"]\n\
        [batching]\nwindow_ms = 0\n[output]\none = \"zone: {{ payload.zone }}\"\n";
    const A: &str = r#"["0s", "pager.alert.fired", { name = "A", zone = "eu" }]"#;
    const B: &str = r#"["1s", "pager.alert.fired", { name = "B", zone = "us" }]"#;
    const ASK: &str = r#"{ at = "3s", exchange = "after_tool", tool = "Bash" }"#;

    /// The report of `pager` with this test, whose `at` and `expect` are given.
    fn report(steps: &[&str], expect: &str) -> String {
        report_of(&format!("at = [{}]\nexpect = [{expect}]\n", steps.join(", ")))
    }

    fn report_of(test: &str) -> String {
        let file = |name: &str, text: &str| SourceFile {
            layer: LayerKind::User,
            name: name.into(),
            path: name.into(),
            text: text.into(),
        };
        let pager = format!("{PAGER}[[tests]]\nname = \"t\"\n{test}");
        let events = "[[event]]\ntype = \"pager.zone.down\"\nseverity = \"warning\"\ndescription = \"A zone is down.\"\n\
                      [[event]]\ntype = \"pager.alert.fired\"\nseverity = \"error\"\ndescription = \"An alert.\"\n";
        let files = [
            file("subscribers/pager.toml", &pager),
            file("subscribers/zones.toml", OTHER),
            file("events.toml", events),
        ];
        let sources = Sources::shipped().with(files, []);
        let compiled = compile(&sources, &[]);
        compiled.report.clone().with(super::super::findings(&sources, &compiled)).to_string()
    }

    #[test]
    fn each_claim_of_a_notification_is_compared() {
        let alone = |claim: &str| report(&[A], &format!("{{ at = \"2s\", {claim} }}"));
        for (holds, differs, part) in [
            (
                r#"decoded = { alert = "A in eu" }"#,
                r#"decoded = { alert = "A in us" }"#,
                "`alert` is \"A in eu\"",
            ),
            (r#"text = "alert: A in eu""#, r#"text = "alert: A""#, "`text, line 1` is \"alert: A in eu\""),
            (r#"contains = ["A", "eu"]"#, r#"contains = "us""#, "expected \"us\""),
            (r#"lacks = "us""#, r#"lacks = ["us", "eu"]"#, "expected no \"eu\""),
            (r#"sentence = "A fired""#, r#"sentence = "A""#, "`sentence` is \"A fired\""),
            (r#"point = "after_tool""#, r#"point = "turn_end""#, "`point` is after_tool, expected turn_end"),
            (r#"priority = "high""#, r#"priority = "low""#, "`priority` is high, expected low"),
            (r#"severity = "error""#, r#"severity = "info""#, "`severity` is error, expected info"),
            (r#"activation = "passive""#, r#"activation = "active""#, "`activation` is passive"),
            (r#"interrupt = "inject_and_continue""#, r#"interrupt = "cancel_and_restart""#, "`interrupt` is"),
            (
                "requires_response = false",
                "requires_response = true",
                "`requires_response` is false, expected true",
            ),
            ("max_tokens = 20", "max_tokens = 2", "expected at most 2"),
            ("notices = []", r#"notices = ["x"]"#, "`notices` is 0 items, expected 1 item"),
        ] {
            assert_eq!(alone(holds), "", "{holds}");
            let report = alone(differs);
            assert!(report.contains(part), "{differs}: {report}");
        }
    }

    #[test]
    fn each_claim_of_a_release_is_compared() {
        let released = |claim: &str| report(&[A, ASK], &format!("{{ at = \"3s\", {claim} }}"));
        for (holds, differs, part) in [
            (
                r#"delivered = ["pager"]"#,
                r#"delivered = ["zones"]"#,
                "`delivered[0]` is pager, expected zones",
            ),
            (r#"delivered = [{ alert = "A in eu" }]"#, "delivered = []", "`delivered` is 1: pager"),
            (r#"format = "xml""#, r#"format = "json""#, "`format` is xml, expected json"),
            (r#"text = "alert: A in eu""#, r#"directive = "cancel""#, "`directive` is none, expected cancel"),
        ] {
            assert_eq!(released(holds), "", "{holds}");
            let report = released(differs);
            assert!(report.contains(part), "{differs}: {report}");
        }
        let without = report(&[A], r#"{ at = "2s", delivered = ["pager"] }"#);
        assert!(without.contains("this test makes none"), "{without}");
    }

    #[test]
    fn ends_are_counted_by_reason_and_cause() {
        let filtered = r#"["1s", "pager.alert.fired", { name = "C", zone = "test" }]"#;
        let again = r#"["1s", "pager.alert.fired", { name = "A", zone = "eu" }]"#;
        let made = r#"{ at = "2s" }"#;
        for (steps, ended, part) in [
            (&[A, filtered][..], r#"{ ended = "filtered", by = "where" }"#, ""),
            (&[A, filtered], r#"{ ended = "filtered", by = "sources" }"#, "`filtered` by sources, but 0 did"),
            (&[A, again], r#"{ ended = "duplicate" }"#, ""),
            (
                &[A, again],
                r#"{ ended = "duplicate", count = 2 }"#,
                "expected that 2 end as `duplicate`, but 1 did",
            ),
            (&[A], r#"{ ended = "expired", count = 0 }"#, ""),
            (&[A], r#"{ ended = "expired", at = "11m" }"#, ""),
            (&[A], r#"{ ended = "expired", at = "9m" }"#, "but 0 did"),
            (&[A], r#"{ ended = "expird" }"#, "did you mean `expired`?"),
        ] {
            let report = report(steps, &format!("{made}, {ended}"));
            assert!(
                if part.is_empty() { report.is_empty() } else { report.contains(part) },
                "{ended}: {report}"
            );
        }
    }

    #[test]
    fn each_step_reaches_the_engine() {
        let open = r#"{ at = "0s", session = "b", state = "open", workspace = "/w" }"#;
        let for_folder = r#"["0s", "pager.alert.fired", { name = "A", zone = "eu" }, { workspace = "/w" }]"#;
        let for_all = r#"["0s", "pager.alert.fired", { name = "A", zone = "eu" }, { everywhere = true }]"#;
        let ask =
            |session: &str| format!("{{ at = \"3s\", exchange = \"after_tool\", session = \"{session}\" }}");
        let restart = r#"{ at = "1s", restart = true }"#;
        let close = r#"{ at = "2500ms", session = "b", state = "closed" }"#;
        let untrusted = r#"["0s", "pager.alert.fired", { name = "A", zone = "eu" }, { severity = "critical", trusted = false }]"#;
        let small =
            r#"{ at = "3s", exchange = "after_tool", budget = { max_chars = 500 }, format = "json" }"#;
        let again = r#"{ at = "3s", exchange = "after_tool", session = "b", workspace = "/w" }"#;
        let it = r#"{ at = "3s", text = "alert: A in eu" }"#;
        for (steps, expect) in [
            (vec![open, for_folder, &ask("b")], it),
            (vec![open, for_folder, &ask("s")], ""),
            (vec![for_all, &ask("c")], it),
            (vec![A, restart, ASK], it),
            (vec![open, for_folder, close, again], it),
            (
                vec![A, r#"{ at = "1s", exchange = "turn_start" }"#],
                r#"{ at = "1s", text = "alert: A in eu" }"#,
            ),
            (vec![untrusted, ASK], r#"{ at = "3s", priority = "high", severity = "critical" }"#),
            (vec![A, small], r#"{ at = "3s", format = "json" }"#),
            (
                vec![A, ASK, r#"{ at = "4s", exchange = "turn_start", context = "compacted" }"#],
                r#"{ at = "3s" }, { at = "4s", point = "after_tool" }"#,
            ),
        ] {
            assert_eq!(report(&steps, expect), "", "{steps:?}");
        }
    }

    #[test]
    fn other_subscribers_run_only_if_named() {
        let down = r#"["0s", "pager.zone.down", { zone = "eu" }]"#;
        let steps = format!("at = [{down}, {ASK}]\n");
        assert_eq!(report_of(&format!("{steps}expect = []\n")), "");
        let with = format!("with = [\"zones\"]\n{steps}");
        assert_eq!(report_of(&format!("{with}expect = [{{ at = \"3s\", delivered = [\"zones\"] }}]\n")), "");
        let unknown = report_of(&format!("with = [\"zone\"]\n{steps}expect = []\n"));
        assert!(
            unknown.contains("there is no subscriber `zone`") && unknown.contains("`zones`?"),
            "{unknown}"
        );
    }

    #[test]
    fn a_failure_says_where_each_event_stopped() {
        let filtered = r#"["1s", "pager.alert.fired", { name = "C", zone = "test" }]"#;
        let down = r#"["1s", "pager.zone.down", { zone = "eu" }]"#;
        let report = report(&[A, filtered, down], "");
        for part in [
            "expected no notification, made 1: at 2s: alert: A in eu",
            "pager.alert.fired  filtered it: where = \"payload.zone != 'test'\"  line 5",
            "pager.zone.down    not taken: `types` has `pager.alert.*`  line 4",
            "alert: A in eu: made of 1 row",
        ] {
            assert!(report.contains(part), "{part}: {report}");
        }
    }

    #[test]
    fn the_part_that_is_not_met_is_underlined() {
        let report =
            report(&[A, B], r#"{ at = "2s", decoded = { alerts = [{ name = "A" }, { zone = "uk" }] } }"#);
        assert!(report.contains("`alerts[1].zone` is \"us\", expected \"uk\""), "{report}");
        let underlined = report.lines().find(|line| line.contains("^^^^")).expect("a place");
        let line = report.lines().find(|line| line.contains("zone = \"uk\"")).expect("the line");
        assert_eq!(underlined.find("^^^^"), line.find("\"uk\""), "{report}");
    }

    #[test]
    fn wrong_steps_are_refused_with_allowed_words() {
        for (step, part) in [
            (r#"{ at = "1s", exchange = "after_tol" }"#, "did you mean `after_tool`?"),
            (
                r#"{ at = "1s" }"#,
                "has one of the keys exchange, state, silence, expire, settings, respond, restart",
            ),
            (r#"{ at = "1s", exchange = "after_tool", restart = true }"#, "exchange, restart, not several"),
            (r#"{ at = "1s", state = "gone" }"#, "`state` cannot be `gone`"),
            (r#"{ at = "1s", state = "closed", workspace = "/w" }"#, "belongs to `state = \"open\"`"),
            (r#"{ at = "1s", restart = false }"#, "`restart` is true or absent"),
            (r#"{ at = "1s", exchange = "after_tool", tol = "x" }"#, "did you mean `tool`?"),
            (r#"{ at = "1s", exchange = "after_tool", budget = { max_token = 3 } }"#, "`max_tokens`?"),
            (r#"{ at = "1s", exchange = "after_tool", from = "b" }"#, "`from` belongs to"),
            (
                r#"["1s", "pager.alert.fired", {}, { session = "b", everywhere = true }]"#,
                "one of session, workspace",
            ),
            (r#"["1s", "pager.alert.fired"]"#, "3 or 4 items"),
            (r#"["1s", "pager.alert.fird", {}, { severty = "info" }]"#, "did you mean `severity`?"),
            (r#"{ exchange = "after_tool" }"#, "`at` is missing"),
        ] {
            let report = report(&[step], "");
            assert!(report.contains(part), "{step}: {report}");
        }
        let start = report_of("start = \"noon\"\nat = []\nexpect = []\n");
        assert!(start.contains("`noon` is not a time with its zone"), "{start}");
        let late = report_of(&format!("at = [{B}, {A}]\nexpect = []\n"));
        assert!(late.contains("not in the order of their times"), "{late}");
    }

    /// The explanations of the failed tests of the subscriber in the first of `files`.
    fn explained(files: &[(&str, &str)]) -> String {
        let file = |(name, text): &(&str, &str)| SourceFile {
            layer: LayerKind::User,
            name: (*name).into(),
            path: (*name).into(),
            text: (*text).into(),
        };
        let compiled = compile(&Sources::shipped().with(files.iter().map(file), []), &[]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        let cases = super::Cases::new(&compiled);
        let own = cases.iter().filter(|case| *case.test.place.file == *files[0].0);
        own.filter_map(|case| case.run().err()).map(|wrong| wrong.to_string()).collect()
    }

    #[test]
    fn failed_part_is_named_with_its_place() {
        let head = "[subscriber]\nid = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\n";
        let test = "[[tests]]\nname = \"t\"\nat = [[\"0s\", \"tool.call.failure\", { n = \"a\" }]]\n\
                    expect = [{ at = \"0s\", decoded = { n = 1 } }, { ended = \"filtered\", count = 3 }]\n";
        let with = |rest: &str| format!("{head}{rest}{test}");
        let batch = "[batching]\nwindow_ms = 0\n[output]\n";
        let generic = ", so the generic table is in its place";
        for (rest, line, end) in [
            (format!("{batch}one = \"\"\"\na: 1\nb: {{{{ payload.n + 1 }}}}\"\"\"\n"), 10, generic),
            (
                format!("{batch}one = \"a: 1\"\nsentence = \"{{{{ 1 + payload.n }}}}\"\n"),
                9,
                "the first values of the text",
            ),
            ("where = \"1 + payload.n > 2\"\n".to_owned(), 5, "so the event is filtered out"),
            (format!("{batch}one = \"only words\"\n"), 7, ""),
        ] {
            let shown = explained(&[("subscribers/x.toml", &with(&rest))]);
            let failed: Vec<&str> = shown.lines().filter(|line| line.starts_with("  failed  ")).collect();
            match end {
                "" => assert!(failed.is_empty(), "{rest}: {shown}"),
                end => {
                    let place = format!("  subscribers/x.toml:{line}");
                    assert!(
                        matches!(failed[..], [one] if one.contains(end) && one.ends_with(&place)),
                        "{rest}: {shown}"
                    );
                }
            }
        }
        let template = ("templates/x.toon.j2", "a: 1\nb: {{ events[0].payload.nope }}\n");
        let shown = explained(&[("subscribers/x.toml", &with("[batching]\nwindow_ms = 0\n")), template]);
        assert!(shown.contains("`events[0].payload.nope` is undefined"), "{shown}");
        assert!(shown.contains(&format!("{generic}  templates/x.toon.j2:2\n")), "{shown}");
    }

    #[test]
    fn narrower_core_file_is_tested_with_its_remainder() {
        let file = |expect: &str| {
            format!(
                "[subscriber]\nid = \"tool_failure\"\n[events]\ntypes = [\"tool.call.failure\"]\n[batching]\nwindow_ms = 0\n\
                 [output]\none = \"own: {{{{ payload.tool_name }}}}\"\n[[tests]]\nname = \"t\"\n\
                 at = [[\"0s\", \"tool.call.failure\", {{ tool_name = \"a\" }}], [\"0s\", \"tool.call.timeout\", {{ tool_name = \"b\" }}]]\n\
                 expect = [{{ at = \"0s\", text = \"own: a\" }}{expect}]\n"
            )
        };
        let shown = explained(&[("subscribers/tool_failure.toml", &file(""))]);
        assert!(shown.contains("made       at 0s: own: a\n"), "{shown}");
        assert!(shown.contains(" by tool_failure@shipped: "), "{shown}");
        assert!(shown.contains("made of 1 row by tool_failure@shipped\n"), "{shown}");
        let whole = file(", { at = \"2s\", contains = \"b\", priority = \"high\" }");
        assert_eq!(explained(&[("subscribers/tool_failure.toml", &whole)]), "");
    }
}
