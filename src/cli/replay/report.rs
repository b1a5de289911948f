//! The page of a comparison. Pure: the same comparison and terminal give the same text.

use std::{fmt::Write as _, time::Duration};

use engine::words::counted;
use journal::time::Timestamp;

use super::{
    compared::Compared,
    judge::Judged,
    times::{delay, grouped},
};
use crate::{
    cli::terminal::{Terminal, Tone, cut, one_line, width},
    comparison::{Kind, Numbers, Outcome, Pair},
};

/// Least width of the column of ids; a table that leaves less is written in lines instead.
const ID_WIDTH_MIN: usize = 12;
/// Separator of two columns.
const GAP: usize = 2;
/// The groups of a table, each with a column of then and one of now.
const GROUPS: [&str; 4] = ["MADE", "DELIVERED", "TOKENS", "DELAY p99"];
/// What a replay cannot know.
const UNKNOWN: &str = "not known: what agents do because of other texts; their events are as they were";

pub(super) struct Page<'a> {
    pub(super) compared: &'a Compared<'a>,
    /// How long the replay took.
    pub(super) took: Duration,
    pub(super) terminal: &'a Terminal,
}

/// One row of the table: its id, and a pair of cells for each group.
struct Line {
    id: String,
    cells: Vec<[String; 2]>,
}

