//! Short ids: how an id is written for users, and how their input is resolved.
//!
//! Shape: a long id is written as its shortest prefix that is unique in the list. Every command
//! that takes an existing id accepts such a prefix of at least [`SHORT_CHARS_MIN`] characters. A
//! session is written `b1c2@shop`, with the name of its folder; both `b1c2` and `b1c2@shop` refer
//! to it. A subagent's id has two parts, `b1c2/a7f3`, of which each is shortened.

use std::{collections::BTreeSet, ops::Bound, sync::Arc};

use serde::de::DeserializeOwned;

use super::{CliError, Context, context::with_query, parse, terminal::one_line};

use crate::api::wire::{
    history::{ClosedSession, ClosedSessionPage, EventLine, EventPage, NotificationPage, NotificationView},
    inbox::InboxList,
    sources::{DOCTOR_AGENT, DOCTOR_SESSION},
    views::{SessionList, SessionView},
};

/// Fewest characters of an accepted prefix.
const SHORT_CHARS_MIN: usize = 4;
/// Fewest written characters of a notification's id. There are many, so a prefix that is unique in
/// a short list would often be ambiguous in a long one.
const NOTIFICATION_CHARS_MIN: usize = 6;
/// Ids up to this length are written whole: a person chose them.
const WHOLE_CHARS_MAX: usize = 12;
/// Most ids in an error about an ambiguous prefix.
const NAMED_MAX: usize = 5;
/// The text that refers to the newest notification.
pub(super) const LAST: &str = "last";
/// Between the id of a session and that of its subagent.
const PART: char = '/';
/// Between a session's id and its folder's name.
const AT: char = '@';
/// Number of the newest notifications and events that are searched for a prefix.
const LOOKED_THROUGH: usize = 1_000;
/// Number of the newest notifications that are searched for one that is not a probe of `aside
/// doctor`.
const PROBES_MAX: usize = 100;
/// Most searched pages of the inbox.
const INBOX_PAGES_MAX: usize = 10;

const DOING: &str = "find the id";

/// The ids of a list, for shortening.
#[derive(Debug, Default)]
pub(super) struct ShortIds {
    /// The ids of sessions, and all other ids without parts.
    heads: BTreeSet<String>,
    /// The ids of subagents.
    tails: BTreeSet<String>,
    chars_min: usize,
}

impl ShortIds {
    pub(super) fn of_sessions<'i>(ids: impl IntoIterator<Item = &'i str>) -> Self {
        Self::of(ids, SHORT_CHARS_MIN)
    }

    pub(super) fn of_notifications<'i>(ids: impl IntoIterator<Item = &'i str>) -> Self {
        Self::of(ids, NOTIFICATION_CHARS_MIN)
    }

    fn of<'i>(ids: impl IntoIterator<Item = &'i str>, chars_min: usize) -> Self {
        let mut short = Self { chars_min, ..Self::default() };
        for id in ids {
            let (head, tail) = parts(id);
            short.heads.insert(head.to_owned());
            short.tails.extend(tail.map(str::to_owned));
        }
        short
    }

    /// The shortest form of `id`, which is in the list.
    pub(super) fn short(&self, id: &str) -> String {
        let (head, tail) = parts(id);
        let tail = tail.map(|tail| format!("{PART}{}", self.part(tail, &self.tails)));
        self.part(head, &self.heads).to_owned() + &tail.unwrap_or_default()
    }

    fn part<'i>(&self, id: &'i str, all: &BTreeSet<String>) -> &'i str {
        if id.chars().count() <= WHOLE_CHARS_MAX {
            return id;
        }
        let before = all.range::<str, _>((Bound::Unbounded, Bound::Excluded(id))).next_back();
        let after = all.range::<str, _>((Bound::Excluded(id), Bound::Unbounded)).next();
        let common =
            |other: &String| id.chars().zip(other.chars()).take_while(|(own, other)| own == other).count();
        let needed = before.into_iter().chain(after).map(|other| common(other) + 1).max().unwrap_or(0);
        let end = id.char_indices().nth(needed.max(self.chars_min));
        end.and_then(|(end, _)| id.get(..end)).unwrap_or(id)
    }
}

fn parts(id: &str) -> (&str, Option<&str>) {
    id.split_once(PART).map_or((id, None), |(head, tail)| (head, Some(tail)))
}

