//! Compares the pipeline with a simple model under random events and times: lists, full scans, no
//! bounds.

use std::{num::NonZeroU32, time::Duration};

use proptest::prelude::*;
use strum::VariantArray;

use super::{
    tests::{Outcome, at, drain, ended, event, field, outcomes, resources, rule, session, set_scope},
    *,
};
use crate::{
    event::Severity,
    notification::Priority,
    pipeline::{
        condition::Condition,
        rule::{BatchMode, DedupeRule, Keep, RateRule},
    },
    rate::Rate,
};

const TOOLS: [&str; 4] = ["grep", "fetch", "bash", ""];

/// An action `after_ms` after the previous one.
#[derive(Debug, Clone)]
struct Step {
    after_ms: u64,
    what: What,
}

#[derive(Debug, Clone)]
enum What {
    Happens { scope: Scope, tool: usize, severity: Severity, own_key: Option<bool>, number: u8 },
    Timer,
    Exchange(Scope),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let scope = prop_oneof![
        Just(Scope::All),
        Just(Scope::Workspace("/w".into())),
        Just(session("s1")),
        Just(session("s2")),
    ];
    let severity = prop::sample::select(Severity::VARIANTS.to_vec());
    let happens =
        (scope.clone(), 0..TOOLS.len(), severity, prop::option::weighted(0.2, any::<bool>()), 0..4_u8)
            .prop_map(|(scope, tool, severity, own_key, number)| What::Happens {
                scope,
                tool,
                severity,
                own_key,
                number,
            });
    let what = prop_oneof![12 => happens, 2 => Just(What::Timer), 1 => scope.prop_map(What::Exchange)];
    let after_ms = prop_oneof![3 => Just(0_u64), 6 => 1..400_u64, 1 => 400..6_000_u64];
    prop::collection::vec((after_ms, what).prop_map(|(after_ms, what)| Step { after_ms, what }), 1..80)
}

prop_compose! {
    fn rules()(
        window_ms in prop_oneof![Just(0_u64), 1..3_000_u64],
        max_size in 1..6_u32,
        max_wait_ms in prop::option::of(1..5_000_u64),
        is_grouped in any::<bool>(),
        dedupe_ms in prop::option::of(1..4_000_u64),
        keep in prop::sample::select(Keep::VARIANTS.to_vec()),
        rate in prop::option::of((1..4_u32, 1..6_000_u64)),
        is_critical in prop::bool::weighted(0.1),
        escalate_at in prop::option::weighted(0.3, Just(Severity::Critical)),
        has_condition in any::<bool>(),
    ) -> Subscriber {
        let mut rule = rule();
        rule.batching.window = Duration::from_millis(window_ms);
        rule.batching.max_size = NonZeroU32::new(max_size).expect("not zero");
        if let Some(max_wait_ms) = max_wait_ms {
            rule.batching.mode = BatchMode::Debounce { max_wait: Duration::from_millis(max_wait_ms) };
        }
        if is_grouped {
            rule.batching.group_by = vec![field("payload.tool")];
        }
        rule.dedupe = dedupe_ms.map(|ms| DedupeRule {
            key: vec![field("payload.tool")],
            ignore: Vec::new(),
            window: Duration::from_millis(ms),
            keep,
        });
        rule.rate = rate.map(|(count, per_ms)| RateRule::from(Rate {
            count: NonZeroU32::new(count).expect("not zero"),
            per: Duration::from_millis(per_ms),
        }));
        if is_critical {
            rule.output.priority = Priority::Critical;
        }
        rule.output.escalate_at = escalate_at;
        if has_condition {
            rule.condition = Some(Condition::compile("payload.number != 3").expect("an expression"));
        }
        rule
    }
}

