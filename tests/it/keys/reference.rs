//! The tables of docs/reference.md that are no keys.

use aside::config::{
    lints::LINTS,
    reference::{Entry, Topic},
};
use engine::ledger::{Reason, Sentence};

use super::text::with_table;

/// A document with the tables of variables, filters, functions, tests, lints and reasons.
pub(super) fn topic_tables(document: &str) -> String {
    let entries = |topic: Topic| topic.entries().into_iter();
    let variables = entries(Topic::Variables).map(|entry| format!("| `{}` | {} |\n", entry.name, entry.says));
    let document = with_table(document, "## Variables", ["variable", "what"], variables);
    let document = [
        ("## Filters", "filter", Topic::Filters),
        ("## Functions", "function", Topic::Functions),
        ("## Tests of values", "test", Topic::Tests),
    ]
    .into_iter()
    .fold(document, |document, (heading, what, topic)| {
        with_table(&document, heading, [what, "what", "example", "writes"], entries(topic).map(row))
    });
    let lints = LINTS
        .iter()
        .map(|lint| format!("| `{}` | {} | {} |\n", lint.name.as_str(), lint.level.as_str(), lint.finds));
    let document = with_table(&document, "## Lints", ["lint", "level", "finds"], lints);
    let said = |sentence: Option<Sentence>| {
        sentence.map(|said| said.end.replace("{detail}", "..")).unwrap_or_default()
    };
    let reasons = Reason::texts()
        .map(|text| format!("| `{}` | {} | {} |\n", text.word, said(text.event), said(text.notification)));
    with_table(&document, "## Reasons", ["reason", "of an event", "of a notification"], reasons)
}

/// The row of a name with an example.
fn row(entry: Entry) -> String {
    let Entry { name, says, example, .. } = entry;
    let example = example.expect("each filter, function and test has one");
    format!("| `{name}` | {says} | {} | {} |\n", code(example.text), code(example.writes))
}

/// Lines of code in a cell.
fn code(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('|', "\\|");
        // A code of two backticks may have one.
        let marks = if line.contains('`') { "``" } else { "`" };
        // White space at the beginning of a line is a part of it.
        let indent = "&nbsp;".repeat(line.len() - line.trim_start().len());
        format!("{indent}{marks}{}{marks}", line.trim_start())
    };
    text.lines().map(line).collect::<Vec<_>>().join("<br>")
}
