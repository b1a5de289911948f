//! A subscriber and its events, for tests.

use std::{
    num::NonZeroU32,
    sync::{Arc, LazyLock},
    time::Duration,
};

use journal::time::{Timestamp, hours::Hours, zone::Zone};

use crate::{
    budget::BudgetSettings,
    event::{Event, FieldPath, Payload, Scope, SessionId, Severity},
    notification::{
        Activation, ActiveFor, Audience, InjectionPoint, Interrupt, Priority, RegionUse, SubscriberId, Tokens,
    },
    pipeline::{
        Resources,
        render::{Layout, Templates},
        rule::{Activity, BatchMode, Batching, DedupeRule, Keep, OrderRule, OutputRule, Subscriber},
        silence::Silences,
    },
};

/// Batches of ten rows or two seconds; a repeat has the same tool within five seconds.
pub(in crate::pipeline) fn rule() -> Subscriber {
    Subscriber {
        id: SubscriberId::new("tool_failure"),
        name: "Tool failures".into(),
        description: String::new(),
        version: None,
        activity: Activity::Enabled,
        types: vec!["tool.call.*".parse().expect("valid pattern")],
        sources: Vec::new(),
        severity_when: Vec::new(),
        severity_min: Severity::Warning,
        condition: None,
        batching: Batching {
            window: Duration::from_millis(2_000),
            max_size: NonZeroU32::new(10).expect("not zero"),
            mode: BatchMode::Window,
            group_by: Vec::new(),
        },
        dedupe: Some(DedupeRule {
            key: vec![field("type"), field("payload.tool")],
            ignore: Vec::new(),
            window: Duration::from_millis(5_000),
            keep: Keep::First,
        }),
        threshold: None,
        rate: None,
        tokens: None,
        close_when: None,
        open_when: None,
        ttl: Some(Duration::from_secs(60)),
        quiet: Hours::default(),
        absence: None,
        retain: None,
        repeat: None,
        deliver_after: Vec::new(),
        supersede_key: Vec::new(),
        resolve: None,
        inhibit: Vec::new(),
        order: OrderRule::default(),
        output: OutputRule {
            requires_response: false,
            region: RegionUse::Also,
            priority: Priority::High,
            priority_by: None,
            inject_at: InjectionPoint::AfterTool,
            activation: Activation::Passive,
            active_for: ActiveFor::default(),
            interrupt: Interrupt::InjectAndContinue,
            escalate_at: None,
            layout: Layout::Template("templates/tool_failure.toon.j2".into()),
            sentence: None,
            max_tokens: Tokens(200),
            audience: Audience::Agent,
        },
        wake: Arc::default(),
        later: Vec::new(),
        territory: None,
        in_folders: Vec::new(),
    }
}

/// No templates, no silences, and UTC.
pub(in crate::pipeline) fn resources() -> Resources<'static> {
    static TEMPLATES: LazyLock<Templates> = LazyLock::new(Templates::new);
    static ZONE: LazyLock<Zone> = LazyLock::new(Zone::default);
    static SILENCES: LazyLock<Silences> = LazyLock::new(Silences::default);
    static BUDGET: LazyLock<BudgetSettings> = LazyLock::new(BudgetSettings::default);
    Resources { templates: &TEMPLATES, zone: &ZONE, silences: &SILENCES, budget: &BUDGET, muted: None }
}

/// A failed tool call for everybody, with these fields in its payload.
pub(in crate::pipeline) fn event(fields: &str) -> Arc<Event> {
    Arc::new(Event {
        id: "e".into(),
        event_type: "tool.call.failure".parse().expect("valid type"),
        source: "tool_executor".into(),
        provenance: crate::event::Provenance::Harness,
        severity: Severity::Warning,
        timestamp: Timestamp::ZERO,
        payload: Payload::parse(&format!("{{{fields}}}")).expect("valid payload"),
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    })
}

pub(in crate::pipeline) fn set_scope(event: &mut Event, scope: &Scope) {
    match scope {
        Scope::Session(id) => event.session = Some(id.clone()),
        Scope::Workspace(folder) => event.workspace = Some(Arc::clone(folder)),
        Scope::All | Scope::Part(_) => {}
    }
}

pub(in crate::pipeline) fn session(id: &str) -> Scope {
    Scope::Session(SessionId::new(id))
}

pub(in crate::pipeline) fn field(path: &str) -> FieldPath {
    FieldPath::parse(path).expect("valid path")
}

pub(in crate::pipeline) fn at(ms: u64) -> Timestamp {
    Timestamp::from_millis(ms)
}
