//! The keys of `[subscriber]`, `[events]` and `[output]`, the readers of keys that only a
//! subscriber's file has, and the description of all its sections.

use engine::{
    event::{FieldPath, Pattern, Severity},
    hold::Delay,
    nearest::nearest,
    notification::{
        Activation, ActiveFor, Audience, InjectionPoint, Interrupt, Priority, RegionUse, SubscriberId, Tokens,
    },
    pipeline::{
        condition::{CONDITION_BYTES_MAX, Condition},
        rule::SeverityRule,
    },
    settings::{Key, Keys, Table, keys, settings},
};
use strum::VariantArray as _;

use crate::config::{
    absent, inhibit,
    keys::{FileTable, readers},
    layout, limits,
    raw::{Parsed, Section, Value},
    repeat,
    report::{sentence, shown},
    threshold, values,
};

/// The points that a subscriber can choose.
const POINTS: [InjectionPoint; 4] = [
    InjectionPoint::Immediate,
    InjectionPoint::TurnStart,
    InjectionPoint::AfterTool,
    InjectionPoint::TurnEnd,
];
/// Longest id in bytes; every notification contains it.
const ID_BYTES_MAX: usize = 64;
/// The word for no escalation.
const NEVER: &str = "never";
/// Most entries of `severity_when`.
const SEVERITIES_MAX: usize = 8;
/// Default number of tokens of a notification.
pub(crate) const MAX_TOKENS: Tokens = Tokens(200);

settings! {
    /// The subscriber itself.
    pub(super) struct About from Section<'_> {
        /// The name of the subscriber in notifications, counts and overflow lines.
        id: SubscriberId, id();
        /// A name for people; a template has it as `subscriber.name`.
        name: String, any_text(), else "the id";
        /// A description for people.
        description: String = String::new(), any_text();
        /// A [semantic version](https://semver.org), for people.
        version: semver::Version, version(), else "none";
        /// `true`: keys that the file does not name stay as in the
        /// [earlier layer](changing-what-ships.md#changing-what-ships).
        inherit: bool = false, flag();
        /// `false` keeps the file and ends its events as `subscriber_off`. If a reload disables it,
        /// its pending notifications end in the same way.
        enabled: bool = true, flag();
    }
}

settings! {
    /// The events that the subscriber takes.
    pub(super) struct Events from Section<'_> {
        /// Patterns of event types: `*` is exactly one segment, `**` at the end one or more.
        types: Vec<Pattern>, types();
        /// Names of sources, compared whole.
        sources: Vec<String>, lines(), else "all";
        /// The severity that an event has for this subscriber: of the first entry whose `where` is
        /// true, else its own. An untrusted event is never critical by it.
        severity_when: Vec<SeverityRule> = Vec::new(), severities_when(SEVERITIES_MAX, severity_keys());
        /// The lowest severity that passes; `warn` is `warning`.
        severity_filter: Severity = Severity::Debug, severity();
        /// An expression that must be true, see [where](selecting.md#where).
        condition "where": Condition, condition(), else "none";
    }
}

// The fewest tokens are a line with its wrapper; the most leave room for others in an injection.
settings! {
    /// The notifications of the subscriber.
    pub(super) struct Output from Section<'_> {
        /// The order of delivery, and which points the notification may use.
        priority: Priority = Priority::Normal, word();
        /// The field of an event with its own priority, `low`, `normal` or `high`, in place of `priority`; a
        /// notification has the highest of its events.
        priority_by: FieldPath, field(), else "none";
        /// The point that releases a notification; [api.md](api.md#what-a-point-releases) has the
        /// table.
        inject_at: InjectionPoint, among(&POINTS), else "`\"after_tool\"`, for low `\"turn_end\"`";
        /// The effect of a pending notification, see [activation](delivery.md#activation).
        activation: Activation = Activation::default(), word();
        /// `session`: an active notification for a folder or for all sessions is passive.
        active_for: ActiveFor = ActiveFor::default(), word();
        /// The effect of a critical notification on a running turn, see [activation](delivery.md#activation).
        interrupt: Interrupt = Interrupt::default(), word();
        /// A trusted event of at least this severity makes a critical, immediate notification of its
        /// own; `"never"` is an error in a core subscriber.
        escalate_at: Option<Severity> = Some(Severity::Critical), severity_or_never();
        /// The most tokens of one notification, estimated; never more than `injection.max_tokens`
        /// less 60 for its wrapper.
        max_tokens: Tokens = MAX_TOKENS, number(Tokens(20)..=Tokens(2_000));
        /// The receiver of the notifications, see [audience](delivery.md#audience).
        audience: Audience = Audience::default(), word();
        /// Whether the agent is asked to answer: the text then has `respond: ID`, see
        /// [responses](delivery.md#responses-and-repetition).
        requires_response: bool = false, flag();
        /// Whether the [region](delivery.md#the-live-region) of a session has the conditions and retained states:
        /// `also` in addition to their delivery, `only` in place of it (critical ones are delivered all the same),
        /// or `never`.
        region: RegionUse = RegionUse::default(), word();
    }
}

readers! {
    any_text() -> String = |value| values::text(value).map(str::to_owned);
    version() -> semver::Version = values::version;
    patterns() -> Vec<Pattern> = |value| values::list(value, values::parsed);
    fields() -> Vec<FieldPath> = values::field_paths;
    condition() -> Condition = read_condition;
    field() -> FieldPath = read_field;
    severity() -> Severity = values::severity;
    severity_or_never() -> Option<Severity> = read_escalation;
    among(points: &[InjectionPoint]) -> InjectionPoint = |value| read_point(value, points);
}

