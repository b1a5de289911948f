//! `aside preview`: what a subscriber makes of events, played through the engine without a daemon.
//! Only `--last` asks the daemon, for the newest events of the subscriber's types.

use std::{
    fmt::Write as _,
    fs,
    io::{self, Read as _},
    path::{Path, PathBuf},
};

use engine::{event::catalogue::OwnSeverities, exchange::Format, nearest::nearest, words::counted};
use serde_json::Value;
use toon::tokens;

use super::{
    CliError, Context,
    check::{Target, compiled, is_path, over_layer, read},
    context::with_query,
    new::fixture,
    saves::{MARK, draw_each, marked},
    terminal::{Terminal, Tone, width},
};
use crate::{
    api::wire::history::EventPage,
    config::{
        case::{
            TestEvent,
            fixture::{Mistake, read_events},
        },
        compile::Compiled,
        layers::Sources,
        report::Place,
        trial::preview::{Preview, Previewed, for_all, hostile},
    },
};

/// The width of the lines of a pipe.
const COLUMNS: usize = 80;
/// More lines than any preview has: all around a change are shown.
const LINES_MAX: usize = 1_000_000;
/// The numbers of events without `--count`.
const COUNTS: [usize; 2] = [1, 3];

#[derive(Debug, Default, clap::Args)]
pub(super) struct Args {
    /// The id of a subscriber, or its file
    #[arg(value_name = "SUBSCRIBER|FILE")]
    wanted: String,
    /// The newest events of its types, from the daemon's history
    #[arg(long, value_name = "N", conflicts_with = "input", value_parser = clap::value_parser!(u16).range(1..=1_000))]
    last: Option<u16>,
    /// Events from a file, or `-` for stdin, as they are published: `{"type": "a.b", "payload": {}}`, one
    /// a line, a list, or CloudEvents
    #[arg(long, value_name = "FILE|-")]
    input: Option<PathBuf>,
    /// The events of `fixtures/NAME.json`
    #[arg(long, value_name = "NAME", conflicts_with_all = ["input", "last"])]
    fixture: Option<String>,
    /// Save the events as `fixtures/NAME.json` of your configuration, without secrets
    #[arg(long, value_name = "NAME", value_parser = fixture::name)]
    save: Option<String>,
    /// The numbers of events in a batch [default: 1,3, or 1 and all]
    #[arg(long, value_name = "N,..", value_delimiter = ',', value_parser = clap::value_parser!(u16).range(1..=1_000))]
    count: Vec<u16>,
    /// Show what an exchange delivers in this format, or in `all`
    #[arg(long, value_name = "FORMAT|all", value_parser = formats)]
    format: Option<Formats>,
    /// Show the data that the text decodes to
    #[arg(long)]
    decoded: bool,
    /// Show the text for the worst values in each field
    #[arg(long)]
    hostile: bool,
    /// Show it again after each save, with marks at what changed, until Ctrl-C
    #[arg(long, conflicts_with = "save")]
    watch: bool,
}

/// The formats of one argument.
#[derive(Debug, Clone)]
struct Formats(Vec<Format>);

fn formats(word: &str) -> Result<Formats, String> {
    match word {
        "all" => Ok(Formats(<Format as strum::VariantArray>::VARIANTS.to_vec())),
        word => word
            .parse()
            .map(|format| Formats(vec![format]))
            .map_err(|error: engine::exchange::FormatError| error.to_string()),
    }
}

/// The events of a preview, and where they are from.
struct Given {
    events: Vec<TestEvent>,
    origin: &'static str,
    /// Whether they are real ones, of which all are shown.
    is_real: bool,
    /// The type of an invented one.
    invented: Option<String>,
}

impl Given {
    /// How many of them are played once: examples may be of several types, and a batch is of the first.
    fn own(&self) -> usize {
        if self.is_real { self.events.len() } else { 1 }
    }
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let paths = context.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))?;
    let files: Vec<&String> = Some(&args.wanted).filter(|wanted| is_path(wanted)).into_iter().collect();
    let targets = over_layer(&paths.config, &files)?;
    let shipped = Sources::shipped_with_tests();
    if args.watch {
        return watch(args, &shipped, &targets, context);
    }
    let sources = read(shipped, &targets);
    let (text, events) = drawn(args, &targets, &sources, &context.terminal.clone(), context)?;
    context.print(&text)?;
    match &args.save {
        Some(name) => fixture::save(name, &events, context),
        None => Ok(()),
    }
}

