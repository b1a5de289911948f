//! The sessions that an event concerns, by their ids or their folders.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::snapshot;

/// The id of one agent conversation; a subagent has its own.
///
/// Shape: the harness's id, or the full name `harness:id` if a session of another harness already
/// has that id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct SessionId(#[serde(deserialize_with = "snapshot::text::read")] Arc<str>);

impl SessionId {
    /// Separates the harness and the id in a full name.
    pub const SEPARATOR: char = ':';

    /// Wraps the harness's id of a conversation, or a full name.
    pub fn new(id: &str) -> Self {
        Self(id.into())
    }

    /// The full name of the session with this id in `harness`.
    pub fn full(&self, harness: &str) -> Self {
        Self(format!("{harness}{}{self}", Self::SEPARATOR).into())
    }

    /// The id in the full name of a session of `harness`; `None` if the text is not such a name.
    pub fn own(&self, harness: &str) -> Option<&str> {
        self.0.strip_prefix(harness)?.strip_prefix(Self::SEPARATOR)
    }

    /// All ways to split a full name into harness and id; several if one of them contains a colon.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.match_indices(Self::SEPARATOR).filter_map(|(at, _)| {
            let (harness, id) = self.0.split_at(at);
            Some((harness, id.strip_prefix(Self::SEPARATOR)?))
        })
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for SessionId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The sessions that an event concerns.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// One session.
    Session(SessionId),
    /// Every session in, under or above this folder.
    Workspace(Arc<str>),
    /// Every session.
    All,
    /// Some of the sessions of a wider scope, by their folders.
    Part(Arc<Part>),
}

/// The sessions of a scope that are in one territory, or that are not in some.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Part {
    /// The wider scope, of more than one session.
    of: Scope,
    only: Option<Arc<Territory>>,
    except: Vec<Arc<Territory>>,
}

/// The sessions for which the files of a folder hold: those in it, without those in a folder inside
/// it that has files of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Territory {
    /// The folder.
    pub folder: Arc<str>,
    /// The folders inside it.
    pub except: Vec<Arc<str>>,
}

impl Territory {
    /// Whether a session with this folder is in it.
    pub fn contains(&self, workspace: Option<&str>) -> bool {
        let is_in = |folder: &Arc<str>| workspace.is_some_and(|own| is_within(own, folder));
        is_in(&self.folder) && !self.except.iter().any(is_in)
    }

    /// Whether a session of `scope` can be in it, as far as folders tell.
    pub fn meets(&self, scope: &Scope) -> bool {
        match scope {
            Scope::Workspace(folder) => are_around(folder, &self.folder),
            Scope::Session(_) | Scope::All | Scope::Part(_) => true,
        }
    }
}

impl Part {
    fn contains(&self, workspace: Option<&str>) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(workspace))
            && !self.except.iter().any(|territory| territory.contains(workspace))
    }

    /// The scope of which it is a part.
    pub fn whole(&self) -> &Scope {
        &self.of
    }

    /// The territories that bound it: the one in which it is, then those in which it is not.
    pub(crate) fn bounds(&self) -> impl Iterator<Item = &Arc<Territory>> {
        self.only.iter().chain(&self.except)
    }
}

impl Scope {
    /// Its sessions in the territory `only`, if that is named, and in none of `except`. A scope of one
    /// session stays as it is: its folder is not known here.
    pub fn narrowed(self, only: Option<&Arc<Territory>>, mut except: Vec<Arc<Territory>>) -> Self {
        except.retain(|territory| territory.meets(&self));
        match self {
            Self::Session(_) => self,
            _ if only.is_none() && except.is_empty() => self,
            of @ (Self::Workspace(_) | Self::All | Self::Part(_)) => {
                Self::Part(Arc::new(Part { of, only: only.cloned(), except }))
            }
        }
    }

    /// The session or the folder that it names. That of a part is its territory, else the one of the
    /// wider scope.
    pub fn address(&self) -> (Option<&SessionId>, Option<&Arc<str>>) {
        match self {
            Self::Session(session) => (Some(session), None),
            Self::Workspace(folder) => (None, Some(folder)),
            Self::All => (None, None),
            Self::Part(part) => match &part.only {
                Some(only) => (None, Some(&only.folder)),
                None => part.of.address(),
            },
        }
    }

