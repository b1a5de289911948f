//! The budgets of the sessions' releases: what is left of them, also of those that the sessions of a
//! user share, and what is used, for people.

use std::sync::Arc;

use journal::time::Timestamp;

use super::{
    injector::{Offer, Room, SourceChange},
    session::SessionKey,
    sessions::Sessions,
};
use crate::{
    budget::{Account, Balance, BudgetName, SessionUsage, SourceUsage, Usage},
    event::SessionId,
    notification::{Notification, Tokens},
};

impl Sessions {
    /// What is left of the budgets for the candidates of an offer.
    pub fn room(&self, session: SessionKey, offer: &Offer, now: Timestamp) -> Room {
        let session = self.table.get(session);
        let budgets = &self.settings.budgets;
        let user = session.user();
        let of_source = |name: &Arc<str>| {
            let rate = budgets.settings.of_source(name)?;
            let account = self.standing.sources.get(&user, name);
            Some(Balance::filling(BudgetName::Source(Arc::clone(name)), rate, account, now))
        };
        session.injector.room(&offer.candidates, budgets, of_source, now)
    }

    /// Summarises what the session's budgets have had no room for, for a while; `line` says one
    /// notification in a line. Returns the new notifications.
    pub fn summarise(
        &mut self,
        session: SessionKey,
        line: impl Fn(&Notification) -> String,
        now: Timestamp,
    ) -> Vec<Arc<Notification>> {
        let after = self.settings.budgets.settings.summarise_after;
        self.table.get_mut(session).injector.summarise(after, line, now)
    }

    /// Applies what a session's releases changed of the budgets of sources.
    pub(super) fn change_sources(&mut self, key: SessionKey, changes: Vec<SourceChange>) {
        if changes.is_empty() {
            return;
        }
        let user = self.table.get(key).user();
        for SourceChange { source, tokens, charged_at, credited_at } in changes {
            let sources = &mut self.standing.sources;
            match (credited_at, self.settings.budgets.settings.of_source(&source)) {
                (Some(at), _) => sources.credit(&user, &source, tokens, charged_at, at),
                (None, Some(rate)) => sources.charge(&user, &source, tokens, rate, charged_at),
                // The rules in force have no budget for it any more.
                (None, None) => {}
            }
        }
    }

    /// What each open session has used of its budgets, in id order; those that have used nothing are
    /// left out.
    pub fn budget_usage(&self, now: Timestamp) -> Vec<(SessionId, SessionUsage)> {
        let views = self.views_by_id().filter(|session| session.is_open);
        let usage = views
            .map(|session| (session.id.clone(), session.injector.budget_usage(&self.settings.budgets, now)));
        usage.filter(|(_, usage)| usage.session.used > 0).collect()
    }

    /// What is used of the budgets of sources, by user and name.
    pub fn source_usage(&self, now: Timestamp) -> Vec<SourceUsage> {
        let usage = |(user, source, account): (&Arc<str>, &Arc<str>, &Account)| {
            let rate = self.settings.budgets.settings.of_source(source)?;
            let used = u64::from(account.used(now).0);
            let usage = Usage { used, size: Some(Tokens(rate.count.get())) };
            (used > 0).then(|| SourceUsage { source: Arc::clone(source), user: Arc::clone(user), usage })
        };
        self.standing.sources.iter().filter_map(usage).collect()
    }
}
