//! The table of `aside status --verbose` about the budgets.

use crate::{
    api::wire::budgets::{BudgetsView, UsageView},
    cli::{
        table::{Cell, Table},
        terminal::{Terminal, one_line},
    },
};

/// Most sessions that are shown.
const SESSIONS_SHOWN: usize = 20;

impl BudgetsView {
    /// What each session and source used, in tokens; empty if nothing is used.
    pub(super) fn text(&self, terminal: &Terminal) -> String {
        let mut table = Table::new(["BUDGET OF", "TURN", "HOUR", "ALL"]);
        for session in self.sessions.iter().take(SESSIONS_SHOWN) {
            table.row([
                Cell::plain(&one_line(&session.session)),
                Cell::plain(&session.turn.text()),
                Cell::plain(&session.hour.text()),
                Cell::plain(&session.total.text()),
            ]);
            for own in &session.subscribers {
                table.row([
                    Cell::plain(&format!("  {}", one_line(&own.subscriber))),
                    Cell::plain(""),
                    Cell::plain(&own.usage.text()),
                    Cell::plain(""),
                ]);
            }
        }
        for own in &self.sources {
            let user =
                if own.user.is_empty() { String::new() } else { format!(" ({})", one_line(&own.user)) };
            table.row([
                Cell::plain(&format!("source {}{user}", one_line(&own.source))),
                Cell::plain(""),
                Cell::plain(&own.usage.text()),
                Cell::plain(""),
            ]);
        }
        if table.is_empty() {
            return String::new();
        }
        let others = self.others + self.sessions.len().saturating_sub(SESSIONS_SHOWN);
        let more = match others {
            0 => String::new(),
            1 => "1 other session has used some\n".to_owned(),
            count => format!("{count} other sessions have used some\n"),
        };
        format!("\n{}{more}", table.text(terminal))
    }
}

impl UsageView {
    fn text(&self) -> String {
        match self.of {
            Some(of) => format!("{} of {of}", self.used),
            None => format!("{} (off)", self.used),
        }
    }
}
