//! Questions in simulated time: each ends once, in any order of events.

use std::{collections::BTreeMap, time::Duration};

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::{
    event::{Provenance, Seq},
    sink::{
        Notice,
        question::{ANSWERED, EXPIRED, taken_event},
    },
    snapshot,
};

const START: Timestamp = Timestamp::from_millis(1_000_000_000);
const FOR: Duration = Duration::from_secs(60);

struct World {
    questions: Questions,
    now: Timestamp,
    answers: u32,
}

impl World {
    fn new() -> Self {
        Self { questions: Questions::default(), now: START, answers: 0 }
    }

    fn observe(&mut self, event: &Event) -> Vec<String> {
        let (event, mut effects) = (event.as_ref(), Effects::default());
        self.questions.observe(&Dispatched::trusted(Seq(1), &event, self.now), &(), &mut effects);
        lines(&effects.into_events())
    }

    fn ask(&mut self, id: &str, awaited: Awaited) {
        let notice = Notice {
            session: Some(SessionId::new("s1")),
            workspace: Some("/w".into()),
            ..Notice::new(id, "Deploy?", self.now)
        };
        let question = Question {
            choices: vec!["yes".into(), "no".into()],
            expires_at: self.now + FOR,
            awaited,
            ..Question::of(&notice)
        };
        assert_eq!(self.observe(&question.event()), Vec::<String>::new());
    }

    fn choose(&mut self, id: &str, answer: &str) -> Vec<String> {
        self.answers += 1;
        let chosen = Chosen { question: id.into(), answer: answer.into(), by: "desktop".into() };
        let event = chosen.event(&self.answers.to_string(), self.now);
        self.observe(&event)
    }

    fn take(&mut self, id: &str) -> Vec<String> {
        let event = taken_event(id, self.now);
        self.observe(&event)
    }

    /// Advances the time; handles each deadline at its own time.
    fn wait(&mut self, time: Duration) -> Vec<String> {
        let (end, mut effects) = (self.now + time, Effects::default());
        while let Some(at) = self.questions.poll_timeout().filter(|at| *at <= end) {
            self.questions.handle_timeout(at, &mut effects);
        }
        self.now = end;
        lines(&effects.into_events())
    }

    fn restart(&mut self) {
        let bytes = snapshot::write(&self.questions).expect("written");
        self.questions = snapshot::read(&bytes).expect("read");
    }
}

fn lines(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| {
        let payload: Value = serde_json::from_str(event.payload.as_str()).expect("JSON");
        let word = |name: &str| payload[name].as_str().unwrap_or("-").to_owned();
        let awaited = if payload["awaited"].is_null() { "" } else { " awaited" };
        format!("{} {} {}{awaited}", event.event_type, word("question"), word("answer"))
    };
    events.iter().map(line).collect()
}

#[test]
fn the_first_answer_ends_a_question() {
    let mut world = World::new();
    world.ask("q1", Awaited::BySession);
    assert_eq!(world.questions.take_changes().map(|open| open.len()), Some(1));
    assert_eq!(world.choose("q1", "perhaps"), Vec::<String>::new(), "it is no choice");
    assert_eq!(world.choose("q1", "no"), ["user.answered q1 no"]);
    assert_eq!(world.choose("q1", "yes"), Vec::<String>::new());
    assert_eq!(world.questions.take_closed(), ["q1".into()]);
    assert_eq!(world.wait(FOR * 2), Vec::<String>::new());
    world.restart();
    let end = End::Answered { answer: "no".into(), by: "desktop".into(), event: "q1:2".into() };
    let ended = QuestionState::Ended { end, asker: Some(SessionId::new("s1")) };
    assert_eq!(world.questions.state("q1"), Some(ended));
    // Its event is repeated, as after a journal that lost its keys: it stays ended.
    world.ask("q1", Awaited::BySession);
    assert!(matches!(world.questions.state("q1"), Some(QuestionState::Ended { .. })));
}

#[test]
fn ends_taken_by_the_caller_are_not_announced() {
    let mut world = World::new();
    world.ask("q1", Awaited::ByCaller);
    world.ask("q2", Awaited::ByCaller);
    world.ask("q3", Awaited::ByCaller);
    assert_eq!(world.take("q1"), Vec::<String>::new(), "it has not ended");
    assert_eq!(world.choose("q1", "yes"), Vec::<String>::new());
    assert_eq!(world.choose("q2", "no"), Vec::<String>::new());
    world.restart();
    assert_eq!(world.take("q1"), ["user.answered q1 yes awaited"]);
    assert_eq!(world.wait(TAKEN_WITHIN), ["user.answered q2 no"]);
    assert_eq!(world.take("q2"), Vec::<String>::new(), "too late");
    assert_eq!(world.wait(FOR - TAKEN_WITHIN), Vec::<String>::new(), "an expiry waits to be taken as well");
    assert_eq!(world.choose("q3", "yes"), Vec::<String>::new());
    assert_eq!(world.wait(TAKEN_WITHIN), ["user.question.expired q3 -"]);
}