/// Draws it after each save, with marks at what changed.
fn watch(
    args: &Args,
    shipped: &Sources,
    targets: &[Target],
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    if args.input.as_ref().is_some_and(|path| path.as_os_str() == "-") {
        return Err(CliError::Usage("--watch reads the events again, and stdin is read once".to_owned()));
    }
    let mut before: Option<String> = None;
    let terminal = context.terminal.narrower(MARK);
    draw_each(shipped, targets, context, |sources, context| {
        let time = context.terminal.time_of_day();
        context.print(&format!("{}\n", context.terminal.paint(Tone::Dim, &time)))?;
        let (text, _) = drawn(args, targets, sources, &terminal, context)?;
        let shown = match &before {
            None => text.lines().map(indented).collect(),
            Some(before) if *before == text => "  nothing changed\n".to_owned(),
            Some(before) => marked(before, &text, LINES_MAX, &terminal).text,
        };
        before = Some(text);
        context.print(&shown)
    })
}

/// A line without a mark, among others that have one.
pub(super) fn indented(line: &str) -> String {
    if line.is_empty() { "\n".to_owned() } else { format!("  {line}\n") }
}

/// What is shown of these files, and the events that can be saved.
fn drawn(
    args: &Args,
    targets: &[Target],
    sources: &Sources,
    terminal: &Terminal,
    context: &mut Context<'_>,
) -> Result<(String, Vec<TestEvent>), CliError> {
    let compiled = compiled(sources, context)?;
    let preview = subscriber(args, targets, &compiled)?;
    let given = given(args, &preview, &compiled, context)?;
    let Some(first) = given.events.first() else {
        let types = preview.types().join(", ");
        return Err(CliError::Usage(format!(
            "there is no event of {types} yet; without --last an example is used"
        )));
    };
    let page = Page { args, preview: &preview, sources, terminal };
    let text = match args.hostile {
        true => page.hostile(first),
        false => page.batches(&given),
    };
    let next = |name: &String| terminal.wrap(&format!("next: aside new event {name}"), 0, 2);
    let next = given.invented.as_ref().map(|name| format!("\n{}\n", next(name)));
    let text = text + &next.unwrap_or_default();
    Ok((text, given.events.get(..given.own()).unwrap_or_default().to_vec()))
}

/// What `aside preview ID --watch` shows; `None` if there is no such subscriber or no event.
pub(super) fn text_of(
    id: &str,
    sources: &Sources,
    compiled: &Compiled,
    terminal: &Terminal,
) -> Option<String> {
    let preview = Preview::new(compiled, id)?;
    let given = examples(&preview);
    given.events.first()?;
    let args = &Args { watch: true, ..Args::default() };
    Some(Page { args, preview: &preview, sources, terminal }.batches(&given))
}

/// The subscriber that the argument names.
fn subscriber<'c>(args: &Args, targets: &[Target], compiled: &'c Compiled) -> Result<Preview<'c>, CliError> {
    let file = targets.iter().rev().find_map(Target::file);
    let of_file = |files: &[crate::config::layers::SourceFile]| {
        files.last().is_some_and(|last| file.is_some_and(|file| **file == *Path::new(&*last.path)))
    };
    let id = match file {
        Some(_) => compiled.files.iter().find(|(_, files)| of_file(files)).map(|(id, _)| id.as_str()),
        None => Some(args.wanted.as_str()),
    };
    id.and_then(|id| Preview::new(compiled, id)).ok_or_else(|| {
        let known = compiled.rules.subscribers.iter().map(|rule| rule.id.as_str());
        let meant = nearest(&args.wanted, known).map(|meant| format!("; did you mean `{meant}`?"));
        let message = match file {
            Some(_) => format!("no subscriber in force is from {}", args.wanted),
            None => format!("there is no subscriber `{}`{}", args.wanted, meant.unwrap_or_default()),
        };
        CliError::Usage(message)
    })
}

