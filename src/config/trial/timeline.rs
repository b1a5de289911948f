//! Plays the steps of a test through an engine, as the event loop of the daemon does: time is a
//! number, each deadline is handled at its own time, and what the engine publishes comes back to it.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use engine::{
    Engine, Input, Output, RequestId, SUBSCRIBER_FAILED, Saved,
    event::{Event, EventType, Payload, Provenance, Seq, SessionId, catalogue::OwnSeverities},
    exchange::{Answer, Directive, Exchange, Format, Harness, Injection, Release},
    format::region::region_document,
    ledger::LedgerEntry,
    notification::{
        InjectionPoint, Notification, NotificationId, SubscriberId,
        repeat::{Action as RepeatAction, Response},
    },
    pipeline::{rule::Subscriber, silence::Silence},
    rules::CompiledRules,
    sink::Notice,
    sorted::SortedMap,
};
use journal::time::Timestamp;

use crate::config::case::{
    Action, Expectation, RegionAt, SubscriberTest, TestEvent, TestExchange, TestScope, TestSession,
    TestSessionState, TestSilence,
};

/// How long a test continues after its last step: the longest time that a window stays open.
const TAIL: Duration = Duration::from_secs(60);

/// What happened in a test.
#[derive(Debug, Default)]
pub(super) struct Played {
    /// The notifications, in order.
    pub(super) made: Vec<Made>,
    /// The indices of [`Self::made`] by id.
    by_id: BTreeMap<NotificationId, usize>,
    /// What exchanges released, in order.
    pub(super) released: Vec<ExchangeRelease>,
    /// What became of events and notifications, with the times.
    pub(super) entries: Vec<(Duration, LedgerEntry)>,
    /// The events of the steps.
    pub(super) published: Vec<Published>,
    /// The texts of the expected regions, in the order of `expect`; `None` for a session that is not
    /// known.
    pub(super) regions: Vec<Option<String>>,
    /// The events about failed templates.
    pub(super) failures: Vec<Event>,
    /// The outcome that each event of a step would have, by its position, before it was published.
    #[cfg(test)]
    pub(super) foreseen: Vec<(Seq, engine::Outcome)>,
}

impl Played {
    /// The notifications of a subscriber, and of what it leaves to earlier files of its id.
    pub(super) fn made_by<'p>(&'p self, subscriber: &'p SubscriberId) -> impl Iterator<Item = &'p Made> {
        self.made.iter().filter(move |made| made.notification.subscriber.in_file() == subscriber.in_file())
    }

    /// A notification by its id.
    pub(super) fn notification(&self, id: NotificationId) -> Option<&Made> {
        self.by_id.get(&id).and_then(|index| self.made.get(*index))
    }
}

/// A notification, and the notices of its template for the user.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) at: Duration,
    pub(super) notification: Arc<Notification>,
    pub(super) notices: Vec<Arc<Notice>>,
}

/// What an exchange released.
#[derive(Debug)]
pub(super) struct ExchangeRelease {
    pub(super) at: Duration,
    pub(super) point: InjectionPoint,
    pub(super) format: Format,
    pub(super) injection: Injection,
    pub(super) directive: Option<Directive>,
}

/// An event of a step.
#[derive(Debug)]
pub(super) struct Published {
    pub(super) at: Duration,
    pub(super) seq: Seq,
    pub(super) event_type: EventType,
}

/// Plays `test` in an engine with `rules`, of which `rule` is tested.
///
/// Shape: it ends [`TAIL`] after the last step, and after the latest time of an expectation.
pub(super) fn play(
    rules: Arc<CompiledRules>,
    severities: &OwnSeverities,
    rule: &Subscriber,
    test: &SubscriberTest,
) -> Played {
    let mut player = Player::new(rules, severities, rule, test.start);
    player.handle(Input::ZoneChanged(test.zone.clone()));
    let mut regions = Regions::of(test);
    for step in &test.at {
        player.read_regions(&mut regions, |at| at < step.at);
        player.advance(step.at);
        match &step.action {
            Action::Publish(event) => player.publish(event),
            Action::Exchange(exchange) => player.exchange(exchange),
            Action::Session(session) => player.session(session),
            Action::Silence(silence) => player.silence(silence),
            Action::Respond(action, lasts) => player.respond(*action, *lasts),
            Action::Settings(settings) => {
                let (user, settings) = (**settings).clone();
                player.handle(Input::UserSettings { user, settings: Box::new(settings) });
            }
            Action::Expire(id) => player.handle(Input::SilencesEnded(vec![*id])),
            Action::Restart => player.restart(),
        }
    }
    let expected = test.expect.iter().filter_map(|expectation| match expectation {
        Expectation::Outcome(outcome) => Some(outcome.at),
        Expectation::Ended(ended) => ended.until,
        Expectation::Region(region) => Some(region.at),
    });
    let last = expected.chain(test.at.last().map(|step| step.at)).max().unwrap_or_default();
    player.read_regions(&mut regions, |_| true);
    player.advance(last + TAIL);
    player.played
}

