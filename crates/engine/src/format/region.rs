//! Writes the region of a session as one text of bounded length, for a dynamic section of a prompt.
//!
//! Equal facts give equal bytes: the order is fixed, and nothing in the text tells a time. As many
//! facts as fit are in it, and the others are counted in one last line. Each value is encoded by the
//! encoder of injections, so no payload can close, open or forge a block.

use serde_json::{Map, Value, json};

use super::{
    Item,
    item::{CUT, RESPOND},
    json,
    line::LINE_CHARS_MAX,
    markdown::backticks_around,
    part::{Fields, FrameValue, MORE, Part, SEVERITY, SUBSCRIBER},
    sentence::{in_full, is_line_end, length, sentence, shortened},
    shorten, toon,
};
use crate::{
    exchange::{Format, LINE_BEGIN},
    notification::{Cut, Priority, Tokens, UNTRUSTED_SOURCE},
    region::{Fact, FileChange, OpenFile, Problem, Region},
};

/// The tag of the block.
const TAG: &str = "region";
/// The source of a block that is of no subscriber.
const OWN: &str = "aside";
/// The title in Markdown.
const TITLE: &str = "# What is true now";
/// The keys of the sections.
const CONDITIONS: &str = "conditions";
const RETAINED: &str = "retained";
const EDITOR: &str = "editor";
const PROBLEMS: &str = "problems";
const FILES: &str = "files";
/// The key for how many conditions of a notification still hold.
const UNRESOLVED: &str = "unresolved";
/// Of the room, conditions and retained states have this many parts, where the editor and the files
/// have one.
const FACTS_SHARE: u32 = 2;
/// The fewest characters of a notification that is cut.
const CUT_CHARS_MIN: usize = 24;
/// The fewest tokens of a text: a last line alone has them.
pub const REGION_TOKENS_MIN: Tokens = Tokens(50);

/// The text of a region.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrittenRegion {
    /// The text; empty if there is nothing to say.
    pub text: String,
    /// Its estimated size.
    pub tokens: Tokens,
    /// Number of facts in it.
    pub shown: u64,
    /// Number of facts that it counts only.
    pub left_out: u64,
}

/// Writes what fits into `max_tokens`, which is at least [`REGION_TOKENS_MIN`]. A format whose carrier
/// is not a text is written as `xml`.
pub fn write_region(region: &Region, format: Format, max_tokens: Tokens) -> WrittenRegion {
    let pieces = pieces(region, max_tokens);
    let written = |kept: &[Piece<'_>], cut: Option<&Cut>| {
        let text = Sections::new(region, kept, cut).write(format);
        let tokens = ::toon::tokens::estimate(&text);
        WrittenRegion { tokens, shown: kept.len() as u64, left_out: left_out(region, kept).total(), text }
    };
    let fits = |count: usize| {
        let found = written(pieces.get(..count).unwrap_or_default(), None);
        (found.tokens <= max_tokens).then_some(found)
    };
    let (mut most, mut best) = (pieces.len(), None);
    let mut least = 0;
    // The largest number that fits.
    while least < most {
        let middle = most - (most - least) / 2;
        match fits(middle) {
            Some(found) => (least, best) = (middle, Some(found)),
            None => most = middle - 1,
        }
    }
    let cut_first = || match pieces.first() {
        Some(Piece::Condition(fact) | Piece::Retained(fact)) => cuts(fact, max_tokens)
            .map(|cut| written(pieces.get(..1).unwrap_or_default(), Some(&cut)))
            .find(|one| one.tokens <= max_tokens),
        Some(Piece::Open(_) | Piece::Problem(_) | Piece::File(_)) | None => None,
    };
    best.or_else(cut_first).unwrap_or_else(|| written(&[], None))
}

/// The text as a document alone, which decodes to the facts; for tests of subscribers.
pub fn region_document(region: &Region, max_tokens: Tokens) -> String {
    write_region(region, Format::Toon, max_tokens).text
}

/// Shorter and shorter parts of a notification.
fn cuts(fact: &Fact, max_tokens: Tokens) -> impl Iterator<Item = Cut> + '_ {
    let most = usize::try_from(max_tokens.0).unwrap_or(usize::MAX).saturating_mul(3);
    let lengths = std::iter::successors(Some(most), |chars| Some(chars / 3 * 2));
    lengths
        .take_while(|chars| *chars >= CUT_CHARS_MIN)
        .map(|chars| shorten(&fact.notification.id, &fact.notification.content, chars))
}

