//! The engine as a whole.

mod fanout;

use std::{sync::Arc, time::Duration};

use super::*;
use crate::{exchange::Harness, rules::CompiledRules};

#[test]
fn new_limits_hold_for_open_sessions_at_once() {
    let mut engine = Engine::new(Arc::new(CompiledRules::none()));
    let opened = Input::SessionOpened { session: SessionId::new("s1"), harness: Harness::default() };
    engine.handle(opened, Timestamp::from_millis(0));
    let mut rules = CompiledRules::none();
    rules.sessions.idle_close = Duration::from_millis(500);
    engine.handle(Input::RulesReplaced(Arc::new(rules)), Timestamp::from_millis(100));
    assert_eq!(engine.poll_timeout(), Some((Timestamp::from_millis(500), WakeReason::Session)));
}
