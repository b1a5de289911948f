//! Reads the first half of a scenario file.
//!
//! ```text
//! file subscribers/orders.toml                    a file of the user's layer; its lines follow
//! | [subscriber]
//! @MS open        SESSION [harness= workspace= user= parent= pid= pid_started=
//!                          conversations=one_per_process]
//! @MS emit        TYPE [--severity= --source= --provenance= --session= --workspace=
//!                       --dedupe_key= --cause= --id=] [field=value ..] [{json}]
//! @MS exchange    SESSION POINT [carrier= turn= step= tool= ack= format= max_notifications=
//!                                max_tokens= max_chars= carrier_effect= context= from= notices=
//!                                trigger=]
//!                               and the options of `open`
//! @MS ack         SESSION INJECTION               `last`, or a name of the second half: `i1`
//! @MS seen        SESSION INJECTION
//! @MS undelivered SESSION INJECTION
//! @MS dismiss     SESSION NOTIFICATION            a name of the second half: `n1`
//! @MS discuss     SESSION NOTIFICATION
//! @MS close       SESSION [may_return=true]
//! @MS gone        SESSION pid= [pid_started=]     its process has ended
//! @MS attached    SESSION                         a client is attached
//! @MS idle        SESSION MS                      the client's own files reported it then
//! @MS reload                                      with the files so far, and those that follow it: a
//!                                                 name that stands again replaces the file, or
//!                                                 removes it if no lines follow
//! @MS shutdown
//! @MS tick
//! for n=0..29                                     the lines up to `end`, with {n} replaced by each
//!                                                 number, the last included
//! end
//! ```
//!
//! A cause is an event's id, or a notification's name in the second half. A value is JSON if it
//! parses as JSON, `repeat(N,TEXT)` is a long text, anything else is text.

use std::{collections::BTreeMap, fmt, ops::RangeInclusive, str::FromStr};

use engine::{
    event::{EventType, SessionId, Severity},
    exchange::{
        Budget, CarrierEffect, ContextChange, Conversations, Decision, Dialect, Exchange, Format, Harness,
        Process, Trigger,
    },
    notification::{InjectionPoint, Tokens},
    words::Words,
};
use serde_json::{Map, Value};

/// A parsed file.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Scenario {
    /// Name and text of the files of the user's layer.
    pub(crate) files: Vec<(String, String)>,
    /// Ordered by time.
    pub(crate) steps: Vec<Step>,
}

impl Scenario {
    /// The files of the newest reload so far, or those that it begins with.
    fn files_mut(&mut self) -> &mut Vec<(String, String)> {
        fn of_reload(step: &mut Step) -> Option<&mut Vec<(String, String)>> {
            if let Action::Reload(files) = &mut step.action { Some(files) } else { None }
        }
        self.steps.iter_mut().rev().find_map(of_reload).unwrap_or(&mut self.files)
    }
}

/// An input, with its time in milliseconds from the beginning.
#[derive(Debug, PartialEq)]
pub(crate) struct Step {
    pub(crate) at: u64,
    pub(crate) action: Action,
}

#[derive(Debug, PartialEq)]
pub(crate) enum Action {
    Open(SessionId, Harness),
    Emit(Emitted),
    /// The acks of the exchange are separate: they use the transcript's names of injections.
    Exchange(Exchange, Vec<String>),
    Ack(SessionId, String),
    Seen(SessionId, String),
    Undelivered(SessionId, String),
    /// The notification by its name.
    Decide(SessionId, String, Decision),
    /// With whether the session may return.
    Close(SessionId, bool),
    Gone(SessionId, Process),
    Attached(SessionId),
    /// With the time of the state.
    Idle(SessionId, u64),
    /// With all files of the user's layer.
    Reload(Vec<(String, String)>),
    Shutdown,
    Tick,
}

/// An event as a producer sends it.
#[derive(Debug, PartialEq)]
pub(crate) struct Emitted {
    pub(crate) event_type: String,
    pub(crate) severity: Option<Severity>,
    pub(crate) envelope: BTreeMap<String, String>,
    pub(crate) payload: Value,
}

/// An error and its line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TimelineError {
    line: usize,
    what: String,
}

impl fmt::Display for TimelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.what)
    }
}

