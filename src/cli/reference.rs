//! `aside reference`: the names that authors use, with their meanings, without a daemon.

use std::fmt::Write as _;

use engine::words::{Words, counted};

use super::{
    CliError, Context,
    terminal::{Terminal, Tone, width},
};
use crate::config::reference::{Entry, Example, Topic};

/// The widest column of names.
const NAME_MAX: usize = 32;
/// Fewest columns for the column of meanings.
const SAYS_MIN: usize = 24;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// keys, variables, filters, functions, tests, lints or reasons
    #[arg(value_name = "TOPIC")]
    topic: Option<String>,
    /// One entry, such as a key or a filter
    #[arg(value_name = "NAME")]
    name: Option<String>,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let topic = args.topic.as_deref().map(Topic::named).transpose().map_err(CliError::Usage)?;
    let text = match (topic, &args.name) {
        (None, _) => topics(&context.terminal),
        (Some(topic), None) => list(&topic.entries(), &context.terminal),
        (Some(topic), Some(name)) => page(&topic.entry(name).map_err(CliError::Usage)?, &context.terminal),
    };
    context.print(&text)
}

fn topics(terminal: &Terminal) -> String {
    let mut text = String::new();
    for topic in <Topic as strum::VariantArray>::VARIANTS {
        let count = counted(topic.entries().len(), "entry").replace("entrys", "entries");
        let words = format!("{}, {count}", topic.about());
        let _ = writeln!(text, "{:10}  {}", topic.as_str(), terminal.cut_after(12, &words));
    }
    debug_assert!(Topic::words().all(|word| word.len() <= 10), "the column is wide enough");
    text + "\nnext: aside reference filters truncate\n"
}

/// A line for each entry: its name, and its meaning wrapped beside it.
fn list(entries: &[Entry], terminal: &Terminal) -> String {
    let longest = entries.iter().map(|entry| width(&entry.name)).max().unwrap_or(0);
    let columns =
        longest.min(NAME_MAX).min(terminal.columns.map_or(NAME_MAX, |all| all.saturating_sub(SAYS_MIN)));
    let line = |entry: &Entry| {
        let name = terminal.paint(Tone::Heading, &entry.name);
        let gap = columns.saturating_sub(width(&entry.name));
        let begin = columns + 2;
        match width(&entry.name) > columns {
            true => format!("{name}\n{}{}\n", " ".repeat(begin), terminal.wrap(&entry.says, begin, begin)),
            false => format!("{name}{}  {}\n", " ".repeat(gap), terminal.wrap(&entry.says, begin, begin)),
        }
    };
    entries.iter().map(line).collect()
}

fn page(entry: &Entry, terminal: &Terminal) -> String {
    let mut text = terminal.paint(Tone::Heading, &entry.name) + "\n";
    let _ = writeln!(text, "  {}", terminal.wrap(&entry.says, 2, 2));
    let indented = |text: &str| text.lines().map(|line| format!("  {line}\n")).collect::<String>();
    let example = entry.example.map(|example| {
        let Example { text, writes } = example;
        format!("{}writes\n{}", indented(text), indented(writes))
    });
    let more = entry.more.clone() + &example.unwrap_or_default();
    if !more.is_empty() {
        text.push('\n');
        for line in more.lines() {
            let line =
                if line.is_empty() { String::new() } else { format!("  {}", terminal.wrap(line, 2, 4)) };
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{terminal::tests::of_width, tests::run_in};
    use hook::client::fake::{FakeDaemon, Scratch};

    fn run(args: &[&str]) -> Result<String, String> {
        let folder = Scratch::new();
        run_in(&FakeDaemon::silent(), folder.path(), &[&["reference"], args].concat())
    }

    #[test]
    fn topics_entries_and_pages_are_shown() {
        assert!(run(&[]).expect("shown").contains("filters     the filters of texts and of `where`, "));
        assert!(run(&["filters"]).expect("shown").contains("\nduration       milliseconds as `350ms`"));
        let page = run(&["filters", "truncate"]).expect("shown");
        assert_eq!(
            page,
            "truncate\n  the first characters, with a mark at the end\n\n    start: {{ \"abcdef\"|truncate(3) }}\n  writes\n    \
             start: \"abc\u{2026} [+3 chars]\"\n"
        );
        let key = run(&["keys", "priority"]).expect("shown");
        assert!(key.starts_with("output.priority\n") && key.contains("\n  default   \"normal\"\n"), "{key}");
        for (args, part) in [
            (&["filter"][..], "there is no topic `filter`; did you mean `filters`?"),
            (&["filters", "truncat"], "did you mean `truncate`?"),
        ] {
            let wrong = run(args).expect_err("no such name");
            assert!(wrong.contains(part), "{wrong}");
        }
    }

    #[test]
    fn every_page_fits_narrow_terminals() {
        for columns in [80, 60] {
            let terminal = of_width(columns);
            let mut shown = topics(&terminal);
            for topic in <Topic as strum::VariantArray>::VARIANTS {
                let entries = topic.entries();
                shown.push_str(&list(&entries, &terminal));
                // The examples of lints are files, which are not wrapped.
                let pages =
                    entries.iter().filter(|_| *topic != Topic::Lints).map(|entry| page(entry, &terminal));
                shown.extend(pages);
            }
            let wide: Vec<&str> = shown.lines().filter(|line| width(line) > columns).collect();
            assert!(wide.is_empty(), "{columns}: {wide:#?}");
        }
    }
}
