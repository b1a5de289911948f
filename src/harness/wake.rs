//! Selects the wake route of a session whose harness does not start an exchange automatically, and
//! the time of each attempt. The message socket of a client is one of the routes.
//!
//! A wake claims no notification: the exchange of the turn that it starts delivers them. So an
//! attempt can be lost, and is repeated by the next route if no turn starts.

use std::{fmt, path::PathBuf, time::Duration};

use engine::{event::SessionId, session::WakeKind};
use journal::time::Timestamp;
use serde_json::Value;
use strum::IntoStaticStr;

use crate::harness::Headers;

/// A wake route of a session; the first ones have precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum WakeRoute {
    /// A process of the session that follows its queue, such as `aside attach`. It prints a line,
    /// or makes the exchange itself.
    Follower,
    /// The client's own message socket, to which the daemon writes a line.
    MessageSocket,
}

engine::words::impl_as_str!(WakeRoute);

/// How long after each attempt the turn's first hook may come; the number is that of attempts, too.
///
/// Source: measured with client 2.1.332: a hook follows a follower's line within 0.2 to 0.7 s, on a
/// busy machine within 3 s. A client that begins a turn later gets a second line in it, which is
/// harmless.
const PAUSES: [Duration; 4] =
    [Duration::from_secs(8), Duration::from_secs(16), Duration::from_secs(32), Duration::from_secs(64)];
/// How soon an attempt is repeated that the client could not take yet.
const NOT_YET: Duration = Duration::from_millis(500);
/// Most such repetitions of one attempt.
const NOT_YET_MAX: u32 = 20;

/// The next step for a session that requests a wake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Wake it by this route now.
    Try(WakeRoute),
    /// Ask again then: an earlier attempt may still have its effect.
    WaitUntil(Timestamp),
    /// Nothing; the session is reached by its next hook.
    LeaveToHook,
}

/// The attempts to wake one session, until its turn starts or nothing requests a wake any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Attempts {
    made: usize,
    /// Until when the last one may still have its effect.
    open_until: Option<Timestamp>,
    not_yet: u32,
    /// The number of notifications that requested the wake at the last attempt.
    causes: u32,
}

impl Attempts {
    /// The next step, with the routes that the session has besides its hooks, while `causes`
    /// notifications request a wake of `kind`.
    ///
    /// Shape: during a turn it is the next hook. A client shows a pushed message at the next
    /// boundary of the turn, where it runs a hook too; the hook costs less, and before a tool it
    /// can defer the call. For an idle session a follower has precedence, because its line is shown
    /// as such; a message is shown as one of another agent. Each further attempt uses the next
    /// route. After the last one, each further notification is worth one more.
    ///
    /// Source: measured with client 2.1.329: a pushed text arrives at the next tool boundary,
    /// wrapped in some 160 tokens.
    pub fn next(&self, kind: WakeKind, causes: u32, routes: &[WakeRoute], now: Timestamp) -> Step {
        let is_used_up = self.made >= PAUSES.len() && causes <= self.causes;
        if kind != WakeKind::StartTurn || is_used_up || self.not_yet > NOT_YET_MAX {
            return Step::LeaveToHook;
        }
        let mut routes = routes.to_vec();
        routes.sort_unstable();
        let at = self.made.checked_rem(routes.len()).unwrap_or_default();
        match (routes.get(at), self.open_until) {
            (None, _) => Step::LeaveToHook,
            (Some(_), Some(until)) if now < until => Step::WaitUntil(until),
            (Some(route), _) => Step::Try(*route),
        }
    }

    /// Notes an attempt, made while `causes` notifications request the wake.
    pub fn note_made(&mut self, causes: u32, now: Timestamp) {
        let pause = PAUSES.get(self.made).or(PAUSES.last()).copied().unwrap_or_default();
        self.made = (self.made + 1).min(PAUSES.len());
        self.open_until = Some(now + pause);
        self.causes = causes;
    }

    /// Notes that the last attempt can have no effect: its route is gone.
    pub fn note_failed(&mut self) {
        self.open_until = None;
    }

    /// Notes that the last attempt was not made, because the client could not take it yet.
    pub fn note_not_yet(&mut self, now: Timestamp) {
        self.made = self.made.saturating_sub(1);
        self.not_yet += 1;
        self.open_until = Some(now + NOT_YET);
    }
}

/// The message sockets of a harness's clients.
#[derive(Debug)]
pub struct MessageSockets {
    /// Finds the session's socket in the headers of a hook call.
    pub find: fn(&SessionId, Headers<'_>) -> Option<MessageSocket>,
    /// The user's setting about messages of others, in the client's settings; `None` if it is not
    /// set, so that the session's mode decides.
    pub inbound: fn(&Value) -> Option<Inbound>,
    /// For users: when a client without a follower is not woken.
    pub note: &'static str,
}

/// What a client does with a message of a process that it did not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inbound {
    /// It begins a turn with it.
    Accepts,
    /// It keeps it from its model.
    Holds,
}