#[test]
fn a_question_follows_its_session_or_its_folder() {
    let mut world = World::new();
    world.ask("q1", Awaited::BySession);
    let (mut effects, [from, to]) = (Effects::default(), ["s1", "s2"].map(SessionId::new));
    world.questions.follow(&Succession::Continued { from, to: to.clone() }, &mut effects);
    let asker = |world: &World| match world.questions.state("q1") {
        Some(QuestionState::Open(question)) => question.session.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(asker(&world), Some(to.clone()));
    world.questions.follow(&Succession::Ended { session: to, parent: None }, &mut effects);
    assert_eq!(asker(&world), None);
}

#[test]
fn open_and_ended_questions_are_bounded() {
    let mut world = World::new();
    for number in 0..QUESTIONS_MAX + 10 {
        world.ask(&format!("q{number}."), Awaited::BySession);
    }
    assert_eq!(world.questions.take_changes().map(|open| open.len()), Some(QUESTIONS_MAX));
    assert_eq!(world.wait(FOR).len(), QUESTIONS_MAX);
    assert_eq!((world.questions.ended.len(), world.questions.askers.len()), (ENDED_MAX, ENDED_MAX));
    let chosen = Chosen { question: "q0.".into(), answer: "yes".into(), by: "x".into() };
    world.ask("q", Awaited::BySession);
    let foreign = Event { provenance: Provenance::Harness, ..chosen.event("1", START) };
    assert_eq!(world.observe(&foreign), Vec::<String>::new());
}

/// A step of a random scenario.
#[derive(Debug, Clone)]
enum Act {
    Ask { awaited: bool },
    Choose { question: usize, answer: bool },
    Take { question: usize },
    Wait { seconds: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        3 => any::<bool>().prop_map(|awaited| Act::Ask { awaited }),
        3 => (0..20_usize, any::<bool>()).prop_map(|(question, answer)| Act::Choose { question, answer }),
        2 => (0..20_usize).prop_map(|question| Act::Take { question }),
        2 => (1..40_u64).prop_map(|seconds| Act::Wait { seconds }),
    ]
}

impl World {
    fn act(&mut self, act: &Act, number: usize) -> Vec<String> {
        match act {
            Act::Ask { awaited } => {
                self.ask(
                    &format!("q{number}."),
                    if *awaited { Awaited::ByCaller } else { Awaited::BySession },
                );
                Vec::new()
            }
            Act::Choose { question, answer } => {
                self.choose(&format!("q{question}."), if *answer { "yes" } else { "no" })
            }
            Act::Take { question } => self.take(&format!("q{question}.")),
            Act::Wait { seconds } => self.wait(Duration::from_secs(*seconds)),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// In any order of events, a restart changes nothing, and each question ends once, by the first
    /// choice before its expiry.
    #[test]
    fn each_question_ends_once(acts in proptest::collection::vec((act(), any::<bool>()), 1..80)) {
        let (mut whole, mut restarted) = (World::new(), World::new());
        let mut first: BTreeMap<String, (Timestamp, Option<&str>)> = BTreeMap::new();
        let mut ends: BTreeMap<String, String> = BTreeMap::new();
        for (number, (act, restarts)) in acts.iter().enumerate() {
            if *restarts {
                restarted.restart();
            }
            match act {
                Act::Ask { .. } => {
                    first.insert(format!("q{number}."), (whole.now + FOR, None));
                }
                Act::Choose { question, answer } => {
                    let chosen = if *answer { "yes" } else { "no" };
                    if let Some((until, answer)) = first.get_mut(&format!("q{question}."))
                        && whole.now < *until
                    {
                        answer.get_or_insert(chosen);
                    }
                }
                Act::Take { .. } | Act::Wait { .. } => {}
            }
            let mut said = whole.act(act, number);
            prop_assert_eq!(&said, &restarted.act(act, number));
            if number + 1 == acts.len() {
                said.extend(whole.wait(FOR + TAKEN_WITHIN));
            }
            for line in said {
                let words: Vec<&str> = line.split(' ').collect();
                prop_assert_eq!(ends.insert(words[1].to_owned(), line.clone()), None, "twice");
                let answer = first[words[1]].1;
                prop_assert_eq!(words[0], if answer.is_some() { ANSWERED } else { EXPIRED });
                prop_assert_eq!(words[2], answer.unwrap_or("-"));
            }
        }
        prop_assert_eq!(ends.len(), first.len());
        prop_assert_eq!(whole.questions.poll_timeout(), None);
    }
}