fn given(
    args: &Args,
    preview: &Preview<'_>,
    compiled: &Compiled,
    context: &Context<'_>,
) -> Result<Given, CliError> {
    let severities = OwnSeverities::new(&compiled.events);
    let all = |events: Vec<TestEvent>| events.into_iter().map(for_all).collect();
    if let Some(path) = &args.input {
        let events = read_input(path, &severities)?;
        return Ok(Given { events: all(events), origin: "from the input", is_real: true, invented: None });
    }
    if let Some(name) = &args.fixture {
        let events = compiled.fixtures.named(name).map_err(CliError::Usage)?;
        return Ok(Given {
            events: all(events.to_vec()),
            origin: "from the fixture",
            is_real: true,
            invented: None,
        });
    }
    if let Some(count) = args.last {
        let events = last(preview, usize::from(count), &severities, context)?;
        return Ok(Given { events: all(events), origin: "from the history", is_real: true, invented: None });
    }
    Ok(examples(preview))
}

fn examples(preview: &Preview<'_>) -> Given {
    let (events, is_invented) = preview.examples();
    let origin = if is_invented { "invented, as its types have no example" } else { "an example" };
    let invented = events.first().filter(|_| is_invented).map(|event| event.event_type.to_string());
    Given { events, origin, is_real: false, invented }
}

/// The events of a file or of stdin.
fn read_input(path: &Path, severities: &OwnSeverities) -> Result<Vec<TestEvent>, CliError> {
    let mut text = String::new();
    let read = match path.to_str() {
        Some("-") => io::stdin().read_to_string(&mut text).map(|_| ()),
        _ => fs::read_to_string(path).map(|read| text = read),
    };
    let name = path.display().to_string();
    read.map_err(|source| CliError::Input { name: name.clone(), source })?;
    let name = if name == "-" { "stdin".to_owned() } else { name };
    read_events(&text, severities).map_err(|Mistake { range, message }| {
        let place = Place::new(&name.into(), &text.into(), range);
        CliError::Usage(format!("{place}: {message}"))
    })
}

/// The newest events of the subscriber's types, oldest first.
fn last(
    preview: &Preview<'_>,
    count: usize,
    severities: &OwnSeverities,
    context: &Context<'_>,
) -> Result<Vec<TestEvent>, CliError> {
    const DOING: &str = "read the last events";
    let limit = count.to_string();
    let mut found: Vec<(String, TestEvent)> = Vec::new();
    for pattern in preview.types() {
        let path = with_query("/v1/events", &[("type", Some(&pattern)), ("limit", Some(&limit))]);
        let page: EventPage = context.get(DOING, &path)?;
        for line in &page.events {
            let at = line.view().map_err(|source| CliError::Answer { doing: DOING, source })?.timestamp;
            let events = read_events(line.event.get(), severities);
            let events =
                events.map_err(|mistake| CliError::Usage(format!("{DOING}: {}", mistake.message)))?;
            found.extend(events.into_iter().map(|event| (at.clone(), event)));
        }
    }
    found.sort_by(|(a, _), (b, _)| b.cmp(a));
    Ok(found.into_iter().take(count).map(|(_, event)| event).rev().collect())
}

/// What is written, and how.
struct Page<'a> {
    args: &'a Args,
    preview: &'a Preview<'a>,
    sources: &'a Sources,
    terminal: &'a Terminal,
}

