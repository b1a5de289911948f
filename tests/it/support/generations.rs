//! Generations of rules under small limits: subscribers of every kind, some of which are removed,
//! return or change.

use std::sync::{Arc, LazyLock};

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
};
use engine::rules::CompiledRules;

/// The number of generations.
pub(crate) const GENERATIONS: usize = 4;
/// The generation with [`BUDGETS`].
pub(crate) const WITH_BUDGETS: usize = 3;

/// Window batches with dedupe; a full batch closes early and an exchange closes an open one.
const WINDOWED: &str = r#"
[subscriber]
id = "windowed"
[events]
types = ["tool.call.*"]
severity_filter = "info"
[batching]
window_ms = 2000
max_size = 3
dedupe_key = "type:payload.tool"
dedupe_window_ms = 5000
[output]
priority = "high"
inject_at = "after_tool"
"#;

/// Quiet batches by group, which close together with expiry.
const QUIET: &str = r#"
[subscriber]
id = "quiet"
[events]
types = ["fs.**"]
[batching]
window_ms = 2000
max_size = 4
mode = "debounce"
max_wait_ms = 6000
group_by = "payload.tool"
[limits]
ttl = "20s"
"#;

/// Like [`QUIET`], with a rate and a limit that is shorter than a batch may have been open already.
const QUIET_OTHERWISE: &str = r#"
[subscriber]
id = "quiet"
[events]
types = ["fs.**", "ci.check.passed"]
[batching]
window_ms = 300
max_size = 3
mode = "debounce"
max_wait_ms = 400
group_by = "payload.tool"
[limits]
rate = "2/min"
"#;

/// Without batches, and with a low rate.
const LIMITED: &str = r#"
[subscriber]
id = "limited"
[events]
types = ["ci.**"]
[batching]
window_ms = 0
[limits]
rate = "2/s"
tokens = "50/h"
[output]
priority = "normal"
inject_at = "turn_start"
"#;

const URGENT: &str = r#"
[subscriber]
id = "urgent"
[events]
types = ["budget.*.exceeded"]
[batching]
window_ms = 0
[output]
priority = "critical"
inject_at = "immediate"
"#;

/// Waits for the end of a turn, unless an event is severe enough.
const PATIENT: &str = r#"
[subscriber]
id = "patient"
[events]
types = ["fs.file.modified", "tool.call.failure"]
sources = ["tools"]
[batching]
window_ms = 3000
[limits]
tokens = "150/h"
[output]
priority = "low"
inject_at = "turn_end"
escalate_at = "critical"
"#;

const OFF: &str = r#"
[subscriber]
id = "off"
enabled = false
[events]
types = ["ci.check.passed"]
[batching]
window_ms = 0
"#;

/// Its condition fails for most events, and its template for all.
const BROKEN: &str = r#"
[subscriber]
id = "broken"
[events]
types = ["budget.**"]
where = "payload.n + 1 > 2"
[batching]
window_ms = 0
[output]
template = "templates/broken.toon.j2"
"#;

const BROKEN_TEMPLATE: &str = "message: {{ events[0].payload.missing.deeper }}\n";

/// Conditions with a resolving event that is no row, and one that is a row too.
const HOLDS: &str = r#"
[subscriber]
id = "holds"
[events]
types = ["tool.call.*", "ci.run.done"]
[batching]
window_ms = 1000
dedupe_key = "type"
dedupe_window_ms = 60000
[limits]
resolved_by = ["ci.check.passed", "ci.run.done"]
equal = "payload.tool"
[output]
priority = "high"
inject_at = "after_tool"
"#;

/// Quiet hours that begin a few minutes after the model's timelines do, in UTC.
const NIGHT: &str = r#"
[subscriber]
id = "night"
[events]
types = ["fs.**", "ci.run.done"]
[batching]
window_ms = 700
max_size = 2
[limits]
quiet = ["22:14-22:16", "23:00-04:00"]
[output]
priority = "high"
inject_at = "after_tool"
"#;

/// Waits for turns, a time, a tool, an event, or the use of the context.
const DELAYED: &str = r#"
[subscriber]
id = "delayed"
[events]
types = ["ci.run.done", "tool.call.timeout"]
[batching]
window_ms = 0
[limits]
deliver_after = ["2 turns", "40s", "tool:grep", "event:budget.**", "context:50%"]
ttl = "10m"
"#;

