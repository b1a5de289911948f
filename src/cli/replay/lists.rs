//! The list of the notifications that differ in one way.

use std::fmt::Write as _;

use engine::words::counted;

use super::times::delay;
use crate::{
    cli::{
        table::{Cell, Table},
        terminal::Terminal,
    },
    comparison::{Difference, Kind, Outcome, Seen},
};

/// Most notifications that a list shows.
const SHOWN_MAX: usize = 500;

pub(super) fn text(outcome: &Outcome, kind: Kind, terminal: &Terminal) -> String {
    let of_kind: Vec<&Difference> = outcome.differences.iter().filter(|one| one.kind == kind).collect();
    if of_kind.is_empty() {
        return format!("no notification is {}\n", kind.as_str());
    }
    let mut table = Table::new(["MADE", "ID", "SUBSCRIBER", "DELIVERED", "TEXT"]);
    for one in of_kind.iter().take(SHOWN_MAX) {
        let made_at = terminal.moment(&one.made_at().to_string());
        let sides = [one.then.as_ref(), one.now.as_ref()];
        let line = |side: Option<&Seen>| side.map(|seen| seen.line.to_string()).unwrap_or_default();
        let [before, after] = sides.map(line);
        let (first, second) = match (kind, one.has_other_text) {
            (Kind::Gone, _) => (before, None),
            (Kind::Added, _) | (Kind::Changed, false) => (after, None),
            (Kind::Changed, true) => (format!("- {before}"), Some(format!("+ {after}"))),
        };
        let cells = [
            Cell::dim(&made_at),
            Cell::dim(one.id.as_str()),
            Cell::plain(one.subscriber.as_str()),
            Cell::plain(&delivery(one)),
            Cell::plain(&first),
        ];
        table.row(cells);
        if let Some(second) = second {
            let [a, b, c, d] = [(); 4].map(|()| Cell::plain(""));
            table.row([a, b, c, d, Cell::plain(&second)]);
        }
    }
    let mut text = format!("{} {}\n", counted(of_kind.len(), "notification"), kind.as_str());
    text.push_str(&table.text(terminal));
    if let Some(more) = of_kind.len().checked_sub(SHOWN_MAX).filter(|more| *more > 0) {
        let _ = writeln!(text, "{more} more: --format json");
    }
    text
}

/// Whether and when it is delivered, compared with then.
fn delivery(one: &Difference) -> String {
    let delivered = |seen: &Option<Seen>| seen.as_ref().and_then(|seen| seen.delivered_at);
    match (delivered(&one.then), delivered(&one.now)) {
        (None, None) => "no".to_owned(),
        (Some(_), None) => "then".to_owned(),
        (None, Some(_)) => "now".to_owned(),
        (Some(then), Some(now)) if then == now => "both".to_owned(),
        (Some(then), Some(now)) if now > then => format!("{} later", delay(now.since(then))),
        (Some(then), Some(now)) => format!("{} earlier", delay(then.since(now))),
    }
}