/// Whether `text` is a prefix of `id`, part by part.
fn begins(id: &str, text: &str) -> bool {
    let part = |id: &str, text: &str| {
        id == text || (text.chars().count() >= SHORT_CHARS_MIN && id.starts_with(text))
    };
    match (parts(id), parts(text)) {
        ((id, None), (text, None)) => part(id, text),
        ((id, Some(id_tail)), (text, Some(text_tail))) => part(id, text) && part(id_tail, text_tail),
        ((_, None), (_, Some(_))) | ((_, Some(_)), (_, None)) => false,
    }
}

/// The one of `ids` that equals `text`, or else begins with it; `None` if there is none.
///
/// Errors: several begin with it.
fn pick<'i>(text: &str, ids: impl IntoIterator<Item = &'i str>) -> Result<Option<String>, CliError> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for id in ids {
        if id == text {
            return Ok(Some(id.to_owned()));
        }
        if begins(id, text) {
            found.insert(id);
        }
    }
    match found.len() {
        0 | 1 => Ok(found.first().map(|id| (*id).to_owned())),
        count => {
            let named: Vec<String> = found.into_iter().take(NAMED_MAX).map(one_line).collect();
            let more = count.saturating_sub(NAMED_MAX);
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            Err(CliError::Ambiguous { text: text.to_owned(), ids: named.join(", ") + &more })
        }
    }
}

/// The naming fields of a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Session {
    id: String,
    workspace: Option<Arc<str>>,
}

impl From<&SessionView> for Session {
    fn from(session: &SessionView) -> Self {
        Self { id: session.id.clone(), workspace: session.harness.workspace.clone() }
    }
}

impl From<ClosedSession> for Session {
    fn from(session: ClosedSession) -> Self {
        Self { id: session.id, workspace: session.harness.workspace }
    }
}

impl Session {
    /// The last component of its folder.
    fn folder(&self) -> Option<&str> {
        self.workspace.as_deref()?.rsplit('/').find(|name| !name.is_empty())
    }

    /// Its displayed name: `b1c2@shop`.
    pub(super) fn name(&self, ids: &ShortIds) -> String {
        let id = ids.short(&self.id);
        self.folder().map_or_else(|| id.clone(), |folder| format!("{id}{AT}{folder}"))
    }
}

/// The displayed names of sessions, by id.
#[derive(Debug, Default)]
pub(super) struct Names {
    sessions: Vec<Session>,
    ids: ShortIds,
}

impl Names {
    pub(super) fn of(sessions: Vec<Session>) -> Self {
        let ids = ShortIds::of_sessions(sessions.iter().map(|session| &*session.id));
        Self { sessions, ids }
    }

    /// The names of the daemon's sessions; none if they cannot be read, because the main output
    /// works without names.
    pub(super) fn ask(context: &Context<'_>) -> Self {
        Self::of(known(context).unwrap_or_default())
    }

    /// The name of the session with this id, if it is known.
    pub(super) fn known(&self, id: &str) -> Option<String> {
        let known = self.sessions.iter().find(|session| session.id == id);
        known.map(|session| session.name(&self.ids))
    }

    /// The name of the session with this id; if it is not among them, the shortest distinct prefix.
    pub(super) fn name(&self, id: &str) -> String {
        self.known(id).unwrap_or_else(|| self.ids.short(id))
    }
}

/// The known sessions; none if the daemon does not list them.
///
/// Errors: its list cannot be read.
fn known(context: &Context<'_>) -> Result<Vec<Session>, CliError> {
    let list: SessionList = get_if_listed(context, "/v1/sessions")?;
    Ok(list.sessions.iter().map(Session::from).collect())
}

/// The last closed sessions; none if the daemon does not list them.
///
/// Errors: its list cannot be read.
fn closed(context: &Context<'_>) -> Result<Vec<Session>, CliError> {
    let page: ClosedSessionPage = get_if_listed(context, "/v1/history/sessions?limit=1000")?;
    Ok(page.sessions.into_iter().map(Session::from).collect())
}

/// The id of the session that `text` refers to; `text` itself if there is none.
///
/// Errors: several match; a list of the sessions cannot be read.
pub(super) fn session(text: &str, context: &Context<'_>) -> Result<String, CliError> {
    if let Some(id) = pick_session(text, &known(context)?)? {
        return Ok(id);
    }
    Ok(pick_session(text, &closed(context)?)?.unwrap_or_else(|| text.to_owned()))
}