impl Page<'_> {
    /// The whole page; with `list` in place of the advice to list what differs.
    pub(super) fn text(&self, list: Option<&str>) -> String {
        let Compared { outcome, judged, .. } = self.compared;
        let mut text = self.say(&self.heading());
        for note in self.notes() {
            text.push_str(&self.say(&note));
        }
        text.push('\n');
        text.push_str(&self.table());
        text.push('\n');
        for line in summary(outcome) {
            text.push_str(&self.say(&line));
        }
        match list {
            Some(list) => {
                text.push('\n');
                text.push_str(list);
            }
            None => text.push_str(&self.say(&next(outcome))),
        }
        text.push_str(&self.say(UNKNOWN));
        if let Some(judged) = judged {
            text.push('\n');
            text.push_str(&self.judgements(judged));
        }
        text
    }

    /// A sentence as lines of the terminal.
    fn say(&self, sentence: &str) -> String {
        self.terminal.prose(&format!("{sentence}\n"))
    }

    fn moment(&self, at: Timestamp) -> String {
        self.terminal.moment(&at.to_string())
    }

    fn heading(&self) -> String {
        let Compared { since, extent, .. } = self.compared;
        let (events, exchanges) =
            (counted_grouped(extent.events, "event"), counted_grouped(extent.exchanges, "exchange"));
        let of =
            since.map(
                |since| if since.contains('T') { format!(" since {since}") } else { format!(" of {since}") },
            );
        let (of, took) = (of.unwrap_or_default(), self.took.as_secs_f64());
        format!("{events} and {exchanges}{of} in {took:.1} s")
    }

    /// What was read, and what is not known because of it.
    fn notes(&self) -> Vec<String> {
        let extent = &self.compared.extent;
        if extent.last.0 == 0 {
            return vec!["the journal has no records".to_owned()];
        }
        let (last, last_at) = (extent.last, self.moment(extent.last_at));
        let mut notes = vec![format!("up to the durable record {last}, {last_at}")];
        let is_cut = extent.first.0 > 1;
        notes.extend(match extent.snapshot {
            Some(snapshot) => Some(format!("from the snapshot at record {snapshot}, with what was pending then")),
            None if is_cut => {
                let (first, at) = (extent.first, self.moment(extent.begins_at));
                Some(format!(
                    "the journal begins with record {first}, {at}: conditions and batches of before are unknown"
                ))
            }
            None => None,
        });
        for lost in &extent.lost {
            let (hash, from) = (lost.hash.get(..8).unwrap_or(&lost.hash), self.moment(lost.from));
            let until = lost.until.map_or_else(|| "the end".to_owned(), |until| self.moment(until));
            notes.push(match &lost.no_ledger {
                None => format!("the rules {hash} are gone: then is from the ledger alone, {from} to {until}"),
                Some(why) => {
                    format!("the rules {hash} are gone, and so is the ledger ({why}): nothing of then is known, {from} to {until}")
                }
            });
        }
        for stopped in &extent.stopped {
            let (subscriber, at, why) = (&stopped.subscriber, stopped.at, one_line(&stopped.why));
            notes.push(format!("{subscriber} was stopped at record {at}: {why}"));
        }
        notes
    }

    fn table(&self) -> String {
        let outcome = &self.compared.outcome;
        let changed: Vec<_> = outcome.rows.iter().filter(|row| !row.is_unchanged()).collect();
        let mut lines: Vec<Line> =
            changed.iter().map(|row| Line::new(row.subscriber.as_str(), &row.numbers)).collect();
        let all = Line::new("all", &outcome.all);
        let unchanged = outcome.rows.len() - changed.len();
        lines.push(all);
        let widths = widths(&lines);
        let numbers: usize = widths.iter().map(|[then, now]| GAP + then + GAP + now).sum();
        let longest = lines.iter().map(|line| width(&line.id)).max().unwrap_or(0).max("SUBSCRIBER".len());
        let others = match (unchanged, changed.len()) {
            (0, _) => None,
            (unchanged, 0) => Some(format!("{} unchanged", counted(unchanged, "subscriber"))),
            (1, _) => Some("1 other unchanged".to_owned()),
            (others, _) => Some(format!("{others} others unchanged")),
        };
        let room = self.terminal.columns.map_or(longest, |columns| columns.saturating_sub(numbers));
        let sum = lines.pop().expect("the sum is the last line");
        let own: String = if room < ID_WIDTH_MIN.min(longest) {
            lines.iter().map(|line| self.in_words(line)).collect()
        } else {
            let ids = longest.min(room);
            self.header(&widths, ids)
                + &lines.iter().map(|line| line.in_columns(&widths, ids)).collect::<String>()
        };
        let others = others.map(|text| format!("{text}\n")).unwrap_or_default();
        let sum = if room < ID_WIDTH_MIN.min(longest) {
            self.in_words(&sum)
        } else {
            sum.in_columns(&widths, longest.min(room))
        };
        own + &others + &sum
    }

    fn header(&self, widths: &[[usize; 2]], ids: usize) -> String {
        let (mut groups, mut sides) = (format!("{:ids$}", "SUBSCRIBER"), " ".repeat(ids));
        for (name, [then, now]) in GROUPS.iter().zip(widths) {
            let whole = then + GAP + now;
            let _ = write!(groups, "{:GAP$}{name:whole$}", "");
            let _ = write!(sides, "{:GAP$}{:>then$}{:GAP$}{:>now$}", "", "then", "", "now");
        }
        let paint = |line: &str| self.terminal.paint(Tone::Heading, line.trim_end());
        format!("{}\n{}\n", paint(&groups), paint(&sides))
    }

    /// A row without columns, for a narrow terminal.
    fn in_words(&self, line: &Line) -> String {
        let id = self.terminal.cut_after(0, &line.id).into_owned();
        let pair = |(name, [then, now]): (&&str, &[String; 2])| {
            let name = if *name == "DELAY p99" { "delay p99".to_owned() } else { name.to_lowercase() };
            // A pair is not divided at the end of a line.
            format!("{name} {then} -> {now}").replace(' ', "\u{a0}")
        };
        let pairs: Vec<String> = GROUPS.iter().zip(&line.cells).map(pair).collect();
        let wrapped = self.terminal.wrap(&pairs.join(", "), GAP, GAP);
        format!("{id}\n  {}\n", wrapped.replace('\u{a0}', " "))
    }

    fn judgements(&self, judged: &Judged) -> String {
        let mut text = String::new();
        for one in &judged.results {
            let (word, tone) = if one.unmet.is_empty() { ("ok", Tone::Good) } else { ("FAIL", Tone::Bad) };
            let word = format!("{}{}", self.terminal.paint(tone, word), " ".repeat(6 - word.len()));
            let _ = writeln!(text, "{word}{}", self.terminal.cut_after(6, &one.subscriber));
            for (message, place) in &one.unmet {
                let place = place.as_ref().map(|place| format!("  {}:{}", place.file, place.line()));
                let line = format!("      {message}{}", place.unwrap_or_default());
                text.push_str(&self.terminal.wrap(&line, 0, 8));
                text.push('\n');
            }
        }
        let (failed, all) = judged.failed_of_all();
        if !judged.unchanged.is_empty() {
            let ids = judged.unchanged.join(", ");
            text.push_str(&self.say(&format!("without an expectation, unchanged: {ids}")));
        }
        let _ = writeln!(text, "{}: {} ok, {failed} failed", counted(all, "expectation"), all - failed);
        text
    }
}

