//! `aside explain`: what would become of an event, step by step, without publishing it.
//!
//! With a daemon its present state counts. Without one, or with `--config`, the event is played in an
//! engine with the rules of the files and no state. A past event is shown with what was decided then.

mod page;
mod words;

use std::{fs, io, io::Read as _, path::Path};

use engine::event::{EventType, Provenance, Severity};
use hook::client::{ClientError, percent_encode};
use jiff::tz::TimeZone;
use journal::time::zone::Zone;
use serde_json::Value;
use strum::VariantArray as _;

use self::page::{Explained, Page};
use super::{
    CliError, Context, absolute_folder,
    context::with_query,
    ids::{self, Names},
    parse,
    publish::{OneEvent, parse_pairs},
    rules::InForce,
    workspace_or_current,
};
use crate::{
    api::{
        explain::view,
        wire::{
            event::EventView,
            explain::OutcomeView,
            history::{EventWithHistory, LedgerLine},
        },
    },
    config::trial::foresee,
};

const DOING: &str = "explain it";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Type of the event; the id or the position of a past one; a file with one; or `-` for stdin
    #[arg(value_name = "TYPE|ID|FILE|-")]
    subject: String,
    /// Payload of an event of TYPE, as for `aside publish`
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// The severity: debug, info, warning, error or critical [default: as catalogued for the type]
    #[arg(long)]
    severity: Option<Severity>,
    /// The source component [default: cli]
    #[arg(long)]
    source: Option<String>,
    /// The session it is for, as in `aside sessions`
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The folder it concerns [default: the current one, without --session]
    #[arg(long, value_name = "DIR")]
    workspace: Option<String>,
    /// It is for all sessions in any folder
    #[arg(long, conflicts_with_all = ["session", "workspace"])]
    everywhere: bool,
    /// It delays itself, as for `aside publish`
    #[arg(long, value_name = "DELAY")]
    after: Vec<String>,
    /// Print everything as JSON
    #[arg(long)]
    json: bool,
}

/// What is explained.
enum Subject {
    /// An event as it is published.
    New(Value),
    /// A past one.
    Past(Box<EventWithHistory>),
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let explained = explained(args, context)?;
    let names = if explained.is_live { Names::ask(context) } else { Names::default() };
    let page = Page::new(context, &explained, names);
    let text = if args.json { format!("{}\n", page.json()) } else { page.text()? };
    context.print(&text)
}

fn explained(args: &Args, context: &Context<'_>) -> Result<Explained, CliError> {
    let subject = subject(args, context)?;
    if !context.is_config_given {
        match ask(&subject, context) {
            Ok(outcome) => {
                let in_force = InForce::of_rules(&outcome.rules, context)?;
                return Ok(Explained { outcome, in_force, then: then(subject), is_live: true });
            }
            Err(CliError::Client {
                source: ClientError::NoDaemon { .. } | ClientError::NoSocket(_), ..
            }) => {}
            Err(error) => return Err(error),
        }
    }
    let in_force = InForce::of_files(context)?;
    let outcome = on_a_fresh_start(&subject, &in_force, context)?;
    Ok(Explained { outcome, in_force, then: then(subject), is_live: false })
}

fn then(subject: Subject) -> Option<Vec<LedgerLine>> {
    match subject {
        Subject::New(_) => None,
        Subject::Past(past) => Some(past.history),
    }
}

/// The event that the arguments mean: a file if there is one, a type if it can be one, else an id.
fn subject(args: &Args, context: &Context<'_>) -> Result<Subject, CliError> {
    let text = args.subject.as_str();
    let is_file = text == "-" || text.contains('/') || (args.pairs.is_empty() && Path::new(text).is_file());
    let event_type = text.parse::<EventType>().ok().filter(|_| !is_file);
    let Some(event_type) = event_type else {
        if !args.pairs.is_empty() {
            return Err(CliError::Usage(format!("`{text}` is no type, so it takes no KEY=VALUE")));
        }
        if !is_file && text.contains('=') {
            return Err(CliError::Usage(format!("`{text}` is no type; the TYPE goes before KEY=VALUE")));
        }
        return if is_file { read(args, context).map(Subject::New) } else { past(text, context) };
    };
    let session = session(args, context)?;
    let one = OneEvent {
        id: None,
        event_type: &event_type,
        source: args.source.as_deref(),
        severity: args.severity,
        session: session.as_deref(),
        workspace: workspace(args),
        deliver_after: args.after.join(" or "),
        payload: parse_pairs(&args.pairs)?,
    };
    one.value(context).map(Subject::New)
}

