//! Shares of the bounded tables of watches and questions: nobody fills one for all.

use std::sync::Arc;

use axum::http::StatusCode;
use engine::{event::SessionId, sink::Question, watch::Watch};

use crate::api::error::ApiError;

/// Something that takes a place in a table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Held<'h> {
    session: Option<&'h SessionId>,
    workspace: Option<&'h str>,
    caller: Option<&'h str>,
}

/// A table: its name and its bounds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// The name of its entries, in the plural.
    pub(crate) what: &'static str,
    /// Most entries of a session, or of a folder.
    pub(crate) per_owner: usize,
    /// Most entries.
    pub(crate) all: usize,
}

impl<'h> From<&'h Watch> for Held<'h> {
    fn from(watch: &'h Watch) -> Self {
        Self::new(&watch.session, &watch.workspace, &watch.caller)
    }
}

impl<'h> From<&'h Question> for Held<'h> {
    fn from(question: &'h Question) -> Self {
        Self::new(&question.session, &question.workspace, &question.caller)
    }
}

impl<'h> Held<'h> {
    fn new(
        session: &'h Option<SessionId>,
        workspace: &'h Option<Arc<str>>,
        caller: &'h Option<Arc<str>>,
    ) -> Self {
        Self { session: session.as_ref(), workspace: workspace.as_deref(), caller: caller.as_deref() }
    }

    fn has_owner_of(&self, other: &Self) -> bool {
        match (self.session, other.session) {
            (Some(own), Some(session)) => own == session,
            (None, None) => self.workspace == other.workspace,
            (Some(_), None) | (None, Some(_)) => false,
        }
    }

    fn owner(&self) -> String {
        match (self.session, self.workspace) {
            (Some(session), _) => format!("session {session}"),
            (None, Some(folder)) => format!("folder {folder}"),
            (None, None) => "all sessions".to_owned(),
        }
    }
}

impl Bounds {
    /// The one of the `open` entries whose `id` is `wanted` or begins with it.
    ///
    /// Errors: 409 if several begin with it.
    pub(crate) fn find<'o, T>(
        &self,
        open: &'o [T],
        id: impl Fn(&T) -> &str,
        wanted: &str,
    ) -> Result<Option<&'o T>, ApiError> {
        let mut named = open.iter().filter(|entry| !wanted.is_empty() && id(entry).starts_with(wanted));
        let first = named.next();
        match named.count() {
            0 => Ok(first),
            more => {
                let message = format!("{} {} begin with `{wanted}`", more + 1, self.what);
                Err(ApiError::new(StatusCode::CONFLICT, message))
            }
        }
    }

    /// Checks that there is room for `new` with the `open` ones.
    ///
    /// Shape: entries without a session take at most half of the table, and those of one caller at
    /// most a quarter, because a caller can name any folder. Those that one caller makes for
    /// sessions take at most half. So another session, and another caller, always has a place.
    ///
    /// Errors: 409 with the bound.
    pub(crate) fn check<'h>(
        &self,
        open: impl Iterator<Item = Held<'h>> + Clone,
        new: &Held<'h>,
    ) -> Result<(), ApiError> {
        let Self { what, per_owner, all } = *self;
        let count = |is_counted: &dyn Fn(&Held<'h>) -> bool| open.clone().filter(is_counted).count();
        let refuse = |count: usize, whose: &str| {
            let message = format!("{count} {what} {whose}are open, the maximum: end one of them first");
            Err(ApiError::new(StatusCode::CONFLICT, message))
        };
        let own = count(&|held| held.has_owner_of(new));
        if own >= per_owner {
            return refuse(own, &format!("of {} ", new.owner()));
        }
        let is_for_session = new.session.is_some();
        let is_like = |held: &Held<'h>| held.session.is_some() == is_for_session;
        let share = if is_for_session { all / 2 } else { all / 4 };
        if let Some(caller) = new.caller {
            let own = count(&|held| is_like(held) && held.caller == Some(caller));
            if own >= share {
                return refuse(own, &format!("that {caller} made for several owners "));
            }
        }
        let of_folders = count(&|held| held.session.is_none());
        if !is_for_session && of_folders >= all / 2 {
            return refuse(of_folders, "of folders ");
        }
        let total = count(&|_| true);
        if total >= all { refuse(total, "") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { what: "watches", per_owner: 32, all: 256 };

    /// Adds entries until one is refused; returns how many there are.
    fn fill<'h>(open: &mut Vec<Held<'h>>, new: impl Iterator<Item = Held<'h>>) -> usize {
        let before = open.len();
        for held in new {
            if BOUNDS.check(open.iter().copied(), &held).is_err() {
                break;
            }
            open.push(held);
        }
        open.len() - before
    }

    fn of_folder<'h>(workspace: &'h str, caller: &'h str) -> Held<'h> {
        Held { session: None, workspace: Some(workspace), caller: Some(caller) }
    }

    #[test]
    fn no_caller_fills_the_table() {
        let names: Vec<String> = (0..300).map(|number| format!("/z/{number}")).collect();
        let ids: Vec<SessionId> = names.iter().map(|name| SessionId::new(name)).collect();
        let mut open = Vec::new();
        assert_eq!(fill(&mut open, names.iter().map(|name| of_folder(name, "a"))), 64);
        assert_eq!(fill(&mut open, names.iter().map(|name| of_folder(name, "b"))), 64);
        assert_eq!(fill(&mut open, names.iter().map(|name| of_folder(name, "c"))), 0, "half is for sessions");
        let of_sessions = |caller| {
            let held = move |session| Held { session: Some(session), workspace: None, caller: Some(caller) };
            ids.iter().map(held)
        };
        let own = SessionId::new("real");
        let real = Held { session: Some(&own), workspace: None, caller: Some("session real") };
        assert_eq!(fill(&mut open, std::iter::repeat_n(real, 40)), 32);
        assert_eq!(fill(&mut open, of_sessions("a")), 96, "the table is full");
        assert_eq!(open.len(), 256);
    }

    #[test]
    fn a_full_share_leaves_room_for_a_session() {
        let names: Vec<String> = (0..300).map(|number| format!("/z/{number}")).collect();
        let ids: Vec<SessionId> = names.iter().map(|name| SessionId::new(name)).collect();
        let mut open = Vec::new();
        fill(&mut open, names.iter().map(|name| of_folder(name, "a")));
        let of_sessions = ids.iter().map(|id| Held { session: Some(id), workspace: None, caller: Some("a") });
        assert_eq!(fill(&mut open, of_sessions), 128);
        let own = SessionId::new("real");
        let real = Held { session: Some(&own), workspace: None, caller: Some("session real") };
        assert_eq!(fill(&mut open, std::iter::repeat_n(real, 40)), 32);
        assert_eq!(fill(&mut open, [of_folder("/work", "terminal 34816")].into_iter()), 1);
    }
}
