//! The ways to change what an earlier layer has: a template, a file that inherits, a whole file, and
//! the remainder of a core subscriber.

use std::sync::Arc;

use aside::config::{
    compile::{Compiled, compile},
    layers::{LayerKind, SourceFile, Sources},
    text,
    trial::text_as_template,
};
use engine::{
    event::{Event, Provenance, Severity, catalogue},
    notification::{Activation, InjectionPoint, Notification, Priority},
    pipeline::rule::{Activity, Subscriber},
};
use serde_json::{Value, json};

use crate::support::rules::{event, made, rule, with_user, with_user_sources};

/// The subscribers that are re-worded, with an event of each; the first two are core.
const REWORDED: [(&str, &str); 5] = [
    ("tool_failure", "tool.call.failure"),
    ("budget_exceeded", "budget.token.exceeded"),
    ("ci_check", "ci.check.failed"),
    ("background_task", "task.failed"),
    ("reminder", "reminder.due"),
];

fn shipped_rules() -> Compiled {
    compile(&Sources::shipped(), &[])
}

/// Everything of a subscriber but its text.
fn without_text(rule: &Subscriber) -> String {
    let filter = (&rule.types, &rule.sources, rule.severity_min, &rule.condition, rule.activity);
    let batches = (&rule.batching, &rule.dedupe, &rule.rate, rule.ttl);
    let counts = (&rule.severity_when, &rule.threshold, &rule.close_when, &rule.open_when);
    let states = (&rule.supersede_key, &rule.resolve, &rule.order);
    let output = &rule.output;
    let urgency = (output.priority, output.inject_at, output.activation, output.active_for, output.interrupt);
    let rest = (output.escalate_at, output.max_tokens, output.audience, &output.sentence);
    format!("{filter:?} {batches:?} {counts:?} {states:?} {urgency:?} {rest:?}")
}

/// Everything of a notification but its text.
fn urgency(one: &Notification) -> String {
    let at = (one.created_at, one.expires_at, &one.scope);
    format!(
        "{at:?} {} {} {:?} {:?} {}",
        one.priority, one.inject_at, one.activation, one.nature, one.severity
    )
}

/// The event of a type with its example as payload, for each severity.
fn events(event_type: &str) -> Vec<Event> {
    let payload = example(event_type);
    [Severity::Debug, Severity::Info, Severity::Warning, Severity::Error, Severity::Critical]
        .map(|severity| event(event_type, Some(severity), &payload))
        .to_vec()
}

fn example(event_type: &str) -> Value {
    let entry = catalogue::types().find(|entry| entry.event_type.as_str() == event_type);
    entry.map_or_else(|| json!({}), |entry| Value::clone(entry.example.value()))
}

fn file_of(id: &str) -> &'static str {
    let name = format!("subscribers/{id}.toml");
    text::rules().find(|(file, _)| *file == name).map(|(_, text)| text).expect("it ships")
}

/// The whole shipped file of `id` with another text.
fn whole_with_text(id: &str) -> String {
    let mut table: toml::Table = file_of(id).parse().expect("TOML");
    let output = table.get_mut("output").and_then(toml::Value::as_table_mut).expect("a table");
    for key in ["one", "table", "template"] {
        output.remove(key);
    }
    output.insert("one".to_owned(), "mine: {{ type }}".into());
    table.to_string()
}

