//! The words for a person: `sentence` in a subscriber's file.
//!
//! A template that sees one event, as `one` does, and prints plain text instead of TOON. A client
//! shows its user one line, so only the first events of a batch are put into words.

use std::sync::Arc;

use super::{
    CleanRows, RenderFailure, RenderInput, TemplateError,
    draft::Attempt,
    template::{Template, View},
};
use crate::{event::cut_text, sorted::SortedSet};

/// Most events of a batch with words of their own; the rest is counted.
const EVENTS_MAX: usize = 2;
/// Most characters of the words for one event; a client shows about 100 of a line.
const CHARS_MAX: usize = 200;

/// The words for one event.
#[derive(Debug, PartialEq, Eq)]
pub struct Sentence(Template);

impl Sentence {
    /// Compiles it.
    ///
    /// Errors: as for [`super::Templates::add`]; `notify` is refused too.
    pub fn compile(source: &str) -> Result<Self, TemplateError> {
        Template::compile(View::Sentence, source).map(Self)
    }

    /// Takes a source without a fault; it is compiled when it first runs.
    pub fn deferred(source: &str) -> Self {
        Self(Template::deferred(View::Sentence, source))
    }

    /// The payload fields that it names as `payload.name`.
    pub fn fields(&self) -> &SortedSet<String> {
        self.0.fields()
    }

    /// The words for the first events of a batch, oldest first.
    ///
    /// Shape: each is one line, with the secrets and control characters of values removed. An event
    /// for which nothing is printed has none.
    ///
    /// Errors: the template fails, also for one of the events only.
    pub fn render(&self, input: &RenderInput<'_>) -> Result<Vec<Arc<str>>, RenderFailure> {
        let mut said = Vec::new();
        for row in input.rows.iter().take(EVENTS_MAX) {
            let mut clean = CleanRows::new(std::slice::from_ref(row));
            let events = clean.events(CHARS_MAX);
            let words = self.0.words(input, &events, &clean.account).map_err(failure)?;
            let mut line = String::with_capacity(words.len());
            for word in words.split_whitespace() {
                line.extend((!line.is_empty()).then_some(' '));
                line.push_str(word);
            }
            if !line.is_empty() {
                said.push(cut_text(line.into(), CHARS_MAX).into());
            }
        }
        Ok(said)
    }
}

fn failure(failed: Attempt) -> RenderFailure {
    match failed {
        Attempt::Failed { line, message } => RenderFailure { line, message },
        Attempt::Nothing => RenderFailure { line: None, message: "its output is empty".into() },
        Attempt::TooBig => RenderFailure { line: None, message: "it prints too much".into() },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{
        super::{Templates, tests::row},
        *,
    };
    use crate::{
        notification::{SubscriberId, Tokens},
        pipeline::row::Row,
    };

    fn said(source: &str, payloads: &[Value]) -> Result<Vec<Arc<str>>, RenderFailure> {
        let rows: Vec<Row> = payloads.iter().map(|payload| row(payload.clone(), 1)).collect();
        let sentence = Sentence::compile(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        sentence.render(&RenderInput::new(&SubscriberId::new("orders"), &rows, Tokens(200)))
    }

    #[test]
    fn each_of_the_first_events_has_one_line() {
        let source = "order {{ payload.id }}\n  {{- \" failed\" if payload.why }}{% if payload.why %}: {{ payload.why }}{% endif %}";
        let payloads = [
            json!({ "id": 7, "why": "no\nstock: \u{1b}[1m<cup> {x}" }),
            json!({ "id": "a -> b" }),
            json!({ "id": 9 }),
        ];
        let words = said(source, &payloads).expect("words");
        assert_eq!(words, ["order 7 failed: no stock: <cup> {x}".into(), Arc::from("order a -> b")]);
        assert_eq!(said("{{ payload.absent }}", &payloads), Ok(Vec::new()));
        let long = said("{{ payload.id }}", &[json!({ "id": "x".repeat(5_000) })]).expect("words");
        assert!(long.iter().all(|words| words.chars().count() < CHARS_MAX + 30), "{long:?}");
    }

    #[test]
    fn deferred_template_compiles_when_it_first_runs() {
        let rows = [row(json!({ "id": 7 }), 1)];
        let (id, words) = (SubscriberId::new("orders"), "order {{ payload.id }}");
        let input = RenderInput::new(&id, &rows, Tokens(200));
        assert_eq!(Sentence::deferred(words).render(&input), Ok(vec!["order 7".into()]));
        assert_eq!(Sentence::deferred(words), Sentence::compile(words).expect("words"));
        assert_eq!(Sentence::deferred(words).fields().len(), 1);

        let bad = Sentence::deferred("x\n{{ events }}");
        assert!(bad.fields().is_empty());
        let failed = bad.render(&input).expect_err("no such variable");
        assert_eq!((failed.line, failed.message.contains("has no `events`")), (Some(2), true), "{failed:?}");
        let mut templates = Templates::new();
        templates.add_deferred("good", "a: {{ events[0].payload.id }}");
        templates.add_deferred("bad", "{{ a");
        assert_eq!(templates.render("good", &input).content, "a: 7");
        let rendered = templates.render("bad", &input);
        assert_eq!(rendered.failure.map(|failure| failure.line), Some(Some(1)));
        assert!(rendered.content.contains('7'), "the generic table: {}", rendered.content);
    }

    #[test]
    fn a_sentence_that_cannot_be_rendered_says_why() {
        let failed = said("x\n{{ payload.id / 0 }}", &[json!({ "id": "a" })]).expect_err("no number");
        assert_eq!(failed.line, Some(2), "{failed:?}");
        for (source, word) in [
            ("{{ payload.id", "syntax"),
            ("{{ events }}", "has no `events`"),
            ("{{ payload|toon }}", "toon"),
            ("{{ notify(\"x\") }}", "notify"),
        ] {
            let error = Sentence::compile(source).expect_err(source).to_string();
            assert!(word == "syntax" || error.contains(word), "{source}: {error}");
        }
    }
}
