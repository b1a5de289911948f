//! `aside sources`: lists sources, whether each can publish, and the outcome of its events.

use std::{env, sync::Arc, time::Duration};

use engine::{request::hint, sorted::SortedSet, words::counted};
use serde_json::{Value, json};

use super::{
    CliError, Context,
    context::{object, with_query},
    harness, history, parse,
    table::{self, Cell, Table},
    terminal::{Terminal, Tone, one_line},
};
use crate::{
    api::{
        Machine,
        wire::{
            sources::{CountView, SourceView, SourcesView},
            views::SessionList,
        },
    },
    capability::{ci::Asking, source::Source},
    config::producers::Producer,
    daemon::causes::with_causes,
};

const DOING: &str = "list the sources";

/// Most folders that a note names.
const FOLDERS_SHOWN: usize = 3;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this one, with all details
    name: Option<String>,
    /// Count from this time: RFC 3339, or a duration before now, such as 30m, 12h or 7d
    #[arg(long, value_name = "TIME", default_value = "7d")]
    since: String,
    /// List also the sources that have published nothing or are off, and what no source serves
    #[arg(long)]
    all: bool,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let body = ask(&args.since, context)?;
    let mut view: SourcesView = parse(DOING, &body)?;
    if let Some(name) = &args.name {
        let names: Vec<&str> = view.sources.iter().map(|source| &*source.name).collect();
        if !names.contains(&name.as_str()) {
            return Err(CliError::Usage(format!("unknown source `{name}`; {}", hint(name, &names))));
        }
        view.sources.retain(|source| source.name == *name);
    }
    let text = match view.sources.as_slice() {
        [one] if args.name.is_some() && args.json => format!("{}\n", json!(one)),
        [one] if args.name.is_some() => table::pairs(&detail(one, &view, context), &context.terminal),
        _ if args.json => format!("{}\n", parse::<Value>(DOING, &body)?),
        _ if args.all => all(&view, context),
        _ => active_sources(&view, context),
    };
    context.print(&text)
}

/// Requests the daemon's counts since that time.
pub(super) fn read(since: &str, context: &Context<'_>) -> Result<SourcesView, CliError> {
    parse(DOING, &ask(since, context)?)
}

fn ask(since: &str, context: &Context<'_>) -> Result<Vec<u8>, CliError> {
    context.ask(DOING, "GET", &with_query("/v1/sources", &[("since", Some(since))]), None)
}

/// The sources that have published or are in trouble, and the number of the others.
fn active_sources(view: &SourcesView, context: &Context<'_>) -> String {
    let terminal = &context.terminal;
    let line = |text: &str| format!("{}\n", terminal.wrap(&one_line(text), 0, 2));
    let (heard, silent): (Vec<&SourceView>, Vec<&SourceView>) =
        view.sources.iter().partition(|source| source.count.events > 0 || !source.troubles.is_empty());
    let mut text = match heard.as_slice() {
        [] => line("no source has published an event that a subscriber takes"),
        heard => rows(heard, terminal),
    };
    for source in &heard {
        text.extend(source.troubles.iter().map(|trouble| line(&format!("{}: {trouble}", source.name))));
    }
    let is = |state| silent.iter().filter(|source| source.is_on == state).count();
    let more = format!("not listed: {} on, {} off: aside sources --all", is(Some(true)), is(Some(false)));
    text.push_str(&format!("\n{}{}", line(&period(view, terminal)), line(&more)));
    text + &history::lag(&view.projection)
}

fn rows(sources: &[&SourceView], terminal: &Terminal) -> String {
    let mut table = Table::new(["SOURCE", "STATE", "LAST", "EVENTS", "DELIVERED", "TOKENS", "ABOUT"]);
    for source in sources {
        let [last, events, delivered, tokens] = counts(&source.count, terminal);
        let about = source.about.clone().unwrap_or_else(|| source.types.join(", "));
        table.row([
            Cell::plain(&source.name),
            state(source),
            last,
            events,
            delivered,
            tokens,
            Cell::plain(&about),
        ]);
    }
    table.text(terminal)
}

