//! The screen of `aside` and `aside status`: the sessions, pending notifications, last deliveries,
//! and sources.
//!
//! Shape: a line about the daemon, a line per problem, then four parts of a few lines each. If a
//! part cannot be read, its error is shown in its place.

use std::cmp::Reverse;

use super::{
    CliError, Context,
    ids::{Names, ShortIds, is_probe},
    inbox::shown::collecting,
    sessions::{self, Sessions},
    sources,
    table::{Cell, Table},
    terminal::{Tone, one_line},
};
use engine::notification::Priority;
use journal::time::Timestamp;

use crate::{
    api::wire::{
        history::{Delivery, NotificationPage, NotificationView},
        inbox::InboxList,
        sources::SourceView,
        views::StatusView,
    },
    daemon::causes::with_causes,
};

/// Most rows of each table, so that all fit on a screen of 24 lines.
const ROWS_MAX: usize = 3;
/// Most listed sources.
const SOURCES_MAX: usize = 6;

const DOING: &str = "read the daemon's status";

/// The screen for a running daemon.
pub(super) fn screen(status: &StatusView, context: &Context<'_>) -> Result<String, CliError> {
    let terminal = &context.terminal;
    let mut text = format!("{}\n", terminal.paint(Tone::Good, &one_line(&status.daemon())));
    for trouble in status.troubles(terminal) {
        let line = terminal.wrap(&format!("PROBLEM: {}", one_line(&trouble)), 0, 2);
        text.push_str(&format!("{}\n", terminal.paint(Tone::Bad, &line)));
    }
    for one in &status.workspaces {
        if let Some(trouble) = one.trouble() {
            let line = format!("TRUST: {}: {}", one_line(&trouble), one_line(&one.remedy()));
            text.push_str(&format!("{}\n", terminal.paint(Tone::Warning, &terminal.wrap(&line, 0, 2))));
        }
    }
    let list = Sessions::read(DOING, &context.ask(DOING, "GET", sessions::PATH, None)?)?;
    let names = &list.names;
    let waiting = waiting(names, context) + &collecting(status.notifications.batches_open);
    for part in [open_sessions(&list, context), waiting, delivered(names, context), sources(context)] {
        text.push_str(&format!("\n{part}"));
    }
    Ok(text)
}

fn open_sessions(list: &Sessions, context: &Context<'_>) -> String {
    if list.len() == 0 {
        return "no open session: one opens with the first hook or exchange of an agent\n".to_owned();
    }
    list.table("SESSION", ROWS_MAX, &context.terminal).text(&context.terminal)
        + &more(list.len(), "aside sessions")
}

/// The line below a table of the first few of `count`.
fn more(count: usize, command: &str) -> String {
    match count.saturating_sub(ROWS_MAX) {
        0 => String::new(),
        more => format!("and {more} more: {command}\n"),
    }
}

fn waiting(names: &Names, context: &Context<'_>) -> String {
    let InboxList { notifications: mut waiting, next, .. } = match context.get(DOING, "/v1/inbox?limit=100") {
        Ok(inbox) => inbox,
        Err(error) => return unknown("the pending notifications", &error),
    };
    if waiting.is_empty() {
        return "no pending notifications\n".to_owned();
    }
    let ids = ShortIds::of_notifications(waiting.iter().map(|one| &*one.id));
    waiting.sort_by_key(|one| (Reverse(one.priority.parse::<Priority>().ok()), Reverse(one.age_ms)));
    let mut table = Table::new(["WAITS", "PRIORITY", "FOR", "MADE", "SENTENCE"]);
    for one in waiting.iter().take(ROWS_MAX) {
        table.row([
            Cell::dim(&ids.short(&one.id)),
            Cell::word(&one.priority),
            Cell::plain(&one.briefly(names, &context.terminal)),
            Cell::dim(&context.terminal.moments.age(one.age_ms)),
            Cell::plain(&one.sentence),
        ]);
    }
    let more = match next {
        Some(_) => {
            format!("and more than {} more: aside inbox\n", waiting.len().saturating_sub(ROWS_MAX))
        }
        None => more(waiting.len(), "aside inbox"),
    };
    table.text(&context.terminal) + &more
}

