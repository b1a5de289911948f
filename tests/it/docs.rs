//! Checks the examples in the documentation: subscribers and templates compile, tests pass, and the
//! outputs are the real ones.
//!
//! In the pages for authors of subscribers a `toml` block with `[subscriber]` is a subscriber's
//! file, whose tests pass unless the block is `toml fails`; any other `toml` block is a part of one.
//! If a `toon` block follows, it shows the subscriber's output for the events in the `json` block
//! above. A `jinja` block followed by a `toon` block is a template and its output for the events in
//! the `json` block above; one that begins with `{# fails #}` has to fail, and one that begins with
//! the comment of a path in `templates/lib/` is that library. Any other `jinja` block is the template
//! of the subscriber above it.
//!
//! In a harness's document the table of the client's own messages has the rows of the program, and
//! rows of messages that the client never sends to its agent.

use std::{fs, path::Path, sync::Arc};

use aside::{
    config::{
        compile::{Compiled, compile},
        layers::{LayerKind, SourceFile, Sources},
        trial::Cases,
    },
    harness::table::KINDS,
};
use engine::{
    event::{Event, Payload, Seq, Severity},
    notification::{SubscriberId, Tokens},
    pipeline::{
        render::{Libraries, RenderInput, Rendered, Templates},
        row::Row,
    },
};
use journal::time::Timestamp;
use serde_json::Value;

/// The pages with subscribers and templates.
pub(crate) const SUBSCRIBER_PAGES: [&str; 10] = [
    "README.md",
    "docs/batching.md",
    "docs/changing-what-ships.md",
    "docs/delivery.md",
    "docs/selecting.md",
    "docs/subscribers.md",
    "docs/templates.md",
    "docs/testing.md",
    "docs/tutorial.md",
    "docs/workspaces.md",
];
/// Sections that are added to a part of a file if it lacks them.
const REQUIRED: [(&str, &str); 2] = [("subscriber", "id = \"example\""), ("events", "types = [\"**\"]")];

/// The tables of `aside.toml` that a document about subscribers shows.
const SETTINGS: [&str; 2] = ["budget", "delivery"];
/// The file of an example.
const EXAMPLE: &str = "subscribers/example.toml";

/// The heading above the table of the client's own messages, in the harness's document.
const NATIVE: &str = "## What it says by itself";

pub(crate) struct Block {
    pub(crate) language: String,
    /// The words after the language.
    pub(crate) marks: String,
    pub(crate) text: String,
    /// The line of its opening fence, from 1.
    pub(crate) number: usize,
    /// Its position, for messages.
    pub(crate) place: String,
}

#[test]
fn documented_subscribers_compile_and_pass_their_tests() {
    for document in SUBSCRIBER_PAGES {
        let blocks = blocks(document);
        let templates = templates(&blocks);
        let examples: Vec<&Block> = blocks.iter().filter(|block| block.language == "toml").collect();
        assert!(!examples.is_empty(), "{document} shows no subscriber");
        for block in examples {
            let is_settings = table(block).keys().all(|section| SETTINGS.contains(&section.as_str()));
            let compiled = match is_settings {
                true => compile_with("aside.toml", &block.text, &templates),
                false => compile_with(EXAMPLE, &completed(block), &templates),
            };
            assert_eq!(compiled.report.to_string(), "", "{}", block.place);
            let failed = failed_tests(&compiled);
            assert_eq!(!failed.is_empty(), block.marks == "fails", "{}: {failed:?}", block.place);
        }
    }
}

#[test]
fn documented_outputs_match_their_templates() {
    let (mut compared, mut differences) = (0, Vec::new());
    for document in SUBSCRIBER_PAGES {
        let blocks = blocks(document);
        let (mut rows, libraries) = (Vec::new(), libraries(&blocks));
        for (index, block) in blocks.iter().enumerate() {
            match block.language.as_str() {
                "json" => rows = rows_of(block),
                "jinja" | "toml" => {
                    let Some(output) = output_of(&blocks, index) else { continue };
                    let rendered = match &*block.language {
                        "toml" => render_subscriber(block, &rows),
                        _ => render(block, &libraries, &rows),
                    };
                    let is_failing = block.text.starts_with("{# fails #}");
                    let Block { place, .. } = block;
                    assert_eq!(rendered.failure.is_some(), is_failing, "{place}: {:?}", rendered.failure);
                    if rendered.content != output.text.trim_end() {
                        differences.push(format!("{place} gives\n{}", rendered.content));
                    }
                    compared += 1;
                }
                _ => {}
            }
        }
    }
    assert!(differences.is_empty(), "{}", differences.join("\n\n"));
    assert!(compared > 5, "only {compared} outputs are shown");
}

