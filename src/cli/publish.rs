//! `aside publish`: publishes one event from the command line, or many from a file or a pipe.
//!
//! With a TYPE the arguments are one event: `key=value` pairs are its payload, added to the object
//! in `--input` if given. A value that is valid JSON is parsed; anything else is text, and so is a
//! number that would lose digits or its spelling, such as `1.50` or `1e5`. Without a TYPE,
//! `--input` has whole events: one object, an array, or one object a line, which are published as
//! the lines arrive.
//!
//! An event without a session and folder is for the current folder, unless `--everywhere` is given.
//! For a single event the command requests its subscribers from the daemon, so that a type without
//! subscribers is noticed.

mod scope;

use std::{
    borrow::Cow,
    fs::File,
    io::{self, BufRead, BufReader, Read},
};

use engine::event::{EventType, Severity};
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use super::{
    CliError, Context, absolute_folder, complain, context::object, ids, parse, refused, workspace_or_current,
};
use crate::api::wire::{
    ErrorView,
    event::{NumberedError, Published, ResultView, Results, Summary},
};

const DOING: &str = "publish";
/// The content type of one event per line.
const LINES: &str = "application/x-ndjson";
const SOURCE: &str = "cli";
/// Most lines of one request; larger requests publish no faster.
const BATCH_LINES_MAX: usize = 1_000;
/// Size at which a request is sent, in bytes.
const BATCH_BYTES_MAX: usize = 1024 * 1024;
/// Longest line, and longest document that is not lines, in bytes; far above the daemon's limit.
const INPUT_BYTES_MAX: u64 = 64 * 1024 * 1024;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Type of the event, such as `task.failed`
    #[arg(value_name = "TYPE")]
    event_type: Option<EventType>,
    /// Payload: `count=3` is a number, `name=grep` text, `tags='["a"]'` an array, `code='"3"'` the
    /// text 3
    #[arg(value_name = "KEY=VALUE")]
    pairs: Vec<String>,
    /// The severity: debug, info, warning, error or critical [default: as catalogued for the type]
    #[arg(long, requires = "event_type")]
    severity: Option<Severity>,
    /// The source component [default: cli]
    #[arg(long, requires = "event_type")]
    source: Option<String>,
    /// The session it is for: its whole id, or `b1c2@shop` as in `aside sessions`
    #[arg(long, value_name = "ID", requires = "event_type")]
    session: Option<String>,
    /// The folder it concerns [default: the current one, without --session]
    #[arg(long, value_name = "DIR", requires = "event_type")]
    workspace: Option<String>,
    /// It is for all sessions in any folder
    #[arg(long, conflicts_with_all = ["session", "workspace"])]
    everywhere: bool,
    /// Deliver what it makes later: `3 turns`, `10m`, `18:00`, a timestamp, `tool:Bash`, `event:TYPE` or
    /// `context:80%`; the first of several counts
    #[arg(long, value_name = "DELAY", requires = "event_type")]
    after: Vec<String>,
    /// Its id; publishing the same source and id again has no effect [default: a new one]
    #[arg(long, requires = "event_type")]
    id: Option<String>,
    /// File with the payload, or without TYPE with whole events; `-` is stdin
    #[arg(long, value_name = "FILE")]
    input: Option<String>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

impl Args {
    /// The given folder; without one, the current folder if neither a session nor `--everywhere` is
    /// given.
    fn default_workspace(&self) -> Option<String> {
        match (self.everywhere, &self.session) {
            (true, _) | (false, Some(_)) => self.workspace.as_deref().map(absolute_folder),
            (false, None) => workspace_or_current(self.workspace.as_deref()),
        }
    }
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    match (&args.event_type, &args.input) {
        (Some(event_type), _) => publish_one(args, event_type, context),
        (None, Some(name)) => {
            let input = Input { name, workspace: args.default_workspace(), as_json: args.json };
            publish_whole(&input, open(name)?, context)
        }
        (None, None) => Err(CliError::Usage("a TYPE, or --input with whole events, is needed".to_owned())),
    }
}

