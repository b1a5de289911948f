//! The API's views of the engine, read between two records; changes nothing.

use std::{collections::BTreeMap, sync::Arc};

use super::fold::Fold;
use engine::{
    Engine,
    conversation::{SessionView as OpenSession, injector::PendingView as PendingNotification},
    ledger::{SubscriberTally, Word},
    notification::{Notification, Priority},
    pipeline::rule::Activity,
    sorted::SortedMap,
};
use journal::{
    Journal,
    time::{Timestamp, duration_millis},
};

use crate::{
    api::{
        Outstanding, PageStart, Query, Waiting, WaitingPage, WaitingPlace,
        wire::{
            harness::HarnessView,
            history::ProjectionView,
            views::{
                ConfigView, DiskView, EventCounts, FailingView, JournalView, NotificationCounts, QueueView,
                RulesView, SessionCounts, SessionView, StatusView, SubscriberCounts, TokenCounts,
            },
        },
    },
    config::daemon::{Durability, DurabilityKind},
    daemon::version,
    history::Projection,
};

/// Constants of the running daemon, and the projection with its progress.
#[derive(Debug, Clone)]
pub(super) struct About {
    pub(super) started_at: Timestamp,
    /// `sync` or `interval`.
    pub(super) durability: &'static str,
    pub(super) projection: Projection,
}

impl About {
    pub(super) fn new(started_at: Timestamp, durability: Durability, projection: Projection) -> Self {
        Self { started_at, durability: DurabilityKind::from(durability).into(), projection }
    }
}

/// Answers a query; the requester may be gone.
pub(super) fn answer(
    query: Query,
    fold: &Fold,
    about: &About,
    journal: &Journal,
    waiting: usize,
    now: Timestamp,
) {
    let threshold = fold.engine.rules().wake.threshold;
    match query {
        Query::Status(reply) => drop(reply.send(status(fold, about, journal, waiting, now))),
        Query::Rules(reply) => drop(reply.send(Arc::clone(fold.engine.rules()))),
        Query::Sessions(reply) => {
            let sessions = fold.engine.sessions().views();
            drop(reply.send(sessions.map(|open| session(&open, threshold)).collect()));
        }
        Query::Session(id, reply) => {
            drop(reply.send(fold.engine.sessions().view(&id).map(|open| session(&open, threshold))));
        }
        Query::SessionNow(id, reply) => drop(reply.send(fold.engine.sessions().current(&id))),
        Query::IsRelated(own, session, reply) => {
            reply.send(fold.engine.sessions().is_related(&own, &session)).ok();
        }
        Query::Related(own, reply) => drop(reply.send(fold.engine.sessions().related(&own))),
        Query::Named(id, harness, reply) => {
            drop(reply.send(fold.engine.sessions().named(&id, harness.as_deref())))
        }
        Query::Waiting(page, reply) => drop(reply.send(waiting_page(&fold.engine, &page, now))),
        Query::CanDecide(id, notification, decision, reply) => {
            reply.send(fold.engine.sessions().can_decide(id.as_ref(), &notification, decision)).ok();
        }
        Query::WakeSentence(id, reply) => drop(reply.send(fold.engine.wake_sentence(&id))),
        Query::Outstanding(id, reply) => {
            let state = fold.engine.sessions().view(&id).map(|session| Outstanding {
                // Pending broadcasts may need a check.
                check_before_tool: session.injector.check_before_tool()
                    || fold.engine.sessions().is_behind(&id),
                unconfirmed: session.injector.unconfirmed_ids(),
            });
            drop(reply.send(state.unwrap_or_default()));
        }
        Query::SinkVerdict(notice, reply) => drop(reply.send(fold.engine.sink_verdict(&notice).cloned())),
        Query::Question(id, reply) => drop(reply.send(fold.engine.question(&id))),
        Query::Nearest(id, reply) => drop(reply.send(fold.engine.sessions().nearest(&id))),
        Query::Explain(event, reply) => {
            drop(reply.send((fold.engine.explain(&event), named_types(fold))));
        }
    }
}