/// The id of the session that `text` refers to. The session may not exist yet, so only `b1c2@shop`
/// is resolved; any other text is returned unchanged.
///
/// Errors: several match; the list of the sessions cannot be read.
pub(super) fn addressee(text: &str, context: &Context<'_>) -> Result<String, CliError> {
    if !text.contains(AT) {
        return Ok(text.to_owned());
    }
    let found = pick_session(text, &known(context)?)?;
    Ok(found.unwrap_or_else(|| text.to_owned()))
}

fn pick_session(text: &str, sessions: &[Session]) -> Result<Option<String>, CliError> {
    if let Some(id) = pick(text, sessions.iter().map(|session| &*session.id))? {
        return Ok(Some(id));
    }
    let Some((id, folder)) = text.rsplit_once(AT) else { return Ok(None) };
    let there = sessions.iter().filter(|session| session.folder() == Some(folder));
    pick(id, there.map(|session| &*session.id))
}

/// The path of the page of the inbox that begins at `from`, or of the first one.
pub(super) fn inbox_page(session: Option<&str>, from: Option<&str>) -> String {
    with_query("/v1/inbox", &[("session", session), ("from", from)])
}

/// The notification of the inbox, or of one session's part of it, that `text` refers to; `last` is
/// the newest. `None` if there is none.
///
/// Errors: several match; the inbox cannot be read.
pub(super) fn waiting(
    text: &str,
    session: Option<&str>,
    context: &Context<'_>,
) -> Result<Option<String>, CliError> {
    let mut waiting = Vec::new();
    let mut from: Option<String> = None;
    for _ in 0..INBOX_PAGES_MAX {
        let page: InboxList = context.get(DOING, &inbox_page(session, from.as_deref()))?;
        waiting.extend(page.notifications);
        from = page.next;
        if from.is_none() {
            break;
        }
    }
    if text == LAST {
        return Ok(waiting.into_iter().min_by_key(|one| one.age_ms).map(|one| one.id));
    }
    pick(text, waiting.iter().map(|one| &*one.id))
}

/// The notification, injection or event among the newest whose id begins with `text`; for `last`,
/// the newest notification that is not a probe. `None` if there is none.
///
/// Errors: several match; the history cannot be read.
pub(super) fn of_history(text: &str, context: &Context<'_>) -> Result<Option<String>, CliError> {
    if text == LAST {
        let page: NotificationPage = context.get(DOING, &format!("/v1/notifications?limit={PROBES_MAX}"))?;
        let is_real = |one: &NotificationView| !is_probe(one.session.as_deref());
        return Ok(page.notifications.into_iter().find(is_real).map(|newest| newest.id));
    }
    let notifications: NotificationPage =
        context.get(DOING, &format!("/v1/notifications?limit={LOOKED_THROUGH}"))?;
    let events: EventPage = context.get(DOING, &format!("/v1/events?limit={LOOKED_THROUGH}"))?;
    let injections = notifications.notifications.iter().flat_map(|one| &one.deliveries);
    let injections = injections.filter_map(|delivery| delivery.injection.as_deref());
    let ids = notifications.notifications.iter().map(|one| &*one.id);
    // An event of another version does not hide the others.
    let events: Vec<_> = events.events.iter().map(EventLine::view).filter_map(Result::ok).collect();
    pick(text, ids.chain(injections).chain(events.iter().map(|event| &*event.id)))
}

/// The daemon's answer, or an empty one if the request fails.
///
/// Errors: the answer has an unexpected form.
fn get_if_listed<T: DeserializeOwned + Default>(context: &Context<'_>, path: &str) -> Result<T, CliError> {
    context.ask(DOING, "GET", path, None).map_or_else(|_| Ok(T::default()), |body| parse(DOING, &body))
}

/// The source of a probe's event.
pub(super) const PROBE_SOURCE: &str = "doctor";