/// Reads everything before the separator.
pub(crate) fn parse(text: &str) -> Result<Scenario, TimelineError> {
    let mut scenario = Scenario::default();
    let mut repeated: Option<Repeated<'_>> = None;
    for (index, line) in text.lines().enumerate() {
        let number = index + 1;
        let in_line = |what| TimelineError { line: number, what };
        if let Some(head) = line.strip_prefix("for ") {
            let begun = Repeated::begin(head).map_err(in_line)?;
            if repeated.replace(begun).is_some() {
                return Err(in_line("`for` within `for`".to_owned()));
            }
        } else if line == "end" {
            let repeated = repeated.take().ok_or_else(|| in_line("`end` without `for`".to_owned()))?;
            repeated.read(&mut scenario)?;
        } else if let Some(repeated) = &mut repeated {
            repeated.lines.push((number, line));
        } else {
            read_line(line, &number.to_string(), &mut scenario).map_err(in_line)?;
        }
    }
    match repeated {
        Some(_) => Err(TimelineError { line: text.lines().count(), what: "`for` without `end`".to_owned() }),
        None => Ok(scenario),
    }
}

/// Lines that are read once for each of several numbers.
struct Repeated<'t> {
    name: &'t str,
    numbers: RangeInclusive<u32>,
    lines: Vec<(usize, &'t str)>,
}

impl<'t> Repeated<'t> {
    fn begin(head: &'t str) -> Result<Self, String> {
        let parts = head.split_once('=').and_then(|(name, range)| Some((name, range.split_once("..")?)));
        let range = parts.and_then(|(name, (from, to))| Some((name, from.parse().ok()?..=to.parse().ok()?)));
        let (name, numbers) = range.ok_or("`for` is followed by NAME=FIRST..LAST")?;
        Ok(Self { name, numbers, lines: Vec::new() })
    }

    fn read(self, scenario: &mut Scenario) -> Result<(), TimelineError> {
        let placeholder = format!("{{{}}}", self.name);
        for n in self.numbers {
            for (number, line) in &self.lines {
                let line = line.replace(&placeholder, &n.to_string());
                let in_line = |what| TimelineError { line: *number, what };
                read_line(&line, &format!("{number}.{n}"), scenario).map_err(in_line)?;
            }
        }
        Ok(())
    }
}

fn read_line(line: &str, number: &str, scenario: &mut Scenario) -> Result<(), String> {
    if line.is_empty() || line.starts_with('#') {
        return Ok(());
    }
    if let Some(name) = line.strip_prefix("file ") {
        let files = scenario.files_mut();
        files.retain(|(own, _)| own != name.trim());
        files.push((name.trim().to_owned(), String::new()));
        return Ok(());
    }
    if let Some(text) = line.strip_prefix('|') {
        let (_, file) = scenario.files_mut().last_mut().ok_or("a line of a file before `file NAME`")?;
        file.push_str(text.strip_prefix(' ').unwrap_or(text));
        file.push('\n');
        return Ok(());
    }
    let words = split_words(line.strip_prefix('@').ok_or("neither `@MS ..`, `file ..`, `| ..` nor `# ..`")?);
    let at = words.first().and_then(|at| at.parse().ok()).ok_or("no milliseconds after `@`")?;
    if scenario.steps.last().is_some_and(|before| before.at > at) {
        return Err("earlier than the line before it".to_owned());
    }
    let mut action = read_action(words.get(1..).unwrap_or_default(), number)?;
    if let Action::Reload(files) = &mut action {
        files.clone_from(scenario.files_mut());
    }
    scenario.steps.push(Step { at, action });
    Ok(())
}

