//! Reads one subscriber's file into types that are always valid.
//!
//! Every key is checked, and keys whose meaning depends on each other are checked together. A file
//! with an error yields no subscriber; all errors are reported, not only the first. Unsupported
//! keys are accepted only with the value that has no effect.
//!
//! A later layer may not change what ends the notifications of a core subscriber. It may change its
//! text, and take fewer events (`pipeline/remainder.rs`).

mod rows;

use std::{mem, rc::Rc, sync::Arc};

use engine::{
    notification::{
        Activation, ActiveFor, Audience, InjectionPoint, Interrupt, Priority, SubscriberId, Tokens,
        repeat::Repeat,
    },
    pipeline::{
        absence::AbsenceRule,
        activation::WakeSettings,
        condition::Condition,
        remainder::covers,
        render::{Layout, Sentence},
        rule::{Activity, Batching, OrderRule, OutputRule, ResolveRule, Subscriber},
        threshold::ThresholdRule,
    },
    settings::Keys,
    sorted::SortedMap,
};

use self::rows::{About, Events, Output, read_id};
use crate::config::{
    absent,
    case::{self, Fixtures, SubscriberTest},
    layout::{self, DeclaredPlaces, KnownTemplates, LayoutRule, OwnText},
    limits,
    lint_name::LintName,
    patterns,
    raw::{Document, Section, Value, finish_all},
    reach, repeat,
    report::{Diagnostic, Level, Place},
    threshold, values,
};

pub use self::rows::tables;
pub(crate) use self::rows::{MAX_TOKENS, read_condition};

/// The keys by which a subscriber selects events.
const FILTER_KEYS: [&str; 4] = ["types", "sources", "severity_filter", "where"];
const SECTIONS: [&str; 9] =
    ["subscriber", "events", "batching", "threshold", "absent", "limits", "repeat", "output", "tests"];
/// Maximum cost of the wrapper of an injection; the intro of `markdown` is the longest.
const WRAPPER_TOKENS: u32 = 60;

/// The inputs for the checks of a subscriber's file.
pub(crate) struct Context<'a> {
    /// The templates that a file can name.
    pub(crate) templates: KnownTemplates<'a>,
    /// The catalogue's event types; empty disables the comparison.
    pub(crate) known_types: Vec<&'a str>,
    /// The limit of an injection; a single notification must fit, or it would wait forever.
    pub(crate) injection_tokens: Tokens,
    /// What the user allows notifications to do automatically.
    pub(crate) wake: Arc<WakeSettings>,
    /// The saved events that tests can name; `None`: the tests are not read.
    pub(crate) fixtures: Option<&'a Fixtures>,
    /// The core subscribers of earlier layers.
    pub(crate) core: SortedMap<SubscriberId, Protected>,
}

/// The result of reading a file.
pub(crate) struct SubscriberFile {
    /// Its id and the position of the id, if it could be read.
    pub(crate) id: Option<(SubscriberId, Place)>,
    /// The subscriber, if there is no error.
    pub(crate) compiled: Option<CompiledFile>,
    /// The places of what the files declare for the text.
    pub(crate) places: DeclaredPlaces,
    pub(crate) found: Vec<Diagnostic>,
}

pub(crate) struct CompiledFile {
    /// The subscriber, with the text in force.
    pub(crate) subscriber: Subscriber,
    /// The tests of the file alone.
    pub(crate) tests: Vec<SubscriberTest>,
    /// The text that the files define.
    pub(super) own_text: OwnText,
    /// The places of the keys by which it selects events.
    pub(crate) filter_places: SortedMap<&'static str, Place>,
}

/// The id of a file with `inherit = true`, and the place of that key.
pub(crate) fn inherits(document: &Document<'_>) -> Option<(SubscriberId, Place)> {
    let mut section = Section::new("subscriber", [document]);
    let place = section.value("inherit")?.place();
    // A wrong value has its own error, which is to be the only one.
    let inherits = section.read("inherit", values::flag).unwrap_or(true);
    let id = section.read("id", read_id).filter(|_| inherits)?;
    Some((id, place))
}