proptest! {
    #[test]
    fn pipeline_matches_the_model_and_ends_every_event(rule in rules(), steps in steps()) {
        let (mut pipeline, mut model) = (Pipeline::new(Arc::new(rule)), Model::default());
        let (resources, mut ms, mut seen) = (resources(), 0, Vec::new());
        let rule = Arc::clone(pipeline.rule());
        for (seq, step) in (1..).map(Seq).zip(&steps) {
            ms += step.after_ms;
            let now = at(ms);
            match &step.what {
                What::Happens { scope, .. } => {
                    let event = step.what.event();
                    pipeline.handle(seq, &event, resources, now);
                    model.close_due(&rule, now);
                    model.handle(&rule, seq, &event, scope, now);
                }
                What::Timer => {
                    pipeline.handle_timeout(resources, now);
                    model.close_due(&rule, now);
                }
                What::Exchange(scope) => {
                    pipeline.close(&|open| open == scope, resources, now);
                    model.close_due(&rule, now);
                    model.close(&rule, now, |open| open.scope == *scope);
                }
            }
            seen.extend(outcomes(&drain(&mut pipeline)));
            prop_assert_eq!(&seen, &model.seen, "after {}", seq);
            prop_assert_eq!(pipeline.poll_timeout(), model.open.iter().map(|open| open.ends_at).min());
            prop_assert_eq!(rows(&pipeline), model.rows());
            for scope in [Scope::All, Scope::Workspace("/w".into()), session("s1"), session("s2")] {
                prop_assert_eq!(pipeline.deferred.peek(&scope), model.deferred(&scope));
            }
        }
        pipeline.handle_timeout(resources, at(ms + 10_000));
        seen.extend(outcomes(&drain(&mut pipeline)));
        prop_assert_eq!(pipeline.poll_timeout(), None);
        prop_assert_eq!(ends(&seen), happened(&steps));
    }

    #[test]
    fn a_late_or_missing_timer_changes_nothing(rule in rules(), steps in steps()) {
        let rule = Arc::new(rule);
        let run = |is_punctual: bool| {
            let mut pipeline = Pipeline::new(Arc::clone(&rule));
            let (resources, mut ms) = (resources(), 0);
            for (seq, step) in (1..).map(Seq).zip(&steps) {
                ms += step.after_ms;
                while let Some(due) = pipeline.poll_timeout().filter(|due| is_punctual && *due <= at(ms)) {
                    pipeline.handle_timeout(resources, due);
                }
                if let What::Happens { .. } = step.what {
                    pipeline.handle(seq, &step.what.event(), resources, at(ms));
                }
            }
            pipeline.close(&|_| true, resources, at(ms + 10_000));
            drain(&mut pipeline)
        };
        prop_assert_eq!(run(true), run(false));
    }
}

