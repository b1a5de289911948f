//! `aside dev`: on each save the findings, the failed tests and what changed in the texts of
//! subscribers; with `--reload` the daemon reads the files if all is right.

use std::collections::BTreeMap;

use engine::words::counted;

use super::{
    CliError, Context,
    check::{self, Target, compiled_of, counts},
    preview,
    run::timed,
    saves::{MARK, draw_each, marked},
    terminal::{Terminal, Tone, width},
    test,
};
use crate::config::{
    compile::Compiled,
    layers::{LayerKind, Sources},
    lints::report::{Denied, report_with},
    report::Report,
};

/// Unchanged lines around those that changed.
const AROUND: usize = 1;
/// The columns below which the further parts of the first line stand.
const INDENT: usize = 10;
/// The columns between its parts.
const GAP: &str = "   ";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The subscriber whose text is shown [default: all in the configuration folder]
    #[arg(value_name = "SUBSCRIBER")]
    id: Option<String>,
    /// Make the daemon read its configuration again after each save without an error
    #[arg(long)]
    reload: bool,
}

/// A part of the first line.
type Part = (String, Tone);

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let folder = context.paths()?.config.clone();
    let targets = [Target::Layer(folder.clone())];
    let shipped = Sources::shipped_with_tests();
    if let Some(id) = &args.id {
        test::check_ids(&[id], &compiled_of(&check::read(shipped.clone(), &targets)))?;
    }
    let shown = context.terminal.folder(&folder.display().to_string());
    context.say(&format!("watching {shown}, until Ctrl-C\n"))?;
    let mut drawing = Drawing { args, is_first: true, texts: BTreeMap::new() };
    draw_each(&shipped, &targets, context, |sources, context| drawing.draw(sources, context))
}

/// What is drawn, and what was drawn last.
struct Drawing<'a> {
    args: &'a Args,
    is_first: bool,
    /// The text of each subscriber that had one.
    texts: BTreeMap<String, String>,
}

impl Drawing<'_> {
    fn draw(&mut self, sources: &Sources, context: &mut Context<'_>) -> Result<(), CliError> {
        let compiled = compiled_of(sources);
        let found = findings(sources, &compiled, context);
        let errors = found.error_count();
        let wanted: Vec<&String> = self.args.id.iter().collect();
        let tested = test::tested(&wanted, &compiled, sources, &context.terminal);
        let mut parts: Vec<Part> = vec![checked(&found), (tested.words(), tone(tested.failed == 0))];
        if self.args.reload && !self.is_first && errors == 0 && tested.failed == 0 {
            parts.push(reloaded(context));
        }
        // The text of a file with errors is that of an earlier layer.
        let (changed, texts) = match compiled.report.error_count() {
            0 => self.changes(sources, &compiled, &context.terminal),
            _ => (Vec::new(), String::new()),
        };
        parts.extend(changed);
        self.is_first = false;
        context.print(&head(&parts, &context.terminal))?;
        if errors + found.warning_count() > 0 {
            context.say(&format!("{found}\n"))?;
        }
        context.print(&(tested.text + &texts))
    }

    /// The subscribers with other texts than before, and these with their marks; the whole text of the
    /// one that is named if it is new.
    fn changes(
        &mut self,
        sources: &Sources,
        compiled: &Compiled,
        terminal: &Terminal,
    ) -> (Vec<Part>, String) {
        let terminal = &terminal.narrower(MARK);
        let (mut parts, mut shown) = (Vec::new(), String::new());
        for id in self.ids(sources, compiled) {
            let Some(text) = preview::text_of(&id, sources, compiled, terminal) else { continue };
            match self.texts.insert(id.clone(), text.clone()) {
                Some(before) => {
                    let marked = marked(&before, &text, AROUND, terminal);
                    if marked.changed > 0 {
                        let words = format!("{id}: {} changed", counted(marked.changed, "line"));
                        parts.push((words, Tone::Heading));
                        shown += &marked.text;
                    }
                }
                None if self.args.id.is_some() => {
                    shown.extend(text.lines().map(preview::indented));
                }
                None if !self.is_first => parts.push((format!("{id}: new"), Tone::Heading)),
                None => {}
            }
        }
        (parts, shown)
    }

    /// The subscribers whose texts are shown: the one that is named, else those of files that are not
    /// shipped.
    fn ids(&self, sources: &Sources, compiled: &Compiled) -> Vec<String> {
        if let Some(id) = &self.args.id {
            return vec![id.clone()];
        }
        let is_own = |path: &str| sources.layer_of(path).is_some_and(|layer| layer != LayerKind::Shipped);
        let files = compiled.files.iter().filter(|(_, files)| files.iter().any(|file| is_own(&file.path)));
        files.map(|(id, _)| id.to_string()).collect()
    }
}

fn tone(is_right: bool) -> Tone {
    if is_right { Tone::Good } else { Tone::Bad }
}

/// The findings of `aside check`, without failed tests, which are shown as `aside test` does.
fn findings(sources: &Sources, compiled: &Compiled, context: &Context<'_>) -> Report {
    let has_published = |source: &str| context.has_published(source);
    let found = report_with(sources, compiled, &Denied::default(), &has_published).into_all();
    let is_failed = |key: &str| key.starts_with("tests[") && key.ends_with(']');
    Report::new(found.into_iter().filter(|one| !is_failed(&one.key)).collect())
}

fn checked(found: &Report) -> Part {
    match (found.error_count(), found.warning_count()) {
        (0, 0) => ("check ok".to_owned(), Tone::Good),
        (errors, warnings) => {
            let tone = if errors > 0 { Tone::Bad } else { Tone::Warning };
            (format!("check {}", counts(errors, warnings)), tone)
        }
    }
}

/// Makes the daemon read its configuration.
fn reloaded(context: &Context<'_>) -> Part {
    let (answer, took) = timed(|| context.client.request("POST", "/v1/reload", &[], b""));
    match answer.map(|answer| answer.status) {
        Ok(200) => (format!("reloaded in {} ms", took.as_millis()), Tone::Good),
        Ok(_) => ("not reloaded: `aside reload` says why".to_owned(), Tone::Bad),
        Err(_) => ("not reloaded: no daemon answers".to_owned(), Tone::Bad),
    }
}

/// The first line: the time, and the parts that find room, each of the others below.
fn head(parts: &[Part], terminal: &Terminal) -> String {
    let time = terminal.time_of_day();
    let mut at = width(&time) + 2;
    let mut line = format!("{}  ", terminal.paint(Tone::Dim, &time));
    for (index, (words, tone)) in parts.iter().enumerate() {
        let gap = if index == 0 { "" } else { GAP };
        let has_room = terminal.columns.is_none_or(|columns| at + width(gap) + width(words) <= columns);
        match has_room || index == 0 {
            true => line += gap,
            false => {
                line = format!("{}\n{}", line.trim_end(), " ".repeat(INDENT));
                at = INDENT - width(gap);
            }
        }
        at += width(gap) + width(words);
        line += &terminal.paint(*tone, &terminal.cut_after(INDENT, words));
    }
    line + "\n"
}