impl Page<'_> {
    /// Each batch with its text.
    fn batches(&self, given: &Given) -> String {
        let own = given.own();
        let mut counts: Vec<usize> = match (self.args.count.as_slice(), given.is_real) {
            ([], true) => vec![1, own],
            ([], false) => COUNTS.to_vec(),
            (counts, _) => counts.iter().copied().map(usize::from).collect(),
        };
        counts.dedup();
        let batch = |count: usize| {
            let cycle = given.events.iter().take(own).cycle().take(count).enumerate();
            let events = cycle.map(|(index, event)| match index / own {
                0 => event.clone(),
                number => self.preview.varied(event, number),
            });
            let events: Vec<TestEvent> = events.collect();
            let first = events.first().map(|event| event.event_type.to_string()).unwrap_or_default();
            let head = match count {
                1 => format!("one {first}, {}", given.origin),
                count if count <= own => format!("{}, {}", counted(count, "event"), given.origin),
                count => format!("{count} of them, varied"),
            };
            self.batch(&head, &events)
        };
        counts.into_iter().map(batch).collect::<Vec<_>>().join("\n")
    }

    fn batch(&self, head: &str, events: &[TestEvent]) -> String {
        let configured = Formats(vec![self.preview.format()]);
        let formats = self.args.format.as_ref().unwrap_or(&configured);
        let played = self.preview.play(events, &formats.0);
        let mut text = self.texts(head, events, &played);
        match self.args.format {
            None => {
                for (format, delivered) in &played.delivered {
                    let tokens = counted(tokens::estimate(delivered).0, "token");
                    let _ =
                        writeln!(text, "  delivered alone as {}: {tokens} with its frame", format.as_str());
                }
            }
            Some(_) => {
                for (format, delivered) in &played.delivered {
                    let tokens = counted(tokens::estimate(delivered).0, "token");
                    text += &self.line(format.as_str(), &tokens);
                    text += &self.indented(delivered);
                }
            }
        }
        text
    }

    /// The notifications of a batch, or why there is none.
    fn texts(&self, head: &str, events: &[TestEvent], played: &Previewed) -> String {
        let json: u32 = events.iter().map(|event| tokens::estimate(&event.payload.to_string()).0).sum();
        let own: u32 = played.made.iter().map(|made| made.tokens.0).sum();
        let mut text = self.line(head, &format!("{}; JSON {json}", counted(own, "token")));
        for failure in &played.failures {
            let word = |name: &str| failure.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
            let line = failure.get("line").and_then(Value::as_u64).map(|line| format!(":{line}"));
            let failed = format!("fails: {}{} {}", word("file"), line.unwrap_or_default(), word("message"));
            let _ =
                writeln!(text, "  {}", self.terminal.paint(Tone::Bad, &self.terminal.cut_after(2, &failed)));
        }
        for (index, made) in played.made.iter().enumerate() {
            if index > 0 {
                text.push_str("  --\n");
            }
            let content = made.content.text();
            let decoded = toon::decode(content).ok().filter(|_| self.args.decoded);
            let decoded = decoded.and_then(|value| serde_json::to_string_pretty(&value).ok());
            text += &self.indented(decoded.as_deref().unwrap_or(content));
        }
        if played.made.is_empty() {
            text.push_str("  no notification\n");
            let shown = |line| super::test::shown(line, self.sources, self.terminal);
            text.extend(played.because.iter().map(shown));
        }
        text
    }

    /// The text for each of the worst values.
    fn hostile(&self, event: &TestEvent) -> String {
        let mut text = String::new();
        for (head, event) in hostile(event) {
            let events = [event];
            text += &self.texts(&head, &events, &self.preview.play(&events, &[]));
        }
        if text.is_empty() { "the event has no field\n".to_owned() } else { text }
    }

    /// A line with words at its right edge, or after it if there is no room.
    fn line(&self, head: &str, right: &str) -> String {
        let mark = if self.args.watch { MARK } else { 0 };
        let columns = self.terminal.columns.unwrap_or(COLUMNS - mark);
        let room = columns.saturating_sub(width(right) + 2);
        let head = match self.terminal.columns {
            Some(_) => super::terminal::cut(head, room).into_owned(),
            None => head.to_owned(),
        };
        let gap = columns.saturating_sub(width(&head) + width(right)).max(2);
        format!(
            "{}{}{}\n",
            self.terminal.paint(Tone::Heading, &head),
            " ".repeat(gap),
            self.terminal.paint(Tone::Dim, right)
        )
    }

    fn indented(&self, text: &str) -> String {
        text.lines().map(|line| format!("  {}\n", self.terminal.cut_after(2, line))).collect()
    }
}

#[cfg(test)]
mod tests {
    use crate::cli::{
        terminal,
        tests::{run_against, run_in},
    };
    use hook::client::fake::{FakeDaemon, Scratch};
    use std::fs;