/// A fact of a region.
#[derive(Debug, Clone, Copy)]
enum Piece<'r> {
    Condition(&'r Fact),
    Retained(&'r Fact),
    Open(&'r OpenFile),
    Problem(&'r Problem),
    File(&'r FileChange),
}

impl Piece<'_> {
    /// About how much room it takes.
    fn tokens(self) -> u32 {
        const FRAME: u32 = 8;
        let of = |text: &str| ::toon::tokens::estimate(text).0;
        FRAME
            + match self {
                Self::Condition(fact) | Self::Retained(fact) => of(fact.notification.content.text()),
                Self::Open(open) => of(&open.path),
                Self::Problem(problem) => of(&problem.path) + of(&problem.message),
                Self::File(change) => of(&change.path),
            }
    }
}

/// The facts, the most important first, as many as may fit. What is urgent precedes all; of the rest,
/// notifications have most of the room.
fn pieces(region: &Region, max_tokens: Tokens) -> Vec<Piece<'_>> {
    let is_urgent = |fact: &&Fact| fact.notification.priority >= Priority::High;
    let (urgent, usual): (Vec<&Fact>, Vec<&Fact>) = region.conditions.iter().partition(is_urgent);
    let facts = usual.into_iter().map(Piece::Condition);
    let mut facts = facts.chain(region.retained.iter().map(Piece::Retained)).peekable();
    let workspace = region.open.iter().map(Piece::Open).chain(region.problems.iter().map(Piece::Problem));
    let mut workspace = workspace.chain(region.files.iter().map(Piece::File)).peekable();
    let mut pieces: Vec<Piece<'_>> = urgent.into_iter().map(Piece::Condition).collect();
    // A table takes less room than its rows alone.
    let enough = max_tokens.0.saturating_mul(3);
    let mut total: u32 = 0;
    for (count, piece) in (1..).zip(&pieces) {
        total = total.saturating_add(piece.tokens());
        if total > enough {
            pieces.truncate(count);
            return pieces;
        }
    }
    let (mut of_facts, mut of_workspace) = (0_u32, 0_u32);
    while total <= enough {
        let is_fact_next = of_facts <= of_workspace.saturating_mul(FACTS_SHARE);
        let next = match (is_fact_next, facts.peek().is_some(), workspace.peek().is_some()) {
            (true, true, _) | (false, true, false) => facts.next().map(|piece| (piece, &mut of_facts)),
            (_, _, _) => workspace.next().map(|piece| (piece, &mut of_workspace)),
        };
        let Some((piece, share)) = next else { break };
        let tokens = piece.tokens();
        *share = share.saturating_add(tokens);
        total = total.saturating_add(tokens);
        pieces.push(piece);
    }
    pieces
}

/// Number of facts that a text counts only, by their kind.
#[derive(Debug, Clone, Copy, Default)]
struct LeftOut {
    conditions: u64,
    retained: u64,
    problems: u64,
    files: u64,
    forgotten: u64,
}

impl LeftOut {
    fn total(self) -> u64 {
        self.conditions + self.retained + self.problems + self.files + self.forgotten
    }

    /// One line of bounded length, which needs no quotes; `None` if there is nothing to count.
    fn in_line(self) -> Option<String> {
        let Self { conditions, retained, problems, files, forgotten } = self;
        let named = [
            (conditions + forgotten, "conditions"),
            (retained, "retained states"),
            (problems, "problems"),
            (files, "changes of files"),
        ];
        let named = named.iter().filter(|(count, _)| *count > 0);
        let named: Vec<String> = named.map(|(count, what)| format!("{count} {what}")).collect();
        (!named.is_empty()).then(|| format!("{} not shown", named.join("; ")))
    }
}

fn left_out(region: &Region, kept: &[Piece<'_>]) -> LeftOut {
    let mut left = LeftOut {
        conditions: region.conditions.len() as u64 + region.more_conditions,
        retained: region.retained.len() as u64 + region.more_retained,
        problems: region.problems.len() as u64 + region.more_problems,
        files: region.files.len() as u64,
        forgotten: region.forgotten,
    };
    for piece in kept {
        match piece {
            Piece::Condition(_) => left.conditions -= 1,
            Piece::Retained(_) => left.retained -= 1,
            Piece::Problem(_) => left.problems -= 1,
            Piece::File(_) => left.files -= 1,
            Piece::Open(_) => {}
        }
    }
    left
}

/// A notification in a text, with its fields.
struct Said<'r> {
    item: Item<'r>,
    fields: Map<String, Value>,
}

impl<'r> Said<'r> {
    fn new(fact: &'r Fact, cut: Option<&'r Cut>) -> Self {
        let notification = &*fact.notification;
        let item = Item { notification, redelivered: false, cut, reminder: 0 };
        let mut above: Fields<'_> = vec![(SUBSCRIBER, FrameValue::Word(notification.subscriber.as_str()))];
        above.extend(item.severity().map(|severity| (SEVERITY, FrameValue::Word(severity))));
        let holding = u32::try_from(notification.unresolved.len()).unwrap_or(u32::MAX);
        if holding < fact.made_of {
            let said = format!("{holding} of {}", fact.made_of);
            above.push((UNRESOLVED, FrameValue::Value(said.into())));
        }
        above.extend(item.marks().map(|(key, value)| (key, FrameValue::Value(value))));
        let taken = [UNRESOLVED, RESPOND, CUT, UNTRUSTED_SOURCE];
        Self { item, fields: Part::from_item(&item, above, &taken).value() }
    }

    fn line(&self) -> String {
        let said = sentence(std::slice::from_ref(&self.item));
        let whole = json::to_fenced(&Value::Object(self.fields.clone()), is_line_end);
        let line = format!("{LINE_BEGIN}{said} {whole}");
        if length(&line) <= LINE_CHARS_MAX {
            return line;
        }
        let mark = format!(" [in full: aside why {}]", self.item.notification.id);
        let room = LINE_CHARS_MAX.saturating_sub(length(LINE_BEGIN) + length(&mark));
        let words = in_full(&self.item, &toon::decode(self.item.content()));
        format!("{LINE_BEGIN}{}{mark}", shortened(&words, room))
    }
}

/// The parts of a text, in order.
struct Sections<'r> {
    conditions: Vec<Said<'r>>,
    retained: Vec<Said<'r>>,
    editor: Map<String, Value>,
    files: Vec<Map<String, Value>>,
    more: Option<String>,
}

impl<'r> Sections<'r> {
    fn new(region: &'r Region, kept: &[Piece<'r>], cut: Option<&'r Cut>) -> Self {
        let more = left_out(region, kept).in_line();
        let mut sections = Self {
            conditions: Vec::new(),
            retained: Vec::new(),
            editor: Map::new(),
            files: Vec::new(),
            more,
        };
        let mut problems = Vec::new();
        let path = |path: &str| Value::from(from_folder(path, region.folder.as_deref()));
        for piece in kept {
            match piece {
                Piece::Condition(fact) => sections.conditions.push(Said::new(fact, cut)),
                Piece::Retained(fact) => sections.retained.push(Said::new(fact, cut)),
                Piece::Open(open) => sections.editor.extend(open_file(open, &path)),
                Piece::Problem(problem) => problems.push(problem_row(problem, &path)),
                Piece::File(change) => sections.files.push(file_row(change, &path)),
            }
        }
        if !problems.is_empty() {
            sections.editor.insert(PROBLEMS.to_owned(), table(problems));
        }
        sections
    }

    fn is_empty(&self) -> bool {
        self.conditions.is_empty()
            && self.retained.is_empty()
            && self.editor.is_empty()
            && self.files.is_empty()
            && self.more.is_none()
    }

    fn write(self, format: Format) -> String {
        if self.is_empty() {
            return String::new();
        }
        match format {
            Format::Xml
            | Format::OpenaiDeveloper
            | Format::SystemMessage
            | Format::AnthropicBlock
            | Format::SyntheticTool => block("", &::toon::encode(&self.value())),
            Format::UserPrefix => block("", &::toon::encode(&self.value())) + "\n\n",
            Format::XmlEach => self.blocks().join("\n"),
            Format::Markdown => {
                let document = ::toon::encode(&self.value());
                let fence = backticks_around(&document);
                format!("{TITLE}\n\n{fence}toon\n{document}\n{fence}")
            }
            Format::Toon => ::toon::encode(&self.value()),
            Format::Json => json::to_fenced(&self.value(), |_| false),
            Format::Line => self.lines().join("\n"),
        }
    }

    fn value(self) -> Value {
        let mut all = Map::new();
        for (key, said) in [(CONDITIONS, self.conditions), (RETAINED, self.retained)] {
            if !said.is_empty() {
                let each = said.into_iter().map(|said| Value::Object(said.fields));
                all.insert(key.to_owned(), each.collect());
            }
        }
        all.extend(others(self.editor, self.files, self.more));
        Value::Object(all)
    }

    /// A block for each notification, whose source is its subscriber, and one for all else.
    fn blocks(self) -> Vec<String> {
        let Self { conditions, retained, editor, files, more } = self;
        let one = |said: Said<'_>| {
            let mut fields = said.fields;
            fields.shift_remove(SUBSCRIBER);
            let source = said.item.notification.subscriber.as_str();
            block(source, &::toon::encode(&Value::Object(fields)))
        };
        let mut blocks: Vec<String> = conditions.into_iter().chain(retained).map(one).collect();
        let others = others(editor, files, more);
        if !others.is_empty() {
            blocks.push(block(OWN, &::toon::encode(&Value::Object(others))));
        }
        blocks
    }

    /// A line for each notification, and one for each other section.
    fn lines(self) -> Vec<String> {
        let Self { conditions, retained, editor, files, more } = self;
        let lines = conditions.iter().chain(&retained).map(Said::line);
        let others = others(editor, files, more).into_iter().map(|(key, value)| {
            let json = json::to_fenced(&json!({ &key: value }), is_line_end);
            format!("{LINE_BEGIN}{key} {json}")
        });
        lines.chain(others).collect()
    }
}