/// Inhibited conditions, and an inhibition that an event ends.
const INHIBITED: &str = r#"
[subscriber]
id = "inhibited"
[events]
types = ["tool.call.*"]
[batching]
window_ms = 1000
[limits]
resolved_by = ["ci.check.passed"]
equal = "payload.tool"
[[limits.inhibit]]
by = ["budget.token.exceeded"]
equal = "payload.tool"
until = ["ci.run.done"]
for = "1m"
[output]
priority = "high"
inject_at = "after_tool"
"#;

/// Inhibited occurrences.
const INHIBITED_OCCURRENCES: &str = r#"
[subscriber]
id = "interrupted"
[events]
types = ["fs.**", "tool.call.timeout"]
[batching]
window_ms = 900
[limits]
inhibited_by = ["tool.call.failure"]
inhibit_equal = ""
"#;

/// Repeated until somebody answers.
const ANSWERED: &str = r#"
[subscriber]
id = "answered"
[events]
types = ["pager.alert.fired"]
[batching]
window_ms = 0
[repeat]
after = ["2s"]
raise = ["critical"]
[output]
priority = "normal"
inject_at = "after_tool"
requires_response = true
"#;

/// The subscriber of [`ANSWERED`].
pub(crate) const ASKING: &str = "answered";

/// Repeated as long as its condition holds.
const LASTING: &str = r#"
[subscriber]
id = "lasting"
[events]
types = ["pager.alert.fired", "tool.call.timeout"]
[batching]
window_ms = 500
[limits]
resolved_by = ["ci.check.passed"]
equal = "payload.tool"
[repeat]
until = "resolved"
after = ["20s", "1 turn"]
endless = true
[output]
priority = "high"
inject_at = "after_tool"
"#;

/// Sessions open with its newest states.
const STATE: &str = r#"
[subscriber]
id = "state"
[events]
types = ["deploy.state.changed"]
[batching]
window_ms = 400
[limits]
supersede_key = "payload.tool"
order_by = "payload.n"
retain = "2m"
"#;

/// Made of what does not come.
const MISSED: &str = r#"
[subscriber]
id = "missed"
[events]
types = ["job.run.done"]
[batching]
window_ms = 800
[absent]
after = "5s"
by = "payload.tool"
forget = "2m"
[output]
priority = "high"
inject_at = "after_tool"
"#;

/// Closes by its time alone.
const DIGEST: &str = r#"
[subscriber]
id = "digest"
[events]
types = ["fs.file.modified", "tool.call.failure"]
[batching]
mode = "digest"
every = "1m"
group_by = "payload.tool"
max_size = 2
[output]
priority = "high"
"#;

/// Subscribers whose batches can be open, or whose events wait, after the daemon has stopped.
pub(crate) const OPEN_AFTER_SHUTDOWN: [&str; 3] = ["night", "digest", ABSENT_ID];
/// The subscriber of what does not come.
pub(crate) const ABSENT_ID: &str = "missed";
/// Subscribers whose states are retained.
pub(crate) const RETAINING: [&str; 1] = ["state"];

/// The second and the fourth event of a minute pass.
const COUNTED: &str = r#"
[subscriber]
id = "counted"
[events]
types = ["tool.call.failure", "deploy.**"]
[threshold]
by = "payload.tool"
at = [2, 4]
within = "1m"
[batching]
window_ms = 600
"#;

/// Shown while it is true, and never delivered unless it is critical.
const SHOWN: &str = r#"
[subscriber]
id = "shown"
[events]
types = ["pager.alert.fired", "ci.run.done"]
[batching]
window_ms = 300
[limits]
resolved_by = ["ci.check.passed"]
equal = "payload.tool"
[output]
region = "only"
"#;

/// The subscriber of [`SHOWN`].
pub(crate) const IN_REGION_ONLY: &str = "shown";

/// Subscribes to the engine's own events.
const WATCHER: &str = r#"
[subscriber]
id = "watcher"
[events]
types = ["subscriber.failed", "source.throttled"]
[batching]
window_ms = 0
"#;