#[test]
fn documented_client_messages_match_the_program() {
    for kind in KINDS.into_iter().filter(|kind| !kind.native.is_empty()) {
        let document = format!("docs/{}.md", kind.caps.name);
        let text = read(&document);
        let (_, section) = text.split_once(NATIVE).unwrap_or_else(|| panic!("{document} has no {NATIVE}"));
        let rows = section
            .lines()
            .skip_while(|line| !line.starts_with('|'))
            .take_while(|line| line.starts_with('|'));
        let cells = rows.skip(2).map(|row| row.split('|').map(str::trim).skip(1).take(2).collect::<Vec<_>>());
        let is_to_agent = |says: &str| says != "never" && !says.starts_with("to its user");
        let said: Vec<Vec<&str>> =
            cells.filter(|cells| cells.get(1).is_some_and(|says| is_to_agent(says))).collect();
        let native: Vec<[String; 2]> =
            kind.native.iter().map(|native| [native.what.to_owned(), native.to_string()]).collect();
        assert_eq!(said, native, "{document}");
    }
}

/// The conflict markers of an unresolved merge, at the beginning of a line.
const MERGE_MARKS: [&str; 2] = ["<<<<<<< ", ">>>>>>> "];

#[test]
fn no_document_has_the_marks_of_a_merge() {
    let in_folder = |folder: &str| {
        let entries = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)).expect("a folder");
        entries.map(|entry| entry.expect("an entry").path()).collect::<Vec<_>>()
    };
    let documents: Vec<_> = ["", "docs", "docs/design"].into_iter().flat_map(in_folder).collect();
    let documents = documents.iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
    let mut count = 0;
    for path in documents {
        count += 1;
        let text = fs::read_to_string(path).expect("UTF-8");
        let marked = text.lines().find(|line| MERGE_MARKS.iter().any(|mark| line.starts_with(mark)));
        assert_eq!(marked, None, "{}", path.display());
    }
    assert!(count > 30, "{count} documents");
}

pub(crate) fn read(document: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(document);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{document}: {error}"))
}

/// The fenced blocks of a document. A block ends with a fence of at least as many backticks.
pub(crate) fn blocks(document: &str) -> Vec<Block> {
    let text = read(document);
    let mut blocks: Vec<Block> = Vec::new();
    let mut open_fence = None;
    for (line, number) in text.lines().zip(1..) {
        let rest = line.trim_start_matches('`');
        let backticks = line.len() - rest.len();
        match open_fence {
            Some(fence) if backticks >= fence && rest.is_empty() => open_fence = None,
            Some(_) => {
                let block = blocks.last_mut().expect("a block is open");
                block.text.push_str(line);
                block.text.push('\n');
            }
            None if backticks >= 3 => {
                let (language, marks) = rest.split_once(' ').unwrap_or((rest, ""));
                let [language, marks] = [language, marks].map(str::to_owned);
                let place = format!("{document}:{number}");
                blocks.push(Block { language, marks, text: String::new(), number, place });
                open_fence = Some(backticks);
            }
            None => {}
        }
    }
    blocks
}

/// The block that shows the output of the template at `index`, if there is one.
fn output_of(blocks: &[Block], index: usize) -> Option<&Block> {
    blocks.get(index + 1).filter(|next| next.language == "toon")
}

/// The name and text of each template that belongs to a subscriber.
fn templates(blocks: &[Block]) -> Vec<(String, String)> {
    let mut templates = Vec::new();
    let mut named = None;
    for (index, block) in blocks.iter().enumerate() {
        match block.language.as_str() {
            "toml" => named = template_named_by(block).or(named),
            "jinja" if library_of(block).is_some() => templates.extend(library_of(block)),
            "jinja" if output_of(blocks, index).is_none() => {
                let name = named.clone().unwrap_or_else(|| panic!("{} belongs to nothing", block.place));
                templates.push((name, block.text.clone()));
            }
            _ => {}
        }
    }
    templates
}