fn counted_grouped(count: u64, noun: &str) -> String {
    counted(count, noun).replacen(&count.to_string(), &grouped(count), 1)
}

/// What changed for agents, and how many notifications differ.
fn summary(outcome: &Outcome) -> Vec<String> {
    let (lost, gained) = (grouped(outcome.lost_texts), grouped(outcome.gained_texts));
    let mut lines =
        vec![format!("exchanges: {gained} with text that had none, {lost} without text that had some")];
    if outcome.untracked > 0 {
        lines.push(format!(
            "{} were counted, but not compared one by one",
            counted_grouped(outcome.untracked, "notification")
        ));
    }
    lines
}

/// The next sensible command.
fn next(outcome: &Outcome) -> String {
    let of_kind = |kind: Kind| {
        outcome.rows.iter().map(move |row| match kind {
            Kind::Gone => (row.gone, row.subscriber.as_str()),
            Kind::Added => (row.added, row.subscriber.as_str()),
            Kind::Changed => (row.changed, row.subscriber.as_str()),
        })
    };
    let mut lines = Vec::new();
    for kind in [Kind::Gone, Kind::Added, Kind::Changed] {
        let concerned: Vec<(u64, &str)> = of_kind(kind).filter(|(count, _)| *count > 0).collect();
        let count: u64 = concerned.iter().map(|(count, _)| count).sum();
        let whose = match concerned.as_slice() {
            [] => continue,
            [(_, one)] => format!(" of {one}"),
            several => format!(" of {}", counted(several.len(), "subscriber")),
        };
        let verb = if count == 1 { "is" } else { "are" };
        let (count, kind) = (counted_grouped(count, "notification"), kind.as_str());
        lines.push(format!("{count}{whose} {verb} {kind}: --show {kind}"));
    }
    if lines.is_empty() {
        lines.push("these rules lead to the same; next: aside reload".to_owned());
    }
    lines.join("\n")
}

impl Line {
    fn new(id: &str, numbers: &Pair) -> Self {
        let Pair { then, now } = numbers;
        let pair = |of: fn(&Numbers) -> String| [of(then), of(now)];
        let cells = vec![
            pair(|one| grouped(one.made)),
            pair(|one| grouped(one.delivered)),
            pair(|one| grouped(one.tokens)),
            pair(|one| one.delay_p99.map_or_else(|| "-".to_owned(), delay)),
        ];
        Self { id: one_line(id), cells }
    }

    fn in_columns(&self, widths: &[[usize; 2]], ids: usize) -> String {
        let id = cut(&self.id, ids);
        let mut line = format!("{id}{}", " ".repeat(ids.saturating_sub(width(&id))));
        for ([then, now], [left, right]) in self.cells.iter().zip(widths) {
            let _ = write!(line, "{:GAP$}{then:>left$}{:GAP$}{now:>right$}", "", "");
        }
        line + "\n"
    }
}

/// The widths of the columns: those of the widest cell, of their header, and of their group's.
fn widths(lines: &[Line]) -> Vec<[usize; 2]> {
    let widest = |group: usize, side: usize| {
        let cells = lines.iter().filter_map(|line| line.cells.get(group)?.get(side));
        cells.map(|cell| width(cell)).max().unwrap_or(0)
    };
    (0..GROUPS.len())
        .map(|group| [widest(group, 0).max("then".len()), widest(group, 1).max("now".len())])
        .collect()
}

#[cfg(test)]
mod tests;