/// The expected regions that were not read yet: by their times, with their places in `expect`.
struct Regions<'t>(VecDeque<(usize, &'t RegionAt)>);

impl<'t> Regions<'t> {
    fn of(test: &'t SubscriberTest) -> Self {
        let regions = test.expect.iter().filter_map(|expectation| match expectation {
            Expectation::Region(region) => Some(region),
            Expectation::Outcome(_) | Expectation::Ended(_) => None,
        });
        let mut regions: Vec<(usize, &RegionAt)> = regions.enumerate().collect();
        regions.sort_by_key(|(_, region)| region.at);
        Self(regions.into())
    }
}

struct Player<'a> {
    engine: Engine,
    severities: &'a OwnSeverities,
    rule: &'a Subscriber,
    start: Timestamp,
    now: Duration,
    seq: Seq,
    /// The number of turns that each session has begun.
    turns: SortedMap<SessionId, u32>,
    /// The exchanges that wait for their answer: one at most, as each is answered at once.
    asked: Option<(InjectionPoint, Format)>,
    played: Played,
}

impl<'a> Player<'a> {
    fn new(
        rules: Arc<CompiledRules>,
        severities: &'a OwnSeverities,
        rule: &'a Subscriber,
        start: Timestamp,
    ) -> Self {
        Self {
            engine: Engine::new(rules),
            severities,
            rule,
            start,
            now: Duration::ZERO,
            seq: Seq::ZERO,
            turns: SortedMap::new(),
            asked: None,
            played: Played::default(),
        }
    }

    /// Handles each deadline up to and including `to`.
    fn advance(&mut self, to: Duration) {
        let end = self.start + to;
        while let Some((due, reason)) = self.engine.poll_timeout().filter(|(due, _)| *due <= end) {
            self.now = due.max(self.start + self.now).since(self.start);
            self.handle(Input::Tick);
            if self.engine.poll_timeout() == Some((due, reason)) {
                break;
            }
        }
        self.now = to;
    }

    /// Reads the regions whose times `is_due` selects.
    fn read_regions(&mut self, regions: &mut Regions<'_>, is_due: impl Fn(Duration) -> bool) {
        while regions.0.front().is_some_and(|(_, region)| is_due(region.at)) {
            let (number, due) = regions.0.pop_front().expect("it was looked at");
            self.advance(due.at);
            let region = self.engine.region(&due.session);
            let text = region.map(|region| region_document(&region, due.max_tokens));
            let regions = &mut self.played.regions;
            regions.resize(regions.len().max(number + 1), None);
            if let Some(place) = regions.get_mut(number) {
                *place = text;
            }
        }
    }

    fn publish(&mut self, event: &TestEvent) {
        let event = self.event(event);
        self.seq = self.seq.next();
        let published = Published { at: self.now, seq: self.seq, event_type: event.event_type.clone() };
        self.played.published.push(published);
        #[cfg(test)]
        self.foresee(&event);
        self.handle(Input::Event { seq: self.seq, event: event.as_ref() });
    }

    /// Notes the outcome that `event` would have.
    #[cfg(test)]
    fn foresee(&mut self, event: &Event) {
        let (seq, now) = (self.seq, self.start + self.now);
        let bytes = self.engine.save(seq, now).expect("its own state can be written");
        let saved = Saved::read(&bytes).expect("what was written can be read");
        let copy = Engine::restored(Arc::clone(self.engine.rules()), saved);
        self.played.foreseen.push((seq, copy.outcome_of(seq, event, now)));
    }

    fn event(&self, event: &TestEvent) -> Event {
        let default = || self.severities.default_severity(event.event_type.as_str());
        let provenance = match (event.trusted, &event.source) {
            (Some(false), _) => Provenance::Remote,
            (Some(true), _) | (None, None) => Provenance::Harness,
            // The trust of a client of the socket.
            (None, Some(_)) => Provenance::Local,
        };
        let source =
            event.source.clone().or_else(|| self.rule.sources.first().map(|own| own.as_str().into()));
        let (session, workspace) = match &event.scope {
            TestScope::Session(id) => (Some(id.clone()), None),
            TestScope::Workspace(folder) => (None, Some(Arc::clone(folder))),
            TestScope::All => (None, None),
        };
        Event {
            id: self.seq.next().to_string().into(),
            event_type: event.event_type.clone(),
            source: source.unwrap_or_else(|| "test".into()),
            provenance,
            severity: event.severity.unwrap_or_else(default),
            timestamp: self.start + self.now,
            payload: Payload::from(event.payload.clone()),
            dedupe_key: event.dedupe_key.clone(),
            session,
            workspace,
            cause: None,
            deliver_after: event.deliver_after.clone(),
        }
    }

