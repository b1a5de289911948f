//! Tests a subscriber with a few events, in simulated milliseconds; of the renderer only its input.

mod fixtures;

use std::{num::NonZeroU32, time::Duration};

pub(super) use self::fixtures::{at, event, field, resources, rule, session, set_scope};

use super::*;
use crate::{
    event::{SessionId, Severity},
    notification::{
        Activation, InjectionPoint, Interrupt, Nature, Notification, NotificationId, Priority, RegionUse,
        SubscriberId, Tokens,
    },
    pipeline::{
        condition::Condition,
        making::{notification_id, render_input},
        render::Layout,
        row::raw_bytes,
        rule::{BatchMode, DedupeRule, Keep},
    },
    rate::Rate,
};

#[test]
fn a_single_event_is_delivered_at_window_end() {
    let mut run = Run::new(rule());
    run.event(1, 100, "");
    assert_eq!(run.outcomes(), [waits(1)]);
    assert_eq!(run.pipeline.poll_timeout(), Some(at(2_100)));
    run.advance(2_100);
    let outputs = run.outputs();
    let [PipelineOutput::Notification(notification)] = &outputs[..] else { panic!("{outputs:?}") };
    let expected = Notification {
        id: NotificationId::new("na4f26f71a068"),
        subscriber: SubscriberId::new("tool_failure"),
        scope: Scope::All,
        priority: Priority::High,
        inject_at: InjectionPoint::AfterTool,
        activation: Activation::Passive,
        is_asked: false,
        interrupt: Interrupt::InjectAndContinue,
        nature: Nature::Occurrence,
        untrusted_source: None,
        rows_name_sources: false,
        severity: Severity::Warning,
        content: notification.content.clone(),
        sentences: Vec::new(),
        tokens: notification.tokens,
        raw_bytes: 2,
        states: Vec::new(),
        unresolved: Vec::new(),
        events: vec![Seq(1)],
        created_at: at(2_100),
        expires_at: Some(at(62_100)),
        delays: Box::default(),
        retain_until: None,
        requires_response: false,
        repeat: None,
        region: RegionUse::Also,
        charged_to: Box::default(),
        summarised: None,
    };
    assert_eq!(**notification, expected);
    assert_eq!(run.pipeline.poll_timeout(), None);
}

#[test]
fn a_failing_sentence_is_reported_and_left_out() {
    let mut rule = rule();
    let sentence = render::Sentence::compile("{{ type }} {{ [1] / 2 }}", &render::Libraries::default())
        .expect("a sentence");
    rule.output.sentence = Some(Arc::new(sentence));
    let mut run = Run::new(rule);
    run.event(1, 100, "");
    run.advance(2_100);
    let outputs = run.outputs();
    let [_, PipelineOutput::Failed(failure), PipelineOutput::Notification(made)] = outputs.as_slice() else {
        panic!("{outputs:?}");
    };
    assert_eq!((&failure.part, failure.line), (&FailedPart::Sentence, Some(1)));
    assert!(made.sentences.is_empty() && !made.content.is_empty());
}

