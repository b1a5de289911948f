//! Encodes drafts for one append, and keeps what the answer about each needs.
//!
//! The session of the process that publishes an event has consequences for the event:
//!
//! - A message to an agent that a process of another agent publishes is that agent's: it may wake
//!   its recipient, and is trusted no more than a model's text.
//! - A command that `aside run` runs below a client, without a scope of its own, is a background
//!   task of that client's session. If the client still runs it when it ends, the client itself
//!   tells its agent, as the result of a call or as the end of a task.

use std::{borrow::Cow, mem, ops::Range, sync::Arc};

use journal::{Appended, Level, Outcome};

use crate::{
    draft::{Draft, NumberedDraft},
    event::{Provenance, Seq, SessionId, codec::IdOrigin},
    pipeline::activation::MESSAGE_TYPE,
    records::Records,
    request::FieldError,
};

/// Drafts of the next append.
#[derive(Debug, Default)]
pub struct Intake {
    records: Records,
    batch: TakenBatch,
}

/// A draft depends on its caller, which is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallerNeeded;

/// The drafts of one append, before it is answered.
#[derive(Debug, Default)]
pub struct TakenBatch {
    taken: Vec<Taken>,
    ids: Ids,
}

/// The ids of a batch's events, in one string; one allocation per id would be wasted when only
/// counts are returned.
#[derive(Debug, Default)]
struct Ids(String);

/// A refused draft: its number in the body, from 1, and why.
type Refusal = (u64, FieldError);

/// A draft before its append.
type Taken = Result<EncodedDraft, Refusal>;

#[derive(Debug)]
struct EncodedDraft {
    id: Range<usize>,
    session: Option<Arc<str>>,
}

impl Ids {
    fn add(&mut self, id: &str) -> Range<usize> {
        let start = self.0.len();
        self.0.push_str(id);
        start..self.0.len()
    }

    fn get(&self, id: Range<usize>) -> &str {
        self.0.get(id).expect("a range that `add` gave")
    }
}

impl Intake {
    /// Adds a draft to the batch, completed by what is known of its `caller`, or records its refusal.
    ///
    /// Errors: the draft was not added, because its caller has to be found first.
    pub fn take(
        &mut self,
        (number, mut draft): NumberedDraft<'_>,
        caller: Option<&CallerFacts>,
    ) -> Result<(), CallerNeeded> {
        let session = match &mut draft {
            Ok(draft) if draft.needs_caller() => draft.complete(caller.ok_or(CallerNeeded)?),
            Ok(_) | Err(_) => None,
        };
        let encoded = draft.and_then(|draft| {
            let event = draft.as_event();
            let added = match draft.id_origin {
                IdOrigin::Producer => self.records.event(&event),
                IdOrigin::Daemon => self.records.event_with_new_id(&event),
            };
            added.map_err(|error| FieldError::whole(error.to_string()))?;
            Ok(self.batch.ids.add(event.id))
        });
        let taken = encoded.map(|id| EncodedDraft { id, session }).map_err(|error| (number, error));
        self.batch.taken.push(taken);
        Ok(())
    }

    /// Makes room for events of `bytes` bytes together.
    pub fn reserve(&mut self, bytes: usize) {
        self.records.reserve(bytes);
    }

    /// Number of taken and refused drafts.
    pub fn len(&self) -> usize {
        self.batch.taken.len()
    }

    /// Whether there are no drafts.
    pub fn is_empty(&self) -> bool {
        self.batch.taken.is_empty()
    }

    /// Empties the intake: returns the records to append, if any, and their drafts.
    pub fn drain(&mut self) -> (Option<Records>, TakenBatch) {
        let Self { records, batch } = mem::take(self);
        (Some(records).filter(|records| !records.is_empty()), batch)
    }
}

impl TakenBatch {
    /// Number of taken and refused drafts.
    pub fn len(&self) -> usize {
        self.taken.len()
    }

    /// Whether there are no drafts.
    pub fn is_empty(&self) -> bool {
        self.taken.is_empty()
    }

    /// The verdicts for `appended`; `None` when there was nothing to append.
    pub fn settle(self, appended: Option<&Appended>) -> Verdicts {
        let level = appended.map(|appended| appended.level);
        let mut outcomes = appended.into_iter().flat_map(Appended::outcomes);
        let settle = |taken: Taken| match taken {
            Ok(draft) => outcomes.next().map(|outcome| Ok((outcome, draft))),
            Err(refusal) => Some(Err(refusal)),
        };
        Verdicts { settled: self.taken.into_iter().filter_map(settle).collect(), ids: self.ids, level }
    }
}