fn status(fold: &Fold, about: &About, journal: &Journal, waiting: usize, now: Timestamp) -> StatusView {
    StatusView {
        version: version::VERSION.to_owned(),
        build: version::BUILD.to_owned(),
        pid: std::process::id(),
        started_at: about.started_at.to_string(),
        uptime_ms: duration_millis(now.since(about.started_at)),
        clock_ahead_ms: 0,
        journal: journal_view(fold, about, journal),
        projection: projection(&about.projection, journal),
        // The requester looks it up.
        disk: DiskView::default(),
        rules: rules(fold),
        // The requester fills it in.
        config: ConfigView::default(),
        events: events(fold),
        notifications: notifications(fold),
        tokens: TokenCounts::of(fold.engine.tally().injected_tokens, fold.engine.tally().raw_bytes),
        sessions: SessionCounts {
            open: u64::try_from(fold.engine.sessions().views().filter(|session| session.is_open).count())
                .unwrap_or(u64::MAX),
            waiting: u64::try_from(waiting).unwrap_or(u64::MAX),
            unconfirmed: fold
                .engine
                .sessions()
                .views()
                .map(|open| u64::from(open.injector.unconfirmed()))
                .sum(),
            evicted: fold.engine.sessions().evicted(),
        },
        subscribers: subscribers(fold),
    }
}

/// The subscribers' patterns without wildcards.
fn named_types(fold: &Fold) -> Vec<String> {
    let patterns = fold.engine.rules().subscribers.iter().flat_map(|rule| &rule.types);
    patterns.map(ToString::to_string).filter(|pattern| !pattern.contains('*')).collect()
}

fn projection(projection: &Projection, journal: &Journal) -> ProjectionView {
    let seq = projection.progress().projected();
    let behind = journal.written().borrow().0.saturating_sub(seq.0);
    ProjectionView { seq: seq.0, behind, failed: projection.failed() }
}

fn journal_view(fold: &Fold, about: &About, journal: &Journal) -> JournalView {
    JournalView {
        head: journal.written().borrow().0,
        synced: journal.synced().borrow().0,
        applied: fold.applied.0,
        durability: about.durability.to_owned(),
        full: journal.disk_full().map(|full| full.to_string()),
        failed: journal.poisoned().map(|poisoned| poisoned.to_string()),
        problems: journal.health().sentences(),
        // The requester looks up the disk usage.
        ..JournalView::default()
    }
}

fn session(session: &OpenSession<'_>, threshold: Priority) -> SessionView {
    let (pending, top) = session.injector.pending();
    let wake = session.injector.wake(session.state, threshold);
    let queue = QueueView {
        pending,
        top: top.map(|top| top.as_str().to_owned()),
        top_count: top.map_or(0, |top| session.injector.pending_of(top)),
        for_user: session.injector.for_user(),
        wake: wake.as_ref().map(|wake| wake.kind.as_str().to_owned()),
        reason: wake.map(|wake| wake.reason),
        unconfirmed: session.injector.unconfirmed(),
    };
    SessionView {
        id: session.id.to_string(),
        is_open: session.is_open,
        harness: HarnessView::of(session.harness),
        opened_at: session.opened_at.to_string(),
        seen_at: session.last_seen.to_string(),
        state: session.state.as_str().to_owned(),
        queue: Some(queue),
    }
}

/// A page of waiting notifications, and where the next one begins; costs its size plus a check per
/// session.
fn waiting_page(engine: &Engine, page: &WaitingPage, now: Timestamp) -> (Vec<Waiting>, Option<PageStart>) {
    let (mut shown, skip) = match page.from {
        Some(PageStart::Unclaimed { skip }) => (Vec::new(), skip),
        Some(PageStart::Session { .. }) | None => match in_queues(engine, page, now) {
            (shown, None) => (shown, 0),
            full => return full,
        },
    };
    if page.session.is_some() {
        return (shown, None);
    }
    let unclaimed = engine.sessions().unclaimed();
    let end = unclaimed.len().min(skip.saturating_add(page.limit - shown.len()));
    let of_page = unclaimed.get(skip..end).unwrap_or_default();
    shown.extend(of_page.iter().map(|notification| for_next_session(notification, now)));
    (shown, (end < unclaimed.len()).then_some(PageStart::Unclaimed { skip: end }))
}