fn publish_one(args: &Args, event_type: &EventType, context: &mut Context<'_>) -> Result<(), CliError> {
    let mut payload = args.input.as_ref().map(|name| read_payload(name)).transpose()?.unwrap_or_default();
    payload.extend(parse_pairs(&args.pairs)?);
    let one = OneEvent {
        id: args.id.as_deref(),
        event_type,
        source: args.source.as_deref(),
        severity: args.severity,
        session: args.session.as_deref(),
        workspace: args.default_workspace(),
        deliver_after: args.after.join(" or "),
        payload,
    };
    let event = one.value(context)?;
    let body = event.to_string();
    let outcome = match send(context, "application/json", body.as_bytes())? {
        Published::Each(Results { results, .. }) => results.into_iter().next(),
        Published::Counted(_) => None,
    };
    let Some(ResultView { seq, duplicate, error, .. }) = outcome else {
        return context.print("published\n");
    };
    let Some(seq) = seq else {
        return Err(CliError::Refused { doing: DOING, refusal: error.unwrap_or_default() });
    };
    let matched = scope::ask(context, &body);
    if args.json {
        let matched = matched.as_ref().map(|matched| &matched.json);
        return context
            .print(&format!("{}\n", json!({ "seq": seq, "duplicate": duplicate, "match": matched })));
    }
    let already = if duplicate { "already " } else { "" };
    let lines = matched.map(|matched| matched.lines(event_type.as_str(), &event)).unwrap_or_default();
    context.say(&format!("{already}published as {seq}\n{lines}"))
}

/// An event that arguments describe.
pub(super) struct OneEvent<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) event_type: &'a EventType,
    /// This command if there is none.
    pub(super) source: Option<&'a str>,
    pub(super) severity: Option<Severity>,
    /// The whole id of a session, or a short one.
    pub(super) session: Option<&'a str>,
    pub(super) workspace: Option<String>,
    /// Empty for no delay.
    pub(super) deliver_after: String,
    pub(super) payload: Map<String, Value>,
}

impl OneEvent<'_> {
    /// The event as it is published.
    pub(super) fn value(self, context: &Context<'_>) -> Result<Value, CliError> {
        let session = self.session.map(|text| ids::addressee(text, context)).transpose()?;
        Ok(object([
            ("id", self.id.map(Value::from)),
            ("type", Some(self.event_type.as_str().into())),
            ("source", Some(self.source.unwrap_or(SOURCE).into())),
            ("severity", self.severity.map(|severity| severity.as_str().into())),
            ("session", session.map(Value::from)),
            ("workspace", self.workspace.map(Value::from)),
            ("deliver_after", Some(self.deliver_after).filter(|text| !text.is_empty()).map(Value::from)),
            ("payload", Some(Value::Object(self.payload))),
        ]))
    }
}

pub(super) fn parse_pairs(pairs: &[String]) -> Result<Map<String, Value>, CliError> {
    let mut payload = Map::new();
    for pair in pairs {
        let (key, value) = parse_pair(pair)?;
        if payload.insert(key.clone(), value).is_some() {
            return Err(CliError::Usage(format!("`{key}` is given twice")));
        }
    }
    Ok(payload)
}

fn parse_pair(pair: &str) -> Result<(String, Value), CliError> {
    match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), parse_value(value))),
        _ => Err(CliError::Usage(format!("`{pair}` is not KEY=VALUE"))),
    }
}

fn parse_value(text: &str) -> Value {
    match serde_json::from_str(text) {
        Ok(Value::Number(number)) if number.to_string() != text => text.into(),
        Ok(value) => value,
        Err(_) => text.into(),
    }
}

fn read_payload(name: &str) -> Result<Map<String, Value>, CliError> {
    let mut text = Vec::new();
    open(name)?
        .take(INPUT_BYTES_MAX)
        .read_to_end(&mut text)
        .and_then(|_| match serde_json::from_slice(&text)? {
            Value::Object(payload) => Ok(payload),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                Err(io::Error::new(io::ErrorKind::InvalidData, "it must be a JSON object"))
            }
        })
        .map_err(|source| CliError::Input { name: format!("the payload in {}", shown(name)), source })
}

