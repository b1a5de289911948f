//! What does an event cost from the journal to the text, rendering included?
//!
//! `cargo bench --bench render`, or with `-- --quick` for a size that only shows that it works. Each event matches 5
//! subscribers, each of which makes one table of every ten events; a harness takes the 5 tables in one injection. So an event pays for
//! half a table of ten rows, and for matching, dedupe, batching, the queue and the release. The kinds of template take turns, so that
//! a busy moment of the machine hits all of them. Time is the CPU time of this thread.
//!
//! With the name of a kind, such as `-- shipped`, only that kind runs, for a profiler to look at.
#![expect(clippy::print_stdout, reason = "a bench prints its figures")]

mod drive;
mod rules;
mod support;

use std::env;

use aside::{
    config::layers::{SourceFile, Sources},
    event::Seq,
};
use drive::Run;
use support::{Size, machine, quantile};

/// Events a round and kind.
const EVENTS: usize = 20_000;
/// The shipped subscribers whose text is written; the events have fields for each of them.
const SHIPPED: [&str; 5] = ["tool_failure", "file_change", "mcp_server", "message", "reminder"];
/// What an author may write without the `toon` filter.
const LOOP: &str = "\
fails[{{ events | length }}]{tool,error,message}:
{% for e in events %}
  {{ e.payload.tool_name }},{{ e.payload.error_type }},{{ e.payload.error_message }}
{% endfor %}
";
/// Lets an injection hold all that waits; what does not fit would be measured as a queue.
const SETTINGS: &str = "[injection]\nmax_tokens = 8000\nmax_chars = 32000\n";

fn main() {
    let size = Size::from_args();
    let wanted = env::args().skip(1).find(|arg| !arg.starts_with("--"));
    let mut runs: Vec<(&str, Run)> = vec![("shipped", shipped()), ("loop", looping())];
    runs.retain(|(name, _)| wanted.as_deref().is_none_or(|wanted| wanted == *name));
    let events = size.scale(EVENTS, 20);
    drive::take_turns(&mut runs, size.rounds(), events);
    println!("{}", machine());
    println!("{} rounds of {events} events, {} subscribers match, medians", size.rounds(), SHIPPED.len());
    println!("| templates | us an event | least | most | events/s and core |");
    println!("|---|---|---|---|---|");
    for (name, run) in &runs {
        let [least, middle, most] = [0.0, 0.5, 1.0].map(|at| quantile(&run.costs, at));
        println!("| {name} | {middle:.2} | {least:.2} | {most:.2} | {:.0} |", 1e6 / middle);
    }
}

/// Five subscribers that write what a shipped one does, each another.
fn shipped() -> Run {
    let files = Sources::shipped();
    let layout = |name: &str| {
        let is_wanted = |file: &&SourceFile| *file.name == *format!("subscribers/{name}.toml");
        let file = files.files().iter().find(is_wanted).expect("it is shipped");
        let start = file.text.find("one = ").expect("it declares its text");
        file.text.get(start..).expect("a boundary").to_owned()
    };
    run(|index| layout(SHIPPED.get(index).expect("one each")), None)
}

/// Five subscribers with a template that writes its rows in a loop.
fn looping() -> Run {
    let template = ("templates/loop.toon.j2".to_owned(), LOOP.to_owned());
    run(|_| "template = \"templates/loop.toon.j2\"".to_owned(), Some(template))
}

fn run(layout: impl Fn(usize) -> String, template: Option<(String, String)>) -> Run {
    let settings = ("aside.toml".to_owned(), SETTINGS.to_owned());
    let subscribers = (0..SHIPPED.len())
        .map(|index| drive::subscriber(index, "bench.hot.*", "payload.call_id", &layout(index)));
    Run::new(rules::engine(subscribers.chain([settings]).chain(template)), SHIPPED.len(), payload)
}

fn payload(seq: Seq) -> String {
    format!(
        r#"{{"call_id":{seq},"tool_name":"grep","error_type":"timeout","error_message":"no answer within 30 s","path":"src/cart{seq}.rs","kind":"modified","server":"github","reason":"exited with code 1","tools":26,"from":"reviewer","text":"please look at {seq}"}}"#
    )
}
