//! Random releases under small budgets, against a count of what they should allow: none but critical
//! notifications exceed a budget, and what is used is what did not come back.
//!
//! Size: 256 runs of 40 releases, 10,000 in all; `PROPTEST_CASES=2500` makes 100,000.

use proptest::prelude::*;

use super::{
    flood::Framed,
    tests::{exchange, in_step, in_turn, notification},
    *,
};
use crate::{
    budget::{Account, Balance, BudgetName, BudgetSettings, SourceAccounts, per_hour},
    notification::Tokens,
    rate::Rate,
    session::SessionState,
};

const RELEASES: u64 = 40;
const TURN: Tokens = Tokens(300);
const HOUR: Tokens = Tokens(2_500);
const SUBSCRIBER: Tokens = Tokens(400);
const SOURCE: Tokens = Tokens(200);

/// A generator of numbers that look random (xorshift).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// One answer that did not come back.
struct Sent {
    injection: InjectionId,
    tokens: Tokens,
    turn: u64,
    at: Timestamp,
}

struct Run {
    dice: Dice,
    injector: Injector,
    sources: SourceAccounts,
    budgets: Budgets,
    now: Timestamp,
    turn: u64,
    made: u64,
    releases: u64,
    short: usize,
    sent: Vec<Sent>,
    /// The tokens of all answers before `sent` that did not come back.
    earlier: u64,
}

impl Run {
    fn new(seed: u64) -> Self {
        let settings = BudgetSettings {
            turn: Some(TURN),
            hour: Some(HOUR),
            sources: vec![("chat".into(), per_hour(SOURCE))],
            ..Budgets::NONE.settings
        };
        let subscribers = [(SubscriberId::new("a"), per_hour(SUBSCRIBER))].into();
        Self {
            dice: Dice(seed),
            injector: Injector::new(SessionId::new("s1"), 200),
            sources: SourceAccounts::default(),
            budgets: Budgets { settings, subscribers },
            now: Timestamp::from_millis(1),
            turn: 0,
            made: 0,
            releases: 0,
            short: 0,
            sent: Vec::new(),
            earlier: 0,
        }
    }

    fn push(&mut self) {
        self.made += 1;
        let name = format!("{}#{}", ["a", "b", "c"][self.dice.below(3) as usize], self.made);
        let priority = match self.dice.below(12) {
            0 => Priority::Critical,
            1..=3 => Priority::High,
            4..=6 => Priority::Low,
            _ => Priority::Normal,
        };
        let length = self.dice.below(600);
        let charged_to = if self.dice.below(4) == 0 { [Arc::from("chat")].into() } else { Box::default() };
        let made = notification(&name, priority, InjectionPoint::AfterTool);
        let (content, tokens) = ("x".repeat(length as usize).into(), Tokens((length / 4) as u32));
        let made = Notification { content, tokens, charged_to, created_at: self.now, ..made };
        self.injector.push(Arc::new(made));
    }

    /// The source's balance, as the sessions say it.
    fn source(&self, name: &Arc<str>) -> Option<Balance> {
        let rate = self.budgets.settings.of_source(name)?;
        let account = self.sources.get(&"".into(), name);
        Some(Balance::filling(BudgetName::Source(Arc::clone(name)), rate, account, self.now))
    }

    fn exchange(&mut self) {
        let starts = self.turn == 0 || self.dice.below(12) == 0;
        self.turn += u64::from(starts);
        let point = if starts { InjectionPoint::TurnStart } else { InjectionPoint::AfterTool };
        let step = self.made.to_string();
        let carrier = format!("c{}-{}", self.turn, self.releases);
        let exchange = in_step(&step, in_turn(&self.turn.to_string(), exchange(point, &carrier)));
        self.injector.confirm_by_exchange(&exchange, Beginning::OfTurn, self.now);
        self.injector.enter_budget(&exchange, SessionState::default());
        self.injector.note_exchange(&exchange, self.now);
        let limits = Limits::new(10, Tokens(200), 4_000);
        let offer = self.injector.offer(&exchange, &limits);
        let room = self.injector.room(&offer.candidates, &self.budgets, |name| self.source(name), self.now);
        let decided = fit(offer, &limits, &room, &Framed);
        self.short += decided.short.len();
        let chosen = decided.fitted.as_ref().map(|fitted| fitted.chosen.clone()).unwrap_or_default();
        let id = InjectionId::new(&format!("i{}", self.releases));
        let terms = Terms { budgets: &self.budgets, ..super::tests::TERMS };
        let answer = self.injector.release(&exchange, decided, || id, terms, self.now);
        self.apply_source_changes();
        let Some(injection) = answer.injection else { return };
        self.releases += 1;
        let tokens = Framed.tokens(&injection.text);
        self.sent.push(Sent { injection: id, tokens, turn: self.turn, at: self.now });
        let is_critical = |one: &Candidate| one.notification.priority == Priority::Critical;
        if !chosen.iter().all(is_critical) {
            self.check(&chosen);
        }
    }