/// The session that the arguments mean; unlike that of `publish` it mostly exists.
fn session(args: &Args, context: &Context<'_>) -> Result<Option<String>, CliError> {
    args.session.as_deref().map(|text| ids::session(text, context)).transpose()
}

/// The folder of an event that names no scope.
fn workspace(args: &Args) -> Option<String> {
    match (args.everywhere, &args.session) {
        (true, _) | (false, Some(_)) => args.workspace.as_deref().map(absolute_folder),
        (false, None) => workspace_or_current(args.workspace.as_deref()),
    }
}

/// The event in a file or in stdin, with what the arguments say.
fn read(args: &Args, context: &Context<'_>) -> Result<Value, CliError> {
    let mut text = String::new();
    let name = if args.subject == "-" { "stdin" } else { &args.subject };
    let read = match args.subject.as_str() {
        "-" => io::stdin().read_to_string(&mut text).map(|_| ()),
        path => fs::read_to_string(path).map(|read| text = read),
    };
    read.map_err(|source| CliError::Input { name: name.to_owned(), source })?;
    let wrong = |why: String| CliError::Usage(format!("{name}: {why}"));
    let value: Value =
        serde_json::from_str(&text).map_err(|error| wrong(format!("it is not JSON: {error}")))?;
    let mut events = match value {
        Value::Array(events) => events,
        one @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![one]
        }
    };
    let (Some(Value::Object(mut event)), true) = (events.pop(), events.is_empty()) else {
        return Err(wrong("it must be one event, a JSON object".to_owned()));
    };
    let session = session(args, context)?;
    let is_addressed = event.contains_key("session") || event.contains_key("workspace");
    let folder = (!is_addressed || args.workspace.is_some()).then(|| workspace(args)).flatten();
    let given = [
        ("severity", args.severity.map(|severity| severity.as_str().to_owned())),
        ("source", args.source.clone()),
        ("session", session),
        ("workspace", folder),
        ("deliver_after", (!args.after.is_empty()).then(|| args.after.join(" or "))),
    ];
    for (field, value) in given {
        if let Some(value) = value {
            event.insert(field.to_owned(), value.into());
        }
    }
    event.remove("seq");
    Ok(Value::Object(event))
}

/// A past event, by its id, a prefix of it, or its position.
fn past(text: &str, context: &Context<'_>) -> Result<Subject, CliError> {
    let find = |id: &str| {
        let path = format!("/v1/events/{}", percent_encode(id));
        context.get::<EventWithHistory>(DOING, &path).map(|found| Subject::Past(Box::new(found)))
    };
    match find(text) {
        Err(refused @ CliError::Refused { .. }) => match ids::of_history(text, context)? {
            Some(id) => find(&id),
            None => Err(no_event(text, refused)),
        },
        found => found,
    }
}

/// Reports that there is no such event; other errors of the daemon stay unchanged.
fn no_event(text: &str, mut error: CliError) -> CliError {
    if let CliError::Refused { refusal, .. } = &mut error
        && refusal.message.starts_with("there is no event")
    {
        refusal.message = format!("there is no event `{text}`; a type has a dot, such as `task.failed`");
    }
    error
}

/// Asks the daemon, which publishes nothing.
fn ask(subject: &Subject, context: &Context<'_>) -> Result<OutcomeView, CliError> {
    let body = match subject {
        Subject::New(event) => context.ask(DOING, "POST", "/v1/explain", Some(event))?,
        Subject::Past(past) => {
            let event: EventView<'_> = parse(DOING, past.event.get().as_bytes())?;
            let seq = event.seq.map(|seq| seq.to_string());
            let path = with_query("/v1/explain", &[("event", seq.as_deref())]);
            context.ask(DOING, "POST", &path, None)?
        }
    };
    parse(DOING, &body)
}

