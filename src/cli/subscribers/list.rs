//! The table of subscribers, with what they did in the last days if a daemon runs.

use std::{fmt::Write as _, time::Duration};

use engine::words::counted;
use journal::time::Timestamp;

use crate::{
    api::wire::{
        settings::OWN_USER,
        subscribers::{SubscriberView, SubscribersView},
    },
    cli::{
        table::{Cell, Table},
        terminal::{Terminal, Tone},
    },
    config::{
        layers::LayerKind,
        listing::{Listed, ListedState},
    },
};

/// A batch that is open for longer is mentioned.
const WAITS_LONG: Duration = Duration::from_secs(60);

/// Its layers, with the folder of a workspace.
fn origin(one: &Listed) -> String {
    let folder = one.folder.as_ref().map(|folder| format!(" ({folder})"));
    layers(one).join(", ") + &folder.unwrap_or_default()
}

/// The words of its layers.
pub(super) fn layers(one: &Listed) -> Vec<&'static str> {
    one.layers.iter().map(|layer| LayerKind::as_str(*layer)).collect()
}

/// The table of `all`, and the lines under it; without counts if they are not known, for that reason.
pub(super) fn text(
    all: &[Listed],
    live: Result<&SubscribersView, &String>,
    is_all: bool,
    terminal: &Terminal,
) -> String {
    match live {
        Ok(live) => List { all, live, terminal }.text(is_all),
        Err(why) => without_counts(all, why, terminal),
    }
}

fn without_counts(all: &[Listed], why: &str, terminal: &Terminal) -> String {
    let mut table = Table::new(["NAME", "STATE", "FROM", "ABOUT"]);
    for one in all {
        table.row([
            Cell::plain(&one.id),
            Cell::word(state_of(one)),
            Cell::plain(&origin(one)),
            Cell::dim(&one.description),
        ]);
    }
    table.text(terminal) + &terminal.prose(&format!("there are no counts: {why}\n"))
}

const fn state_of(one: &Listed) -> &'static str {
    match one.state {
        ListedState::Core => "on, core",
        ListedState::Remainder => "remainder",
        ListedState::On => "on",
        ListedState::Off => "disabled",
    }
}

struct List<'a> {
    all: &'a [Listed],
    live: &'a SubscribersView,
    terminal: &'a Terminal,
}

impl List<'_> {
    fn text(&self, is_all: bool) -> String {
        let mut table = Table::new(["NAME", "STATE", "FROM", "EVENTS", "MADE", "SENT", "TOKENS", "LAST"]);
        let (mut notes, mut hidden) = (Vec::new(), 0);
        for one in self.all {
            let live = self.live.subscribers.iter().find(|live| live.id == one.id);
            if !is_all && !is_shown(one, live) {
                hidden += 1;
                continue;
            }
            table.row(self.row(one, live));
            notes.extend(self.note(one, live).map(|note| (one.id.as_str(), note)));
        }
        let gone = self.live.subscribers.iter().filter(|live| self.all.iter().all(|one| one.id != live.id));
        for live in gone {
            notes.push((live.id.as_str(), "runs, but its file is gone: aside reload".to_owned()));
        }
        let mut text = if table.is_empty() { String::new() } else { table.text(self.terminal) };
        if !notes.is_empty() {
            text.push('\n');
        }
        let widest = notes.iter().map(|(id, _)| id.len()).max().unwrap_or(0);
        for (id, note) in notes {
            let _ = writeln!(text, "{id:widest$}  {}", self.terminal.cut_after(widest + 2, &note));
        }
        if hidden > 0 {
            let _ = writeln!(text, "\n{hidden} without an event in 7 days: --all");
        }
        text
    }

    fn row(&self, one: &Listed, live: Option<&SubscriberView>) -> [Cell; 8] {
        let state = state(one, live);
        let tone = match state {
            "failing" => Tone::Bad,
            "disabled" | "silenced" | "remainder" => Tone::Dim,
            _ => Tone::Plain,
        };
        let from = one.layers.last().copied().map_or("-", LayerKind::as_str);
        let number = |of: fn(&SubscriberView) -> u64, columns: usize| {
            let is_off = one.state == ListedState::Off;
            let count = live.filter(|live| !is_off || of(live) > 0).map(|live| of(live).to_string());
            Cell::plain(&format!("{:>columns$}", count.unwrap_or_else(|| "-".to_owned())))
        };
        let last = live.and_then(|live| live.last_at.as_deref()).map(|at| self.terminal.moment(at));
        [
            Cell::plain(&one.id),
            Cell::toned(tone, state),
            Cell::plain(from),
            number(|live| live.events, "EVENTS".len()),
            number(|live| live.made, "MADE".len()),
            number(|live| live.sent, "SENT".len()),
            number(|live| live.tokens, "TOKENS".len()),
            Cell::dim(&last.unwrap_or_else(|| "-".to_owned())),
        ]
    }

    /// What its author or its user should know.
    fn note(&self, one: &Listed, live: Option<&SubscriberView>) -> Option<String> {
        let Some(live) = live else { return Some("is not in force yet: aside reload".to_owned()) };
        if let Some(failing) = live.failing.first() {
            let line = failing.line.map(|line| format!(":{line}")).unwrap_or_default();
            return Some(format!("{}{line} {}", failing.file, failing.message));
        }
        if one.state == ListedState::Off {
            let place = one.keys.iter().find(|key| key.key == "subscriber.enabled").map(|key| &key.place);
            return place.map(|place| format!("disabled in {}:{}", place.file, place.line()));
        }
        if is_disabled(live) {
            return Some(format!("disabled by you: aside enable {}", one.id));
        }
        let silenced = || silenced(live, self.terminal);
        held(live, self.terminal).or_else(silenced).or_else(|| waiting(live, self.terminal))
    }
}

