//! Renders templates and conditions that would take gigabytes, and measures the memory.
//!
//! The process of this test renders all of them and reads its peak size from the system: a failed
//! allocation would abort it, and a successful one would show in the size.

use std::{fs, sync::Arc};

use engine::{
    event::{Event, Payload, Seq},
    notification::{SubscriberId, Tokens},
    pipeline::{
        condition::Condition,
        render::{RenderInput, Templates},
        row::Row,
    },
};

/// Most KiB by which the process may grow.
const KIB_MAX: u64 = 64 * 1024;

/// All of them compile; a template that does not compile cannot allocate anything.
const TEMPLATES: [&str; 16] = [
    "a: {{ \"x\ny\"|indent(events[0].payload.n) }}",
    "a: {{ [1]|slice(10**12)|length }}",
    "a: {{ [1]|batch(10**9, 0)|length }}",
    "{% set ns = namespace(t=events[0].payload.text) %}{% for i in range(40) %}{% set ns.t = ns.t ~ ns.t %}{% endfor %}a: {{ ns.t }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}a: {{ ns.l|length }}",
    "{% set ns = namespace(l=[1]) %}{% for i in range(40) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}a: {{ ns.l|string }}",
    "a: {{ events[0].payload.text * 100000 }}",
    "{% set a = events[0].payload.text|replace('a', events[0].payload.text) %}a: {{ a|replace('a', a) }}",
    "a: {{ range(99999)|join(events[0].payload.text) }}",
    "{% for i in range(20000) %}{% set x = events|sort(attribute='payload.text') %}{% endfor %}a: 1",
    "{% for i in range(20000) %}{% set x = events[0].payload.text|upper %}{% endfor %}a: 1",
    "{% for i in range(20000) %}{% set x = events[0].payload.text|split('a')|join('b') %}{% endfor %}a: 1",
    "a: {{ '%999999999d'|format(1) }}",
    "{% set x %}{{ events[0].payload.text }}{% endset %}{% for i in range(20000) %}{{ x }}{% endfor %}",
    "{% for e in events %}{% for k in e.payload %}\nk{{ loop.index }}: {{ e.payload|tojson }}\n{% endfor %}{% endfor %}",
    "{% set ns = namespace() %}{% set ns.me = [ns] %}a: {{ ns|string }}",
];

const CONDITIONS: [&str; 6] = [
    "payload.text|indent(payload.n)",
    "([1]|slice(10**12))|length > 1",
    "payload.text * payload.n == 'x'",
    "payload.text|replace('a', payload.text)|replace('a', payload.text)|length > 1",
    "range(99999)|join(payload.text)|length > 1",
    "(payload.many|list + payload.many|list + payload.many|list)|sort|unique|map('upper')|join(payload.text)|length > 1",
];

fn event(seq: u64) -> Arc<Event> {
    let many: Vec<String> = (0..3_000).map(|at| format!("k{at}")).collect();
    let payload = serde_json::json!({ "text": "a".repeat(20_000), "n": i64::MAX, "many": many });
    let event_type = "tool.call.failure".parse().expect("valid type");
    Arc::new(Event { id: format!("e{seq}").into(), ..Event::example(event_type, Payload::from(payload)) })
}

/// The peak size of this process, in KiB.
fn largest() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("the process's own status");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a size");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

#[test]
fn template_needing_gigabytes_fails_without_losing_events() {
    let rows: Vec<Row> = (1..=20)
        .map(|seq| Row { seq: Seq(seq), event: event(seq), repeats: 1, threshold: None, suppressed: None })
        .collect();
    let subscriber = SubscriberId::new("sub");
    let before = largest();
    for source in TEMPLATES {
        let mut templates = Templates::new();
        if templates.add("t", source).is_err() {
            continue;
        }
        let rendered = templates.render("t", &RenderInput::new(&subscriber, &rows, Tokens(800)));
        assert!(rendered.failure.is_some(), "{source}: {}", rendered.content);
        assert!(toon::decode(&rendered.content).is_ok(), "{}", rendered.content);
    }
    assert!(largest() - before < KIB_MAX, "{} KiB more", largest() - before);
}

#[test]
fn a_condition_that_would_take_gigabytes_fails() {
    let before = largest();
    for source in CONDITIONS {
        let Ok(condition) = Condition::compile(source) else { continue };
        let tested = condition.test(&event(1));
        assert!(tested.is_err(), "{source}");
    }
    assert!(largest() - before < KIB_MAX, "{} KiB more", largest() - before);
}