fn read_action(words: &[String], number: &str) -> Result<Action, String> {
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["open", session, fields @ ..] => {
            let mut fields = read_fields(fields)?;
            let harness = take_harness(&mut fields)?;
            nothing_left(&fields)?;
            Ok(Action::Open(SessionId::new(session), harness))
        }
        ["emit", event_type, fields @ ..] => read_emit(event_type, fields).map(Action::Emit),
        ["exchange", session, point, fields @ ..] => read_exchange(session, point, fields, number),
        ["ack", session, injection] => Ok(Action::Ack(SessionId::new(session), (*injection).to_owned())),
        ["seen", session, injection] => Ok(Action::Seen(SessionId::new(session), (*injection).to_owned())),
        ["undelivered", session, injection] => {
            Ok(Action::Undelivered(SessionId::new(session), (*injection).to_owned()))
        }
        ["dismiss", session, notification] => {
            Ok(Action::Decide(SessionId::new(session), (*notification).to_owned(), Decision::Dismiss))
        }
        ["discuss", session, notification] => {
            Ok(Action::Decide(SessionId::new(session), (*notification).to_owned(), Decision::Discuss))
        }
        ["close", session] => Ok(Action::Close(SessionId::new(session), false)),
        ["close", session, "may_return=true"] => Ok(Action::Close(SessionId::new(session), true)),
        ["gone", session, fields @ ..] => {
            let mut fields = read_fields(fields)?;
            let process = take_harness(&mut fields)?.process().ok_or("no `pid=`")?;
            nothing_left(&fields)?;
            Ok(Action::Gone(SessionId::new(session), process))
        }
        ["attached", session] => Ok(Action::Attached(SessionId::new(session))),
        ["idle", session, as_of] => {
            let as_of = as_of.parse().map_err(|error| format!("`{as_of}`: {error}"))?;
            Ok(Action::Idle(SessionId::new(session), as_of))
        }
        ["reload"] => Ok(Action::Reload(Vec::new())),
        ["shutdown"] => Ok(Action::Shutdown),
        ["tick"] => Ok(Action::Tick),
        other => Err(format!("`{}` is no action", other.join(" "))),
    }
}

fn read_emit(event_type: &str, words: &[&str]) -> Result<Emitted, String> {
    EventType::check(event_type).map_err(|error| error.to_string())?;
    let mut envelope = BTreeMap::new();
    let mut payload = Map::new();
    for word in words {
        if word.starts_with('{') {
            payload
                .extend(serde_json::from_str::<Map<String, Value>>(word).map_err(|error| error.to_string())?);
            continue;
        }
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no `key=value`"))?;
        match key.strip_prefix("--") {
            Some(key) => drop(envelope.insert(key.to_owned(), text_of(read_value(value)))),
            None => drop(payload.insert(key.to_owned(), read_value(value))),
        }
    }
    let severity = take_parsed(&mut envelope, "severity")?;
    let known = ["source", "provenance", "session", "workspace", "dedupe_key", "cause", "id"];
    match envelope.keys().find(|key| !known.contains(&key.as_str())) {
        Some(key) => Err(format!("`--{key}` is not among --severity, --{}", known.join(", --"))),
        None => {
            let (event_type, payload) = (event_type.to_owned(), Value::Object(payload));
            Ok(Emitted { event_type, severity, envelope, payload })
        }
    }
}

fn read_exchange(session: &str, point: &str, words: &[&str], number: &str) -> Result<Action, String> {
    let point = InjectionPoint::from_str(point).map_err(|error| error.to_string())?;
    let mut fields = read_fields(words)?;
    let acks = fields.remove("ack").map(|acks| acks.split(',').map(str::to_owned).collect());
    let known_calls = fields.remove("known_calls").unwrap_or_default();
    let known_calls = known_calls.split(',').filter(|call| !call.is_empty()).map(Into::into).collect();
    let carrier = fields.remove("carrier").unwrap_or_else(|| format!("line{number}"));
    let carrier_effect = match fields.remove("carrier_effect").as_deref() {
        None => CarrierEffect::None,
        Some("continue") => CarrierEffect::Continue,
        Some("cancel") => CarrierEffect::Cancel,
        Some(other) => {
            return Err(format!("`carrier_effect={other}`: there are continue and cancel"));
        }
    };
    let from = fields.remove("from").as_deref().map(SessionId::new);
    let context = match fields.remove("context").as_deref() {
        None => ContextChange::Unstated,
        Some("unchanged") => ContextChange::Unchanged,
        Some("compacted") => ContextChange::Compacted,
        Some("resumed") => ContextChange::Resumed,
        Some("cleared") => ContextChange::Cleared { from },
        Some("forked") => ContextChange::Forked { from },
        Some(other) => {
            return Err(format!(
                "`context={other}`: there are unchanged, compacted, resumed, cleared and forked"
            ));
        }
    };
    let trigger = match fields.remove("trigger").as_deref() {
        None => Trigger::Agent,
        Some("wake") => Trigger::Wake,
        Some("pull") => Trigger::Pull,
        Some(other) => return Err(format!("`trigger={other}`: there are wake and pull")),
    };
    let format = fields.remove("format").map(|format| Format::from_str(&format));
    let exchange = Exchange {
        session: SessionId::new(session),
        point,
        carrier: carrier.into(),
        turn: fields.remove("turn").map(Into::into),
        step: fields.remove("step").map(Into::into),
        tool: fields.remove("tool").map(Into::into),
        harness: take_harness(&mut fields)?,
        acks: Vec::new(),
        known_calls,
        budget: Budget {
            max_notifications: take_parsed(&mut fields, "max_notifications")?,
            max_tokens: take_parsed(&mut fields, "max_tokens")?.map(Tokens),
            max_chars: take_parsed(&mut fields, "max_chars")?,
        },
        format: format.transpose().map_err(|error| error.to_string())?,
        carrier_effect,
        context,
        shows_notices: take_parsed(&mut fields, "notices")?.unwrap_or(false),
        trigger,
    };
    nothing_left(&fields)?;
    Ok(Action::Exchange(exchange, acks.unwrap_or_default()))
}