/// The verdicts of one batch, in its order.
#[derive(Debug)]
pub struct Verdicts {
    settled: Vec<Result<(Outcome, EncodedDraft), Refusal>>,
    ids: Ids,
    level: Option<Level>,
}

/// The outcome of one draft.
#[derive(Debug)]
pub enum Verdict<'a> {
    /// An event has its id.
    Published {
        /// Its position, or that of the original event.
        outcome: Outcome,
        /// Its id.
        id: &'a str,
        /// The session to which the daemon addressed it.
        session: Option<Arc<str>>,
    },
    /// Nothing was published.
    Refused {
        /// Why.
        error: FieldError,
    },
}

/// The verdicts of one batch as counts.
#[derive(Debug, Default)]
pub struct Counts {
    /// Published and new.
    pub accepted: u64,
    /// Published before.
    pub duplicates: u64,
    /// Refused.
    pub refused: u64,
    /// The first position among the new ones.
    pub first: Option<Seq>,
    /// The last position among the new ones.
    pub last: Option<Seq>,
    /// The first refusals, each with its number in the body.
    pub errors: Vec<(u64, FieldError)>,
}

impl Verdicts {
    /// The durability of the published events; `None` when there are none.
    pub fn level(&self) -> Option<Level> {
        self.level
    }

    /// Numbers of the published and of the refused drafts.
    pub fn split(&self) -> (u64, u64) {
        let refused = self.settled.iter().filter(|settled| settled.is_err()).count();
        ((self.settled.len() - refused) as u64, refused as u64)
    }

    /// The error, if there is one draft and it was refused.
    pub fn into_lone_refusal(mut self) -> Result<Self, FieldError> {
        match self.settled.pop() {
            Some(Err((_, error))) if self.settled.is_empty() => Err(error),
            last => {
                self.settled.extend(last);
                Ok(self)
            }
        }
    }

    /// Counts the verdicts, and keeps at most `errors_max` errors.
    pub fn into_counts(self, errors_max: usize) -> Counts {
        let mut counts = Counts::default();
        for settled in self.settled {
            match settled {
                Ok((Outcome::Duplicate(_), _)) => counts.duplicates += 1,
                Ok((Outcome::Appended(seq), _)) => {
                    counts.accepted += 1;
                    counts.first = counts.first.or(Some(seq));
                    counts.last = Some(seq);
                }
                Err(refusal) => {
                    counts.refused += 1;
                    if counts.errors.len() < errors_max {
                        counts.errors.push(refusal);
                    }
                }
            }
        }
        counts
    }

    /// Converts each verdict.
    pub fn into_each<T>(self, mut convert: impl FnMut(Verdict<'_>) -> T) -> Vec<T> {
        let Self { settled, ids, level: _ } = self;
        let convert = |settled| match settled {
            Ok((outcome, EncodedDraft { id, session })) => {
                convert(Verdict::Published { outcome, id: ids.get(id), session })
            }
            Err((_, error)) => convert(Verdict::Refused { error }),
        };
        settled.into_iter().map(convert).collect()
    }
}

/// The source of the events of `aside run`.
const RUN: &str = "run";
/// The begin of the types of events about tasks.
const TASK: &str = "task.";
/// The type of the start of a task.
const STARTED: &str = "task.started";

/// What is known of the process that publishes a body.
#[derive(Debug, Clone)]
pub struct CallerFacts {
    /// The sessions that it belongs to.
    pub sessions: Vec<SessionId>,
    /// Whether it runs below a client that tells its agent when a command that it runs ends.
    pub reports_ends: bool,
    /// Whether it wants its tasks addressed to the session below whose client it runs.
    pub wants_scope: bool,
}

impl Draft<'_> {
    /// Whether it depends on its publisher: a local event of a task or a message. Most do not.
    fn needs_caller(&self) -> bool {
        let is_task = self.source == RUN && self.event_type.starts_with(TASK);
        self.provenance == Provenance::Local && (is_task || self.event_type == MESSAGE_TYPE)
    }