#[test]
fn rewording_changes_the_text_and_nothing_else() {
    let shipped = shipped_rules();
    for (id, event_type) in REWORDED {
        let name = format!("subscribers/{id}.toml");
        let inherit = |rest: &str| format!("[subscriber]\nid = \"{id}\"\ninherit = true\n{rest}");
        let template = (format!("templates/{id}.toon.j2"), "mine: {{ events[0].type }}\n".to_owned());
        let ways = [
            ("template", vec![template.clone()]),
            ("inherit", vec![(name.clone(), inherit("[output]\none = \"mine: {{ type }}\"\n"))]),
            ("inherit without a key, and a template", vec![(name.clone(), inherit("")), template]),
            ("whole", vec![(name.clone(), whole_with_text(id))]),
        ];
        for (way, files) in ways {
            let files: Vec<_> = files.iter().map(|(name, text)| (name.as_str(), text.as_str())).collect();
            let compiled = with_user(&files);
            assert_eq!(compiled.report.to_string(), "", "{id}, {way}");
            let (own, before) = (rule(&compiled, id), rule(&shipped, id));
            assert_eq!(without_text(own), without_text(before), "{id}, {way}");
            assert_eq!(compiled.rules.subscribers.len(), shipped.rules.subscribers.len(), "{id}, {way}");
            let (own, before) = (made(&compiled, &events(event_type)), made(&shipped, &events(event_type)));
            let texts: Vec<_> = own.iter().map(|one| one.content.text()).collect();
            assert!(!texts.is_empty() && texts.iter().all(|text| text.starts_with("mine: ")), "{texts:?}");
            assert_eq!(
                own.iter().map(|one| urgency(one)).collect::<Vec<_>>(),
                before.iter().map(|one| urgency(one)).collect::<Vec<_>>(),
                "{id}, {way}"
            );
        }
    }
}

#[test]
fn later_templates_are_the_text() {
    let template = "mine: {{ count }}\n";
    let own = "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"a.b\"]\n[output]\n";
    for (written, later, expected) in [
        ("one = \"a: 1\"", true, true),
        ("table = { key = \"a\" }", true, true),
        ("template = \"generic\"", true, true),
        ("template = \"other\"", true, true),
        ("", true, true),
        // In one layer, the subscriber's file goes first.
        ("one = \"a: 1\"", false, false),
        ("template = \"other\"", false, false),
        ("", false, true),
    ] {
        let file = |layer, name: &str, text: &str| SourceFile {
            layer,
            name: name.into(),
            path: format!("{layer}/{name}").into(),
            text: text.into(),
        };
        let layer = if later { LayerKind::User } else { LayerKind::System };
        let sources = Sources::shipped().with(
            [
                file(LayerKind::System, "subscribers/own.toml", &format!("{own}{written}\n")),
                file(LayerKind::System, "templates/other.toon.j2", "other: 1\n"),
                file(layer, "templates/own.toon.j2", template),
            ],
            [],
        );
        let compiled = compile(&sources, &[]);
        assert_eq!(compiled.report.to_string(), "", "{written}");
        let is_template = rule(&compiled, "own").output.layout.template() == Some("own.toon.j2");
        assert_eq!(is_template, expected, "{written}, later: {later}");
    }
}