fn read_fields(words: &[&str]) -> Result<BTreeMap<String, String>, String> {
    let field = |word: &&str| {
        let (key, value) = word.split_once('=').ok_or_else(|| format!("`{word}` is no `key=value`"))?;
        Ok((key.to_owned(), value.to_owned()))
    };
    words.iter().map(field).collect()
}

fn take_harness(fields: &mut BTreeMap<String, String>) -> Result<Harness, String> {
    Ok(Harness {
        name: fields.remove("harness").map(Into::into),
        version: fields.remove("version").map(Into::into),
        workspace: fields.remove("workspace").map(Into::into),
        user: fields.remove("user").map(Into::into),
        pid: take_parsed(fields, "pid")?,
        pid_started: take_parsed(fields, "pid_started")?,
        conversations: match fields.remove("conversations").as_deref() {
            None => None,
            Some("one_per_process") => Some(Conversations::OnePerProcess),
            Some(other) => return Err(format!("`conversations={other}`: there is one_per_process")),
        },
        parent: fields.remove("parent").as_deref().map(SessionId::new),
        format: take_parsed(fields, "formats")?,
        dialect: match fields.remove("dialect") {
            None => None,
            Some(word) => {
                Some(Dialect::of_word(&word).ok_or_else(|| format!("`dialect={word}` is unknown"))?)
            }
        },
    })
}

fn take_parsed<T: FromStr<Err: fmt::Display>>(
    fields: &mut BTreeMap<String, String>,
    key: &str,
) -> Result<Option<T>, String> {
    let parsed = fields.remove(key).map(|text| text.parse());
    parsed.transpose().map_err(|error| format!("`{key}`: {error}"))
}

fn nothing_left(fields: &BTreeMap<String, String>) -> Result<(), String> {
    fields.keys().next().map_or(Ok(()), |key| Err(format!("`{key}=` means nothing here")))
}

/// Splits at white space outside of quotes and brackets.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word) = (Vec::new(), String::new());
    let (mut depth, mut is_quoted, mut is_escaped) = (0_i32, false, false);
    for c in line.chars() {
        if c.is_whitespace() && depth == 0 && !is_quoted {
            words.push(std::mem::take(&mut word));
            continue;
        }
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_quoted => is_escaped = true,
            '"' => is_quoted = !is_quoted,
            '{' | '[' if !is_quoted => depth += 1,
            '}' | ']' if !is_quoted => depth -= 1,
            _ => {}
        }
        word.push(c);
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

