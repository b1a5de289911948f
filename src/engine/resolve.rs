//! Events that resolve conditions: notifications of a resolved condition are withdrawn, wherever
//! they are.

use std::sync::Arc;

use super::{Engine, sessions::Sessions};
use crate::{
    event::{Event, Scope, Seq, SessionId},
    ledger::{LedgerEntry, Reason},
    notification::Resolution,
    pipeline::rule::Activity,
    time::Timestamp,
};

impl Engine {
    /// Passes an event to a pipeline whose conditions it may resolve. If the subscriber does not
    /// also take the event, the event ends here.
    pub(super) fn resolve(&mut self, index: u32, seq: Seq, event: &Event, is_taken: bool, now: Timestamp) {
        let Some(pipeline) = usize::try_from(index).ok().and_then(|index| self.pipelines.get_mut(index))
        else {
            return;
        };
        let rule = Arc::clone(pipeline.rule());
        let resolution = match rule.activity {
            Activity::Disabled => Err(Reason::SubscriberOff),
            Activity::Core | Activity::Enabled => {
                pipeline.resolve(seq, event, &self.rules.templates, now).map_err(Reason::FilteredOut)
            }
        };
        self.drain_pipeline(index, now);
        if let Ok(resolution) = &resolution {
            self.withdraw(resolution);
        }
        if !is_taken {
            let (subscriber, reason) = (rule.id.clone(), resolution.err().unwrap_or(Reason::Resolves));
            self.record(LedgerEntry::EventEnded { seq, subscriber, reason });
        }
    }

    /// Ends notifications with no condition left after `resolution`: broadcasts, unclaimed ones,
    /// and those pending in the sessions concerned. Suspended sessions are included: they remember
    /// what was delivered to them.
    pub(super) fn withdraw(&mut self, resolution: &Resolution) {
        let (mut ended, is_for_others) = self.fanout.resolve(resolution);
        ended.extend(self.unclaimed.take_resolved(resolution).iter().map(|resolved| resolved.id.clone()));
        for notification in ended {
            let (session, reason) = (None, Reason::Withdrawn);
            self.record(LedgerEntry::NotificationEnded { notification, session, reason });
        }
        for id in self.sessions.known_concerned(&resolution.scope) {
            if is_for_others {
                self.catch_up(&id);
            }
            let known = self.sessions.known_mut(&id);
            if known.is_some_and(|session| session.injector.resolve(resolution)) {
                self.settle_session(&id);
            }
        }
    }
}

impl Sessions {
    /// The open or suspended sessions that `scope` concerns, in id order.
    fn known_concerned(&self, scope: &Scope) -> Vec<SessionId> {
        let mut concerned: Vec<SessionId> = self.each_concerned(scope).cloned().collect();
        match scope {
            Scope::Session(id) => {
                let id = self.aliases.get(id).unwrap_or(id);
                concerned.extend(self.away.contains_key(id).then(|| id.clone()));
            }
            Scope::Workspace(_) | Scope::All => {
                let away = self.away.iter();
                let away =
                    away.filter(|(id, session)| scope.concerns(id, session.harness.workspace.as_deref()));
                concerned.extend(away.map(|(id, _)| id.clone()));
            }
        }
        concerned.sort_unstable();
        concerned
    }
}