fn delivered(names: &Names, context: &Context<'_>) -> String {
    let newest: NotificationPage = match context.get(DOING, "/v1/notifications?limit=100") {
        Ok(newest) => newest,
        Err(error) => return unknown("the last deliveries", &error),
    };
    let mut delivered: Vec<(&NotificationView, &Delivery, &str)> = newest
        .notifications
        .iter()
        .flat_map(|one| one.deliveries.iter().map(move |delivery| (one, delivery)))
        .filter(|(_, delivery)| matches!(&*delivery.state, "injected" | "confirmed"))
        .filter_map(|(one, delivery)| Some((one, delivery, delivery.session.as_deref()?)))
        .filter(|(_, _, session)| !is_probe(Some(session)))
        .collect();
    if delivered.is_empty() {
        return "no recent deliveries\n".to_owned();
    }
    delivered.sort_by_cached_key(|(_, delivery, _)| Reverse(delivery.at.parse::<Timestamp>().ok()));
    let mut table = Table::new(["DELIVERED", "TO", "SUBSCRIBER", "SENTENCE"]);
    for (one, delivery, session) in delivered.into_iter().take(ROWS_MAX) {
        table.row([
            Cell::dim(&context.terminal.moment(&delivery.at)),
            Cell::plain(&names.name(session)),
            Cell::plain(&one.subscriber),
            Cell::plain(&one.sentence),
        ]);
    }
    table.text(&context.terminal)
}

/// Sources: number of the last day's events of each, the time of the newest, and which sources are
/// off.
fn sources(context: &Context<'_>) -> String {
    let view = match sources::read("1d", context) {
        Ok(view) => view,
        Err(error) => return unknown("the sources of events", &error),
    };
    let mut publishing: Vec<&SourceView> =
        view.sources.iter().filter(|source| source.count.events > 0).collect();
    publishing.sort_by_key(|source| (Reverse(source.count.events), &source.name));
    let switched_off: Vec<&str> = view
        .sources
        .iter()
        .filter(|source| {
            source.is_on == Some(false) && matches!(&*source.kind, "probe" | "detector" | "source")
        })
        .map(|source| source.name.as_str())
        .collect();
    let mut parts = Vec::new();
    if publishing.is_empty() {
        parts.push("none published for a subscriber in 24 h".to_owned());
    } else {
        let terminal = &context.terminal;
        let shown = publishing.iter().take(SOURCES_MAX).map(|source| {
            let at = source.count.last_at.as_deref().map_or_else(String::new, |at| terminal.moment(at));
            format!("{} {} ({at})", one_line(&source.name), source.count.events)
        });
        let shown: Vec<String> = shown.collect();
        let more = match publishing.len().saturating_sub(SOURCES_MAX) + view.more {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        let of = if view.is_cut { "of the newest events" } else { "of the events of 24 h" };
        parts.push(format!("{}{more}, {of}", shown.join(", ")));
    }
    if !switched_off.is_empty() {
        parts.push(format!("off: {}", switched_off.join(", ")));
    }
    let (head, terminal) = ("SOURCES", &context.terminal);
    let indent = head.len() + 2;
    let line = terminal.wrap(&parts.join("; "), indent, indent);
    format!("{}  {line}\n", terminal.paint(Tone::Heading, head))
}

/// The text of a part that the daemon does not provide.
fn unknown(what: &str, error: &CliError) -> String {
    format!("{what} are not known: failed to {}\n", one_line(&with_causes(error)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::context;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn unreadable_part_of_screen_shows_its_cause() {
        let daemon = FakeDaemon::answering(&[]);
        let mut out = Vec::new();
        let text = waiting(&Names::default(), &context(&daemon, &mut out));
        let expected = "the pending notifications are not known: failed to read the daemon's status: \
                        the connection to the daemon failed to answer: ";
        assert!(text.starts_with(expected), "{text}");
    }
}