fn read_value(text: &str) -> Value {
    let repeated = text.strip_prefix("repeat(").and_then(|rest| rest.strip_suffix(')')?.split_once(','));
    if let Some((count, unit)) = repeated
        && let Ok(count) = count.parse()
    {
        return Value::String(unit.repeat(count));
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn text_of(value: Value) -> String {
    match value {
        Value::String(text) => text,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            value.to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn files_and_steps_are_read_in_order() {
        let text = "# about\nfile subscribers/a.toml\n| [subscriber]\n|   id = 1\n|\n\n@0 open s1 workspace=/w parent=s0\n@5  tick\n";
        let scenario = parse(text).expect("valid");
        assert_eq!(scenario.files, [("subscribers/a.toml".into(), "[subscriber]\n  id = 1\n\n".into())]);
        let harness = Harness {
            workspace: Some("/w".into()),
            parent: Some(SessionId::new("s0")),
            ..Harness::default()
        };
        let open = Step { at: 0, action: Action::Open(SessionId::new("s1"), harness) };
        assert_eq!(scenario.steps, [open, Step { at: 5, action: Action::Tick }]);
    }

    #[test]
    fn a_reload_has_the_files_before_it() {
        let text = "file a\n| 1\nfile b\n| 2\n@0 reload\nfile a\n@1 reload\nfile b\n| 3\n";
        let scenario = parse(text).expect("valid");
        let file = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        let step = |at, files| Step { at, action: Action::Reload(files) };
        assert_eq!(scenario.files, [file("a", "1\n"), file("b", "2\n")]);
        let first = step(0, vec![file("b", "2\n"), file("a", "")]);
        assert_eq!(scenario.steps, [first, step(1, vec![file("a", ""), file("b", "3\n")])]);
    }

    #[test]
    fn an_event_takes_values_of_every_kind() {
        let line = r#"@0 emit a.b --severity=warn --session=s1 n=3 t=true s=x q="a \"b\" c" long=repeat(3,ab) {"k v": [1, 2]}"#;
        let mut scenario = parse(line).expect("valid");
        let Some(Step { action: Action::Emit(event), .. }) = scenario.steps.pop() else { panic!("an event") };
        assert_eq!(event.severity, Some(Severity::Warning));
        assert_eq!(event.envelope, [("session".to_owned(), "s1".to_owned())].into());
        let payload = json!({"n": 3, "t": true, "s": "x", "q": "a \"b\" c", "long": "ababab", "k v": [1, 2]});
        assert_eq!(event.payload, payload);
    }

    #[test]
    fn exchange_line_sets_limits_acks_and_default_carrier() {
        let scenario =
            parse("\n@9 exchange s1 turn_end max_tokens=40 ack=i1,last format=json turn=t1").expect("valid");
        let Some(Step { at: 9, action: Action::Exchange(exchange, acks) }) = scenario.steps.first() else {
            panic!("an exchange")
        };
        assert_eq!(acks, &["i1", "last"]);
        assert_eq!((&*exchange.carrier, exchange.point), ("line2", InjectionPoint::TurnEnd));
        assert_eq!((exchange.budget.max_tokens, exchange.format), (Some(Tokens(40)), Some(Format::Json)));
    }

    #[test]
    fn lines_are_repeated_for_each_number() {
        let scenario =
            parse("for n=3..4\nfile s{n}.toml\n| id = {n}\n@{n} exchange s{n} turn_end\nend\n@5 tick")
                .expect("valid");
        assert_eq!(
            scenario.files,
            [("s3.toml".into(), "id = 3\n".into()), ("s4.toml".into(), "id = 4\n".into())]
        );
        let carrier = |step: &Step| {
            if let Action::Exchange(exchange, _) = &step.action {
                return format!("{} {} {}", step.at, exchange.session, exchange.carrier);
            }
            format!("{:?}", step.action)
        };
        assert_eq!(
            scenario.steps.iter().map(carrier).collect::<Vec<_>>(),
            ["3 s3 line4.3", "4 s4 line4.4", "Tick"]
        );
    }

    #[test]
    fn invalid_line_is_refused_with_number_and_cause() {
        for (text, part) in [
            ("for n=1\nend", "1: `for` is followed by"),
            ("for n=1..2\n@0 jump\nend", "2: `jump` is no action"),
            ("for n=1..2\n@0 tick", "2: `for` without `end`"),
            ("@0 tick\nend", "2: `end` without `for`"),
            ("@0 tick\n@x tick", "2: no milliseconds"),
            ("@5 tick\n@4 tick", "2: earlier"),
            ("tick", "1: neither"),
            ("| x", "before `file NAME`"),
            ("@0 jump s1", "`jump s1` is no action"),
            ("@0 emit tool", "has 1"),
            ("@0 emit a.b x", "`x` is no `key=value`"),
            ("@0 emit a.b --sessoin=s1", "`--sessoin` is not among"),
            ("@0 emit a.b --severity=bad", "`bad` is not a severity"),
            ("@0 exchange s1 after", "`after` is not one of"),
            ("@0 exchange s1 turn_end budget=4", "`budget=` means nothing"),
            ("@0 exchange s1 turn_end max_tokens=x", "`max_tokens`: invalid digit"),
        ] {
            let error = parse(text).expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