/// Whether it is in the short list: it did something, somebody wrote it, or its user switched it off.
fn is_shown(one: &Listed, live: Option<&SubscriberView>) -> bool {
    let is_active = |live: &SubscriberView| {
        live.events + live.made + live.sent > 0
            || live.pending + live.rows > 0
            || !live.failing.is_empty()
            || is_disabled(live)
            || live.silence.is_some()
    };
    one.layers.iter().any(|layer| *layer != LayerKind::Shipped) || live.is_some_and(is_active)
}

pub(super) fn state(one: &Listed, live: Option<&SubscriberView>) -> &'static str {
    let is_quiet = |live: &SubscriberView| live.holds.iter().any(|hold| hold.kind == "quiet");
    match live {
        Some(live) if !live.failing.is_empty() => "failing",
        Some(live) if is_disabled(live) => "disabled",
        Some(live) if live.silence.is_some() => "silenced",
        Some(live) if is_quiet(live) => "quiet",
        Some(_) | None => state_of(one),
    }
}

/// Whether the user of the daemon disabled it.
fn is_disabled(live: &SubscriberView) -> bool {
    live.disabled_by.iter().any(|user| user == OWN_USER)
}

/// Its held notifications.
pub(super) fn held(live: &SubscriberView, terminal: &Terminal) -> Option<String> {
    let hold = live.holds.first().filter(|_| live.held > 0)?;
    let until = hold.until.as_deref().map(|until| format!(" {}", terminal.lasts(until)));
    let cause = if hold.kind == "quiet" { String::new() } else { format!(" by {}", hold.cause) };
    let is = if live.held == 1 { "is" } else { "are" };
    let held = counted(live.held, "notification");
    Some(format!("{}{cause}{}, {held} {is} held", hold.kind, until.unwrap_or_default()))
}

/// The silence that suppresses all of it.
fn silenced(live: &SubscriberView, terminal: &Terminal) -> Option<String> {
    let (silence, until) = (live.silence.as_deref()?, live.silenced_until.as_deref()?);
    Some(format!("silenced {}: aside silence expire {silence}", terminal.lasts(until)))
}