/// A core subscriber of an earlier layer.
const CORE: &str = r#"
[subscriber]
id = "kept"
[events]
types = ["tool.call.*", "budget.*.exceeded"]
[batching]
window_ms = 1500
dedupe_key = "type"
[output]
priority = "high"
core = true
"#;

/// Takes less than [`CORE`], which has the rest.
const NARROWER: &str = r#"
[subscriber]
id = "kept"
[events]
types = ["tool.call.failure"]
where = "payload.n > 2"
[batching]
window_ms = 700
[output]
priority = "normal"
"#;

/// More than the budgets have room for.
const CHATTY: &str = r#"
[subscriber]
id = "chatty"
[events]
types = ["deploy.**", "ci.**"]
[batching]
window_ms = 0
[limits]
tokens = "30/h"
[output]
inject_at = "after_tool"
one = "n: {{ payload.n }}"
"#;

/// Budgets that a few texts use up.
const BUDGETS: &str = r#"
[budget]
turn = 120
hour = 150
session = 3000
sources = { tools = "2000/h" }
summarise_after = "1m"
"#;

/// The source of all events that aside does not make.
pub(crate) const SOURCE: &str = "tools";
/// Subscribers of events that aside makes.
pub(crate) const OF_OWN_EVENTS: [&str; 1] = ["watcher"];

const LIMITS: &str = r#"
[injection]
max_notifications = 3
max_tokens = 120
max_chars = 500
lease = "10s"
[sessions]
queue_len_max = 12
idle_close = "10m"
unclaimed_ttl = "5m"
"#;

/// Under these limits, queues and silences that were allowed before are too long.
const NARROW_LIMITS: &str = r#"
[injection]
max_notifications = 2
lease = "5s"
[sessions]
queue_len_max = 10
idle_close = "1m"
unclaimed_ttl = "1m"
"#;

/// The files of a generation.
pub(crate) fn sources(number: usize) -> Sources {
    let all = || {
        let held = [
            NIGHT,
            DELAYED,
            INHIBITED,
            INHIBITED_OCCURRENCES,
            DIGEST,
            ANSWERED,
            LASTING,
            STATE,
            MISSED,
            SHOWN,
        ];
        let others =
            [WINDOWED, QUIET, LIMITED, URGENT, PATIENT, OFF, BROKEN, WATCHER, HOLDS, NARROWER, COUNTED];
        [&others[..], &held].concat()
    };
    match number {
        0 => files(LIMITS, &all()),
        1 => files(NARROW_LIMITS, &[QUIET_OTHERWISE, LIMITED, URGENT, WATCHER]),
        WITH_BUDGETS => files(&[LIMITS, BUDGETS].concat(), &[&all()[..], &[CHATTY]].concat()),
        _ => {
            let held = [NIGHT, INHIBITED, DIGEST, LASTING, STATE, MISSED, SHOWN];
            let others = [WINDOWED, QUIET, LIMITED, URGENT, PATIENT, BROKEN, HOLDS, NARROWER];
            files(NARROW_LIMITS, &[&others[..], &held].concat())
        }
    }
}

/// The rules of a generation.
pub(crate) fn rules(number: usize) -> Arc<CompiledRules> {
    static ALL: LazyLock<[Arc<CompiledRules>; GENERATIONS]> =
        LazyLock::new(|| std::array::from_fn(|number| compiled(&sources(number))));
    ALL[number].clone()
}

fn files(settings: &str, subscribers: &[&str]) -> Sources {
    let file = |name: String, text: &str| SourceFile {
        layer: LayerKind::User,
        path: name.as_str().into(),
        name: name.into(),
        text: text.into(),
    };
    let subscribers =
        subscribers.iter().enumerate().map(|(n, text)| file(format!("subscribers/s{n}.toml"), text));
    let others =
        [file("aside.toml".into(), settings), file("templates/broken.toon.j2".into(), BROKEN_TEMPLATE)];
    let core = SourceFile { layer: LayerKind::System, ..file("subscribers/kept.toml".into(), CORE) };
    Sources::new(subscribers.chain(others).chain([core]))
}

fn compiled(sources: &Sources) -> Arc<CompiledRules> {
    let compiled = compile(sources, &[]);
    assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
    Arc::new(compiled.rules)
}