/// The sections that are no notifications.
fn others(
    editor: Map<String, Value>,
    files: Vec<Map<String, Value>>,
    more: Option<String>,
) -> Map<String, Value> {
    let mut all = Map::new();
    if !editor.is_empty() {
        all.insert(EDITOR.to_owned(), Value::Object(editor));
    }
    if !files.is_empty() {
        all.insert(FILES.to_owned(), table(files));
    }
    all.extend(more.map(|more| (MORE.to_owned(), more.into())));
    all
}

fn block(source: &str, document: &str) -> String {
    if source.is_empty() {
        return format!("<{TAG}>\n{document}\n</{TAG}>");
    }
    format!("<{TAG} source=\"{}\">\n{document}\n</{TAG}>", super::xml::attribute(source))
}

fn open_file(open: &OpenFile, path: &dyn Fn(&str) -> Value) -> Map<String, Value> {
    let selected = open.selected.map(|(first, last)| match first == last {
        true => Value::from(first),
        false => Value::from(format!("{first}-{last}")),
    });
    row([
        ("open", Some(path(&open.path))),
        ("selected_lines", selected),
        (UNTRUSTED_SOURCE, open.untrusted_source.as_deref().map(Value::from)),
    ])
}

fn problem_row(problem: &Problem, path: &dyn Fn(&str) -> Value) -> Map<String, Value> {
    row([
        ("file", Some(path(&problem.path))),
        ("line", problem.line.map(Value::from)),
        ("severity", problem.severity.as_deref().map(Value::from)),
        ("message", Some(Value::from(&*problem.message))),
        (UNTRUSTED_SOURCE, problem.untrusted_source.as_deref().map(Value::from)),
    ])
}

