//! The event types that only aside makes. Requests and configurations cannot name them.
//!
//! Such an event moves aside's own state, or reports it: the end of a watch, the answer to a
//! question, a failed subscriber. This table is the only list of them. Every entry point of events
//! from outside asks [`maker_of`], and the folds over these events accept
//! [`Provenance::Own`](crate::event::Provenance::Own) only.

use crate::event::EventRef;

/// Types of the events for the end of a push's checks. Their payload has a `summary`, and the
/// `branch`.
const CHECKS_ENDED: [&str; 3] = ["ci.run.completed", "ci.run.failed", "ci.follow.ended"];

/// Whether the event is the end of a push's checks.
pub fn ends_checks(event: &EventRef<'_>) -> bool {
    event.is_own() && CHECKS_ENDED.contains(&event.event_type)
}

/// A type, or a group of types, that only aside makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OwnType {
    /// A type; with a final `**`, every type below it.
    pub pattern: &'static str,
    /// The part of aside that makes it, as a subject of a sentence.
    pub maker: &'static str,
}

const fn own(pattern: &'static str, maker: &'static str) -> OwnType {
    OwnType { pattern, maker }
}

/// Every reserved type, sorted by pattern.
pub const OWN_TYPES: [OwnType; 23] = [
    own("agent.pause.ended", "the probe `time`"),
    own("agent.session.**", "the adapter of a harness"),
    own("ci.answered", "the source `ci`"),
    own("ci.follow.ended", "the source `ci`"),
    own("ci.followed", "the source `ci`"),
    own("config.reload.**", "a reload"),
    own("probe.noted", "a probe"),
    own("reminder.due", "a watch (`POST /v1/watches`)"),
    own("session.limit.reached", "the daemon"),
    own("sink.failed", "a sink"),
    own("sink.sent", "a sink"),
    own("sink.waits", "a sink"),
    own("source.**", "the daemon"),
    own("subscriber.**", "the daemon"),
    own("user.answer", "`POST /v1/questions/ID`"),
    own("user.answer.**", "`POST /v1/questions/ID/taken`"),
    own("user.answered", "the end of a question"),
    own("user.answered.**", "the end of a question"),
    own("user.notice", "`POST /v1/notify`"),
    own("user.notice.**", "`POST /v1/notify`"),
    own("user.question", "`POST /v1/questions`"),
    own("user.question.**", "the end of a question"),
    own("watch.**", "a watch (`POST /v1/watches`)"),
];

impl OwnType {
    /// Whether the pattern matches `event_type`.
    pub fn matches(&self, event_type: &str) -> bool {
        match self.pattern.strip_suffix("**") {
            Some(above) => event_type.starts_with(above),
            None => event_type == self.pattern,
        }
    }
}

/// A bit for each letter that begins a pattern, the lowest for `a`.
const FIRST_LETTERS: u32 = first_letters(&OWN_TYPES);

const fn first_letters(types: &[OwnType]) -> u32 {
    match types {
        [first, others @ ..] => letter(first.pattern) | first_letters(others),
        [] => 0,
    }
}

/// The bit of the first letter of a type; none for another character.
const fn letter(event_type: &str) -> u32 {
    match event_type.as_bytes() {
        [first @ b'a'..=b'z', ..] => 1 << (*first - b'a'),
        _ => 0,
    }
}

/// The part of aside that makes events of this type; `None` if other producers may.
///
/// Neither allocates nor searches for most types: it is called for each published event.
pub fn maker_of(event_type: &str) -> Option<&'static str> {
    if FIRST_LETTERS & letter(event_type) == 0 {
        return None;
    }
    OWN_TYPES.iter().find(|own| own.matches(event_type)).map(|own| own.maker)
}

/// The error for a type that only aside makes; `None` if other producers may make it.
pub fn reserved(event_type: &str) -> Option<String> {
    maker_of(event_type).map(|maker| format!("`{event_type}` is reserved: only {maker} makes it"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{EventType, catalogue};

    #[test]
    fn table_is_sorted_and_each_row_has_events() {
        assert!(OWN_TYPES.is_sorted_by(|one, other| one.pattern < other.pattern), "{OWN_TYPES:?}");
        for own in OWN_TYPES {
            let bare = own.pattern.trim_end_matches(".**");
            let is_known = catalogue::types().any(|entry| entry.event_type.as_str().starts_with(bare));
            assert!(is_known && !own.maker.is_empty(), "{}", own.pattern);
        }
    }

    #[test]
    fn a_pattern_matches_itself_or_what_is_below() {
        for (event_type, is_own) in [
            ("watch.met", true),
            ("watch.a.b", true),
            ("watches.met", false),
            ("user.answer", true),
            ("user.answer.taken", true),
            ("user.answers", false),
            ("user.command.ended", false),
            ("agent.session.end", true),
            ("agent.turn.end", false),
            ("config.changed", false),
            ("config.reload", false),
            ("config.reload.completed", true),
            ("ci.run.completed", false),
            ("reminder.due", true),
        ] {
            assert!(EventType::check(event_type).is_ok());
            assert_eq!(maker_of(event_type).is_some(), is_own, "{event_type}");
        }
    }

    /// Types that only the daemon makes today, but which move none of its state: reports about the
    /// machine or the agent that any producer may make.
    const OPEN: &str = "
        agent.loop.detected budget.token.reset budget.token.warning disk.space.low disk.space.ok
        fs.file.created fs.file.deleted fs.file.modified fs.file.renamed fs.known.deleted
        fs.known.folder_deleted fs.known.modified fs.known.renamed fs.known.restored fs.write.held git.head.moved
        git.operation.ended git.operation.started git.stash.changed log.line.matched
        mcp.server.disconnected mcp.server.reconnected session.other.present
        timer.fired tool.handle.stopped tool.port.closed tool.port.opened";
    /// Producers outside the daemon, or for a client outside of it.
    const OUTSIDE: [&str; 4] = ["claude-code", "run", "shell", "webhooks"];

    #[test]
    fn each_type_of_daemon_is_reserved_or_open() {
        let open: Vec<&str> = OPEN.split_whitespace().collect();
        for entry in catalogue::types() {
            let mut makers = entry.producers.iter().map(String::as_str);
            let is_of_daemon = !entry.producers.is_empty() && makers.all(|maker| !OUTSIDE.contains(&maker));
            let event_type = entry.event_type.as_str();
            if is_of_daemon {
                assert!(open.contains(&event_type) != maker_of(event_type).is_some(), "{event_type}");
            }
        }
    }
}