    const SUBSCRIBER: &str = "[subscriber]\nid = \"deploys\"\n[events]\ntypes = [\"deploy.*\"]\n\
        where = \"payload.name != 'test'\"\n[batching]\nwindow_ms = 500\nmax_size = 100\n[output]\n\
        one = \"deploy: {{ payload.name }}\"\nmany = \"\"\"\n{{ rows|toon(key=\"deploys\", columns=[\"name\", \"n\"]) }}\n\"\"\"\n\
        [[tests]]\nname = \"one\"\nat = [[\"0s\", \"deploy.done\", { name = \"web7\", n = 1 }]]\n\
        expect = [{ at = \"500ms\", text = \"deploy: web7\" }]\n";

    fn shown(subscriber: &str, args: &[&str]) -> Result<String, String> {
        let folder = Scratch::new();
        fs::create_dir_all(folder.path().join("subscribers")).expect("a folder");
        fs::write(folder.path().join("subscribers/deploys.toml"), subscriber).expect("written");
        let input = folder.path().join("events.json").display().to_string();
        let events = r#"{"type": "deploy.a", "payload": {"name": "x"}}{"type": "deploy.a", "payload": {"name": "test"}}"#;
        fs::write(&input, events).expect("written");
        let file = folder.path().join("subscribers/deploys.toml").display().to_string();
        let same = folder.path().join("subscribers/../subscribers/deploys.toml").display().to_string();
        let args: Vec<_> = args
            .iter()
            .map(|arg| arg.replace("INPUT", &input).replace("FILE", &file).replace("SAME", &same))
            .collect();
        let args: Vec<&str> = ["preview"].into_iter().chain(args.iter().map(String::as_str)).collect();
        run_in(&FakeDaemon::silent(), folder.path(), &args)
    }

