//! Reads one subscriber's file into types that are always valid.
//!
//! Every key is checked, and keys whose meaning depends on each other are checked together. A file
//! with an error yields no subscriber; all errors are reported, not only the first. Unsupported
//! keys are accepted only with the value that has no effect.

use std::{collections::BTreeMap, mem, ops::RangeInclusive, rc::Rc, sync::Arc};

use engine::{
    event::{FieldPath, Pattern, Severity},
    nearest::nearest,
    notification::{
        Activation, ActiveFor, Audience, InjectionPoint, Interrupt, Priority, SubscriberId, Tokens,
    },
    pipeline::{
        activation::WakeSettings,
        condition::{CONDITION_BYTES_MAX, Condition},
        render::{Layout, Sentence},
        rule::{Activity, OutputRule, Subscriber},
    },
};
use strum::VariantArray as _;

use crate::config::{
    batching,
    case::{self, SubscriberTest},
    layers::SourceFile,
    layout::{self, DeclaredPlaces, KnownTemplates, LayoutRule, OwnText},
    limits::{self, Limits},
    patterns,
    protected::Protected,
    raw::{Document, Parsed, Section, Value, finish_all},
    report::{Diagnostic, Level, Place, sentence, shown},
    unsupported, values,
};

/// The keys by which a subscriber selects events.
const FILTER_KEYS: [&str; 4] = ["types", "sources", "severity_filter", "where"];
const SECTIONS: [&str; 6] = ["subscriber", "events", "batching", "limits", "output", "tests"];
/// The points that a subscriber can choose.
const POINTS: [InjectionPoint; 4] = [
    InjectionPoint::Immediate,
    InjectionPoint::TurnStart,
    InjectionPoint::AfterTool,
    InjectionPoint::TurnEnd,
];
/// Longest id in bytes; every notification contains it.
const ID_BYTES_MAX: usize = 64;
/// Fewest and most tokens of a notification: a line with its wrapper; a part of an injection that
/// leaves room for others.
const MAX_TOKENS_LIMITS: RangeInclusive<u32> = 20..=2_000;
/// Maximum cost of the wrapper of an injection; the intro of `markdown` is the longest.
const WRAPPER_TOKENS: u32 = 60;
/// The word for no escalation.
const NEVER: &str = "never";
/// Default number of tokens of a notification.
pub(crate) const MAX_TOKENS: u32 = 200;

/// The inputs for the checks of a subscriber's file.
pub(crate) struct Context<'a> {
    /// The templates that a file can name.
    pub(crate) templates: KnownTemplates<'a>,
    /// The catalogue's event types; empty disables the comparison.
    pub(crate) known_types: &'a [&'a str],
    /// The limit of an injection; a single notification must fit, or it would wait forever.
    pub(crate) injection_tokens: Tokens,
    /// What the user allows notifications to do automatically.
    pub(crate) wake: Arc<WakeSettings>,
    /// The core subscribers of earlier layers.
    pub(crate) core: BTreeMap<SubscriberId, Protected>,
}

/// The result of reading a file.
pub(crate) struct SubscriberFile {
    /// Its id and the position of the id, if it could be read.
    pub(crate) id: Option<(SubscriberId, Place)>,
    /// The subscriber, if there is no error.
    pub(crate) compiled: Option<CompiledFile>,
    /// The places of what the files declare for the text.
    pub(crate) places: DeclaredPlaces,
    /// Errors and warnings.
    pub(crate) found: Vec<Diagnostic>,
}

/// A valid file.
pub(crate) struct CompiledFile {
    /// The subscriber, with the text in force.
    pub(crate) subscriber: Subscriber,
    /// The tests of the file alone.
    pub(crate) tests: Vec<SubscriberTest>,
    /// The text that the files define.
    pub(super) own_text: OwnText,
    /// The places of the keys by which it selects events.
    pub(crate) filter_places: BTreeMap<&'static str, Place>,
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
    let (whole, file) = (first.file(), document.file());
    let section = |name| Section::new(name, documents.iter().map(|document| &**document));
    let [mut subscriber, mut events, mut batching, mut limits, mut output] =
        ["subscriber", "events", "batching", "limits", "output"].map(section);