fn file_row(change: &FileChange, path: &dyn Fn(&str) -> Value) -> Map<String, Value> {
    row([
        ("path", Some(path(&change.path))),
        ("change", Some(Value::from(&*change.change))),
        ("from", change.from.as_deref().map(path)),
        ("by", change.by.as_deref().map(Value::from)),
        (UNTRUSTED_SOURCE, change.untrusted_source.as_deref().map(Value::from)),
    ])
}

fn row<const N: usize>(fields: [(&'static str, Option<Value>); N]) -> Map<String, Value> {
    fields.into_iter().filter_map(|(key, value)| Some((key.to_owned(), value?))).collect()
}

/// Rows with equal keys: those that some row has, in the order of the longest row.
fn table(rows: Vec<Map<String, Value>>) -> Value {
    let longest = rows.iter().max_by_key(|row| row.len()).cloned().unwrap_or_default();
    let mut keys: Vec<String> = longest.keys().cloned().collect();
    for key in rows.iter().flat_map(Map::keys) {
        if !keys.contains(key) {
            keys.push(key.clone());
        }
    }
    let whole = |row: Map<String, Value>| {
        let of = |key: &String| (key.clone(), row.get(key).cloned().unwrap_or(Value::Null));
        Value::Object(keys.iter().map(of).collect())
    };
    rows.into_iter().map(whole).collect()
}

/// A path below `folder` from there.
fn from_folder<'p>(path: &'p str, folder: Option<&str>) -> &'p str {
    let below = folder.and_then(|folder| path.strip_prefix(folder.trim_end_matches('/')));
    below.and_then(|rest| rest.strip_prefix('/')).filter(|rest| !rest.is_empty()).unwrap_or(path)
}

#[cfg(test)]
mod tests;