    #[test]
    fn examples_are_shown_alone_and_varied() {
        let text = shown(SUBSCRIBER, &["deploys"]).expect("it is shown");
        for part in [
            "one deploy.done, an example   ",
            " tokens; JSON ",
            "\n  deploy: web7\n  delivered alone as xml: ",
            "\n\n3 of them, varied   ",
            "\n  deploys[3]{name,n}:\n    web7,1\n    web8,2\n    web9,3\n",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| terminal::width(line) <= 80), "{text}");
        for file in ["FILE", "SAME"] {
            assert_eq!(text, shown(SUBSCRIBER, &[file]).expect("the same"));
        }
        let forty = shown(SUBSCRIBER, &["deploys", "--count", "40"]).expect("it is shown");
        assert!(forty.contains("  deploys[15]{name,n}:\n") && forty.contains("\n  omitted: 25\n"), "{forty}");
    }

    #[test]
    fn varied_events_pass_the_condition() {
        let strict = SUBSCRIBER.replace("payload.name != 'test'", "payload.n == 1");
        let text = shown(&strict, &["deploys", "--count", "3"]).expect("it is shown");
        assert!(text.contains("\n  deploys[3]{name,n}:\n    web7,1\n    web8,1\n    web9,1\n"), "{text}");
    }

    #[test]
    fn formats_and_data_are_shown_on_request() {
        let all = shown(SUBSCRIBER, &["deploys", "--count", "1", "--format", "all"]).expect("it is shown");
        for part in ["\nxml  ", "\nmarkdown  ", "\ntoon  ", "\njson  ", "\nline  ", "  <notifications"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let one = shown(SUBSCRIBER, &["deploys", "--count", "1", "--format", "json", "--decoded"])
            .expect("it is shown");
        assert!(one.contains("  {\n    \"deploy\": \"web7\"\n  }\njson  ") && !one.contains("xml"), "{one}");
        let wrong = shown(SUBSCRIBER, &["deploys", "--format", "yaml"]).expect_err("no format");
        assert!(wrong.contains("`yaml` is not a format; use one of xml"), "{wrong}");
    }

    #[test]
    fn given_events_say_why_nothing_is_made() {
        let text = shown(SUBSCRIBER, &["deploys", "--input", "INPUT"]).expect("it is shown");
        for part in ["one deploy.a, from the input  ", "\n  deploy: x\n", "\n2 events, from the input  "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let none = SUBSCRIBER.replace("!= 'test'", "== 'none'");
        let text = shown(&none, &["deploys", "--input", "INPUT", "--count", "1"]).expect("it is shown");
        assert!(text.contains("\n  no notification\n  because\n    0s  deploy.a  "), "{text}");
        assert!(text.contains("  subscribers/deploys.toml:5\n"), "{text}");
    }

    #[test]
    fn worst_values_and_failures_are_named() {
        let text = shown(SUBSCRIBER, &["deploys", "--hostile"]).expect("it is shown");
        for part in ["name: commas and quotes  ", "\n  deploy: \"a, b: \\\"c\\\"\"\n", "n: absent  "] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let failing = SUBSCRIBER.replace("{{ payload.name }}", "{{ 1 + payload.name }}");
        let text = shown(&failing, &["deploys", "--count", "1"]).expect("it is shown");
        assert!(
            text.contains("\n  fails: output of deploys:1 ") && text.contains("\n  name: web7\n"),
            "{text}"
        );
    }

    #[test]
    fn wrong_arguments_are_one_error() {
        for (args, part) in [
            (&["deploy"][..], "there is no subscriber `deploy`; did you mean `deploys`?"),
            (&["gone.toml"], "gone.toml is neither a folder nor a file"),
            (&["deploys", "--input", "FILE"], "deploys.toml:1:2: not JSON"),
            (&["deploys", "--count", "0"], "0 is not in 1..=1000"),
        ] {
            let wrong = shown(SUBSCRIBER, args).expect_err("it is wrong");
            assert!(wrong.contains(part), "{args:?}: {wrong}");
        }
        let wrong = shown(&SUBSCRIBER.replace("one =", "oen ="), &["deploys"]).expect_err("an error");
        assert!(wrong.contains("did you mean `one`?"), "{wrong}");
    }

    #[test]
    fn previewed_events_are_saved_and_taken_again() {
        let folder = Scratch::new();
        fs::create_dir_all(folder.path().join("subscribers")).expect("a folder");
        fs::write(folder.path().join("subscribers/deploys.toml"), SUBSCRIBER).expect("written");
        let run = |args: &[&str]| run_in(&FakeDaemon::silent(), folder.path(), args);
        let said = run(&["preview", "deploys", "--count", "1", "--save", "web"]).expect("saved");
        for part in ["fixtures/web.json     1 event\n", "next:  a test uses it as [\"0s\", \"@web\"]\n"] {
            assert!(said.contains(part), "{part}: {said}");
        }
        let text = run(&["preview", "deploys", "--fixture", "web"]).expect("it is shown");
        assert!(
            text.contains("one deploy.done, from the fixture  ") && text.contains("deploy: web7"),
            "{text}"
        );
        for (args, part) in [
            (["--fixture", "wbe"], "there is no fixture `wbe`; did you mean `web`?"),
            (["--save", "web"], "web.json exists already"),
            (["--save", "../web"], "the name of a fixture has letters"),
        ] {
            let wrong = run(&[&["preview", "deploys"][..], &args].concat()).expect_err("it is wrong");
            assert!(wrong.contains(part), "{args:?}: {wrong}");
        }
    }

    #[test]
    fn last_events_are_those_of_the_daemon() {
        let page = r#"{"events":[{"event":{"seq":9,"id":"e","source":"x","severity":"error","type":"tool.call.failure","payload":{"tool_name":"grep","error_type":"timeout"},"timestamp":"2026-01-05T09:00:00Z"},"notifications":[],"ended":[]}],"unmatched":0,"projection":{"applied":1,"behind":0}}"#;
        let daemon = FakeDaemon::answering_paths(&[
            ("/v1/events?type=tool.call.failure&limit=2", page),
            ("/v1/events?type=tool.call.timeout&limit=2", page),
        ]);
        let text = run_against(&daemon, &["preview", "tool_failure", "--last", "2"]);
        let text = text.expect("it is shown");
        assert!(
            text.contains("one tool.call.failure, from the history  ") && text.contains("grep"),
            "{text}"
        );
    }
}