#[test]
fn rewording_part_of_a_core_subscriber_changes_text() {
    let shipped = shipped_rules();
    for (id, taken, left) in [
        ("tool_failure", "tool.call.failure", "tool.call.timeout"),
        ("budget_exceeded", "budget.token.exceeded", "budget.timeout.exceeded"),
    ] {
        let text = format!(
            "[subscriber]\nid = \"{id}\"\ninherit = true\n[events]\ntypes = [\"{taken}\"]\n\
             [output]\none = \"mine: {{{{ type }}}}\"\n"
        );
        let compiled = with_user(&[("subscribers/mine.toml", &text)]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        for (event_type, own) in [(taken, true), (left, false)] {
            let (now, before) = (made(&compiled, &events(event_type)), made(&shipped, &events(event_type)));
            let urgencies =
                |made: &[Arc<Notification>]| made.iter().map(|one| urgency(one)).collect::<Vec<_>>();
            assert!(!now.is_empty() && urgencies(&now) == urgencies(&before), "{id}: {now:#?}");
            for (now, before) in now.iter().zip(&before) {
                assert_eq!(now.content.text().starts_with("mine: "), own, "{id}: {now:?}");
                assert!(own || now.content.text() == before.content.text(), "{id}: {now:?}");
            }
        }
    }
}

#[test]
fn templates_that_do_not_compile_change_nothing() {
    let compiled = with_user(&[("templates/tool_failure.toon.j2", "a: {{ count\n")]);
    assert_eq!(compiled.report.error_count(), 1, "{}", compiled.report);
    let shipped = shipped_rules();
    assert_eq!(rule(&compiled, "tool_failure").output.layout, rule(&shipped, "tool_failure").output.layout);
}

#[test]
fn inheriting_files_replace_the_named_keys() {
    let text = "[subscriber]\nid = \"tool_failure\"\ninherit = true\n[batching]\nwindow_ms = 500\n\
                [output]\npriority = \"normal\"\n";
    let compiled = with_user(&[("subscribers/mine.toml", text)]);
    assert_eq!(compiled.report.to_string(), "");
    let shipped = shipped_rules();
    let (own, before) = (rule(&compiled, "tool_failure"), rule(&shipped, "tool_failure"));
    assert_eq!((own.batching.window.as_millis(), own.output.priority), (500, Priority::Normal));
    let (own, before) = (without_text(own), without_text(before));
    let expected = before.replacen("window: 2s", "window: 500ms", 1).replacen("High", "Normal", 1);
    assert_eq!(own, expected);
}

#[test]
fn a_third_layer_inherits_from_the_second() {
    let file = |layer, text: &str| SourceFile {
        layer,
        name: "subscribers/reminder.toml".into(),
        path: format!("{layer}/reminder.toml").into(),
        text: text.into(),
    };
    let head = "[subscriber]\nid = \"reminder\"\ninherit = true\n";
    let system = format!("{head}[limits]\nttl = \"1m\"\n[output]\none = \"system: 1\"\n");
    let user = format!("{head}[output]\nmax_tokens = 100\n");
    let sources =
        Sources::shipped().with([file(LayerKind::System, &system), file(LayerKind::User, &user)], []);
    let compiled = compile(&sources, &[]);
    assert_eq!(compiled.report.to_string(), "");
    let own = rule(&compiled, "reminder");
    assert_eq!((own.ttl.map(|ttl| ttl.as_secs()), own.output.max_tokens.0), (Some(60), 100));
    assert_eq!(own.output.activation, Activation::Active, "the shipped one");
    let texts = made(&compiled, &[event("reminder.due", None, &json!({ "text": "x" }))]);
    assert_eq!(texts[0].content.text().trim(), "system: 1");
}

#[test]
fn keys_that_whole_files_lose_are_warned_of() {
    let text = "[subscriber]\nid = \"ci_check\"\n[events]\ntypes = [\"ci.check.failed\"]\n[output]\none = \"mine: 1\"\n";
    let compiled = with_user(&[("subscribers/ci.toml", text)]);
    let report = compiled.report.to_string();
    assert_eq!(compiled.report.error_count(), 0, "{report}");
    for key in ["priority", "resolved_by", "supersede_key", "sentence", "activation", "active_for"] {
        assert!(report.contains(&format!("`{key}` was ")), "{key}: {report}");
    }
    for part in
        ["`priority` was high in shipped:subscribers/ci_check.toml, and is normal here", "`inherit = true`"]
    {
        assert!(report.contains(part), "{part}: {report}");
    }
    for key in ["id", "name", "version", "one", "table", "types", "enabled", "equal"] {
        assert!(!report.contains(&format!("`{key}` was ")), "{key}: {report}");
    }
    assert!(compiled.report.diagnostics().iter().all(|one| one.place.line() == 2), "{report}");
}

#[test]
fn lost_keys_without_effect_are_not_warned_of() {
    for (window, warns) in [("window_ms = 0", false), ("window_ms = 500", true)] {
        let text = format!(
            "[subscriber]\nid = \"loop_detected\"\n[events]\ntypes = [\"agent.loop.detected\"]\n[batching]\n{window}\n"
        );
        let report = with_user(&[("subscribers/loop.toml", &text)]).report.to_string();
        assert_eq!(report.contains("`max_size` was "), warns, "{window}: {report}");
        assert!(report.contains("`ttl` was "), "{window}: {report}");
    }
}

/// A file of a core subscriber that takes less, and the events that each of both delivers.
struct Narrower {
    id: &'static str,
    file: &'static str,
    warned: &'static [&'static str],
    taken: (&'static str, Severity, &'static str),
    left: &'static [(&'static str, Severity, &'static str)],
}

