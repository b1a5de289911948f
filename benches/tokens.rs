//! How many tokens does a notification cost against the same data as compact JSON, and a storm
//! against appending all of it?
//!
//! `cargo bench --bench all -- tokens`. Nothing is timed: the figures are estimates of the estimator for
//! budgets, and the same on every machine. The bounds that must hold are in
//! `tests/it/templates.rs`.

use std::sync::Arc;

use engine::{
    event::{Event, Payload, Seq},
    notification::Tokens,
    pipeline::{render::RenderInput, row::Row},
    rules::CompiledRules,
};

use crate::{report::row as target, support::Size};
use aside::config::{compile::compile, layers::Sources};
use serde_json::{Value, json};
use toon::tokens;

/// Rows of a notification.
const ROWS: [u32; 5] = [1, 2, 3, 5, 10];
/// Equal events of a storm.
const STORM: u32 = 100;

/// A shipped subscriber, the type of its events, and the payload of the event with a number.
type Shape = (&'static str, &'static str, fn(u32) -> Value);

const SHAPES: [Shape; 5] = [
    (
        "tool_failure",
        "tool.call.failure",
        |n| json!({"tool_name": format!("tool{n}"), "error_type": "timeout", "error_message": "no answer from the server within 30 seconds"}),
    ),
    ("file_change", "fs.file.modified", |n| json!({"path": format!("src/cart{n}.rs"), "kind": "modified"})),
    (
        "ci_check",
        "ci.check.failed",
        |n| json!({"repository": "acme/shop", "pr": 412, "check": format!("unit{n}"), "message": "3 of 218 failed"}),
    ),
    (
        "mcp_server",
        "mcp.server.disconnected",
        |n| json!({"server": format!("server{n}"), "reason": "process exited with code 1", "tools": 26}),
    ),
    (
        "message",
        "message.agent.sent",
        |n| json!({"from": format!("agent{n}"), "text": "Please leave the migration alone, I am rewriting it"}),
    ),
];

pub(crate) fn run(_: Size, _: &[String]) {
    let rules = shipped();
    println!("| template | rows | tokens | the same as compact JSON | difference |");
    println!("|---|---|---|---|---|");
    let (mut single, mut tables, mut storms) = (f64::MIN, f64::MIN, f64::MIN);
    for (name, event_type, payload) in SHAPES {
        for count in ROWS {
            let rows: Vec<Row> = (1..=count).map(|n| row(event_type, payload(n), 1)).collect();
            let content = render(&rules, name, &rows);
            let same = toon::decode(&content).expect("strict").to_string();
            let [own, json] = [content.as_str(), &same].map(|text| f64::from(tokens::estimate(text).0));
            let percent = (own / json - 1.0) * 100.0;
            println!("| {name} | {count} | {own} | {json} | {percent:+.0} % |");
            let most = if count == 1 { &mut single } else { &mut tables };
            *most = most.max(percent);
        }
    }
    println!("\n| storm of {STORM} equal events | tokens | appending all as JSON | difference |");
    println!("|---|---|---|---|");
    for (name, event_type, payload) in SHAPES {
        let own = tokens::estimate(&render(&rules, name, &[row(event_type, payload(1), STORM)])).0;
        let all = tokens::estimate(&payload(1).to_string()).0 * STORM;
        let percent = (f64::from(own) / f64::from(all) - 1.0) * 100.0;
        println!("| {name} | {own} | {all} | {percent:+.1} % |");
        storms = storms.max(percent);
    }
    let measured = format!("{tables:+.0} %, {single:+.0} %, {storms:+.0} % at the most");
    let is_met = tables <= -15.0 && single <= 6.0 && storms <= -90.0;
    target(
        "15",
        "tokens against compact JSON: tables, one event, a storm",
        "-15 %, +6 %, -90 %",
        &measured,
        is_met,
    );
}

fn shipped() -> CompiledRules {
    compile(&Sources::shipped(), &[]).rules
}

fn row(event_type: &str, payload: Value, repeats: u32) -> Row {
    let event = Event::example(event_type.parse().expect("a valid type"), Payload::from(payload));
    Row { seq: Seq(1), event: Arc::new(event), repeats, threshold: None, suppressed: None }
}

fn render(rules: &CompiledRules, name: &str, rows: &[Row]) -> String {
    let subscriber = rules.subscribers.iter().find(|rule| rule.id.as_str() == name).expect("it is shipped");
    let input = RenderInput::new(&subscriber.id, rows, Tokens(2_000));
    subscriber.output.layout.render(&rules.templates, &input).content
}
