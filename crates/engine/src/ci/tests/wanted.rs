//! Follows that a watch wants, and which push is the last one.

use super::*;

#[test]
fn asker_joins_a_follow_and_gets_its_answer() {
    let mut world = World::new();
    let session = SessionId::new("s1");
    let wanted = |by: &'static str, reference| Wanted {
        by,
        session: Some(&session),
        workspace: Some("/w"),
        folder: "/w/sub",
        reference,
    };
    world.follows.want(&wanted("w1", None), at(0), &mut Effects::default());
    world.run(5, |_| answer(0, &[], 1));
    assert_eq!(world.times(), [0]);
    for reference in [None, Some("HEAD"), Some("fix"), Some("1111111")] {
        world.follows.want(&wanted("w2", reference), world.now, &mut Effects::default());
        assert_eq!(world.follows.open.len(), 1, "{reference:?}");
    }
    world.follows.want(&wanted("w3", Some("other")), world.now, &mut Effects::default());
    let other = world.follows.open.values().find(|follow| follow.branch.as_deref() == Some("other"));
    assert_eq!(other.expect("its own").git_arguments()[1], "other^{commit}");
}

#[test]
fn watch_ends_with_the_last_push_followed() {
    let mut world = World::new();
    world.pushed(1);
    let plan = world.follows.take_plan().expect("a plan");
    let first = plan.follows.first().expect("one").ended_event(&End::Superseded, at(0));
    let other = Event { session: Some(SessionId::new("s2")), ..first.clone() };
    let goes_on = |world: &World, event: &Event| world.follows.goes_on(&event.as_ref());
    world.follows.open.clear();
    assert!(!goes_on(&world, &first));
    world.now = at(5);
    world.pushed(2);
    assert!(goes_on(&world, &first));
    assert!(!goes_on(&world, &other), "another session's");
    let later = world.follows.open.values().next().expect("one").ended_event(&End::Superseded, at(9));
    world.follows.open.clear();
    world.now = at(0);
    world.pushed(1);
    assert!(goes_on(&world, &first), "one command pushed both");
    assert!(!goes_on(&world, &later), "it is older");
}
