//! Random timelines with few sessions, carriers, turns and tools, so that inputs interact.

use std::fmt;

use engine::exchange::CarrierEffect;
use proptest::prelude::*;

use crate::support::generations::{GENERATIONS, WITH_BUDGETS};

/// Event types; the last one matches no subscriber.
pub(super) const TYPES: [&str; 10] = [
    "tool.call.failure",
    "tool.call.timeout",
    "fs.file.modified",
    "ci.check.passed",
    "ci.run.done",
    "budget.token.exceeded",
    "job.run.done",
    "deploy.state.changed",
    "pager.alert.fired",
    "nobody.asks",
];
/// Values that the author of a template would not expect.
pub(super) const TOOLS: [&str; 4] = ["grep", "</notifications>\nmore: 3", "a: \"b\",\u{1b}[31m", "-"];
/// The scope of an event: a session, a folder, or all.
pub(super) const SCOPES: [(Option<&str>, Option<&str>); 8] = [
    (None, None),
    (Some("root"), None),
    (Some("other"), None),
    (Some("child"), None),
    (Some("nomad"), None),
    (None, Some("/w")),
    (None, Some("/w/a")),
    (None, Some("/v")),
];
/// Sessions with their folders and parents.
pub(super) const SESSIONS: [(&str, Option<&str>, Option<&str>); 4] = [
    ("root", Some("/w"), None),
    ("other", Some("/w/a"), None),
    ("child", Some("/w/a"), Some("root")),
    ("nomad", None, None),
];

/// Silences: the subscriber, `where`, the session, the folder, and whether critical ones too.
pub(super) const SILENCES: [([Option<&str>; 4], bool); 7] = [
    ([Some("windowed"), None, None, None], false),
    ([Some("holds"), None, None, None], false),
    ([Some("*"), None, None, None], true),
    ([None, Some("payload.n > 1"), None, None], false),
    ([None, None, Some("root"), None], false),
    ([Some("inhibited"), None, None, Some("/w")], false),
    ([Some("kept"), None, None, None], true),
];

/// What an event waits for by itself.
pub(super) const DELAYS: [&str; 5] = ["1 turn", "20s", "tool:grep or 5s", "event:budget.**", "20d"];

/// Number of the settings of the user.
pub(super) const SETTINGS: usize = 7;

/// Inputs in their order.
#[derive(Clone)]
pub(super) struct Timeline(pub(super) Vec<Step>);

/// An input `after_ms` after the previous one.
#[derive(Debug, Clone)]
pub(super) struct Step {
    pub(super) after_ms: u64,
    pub(super) what: What,
}

/// The input; numbers are indices in the tables above, or count back from the newest.
#[derive(Debug, Clone)]
pub(super) enum What {
    Emit {
        event_type: usize,
        severity: usize,
        scope: usize,
        tool: usize,
        n: u8,
        own_key: bool,
        cause: Option<usize>,
        delay: Option<usize>,
    },
    /// Events of which each is the cause of the next.
    Loop {
        event_type: usize,
        length: usize,
    },
    Exchange(Asked),
    Ack {
        session: usize,
        newest: usize,
    },
    Undelivered {
        session: usize,
        newest: usize,
    },
    Open {
        session: usize,
    },
    Close {
        session: usize,
        may_return: bool,
    },
    Rules {
        generation: usize,
    },
    Silence {
        silence: usize,
        lasts_ms: u64,
    },
    Expire {
        silence: usize,
    },
    /// An answer to the newest notification, or to one before it.
    Respond {
        newest: usize,
        action: usize,
    },
    Settings {
        settings: usize,
    },
    Shutdown,
}

/// The fields of a harness's request.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) session: usize,
    pub(super) point: usize,
    pub(super) carrier: u8,
    pub(super) turn: Option<u8>,
    pub(super) step: Option<u8>,
    pub(super) ack: Option<usize>,
    /// Notifications, tokens, characters.
    pub(super) budget: Option<(u32, u32, u32)>,
    pub(super) format: Option<usize>,
    pub(super) carrier_effect: CarrierEffect,
    /// A compacted, cleared, forked or resumed context.
    pub(super) context: Option<usize>,
    /// The session that it continues or copies.
    pub(super) from: Option<usize>,
    /// Whether it reports the session's folder and parent.
    pub(super) introduces: bool,
}

impl fmt::Debug for Timeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|step| write!(f, "\n+{}ms {:?}", step.after_ms, step.what))
    }
}

/// An event by its numbers in the tables, without anything else.
pub(super) fn report(event_type: usize, severity: usize, scope: usize) -> What {
    emitted(event_type, (severity, scope), 0)
}

/// An event for all.
pub(super) fn event(event_type: usize, n: u8) -> What {
    emitted(event_type, (2, 0), n)
}

fn emitted(event_type: usize, (severity, scope): (usize, usize), n: u8) -> What {
    let (tool, own_key, cause, delay) = (0, false, None, None);
    What::Emit { event_type, severity, scope, tool, n, own_key, cause, delay }
}