const NARROWER: [Narrower; 4] = [
    Narrower {
        id: "budget_exceeded",
        file: "[events]\ntypes = [\"budget.token.exceeded\"]\nseverity_filter = \"error\"\n",
        warned: &["types", "severity_filter"],
        taken: ("budget.token.exceeded", Severity::Error, "test"),
        left: &[
            ("budget.timeout.exceeded", Severity::Critical, "test"),
            ("budget.token.exceeded", Severity::Info, "test"),
        ],
    },
    Narrower {
        id: "tool_failure",
        file: "[events]\ntypes = [\"tool.call.failure\", \"tool.call.timeout\"]\nsources = [\"test\"]\nseverity_filter = \"warning\"\n",
        warned: &["sources"],
        taken: ("tool.call.failure", Severity::Error, "test"),
        left: &[("tool.call.timeout", Severity::Error, "other")],
    },
    Narrower {
        id: "loop_detected",
        file: "[events]\ntypes = [\"agent.loop.detected\"]\nwhere = \"payload.count + 1 > 3\"\n",
        warned: &["where"],
        taken: ("agent.loop.detected", Severity::Warning, "test"),
        // Its payload has no number there, so the condition fails.
        left: &[("agent.loop.detected", Severity::Warning, "text")],
    },
    Narrower {
        id: "budget_warning",
        file: "inherit = true\n[events]\nseverity_filter = \"critical\"\n",
        warned: &["severity_filter"],
        taken: ("budget.token.warning", Severity::Critical, "test"),
        left: &[("budget.token.warning", Severity::Warning, "test")],
    },
];

fn narrower_event((event_type, severity, source): (&str, Severity, &str)) -> Event {
    let payload = if source == "text" { json!({ "count": "9" }) } else { json!({ "count": 9 }) };
    Event { source: source.into(), ..event(event_type, Some(severity), &payload) }
}

#[test]
fn narrower_core_files_leave_the_rest() {
    for Narrower { id, file, warned, taken, left } in NARROWER {
        let text = format!(
            "[subscriber]\nid = \"{id}\"\n{file}[batching]\nwindow_ms = 0\n[output]\none = \"mine: {{{{ type }}}}\"\n"
        );
        let compiled = with_user(&[("subscribers/mine.toml", &text)]);
        let report = compiled.report.to_string();
        assert_eq!(compiled.report.error_count(), 0, "{id}: {report}");
        for key in warned {
            assert!(report.contains(&format!("at `events.{key}`")), "{id}: {report}");
        }
        assert!(report.contains("still delivered as in shipped:subscribers/"), "{id}: {report}");
        assert_eq!(rule(&compiled, id).activity, Activity::Core, "{id}");
        let made = |event| -> Vec<Arc<Notification>> { made(&compiled, &[narrower_event(event)]) };
        let [own] = &*made(taken) else { panic!("{id}: {:#?}", made(taken)) };
        assert_eq!((own.subscriber.as_str(), own.content.text().starts_with("mine: ")), (id, true));
        for event in left {
            let [own] = &*made(*event) else { panic!("{id} {event:?}: {:#?}", made(*event)) };
            assert_eq!(own.subscriber.as_str(), format!("{id}@shipped"), "{event:?}");
            assert!(!own.content.text().starts_with("mine: "), "{event:?}");
        }
    }
}