    /// Compares what is used after a release of more than critical ones with each budget.
    fn check(&self, chosen: &[Candidate]) {
        let in_turn: u32 =
            self.sent.iter().filter(|sent| sent.turn == self.turn).map(|sent| sent.tokens.0).sum();
        assert!(in_turn <= TURN.0, "{in_turn} in a turn");
        let mut hour = Account::default();
        let rate = per_hour(HOUR);
        self.sent.iter().for_each(|sent| hour.charge(sent.tokens, rate, sent.at));
        assert!(hour.used(self.now) <= HOUR, "{} in an hour", hour.used(self.now));
        let usage = self.injector.budget_usage(&self.budgets, self.now);
        let others = |name: &str| {
            chosen.iter().any(|one| {
                one.notification.subscriber.as_str() == name && one.notification.priority < Priority::Critical
            })
        };
        for (id, own) in usage.subscribers.iter().filter(|(id, _)| others(id.as_str())) {
            assert!(own.used <= u64::from(SUBSCRIBER.0), "{} of {id}", own.used);
        }
        let is_of_source = |one: &&Candidate| {
            !one.notification.charged_to.is_empty() && one.notification.priority < Priority::Critical
        };
        if chosen.iter().any(|one| is_of_source(&one)) {
            let used = self.sources.get(&"".into(), &"chat".into()).used(self.now);
            assert!(used <= SOURCE, "{used} of the source");
        }
    }

    fn lose(&mut self) {
        let Some(last) = self.sent.last() else { return };
        let id = last.injection;
        if self.injector.undelivered(&id, self.now).is_some() {
            self.sent.pop();
        }
        self.apply_source_changes();
    }

    fn apply_source_changes(&mut self) {
        let rate: Rate = per_hour(SOURCE);
        for change in self.injector.take_source_changes() {
            let SourceChange { source, tokens, charged_at, credited_at } = change;
            match credited_at {
                Some(at) => self.sources.credit(&"".into(), &source, tokens, charged_at, at),
                None => self.sources.charge(&"".into(), &source, tokens, rate, charged_at),
            }
        }
    }

    /// Forgets what has drained, so that a check takes the same time at any number of releases.
    fn forget(&mut self) {
        let (now, turn) = (self.now, self.turn);
        let is_old =
            |sent: &mut Sent| now.since(sent.at) > Duration::from_secs(8 * 3_600) && sent.turn < turn;
        self.earlier += self.sent.extract_if(.., is_old).map(|sent| u64::from(sent.tokens.0)).sum::<u64>();
    }
}

proptest! {
    #[test]
    fn only_critical_notifications_exceed_a_budget(seed in 1_u64..) {
        let mut run = Run::new(seed);
        while run.releases < RELEASES {
            run.now = run.now + Duration::from_millis(run.dice.below(240_000));
            for _ in 0..run.dice.below(3) {
                run.push();
            }
            match run.dice.below(10) {
                0 => run.lose(),
                _ => run.exchange(),
            }
            run.forget();
            let sent: u64 = run.sent.iter().map(|sent| u64::from(sent.tokens.0)).sum();
            let usage = run.injector.budget_usage(&run.budgets, run.now);
            prop_assert_eq!(usage.session.used, run.earlier + sent, "after {} releases", run.releases);
            run.injector.take_outputs();
        }
        prop_assert!(run.short > 0, "everything had room");
    }
}

#[test]
fn shares_of_a_text_sum_up_to_it() {
    let of = |sizes: &[u32], total: u32| {
        let candidates: Vec<Candidate> = sizes
            .iter()
            .map(|size| {
                let made = notification("a", Priority::Normal, InjectionPoint::AfterTool);
                let notification = Arc::new(Notification { tokens: Tokens(*size), ..made });
                Candidate { notification, redelivered: None, has_cancelled: false, cut: None, reminder: 0 }
            })
            .collect();
        let shares = spent::shares(&candidates, Tokens(total));
        shares.iter().map(|share| share.0).collect::<Vec<_>>()
    };
    assert_eq!(of(&[10, 30], 60), [15, 45]);
    assert_eq!(of(&[1, 1, 1], 10), [3, 3, 4]);
    assert_eq!(of(&[0, 0], 3), [1, 2]);
}