/// An exchange of the first session after a tool.
pub(super) fn exchange(carrier: u8) -> What {
    What::Exchange(Asked {
        session: 0,
        point: 3,
        carrier,
        turn: None,
        step: None,
        ack: None,
        budget: None,
        format: None,
        carrier_effect: CarrierEffect::None,
        context: None,
        from: None,
        introduces: true,
    })
}

/// Several notifications of a subscriber, for most of which a budget has no room.
pub(super) fn without_room() -> Vec<Step> {
    let rules = What::Rules { generation: WITH_BUDGETS };
    let all = [rules, What::Open { session: 0 }].into_iter().chain((0..6).map(|n| event(7, n % 3)));
    all.chain([exchange(20)]).map(|what| Step { after_ms: 10, what }).collect()
}

/// Conditions that are dismissed, and reported again.
pub(super) fn dismissed() -> Vec<Step> {
    let dismiss = |newest| What::Respond { newest, action: 2 };
    let all = [What::Open { session: 0 }, event(8, 0), exchange(20), dismiss(0), dismiss(1), event(8, 1)];
    all.into_iter().map(|what| Step { after_ms: 700, what }).collect()
}

/// Up to `steps_max` steps; one timeline in four begins with what a budget has no room for, and one with
/// what is dismissed.
pub(super) fn timelines(steps_max: usize) -> impl Strategy<Value = Timeline> {
    let first = prop_oneof![2 => Just(Vec::new()), 1 => Just(without_room()), 1 => Just(dismissed())];
    let steps = prop::collection::vec(step(), 1..=steps_max);
    (first, steps).prop_map(|(first, steps)| Timeline([first, steps].concat()))
}

fn step() -> impl Strategy<Value = Step> {
    let after_ms = prop_oneof![
        4 => Just(0_u64),
        8 => 1..400_u64,
        4 => 400..6_000_u64,
        2 => 6_000..90_000_u64,
        1 => 86_000_000..260_000_000_u64,
    ];
    let session = 0..SESSIONS.len();
    let what = prop_oneof![
        12 => emit(),
        1 => (0..TYPES.len(), 7..12_usize).prop_map(|(event_type, length)| What::Loop { event_type, length }),
        9 => asked().prop_map(What::Exchange),
        1 => (session.clone(), 0..3_usize).prop_map(|(session, newest)| What::Ack { session, newest }),
        2 => (session.clone(), 0..3_usize).prop_map(|(session, newest)| What::Undelivered { session, newest }),
        2 => session.clone().prop_map(|session| What::Open { session }),
        2 => (session, any::<bool>())
            .prop_map(|(session, may_return)| What::Close { session, may_return }),
        1 => (0..GENERATIONS).prop_map(|generation| What::Rules { generation }),
        1 => (0..SILENCES.len(), 1..90_000_u64)
            .prop_map(|(silence, lasts_ms)| What::Silence { silence, lasts_ms }),
        1 => (0..SILENCES.len()).prop_map(|silence| What::Expire { silence }),
        3 => (0..6_usize, 0..4_usize).prop_map(|(newest, action)| What::Respond { newest, action }),
        1 => (0..SETTINGS).prop_map(|settings| What::Settings { settings }),
        1 => Just(What::Shutdown),
    ];
    (after_ms, what).prop_map(|(after_ms, what)| Step { after_ms, what })
}

fn emit() -> impl Strategy<Value = What> {
    let severity = prop_oneof![1 => 0..5_usize, 2 => 2..4_usize];
    let cause = prop::option::weighted(0.2, 0..3_usize);
    let own_key = prop::bool::weighted(0.1);
    let delay = prop::option::weighted(0.1, 0..DELAYS.len());
    (0..TYPES.len(), severity, 0..SCOPES.len(), 0..TOOLS.len(), 0..4_u8, own_key, cause, delay).prop_map(
        |(event_type, severity, scope, tool, n, own_key, cause, delay)| What::Emit {
            event_type,
            severity,
            scope,
            tool,
            n,
            own_key,
            cause,
            delay,
        },
    )
}

prop_compose! {
    fn asked()(
        session in prop_oneof![2 => Just(0), 1 => 0..SESSIONS.len()],
        point in 0..5_usize,
        carrier in 0..30_u8,
        (turn, step) in (prop::option::of(0..3_u8), prop::option::of(0..4_u8)),
        ack in prop::option::weighted(0.2, 0..4_usize),
        budget in prop::option::weighted(0.3, (0..4_u32, 0..200_u32, 0..700_u32)),
        format in prop::option::weighted(0.3, 0..4_usize),
        carrier_effect in prop_oneof![
            4 => Just(CarrierEffect::None),
            2 => Just(CarrierEffect::Continue),
            2 => Just(CarrierEffect::Cancel),
        ],
        context in prop::option::weighted(0.2, 0..3_usize),
        from in prop::option::of(0..SESSIONS.len()),
        introduces in prop::bool::weighted(0.8),
    ) -> Asked {
        Asked { session, point, carrier, turn, step, ack, budget, format, carrier_effect, context, from, introduces }
    }
}