    /// Makes an exchange as an adapter does: with a turn and a step, and a carrier of its own.
    fn exchange(&mut self, asked: &TestExchange) {
        self.seq = self.seq.next();
        let turns = self.turns.get_or_default(asked.session.clone());
        if asked.point == InjectionPoint::TurnStart {
            *turns += 1;
        }
        let turn = asked.turn.clone().unwrap_or_else(|| turns.to_string().into());
        let step = asked.step.clone().unwrap_or_else(|| self.seq.to_string().into());
        let exchange = Exchange {
            turn: Some(turn),
            step: Some(step),
            harness: Harness { workspace: asked.workspace.clone(), ..Harness::default() },
            tool: asked.tool.clone(),
            budget: asked.budget,
            format: asked.format,
            context: asked.context.clone(),
            ..Exchange::new(asked.session.clone(), asked.point, &format!("call_{}", self.seq))
        };
        let format = asked.format.unwrap_or(self.engine.rules().injection.format);
        self.asked = Some((asked.point, format));
        let request = RequestId(self.seq.0);
        let (exchange, release) = (Box::new(exchange), Release::Decide);
        self.handle(Input::Exchange { seq: self.seq, request, exchange, release });
    }

    fn session(&mut self, changed: &TestSession) {
        self.seq = self.seq.next();
        let session = changed.session.clone();
        self.handle(match changed.change {
            TestSessionState::Open => {
                let (workspace, parent) = (changed.workspace.clone(), changed.parent.clone());
                Input::SessionOpened { session, harness: Harness { workspace, parent, ..Harness::default() } }
            }
            TestSessionState::Suspended => Input::SessionSuspended { session },
            TestSessionState::Closed => Input::SessionEnded { session },
        });
    }

    fn silence(&mut self, asked: &TestSilence) {
        self.seq = self.seq.next();
        let silence = Silence {
            id: asked.id,
            matchers: asked.matchers.clone(),
            until: self.start + self.now + asked.lasts,
            by: "test".into(),
            comment: "".into(),
        };
        self.handle(Input::Silenced(Box::new(silence)));
    }

    /// Answers the notifications that the last exchange released.
    fn respond(&mut self, action: RepeatAction, lasts: Option<Duration>) {
        let released = self.played.released.last().map(|release| &release.injection.notifications);
        let ids: Vec<_> = released.into_iter().flatten().map(|released| released.id).collect();
        let until = (action == RepeatAction::Snooze)
            .then(|| self.start + self.now + lasts.unwrap_or(Duration::from_secs(600)));
        for notification in ids {
            self.seq = self.seq.next();
            let response = Response { action, by: "test".into(), until };
            self.handle(Input::Responded { notification, response });
        }
    }

    /// Continues in an engine that is read from a snapshot of this one.
    fn restart(&mut self) {
        let bytes = self.engine.save(self.seq, self.start + self.now).expect("its own state can be written");
        let saved = Saved::read(&bytes).expect("what was written can be read");
        self.engine = Engine::restored(Arc::clone(self.engine.rules()), saved);
    }

    fn handle(&mut self, input: Input<'_>) {
        self.engine.handle(input, self.start + self.now);
        let mut published = VecDeque::new();
        loop {
            while let Some(output) = self.engine.poll_output() {
                self.note(output, &mut published);
            }
            let Some(event) = published.pop_front() else { break };
            self.seq = self.seq.next();
            self.engine.handle(Input::Event { seq: self.seq, event: event.as_ref() }, self.start + self.now);
        }
    }

    fn note(&mut self, output: Output, published: &mut VecDeque<Event>) {
        let played = &mut self.played;
        match output {
            Output::Record(entry) => played.entries.push((self.now, entry)),
            Output::Made(notification) => {
                played.by_id.insert(notification.id, played.made.len());
                played.made.push(Made { at: self.now, notification, notices: Vec::new() });
            }
            Output::Said(notice) => {
                played.made.last_mut().expect("it was made before").notices.push(notice);
            }
            Output::Answer { answer: Answer { injection: Some(injection), directive, .. }, .. } => {
                let Some((point, format)) = self.asked.take() else { return };
                played.released.push(ExchangeRelease { at: self.now, point, format, injection, directive });
            }
            Output::Publish(event) => {
                if event.event_type.as_str() == SUBSCRIBER_FAILED {
                    played.failures.push(event.clone());
                }
                published.push_back(event);
            }
            Output::Answer { .. } | Output::Session(..) | Output::Refuse { .. } | Output::Wake(_) => {}
        }
    }
}
