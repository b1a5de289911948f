//! Other sessions in the same folder or repository: one finding each. The files and git probes
//! report their changes.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{Facts, Finding, Moment, OtherSession, facts::name_towards, kind::Probe};
use crate::{
    event::{SessionId, Severity},
    settings::settings,
    sorted::SortedSet,
};

/// How long after its last activity a session counts as working.
const PRESENT_FOR: Duration = Duration::from_secs(15 * 60);
/// Most sessions that are kept as reported; beyond it there are no findings.
const SAID_MAX: usize = 64;

settings! {
    /// Notifies an agent of other sessions that work in its folder, once of each
    /// (`session.other.present`).
    enabled: bool = true, flag();
}

/// The reported sessions.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Known(SortedSet<SessionId>);

impl Probe for Known {
    type Settings = Settings;

    fn look(&mut self, moment: &Moment<'_>, _settings: &Settings, _facts: &dyn Facts) -> Vec<Finding> {
        let is_present = |heard_at| moment.now.since(heard_at) <= PRESENT_FOR;
        let unsaid = moment.others.iter().filter(|other| {
            other.is_open
                && works_in(other, moment.workspace, moment.repository)
                && is_present(other.heard_at)
                && !is_of_one_conversation(moment.session, other.session)
                && !self.0.contains(other.session)
        });
        let room = SAID_MAX.saturating_sub(self.0.len());
        let unsaid: Vec<&SessionId> = unsaid.map(|other| other.session).take(room).collect();
        let Some(first) = unsaid.first() else { return Vec::new() };
        let mut payload = json!({ "session": name_towards(moment.session, first) });
        if let (Some(fields), more @ 1..) = (payload.as_object_mut(), unsaid.len() - 1) {
            fields.insert("more".to_owned(), more.into());
        }
        let name = first.to_string();
        self.0.extend(unsaid.into_iter().cloned());
        vec![Finding { event_type: "session.other.present", severity: Severity::Info, name, payload }]
    }
}

/// Whether a session works in this folder or this repository. A session started in a common
/// ancestor of all folders works in none of them.
fn works_in(other: &OtherSession<'_>, workspace: Option<&str>, repository: Option<&str>) -> bool {
    let is_same = |own: Option<&str>, other: Option<&str>| own.is_some() && own == other;
    is_same(workspace, other.workspace) || is_same(repository, other.git.top())
}

/// Whether one session is a subagent of the other, or both are subagents of a third.
fn is_of_one_conversation(one: &SessionId, other: &SessionId) -> bool {
    let root = |id: &SessionId| id.as_str().split('/').next().unwrap_or_default().to_owned();
    root(one) == root(other)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::works_in;
    use crate::{
        event::SessionId,
        probe::{Known, memory::KnownSession},
    };

    #[test]
    fn sessions_work_together_in_equal_folder_or_repository() {
        let other = |workspace: &str| {
            let known = Known { workspace: Some(workspace.into()), ..Known::default() };
            KnownSession { session: SessionId::new("t"), known: Arc::new(known), is_open: true }
        };
        for (workspace, repository, other_workspace, expected) in [
            (Some("/w"), None, "/w", true),
            (Some("/w"), None, "/", false),
            (Some("/w/a"), Some("/w"), "/w/b", false),
            (None, None, "/w", false),
        ] {
            let works = works_in(&other(other_workspace).as_session(), workspace, repository);
            assert_eq!(works, expected, "{workspace:?} {other_workspace}");
        }
    }
}
