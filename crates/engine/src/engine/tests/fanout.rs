//! Broadcasts to more sessions than get a notification directly.

use std::sync::Arc;

use journal::time::Timestamp;

use crate::{
    conversation::{DIRECT_MAX, LOG_MAX, TAKEN_PER_TICK},
    engine::{Engine, Input, Output, RequestId, Saved, WakeReason},
    event::{Scope, Seq, SessionId},
    exchange::{Decision, Exchange, Harness, Release},
    notification::{
        Audience, InjectionPoint, Nature, Notification, NotificationId, Priority, Resolution, State,
        StateKey, SubscriberId,
    },
    rules::CompiledRules,
};

const SESSIONS: usize = 200;
const BROADCASTS: usize = 30;

fn id(number: usize) -> SessionId {
    SessionId::new(&format!("s{number:03}"))
}

fn notification(number: usize, scope: Scope) -> Arc<Notification> {
    let created_at = Timestamp::from_millis(1);
    let example = Notification::example(&format!("n{number:02}"), Priority::High);
    Arc::new(Notification { scope, created_at, ..example })
}

/// An engine whose sessions have pending broadcasts: one in three for the folder of half of the
/// sessions, the others for all.
fn behind() -> Engine {
    let mut engine = Engine::new(Arc::new(CompiledRules::none()));
    for number in 0..SESSIONS {
        let workspace = if number % 2 == 0 { "/even" } else { "/odd" };
        let harness = Harness { workspace: Some(workspace.into()), ..Harness::default() };
        engine.handle(Input::SessionOpened { session: id(number), harness }, Timestamp::from_millis(1));
    }
    while engine.poll_output().is_some() {}
    for number in 0..BROADCASTS {
        let scope = if number % 3 == 0 { Scope::Workspace("/even".into()) } else { Scope::All };
        engine.sessions.broadcast(notification(number, scope));
    }
    engine
}

fn pending(engine: &Engine, number: usize) -> u32 {
    engine.sessions().view(&id(number)).expect("open").injector.pending().0
}

fn outputs(engine: &mut Engine) -> Vec<String> {
    std::iter::from_fn(|| engine.poll_output()).map(|output| format!("{output:?}")).collect()
}

fn restored(engine: &Engine) -> Engine {
    let bytes = engine.save(Seq(1), Timestamp::ZERO).expect("written");
    Engine::restored(Arc::clone(engine.rules()), Saved::read(&bytes).expect("just written"))
}

#[test]
fn asking_session_catches_up_first_others_in_slices() {
    let mut engine = behind();
    let now = Timestamp::from_millis(2);
    let exchange = Exchange::new(id(198), InjectionPoint::TurnStart, "c1").into();
    engine.handle(
        Input::Exchange { seq: Seq(9), request: RequestId(9), exchange, release: Release::Decide },
        now,
    );
    let pending_then = std::iter::from_fn(|| engine.poll_output()).find_map(|output| {
        let Output::Answer { answer, .. } = output else { return None };
        Some(answer.pending)
    });
    let all = u32::try_from(BROADCASTS).expect("small");
    assert_eq!(pending_then, Some(all - 10));
    assert_eq!((pending(&engine, 0), pending(&engine, 197)), (0, 0));
    assert!(engine.sessions().is_behind(&id(197)) && !engine.sessions().is_behind(&id(198)));
    let mut ticks = 0;
    while engine.poll_timeout().is_some_and(|(at, reason)| at == now && reason == WakeReason::Fanout) {
        engine.handle(Input::Tick, now);
        while engine.poll_output().is_some() {}
        ticks += 1;
    }
    assert!((6..=8).contains(&ticks), "{ticks} ticks of {TAKEN_PER_TICK}");
    let of_odd = all - all / 3;
    let found: Vec<u32> = (0..SESSIONS).map(|number| pending(&engine, number)).collect();
    let expected = |number| match number {
        198 => all - 10,
        even if even % 2 == 0 => all,
        _ => of_odd,
    };
    assert_eq!(found, (0..SESSIONS).map(expected).collect::<Vec<u32>>());
    assert!(engine.sessions().untaken() == 0);
}

/// Number of notifications that the outputs of the last input put into queues.
fn queued(engine: &mut Engine) -> usize {
    outputs(engine).iter().filter(|output| output.contains("Queued")).count()
}

