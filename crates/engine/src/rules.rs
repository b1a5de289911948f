//! The compiled configuration for the engine: every subscriber, every template, and the limits of
//! an injection.
//!
//! Built by `config::compile` and immutable: a reload builds new rules, which are an input of the
//! engine.

use std::sync::Arc;

use crate::{
    budget::{BudgetSettings, Budgets},
    ci,
    conversation::{self, InjectionSettings, SessionSettings},
    detector,
    matcher::Matcher,
    notification::SubscriberId,
    pipeline::{activation::WakeSettings, mute::Mutes, render::Templates, rule::Subscriber},
    probe, sink, throttle,
};

/// One generation of rules.
#[derive(Debug, Clone)]
pub struct CompiledRules {
    /// Identifies the source of the rules: lower-case hex of its SHA-256.
    pub hash: Arc<str>,
    /// Sorted by id, which is unique; includes disabled ones.
    pub subscribers: Vec<Arc<Subscriber>>,
    /// The folders whose own subscribers are among them, sorted.
    pub folders: Vec<Arc<str>>,
    /// Every template that a subscriber names.
    pub templates: Arc<Templates>,
    /// `[injection]` of `aside.toml`.
    pub injection: InjectionSettings,
    /// `[sessions]` of `aside.toml`.
    pub sessions: SessionSettings,
    /// `[sources]` of `aside.toml`.
    pub sources: throttle::SourceRates,
    /// The tables of `[sources]` for detectors.
    pub detectors: detector::Settings,
    /// The tables of `[sources]` for probes.
    pub probes: Arc<probe::Settings>,
    /// `[sources.ci]`.
    pub ci: ci::Settings,
    /// Whether `[webhooks]` has a sender.
    pub takes_webhooks: bool,
    /// `[sinks]` of `aside.toml`.
    pub sinks: Arc<sink::Settings>,
    /// `[budget]` of `aside.toml`.
    pub budget: BudgetSettings,
    /// `[[delivery.mute]]` of `aside.toml`.
    pub mutes: Arc<Mutes>,
    /// `[activation]` of `aside.toml`; each subscriber refers to it too.
    pub wake: Arc<WakeSettings>,
}

impl CompiledRules {
    /// The settings for sessions.
    pub fn conversation(&self) -> conversation::Settings {
        conversation::Settings {
            injection: self.injection.clone(),
            sessions: self.sessions.clone(),
            wake_threshold: self.wake.threshold,
            budgets: Arc::new(self.budgets()),
        }
    }

    /// The same rules with those subscribers that `is_taken` accepts as `other` has them: changed,
    /// added or removed, and the templates that they name.
    ///
    /// Shape: a template that others name too is then `other`'s for them as well.
    #[must_use]
    pub fn with_subscribers_of(&self, other: &Self, is_taken: impl Fn(&SubscriberId) -> bool) -> Self {
        let mut templates = Templates::clone(&self.templates);
        let mut subscribers: Vec<_> = self.subscribers.iter().filter(|rule| !is_taken(&rule.id)).collect();
        for rule in other.subscribers.iter().filter(|rule| is_taken(&rule.id)) {
            if let Some(name) = rule.output.layout.template() {
                templates.take_from(&other.templates, name);
            }
            subscribers.push(rule);
        }
        subscribers.sort_by(|a, b| a.id.cmp(&b.id));
        Self {
            hash: format!("{}+{}", self.hash, other.hash).into(),
            subscribers: subscribers.into_iter().cloned().collect(),
            templates: Arc::new(templates),
            ..self.clone()
        }
    }

    /// The same rules without a subscriber.
    #[must_use]
    pub fn without(&self, id: &SubscriberId) -> Self {
        let hash = format!("{}-{id}", self.hash).into();
        let subscribers = self.subscribers.iter().filter(|rule| rule.id != *id).cloned().collect();
        Self { hash, subscribers, ..self.clone() }
    }

    /// All budgets.
    fn budgets(&self) -> Budgets {
        let of_subscriber = |rule: &Arc<Subscriber>| Some((rule.id.clone(), rule.tokens?));
        let subscribers = self.subscribers.iter().filter_map(of_subscriber).collect();
        Budgets { settings: self.budget.clone(), subscribers }
    }

    /// The index of a subscriber.
    pub(crate) fn position(&self, id: &SubscriberId) -> Option<usize> {
        self.subscribers.binary_search_by(|rule| rule.id.cmp(id)).ok()
    }

    /// Finds the subscribers that select an event's type, by their indices.
    pub(crate) fn matcher(&self) -> Matcher {
        Matcher::new((0_u32..).zip(&self.subscribers).map(|(index, rule)| (index, rule.types.as_slice())))
    }

    /// Finds the subscribers whose conditions an event may resolve, by their indices.
    pub(crate) fn resolvers(&self) -> Matcher {
        let indexed = (0_u32..).zip(&self.subscribers);
        Matcher::new(indexed.filter_map(|(index, rule)| Some((index, rule.resolve.as_ref()?.by.as_slice()))))
    }

    /// Finds the subscribers of which an event may inhibit others, by their indices; one may be found
    /// twice.
    pub(crate) fn inhibitors(&self) -> Matcher {
        let indexed = (0_u32..).zip(&self.subscribers);
        let rules = indexed.flat_map(|(index, rule)| rule.inhibit.iter().map(move |one| (index, one)));
        Matcher::new(rules.flat_map(|(index, rule)| [(index, &rule.by[..]), (index, &rule.until[..])]))
    }

    /// Rules without subscribers: in force before the journal's first record.
    pub fn none() -> Self {
        Self {
            hash: "".into(),
            subscribers: Vec::new(),
            folders: Vec::new(),
            templates: Arc::new(Templates::new()),
            injection: InjectionSettings::default(),
            sessions: SessionSettings::default(),
            sources: throttle::SourceRates { rate: None, remote_rate: None },
            detectors: detector::Settings::default(),
            probes: Arc::default(),
            ci: ci::Settings::default(),
            takes_webhooks: false,
            sinks: Arc::default(),
            budget: BudgetSettings::default(),
            mutes: Arc::default(),
            wake: Arc::default(),
        }
    }
}