/// The part of the page in the sessions' queues, and where the next page begins if that is in them.
fn in_queues(engine: &Engine, page: &WaitingPage, now: Timestamp) -> (Vec<Waiting>, Option<PageStart>) {
    let begin = match &page.from {
        Some(PageStart::Session { session, skip }) => Some((session, *skip)),
        Some(PageStart::Unclaimed { .. }) | None => None,
    };
    let is_wanted = |session: &OpenSession<'_>| match (&page.session, begin) {
        (Some(id), _) => id == session.id,
        (None, Some((first, _))) => session.id >= first,
        (None, None) => true,
    };
    let mut shown = Vec::new();
    for session in engine.sessions().views_by_id().filter(is_wanted) {
        let skip = begin.filter(|(first, _)| *first == session.id).map_or(0, |(_, skip)| skip);
        let room = page.limit - shown.len();
        let waiting = session.injector.weight().map_or(0, |(_, count)| count);
        if waiting <= skip {
            continue;
        }
        let next = |skip| Some(PageStart::Session { session: session.id.clone(), skip });
        if room == 0 {
            return (shown, next(skip));
        }
        shown.extend(waiting_in(&session, now).into_iter().skip(skip).take(room));
        if waiting - skip > room {
            return (shown, next(skip + room));
        }
    }
    (shown, None)
}

fn waiting_in(session: &OpenSession<'_>, now: Timestamp) -> Vec<Waiting> {
    let waiting = |PendingNotification { notification, is_for_user, age, redelivered: _ }| {
        let place = if is_for_user { WaitingPlace::User } else { WaitingPlace::Agent };
        Waiting { notification, place: place(session.id.clone()), age }
    };
    session.injector.view(now).pending.into_iter().map(waiting).collect()
}

fn for_next_session(notification: &Arc<Notification>, now: Timestamp) -> Waiting {
    let age = now.since(notification.created_at);
    Waiting { notification: Arc::clone(notification), place: WaitingPlace::NextSession, age }
}

fn rules(fold: &Fold) -> RulesView {
    let rules = fold.engine.rules();
    let disabled = rules.subscribers.iter().filter(|rule| rule.activity == Activity::Disabled).count();
    RulesView { hash: rules.hash.to_string(), enabled: rules.subscribers.len() - disabled, disabled }
}

fn events(fold: &Fold) -> EventCounts {
    let tally = fold.engine.tally();
    let mut ended = BTreeMap::new();
    for (reason, count) in tally.subscribers.values().flat_map(|subscriber| &subscriber.events_ended) {
        *ended.entry(reason.to_string()).or_default() += count;
    }
    EventCounts {
        published: tally.events,
        unmatched: tally.unmatched,
        throttled: tally.throttled,
        skipped: tally.skipped,
        ended,
    }
}

fn notifications(fold: &Fold) -> NotificationCounts {
    let tally = fold.engine.tally();
    NotificationCounts {
        created: tally.created,
        injected: tally.injected,
        confirmed: tally.confirmed,
        confirmed_by: owned(&tally.confirmed_by),
        pending: fold.engine.sessions().views().map(|session| u64::from(session.injector.pending().0)).sum(),
        unclaimed: u64::try_from(fold.engine.sessions().unclaimed_len()).unwrap_or(u64::MAX),
        batches_open: u64::try_from(fold.engine.batches_open()).unwrap_or(u64::MAX),
        fixed_carriers: tally.fixed_carriers,
        ended: owned(&tally.notifications_ended),
    }
}

/// Every subscriber in the rules, and every other one with counts.
fn subscribers(fold: &Fold) -> BTreeMap<String, SubscriberCounts> {
    let mut shown: BTreeMap<String, SubscriberCounts> = BTreeMap::new();
    for (id, tally) in &fold.engine.tally().subscribers {
        shown.insert(id.to_string(), counts(tally));
    }
    for rule in &fold.engine.rules().subscribers {
        shown.entry(rule.id.to_string()).or_default().enabled = rule.activity != Activity::Disabled;
    }
    for (id, file, failing) in fold.engine.failing() {
        shown.entry(id.to_string()).or_default().failing.push(FailingView {
            file,
            line: failing.line,
            message: failing.message.clone(),
            times: failing.times,
            last_at: failing.last_at.to_string(),
        });
    }
    shown
}

fn counts(tally: &SubscriberTally) -> SubscriberCounts {
    SubscriberCounts {
        enabled: false,
        batched: tally.batched,
        rows: tally.rows,
        ended: owned(&tally.events_ended),
        created: tally.created,
        injected_tokens: tally.injected_tokens,
        raw_bytes: tally.raw_bytes,
        failing: Vec::new(),
    }
}

fn owned(counts: &SortedMap<Word, u64>) -> BTreeMap<String, u64> {
    counts.iter().map(|(word, count)| (word.to_string(), *count)).collect()
}