    /// Completes an event that needs its caller. Returns the session to which this addressed it.
    pub(super) fn complete(&mut self, caller: &CallerFacts) -> Option<Arc<str>> {
        if self.event_type == MESSAGE_TYPE {
            if !caller.sessions.is_empty() {
                self.provenance = Provenance::Agent;
            }
            return None;
        }
        // A process with several sessions does not tell which of them started the task.
        let [session] = &caller.sessions[..] else { return None };
        let is_free = caller.wants_scope && self.session.is_none();
        let addressed = is_free.then(|| Arc::from(session.as_str()));
        if addressed.is_some() {
            self.address_to(session.as_str());
        }
        let is_its = self.session.as_deref() == Some(session.as_str());
        if is_its && caller.reports_ends && self.event_type != STARTED {
            self.mark_as_announced();
        }
        addressed
    }

    /// Marks its payload as something that a client tells its agent itself.
    fn mark_as_announced(&mut self) {
        let Some(fields) = self.payload.trim_end().strip_suffix('}') else { return };
        let separator = if fields.trim_end().ends_with('{') { "" } else { "," };
        self.payload = Cow::Owned(format!("{fields}{separator}\"announced\":true}}"));
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::*;
    use crate::{
        draft::Defaults,
        event::{Severity, catalogue::OwnSeverities},
    };

    const NOW: Timestamp = Timestamp::from_millis(1);

    /// The scope, the provenance and the payload of an event of a caller, and the session to which
    /// it was addressed.
    fn after(json: &str, sessions: &[&str], reports_ends: bool) -> String {
        after_of(json, sessions, true, reports_ends)
    }

    fn after_of(json: &str, sessions: &[&str], wants_scope: bool, reports_ends: bool) -> String {
        let none = OwnSeverities::default();
        let defaults = Defaults::api(NOW, Provenance::Local, &none);
        let mut event = Draft::read(json.as_bytes(), &defaults, &mut || "e".to_owned()).expect("valid");
        let sessions = sessions.iter().map(|id| SessionId::new(id)).collect();
        let addressed = event.complete(&CallerFacts { sessions, reports_ends, wants_scope });
        let event = event.as_event();
        assert_eq!(event.severity, Severity::Info);
        let (session, addressed) = (event.session.unwrap_or("-"), addressed.as_deref().unwrap_or("-"));
        format!("{session} {addressed} {:?} {}", event.provenance, event.payload)
    }

    #[test]
    fn a_task_below_a_client_is_its_sessions() {
        let event = |event_type: &str, session: &str| {
            format!(
                r#"{{"type":"{event_type}","source":"run","severity":"info","workspace":"/w"{session},"payload":{{"task":"t"}}}}"#
            )
        };
        let (own, other) = (r#","session":"s1""#, r#","session":"s2""#);
        for (event_type, session, sessions, reports_ends, expected) in [
            ("task.started", "", &["s1"][..], true, r#"s1 s1 Local {"task":"t"}"#),
            ("task.failed", own, &["s1"], true, r#"s1 - Local {"task":"t","announced":true}"#),
            ("task.failed", "", &["s1"], true, r#"s1 s1 Local {"task":"t","announced":true}"#),
            ("task.failed", own, &["s1"], false, r#"s1 - Local {"task":"t"}"#),
            ("task.completed", own, &[], true, r#"s1 - Local {"task":"t"}"#),
            ("task.completed", other, &["s1"], true, r#"s2 - Local {"task":"t"}"#),
            ("task.started", "", &[], false, r#"- - Local {"task":"t"}"#),
            ("task.started", "", &["s1", "s2"], true, r#"- - Local {"task":"t"}"#),
        ] {
            let found = after(&event(event_type, session), sessions, reports_ends);
            assert_eq!(found, expected, "{event_type} {session} {sessions:?}");
        }
        let empty = r#"{"type":"task.failed","source":"run","severity":"info","payload":{}}"#;
        assert_eq!(after(empty, &["s1"], true), r#"s1 s1 Local {"announced":true}"#);
        assert_eq!(after_of(empty, &["s1"], false, true), "- - Local {}", "it has a scope of its own");
    }

    #[test]
    fn a_message_below_a_client_is_its_agents() {
        let message = r#"{"type":"message.agent.sent","source":"cli","severity":"info","session":"s2","payload":{"text":"a"}}"#;
        assert_eq!(after(message, &["s1"], true), r#"s2 - Agent {"text":"a"}"#);
        assert_eq!(after(message, &["s1", "s3"], false), r#"s2 - Agent {"text":"a"}"#);
        assert_eq!(after(message, &[], true), r#"s2 - Local {"text":"a"}"#);
    }
}