    let id = subscriber.require("id", read_id, file);
    let text = |section: &mut Section<'_>, key| section.read(key, values::text).map(str::to_owned);
    let name = text(&mut subscriber, "name");
    let description = text(&mut subscriber, "description").unwrap_or_default();
    let version = subscriber.read("version", values::version);
    let core = id.as_ref().and_then(|id| context.core.get(id));
    let activity = read_activity(&mut subscriber, &mut output, core);
    let events_rule = read_events(&mut events, file, context);
    let batching_rule = batching::read(&mut batching);
    let dedupe = batching::read_dedupe(&mut batching, &batching_rule);
    let Limits { rate, ttl, supersede_key, resolve, order } = limits::read(&mut limits, context.known_types);
    if let Some(core) = core {
        core.check(&mut limits, resolve.as_ref(), &order);
    }
    let LayoutRule { layout, own: own_text, words, mut places } =
        layout::read(&mut output, id.as_ref(), [whole, file], &context.templates);
    let output_rule = read_output(&mut output, layout, words, context);
    check_audience(&mut output, &output_rule, activity, core);
    check_escalation(&mut output, &output_rule, activity, core);
    let (tests, wrong_tests) = case::read(document);

    let place = subscriber.value("id").map(Value::place);
    places.chosen = places.chosen.or_else(|| place.clone());
    let filter_place = |key| Some((key, events.value(key)?.place()));
    let filter_places = FILTER_KEYS.into_iter().filter_map(filter_place).collect();
    let mut found = finish_all(
        documents.iter().map(|document| &**document),
        &SECTIONS,
        vec![subscriber, events, batching, limits, output],
    );
    found.extend(wrong_tests);
    let has_errors = found.iter().any(|diagnostic| diagnostic.level == Level::Error);
    let has_template =
        output_rule.layout.template().is_none_or(|name| context.templates.compiled.contains(name));
    let compiled = id.as_ref().filter(|_| !has_errors && has_template).map(|id| Subscriber {
        id: id.clone(),
        name: name.unwrap_or_else(|| id.to_string()),
        description,
        version,
        activity,
        types: events_rule.types,
        sources: events_rule.sources,
        severity_min: events_rule.severity_min,
        condition: events_rule.condition,
        batching: batching_rule,
        dedupe,
        rate,
        ttl,
        supersede_key,
        order,
        resolve,
        output: output_rule,
        wake: Arc::clone(&context.wake),
        later: Vec::new(),
    });
    SubscriberFile {
        id: id.zip(place),
        compiled: compiled.map(|subscriber| CompiledFile { subscriber, tests, own_text, filter_places }),
        places,
        found,
    }
}

fn read_id(value: &Value<'_>) -> Parsed<SubscriberId> {
    let text = values::words(value)?;
    let is_allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
    if !text.bytes().all(is_allowed) {
        let message = format!("id `{}` is not made of a to z, 0 to 9 and `_`", shown(text));
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' };
        let meant: String = text.trim().chars().map(allowed).collect();
        let meant = Some(meant).filter(|meant| meant.bytes().any(|byte| byte != b'_'));
        return Err(vec![value.error(message).with_nearest(meant)]);
    }
    if text.len() > ID_BYTES_MAX {
        return Err(vec![
            value.error(format!("an id has at most {ID_BYTES_MAX} characters, this one has {}", text.len())),
        ]);
    }
    Ok(SubscriberId::new(text))
}