#[test]
fn fanout_delays_exchanges_by_at_most_a_slice() {
    const EVENTS: usize = 200;
    let now = Timestamp::from_millis(2);
    for (sessions, scope) in [
        (DIRECT_MAX, Scope::All),
        (DIRECT_MAX + 1, Scope::All),
        (1_000, Scope::All),
        (1_000, Scope::Workspace("/shop/src".into())),
    ] {
        let mut engine = Engine::new(Arc::new(CompiledRules::none()));
        for number in 0..sessions {
            let harness = Harness { workspace: Some("/shop".into()), ..Harness::default() };
            engine.handle(Input::SessionOpened { session: id(number), harness }, now);
        }
        outputs(&mut engine);
        let mut most = 0;
        for number in 0..EVENTS {
            engine.route(notification(number, scope.clone()), Audience::Agent, Timestamp::ZERO);
            engine.handle(Input::SessionSeen { session: SessionId::new("unknown") }, now);
            most = most.max(queued(&mut engine));
        }
        assert!(most <= DIRECT_MAX, "{most} for an event to {sessions} sessions");
        let exchange = Exchange::new(id(sessions - 1), InjectionPoint::AfterTool, "c1").into();
        let (request, release) = (RequestId(9), Release::Decide);
        engine.handle(Input::Exchange { seq: Seq(9), request, exchange, release }, now);
        assert!(queued(&mut engine) <= EVENTS, "its own");
        let (mut ticks, mut most) = (0, 0);
        while engine.poll_timeout().is_some_and(|(_, reason)| reason == WakeReason::Fanout) {
            engine.handle(Input::Tick, now);
            most = most.max(queued(&mut engine));
            ticks += 1;
        }
        assert!(most <= TAKEN_PER_TICK + EVENTS, "{most} in a tick");
        assert!(ticks <= sessions * EVENTS / TAKEN_PER_TICK + 2, "{ticks} ticks");
        assert_eq!(pending(&engine, 0), u32::try_from(EVENTS).expect("small"));
    }
}

#[test]
fn a_restart_in_the_midst_changes_nothing() {
    let (mut whole, mut stopped) = (behind(), behind());
    for at in 2..12 {
        stopped = restored(&stopped);
        assert_eq!(stopped.poll_timeout(), whole.poll_timeout());
        for engine in [&mut whole, &mut stopped] {
            engine.handle(Input::Tick, Timestamp::from_millis(at));
        }
        assert_eq!(outputs(&mut whole), outputs(&mut stopped));
    }
    assert!(whole.sessions().untaken() == 0);
}

#[test]
fn a_session_gets_only_broadcasts_made_while_open() {
    let mut engine = behind();
    let now = Timestamp::from_millis(2);
    engine.handle(Input::SessionSuspended { session: id(199) }, now);
    let ended = outputs(&mut engine).iter().filter(|output| output.contains("SessionGone")).count();
    assert_eq!(ended, BROADCASTS - BROADCASTS / 3);
    let harness = Harness::default();
    engine.handle(Input::SessionOpened { session: SessionId::new("late"), harness }, now);
    engine.sessions.catch_up_all();
    let late = engine.sessions().view(&SessionId::new("late")).expect("open");
    assert_eq!(late.injector.pending().0, 0);
}

#[test]
fn an_untaken_broadcast_can_be_dismissed_per_session() {
    let mut engine = behind();
    let (even, odd) = (id(0), id(1));
    let [for_even, for_all] = ["n00", "n01"].map(NotificationId::new);
    for (session, notification, expected) in
        [(&even, &for_even, true), (&even, &for_all, true), (&odd, &for_even, false), (&odd, &for_all, true)]
    {
        let can_dismiss = engine.sessions().can_decide(Some(session), notification, Decision::Dismiss);
        assert_eq!(can_dismiss, expected, "{session} {notification}");
    }
    engine.sessions.decide(Some(&odd), &for_all, Decision::Dismiss);
    assert!(!engine.sessions().can_decide(Some(&odd), &for_all, Decision::Dismiss));
    let all = u32::try_from(BROADCASTS).expect("small");
    assert_eq!(pending(&engine, 1), all - all / 3 - 1);
}

#[test]
fn sessions_in_scope_skip_a_resolved_broadcast() {
    let now = Timestamp::from_millis(2);
    let holds = |number, scope| {
        let unresolved = vec![State { key: StateKey(7), seq: Seq(1), version: None }];
        let notification = Arc::unwrap_or_clone(notification(number, scope));
        Arc::new(Notification { nature: Nature::Condition, unresolved, ..notification })
    };
    let resolution = |scope| Resolution {
        subscriber: SubscriberId::new("s"),
        seq: Seq(2),
        scope,
        keys: vec![StateKey(7)],
        version: None,
    };
    let all = u32::try_from(BROADCASTS).expect("small");
    let mut engine = behind();
    engine.sessions.broadcast(holds(90, Scope::All));
    engine.sessions.withdraw(&resolution(Scope::All));
    engine.drain_sessions();
    let ended = outputs(&mut engine);
    assert_eq!(ended.iter().filter(|output| output.contains("Withdrawn")).count(), 1, "once, for nobody");
    engine.handle(Input::SessionSeen { session: id(0) }, now);
    assert_eq!(pending(&engine, 0), all);
    let mut engine = behind();
    engine.sessions.broadcast(holds(90, Scope::All));
    engine.sessions.withdraw(&resolution(Scope::Workspace("/even".into())));
    engine.sessions.catch_up_all();
    assert_eq!((pending(&engine, 0), pending(&engine, 1)), (all, all - all / 3 + 1));
}

#[test]
fn the_broadcast_log_stays_bounded() {
    let mut engine = behind();
    assert_eq!(engine.sessions().untaken(), (SESSIONS * BROADCASTS) as u64);
    for number in 100..100 + 2 * LOG_MAX {
        engine.sessions.broadcast(notification(number, Scope::All));
        engine.handle(Input::ShuttingDown, Timestamp::from_millis(2));
        while engine.poll_output().is_some() {}
    }
    let untaken = engine.sessions().untaken();
    assert!(untaken <= ((LOG_MAX + 100) * SESSIONS) as u64, "{untaken}");
}