/// The table, with notes about single rows and the counts below it.
fn all(view: &SourcesView, context: &Context<'_>) -> String {
    let terminal = &context.terminal;
    let line = |text: &str| format!("{}\n", terminal.wrap(&one_line(text), 0, 2));
    let mut text = rows(&view.sources.iter().collect::<Vec<_>>(), terminal);
    if view.more > 0 {
        text.push_str(&line(&format!("and {} more that are not shipped", view.more)));
    }
    let notes = view.sources.iter().filter_map(|source| Some((source, note(source, context)?)));
    let mut notes: String = notes.map(|(source, note)| line(&format!("{}: {note}", source.name))).collect();
    for source in &view.sources {
        notes.extend(source.troubles.iter().map(|trouble| line(&format!("{}: {trouble}", source.name))));
    }
    text.push_str(&format!("\n{notes}{}{}", line(&period(view, terminal)), line(&looks(view))));
    if !view.unserved.is_empty() {
        let mut table = Table::new(["NEEDS OTHER SOURCES", "LAST", "EVENTS", "DELIVERED", "TOKENS", "TYPES"]);
        for one in &view.unserved {
            let [last, events, delivered, tokens] = counts(&one.count, terminal);
            let types = Cell::plain(&one.types.join(", "));
            table.row([Cell::plain(&one.subscriber), last, events, delivered, tokens, types]);
        }
        text.push_str(&format!("\n{}", table.text(terminal)));
        text.push_str(&line("no shipped source publishes the events of these subscribers"));
    }
    text + &history::lag(&view.projection)
}

fn state(source: &SourceView) -> Cell {
    match (source.is_on, &source.why) {
        (Some(true), None) if source.troubles.is_empty() => Cell::toned(Tone::Good, "on"),
        (Some(true), _) => Cell::toned(Tone::Warning, "on"),
        (Some(false), _) => Cell::dim("off"),
        (None, _) => Cell::dim("-"),
    }
}

fn counts(count: &CountView, terminal: &Terminal) -> [Cell; 4] {
    let number = |number: u64| if number == 0 { Cell::dim("0") } else { Cell::plain(&number.to_string()) };
    let last = count.last_at.as_deref().map_or_else(|| "-".to_owned(), |at| terminal.moment(at));
    [Cell::dim(&last), number(count.events), number(count.delivered), number(count.tokens)]
}

/// A note about a source: why it is off, why no subscriber takes its events, or which program or
/// file is missing.
pub(super) fn note(source: &SourceView, context: &Context<'_>) -> Option<String> {
    if let Some(why) = &source.why {
        return Some(one_line(why));
    }
    if let Some(missing) = &source.missing {
        return Some(one_line(missing));
    }
    if source.name == <Asking>::NAME && harness::on_path("gh").next().is_none() {
        return Some("no `gh` in your PATH, so checks are not requested".to_owned());
    }
    let row = Producer::find(&source.name).filter(|row| row.is_of_folders())?;
    let machine = Machine {
        contents: Arc::default(),
        programs: Arc::default(),
        keeps_texts: false,
        now: context.terminal.moments.now,
        is_comparing: Arc::default(),
        stopwatch: || Duration::ZERO,
    };
    let shown = |folder: &str| context.terminal.folder(folder);
    let open = match session_folders(context) {
        Ok(open) => open,
        Err(error) => {
            return Some(format!("the folders of open sessions are unknown: {}", with_causes(&error)));
        }
    };
    if open.is_empty() {
        let folder = env::current_dir().ok()?.to_string_lossy().into_owned();
        let missing = row.missing_in(&folder, &machine)?;
        return Some(format!("no {missing} in {}, and no session is open", shown(&folder)));
    }
    let (without, with): (Vec<_>, Vec<_>) = open
        .iter()
        .map(|folder| (folder, row.missing_in(folder, &machine)))
        .partition(|(_, missing)| missing.is_some());
    let missing = without.first().filter(|_| with.is_empty())?.1?;
    let named: Vec<String> = without.iter().take(FOLDERS_SHOWN).map(|(folder, _)| shown(folder)).collect();
    let more = if without.len() > named.len() { ", .." } else { "" };
    Some(format!(
        "no {missing} in the folders of the open sessions ({}{more}), so it publishes nothing for them",
        named.join(", ")
    ))
}

/// The folders of the open sessions.
fn session_folders(context: &Context<'_>) -> Result<SortedSet<Arc<str>>, CliError> {
    let list: SessionList = context.get(DOING, "/v1/sessions")?;
    let open = list.sessions.into_iter().filter(|session| session.is_open);
    Ok(open.filter_map(|session| session.harness.workspace).collect())
}

fn period(view: &SourcesView, terminal: &Terminal) -> String {
    let cut = if view.is_cut { "; earlier ones are too many to count" } else { "" };
    let since = terminal.moment(&view.since);
    format!("counted since {since}: events that a subscriber matched, and their deliveries to agents{cut}")
}

/// The duration of the probes' looks.
pub(super) fn looks(view: &SourcesView) -> String {
    let looks = &view.looks;
    if looks.count == 0 && looks.missed == 0 {
        return "the probes have not looked since the daemon started".to_owned();
    }
    let missed = match looks.missed {
        0 => String::new(),
        missed => format!("; {missed} too late for their exchange"),
    };
    let mean = looks.mean_us as f64 / 1_000.0;
    let times = counted(looks.count, "time");
    format!("the probes looked {times} since the daemon started, {mean:.1} ms each{missed}")
}