impl What {
    fn event(&self) -> Arc<Event> {
        let Self::Happens { scope, tool, severity, own_key, number } = self else {
            return event("");
        };
        let mut event = (*event(&format!(r#""tool":"{}","number":{number}"#, TOOLS[*tool]))).clone();
        set_scope(&mut event, scope);
        event.severity = *severity;
        event.dedupe_key = own_key.map(|is_first| if is_first { "grep".into() } else { "own".into() });
        Arc::new(event)
    }
}

/// The waiting rows: the event that opened each, its count, and the number of the event it shows.
fn rows(pipeline: &Pipeline) -> Vec<(Seq, u32, u64)> {
    let row = |row: &Row| (row.seq, row.repeats, number(&row.event));
    let mut rows: Vec<_> = pipeline.batcher.rows().map(row).collect();
    rows.sort_unstable();
    rows
}

fn number(event: &Event) -> u64 {
    event.payload.value()["number"].as_u64().expect("a number")
}

/// The ended events, each as often as it ended.
fn ends(seen: &[Outcome]) -> Vec<Seq> {
    let of = |outcome: &Outcome| match outcome {
        Outcome::Delivered(_, seqs) => seqs.clone(),
        Outcome::Ended(seq, _) => vec![*seq],
        Outcome::Waits(_) => Vec::new(),
    };
    let mut ends: Vec<Seq> = seen.iter().flat_map(of).collect();
    ends.sort_unstable();
    ends
}

fn happened(steps: &[Step]) -> Vec<Seq> {
    let is_event = |step: &Step| matches!(step.what, What::Happens { .. });
    (1..).map(Seq).zip(steps).filter(|(_, step)| is_event(step)).map(|(seq, _)| seq).collect()
}

/// A simple pipeline.
#[derive(Default)]
struct Model {
    firsts: Vec<(String, Seq, Timestamp)>,
    open: Vec<ModelBatch>,
    /// For each scope: the millisecond up to which its tokens are counted, and the parts of tokens
    /// at that time. A token has as many parts as the rate's period has milliseconds.
    tokens: Vec<(Scope, u64, u64)>,
    deferred: Vec<(Scope, DeferredCounts)>,
    seen: Vec<Outcome>,
}

#[derive(Clone)]
struct ModelBatch {
    scope: Scope,
    group: String,
    rows: Vec<(Seq, u32, u64)>,
    opened_at: Timestamp,
    ends_at: Timestamp,
}

impl Model {
    fn handle(&mut self, rule: &Subscriber, seq: Seq, event: &Event, scope: &Scope, now: Timestamp) {
        if event.severity < Severity::Warning {
            return self.end(seq, Reason::FilteredOut(FilteredBy::Severity));
        }
        if rule.condition.is_some() && event.payload.value()["number"] == 3 {
            return self.end(seq, Reason::FilteredOut(FilteredBy::Where));
        }
        let escalates = rule.output.escalate_at.is_some_and(|least| event.severity >= least);
        let tool = event.payload.value()["tool"].as_str().expect("a text").to_owned();
        let is_alone = escalates
            || rule.output.priority == Priority::Critical
            || rule.batching.window.is_zero()
            || rule.batching.max_size == NonZeroU32::MIN;
        if let Some(dedupe) = &rule.dedupe {
            let key = format!("{scope:?} {escalates} {:?} {tool}", event.dedupe_key);
            let key = event.dedupe_key.as_ref().map_or(key, |own| format!("{scope:?} {escalates} own {own}"));
            let is_equal =
                |(first, _, at): &&(String, Seq, Timestamp)| *first == key && now < *at + dedupe.window;
            if let Some(index) = self.firsts.iter().position(|first| is_equal(&first)) {
                let of = self.firsts[index].1;
                let is_new_again = dedupe.keep == Keep::Newest && !is_alone && !self.has_row(of);
                if !is_new_again {
                    self.count_repeat(rule, event, scope, of, now);
                    return self.end(seq, Reason::Duplicate { of });
                }
                self.firsts.remove(index);
            }
            self.firsts.push((key, seq, now));
        }
        let row = (seq, 1, number(event));
        if is_alone {
            return self.leave(rule, scope, &[row], now, escalates);
        }
        let group = if rule.batching.group_by.is_empty() { String::new() } else { tool };
        self.collect(rule, row, scope, group, now);
    }

    fn has_row(&self, seq: Seq) -> bool {
        self.open.iter().flat_map(|open| &open.rows).any(|row| row.0 == seq)
    }

    fn collect(
        &mut self,
        rule: &Subscriber,
        row: (Seq, u32, u64),
        scope: &Scope,
        group: String,
        now: Timestamp,
    ) {
        let same = |open: &ModelBatch| open.scope == *scope && open.group == group;
        let index = self.open.iter().position(same).unwrap_or_else(|| {
            let scope = scope.clone();
            self.open.push(ModelBatch { scope, group, rows: Vec::new(), opened_at: now, ends_at: now });
            self.open.len() - 1
        });
        let open = &mut self.open[index];
        let seq = row.0;
        open.rows.push(row);
        if open.rows.len() == usize::try_from(rule.batching.max_size.get()).expect("small") {
            let full = self.open.remove(index);
            return self.leave(rule, &full.scope, &full.rows, now, false);
        }
        if open.rows.len() == 1 {
            open.ends_at = now + rule.batching.window;
        }
        open.restart(rule, now);
        self.seen.push(Outcome::Waits(seq));
    }

    fn count_repeat(&mut self, rule: &Subscriber, event: &Event, scope: &Scope, of: Seq, now: Timestamp) {
        let keep = rule.dedupe.as_ref().map(|dedupe| dedupe.keep);
        for open in &mut self.open {
            if let Some(row) = open.rows.iter_mut().find(|row| row.0 == of) {
                row.1 += 1;
                if keep == Some(Keep::Newest) {
                    row.2 = number(event);
                }
                return open.restart(rule, now);
            }
        }
        self.deferred_mut(scope).repeats += 1;
    }

    fn close_due(&mut self, rule: &Subscriber, now: Timestamp) {
        while let Some(ends_at) = self.open.iter().map(|open| open.ends_at).min().filter(|end| *end <= now) {
            self.close(rule, ends_at, |open| open.ends_at == ends_at);
        }
    }

    fn close(&mut self, rule: &Subscriber, now: Timestamp, wanted: impl Fn(&ModelBatch) -> bool) {
        let mut closed: Vec<_> = self.open.iter().filter(|open| wanted(open)).cloned().collect();
        self.open.retain(|open| !wanted(open));
        closed.sort_by_key(|open| (open.ends_at, open.scope.clone(), open.group.clone()));
        for open in closed {
            self.leave(rule, &open.scope, &open.rows, now, false);
        }
    }

    fn leave(
        &mut self,
        rule: &Subscriber,
        scope: &Scope,
        rows: &[(Seq, u32, u64)],
        now: Timestamp,
        escalates: bool,
    ) {
        let limit = rule.rate.as_ref().map(|rule| rule.rate);
        if let Some(retry_at) = limit.filter(|_| !escalates).and_then(|rate| self.take(rate, scope, now)) {
            self.deferred_mut(scope).suppressed += rows.iter().map(|row| row.1).sum::<u32>();
            for (seq, _, _) in rows {
                self.end(*seq, Reason::RateLimited { retry_at });
            }
            return;
        }
        *self.deferred_mut(scope) = DeferredCounts::default();
        self.seen.push(Outcome::Delivered(now, rows.iter().map(|row| row.0).collect()));
    }

    /// Adds the tokens of each millisecond, one by one, then takes one.
    fn take(&mut self, rate: Rate, scope: &Scope, now: Timestamp) -> Option<Timestamp> {
        let (count, per_ms) = (u64::from(rate.count.get()), duration_ms(rate.per));
        let index = self.tokens.iter().position(|known| known.0 == *scope).unwrap_or_else(|| {
            self.tokens.push((scope.clone(), now.as_millis(), count * per_ms));
            self.tokens.len() - 1
        });
        let (_, counted_ms, level) = &mut self.tokens[index];
        while *counted_ms < now.as_millis() {
            *counted_ms += 1;
            *level = (*level + count).min(count * per_ms);
        }
        if *level >= per_ms {
            *level -= per_ms;
            return None;
        }
        (1..).find(|wait_ms| *level + wait_ms * count >= per_ms).map(|wait_ms| at(now.as_millis() + wait_ms))
    }

    fn end(&mut self, seq: Seq, reason: Reason) {
        self.seen.push(ended(seq.0, reason));
    }

    fn rows(&self) -> Vec<(Seq, u32, u64)> {
        let mut rows: Vec<_> = self.open.iter().flat_map(|open| open.rows.clone()).collect();
        rows.sort_unstable();
        rows
    }

    fn deferred(&self, scope: &Scope) -> DeferredCounts {
        self.deferred.iter().find(|known| known.0 == *scope).map(|known| known.1).unwrap_or_default()
    }

    fn deferred_mut(&mut self, scope: &Scope) -> &mut DeferredCounts {
        let index = self.deferred.iter().position(|known| known.0 == *scope).unwrap_or_else(|| {
            self.deferred.push((scope.clone(), DeferredCounts::default()));
            self.deferred.len() - 1
        });
        &mut self.deferred[index].1
    }
}

impl ModelBatch {
    fn restart(&mut self, rule: &Subscriber, now: Timestamp) {
        if let BatchMode::Debounce { max_wait } = rule.batching.mode {
            self.ends_at = (now + rule.batching.window).min(self.opened_at + max_wait);
        }
    }
}

fn duration_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("small")
}