fn open(name: &str) -> Result<Box<dyn Read>, CliError> {
    if name == "-" {
        return Ok(Box::new(io::stdin()));
    }
    let file = File::open(name).map_err(|source| CliError::Input { name: name.to_owned(), source })?;
    Ok(Box::new(file))
}

fn shown(name: &str) -> &str {
    if name == "-" { "stdin" } else { name }
}

/// The outcome of all requests.
#[derive(Default)]
struct Tally {
    published: u64,
    duplicates: u64,
    refused: u64,
    /// Lines of earlier requests.
    lines_before: u64,
    /// The folder of events without a scope.
    workspace: Option<String>,
}

/// Whole events, and their options.
struct Input<'a> {
    name: &'a str,
    /// The folder of events without a scope; `None` leaves them for all sessions.
    workspace: Option<String>,
    as_json: bool,
}

fn publish_whole(wanted: &Input<'_>, input: impl Read, context: &mut Context<'_>) -> Result<(), CliError> {
    let Input { name, as_json, .. } = wanted;
    let failed = |source| CliError::Input { name: shown(name).to_owned(), source };
    let mut reader = BufReader::new(input);
    let mut first = Vec::new();
    while first.trim_ascii().is_empty() {
        if read_line(&mut reader, &mut first).map_err(failed)? == 0 {
            return Err(CliError::Usage(format!("{} holds no event", shown(name))));
        }
    }
    let mut tally = Tally { workspace: wanted.workspace.clone(), ..Tally::default() };
    if first.trim_ascii_start().starts_with(b"{") && serde_json::from_slice::<IgnoredAny>(&first).is_ok() {
        publish_lines(first, &mut reader, &mut tally, context, failed)?;
    } else {
        reader.take(INPUT_BYTES_MAX).read_to_end(&mut first).map_err(failed)?;
        tally.send(context, "application/json", &first)?;
    }
    let Tally { published, duplicates, refused, .. } = tally;
    context.print(&match as_json {
        true => {
            format!("{}\n", json!({ "published": published, "duplicates": duplicates, "refused": refused }))
        }
        false => format!("published {published}, {duplicates} already known, {refused} refused\n"),
    })?;
    match refused {
        0 => Ok(()),
        refused => Err(CliError::PartlyRefused { refused, total: published + duplicates + refused }),
    }
}

/// Sends the received lines before it waits for more, so that events of a long-lived pipe are not
/// delayed.
fn publish_lines<R: Read>(
    first: Vec<u8>,
    reader: &mut BufReader<R>,
    tally: &mut Tally,
    context: &mut Context<'_>,
    failed: impl Fn(io::Error) -> CliError,
) -> Result<(), CliError> {
    let (mut batch, mut lines) = (first, 1);
    loop {
        let would_wait = memchr::memchr(b'\n', reader.buffer()).is_none();
        if would_wait || lines >= BATCH_LINES_MAX || batch.len() >= BATCH_BYTES_MAX {
            if !batch.trim_ascii().is_empty() {
                tally.send(context, LINES, &batch)?;
            }
            batch.clear();
            lines = 0;
        }
        if read_line(reader, &mut batch).map_err(&failed)? == 0 {
            return Ok(());
        }
        lines += 1;
    }
}

/// Appends one line, and a newline if the last one has none.
fn read_line(reader: &mut impl BufRead, line: &mut Vec<u8>) -> io::Result<usize> {
    let count = reader.take(INPUT_BYTES_MAX).read_until(b'\n', line)?;
    if count as u64 == INPUT_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "a line too long for any event"));
    }
    if count > 0 && !line.ends_with(b"\n") {
        line.push(b'\n');
    }
    Ok(count)
}

impl Tally {
    fn send(&mut self, context: &mut Context<'_>, content_type: &str, body: &[u8]) -> Result<(), CliError> {
        let scoped = match &self.workspace {
            Some(workspace) if content_type == LINES => scope::in_lines(body, workspace),
            Some(workspace) => scope::in_document(body, workspace),
            None => Cow::Borrowed(body),
        };
        match send(context, content_type, &scoped)? {
            Published::Counted(Summary { accepted, duplicates, refused, errors, .. }) => {
                self.published += accepted;
                self.duplicates += duplicates;
                self.refused += refused;
                for NumberedError { number, error } in errors {
                    report(self.lines_before + number, &error);
                }
            }
            Published::Each(Results { results, .. }) => {
                for (number, outcome) in (1..).zip(results) {
                    self.count(number, outcome);
                }
            }
        }
        self.lines_before += memchr::memchr_iter(b'\n', body).count() as u64;
        Ok(())
    }