/// All facts about one source.
fn detail(source: &SourceView, view: &SourcesView, context: &Context<'_>) -> Value {
    let SourceView { name, kind, is_on, about, needs, types, count, troubles, .. } = source;
    let terminal = &context.terminal;
    let state = match is_on {
        Some(true) => "on",
        Some(false) => "off",
        None => "published by others",
    };
    let settings =
        Producer::find(name).filter(|row| row.kind.is_switched()).map(|row| match row.kind.is_list() {
            true => format!("[[sources.{name}]] in aside.toml"),
            false => format!("[sources.{name}] in aside.toml"),
        });
    let troubles = (!troubles.is_empty()).then(|| one_line(&troubles.join("; ")));
    object([
        ("name", Some(json!(name))),
        ("kind", Some(json!(kind))),
        ("state", Some(state.into())),
        ("note", note(source, context).map(Value::from)),
        ("troubles", troubles.map(Value::from)),
        ("about", about.clone().map(Value::from)),
        ("needs", needs.clone().map(Value::from)),
        ("settings", settings.map(Value::from)),
        ("types", Some(types.join(", ").into())),
        ("last event", count.last_at.as_deref().map(|at| terminal.moment(at).into())),
        ("events", Some(count.events.to_string().into())),
        ("delivered", Some(format!("{}, for about {} tokens", count.delivered, count.tokens).into())),
        ("counted", Some(format!("since {}", terminal.moment(&view.since)).into())),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::wire::{
            history::ProjectionView,
            sources::{LooksView, UnservedView},
        },
        cli::tests::run_against,
    };
    use hook::client::fake::FakeDaemon;

    fn view() -> SourcesView {
        let source =
            |name: &str, kind: &str, is_on, why: Option<&str>, about: Option<&str>, types: &[&str]| {
                SourceView {
                    name: name.to_owned(),
                    kind: kind.to_owned(),
                    is_on,
                    why: why.map(str::to_owned),
                    troubles: Vec::new(),
                    about: about.map(str::to_owned),
                    needs: about.map(|_| "a thing".to_owned()),
                    missing: None,
                    types: types.iter().map(|name| (*name).to_owned()).collect(),
                    count: CountView::default(),
                }
            };
        let count = CountView {
            events: 12,
            last_at: Some("2026-11-21T12:27:00Z".to_owned()),
            delivered: 9,
            tokens: 210,
        };
        let off = Some("[sources.git] enabled = false in /c/aside.toml");
        let mut files = source("files", "probe", Some(true), None, Some("changed files"), &["fs.a", "fs.b"]);
        let mut ci = source("ci\u{1b}[31m", "other", None, None, None, &["ci.check.failed"]);
        (files.count, ci.count) = (count.clone(), CountView { delivered: 0, tokens: 0, ..count });
        SourcesView {
            since: "2026-11-20T08:00:00Z".to_owned(),
            is_cut: true,
            sources: vec![files, source("git", "probe", Some(false), off, Some("moves"), &["git.a"]), ci],
            more: 2,
            unserved: vec![UnservedView {
                subscriber: "reminder".to_owned(),
                types: vec!["reminder.due".to_owned(), "timer.fired".to_owned()],
                count: CountView::default(),
            }],
            looks: LooksView { count: 214, mean_us: 449, missed: 1, slow: Vec::new() },
            projection: ProjectionView { seq: 9, behind: 4, failed: None },
        }
    }

    fn daemon() -> FakeDaemon {
        FakeDaemon::answering_json(200, &json!(view()).to_string())
    }

    #[test]
    fn sources_table_shows_outcomes_and_reasons_for_off() {
        let expected = "\
SOURCE  STATE  LAST    EVENTS  DELIVERED  TOKENS  ABOUT
files   on     3m ago  12      9          210     changed files
git     off    -       0       0          0       moves
ci      -      3m ago  12      0          0       ci.check.failed
and 2 more that are not shipped

git: [sources.git] enabled = false in /c/aside.toml
counted since yesterday 08:00: events that a subscriber matched, and their deliveries to agents; earlier ones are too many to count
the probes looked 214 times since the daemon started, 0.4 ms each; 1 too late for their exchange

NEEDS OTHER SOURCES  LAST  EVENTS  DELIVERED  TOKENS  TYPES
reminder             -     0       0          0       reminder.due, timer.fired
no shipped source publishes the events of these subscribers

the history is 4 records behind
";
        let daemon = daemon();
        assert_eq!(run_against(&daemon, &["sources", "--all"]).as_deref(), Ok(expected));
        assert!(daemon.requests()[0].starts_with("GET /v1/sources?since=7d HTTP/1.1\r\n"));
    }

    #[test]
    fn sources_without_events_are_counted_only() {
        let expected = "\
SOURCE  STATE  LAST    EVENTS  DELIVERED  TOKENS  ABOUT
files   on     3m ago  12      9          210     changed files
ci      -      3m ago  12      0          0       ci.check.failed

counted since yesterday 08:00: events that a subscriber matched, and their deliveries to agents; earlier ones are too many to count
not listed: 0 on, 1 off: aside sources --all

the history is 4 records behind
";
        assert_eq!(run_against(&daemon(), &["sources"]).as_deref(), Ok(expected));
        let mut silent = view();
        silent.sources.remove(0);
        silent.sources.pop();
        let daemon = FakeDaemon::answering_json(200, &json!(silent).to_string());
        let shown = run_against(&daemon, &["sources"]).expect("shown");
        assert!(shown.starts_with("no source has published"), "{shown}");
    }

    #[test]
    fn single_source_is_shown_in_full_detail() {
        let expected = "\
name       git
kind       probe
state      off
note       [sources.git] enabled = false in /c/aside.toml
about      moves
needs      a thing
settings   [sources.git] in aside.toml
types      git.a
events     0
delivered  0, for about 0 tokens
counted    since yesterday 08:00
";
        assert_eq!(run_against(&daemon(), &["sources", "git"]).as_deref(), Ok(expected));
        let files = run_against(&daemon(), &["sources", "files", "--since", "2 d"]).expect("known");
        assert!(
            files.contains("last event  3m ago\n") && files.contains("9, for about 210 tokens\n"),
            "{files}"
        );
        let wrong = run_against(&daemon(), &["sources", "fiels"]).expect_err("unknown");
        assert_eq!(wrong, "understand the arguments: unknown source `fiels`; did you mean `files`?");
    }

    #[test]
    fn repositories_are_looked_for_in_session_folders() {
        let (with, without) =
            (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        std::fs::create_dir_all(with.path().join(".git/refs")).expect("made");
        std::fs::create_dir_all(with.path().join(".git/objects")).expect("made");
        std::fs::write(with.path().join(".git/HEAD"), "ref: refs/heads/main\n").expect("written");
        let git = SourceView {
            name: "git".to_owned(),
            kind: "probe".to_owned(),
            is_on: Some(true),
            ..SourceView::default()
        };
        let sources = json!(SourcesView { sources: vec![git], ..view() }).to_string();
        let path = |folder: &tempfile::TempDir| folder.path().to_string_lossy().into_owned();
        let session = |folder: &str, is_open: bool| json!({ "id": folder, "is_open": is_open, "harness": { "workspace": folder } });
        let none = format!("no repository in the folders of the open sessions ({})", path(&without));
        for (open, closed, expected) in [
            (vec![path(&without), path(&with)], vec![], None),
            (vec![path(&without)], vec![path(&with)], Some(none.as_str())),
            (vec![], vec![], None),
        ] {
            let sessions = open.iter().map(|folder| session(folder, true));
            let sessions: Vec<_> =
                sessions.chain(closed.iter().map(|folder| session(folder, false))).collect();
            let sessions = json!({ "sessions": sessions }).to_string();
            let daemon = FakeDaemon::answering_paths(&[
                ("/v1/sources?since=7d", &sources),
                ("/v1/sessions", &sessions),
            ]);
            let shown = run_against(&daemon, &["sources", "git"]).expect("shown");
            let note = shown.lines().find_map(|line| line.strip_prefix("note"));
            match expected {
                Some(expected) => assert!(note.is_some_and(|note| note.contains(expected)), "{shown}"),
                None => assert!(!note.is_some_and(|note| note.contains("open sessions (")), "{shown}"),
            }
        }
    }

    #[test]
    fn json_is_what_the_daemon_said() {
        let whole = run_against(&daemon(), &["sources", "--json"]).expect("known");
        assert_eq!(serde_json::from_str::<Value>(&whole).expect("JSON"), json!(view()));
        let one = run_against(&daemon(), &["sources", "git", "--json"]).expect("known");
        assert_eq!(serde_json::from_str::<Value>(&one).expect("JSON"), json!(view().sources[1]));
    }

    #[test]
    fn probes_without_looks_are_distinguished_from_quick_ones() {
        let looks = |count, missed| {
            looks(&SourcesView { looks: LooksView { count, missed, ..LooksView::default() }, ..view() })
        };
        assert!(looks(0, 0).starts_with("the probes have not looked"));
        assert!(looks(0, 3).ends_with("3 too late for their exchange"));
    }
}