#[test]
fn three_equal_events_are_one_row() {
    let mut run = Run::new(rule());
    for (seq, ms) in [(1, 0), (2, 500), (3, 1_000)] {
        run.event(seq, ms, r#""tool":"grep""#);
    }
    assert_eq!(run.rows(), [(1, 3)]);
    run.advance(2_000);
    assert_eq!(run.outcomes(), [waits(1), duplicate(2, 1), duplicate(3, 1), delivered(2_000, &[1])]);
}

#[test]
fn repeats_after_delivery_count_in_the_next_notification() {
    let mut run = Run::new(rule());
    run.event(1, 0, r#""tool":"grep""#);
    run.advance(2_000);
    run.event(2, 3_000, r#""tool":"grep""#);
    assert_eq!(run.deferred(), DeferredCounts { repeats: 1, suppressed: 0 });
    run.event(3, 3_100, r#""tool":"fetch""#);
    run.advance(6_000);
    assert_eq!(run.deferred(), DeferredCounts::default());
    run.event(4, 6_000, r#""tool":"grep""#);
    let expected =
        [waits(1), delivered(2_000, &[1]), duplicate(2, 1), waits(3), delivered(5_100, &[3]), waits(4)];
    assert_eq!(run.outcomes(), expected);
}

#[test]
fn raw_bytes_cover_repeats_and_deferred_counts() {
    let row = |seq, payload, repeats| Row {
        seq: Seq(seq),
        event: event(payload),
        repeats,
        threshold: None,
        suppressed: None,
    };
    let rows = [row(1, r#""tool":"grep""#, 3), row(2, r#""tool":"a""#, 1)];
    assert_eq!(raw_bytes(&rows, DeferredCounts::default()), 3 * 15 + 12);
    assert_eq!(raw_bytes(&rows, DeferredCounts { repeats: 4, suppressed: 6 }), 3 * 15 + 12 + 10 * 13);
    assert_eq!(raw_bytes(&[], DeferredCounts { repeats: 1, suppressed: 0 }), 0);
}

#[test]
fn the_renderer_is_given_rows_and_both_counts() {
    let rule = rule();
    let batch = Batch::alone(
        Scope::All,
        Row { seq: Seq(1), event: event(""), repeats: 4, threshold: None, suppressed: None },
        at(7),
    );
    let input = render_input(&rule, &batch, DeferredCounts { repeats: 2, suppressed: 3 });
    let rows: Vec<_> = input.rows.iter().map(|row| (row.seq.0, row.repeats)).collect();
    assert_eq!((rows, input.repeats, input.suppressed), (vec![(1, 4)], 2, 3));
    assert_eq!((input.subscriber.as_str(), input.subscriber_name), ("tool_failure", "Tool failures"));
    assert_eq!((input.now, input.max_tokens), (at(7), Tokens(200)));
}

#[test]
fn twelve_events_form_batches_of_ten_and_two() {
    let mut run = Run::new(rule());
    for seq in 1..=12 {
        run.event(seq, 0, &format!(r#""tool":"t{seq}""#));
    }
    run.advance(2_000);
    let delivered_rows: Vec<_> =
        run.outcomes().into_iter().filter(|outcome| matches!(outcome, Outcome::Delivered(..))).collect();
    assert_eq!(delivered_rows, [delivered(0, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]), delivered(2_000, &[11, 12])]);
}

#[test]
fn debounce_restarts_until_max_wait_ends_the_batch() {
    let mut rule = rule();
    rule.batching.mode = BatchMode::Debounce { max_wait: Duration::from_millis(4_000) };
    let mut run = Run::new(rule);
    for (seq, ms, tool) in [(1, 0, "a"), (2, 1_500, "b"), (3, 3_000, "a"), (4, 3_900, "c")] {
        run.event(seq, ms, &format!(r#""tool":"{tool}""#));
    }
    run.event(5, 4_000, r#""tool":"d""#);
    run.advance(6_000);
    let expected = [
        waits(1),
        waits(2),
        duplicate(3, 1),
        waits(4),
        delivered(4_000, &[1, 2, 4]),
        waits(5),
        delivered(6_000, &[5]),
    ];
    assert_eq!(run.outcomes(), expected);
}

#[test]
fn groups_and_scopes_are_kept_apart() {
    let mut rule = rule();
    rule.batching.group_by = vec![field("payload.tool")];
    let mut run = Run::new(rule);
    let (one, other) = (session("s1"), session("s2"));
    run.scoped(1, 0, r#""tool":"b""#, &one);
    run.scoped(2, 0, r#""tool":"a","n":1"#, &one);
    run.scoped(3, 0, r#""tool":"b""#, &other);
    run.scoped(4, 0, r#""tool":"a""#, &Scope::Workspace("/w".into()));
    run.scoped(5, 0, r#""tool":"a""#, &Scope::All);
    run.scoped(6, 1, r#""tool":"b""#, &one);
    run.advance(2_000);
    let notifications = run.notifications();
    let shapes: Vec<_> = notifications.iter().map(|made| (made.scope.clone(), made.events.clone())).collect();
    let expected = [
        (one.clone(), vec![Seq(2)]),
        (one, vec![Seq(1)]),
        (other, vec![Seq(3)]),
        (Scope::Workspace("/w".into()), vec![Seq(4)]),
        (Scope::All, vec![Seq(5)]),
    ];
    assert_eq!(shapes, expected);
}

#[test]
fn filtered_events_name_their_filter() {
    let mut rule = rule();
    rule.sources = vec!["tool_executor".into()];
    rule.condition = Some(Condition::compile("payload.n + 1 > 2").expect("an expression"));
    let mut run = Run::new(rule);
    let mut send = |seq, source: &str, severity, fields: &str| {
        let event = Event { source: source.into(), severity, ..(*event(fields)).clone() };
        run.pipeline.handle(Seq(seq), &Arc::new(event), resources(), at(0));
    };
    send(1, "fs", Severity::Debug, r#""n":5"#);
    send(2, "tool_executor", Severity::Info, r#""n":5"#);
    send(3, "tool_executor", Severity::Warning, r#""n":1"#);
    send(4, "tool_executor", Severity::Warning, r#""n":[]"#);
    send(5, "tool_executor", Severity::Warning, r#""n":{}"#);
    send(6, "tool_executor", Severity::Warning, r#""n":5"#);
    let mut outputs = run.outputs();
    let PipelineOutput::Failed(failure) = outputs.remove(3) else { panic!("a failure is said first") };
    assert_eq!((failure.part, failure.line), (FailedPart::Condition, None));
    assert!(failure.message.starts_with("invalid operation"), "{}", failure.message);
    let filtered = |seq, by| ended(seq, Reason::FilteredOut(by));
    let expected = [
        filtered(1, FilteredBy::Source),
        filtered(2, FilteredBy::Severity),
        filtered(3, FilteredBy::Where),
        filtered(4, FilteredBy::WhereFailed),
        filtered(5, FilteredBy::WhereFailed),
        waits(6),
    ];
    assert_eq!(outcomes(&outputs), expected);
}

#[test]
fn escalation_delivers_an_event_immediately_and_once() {
    let mut rule = rule();
    rule.output.escalate_at = Some(Severity::Error);
    rule.rate = Some(Rate { count: NonZeroU32::MIN, per: Duration::from_secs(60) }.into());
    let mut run = Run::new(rule);
    run.event(1, 0, r#""tool":"grep""#);
    run.severe(2, 100, Severity::Error, r#""tool":"grep""#);
    run.severe(3, 200, Severity::Critical, r#""tool":"grep""#);
    run.severe(4, 300, Severity::Critical, r#""tool":"fetch""#);
    run.severe(5, 400, Severity::Debug, r#""tool":"fetch""#);
    run.event(6, 500, r#""tool":"grep""#);
    assert_eq!(run.rows(), [(1, 2)]);
    let outputs = run.outputs();
    let urgency: Vec<_> = notifications(&outputs).map(|made| (made.priority, made.inject_at)).collect();
    assert_eq!(urgency, [(Priority::Critical, InjectionPoint::Immediate); 2]);
    let expected = [
        waits(1),
        delivered(100, &[2]),
        duplicate(3, 2),
        delivered(300, &[4]),
        ended(5, Reason::FilteredOut(FilteredBy::Severity)),
        duplicate(6, 1),
    ];
    assert_eq!(outcomes(&outputs), expected);
}

#[test]
fn a_critical_subscriber_waits_for_no_batch() {
    let mut rule = rule();
    rule.output.priority = Priority::Critical;
    rule.output.inject_at = InjectionPoint::Immediate;
    let mut run = Run::new(rule);
    run.event(1, 0, r#""tool":"grep""#);
    run.event(2, 1, r#""tool":"fetch""#);
    run.event(3, 2, r#""tool":"grep""#);
    assert_eq!(run.outcomes(), [delivered(0, &[1]), delivered(1, &[2]), duplicate(3, 1)]);
}

#[test]
fn untrusted_events_are_batched_even_for_critical_subscribers() {
    let mut rule = rule();
    rule.output.priority = Priority::Critical;
    rule.output.inject_at = InjectionPoint::Immediate;
    let mut run = Run::new(rule);
    for seq in 1..=3 {
        let mut event = (*event(&format!(r#""tool":"t{seq}""#))).clone();
        event.provenance = crate::event::Provenance::Remote;
        run.pipeline.handle(Seq(seq), &Arc::new(event), resources(), at(0));
    }
    run.advance(2_000);
    assert_eq!(run.outcomes(), [waits(1), waits(2), waits(3), delivered(2_000, &[1, 2, 3])]);
}

#[test]
fn rate_limited_events_count_in_the_next_notification() {
    let mut rule = rule();
    rule.rate = Some(Rate { count: NonZeroU32::MIN, per: Duration::from_secs(10) }.into());
    let mut run = Run::new(rule);
    run.event(1, 0, r#""tool":"a""#);
    run.event(2, 3_000, r#""tool":"b""#);
    run.event(3, 3_500, r#""tool":"b""#);
    run.event(4, 3_500, r#""tool":"c""#);
    run.scoped(5, 3_600, r#""tool":"c""#, &session("s1"));
    run.advance(7_000);
    assert_eq!(run.deferred(), DeferredCounts { repeats: 0, suppressed: 3 });
    run.event(6, 11_000, r#""tool":"d""#);
    run.advance(13_000);
    assert_eq!(run.deferred(), DeferredCounts::default());
    let over = Reason::RateLimited { retry_at: at(12_000) };
    let expected = [
        waits(1),
        delivered(2_000, &[1]),
        waits(2),
        duplicate(3, 2),
        waits(4),
        waits(5),
        ended(2, over.clone()),
        ended(4, over),
        delivered(5_600, &[5]),
        waits(6),
        delivered(13_000, &[6]),
    ];
    assert_eq!(run.outcomes(), expected);
}

#[test]
fn producer_keys_are_ignored_without_dedupe() {
    let mut rule = rule();
    rule.dedupe = None;
    let mut run = Run::new(rule);
    let own = Arc::new(Event { dedupe_key: Some("same".into()), ..(*event("")).clone() });
    for seq in 1..=2 {
        run.pipeline.handle(Seq(seq), &own, resources(), at(0));
    }
    assert_eq!(run.rows(), [(1, 1), (2, 1)]);
}

#[test]
fn an_events_own_key_goes_before_the_rules() {
    let mut run = Run::new(rule());
    for (seq, tool, own) in [(1, "a", "same"), (2, "b", "same"), (3, "a", "other")] {
        let fields = event(&format!(r#""tool":"{tool}""#));
        let event = Event { dedupe_key: Some(own.into()), ..(*fields).clone() };
        run.pipeline.handle(Seq(seq), &Arc::new(event), resources(), at(0));
    }
    assert_eq!(run.rows(), [(1, 2), (3, 1)]);
}

#[test]
fn an_exchange_closes_matching_batches_shutdown_closes_all() {
    let mut run = Run::new(rule());
    let (one, other) = (session("s1"), session("s2"));
    run.scoped(1, 0, "", &one);
    run.scoped(2, 0, "", &other);
    run.event(3, 0, "");
    run.pipeline.close(&|scope| scope.concerns(&SessionId::new("s1"), None), resources(), at(700));
    assert_eq!(run.rows(), [(2, 1)]);
    run.pipeline.close(&|_| true, resources(), at(9_000));
    let delivered: Vec<_> =
        run.notifications().iter().map(|made| (made.created_at, made.events.clone())).collect();
    assert_eq!(delivered, [(at(700), vec![Seq(1)]), (at(700), vec![Seq(3)]), (at(2_000), vec![Seq(2)])]);
}

#[test]
fn failing_template_loses_no_event_and_reports_once() {
    let mut rule = rule();
    rule.output.layout = Layout::Template("missing".into());
    rule.batching.window = Duration::ZERO;
    rule.dedupe = None;
    let mut run = Run::new(rule);
    for seq in 1..=3 {
        run.event(seq, seq * 100_000, "");
    }
    let outputs: Vec<_> = std::iter::from_fn(|| run.pipeline.poll_output()).collect();
    let failed = outputs.iter().filter(|output| matches!(output, PipelineOutput::Failed(_))).count();
    assert_eq!((failed, notifications(&outputs).count()), (1, 3));
    assert!(matches!(
        &outputs[0],
        PipelineOutput::Failed(Failure { part: FailedPart::Template(name), .. }) if **name == *"missing"
    ));
    run.pipeline.replace_rule(Arc::clone(run.pipeline.rule()), &Zone::default(), at(300_000));
    run.event(4, 400_000, "");
    assert!(matches!(run.pipeline.poll_output(), Some(PipelineOutput::Failed(_))));
}

#[test]
fn new_rules_preserve_rows_counts_and_windows() {
    let mut run = Run::new(rule());
    run.event(1, 0, r#""tool":"a""#);
    run.advance(2_000);
    run.event(2, 2_500, r#""tool":"a""#);
    run.event(3, 2_600, r#""tool":"b""#);
    let mut newer = rule();
    newer.batching.window = Duration::from_millis(500);
    newer.output.priority = Priority::Low;
    run.pipeline.replace_rule(Arc::new(newer), &Zone::default(), at(2_600));
    run.event(4, 2_700, r#""tool":"b""#);
    run.event(5, 2_800, r#""tool":"c""#);
    assert_eq!((run.rows(), run.deferred().repeats), (vec![(3, 2), (5, 1)], 1));
    run.advance(4_600);
    let outputs = run.outputs();
    assert_eq!(notifications(&outputs).last().map(|made| made.priority), Some(Priority::Low));
    let expected = [
        waits(1),
        delivered(2_000, &[1]),
        duplicate(2, 1),
        waits(3),
        duplicate(4, 3),
        waits(5),
        delivered(4_600, &[3, 5]),
    ];
    assert_eq!(outcomes(&outputs), expected);
}

#[test]
fn a_key_of_other_fields_makes_events_new() {
    let mut run = Run::new(rule());
    run.event(1, 0, r#""tool":"a""#);
    let mut newer = rule();
    let (key, window) = (vec![field("type")], Duration::from_millis(5_000));
    newer.dedupe = Some(DedupeRule { key, ignore: Vec::new(), window, keep: Keep::First });
    run.pipeline.replace_rule(Arc::new(newer), &Zone::default(), at(0));
    run.event(2, 1, r#""tool":"a""#);
    run.event(3, 2, r#""tool":"b""#);
    assert_eq!(run.rows(), [(1, 1), (2, 2)]);
}

#[test]
fn notification_ids_depend_on_subscriber_and_events() {
    let (one, mut other) = (rule(), rule());
    other.id = SubscriberId::new("other");
    let id = notification_id(&one, &[Seq(1), Seq(2)], "e1");
    assert_eq!(id, notification_id(&rule(), &[Seq(1), Seq(2)], "e1"));
    assert_ne!(id, notification_id(&other, &[Seq(1), Seq(2)], "e1"));
    assert_ne!(id, notification_id(&one, &[Seq(1)], "e1"));
    let after_a_loss = notification_id(&one, &[Seq(1), Seq(2)], "e9");
    assert_ne!(id, after_a_loss, "another event has the position of one that was lost");
}

/// A pipeline under test.
struct Run {
    pipeline: Pipeline,
}

impl Run {
    fn new(rule: Subscriber) -> Self {
        Self { pipeline: Pipeline::new(Arc::new(rule)) }
    }

    fn event(&mut self, seq: u64, ms: u64, fields: &str) {
        self.pipeline.handle(Seq(seq), &event(fields), resources(), at(ms));
    }

    fn severe(&mut self, seq: u64, ms: u64, severity: Severity, fields: &str) {
        let event = Event { severity, ..(*event(fields)).clone() };
        self.pipeline.handle(Seq(seq), &Arc::new(event), resources(), at(ms));
    }

    fn scoped(&mut self, seq: u64, ms: u64, fields: &str, scope: &Scope) {
        let mut event = (*event(fields)).clone();
        set_scope(&mut event, scope);
        self.pipeline.handle(Seq(seq), &Arc::new(event), resources(), at(ms));
    }

    fn advance(&mut self, ms: u64) {
        self.pipeline.handle_timeout(resources(), at(ms));
    }

    fn outputs(&mut self) -> Vec<PipelineOutput> {
        drain(&mut self.pipeline)
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        outcomes(&self.outputs())
    }

    fn notifications(&mut self) -> Vec<Notification> {
        notifications(&self.outputs()).cloned().collect()
    }

    /// The rows of all open batches, with their repeats.
    fn rows(&self) -> Vec<(u64, u32)> {
        let mut rows: Vec<_> = self.pipeline.batcher.rows().map(|row| (row.seq.0, row.repeats)).collect();
        rows.sort_unstable();
        rows
    }

    /// The deferred counts for everybody.
    fn deferred(&self) -> DeferredCounts {
        self.pipeline.deferred.peek(&Scope::All)
    }
}

/// An output without the details that other outputs of the test already show.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Outcome {
    Delivered(Timestamp, Vec<Seq>),
    Waits(Seq),
    Ended(Seq, String),
}

pub(super) fn outcomes(outputs: &[PipelineOutput]) -> Vec<Outcome> {
    let outcome = |output: &PipelineOutput| match output {
        PipelineOutput::Notification(made) => Outcome::Delivered(made.created_at, made.events.clone()),
        PipelineOutput::Batched { seq } => Outcome::Waits(*seq),
        PipelineOutput::Ended { seq, reason } => ended(seq.0, reason.clone()),
        PipelineOutput::Failed(_)
        | PipelineOutput::Said { .. }
        | PipelineOutput::Resolved(_)
        | PipelineOutput::Holds(_)
        | PipelineOutput::Unseen(_)
        | PipelineOutput::Events { .. } => {
            panic!("unexpected {output:?}")
        }
    };
    outputs.iter().map(outcome).collect()
}

/// All outputs except the reports of the missing template: these tests have no templates, and their
/// results do not depend on them.
pub(super) fn drain(pipeline: &mut Pipeline) -> Vec<PipelineOutput> {
    let is_missing_template = |output: &PipelineOutput| {
        matches!(output, PipelineOutput::Failed(Failure { part: FailedPart::Template(_), .. }))
    };
    let is_known = |output: &PipelineOutput| matches!(output, PipelineOutput::Events { .. });
    let outputs = std::iter::from_fn(|| pipeline.poll_output());
    outputs.filter(|output| !is_missing_template(output) && !is_known(output)).collect()
}

fn notifications(outputs: &[PipelineOutput]) -> impl Iterator<Item = &Notification> {
    outputs.iter().filter_map(|output| match output {
        PipelineOutput::Notification(made) => Some(&**made),
        PipelineOutput::Batched { .. }
        | PipelineOutput::Ended { .. }
        | PipelineOutput::Said { .. }
        | PipelineOutput::Resolved(_)
        | PipelineOutput::Holds(_)
        | PipelineOutput::Unseen(_)
        | PipelineOutput::Events { .. }
        | PipelineOutput::Failed(_) => None,
    })
}

fn delivered(ms: u64, seqs: &[u64]) -> Outcome {
    Outcome::Delivered(at(ms), seqs.iter().copied().map(Seq).collect())
}

fn waits(seq: u64) -> Outcome {
    Outcome::Waits(Seq(seq))
}

pub(super) fn ended(seq: u64, reason: Reason) -> Outcome {
    Outcome::Ended(Seq(seq), format!("{reason:?}"))
}

fn duplicate(seq: u64, of: u64) -> Outcome {
    ended(seq, Reason::Duplicate { of: Seq(of) })
}