/// Reads one file, as the last of `documents`: the whole file that it inherits from, and others that
/// do; without `inherit` it is the only one.
///
/// Shape: a finding about an inherited key names the key of the last file that made it wrong, unless
/// that finding is in `known`.
pub(crate) fn compile(
    documents: &[Rc<Document<'_>>],
    context: &Context<'_>,
    known: &[Diagnostic],
) -> SubscriberFile {
    let mut read = read(documents, context);
    let file = &documents.last().expect("a file").file().path;
    let (own, inherited) = mem::take(&mut read.found).into_iter().partition(|one| one.place.file == *file);
    read.found = own;
    for wrong in inherited.into_iter().filter(|wrong| !is_in(known, wrong)) {
        read.found.push(blamed(wrong, documents, context, read.id.as_ref()));
    }
    read
}

/// Whether a finding of the same place and message is in `found`.
fn is_in(found: &[Diagnostic], wrong: &Diagnostic) -> bool {
    found.iter().any(|one| one.place == wrong.place && one.message == wrong.message)
}

/// A finding about an inherited key, at the key of the last file without which there is none; at the
/// id if several keys cause it.
fn blamed(
    wrong: Diagnostic,
    documents: &[Rc<Document<'_>>],
    context: &Context<'_>,
    id: Option<&(SubscriberId, Place)>,
) -> Diagnostic {
    let (last, earlier) = documents.split_last().expect("a file");
    let is_due_to = |section: &str, key: &str| {
        let rest = [earlier, &[Rc::new(last.without(section, key))]].concat();
        !is_in(&read(&rest, context).found, &wrong)
    };
    let mut keys = last.keys(&SECTIONS).into_iter().filter(|(section, ..)| *section != "subscriber");
    let due = keys.find(|(section, key, _)| is_due_to(section, key));
    let (key, place) = match (due, id) {
        (Some((section, key, value)), _) => (format!("{section}.{key}"), value.place()),
        (None, Some((_, place))) => ("subscriber.id".to_owned(), place.clone()),
        (None, None) => return wrong,
    };
    let inherited = format!("`{}` is inherited from {}", wrong.key, wrong.place);
    let note = wrong.note.as_ref().map_or_else(|| inherited.clone(), |note| format!("{note}; {inherited}"));
    Diagnostic { key, place, ..wrong }.with_note(note)
}

fn read(documents: &[Rc<Document<'_>>], context: &Context<'_>) -> SubscriberFile {
    let [first, document] = [documents.first(), documents.last()].map(|one| one.expect("a file"));
    let all = || documents.iter().map(|document| &**document);
    let section = |name| Section::new(name, all());
    let [mut subscriber, mut events, mut batching, mut output] =
        ["subscriber", "events", "batching", "output"].map(section);
    let [mut threshold, mut absent, mut limits, mut repeat] =
        ["threshold", "absent", "limits", "repeat"].map(section);

    let About { id, name, description, version, enabled, .. } = About::read(&mut subscriber);
    let core = id.as_ref().and_then(|id| context.core.get(id));
    let activity = activity(&mut subscriber, &mut output, enabled, core);
    let events_rule = read_events(&mut events, context);
    let mut keys = limits::Keys::read(&mut batching);
    let batching_rule = limits::read_batching(&mut batching, &keys);
    let dedupe = limits::read_dedupe(&mut batching, &mut keys, &batching_rule);
    let later = read_later([&mut threshold, &mut absent, &mut limits, &mut repeat], documents, context, core);
    let LayoutRule { layout, own: own_text, words, mut places } =
        layout::read(&mut output, id.as_ref(), [first.file(), document.file()], &context.templates);
    let output_rule = read_output(&mut output, layout, words, context);
    let checked = [&mut batching, &mut output, &mut limits, &mut repeat];
    check_effects(checked, (&output_rule, &batching_rule), &later, (core, activity));
    let Later { threshold: threshold_rule, absence, limited, repeated } = later;
    let (tests, wrong_tests) = read_tests(document, context);

    let place = subscriber.value("id").map(Value::place);
    places.chosen = places.chosen.or_else(|| place.clone());
    let filter_places = filter_places(&events);
    let sections = vec![subscriber, events, batching, threshold, absent, limits, repeat, output];
    let found = finish_all(all(), &SECTIONS, sections).into_iter().chain(wrong_tests).collect::<Vec<_>>();
    let has_errors = found.iter().any(|diagnostic| diagnostic.level == Level::Error);
    let has_template =
        output_rule.layout.template().is_none_or(|name| context.templates.compiled.contains(name));
    let compiled = id.as_ref().filter(|_| !has_errors && has_template).map(|id| Subscriber {
        id: id.clone(),
        name: name.unwrap_or_else(|| id.to_string()),
        description,
        version,
        activity,
        types: events_rule.types.unwrap_or_default(),
        sources: events_rule.sources.unwrap_or_default(),
        severity_when: events_rule.severity_when,
        severity_min: events_rule.severity_filter,
        condition: events_rule.condition,
        batching: batching_rule,
        dedupe,
        threshold: threshold_rule,
        rate: limited.rate,
        close_when: keys.close_when,
        open_when: keys.open_when,
        tokens: limited.tokens,
        ttl: limited.ttl,
        quiet: limited.quiet,
        absence,
        retain: limited.retain,
        deliver_after: limited.deliver_after,
        repeat: repeated,
        inhibit: limited.inhibit,
        supersede_key: limited.supersede_key,
        order: limited.order,
        resolve: limited.resolve,
        output: output_rule,
        wake: Arc::clone(&context.wake),
        later: Vec::new(),
        territory: None,
        in_folders: Vec::new(),
    });
    SubscriberFile {
        id: id.zip(place),
        compiled: compiled.map(|subscriber| CompiledFile { subscriber, tests, own_text, filter_places }),
        places,
        found,
    }
}

/// Reports what keeps the notifications of a subscriber from its agent, and what has no effect: on its
/// batches, and without an agent.
fn check_effects(
    [batches, output, limits, repeat]: [&mut Section<'_>; 4],
    (rule, batching): (&OutputRule, &Batching),
    later: &Later,
    (core, activity): (Option<&Protected>, Activity),
) {
    limits::check_batching(batches, batching, &later.limited.quiet);
    reach::check_delay(limits, rule.priority);
    let refuse = |value: &Value<'_>, message: &str| match core {
        Some(core) => core.refusal(value, message),
        None => value.error(message),
    };
    let refusal: reach::Refusal<'_> = (core.is_some() || activity == Activity::Core).then_some(&refuse);
    let Later { absence, limited, repeated, threshold: _ } = later;
    let has_states = limited.resolve.is_some() || absence.is_some() || limited.retain.is_some();
    let held = reach::Held { has_states, is_repeated: repeated.is_some() };
    reach::check(output, rule, held, refusal);
    if rule.audience == Audience::User {
        reach::check_user([output, limits, repeat], (rule, held), &limited.deliver_after, batching);
    }
}

/// The rules of the stages after batching.
struct Later {
    threshold: Option<ThresholdRule>,
    absence: Option<AbsenceRule>,
    limited: limits::Limits,
    repeated: Option<Box<Repeat>>,
}

fn read_later(
    [threshold, absent, limits, repeat]: [&mut Section<'_>; 4],
    documents: &[Rc<Document<'_>>],
    context: &Context<'_>,
    core: Option<&Protected>,
) -> Later {
    let has = |section| documents.iter().any(|document| document.value(section).is_some());
    let threshold_rule = threshold::read(threshold, has("threshold"));
    let limited = limits::read_limits(limits, &context.known_types);
    let absence = absent::read(absent, has("absent"), limits);
    let repeated = repeat::read(repeat, has("repeat"), limited.resolve.is_some() || absence.is_some());
    if let Some(core) = core {
        core.check([limits, threshold, absent], limited.resolve.as_ref(), &limited.order);
    }
    Later { threshold: threshold_rule, absence, limited, repeated }
}

fn read_tests(document: &Document<'_>, context: &Context<'_>) -> (Vec<SubscriberTest>, Vec<Diagnostic>) {
    let Some(fixtures) = context.fixtures else { return (Vec::new(), Vec::new()) };
    let (tests, mut found) = case::read(document, fixtures);
    found.extend(case::unknown_types(document, &context.known_types));
    (tests, found)
}

/// The places of the keys by which a file selects events.
fn filter_places(events: &Section<'_>) -> SortedMap<&'static str, Place> {
    let place = |key| Some((key, events.value(key)?.place()));
    FILTER_KEYS.into_iter().filter_map(place).collect()
}

fn activity(
    subscriber: &mut Section<'_>,
    output: &mut Section<'_>,
    is_enabled: bool,
    core_elsewhere: Option<&Protected>,
) -> Activity {
    let is_core = output.read("core", values::flag).unwrap_or(false);
    match (is_core, is_enabled, core_elsewhere) {
        // What replaces a core subscriber is one.
        (true, true, _) | (false, true, Some(_)) => return Activity::Core,
        (_, false, Some(core)) => subscriber
            .object("enabled", |value| core.refusal(value, "a core subscriber cannot be switched off")),
        (true, false, None) => subscriber
            .object("enabled", |value| value.error("a subscriber with `core = true` cannot be switched off")),
        (false, true, None) => return Activity::Enabled,
        (false, false, None) => {}
    }
    Activity::Disabled
}

/// What is wrong with a `where` that uses no field.
pub(super) const CONSTANT_WHERE: &str =
    "`where` uses no field of the event, so it matches all events or none";

fn read_events(section: &mut Section<'_>, context: &Context<'_>) -> Events {
    let events = Events::read(section);
    patterns::check(section, "types", |list| patterns::in_list(list, &context.known_types));
    if events.condition.as_ref().is_some_and(Condition::is_constant) {
        section.object("where", |value| value.error(CONSTANT_WHERE).into_lint(LintName::ConstantWhere));
    }
    events
}

fn read_output(
    section: &mut Section<'_>,
    layout: Layout,
    words: Option<Arc<Sentence>>,
    context: &Context<'_>,
) -> OutputRule {
    let Output {
        priority,
        priority_by,
        inject_at,
        activation,
        active_for,
        interrupt,
        escalate_at,
        max_tokens,
        audience,
        requires_response,
        region,
    } = Output::read(section);
    if let Some(inject_at) = inject_at.filter(|_| !section.is_wrong("priority")) {
        check_point(section, priority, inject_at);
    }
    let default_point = match priority {
        Priority::Low => InjectionPoint::TurnEnd,
        Priority::Normal | Priority::High | Priority::Critical => InjectionPoint::AfterTool,
    };
    let rule = OutputRule {
        priority,
        priority_by,
        inject_at: inject_at.unwrap_or(default_point),
        activation,
        active_for,
        interrupt,
        escalate_at,
        layout,
        sentence: words,
        max_tokens: fitted(section, max_tokens, context.injection_tokens),
        audience,
        requires_response,
        region,
    };
    check_wake(section, &rule, context.wake.threshold);
    rule
}

/// Warns of keys that have no effect with the others.
fn check_wake(section: &mut Section<'_>, rule: &OutputRule, threshold: Priority) {
    if !rule.can_be_critical() && rule.interrupt != Interrupt::default() {
        let message = "`interrupt` is for critical notifications, and this subscriber makes none";
        section.warn("interrupt", message);
    }
    if rule.activation != Activation::Active && rule.active_for != ActiveFor::default() {
        let message = "`active_for` is for `activation = \"active\"`, and this subscriber has another one";
        section.warn("active_for", message);
    }
    let escalates = rule.escalate_at.is_some() && section.value("escalate_at").is_some();
    let is_for_agent = rule.audience != Audience::User;
    if is_for_agent && rule.activation == Activation::Active && rule.priority < threshold && !escalates {
        let wakes = if rule.escalate_at.is_some() { "only a critical event" } else { "nothing of it" };
        let message = format!(
            "{wakes} wakes a session: its priority is {}, and `threshold` in [activation] is {threshold}",
            rule.priority
        );
        section.warn("activation", &message);
    }
}

/// The token limit of a notification: the value of its file, reduced to the part of an injection
/// that its wrapper leaves.
fn fitted(section: &mut Section<'_>, wanted: Tokens, injection: Tokens) -> Tokens {
    let room = Tokens(injection.0.saturating_sub(WRAPPER_TOKENS));
    if wanted > room {
        let message = format!("an injection of {injection} tokens has room for {room}, so that is used");
        section.warn("max_tokens", &message);
    }
    wanted.min(room)
}

fn check_point(section: &mut Section<'_>, priority: Priority, inject_at: InjectionPoint) {
    let is_immediate = inject_at == InjectionPoint::Immediate;
    if is_immediate && priority != Priority::Critical {
        section.object("inject_at", |value| {
            let message =
                format!("`immediate` is for critical notifications, and this one's priority is {priority}");
            value.error(message).with_note("set `priority = \"critical\"`, or choose another point")
        });
    } else if priority == Priority::Low && inject_at != InjectionPoint::TurnEnd {
        let message = format!("a low priority waits for turn_end, but `{inject_at}` is before it and wins");
        section.warn("inject_at", &message);
    }
}

/// A core subscriber of an earlier layer.
pub(crate) struct Protected {
    path: Arc<str>,
    resolve: Option<ResolveRule>,
    order: OrderRule,
}

impl Protected {
    /// The protected parts of `rule`, from the file `path`.
    pub(crate) fn new(path: &Arc<str>, rule: &Subscriber) -> Self {
        Self { path: Arc::clone(path), resolve: rule.resolve.clone(), order: rule.order.clone() }
    }

    /// A value of a later file that is not allowed.
    pub(crate) fn refusal(&self, value: &Value<'_>, message: impl Into<String>) -> Diagnostic {
        let note = format!("it replaces a core subscriber, which is in {}", self.path);
        value.error(message).with_note(note)
    }
}

impl Protected {
    /// Finds keys in a later file's `[limits]` that withdraw its notifications, or by which its events
    /// would end as older ones.
    pub(crate) fn check(
        &self,
        [limits, threshold, absent]: [&mut Section<'_>; 3],
        resolve: Option<&ResolveRule>,
        order: &OrderRule,
    ) {
        self.check_resolve(limits, resolve);
        self.check_order(limits, order);
        self.check_silence(threshold, limits);
        absent.object("after", |value| self.refusal(value, "an absence would silence a core subscriber"));
    }

    /// Finds keys of a later file that would suppress its events.
    fn check_silence(&self, threshold: &mut Section<'_>, limits: &mut Section<'_>) {
        threshold.object("at", |value| self.refusal(value, "a threshold would silence a core subscriber"));
        for key in ["inhibited_by", "inhibit"] {
            limits.object(key, |value| self.refusal(value, "nothing inhibits a core subscriber"));
        }
    }

    fn check_resolve(&self, section: &mut Section<'_>, resolve: Option<&ResolveRule>) {
        let Some(resolve) = resolve else { return };
        let by = self.resolve.as_ref().map_or(&[][..], |own| &own.by);
        if let Some(other) = resolve.by.iter().find(|pattern| !by.iter().any(|own| covers(own, pattern))) {
            let message = format!(
                "only the shipped `resolved_by` may resolve notifications of a core subscriber, and `{other}` is not in it"
            );
            section.object("resolved_by", |value| self.refusal(value, message));
        }
        let equal = self.resolve.as_ref().map_or(&[][..], |own| &own.equal);
        if !equal.iter().all(|field| resolve.equal.contains(field)) {
            let message = "a core subscriber's `equal` cannot be changed";
            let key = if section.value("equal").is_some() { "equal" } else { "resolved_by" };
            section.object(key, |value| self.refusal(value, message));
        }
    }

    fn check_order(&self, section: &mut Section<'_>, order: &OrderRule) {
        let keys =
            [("revision", &order.revision, &self.order.revision), ("order_by", &order.by, &self.order.by)];
        for (key, own, before) in keys {
            if own != before {
                let message = format!("a core subscriber's `{key}` cannot be changed");
                section.object(key, |value| self.refusal(value, message.clone()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use engine::pipeline::{render::Templates, rule::BatchMode};

    use super::*;
    use crate::config::{
        layers::{LayerKind, SourceFile},
        limits,
    };
    use engine::sorted::SortedSet;

    /// Compiles a subscriber `ci` with these lines after its `[events]`.
    fn compiled(rest: &str) -> Subscriber {
        let text = format!("[subscriber]\nid = \"ci\"\n[events]\ntypes = [\"ci.**\"]\n{rest}");
        let file = SourceFile {
            layer: LayerKind::User,
            name: "subscribers/ci.toml".into(),
            path: "ci.toml".into(),
            text: text.into(),
        };
        let mut templates = Templates::new();
        templates.add("ci.toon.j2", "ci: 1\n").expect("a template");
        let context = Context {
            templates: KnownTemplates {
                compiled: &templates,
                names: SortedSet::from(["ci.toon.j2"]),
                layers: SortedMap::new(),
                of_workspace: SortedMap::new(),
                libraries: templates.libraries(),
                shipped: SortedMap::new(),
            },
            known_types: Vec::new(),
            injection_tokens: Tokens(300),
            wake: Arc::default(),
            fixtures: Some(&Fixtures::default()),
            core: SortedMap::new(),
        };
        let document = Document::parse(&file).map(Rc::new).expect("TOML");
        let SubscriberFile { compiled, found, .. } = compile(&[document], &context, &[]);
        compiled.unwrap_or_else(|| panic!("{found:?}")).subscriber
    }

    #[test]
    fn template_with_subscribers_name_is_the_default() {
        assert_eq!(compiled("").output.layout, Layout::Template("ci.toon.j2".into()));
        assert_eq!(compiled("[output]\ntemplate = \"generic\"\n").output.layout, Layout::generic());
        let declared = compiled("[output]\none = \"ci: {{ payload.check }}\"\n").output.layout;
        assert_eq!(declared.template(), None);
    }

    #[test]
    fn notification_tokens_are_capped_by_injection_budget() {
        let tokens = |output: &str| compiled(&format!("[output]\n{output}")).output.max_tokens;
        assert_eq!(tokens(""), Tokens(200));
        assert_eq!(tokens("max_tokens = 100"), Tokens(100));
        assert_eq!(tokens("max_tokens = 400"), Tokens(300 - WRAPPER_TOKENS));
    }

    #[test]
    fn every_frame_fits_its_token_allowance() {
        for frame in limits::frames() {
            assert!(frame.tokens.0 <= WRAPPER_TOKENS, "{frame:?}");
        }
    }

    #[test]
    fn low_priority_waits_for_the_turn_end() {
        let point = |output: &str| compiled(&format!("[output]\n{output}")).output.inject_at;
        assert_eq!(point("priority = \"low\""), InjectionPoint::TurnEnd);
        assert_eq!(point("priority = \"critical\""), InjectionPoint::AfterTool);
        assert_eq!(point("priority = \"low\"\ninject_at = \"after_tool\""), InjectionPoint::AfterTool);
    }

    #[test]
    fn debounce_waits_ten_windows_up_to_a_minute() {
        let mode =
            |batching: &str| compiled(&format!("[batching]\nmode = \"debounce\"\n{batching}")).batching.mode;
        let max_wait = |seconds| BatchMode::Debounce { max_wait: Duration::from_secs(seconds) };
        assert_eq!(mode("window_ms = 200"), max_wait(2));
        assert_eq!(mode("window_ms = 10000"), max_wait(60));
        assert_eq!(mode("window_ms = 200\nmax_wait_ms = 1000"), max_wait(1));
    }

    #[test]
    fn default_dedupe_window_applies_unless_set_to_zero() {
        let window =
            |batching: &str| compiled(&format!("[batching]\n{batching}")).dedupe.map(|rule| rule.window);
        assert_eq!(window("dedupe_key = \"type\""), Some(Duration::from_secs(5)));
        assert_eq!(window("dedupe_key = \"type\"\ndedupe_window_ms = 0"), None);
        assert_eq!(window("dedupe_key = \"\"\ndedupe_window_ms = 1000"), None);
        assert_eq!(window(""), None);
    }
}