    /// Whether the scope includes a session with the folder `workspace`.
    ///
    /// Folders are compared by segment, so `/a/bc` is not under `/a/b`. A session without a folder
    /// is included only by its id and by `All`.
    pub fn concerns(&self, session: &SessionId, workspace: Option<&str>) -> bool {
        match self {
            Self::Session(id) => id == session,
            Self::Workspace(folder) => workspace.is_some_and(|own| are_around(own, folder)),
            Self::All => true,
            Self::Part(part) => part.contains(workspace) && part.of.concerns(session, workspace),
        }
    }

    /// Whether the scope includes every session of `other`, judged by the two scopes alone.
    pub fn covers(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::All, _) => true,
            (Self::Part(part), Self::Part(other)) if part == other => true,
            (Self::Workspace(folder), Self::Part(part)) => {
                let is_inside = part.only.as_ref().is_some_and(|only| is_within(&only.folder, folder));
                is_inside || self.covers(&part.of)
            }
            (Self::Workspace(folder), Self::Workspace(other)) => is_within(other, folder),
            (Self::Session(id), Self::Session(other)) => id == other,
            (Self::Workspace(_) | Self::Session(_) | Self::Part(_), _) => false,
        }
    }

    /// Whether a session can be in both scopes.
    pub fn meets(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Session(id), Self::Session(other)) => id == other,
            (Self::Workspace(folder), Self::Workspace(other)) => are_around(folder, other),
            (Self::Part(part), other) | (other, Self::Part(part)) => {
                part.only.as_ref().is_none_or(|only| only.meets(other)) && part.of.meets(other)
            }
            (Self::Session(_) | Self::Workspace(_) | Self::All, _) => true,
        }
    }
}

/// Whether one of the folders contains the other.
fn are_around(a: &str, b: &str) -> bool {
    is_within(a, b) || is_within(b, a)
}

/// Whether a folder is `outer` or inside it.
pub fn is_within(inner: &str, outer: &str) -> bool {
    let outer = outer.trim_end_matches('/');
    inner.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workspace_concerns_sessions_in_nested_or_parent_folders() {
        let scope = Scope::Workspace("/home/u/project".into());
        let session = SessionId::new("s1");
        for (folder, expected) in [
            (Some("/home/u/project"), true),
            (Some("/home/u/project/src"), true),
            (Some("/home/u"), true),
            (Some("/"), true),
            (Some("/home/u/project2"), false),
            (Some("/home/v"), false),
            (None, false),
        ] {
            assert_eq!(scope.concerns(&session, folder), expected, "{folder:?}");
        }
    }

    fn territory(folder: &str, except: &[&str]) -> Arc<Territory> {
        let except = except.iter().map(|folder| (*folder).into()).collect();
        Arc::new(Territory { folder: folder.into(), except })
    }

    #[test]
    fn parts_share_the_sessions_of_their_scope() {
        let session = SessionId::new("s1");
        let (outer, inner) = (territory("/m", &["/m/web"]), territory("/m/web", &[]));
        let folders =
            [None, Some("/"), Some("/m"), Some("/m/a"), Some("/m/web"), Some("/m/web/x"), Some("/n")];
        for scope in [Scope::All, Scope::Workspace("/m/web/x".into()), Scope::Workspace("/n".into())] {
            let parts = [
                scope.clone().narrowed(Some(&outer), Vec::new()),
                scope.clone().narrowed(Some(&inner), Vec::new()),
                scope.clone().narrowed(None, vec![outer.clone(), inner.clone()]),
            ];
            for folder in folders {
                let concerned = parts.iter().filter(|part| part.concerns(&session, folder)).count();
                assert_eq!(concerned == 1, scope.concerns(&session, folder), "{scope:?} {folder:?}");
                assert!(concerned < 2, "{scope:?} {folder:?}");
            }
            assert!(parts.iter().all(|part| Scope::All.covers(part) && part.covers(part)));
        }
        let part = Scope::All.narrowed(Some(&inner), Vec::new());
        for (scope, is_covering, is_meeting) in
            [("/m", true, true), ("/m/web", true, true), ("/m/web/x", false, true), ("/n", false, false)]
        {
            let scope = Scope::Workspace(scope.into());
            assert_eq!((scope.covers(&part), scope.meets(&part)), (is_covering, is_meeting), "{scope:?}");
            assert_eq!(part.meets(&scope), is_meeting, "{scope:?}");
        }
        assert_eq!(Scope::Workspace("/n".into()).narrowed(None, vec![inner]), Scope::Workspace("/n".into()));
    }
}