fn read_activity(
    subscriber: &mut Section<'_>,
    output: &mut Section<'_>,
    core_elsewhere: Option<&Protected>,
) -> Activity {
    // Its value is known before, from `inherits`.
    subscriber.read("inherit", values::flag);
    let is_core = output.read("core", values::flag).unwrap_or(false);
    let is_enabled = subscriber.read("enabled", values::flag).unwrap_or(true);
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

struct EventsRule {
    types: Vec<Pattern>,
    sources: Vec<String>,
    severity_min: Severity,
    condition: Option<Condition>,
}

fn read_events(section: &mut Section<'_>, file: &SourceFile, context: &Context<'_>) -> EventsRule {
    let types = section.require("types", patterns::read_all, file).unwrap_or_default();
    patterns::check(section, "types", &types, context.known_types);
    let sources = |value: &Value<'_>| values::list(value, |item| values::words(item).map(str::to_owned));
    EventsRule {
        types,
        sources: section.read("sources", sources).unwrap_or_default(),
        severity_min: section.read("severity_filter", values::severity).unwrap_or(Severity::Debug),
        condition: read_where(section),
    }
}

fn read_where(section: &mut Section<'_>) -> Option<Condition> {
    let condition = section.read("where", read_condition)?;
    if condition.is_constant() {
        let message = "`where` uses no field of the event, so it matches all events or none";
        section.object("where", |value| value.error(message).into_warning());
    }
    Some(condition)
}

fn read_condition(value: &Value<'_>) -> Parsed<Condition> {
    values::source(value, Condition::deferred, |source| compile_condition(value, source))
}

fn compile_condition(value: &Value<'_>, source: &str) -> Parsed<Condition> {
    if source.len() > CONDITION_BYTES_MAX {
        let message =
            format!("`where` has at most {CONDITION_BYTES_MAX} bytes, this one has {}", source.len());
        return Err(vec![value.error(message)]);
    }
    Condition::compile(source).map_err(|error| {
        let mut wrong = value.error(format!("`where` is not an expression: {}", sentence(&error.message)));
        if let Some(range) = error.range {
            let is_unknown_field = error.message.starts_with("unknown field");
            wrong.nearest = source.get(range.clone()).filter(|_| is_unknown_field).and_then(field_meant);
            wrong.place = value.place().within(source, range);
        }
        vec![wrong]
    })
}

/// The field that a misspelled name probably means: one of the event's own, else one of its
/// payload.
fn field_meant(name: &str) -> Option<String> {
    let is_operator = matches!(name, "and" | "or" | "not" | "in" | "is" | "if" | "else");
    let is_unknown_name = !is_operator
        && !FieldPath::ROOTS.contains(&name)
        && name.starts_with(|c: char| c.is_ascii_alphabetic())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_unknown_name
        .then(|| nearest(name, FieldPath::ROOTS).map_or_else(|| format!("payload.{name}"), str::to_owned))
}

fn read_output(
    section: &mut Section<'_>,
    layout: Layout,
    words: Option<Arc<Sentence>>,
    context: &Context<'_>,
) -> OutputRule {
    let priority = section.read("priority", values::word::<Priority>);
    let inject_at = section.read("inject_at", read_point);
    let is_priority_wrong = section.is_wrong("priority", priority.as_ref());
    let priority = priority.unwrap_or(Priority::Normal);
    if let Some(inject_at) = inject_at.filter(|_| !is_priority_wrong) {
        check_point(section, priority, inject_at);
    }
    let default_point = match priority {
        Priority::Low => InjectionPoint::TurnEnd,
        Priority::Normal | Priority::High | Priority::Critical => InjectionPoint::AfterTool,
    };
    let rule = OutputRule {
        priority,
        inject_at: inject_at.unwrap_or(default_point),
        activation: section.read("activation", values::activation).unwrap_or_default(),
        active_for: section.read("active_for", values::word::<ActiveFor>).unwrap_or_default(),
        interrupt: section.read("interrupt", values::word::<Interrupt>).unwrap_or_default(),
        escalate_at: section.read("escalate_at", read_escalation).unwrap_or(Some(Severity::Critical)),
        layout,
        sentence: words,
        max_tokens: read_max_tokens(section, context.injection_tokens),
        audience: section.read("audience", values::word::<Audience>).unwrap_or_default(),
    };
    check_wake(section, &rule, context.wake.threshold);
    unsupported::check_output(section);
    rule
}

/// Reports settings that keep a core subscriber from its agent, and warns of an activation without
/// an agent.
fn check_audience(
    section: &mut Section<'_>,
    rule: &OutputRule,
    activity: Activity,
    core_elsewhere: Option<&Protected>,
) {
    if rule.audience != Audience::User {
        return;
    }
    let message = "a core subscriber notifies its agent; `both` notifies the user too";
    match core_elsewhere {
        Some(core) => section.object("audience", |value| core.refusal(value, message)),
        None if activity == Activity::Core => section.object("audience", |value| value.error(message)),
        None => {}
    }
    if rule.activation != Activation::Passive {
        section.object("activation", |value| {
            value
                .error("`activation` applies to agents, and this subscriber is for the user only")
                .into_warning()
        });
    }
}

/// The severity that makes a notification critical; `None` for none.
fn read_escalation(value: &Value<'_>) -> Parsed<Option<Severity>> {
    let found = values::text(value)?;
    if found == NEVER {
        return Ok(None);
    }
    values::severity(value).map(Some).map_err(|wrong| {
        let words = Severity::VARIANTS.iter().map(|severity| severity.as_str()).chain([NEVER]);
        let words: Vec<&str> = words.collect();
        wrong.into_iter().map(|wrong| wrong.with_allowed(found, &words)).collect()
    })
}

/// Reports a core subscriber that keeps a critical event from being critical.
fn check_escalation(
    section: &mut Section<'_>,
    rule: &OutputRule,
    activity: Activity,
    core_elsewhere: Option<&Protected>,
) {
    if rule.escalate_at.is_some() {
        return;
    }
    let message = "a critical event of a core subscriber is always critical";
    match core_elsewhere {
        Some(core) => section.object("escalate_at", |value| core.refusal(value, message)),
        None if activity == Activity::Core => section.object("escalate_at", |value| value.error(message)),
        None => {}
    }
}

/// Warns of keys that have no effect with the others.
fn check_wake(section: &mut Section<'_>, rule: &OutputRule, threshold: Priority) {
    let can_be_critical = rule.priority == Priority::Critical || rule.escalate_at.is_some();
    if !can_be_critical && rule.interrupt != Interrupt::default() {
        section.object("interrupt", |value| {
            let message = "`interrupt` is for critical notifications, and this subscriber makes none";
            value.error(message).into_warning()
        });
    }
    if rule.activation != Activation::Active && rule.active_for != ActiveFor::default() {
        section.object("active_for", |value| {
            let message =
                "`active_for` is for `activation = \"active\"`, and this subscriber has another one";
            value.error(message).into_warning()
        });
    }
    let escalates = rule.escalate_at.is_some() && section.value("escalate_at").is_some();
    if rule.activation == Activation::Active && rule.priority < threshold && !escalates {
        let wakes = if rule.escalate_at.is_some() { "only a critical event" } else { "nothing of it" };
        section.object("activation", |value| {
            let message = format!(
                "{wakes} wakes a session: its priority is {}, and `threshold` in [activation] is {threshold}",
                rule.priority
            );
            value.error(message).into_warning()
        });
    }
}

/// The token limit of a notification: the value of its file, reduced to the part of an injection
/// that its wrapper leaves.
fn read_max_tokens(section: &mut Section<'_>, injection: Tokens) -> Tokens {
    let room = injection.0.saturating_sub(WRAPPER_TOKENS);
    let wanted = section.read("max_tokens", |value| values::integer(value, MAX_TOKENS_LIMITS));
    if wanted.is_some_and(|wanted| wanted > room) {
        section.object("max_tokens", |value| {
            let message =
                format!("an injection of {} tokens has room for {room}, so that is used", injection.0);
            value.error(message).into_warning()
        });
    }
    Tokens(wanted.unwrap_or(MAX_TOKENS).min(room))
}

fn read_point(value: &Value<'_>) -> Parsed<InjectionPoint> {
    if values::text(value)? == InjectionPoint::BeforeTool.as_str() {
        let message = "`before_tool` is where a harness asks, but a subscriber cannot choose it";
        let note = "a critical notification with `inject_at = \"immediate\"` is released there";
        return Err(vec![value.error(message).with_note(note)]);
    }
    values::word_of(value, &POINTS)
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
        section.object("inject_at", |value| {
            let message =
                format!("a low priority waits for turn_end, but `{inject_at}` is before it and wins");
            value.error(message).into_warning()
        });
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;
    use crate::config::{frames, layers::LayerKind};
    use engine::pipeline::{render::Templates, rule::BatchMode};

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
                names: BTreeSet::from(["ci.toon.j2"]),
                layers: BTreeMap::new(),
                shipped: BTreeMap::new(),
            },
            known_types: &[],
            injection_tokens: Tokens(300),
            wake: Arc::default(),
            core: BTreeMap::new(),
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
        for frame in frames::frames() {
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