/// The address of a message socket, and its format.
#[derive(Clone)]
pub struct MessageSocket {
    /// An absolute path.
    pub path: PathBuf,
    pub(super) token: Option<String>,
    /// Whether the client may be about to exit while no turn runs. Then it is woken only when its
    /// own file shows that it waits.
    pub may_exit: bool,
    /// Formats a sentence for the client, with the token.
    pub(super) write: fn(Option<&str>, &str) -> String,
}

impl MessageSocket {
    /// The bytes that deliver `sentence` over the socket.
    pub fn message(&self, sentence: &str) -> String {
        (self.write)(self.token.as_deref(), sentence)
    }
}

#[cfg(test)]
impl MessageSocket {
    /// A socket at `path`, to which a sentence is written as it is.
    pub(crate) fn at(path: &std::path::Path) -> Self {
        Self { path: path.to_owned(), token: None, may_exit: false, write: |_, sentence| sentence.to_owned() }
    }
}

impl PartialEq for MessageSocket {
    /// A socket belongs to one client, and so has one format.
    fn eq(&self, other: &Self) -> bool {
        (&self.path, &self.token) == (&other.path, &other.token)
    }
}

impl Eq for MessageSocket {}

impl fmt::Debug for MessageSocket {
    /// Omits the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use WakeKind::{CancelAndRestart, InjectAndContinue, StartTurn};
    use WakeRoute::{Follower, MessageSocket};

    const NOW: Timestamp = Timestamp::from_millis(1_000);

    #[test]
    fn only_an_idle_session_uses_a_wake_route() {
        let (none, one, both): (&[_], &[_], &[_]) = (&[], &[MessageSocket], &[MessageSocket, Follower]);
        for (routes, kind, expected) in [
            (&[Follower][..], StartTurn, Step::Try(Follower)),
            (both, StartTurn, Step::Try(Follower)),
            (one, StartTurn, Step::Try(MessageSocket)),
            (none, StartTurn, Step::LeaveToHook),
            (both, InjectAndContinue, Step::LeaveToHook),
            (both, CancelAndRestart, Step::LeaveToHook),
        ] {
            assert_eq!(Attempts::default().next(kind, 1, routes, NOW), expected, "{routes:?} {kind:?}");
        }
    }

    /// The attempts that are made without an effect: the seconds since the first one, and routes.
    fn made(attempts: &mut Attempts, causes: u32, routes: &[WakeRoute]) -> Vec<(u64, WakeRoute)> {
        let (mut now, mut made) = (NOW, Vec::new());
        loop {
            match attempts.next(StartTurn, causes, routes, now) {
                Step::Try(route) => {
                    attempts.note_made(causes, now);
                    made.push((now.since(NOW).as_secs(), route));
                }
                Step::WaitUntil(until) => now = until,
                Step::LeaveToHook => return made,
            }
        }
    }

    #[test]
    fn wake_without_effect_is_repeated_a_few_times() {
        let mut attempts = Attempts::default();
        let all = made(&mut attempts, 1, &[Follower, MessageSocket]);
        assert_eq!(all, [(0, Follower), (8, MessageSocket), (24, Follower), (56, MessageSocket)]);
        assert_eq!(made(&mut attempts, 1, &[Follower]), []);
        // A further notification is worth one more.
        let later = NOW + Duration::from_secs(1_000);
        assert_eq!(attempts.next(StartTurn, 2, &[Follower], later), Step::Try(Follower));
        attempts.note_made(2, later);
        assert_eq!(attempts.next(StartTurn, 2, &[Follower], later), Step::LeaveToHook);
    }

    #[test]
    fn a_wake_on_its_way_is_not_repeated() {
        let mut attempts = Attempts::default();
        attempts.note_made(1, NOW);
        let until = NOW + PAUSES[0];
        assert_eq!(attempts.next(StartTurn, 9, &[Follower], NOW), Step::WaitUntil(until));
        attempts.note_failed();
        assert_eq!(
            attempts.next(StartTurn, 9, &[Follower, MessageSocket], NOW),
            Step::Try(MessageSocket),
            "the other route"
        );
    }

    #[test]
    fn a_client_never_ready_waits_for_its_hook() {
        let (mut attempts, mut now, mut tries) = (Attempts::default(), NOW, 0);
        loop {
            match attempts.next(StartTurn, 1, &[MessageSocket], now) {
                Step::Try(_) => {
                    attempts.note_made(1, now);
                    attempts.note_not_yet(now);
                    tries += 1;
                }
                Step::WaitUntil(until) => now = until,
                Step::LeaveToHook => break,
            }
        }
        assert_eq!((tries, now.since(NOW)), (NOT_YET_MAX + 1, NOT_YET * NOT_YET_MAX));
    }
}