/// The file and the text of the library in a block.
fn library_of(block: &Block) -> Option<(String, String)> {
    let (name, _) = block.text.strip_prefix("{# ")?.split_once(" #}")?;
    name.starts_with("templates/lib/").then(|| (name.to_owned(), block.text.clone()))
}

/// The libraries of a document.
fn libraries(blocks: &[Block]) -> Libraries {
    let libraries = blocks.iter().filter_map(library_of);
    let named = libraries.map(|(name, text)| {
        let name = name.trim_start_matches("templates/").trim_end_matches(".toon.j2");
        (name.into(), text.into())
    });
    named.collect()
}

fn template_named_by(block: &Block) -> Option<String> {
    Some(table(block).get("output")?.get("template")?.as_str()?.to_owned())
}

fn table(block: &Block) -> toml::Table {
    block.text.parse().unwrap_or_else(|error| panic!("{}: {error}", block.place))
}

/// The text of a subscriber's file.
fn completed(block: &Block) -> String {
    let table = table(block);
    let missing = REQUIRED.iter().filter(|(section, _)| !table.contains_key(*section));
    missing.fold(block.text.clone(), |text, (section, keys)| format!("{text}\n[{section}]\n{keys}\n"))
}

fn compile_with(name: &str, text: &str, templates: &[(String, String)]) -> Compiled {
    let file = |name: &str, text: &str| SourceFile {
        layer: LayerKind::User,
        name: name.into(),
        path: name.into(),
        text: text.into(),
    };
    let templates = templates.iter().map(|(name, text)| file(name, text));
    let files = templates.chain([file(name, text)]);
    compile(&Sources::shipped().with(files, []), &[])
}

/// What is wrong with each test that fails.
fn failed_tests(compiled: &Compiled) -> Vec<String> {
    let cases = Cases::new(compiled);
    let failed = cases.iter().filter_map(|case| {
        let wrong = case.run().err()?;
        Some(format!("{}, {}: {wrong}", case.subscriber(), case.test.name))
    });
    failed.collect()
}

/// The events of a `json` block, which is a list of objects.
fn rows_of(block: &Block) -> Vec<Row> {
    let Block { text, place, .. } = block;
    let Ok(Value::Array(events)) = serde_json::from_str(text) else { return Vec::new() };
    let row = |(seq, event): (u64, &Value)| {
        let text = |name: &str| event[name].as_str().unwrap_or_else(|| panic!("{place}: no {name}"));
        let event = Event {
            id: format!("e{seq}").into(),
            source: text("source").into(),
            severity: text("severity").parse::<Severity>().expect("a severity"),
            timestamp: Timestamp::from_millis(1_700_000_000_000),
            ..Event::example(
                text("type").parse().expect("a valid type"),
                Payload::from(event["payload"].clone()),
            )
        };
        (seq, event)
    };
    let repeats = |event: &Value| event["repeats"].as_u64().and_then(|n| u32::try_from(n).ok()).unwrap_or(1);
    let rows = (1..).zip(&events).map(row).zip(&events);
    rows.map(|((seq, event), json)| Row {
        seq: Seq(seq),
        event: Arc::new(event),
        repeats: repeats(json),
        threshold: None,
        suppressed: None,
    })
    .collect()
}

/// The output of the subscriber of a `toml` block for `rows`.
fn render_subscriber(block: &Block, rows: &[Row]) -> Rendered {
    let rules = compile_with(EXAMPLE, &completed(block), &[]).rules;
    let rule = rules.subscribers.iter().find(|rule| rule.id.as_str() == "example").expect("it compiles");
    rule.output.layout.render(&rules.templates, &input(&rule.id, rows))
}

fn render(block: &Block, libraries: &Libraries, rows: &[Row]) -> Rendered {
    let mut templates = Templates::with_libraries(libraries.clone());
    templates
        .add("example", &block.text)
        .unwrap_or_else(|error| panic!("{}, line {} of it: {error}", block.place, error.line));
    templates.render("example", &input(&SubscriberId::new("example"), rows))
}

fn input<'a>(subscriber: &'a SubscriberId, rows: &'a [Row]) -> RenderInput<'a> {
    let now = Timestamp::from_millis(1_700_000_002_000);
    RenderInput { subscriber_name: "Example", now, ..RenderInput::new(subscriber, rows, Tokens(200)) }
}