impl Section<'_> {
    fn id(&mut self, key: &'static str) -> Option<SubscriberId> {
        self.require(key, read_id)
    }

    fn types(&mut self, key: &'static str) -> Option<Vec<Pattern>> {
        self.require(key, values::patterns)
    }

    pub(in crate::config) fn delays(&mut self, key: &'static str, max: usize) -> Option<Vec<Delay>> {
        self.read(key, |value| values::delays(value, max))
    }

    pub(in crate::config) fn times_of_day(&mut self, key: &'static str, max: usize) -> Option<Vec<u16>> {
        self.read(key, |value| values::times_of_day(value, max))
    }

    pub(in crate::config) fn levels(&mut self, key: &'static str, max: usize) -> Option<Vec<f64>> {
        self.require(key, |value| read_levels(value, max))
    }

    fn severities_when(&mut self, key: &'static str, max: usize, _: Vec<Key>) -> Option<Vec<SeverityRule>> {
        self.read(key, |value| {
            let rules = values::list(value, read_severity_rule)?;
            if rules.len() > max {
                return Err(vec![value.error(format!("`{key}` has at most {max} entries"))]);
            }
            Ok(rules)
        })
    }
}

/// The description of the sections of a subscriber's file, without its tests.
pub fn tables() -> Vec<FileTable> {
    let core = keys! {
        /// `true`: the subscriber cannot be disabled here, nor silenced by a
        /// [later layer](changing-what-ships.md#changing-what-ships).
        core: bool = false, flag();
    };
    let with = |table: Table, keys: Vec<Vec<Key>>| Table {
        keys: table.keys.into_iter().chain(keys.into_iter().flatten()).collect(),
        ..table
    };
    vec![
        FileTable::new("subscriber", About::table()),
        FileTable::new("events", Events::table()),
        FileTable::new("batching", limits::Keys::table()),
        FileTable::new("threshold", threshold::Keys::table()),
        FileTable::new("absent", absent::Keys::table()),
        FileTable::new("limits", with(limits::Written::table(), vec![inhibit::Keys::table().keys])),
        FileTable::new("repeat", repeat::Keys::table()),
        FileTable::new("output", with(Output::table(), vec![layout::keys(), core])),
    ]
}

/// The id of a subscriber.
pub(super) fn read_id(value: &Value<'_>) -> Parsed<SubscriberId> {
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

/// The keys of an entry of `severity_when`.
fn severity_keys() -> Vec<Key> {
    keys! {
        /// The severity.
        is: Severity, severity();
        /// The condition.
        condition "where": Condition, condition();
    }
}

fn read_severity_rule(value: &Value<'_>) -> Parsed<SeverityRule> {
    let mut section = value.section().ok_or_else(|| {
        value.wrong_kind("a table such as { is = \"critical\", where = \"payload.percent >= 95\" }")
    })?;
    let is = section.require("is", values::severity);
    let condition = section.require("where", read_condition);
    let found = section.finish();
    match (is, condition) {
        (Some(is), Some(condition)) if found.is_empty() => Ok(SeverityRule { is, condition }),
        _ => Err(found),
    }
}

fn read_field(value: &Value<'_>) -> Parsed<FieldPath> {
    let mut fields = values::field_paths(value)?;
    match (fields.pop(), fields.is_empty()) {
        (Some(field), true) => Ok(field),
        _ => Err(vec![value.error(format!("`{}` names one field", value.name()))]),
    }
}

/// Levels of a threshold: numbers above zero, ascending.
fn read_levels(value: &Value<'_>, max: usize) -> Parsed<Vec<f64>> {
    let levels = values::list(value, values::decimal)?;
    let wrong = if levels.is_empty() {
        Some("`at` names no level".to_owned())
    } else if levels.len() > max {
        Some(format!("`at` has at most {max} levels"))
    } else if levels.iter().any(|level| *level <= 0.0) {
        Some("a level is above 0".to_owned())
    } else if !levels.is_sorted_by(|left, right| left < right) {
        Some("each level must be larger than the one before".to_owned())
    } else {
        None
    };
    wrong.map_or(Ok(levels), |wrong| Err(vec![value.error(wrong)]))
}

pub(crate) fn read_condition(value: &Value<'_>) -> Parsed<Condition> {
    values::source(value, Condition::deferred, |source| compile_condition(value, source))
}

fn compile_condition(value: &Value<'_>, source: &str) -> Parsed<Condition> {
    if source.len() > CONDITION_BYTES_MAX {
        let message = format!(
            "`{}` has at most {CONDITION_BYTES_MAX} bytes, this one has {}",
            value.name(),
            source.len()
        );
        return Err(vec![value.error(message)]);
    }
    Condition::compile(source).map_err(|error| {
        let mut wrong =
            value.error(format!("`{}` is not an expression: {}", value.name(), sentence(&error.message)));
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

fn read_point(value: &Value<'_>, points: &[InjectionPoint]) -> Parsed<InjectionPoint> {
    if values::text(value)? == InjectionPoint::BeforeTool.as_str() {
        let message = "`before_tool` is where a harness asks, but a subscriber cannot choose it";
        let note = "a critical notification with `inject_at = \"immediate\"` is released there";
        return Err(vec![value.error(message).with_note(note)]);
    }
    values::word_of(value, points)
}