    fn count(&mut self, number: u64, outcome: ResultView) {
        match (outcome.error, outcome.duplicate) {
            (Some(error), _) => {
                self.refused += 1;
                report(self.lines_before + number, &error);
            }
            (None, true) => self.duplicates += 1,
            (None, false) => self.published += 1,
        }
    }
}

fn report(number: u64, error: &ErrorView) {
    complain(&format!("event {number} is refused: {error}"));
}

fn send(context: &Context<'_>, content_type: &str, body: &[u8]) -> Result<Published, CliError> {
    let response = context
        .client
        .request("POST", "/v1/events", &[("content-type", content_type)], body)
        .map_err(|source| CliError::Client { doing: DOING, source })?;
    // An answer can also contain refused events, so the body decides the meaning of a 400.
    match (response.status, parse::<Published>(DOING, &response.body)) {
        (_, Ok(published)) => Ok(published),
        (200..=299, Err(error)) => Err(error),
        (status, _) => Err(refused(DOING, status, &response.body)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::cli::tests::{bodies, run_against};
    use hook::client::fake::{FakeDaemon, Scratch};

    const STDIN: Input<'static> = Input { name: "-", workspace: None, as_json: false };

    #[test]
    fn payload_value_parses_as_json_or_else_text() {
        for (text, expected) in [
            ("3", json!(3)),
            ("-2.5", json!(-2.5)),
            ("true", json!(true)),
            ("null", Value::Null),
            ("\"3\"", json!("3")),
            ("{\"a\":[1]}", json!({ "a": [1] })),
            ("grep", json!("grep")),
            ("", json!("")),
            ("a=b", json!("a=b")),
            ("1.50", json!("1.50")),
            ("1e5", json!("1e5")),
            ("007", json!("007")),
            ("123456789012345678901234567890", json!("123456789012345678901234567890")),
            ("{not json}", json!("{not json}")),
        ] {
            assert_eq!(parse_value(text), expected, "{text}");
        }
    }

    #[test]
    fn arguments_become_one_event() {
        let daemon = FakeDaemon::answering_json(200, r#"{"results":[{"seq":12,"id":"e1"}]}"#);
        let args = [
            "publish",
            "tool.call.failure",
            "tool_name=grep",
            "retry_count=2",
            "--severity",
            "warn",
            "--source",
            "executor",
            "--session",
            "s1",
            "--workspace",
            "/w",
            "--id",
            "e1",
        ];
        assert_eq!(run_against(&daemon, &args).as_deref(), Ok("published as 12\n"));
        assert_eq!(
            run_against(&daemon, &["publish", "task.started", "--everywhere"]).as_deref(),
            Ok("published as 12\n")
        );
        let first = json!({ "id": "e1", "type": "tool.call.failure", "source": "executor", "severity": "warning",
            "session": "s1", "workspace": "/w", "payload": { "tool_name": "grep", "retry_count": 2 } });
        let second = json!({ "type": "task.started", "source": "cli", "payload": {} });
        // Each is published, and then explained.
        assert_eq!(bodies(&daemon), [first.clone(), first, second.clone(), second]);
    }

    #[test]
    fn event_without_scope_gets_the_current_folder() {
        let here = workspace_or_current(None).expect("a folder");
        let daemon = FakeDaemon::answering_json(200, r#"{"results":[{"seq":1}]}"#);
        for (args, expected) in [
            (&["publish", "a.b"][..], json!(here)),
            (&["publish", "a.b", "--everywhere"][..], Value::Null),
            (&["publish", "a.b", "--session", "s1"][..], Value::Null),
            (&["publish", "a.b", "--workspace", "/w"][..], json!("/w")),
        ] {
            run_against(&daemon, args).expect("published");
            assert_eq!(bodies(&daemon).last().expect("a request")["workspace"], expected, "{args:?}");
        }
    }

    #[test]
    fn publish_prints_which_subscribers_take_the_event() {
        // One answer to both requests: each reads its own fields.
        for (matched, expected) in [
            (
                r#""subscribers":[],"sessions":[],"session_count":0,"nearest":"tool.call.failure""#,
                "no subscriber matches `tool.call.falure`; did you mean `tool.call.failure`?\n",
            ),
            (
                r#""subscribers":[{"subscriber":"a","verdict":"takes"},{"subscriber":"b","verdict":"filtered","filtered_by":"where"},
                    {"subscriber":"c","verdict":"off"},{"subscriber":"d","verdict":"resolves"}],"sessions":["s1","s2"],"session_count":3"#,
                "a takes it for sessions s1, s2 and 1 more\nb filters it by `where`\nc is off\nd withdraws what it resolves\n",
            ),
            (
                r#""subscribers":[{"subscriber":"a","verdict":"takes","sessions":["s1"]},
                    {"subscriber":"b","verdict":"takes","sessions":[]}],"sessions":["s1","s2"],"session_count":2"#,
                "a takes it for session s1\nb takes it for no open session\n",
            ),
            (
                r#""subscribers":[{"subscriber":"a","verdict":"takes"}],"sessions":[],"session_count":0"#,
                "a takes it for the next session in, below or above /w\n",
            ),
            (r#""subscribers":"of an older daemon""#, ""),
        ] {
            let daemon =
                FakeDaemon::answering_json(200, &format!(r#"{{"results":[{{"seq":4}}],{matched}}}"#));
            let output = run_against(&daemon, &["publish", "tool.call.falure", "--workspace", "/w"]);
            assert_eq!(output, Ok(format!("published as 4\n{expected}")));
            let output = run_against(&daemon, &["publish", "tool.call.falure", "--json"]).expect("published");
            let output: Value = serde_json::from_str(&output).expect("JSON");
            assert_eq!((&output["seq"], &output["duplicate"]), (&json!(4), &json!(false)));
            assert_eq!(output["match"].is_object(), !expected.is_empty());
        }
    }

    #[test]
    fn a_payload_file_goes_below_the_pairs() {
        let folder = Scratch::new();
        let file = folder.path().join("payload.json");
        std::fs::write(&file, r#"{"a":1,"b":{"c":[]}}"#).expect("written");
        let daemon = FakeDaemon::answering_json(200, r#"{"results":[{"seq":3,"duplicate":true}]}"#);
        let file = file.display().to_string();
        let output = run_against(&daemon, &["publish", "a.b", "a=2", "--input", &file]);
        assert_eq!(output.as_deref(), Ok("already published as 3\n"));
        assert_eq!(bodies(&daemon)[0]["payload"], json!({ "a": 2, "b": { "c": [] } }));
    }

    #[test]
    fn whole_events_are_sent_as_they_are() {
        let folder = Scratch::new();
        let file = folder.path().join("events");
        let path = file.display().to_string();
        for (text, content_type, body) in [
            (
                "\n{\"type\":\"a.b\"}\n\n{\"type\":\"c.d\"}\n",
                "application/x-ndjson",
                "\n{\"type\":\"a.b\"}\n\n{\"type\":\"c.d\"}\n",
            ),
            ("{\n\"type\":\"a.b\"\n}\n", "application/json", "{\n\"type\":\"a.b\"\n}\n"),
            ("[{\"type\":\"a.b\"}]", "application/json", "[{\"type\":\"a.b\"}]\n"),
        ] {
            std::fs::write(&file, text).expect("written");
            let daemon =
                FakeDaemon::answering_json(200, r#"{"results":[{"seq":1},{"seq":1,"duplicate":true}]}"#);
            let output = run_against(&daemon, &["publish", "--everywhere", "--input", &path]);
            assert_eq!(output.as_deref(), Ok("published 1, 1 already known, 0 refused\n"), "{text}");
            let [request] = daemon.requests().try_into().expect("one request");
            assert!(request.contains(&format!("\r\ncontent-type: {content_type}\r\n")), "{request}");
            assert!(request.ends_with(&format!("\r\n\r\n{body}")), "{request}");
        }
    }

    #[test]
    fn lines_are_sent_promptly_and_in_bounded_batches() {
        let daemon = FakeDaemon::answering_json(200, r#"{"results":[{"seq":1}]}"#);
        let mut out = Vec::new();
        let mut context = crate::cli::tests::context(&daemon, &mut out);
        let slow = io::Cursor::new(b"{\"n\":1}\n").chain(io::Cursor::new(b"{\"n\":2}\n{\"n\":3}\n".to_vec()));
        publish_whole(&STDIN, slow, &mut context).expect("published");
        let many = "{\"type\":\"a.b\"}\n".repeat(BATCH_LINES_MAX + 1);
        publish_whole(&STDIN, many.as_bytes(), &mut context).expect("published");
        let lines: Vec<usize> =
            daemon.requests().iter().map(|request| request.matches("}\n").count()).collect();
        assert_eq!(lines[..2], [1, 2]);
        assert_eq!(lines[2..].iter().sum::<usize>(), BATCH_LINES_MAX + 1);
        assert!(lines.iter().all(|lines| *lines <= BATCH_LINES_MAX));
    }

    #[test]
    fn many_lines_are_answered_with_counts() {
        let answer = r#"{"accepted":2,"duplicates":1,"refused":1,"first":4,"last":5,"durability":"sync",
            "errors":[{"number":3,"error":{"field":"type","message":"`x` has 1 segment"}}]}"#;
        let daemon = FakeDaemon::answering_json(207, answer);
        let mut out = Vec::new();
        let mut context = crate::cli::tests::context(&daemon, &mut out);
        let error = publish_whole(&STDIN, &b"{}\n{}\n{}\n{}\n"[..], &mut context).expect_err("one refused");
        assert_eq!(error.to_string(), "publish 1 of 4 events");
        assert_eq!(String::from_utf8(out).as_deref(), Ok("published 2, 1 already known, 1 refused\n"));
    }

    #[test]
    fn refused_events_are_counted_and_fail_publish() {
        let answer = r#"{"results":[{"seq":1},{"error":{"field":"type","message":"`x` has 1 segment"}}]}"#;
        let daemon = FakeDaemon::answering_json(207, answer);
        let mut out = Vec::new();
        let mut context = crate::cli::tests::context(&daemon, &mut out);
        let error = publish_whole(&STDIN, &b"[{},{}]"[..], &mut context).expect_err("one refused");
        assert_eq!(error.to_string(), "publish 1 of 2 events");
        assert_eq!(String::from_utf8(out).as_deref(), Ok("published 1, 0 already known, 1 refused\n"));
        for body in [
            r#"{"results":[{"error":{"field":"payload","message":"too large"}}]}"#,
            r#"{"error":{"field":"payload","message":"too large"}}"#,
        ] {
            let daemon = FakeDaemon::answering_json(400, body);
            let error = run_against(&daemon, &["publish", "a.b"]).expect_err("refused");
            assert_eq!(error, "publish: payload: too large");
        }
    }

    #[test]
    fn arguments_that_make_no_sense_are_explained() {
        let daemon = FakeDaemon::silent();
        for (args, part) in [
            (&["publish"][..], "a TYPE, or --input with whole events, is needed"),
            (&["publish", "a.b", "--everywhere", "--session", "s"], "cannot be used with"),
            (&["publish", "a.b", "novalue"], "`novalue` is not KEY=VALUE"),
            (&["publish", "a.b", "=x"], "`=x` is not KEY=VALUE"),
            (&["publish", "a.b", "k=1", "l=2", "k=3"], "`k` is given twice"),
            (&["publish", "single"], "has 1"),
            (&["publish", "--input", "/absent/file"], "read /absent/file"),
            (&["publish", "a.b", "--severity", "loud"], "`loud` is not a severity"),
            (&["publish", "--input", "x", "--id", "e1"], "required arguments were not provided"),
        ] {
            let error = run_against(&daemon, args).expect_err(part);
            assert!(error.contains(part), "{args:?}: {error}");
        }
    }
}