/// Whether this is the session of a round trip, which is hidden from the history by default.
pub(super) fn is_probe(session: Option<&str>) -> bool {
    let parts = session.and_then(|session| session.split_once('/'));
    parts.is_some_and(|(parent, agent)| parent.starts_with(DOCTOR_SESSION) && agent == DOCTOR_AGENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::run_against;
    use hook::client::fake::FakeDaemon;

    const A: &str = "b1c2d3e4-0000-4000-8000-000000000001";
    const B: &str = "b1c2d3e5-0000-4000-8000-000000000002";
    const C: &str = "0a9b8c7d-0000-4000-8000-000000000003";

    #[test]
    fn long_id_is_shortened_to_unique_prefix() {
        let child = format!("{C}/a7f3e2d1c0b9a8f7");
        let ids = ShortIds::of_sessions([A, B, C, "demo", "demo-2", &*child]);
        for (id, short) in [
            (A, "b1c2d3e4"),
            (B, "b1c2d3e5"),
            (C, "0a9b"),
            ("demo", "demo"),
            ("demo-2", "demo-2"),
            (&*child, "0a9b/a7f3"),
            // Not in the list.
            ("b1c2d3e6-0000-4000-8000-000000000004", "b1c2d3e6"),
        ] {
            assert_eq!(ids.short(id), short);
        }
        let long = "\u{e9}".repeat(20);
        assert_eq!(ShortIds::of_notifications([&*long]).short(&long), "\u{e9}".repeat(6));
    }

    fn picked(text: &str) -> Result<Option<String>, String> {
        let child = format!("{C}/a7f3e2d1c0b9a8f7");
        pick(text, [A, B, C, "demo", "demo-2", &*child]).map_err(|error| error.to_string())
    }

    #[test]
    fn exact_match_or_unique_prefix_resolves_an_id() {
        let child = format!("{C}/a7f3e2d1c0b9a8f7");
        for (text, id) in [
            (A, Some(A)),
            ("b1c2d3e4", Some(A)),
            ("b1c2d3e5-", Some(B)),
            // A subagent does not make its session's prefix ambiguous.
            ("0a9b", Some(C)),
            ("0a9b/a7f3", Some(&*child)),
            ("0a9b/a7", None),
            // An exact match, although another id begins with it.
            ("demo", Some("demo")),
            ("demo-", Some("demo-2")),
            ("0a9", None),
            ("ffff", None),
        ] {
            assert_eq!(picked(text), Ok(id.map(str::to_owned)), "{text}");
        }
    }

    #[test]
    fn ambiguous_prefix_is_refused_with_its_matches() {
        let expected = format!("identify `b1c2`: several ids begin with it: {A}, {B}");
        assert_eq!(picked("b1c2"), Err(expected));
        let many: Vec<String> = (0..8).map(|n| format!("aaaa{n}")).collect();
        let error = pick("aaaa", many.iter().map(String::as_str)).expect_err("ambiguous").to_string();
        assert!(error.ends_with("begin with it: aaaa0, aaaa1, aaaa2, aaaa3, aaaa4 and 3 more"), "{error}");
    }

    #[test]
    fn session_is_named_and_resolved_with_its_folder() {
        let session =
            |id: &str, folder: Option<&str>| Session { id: id.to_owned(), workspace: folder.map(Into::into) };
        let sessions = [session(A, Some("/w/shop")), session(B, Some("/w/api/")), session("demo", None)];
        let names = Names::of(sessions.to_vec());
        for (id, name) in [(A, "b1c2d3e4@shop"), (B, "b1c2d3e5@api"), ("demo", "demo"), (C, "0a9b")] {
            assert_eq!(names.name(id), name);
        }
        let meant = |text: &str| pick_session(text, &sessions).ok().flatten();
        assert_eq!(meant("b1c2d3e4@shop").as_deref(), Some(A));
        // The folder resolves an ambiguous prefix.
        assert_eq!(meant("b1c2@api").as_deref(), Some(B));
        assert_eq!(meant("b1c2@elsewhere"), None);
        assert_eq!(meant("b1c2"), None);
    }

    #[test]
    fn unreadable_session_list_is_an_error() {
        let expected = "find the id: the daemon's answer has a format that this version does not know";
        let unread = r#"{"sessions":7}"#;
        let closed = "/v1/history/sessions?limit=1000";
        for answers in
            [&[("/v1/sessions", unread)][..], &[("/v1/sessions", r#"{"sessions":[]}"#), (closed, unread)]]
        {
            let daemon = FakeDaemon::answering_paths(answers);
            let said = run_against(&daemon, &["history", "--session", "b1c2"]);
            assert_eq!(said, Err(expected.to_owned()));
        }
        let daemon = FakeDaemon::answering_paths(&[("/v1/sessions", unread)]);
        let said = run_against(&daemon, &["publish", "a.b", "--session", "b1c2@shop"]);
        assert_eq!(said, Err(expected.to_owned()));
    }
}
