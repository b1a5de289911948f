//! Engines whose events match five subscribers; each makes one table of every ten events.

use aside::config::layers::{SourceFile, Sources};
use engine::event::Seq;

use crate::{
    drive::{self, Run},
    rules,
};

/// The number of subscribers that match each event.
pub(crate) const MATCHING: usize = SHIPPED.len();
/// The shipped subscribers whose text is rendered; the events have fields for each of them.
const SHIPPED: [&str; 5] = ["tool_failure", "file_change", "mcp_server", "message", "reminder"];
/// A template without the `toon` filter.
const LOOP: &str = "\
fails[{{ events | length }}]{tool,error,message}:
{% for e in events %}
  {{ e.payload.tool_name }},{{ e.payload.error_type }},{{ e.payload.error_message }}
{% endfor %}
";
/// Injections can hold all pending notifications; the rest would be measured as a queue.
const SETTINGS: &str = "[injection]\nmax_tokens = 8000\nmax_chars = 32000\n";

/// Five subscribers, each with the text of another shipped one.
pub(crate) fn shipped() -> Run {
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
pub(crate) fn looping() -> Run {
    let template = ("templates/loop.toon.j2".to_owned(), LOOP.to_owned());
    run(|_| "template = \"templates/loop.toon.j2\"".to_owned(), Some(template))
}

fn run(layout: impl Fn(usize) -> String, template: Option<(String, String)>) -> Run {
    let settings = ("aside.toml".to_owned(), SETTINGS.to_owned());
    let subscribers =
        (0..MATCHING).map(|index| drive::subscriber(index, "bench.hot.*", "payload.call_id", &layout(index)));
    Run::new(rules::engine(subscribers.chain([settings]).chain(template)), MATCHING, payload)
}

fn payload(seq: Seq) -> String {
    format!(
        r#"{{"call_id":{seq},"tool_name":"grep","error_type":"timeout","error_message":"no answer within 30 s","path":"src/cart{seq}.rs","kind":"modified","server":"github","reason":"exited with code 1","tools":26,"from":"reviewer","text":"please look at {seq}"}}"#
    )
}