#[test]
fn a_remainder_is_delivered_once_in_each_layer() {
    let file = |layer, types: &str| SourceFile {
        layer,
        name: "subscribers/budget_exceeded.toml".into(),
        path: format!("{layer}/budget_exceeded.toml").into(),
        text: format!("[subscriber]\nid = \"budget_exceeded\"\n[events]\ntypes = [{types}]\n").into(),
    };
    let system =
        file(LayerKind::System, "\"budget.token.exceeded\", \"budget.own.exceeded\", \"own.system.type\"");
    let user = file(LayerKind::User, "\"budget.own.exceeded\"");
    let compiled = compile(&Sources::shipped().with([system, user], []), &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    for (event_type, subscriber) in [
        ("budget.own.exceeded", "budget_exceeded"),
        ("budget.token.exceeded", "budget_exceeded@system"),
        ("own.system.type", "budget_exceeded@system"),
        ("budget.timeout.exceeded", "budget_exceeded@shipped"),
    ] {
        let made = made(&compiled, &[event(event_type, None, &json!({ "budget_type": "x" }))]);
        let found: Vec<_> = made.iter().map(|one| one.subscriber.as_str()).collect();
        assert_eq!(found, [subscriber], "{event_type}");
    }
}

#[test]
fn a_remainder_has_its_own_text_and_rule() {
    let text = "[subscriber]\nid = \"budget_warning\"\n[events]\ntypes = [\"budget.token.warning\"]\n";
    let template = "mine: {{ events[0].payload.never }}\n";
    let files = [("subscribers/b.toml", text), ("templates/budget_warning.toon.j2", template)];
    let compiled = with_user(&files);
    let shipped = shipped_rules();
    let (left, before) = (rule(&compiled, "budget_warning@shipped"), rule(&shipped, "budget_warning"));
    assert_eq!(without_text(left), without_text(before));
    assert_eq!(left.output.layout, before.output.layout, "a template of the user's is for the user's file");
}

#[test]
fn untrusted_events_wait_for_their_point_alone() {
    let shipped = shipped_rules();
    let active =
        shipped.rules.subscribers.iter().filter(|rule| rule.output.activation != Activation::Passive);
    let ids: Vec<_> = active.map(|rule| rule.id.as_str()).collect();
    assert!(ids.len() >= 4, "{ids:?}");
    for activation in ["active", "prompt", "passive"] {
        let text = format!(
            "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"own.event\"]\n[output]\npriority = \"high\"\nactivation = \"{activation}\"\n"
        );
        let compiled = with_user(&[("subscribers/own.toml", &text)]);
        for severity in [Severity::Info, Severity::Critical] {
            let untrusted = Event {
                source: "planner".into(),
                provenance: Provenance::Local,
                ..event("own.event", Some(severity), &json!({}))
            };
            let [own] = &*made(&compiled, &[untrusted]) else { panic!("{activation}") };
            assert_eq!((own.activation, own.priority), (Activation::Passive, Priority::High), "{activation}");
        }
    }
}

#[test]
fn a_trusted_critical_event_is_always_critical() {
    let own = "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"own.event\"]\n[output]\npriority = \"low\"\n";
    let compiled = with_user(&[("subscribers/own.toml", own)]);
    let (mut count, mut never) = (0, Vec::new());
    for rule in &compiled.rules.subscribers {
        if rule.output.escalate_at.is_none() {
            never.push(rule.id.as_str());
            continue;
        }
        for pattern in &rule.types {
            let event_type = pattern.to_string().replace("**", "new").replace('*', "new");
            let event = event(&event_type, Some(Severity::Critical), &example(&event_type));
            let made = made(&compiled, &[event]);
            let own: Vec<_> = made.iter().filter(|one| one.subscriber == rule.id).collect();
            let [own] = &*own else { panic!("{} {event_type}: {made:#?}", rule.id) };
            let found = (own.priority, own.inject_at, own.activation);
            let expected = (Priority::Critical, InjectionPoint::Immediate, Activation::Active);
            assert_eq!(found, expected, "{} {event_type}", rule.id);
            count += 1;
        }
    }
    assert!(count >= 30, "{count} types");
    // Its events are those of `ci_check`, which delivers a critical one at once.
    assert_eq!(never, ["flaky_check"]);
}

#[test]
fn an_escalation_can_be_switched_off() {
    for (written, severity, expected) in [
        ("", Severity::Critical, Priority::Critical),
        ("", Severity::Error, Priority::Normal),
        ("escalate_at = \"critical\"", Severity::Critical, Priority::Critical),
        ("escalate_at = \"error\"", Severity::Error, Priority::Critical),
        ("escalate_at = \"never\"", Severity::Critical, Priority::Normal),
    ] {
        let text =
            format!("[subscriber]\nid = \"own\"\n[events]\ntypes = [\"own.event\"]\n[output]\n{written}\n");
        let compiled = with_user(&[("subscribers/own.toml", &text)]);
        assert_eq!(compiled.report.to_string(), "", "{written}");
        let made = made(&compiled, &[event("own.event", Some(severity), &json!({}))]);
        assert_eq!(made[0].priority, expected, "{written} {severity}");
    }
    let text =
        "[subscriber]\nid = \"own\"\n[events]\ntypes = [\"own.event\"]\n[output]\nescalate_at = \"nevr\"\n";
    let report = with_user(&[("subscribers/own.toml", text)]).report.to_string();
    assert!(report.contains("did you mean `never`?"), "{report}");
}

#[test]
fn every_shipped_text_is_written_as_jinja() {
    let sources = Sources::shipped();
    let compiled = shipped_rules();
    let entries: Vec<_> = catalogue::types().collect();
    for rule in &compiled.rules.subscribers {
        let text = text_as_template(&sources, &compiled, &entries, rule.id.as_str());
        let text = text.unwrap_or_else(|why| panic!("{}: {why}", rule.id));
        let name = format!("templates/{}.toon.j2", rule.id);
        let edited = with_user(&[(&name, &text)]);
        assert_eq!(edited.report.to_string(), "", "{text}");
        let own = self::rule(&edited, rule.id.as_str());
        assert_eq!(own.output.layout.template(), name.strip_prefix("templates/"), "{}", rule.id);
        assert_eq!(without_text(own), without_text(rule), "{}", rule.id);
    }
}

#[test]
fn own_texts_are_written_as_jinja_or_refused() {
    for (output, part) in [
        (
            "one = \"a: {{ payload.tool_name }}\"\ntable = { key = \"as\", columns = [\"tool_name\"] }",
            Ok("|optional }}"),
        ),
        (
            "one = 'a: {{ payload.at.file }} {{ payload.tool_name if payload.at.line }}'\ntable = { key = \"as\" }",
            Ok("{{ payload.at.file|optional }}"),
        ),
        (
            "one = '{% raw %}{{ x }}{% endraw %}: {{ \"}}\" ~ payload.tool_name }}'\ntable = { key = \"as\", repeats = false }",
            Ok("repeats=false"),
        ),
        (
            "one = 'n: {{ repeats }}, {{ id }}'\ntable = { key = \"as\" }",
            Ok("set repeats = events[0].repeats"),
        ),
        (
            "table = { key = \"as\", columns.tool = [\"tool_name\", \"@source\"], columns.\"a b\" = \"error_type\" }",
            Ok("\"a b\""),
        ),
        ("template = \"tool_failure\"", Ok("rows|toon(key=\"tool_fails\"")),
        ("one = 'a: 1'\nmany = 'b: {{ count }}'", Ok("{% else %}\nb: {{ count }}\n{% endif %}")),
        ("many = 'b: {{ count }}'", Ok("#}\nb: {{ count }}")),
        ("one = \"a: 1\"", Err("its text of several events is the generic table")),
        ("template = \"generic\"", Err("its text is the generic table")),
    ] {
        let text =
            format!("[subscriber]\nid = \"own\"\n[events]\ntypes = [\"tool.call.*\"]\n[output]\n{output}\n");
        let sources = with_user_sources(&[("subscribers/own.toml", &text)]);
        let compiled = compile(&sources, &[]);
        let entries: Vec<_> = catalogue::types().collect();
        let written = text_as_template(&sources, &compiled, &entries, "own");
        match (&written, part) {
            (Ok(text), Ok(part)) => assert!(text.contains(part), "{output}: {text}"),
            (Err(why), Err(part)) => assert!(why.contains(part), "{output}: {why}"),
            _ => panic!("{output}: {written:?}"),
        }
    }
}