/// Rows of batches that stay open for long.
fn waiting(live: &SubscriberView, terminal: &Terminal) -> Option<String> {
    let closes_at = live.closes_at.as_deref()?;
    let at: Timestamp = closes_at.parse().ok()?;
    let is_long = at.since(terminal.moments.now) > WAITS_LONG;
    let waits = if live.rows == 1 { "waits" } else { "wait" };
    let closes = terminal.moment(closes_at);
    is_long.then(|| format!("{} {waits}, the next batch closes {closes}", counted(live.rows, "row")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::wire::{inbox::HoldView, views::FailingView},
        cli::terminal::{
            tests::{of_width, pipe},
            width,
        },
    };

    fn listed(id: &str, state: ListedState, layers: &[LayerKind]) -> Listed {
        Listed {
            id: id.to_owned(),
            name: id.to_owned(),
            description: String::new(),
            state,
            folder: None,
            layers: layers.to_vec(),
            files: Vec::new(),
            keys: Vec::new(),
        }
    }

    fn example() -> (Vec<Listed>, SubscribersView) {
        let (user, shipped) = ([LayerKind::User], [LayerKind::Shipped]);
        let all = vec![
            listed("chat_digest", ListedState::On, &user),
            listed("digest", ListedState::On, &user),
            listed("ide_problems", ListedState::Off, &shipped),
            listed("lint_table", ListedState::On, &user),
            listed("new_one", ListedState::On, &user),
            listed("pager_with_a_rather_long_name_of_its_own", ListedState::On, &user),
            listed("tool_failure", ListedState::Core, &shipped),
        ];
        let live = |id: &str| SubscriberView { id: id.to_owned(), ..SubscriberView::default() };
        let quiet = HoldView {
            kind: "quiet".to_owned(),
            cause: "limits.quiet".to_owned(),
            until: Some("2026-11-22T07:00:00Z".to_owned()),
            ..HoldView::default()
        };
        let failing = FailingView {
            file: "templates/lint.toon.j2".to_owned(),
            line: Some(2),
            message: "`payload.nope` is undefined, and this is a long sentence about it".to_owned(),
            ..FailingView::default()
        };
        let (at, later) = ("2026-11-21T12:27:00Z".to_owned(), "2026-11-21T18:00:00Z".to_owned());
        let subscribers = vec![
            SubscriberView { events: 44, held: 2, pending: 2, holds: vec![quiet], ..live("chat_digest") },
            SubscriberView { events: 3, rows: 3, batches: 1, closes_at: Some(later), ..live("digest") },
            live("ide_problems"),
            SubscriberView {
                events: 8,
                made: 8,
                sent: 8,
                tokens: 410,
                failing: vec![failing],
                ..live("lint_table")
            },
            SubscriberView {
                events: 12,
                made: 12,
                sent: 9,
                tokens: 301,
                last_at: Some(at),
                ..live("pager_with_a_rather_long_name_of_its_own")
            },
            SubscriberView {
                silence: Some("s7f3a".to_owned()),
                silenced_until: Some("2026-11-21T13:00:00Z".to_owned()),
                ..live("tool_failure")
            },
        ];
        (all, SubscribersView { subscribers, ..SubscribersView::default() })
    }

    #[test]
    fn list_shows_counts_states_and_notes() {
        let (all, live) = example();
        let list = List { all: &all, live: &live, terminal: &pipe() };
        let shown = list.text(false);
        insta::assert_snapshot!(shown, @r"
        NAME                                      STATE     FROM     EVENTS  MADE  SENT  TOKENS  LAST
        chat_digest                               quiet     user         44     0     0       0  -
        digest                                    on        user          3     0     0       0  -
        lint_table                                failing   user          8     8     8     410  -
        new_one                                   on        user          -     -     -       -  -
        pager_with_a_rather_long_name_of_its_own  on        user         12    12     9     301  3m ago
        tool_failure                              silenced  shipped       0     0     0       0  -

        chat_digest   quiet until tomorrow 07:00, 2 notifications are held
        digest        3 rows wait, the next batch closes in 5h30m
        lint_table    templates/lint.toon.j2:2 `payload.nope` is undefined, and this is a long sentence about it
        new_one       is not in force yet: aside reload
        tool_failure  silenced for 30m more: aside silence expire s7f3a

        1 without an event in 7 days: --all
        ");
    }

    #[test]
    fn list_fits_narrow_terminals() {
        let (all, live) = example();
        for columns in [80, 60] {
            let list = List { all: &all, live: &live, terminal: &of_width(columns) };
            let shown = list.text(true);
            let wide: Vec<&str> = shown.lines().filter(|line| width(line) > columns).collect();
            assert!(wide.is_empty(), "{columns}: {wide:?}");
            assert!(shown.contains("tool_f") && !shown.contains("--all"), "{shown}");
        }
    }
}