/// Plays the event in an engine without a state.
fn on_a_fresh_start(
    subject: &Subject,
    in_force: &InForce,
    context: &Context<'_>,
) -> Result<OutcomeView, CliError> {
    let (event, provenance) = match subject {
        Subject::New(event) => (event.clone(), Provenance::Local),
        Subject::Past(past) => {
            let mut event: Value = parse(DOING, past.event.get().as_bytes())?;
            event.as_object_mut().map(|fields| fields.remove("seq"));
            let live = ask(subject, context).map(|live| live.provenance).unwrap_or_default();
            let known = Provenance::VARIANTS.iter().find(|one| one.as_str() == live);
            (event, known.copied().unwrap_or_default())
        }
    };
    let now = context.terminal.moments.now;
    let zone = Zone::new(&TimeZone::system(), now);
    let body = event.to_string();
    let (event, outcome) = foresee(&in_force.compiled, body.as_bytes(), provenance, now, zone)
        .map_err(|error| CliError::Usage(error.to_string()))?;
    Ok(view(&outcome, &event, &in_force.compiled.rules.hash))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use clap::Parser as _;
    use hook::client::fake::{FakeDaemon, Scratch};

    use crate::cli::{self, Cli, Command, terminal};

    const PAGER: &str = "[subscriber]
id = \"pager\"
[events]
types = [\"pager.alert.fired\"]
[batching]
window_ms = 9000
group_by = \"payload.zone\"
dedupe_key = \"payload.name:payload.instance\"
[limits]
ttl = \"30m\"
[output]
priority = \"high\"
one = \"alert: {{ payload.name }} in {{ payload.zone }}\"
";
    const OPS: &str = "[subscriber]
id = \"ops_digest\"
[events]
types = [\"pager.**\"]
where = \"payload.name is defined and payload.zone == 'us'\"
[output]
one = \"a: {{ payload.name }}\"
";
    const LONG: &str = "[subscriber]
id = \"a_subscriber_with_a_name_that_no_column_of_a_terminal_has_room\"
[events]
types = [\"pager.*.a_segment_of_a_type_that_is_longer_than_a_line_of_a_narrow_terminal\", \"pager.alert.*\"]
where = \"payload.name == 'a text that is compared and is also longer than a line, for all that we know'\"
[output]
one = \"a: {{ payload.name }}\"
";
    const OTHER: &str = "[subscriber]
id = \"other\"
[events]
types = [\"alert.**\", \"task.alert.ended\"]
[output]
one = \"a: 1\"
";
    const EVENTS: &str = "[[event]]\ntype = \"pager.alert.fired\"\nseverity = \"error\"\n";

    fn configured() -> Scratch {
        let folder = Scratch::new();
        fs::create_dir(folder.path().join("subscribers")).expect("made");
        let long = format!("subscribers/{}.toml", "a_long_name_of_a_file_".repeat(4));
        for (name, text) in [
            ("subscribers/pager.toml", PAGER),
            ("subscribers/ops.toml", OPS),
            ("subscribers/other.toml", OTHER),
            (&*long, LONG),
            ("events.toml", EVENTS),
        ] {
            fs::write(folder.path().join(name), text).expect("written");
        }
        folder
    }

    /// The page of a fresh start, on a terminal of this width or in a pipe.
    fn explained(folder: &Scratch, columns: Option<usize>, args: &[&str]) -> Result<String, String> {
        let cli =
            Cli::try_parse_from([&["aside", "explain"], args].concat()).map_err(|error| error.to_string())?;
        let Some(Command::Explain(args)) = cli.command else { panic!("another command") };
        let (daemon, mut out) = (FakeDaemon::silent(), Vec::new());
        let mut context = cli::tests::context(&daemon, &mut out);
        context.is_config_given = true;
        context.terminal = columns.map_or_else(terminal::tests::pipe, terminal::tests::of_width);
        if let Ok(paths) = &mut context.paths {
            paths.config = folder.path().to_owned();
        }
        let outcome = super::run(&args, &mut context);
        outcome.map(|()| String::from_utf8(out).expect("text")).map_err(|error| error.to_string())
    }

    const ALERT: [&str; 4] = ["pager.alert.fired", "name=InstanceDown", "zone=eu", "--everywhere"];

    #[test]
    fn each_step_has_its_rule() {
        let folder = configured();
        fs::remove_file(
            folder.path().join(format!("subscribers/{}.toml", "a_long_name_of_a_file_".repeat(4))),
        )
        .expect("removed");
        let page = explained(&folder, Some(80), &ALERT).expect("explained");
        let (_, page) = page.split_once("\n\n").expect("a head");
        let (page, _) = page.split_once(" others do not match").expect("the rest");
        let page = page.trim_end_matches(|c: char| c.is_ascii_digit());
        let expected = "\
pager          takes it                          subscribers/pager.toml:4
  dedupe       first of InstanceDown:            subscribers/pager.toml:8
  batch        begins the batch eu, open for 9.0 s  subscribers/pager.toml:6
  expires      in 30m                            subscribers/pager.toml:10
  delivery     after_tool, high, to the next session
ops_digest     filters it: `where` is false      subscribers/ops.toml:5
  payload.zone == 'us'        \"eu\" is not \"us\"
  payload.name is defined     it is \"InstanceDown\"
other          does not match: it takes alert.**, task.alert.ended
                                                 subscribers/other.toml:4
";
        assert_eq!(page, expected);
    }

    #[test]
    fn every_line_fits_a_narrow_terminal() {
        let folder = configured();
        for columns in [80, 60] {
            for more in
                [&[][..], &["instance=a-name-of-an-instance-that-is-so-long-that-no-line-has-it-whole"]]
            {
                let page =
                    explained(&folder, Some(columns), &[&ALERT[..], more].concat()).expect("explained");
                assert!(page.contains("subscribers/pager.toml:4"), "{page}");
                let wide: Vec<&str> = page.lines().filter(|line| terminal::width(line) > columns).collect();
                assert!(wide.is_empty(), "{columns}: {wide:#?}");
            }
        }
        // A pipe gets whole lines.
        let page = explained(&folder, None, &ALERT).expect("explained");
        assert!(page.contains("for all that we know'     \"InstanceDown\" is not \"a text"), "{page}");
    }

    #[test]
    fn an_event_of_a_file_is_explained_alike() {
        let folder = configured();
        let file = folder.path().join("event.json");
        let event =
            r#"{"type":"pager.alert.fired","source":"cli","payload":{"name":"InstanceDown","zone":"eu"}}"#;
        let path = file.display().to_string();
        let by_words = explained(&folder, Some(80), &ALERT);
        for text in [event.to_owned(), format!("[{event}]")] {
            fs::write(&file, text).expect("written");
            assert_eq!(explained(&folder, Some(80), &[&path, "--everywhere"]), by_words);
        }
        for (text, part) in [
            ("[1]", "it must be one event"),
            ("[{}, {}]", "it must be one event"),
            ("{", "it is not JSON"),
            ("{\"type\":\"a\"}", "type: an event type has 2 to 8 segments"),
            ("{\"type\":\"a.b\",\"tpye\":1}", "tpye"),
        ] {
            fs::write(&file, text).expect("written");
            let error = explained(&folder, None, &[&path]).expect_err(part);
            assert!(error.contains(part), "{error}");
        }
        let error = explained(&folder, None, &[&path, "a=1"]).expect_err("pairs");
        assert!(error.contains("is no type, so it takes no KEY=VALUE"), "{error}");
        let error = explained(&folder, None, &["name=x"]).expect_err("no type");
        assert!(error.contains("`name=x` is no type; the TYPE goes before KEY=VALUE"), "{error}");
    }

    #[test]
    fn the_nearest_subscribers_are_shown_if_none_matches() {
        let folder = configured();
        let page = explained(&folder, Some(80), &["task.alrt.ended", "--everywhere"]).expect("explained");
        let shown = page.lines().filter(|line| line.contains("does not match")).count();
        assert_eq!(shown, 3, "{page}");
        assert!(
            page.contains("other          does not match: it takes alert.**, task.alert.ended"),
            "{page}"
        );
        assert!(page.contains("subscribers/other.toml:4"), "{page}");
    }
}
