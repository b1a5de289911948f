//! `aside test`: runs the `[[tests]]` of subscribers in simulated time, without a daemon.

mod line;
mod mutate;
mod update;

use std::{
    fmt::Write as _,
    path::{Path, PathBuf},
    time::Duration,
};

use clap::ValueEnum;
use engine::{nearest::nearest, words::counted};
use regex::Regex;
use serde_json::{Value, json};

pub(super) use self::line::shown;
use self::{line::explained, mutate::Tried};
use super::{
    CliError, Context,
    check::{Target, compiled, is_path, over_layer, read},
    junit,
    run::timed,
    saves::draw_each,
    terminal::{Terminal, Tone, width},
};
use crate::config::{
    case::SubscriberTest,
    compile::Compiled,
    layers::{LayerKind, Sources},
    trial::{Case, Cases, Wrong},
};

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum TestFormat {
    /// For people
    Text,
    /// An object with each test
    Json,
    /// XML that CI services read
    Junit,
}

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Subscribers by id, files, or folders of a layer [default: all in the configuration folder]
    #[arg(value_name = "SUBSCRIBER|PATH")]
    wanted: Vec<String>,
    /// Only tests for which this regular expression matches `SUBSCRIBER: NAME`
    #[arg(long, value_name = "REGEX")]
    run: Option<Regex>,
    /// Write what happened into `decoded` and `text` of the failed tests, after asking
    #[arg(long, conflicts_with = "format")]
    update: bool,
    /// Run them again after each save, until Ctrl-C
    #[arg(long, conflicts_with_all = ["update", "mutate", "format"])]
    watch: bool,
    /// Change one key at a time, and list the changes that no test notices
    #[arg(long, conflicts_with_all = ["run", "update"])]
    mutate: bool,
    /// Do not ask before writing
    #[arg(long, requires = "update")]
    yes: bool,
    /// The format of the output
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = TestFormat::Text)]
    format: TestFormat,
}

/// One test that ran.
struct Ran<'t> {
    case: Case<'t>,
    outcome: Result<(), Wrong>,
}

impl<'t> Ran<'t> {
    fn subscriber(&self) -> &'t str {
        self.case.subscriber()
    }
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let own = context.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))?;
    let (paths, ids): (Vec<&String>, Vec<&String>) = args.wanted.iter().partition(|wanted| is_path(wanted));
    let targets = over_layer(&own.config, &paths)?;
    let base = if ids.is_empty() { Sources::shipped() } else { Sources::shipped_with_tests() };
    if args.watch {
        return draw_each(&base, &targets, context, |sources, context| {
            let time = context.terminal.time_of_day();
            context.print(&format!("{}\n", context.terminal.paint(Tone::Dim, &time)))?;
            run_on(args, (&ids, &targets), sources, context)
        });
    }
    run_on(args, (&ids, &targets), &read(base, &targets), context)
}

/// Runs the tests in these files.
fn run_on(
    args: &Args,
    (ids, targets): (&[&String], &[Target]),
    sources: &Sources,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let compiled = compiled(sources, context)?;
    check_ids(ids, &compiled)?;
    let is_wanted = Wanted { ids, files: targets, sources, run: args.run.as_ref() };
    if args.mutate && args.format == TestFormat::Junit {
        return Err(CliError::Usage("--mutate prints text or JSON, and JUnit has tests alone".to_owned()));
    }
    let cases = Cases::new(&compiled);
    let (ran, took) = timed(|| run_tests(&cases, &is_wanted));
    let failed = ran.iter().filter(|ran| ran.outcome.is_err()).count();
    if args.mutate && failed == 0 {
        return mutate(&is_wanted, &compiled, args.format, context);
    }
    let text = match args.format {
        TestFormat::Text => text(&ran, took, sources, &context.terminal),
        TestFormat::Json => format!("{}\n", to_json(&ran)),
        TestFormat::Junit => to_junit(&ran),
    };
    context.print(&text)?;
    let failing: Vec<Case<'_>> = ran.iter().filter(|ran| ran.outcome.is_err()).map(|ran| ran.case).collect();
    let failed = match args.update && failed > 0 {
        true => update::run(&failing, sources, args.yes, context)?,
        false => failed,
    };
    match failed {
        0 => Ok(()),
        failed => Err(CliError::Tests { failed, all: ran.len() }),
    }
}

/// Prints the changes of each wanted subscriber that no test notices; its tests pass.
///
/// Errors: there are some.
fn mutate(
    wanted: &Wanted<'_>,
    compiled: &Compiled,
    format: TestFormat,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let sources = wanted.sources;
    let mut all: Vec<Tried> = Vec::new();
    for rule in &compiled.rules.subscribers {
        let id = rule.id.as_str();
        let file = compiled.files.get(&rule.id).and_then(|files| files.last());
        if !file.is_some_and(|file| wanted.has_part(id, &file.path)) {
            continue;
        }
        let Some(tried) = Tried::of(id, sources, compiled) else { continue };
        if format == TestFormat::Text {
            context.print(&tried.text(sources, &context.terminal))?;
        }
        all.push(tried);
    }
    if format == TestFormat::Json {
        let all: Vec<Value> = all.iter().map(|tried| tried.to_json(sources)).collect();
        context.print(&format!("{}\n", json!({ "subscribers": all })))?;
    }
    let unnoticed: usize = all.iter().map(|tried| tried.mutated.unnoticed.len()).sum();
    let all: usize = all.iter().map(|tried| tried.mutated.tried()).sum();
    match unnoticed {
        0 => Ok(()),
        unnoticed => Err(CliError::Unnoticed { unnoticed, all }),
    }
}

pub(super) fn check_ids(ids: &[&String], compiled: &Compiled) -> Result<(), CliError> {
    let known: Vec<&str> = compiled.rules.subscribers.iter().map(|rule| rule.id.as_str()).collect();
    let Some(unknown) = ids.iter().find(|id| !known.contains(&id.as_str())) else { return Ok(()) };
    let meant = nearest(unknown, known).map(|meant| format!("; did you mean `{meant}`?")).unwrap_or_default();
    Err(CliError::Usage(format!("there is no subscriber `{unknown}`{meant}")))
}

/// The tests that were asked for.
struct Wanted<'a> {
    ids: &'a [&'a String],
    files: &'a [Target],
    sources: &'a Sources,
    run: Option<&'a Regex>,
}

impl Wanted<'_> {
    /// Whether a subscriber was asked for, or what is in one of its files.
    fn has_part(&self, id: &str, file: &str) -> bool {
        let files: Vec<&PathBuf> = self.files.iter().filter_map(Target::file).collect();
        match (self.ids, files.as_slice()) {
            ([], []) => self.sources.layer_of(file) != Some(LayerKind::Shipped),
            (ids, files) => {
                ids.iter().any(|wanted| *wanted == id) || files.iter().any(|own| **own == *Path::new(file))
            }
        }
    }

    fn has(&self, id: &str, test: &SubscriberTest) -> bool {
        let is_chosen = self.has_part(id, &test.place.file);
        is_chosen && self.run.is_none_or(|run| run.is_match(&format!("{id}: {}", test.name)))
    }
}

fn run_tests<'c>(cases: &'c Cases<'c>, wanted: &Wanted<'_>) -> Vec<Ran<'c>> {
    let cases = cases.iter().filter(|case| wanted.has(case.subscriber(), case.test));
    cases.map(|case| Ran { case, outcome: case.run() }).collect()
}

fn text(ran: &[Ran<'_>], took: Duration, sources: &Sources, terminal: &Terminal) -> String {
    if ran.is_empty() {
        let none =
            "no tests; a subscriber has them in [[tests]], and `aside test ID` runs those of a shipped one";
        return format!("{}\n", terminal.wrap(none, 0, 2));
    }
    let mut text = String::new();
    let by_subscriber: Vec<&[Ran<'_>]> = ran.chunk_by(|a, b| a.subscriber() == b.subscriber()).collect();
    let longest = ran.iter().map(|ran| width(ran.subscriber())).max().unwrap_or_default();
    for tests in &by_subscriber {
        let Some(first) = tests.first() else { continue };
        let failed = tests.iter().filter(|ran| ran.outcome.is_err()).count();
        let (word, tone) = if failed == 0 { ("ok", Tone::Good) } else { ("FAIL", Tone::Bad) };
        let count = match failed {
            0 => counted(tests.len(), "test"),
            failed => format!("{}, {failed} failed", counted(tests.len(), "test")),
        };
        let word = format!("{}{}", terminal.paint(tone, word), " ".repeat(6 - word.len()));
        let line = format!("{word}{:<longest$}  {count}", first.subscriber());
        let _ = writeln!(text, "{}", terminal.wrap(&line, 0, 6));
    }
    for Ran { case, outcome } in ran {
        let Err(wrong) = outcome else { continue };
        text.push('\n');
        text.push_str(&explained(case, wrong, sources, terminal));
    }
    let failed = ran.iter().filter(|ran| ran.outcome.is_err()).count();
    let simulated: u64 =
        ran.iter().map(|ran| ran.case.test.at.last().map_or(0, |step| step.at.as_secs())).sum();
    let summary = format!(
        "{}, {}: {} ok, {failed} failed; {} in {} ms",
        counted(by_subscriber.len(), "subscriber"),
        counted(ran.len(), "test"),
        ran.len() - failed,
        counted(simulated, "simulated second"),
        took.as_millis()
    );
    text.push_str(if failed == 0 { "" } else { "\n" });
    let _ = writeln!(text, "{}", terminal.wrap(&summary, 0, 2));
    text
}

/// The tests of some subscribers.
pub(super) struct Tested {
    /// The number of those that failed.
    pub(super) failed: usize,
    all: usize,
    /// Why they failed, without what `aside check` finds too.
    pub(super) text: String,
}

impl Tested {
    /// Such as `test 4 ok`.
    pub(super) fn words(&self) -> String {
        match self.failed {
            0 => format!("test {} ok", self.all),
            failed => format!("test {failed} of {} failed", self.all),
        }
    }
}

/// Runs the tests of these subscribers; without ids those of all files that are not shipped.
pub(super) fn tested(ids: &[&String], compiled: &Compiled, sources: &Sources, terminal: &Terminal) -> Tested {
    let cases = Cases::new(compiled);
    let ran = run_tests(&cases, &Wanted { ids, files: &[], sources, run: None });
    let explain = |ran: &Ran<'_>| match &ran.outcome {
        Err(wrong @ Wrong::Failed(_)) => Some(explained(&ran.case, wrong, sources, terminal)),
        Err(Wrong::Invalid(_)) | Ok(()) => None,
    };
    let failed = ran.iter().filter(|ran| ran.outcome.is_err()).count();
    Tested { failed, all: ran.len(), text: ran.iter().filter_map(explain).collect() }
}

fn to_json(ran: &[Ran<'_>]) -> Value {
    let one = |ran: &Ran<'_>| {
        let Ran { case: Case { test, .. }, outcome } = ran;
        let subscriber = ran.subscriber();
        let mut value = json!({
            "subscriber": subscriber,
            "name": test.name,
            "file": &*test.place.file,
            "line": test.place.line(),
            "ok": outcome.is_ok(),
        });
        if let (Err(wrong), Some(fields)) = (outcome, value.as_object_mut()) {
            fields.insert("message".to_owned(), wrong.sentence().into());
            fields.insert("explanation".to_owned(), wrong.to_string().into());
        }
        value
    };
    let failed = ran.iter().filter(|ran| ran.outcome.is_err()).count();
    json!({ "tests": ran.iter().map(one).collect::<Vec<_>>(), "ok": ran.len() - failed, "failed": failed })
}

fn to_junit<'t>(ran: &[Ran<'t>]) -> String {
    let case = |ran: &Ran<'t>| {
        let test = ran.case.test;
        junit::Case {
            subscriber: ran.case.subscriber(),
            name: &test.name,
            place: Some((&*test.place.file, test.place.line())),
            failure: ran.outcome.as_ref().err().map(|wrong| (wrong.sentence(), wrong.to_string())),
        }
    };
    junit::document(&ran.iter().map(case).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::{line::shown, *};
    use crate::cli::{terminal::tests::of_width, tests::run_in};
    use crate::config::{report::Place, trial::Line};
    use hook::client::fake::{FakeDaemon, Scratch};

    const SUBSCRIBER: &str = "[subscriber]\nid = \"deploys\"\n[events]\ntypes = [\"deploy.*\"]\n\
        [batching]\nwindow_ms = 0\n[output]\none = \"deploy: {{ payload.name }}\"\n\
        [[tests]]\nname = \"one is made & shown\"\nat = [[\"0s\", \"deploy.done\", { name = \"web\" }]]\n\
        expect = [{ at = \"0s\", text = \"deploy: web\" }]\n\
        [[tests]]\nname = \"none\"\nat = [[\"0s\", \"deploy.done\", { name = \"a>b\" }]]\nexpect = []\n";

    fn run_with(folder: &Path, args: &[&str]) -> Result<String, String> {
        run_in(&FakeDaemon::silent(), folder, args)
    }

    fn layer(subscriber: &str) -> Scratch {
        let folder = Scratch::new();
        std::fs::create_dir_all(folder.path().join("subscribers")).expect("a folder");
        std::fs::write(folder.path().join("subscribers/deploys.toml"), subscriber).expect("written");
        folder
    }

    #[test]
    fn failed_tests_are_explained_and_fail_the_command() {
        let folder = layer(SUBSCRIBER);
        let shown = run_with(folder.path(), &["test"]).expect_err("one fails");
        for part in [
            "FAIL  deploys  2 tests, 1 failed\n\ndeploys: none ",
            "subscribers/deploys.toml:14\n  expected   no notification\n  made       at 0s: deploy: a>b\n  because\n",
            "\n1 subscriber, 2 tests: 1 ok, 1 failed; 0 simulated seconds in ",
            "pass the tests: 1 of 2 failed",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let chosen = run_with(folder.path(), &["test", "deploys", "--run", "shown$"]).expect("it passes");
        assert!(
            chosen.starts_with("ok    deploys  1 test\n1 subscriber, 1 test: 1 ok, 0 failed; "),
            "{chosen}"
        );
    }

    #[test]
    fn programs_get_each_test_with_its_outcome() {
        let folder = layer(SUBSCRIBER);
        let shown = run_with(folder.path(), &["test", "--format", "json"]).expect_err("one fails");
        for part in [r#""line":14,"ok":false,"message":"expected no notification"#, r#""ok":1,"failed":1"#] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let shown = run_with(folder.path(), &["test", "--format", "junit"]).expect_err("one fails");
        for part in [
            "<testsuite name=\"deploys\" tests=\"2\" failures=\"1\">",
            "name=\"one is made &amp; shown\"",
            "<failure message=\"expected no notification, made 1: at 0s: deploy: a&gt;b\">",
        ] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn shipped_tests_run_if_their_subscriber_is_named() {
        let folder = layer(SUBSCRIBER);
        let shown = run_with(folder.path(), &["test", "tool_failure"]).expect("they pass");
        assert!(shown.starts_with("ok    tool_failure  "), "{shown}");
        let unknown = run_with(folder.path(), &["test", "tool_failur"]).expect_err("unknown");
        assert!(unknown.contains("did you mean `tool_failure`?"), "{unknown}");
        let file = folder.path().join("subscribers/deploys.toml").display().to_string();
        let shown = run_with(folder.path(), &["test", &file]).expect_err("one fails");
        assert!(shown.contains("FAIL  deploys"), "{shown}");
    }

    #[test]
    fn update_writes_what_happened_and_keeps_the_rest() {
        let wrong = SUBSCRIBER
            .replace(
                "text = \"deploy: web\" }]",
                "text = \"deploy: x\", decoded = { deploy = \"x\" } }] # kept",
            )
            .replace("[[tests]]\nname = \"none\"", "[[tests]]\nname = \"counted\"")
            .replace("expect = []", "expect = [{ at = \"1s\" }, { ended = \"expired\" }]");
        let folder = layer(&wrong);
        let file = folder.path().join("subscribers/deploys.toml");
        let text = || std::fs::read_to_string(&file).expect("the file");
        let refused = run_with(folder.path(), &["test", "--update"]).expect_err("nobody can be asked");
        assert!(refused.contains("give --yes") && text() == wrong, "{refused}");
        let shown = run_with(folder.path(), &["test", "--update", "--yes"]).expect_err("one is left");
        for part in ["\n- \"deploy: x\"\n+ \"deploy: web\"\n", "wrote 2 values in 1 file", "1 of 2 failed"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
        let new = "text = \"deploy: web\", decoded = { deploy = \"web\" } }] # kept";
        assert_eq!(
            text(),
            wrong.replace("text = \"deploy: x\", decoded = { deploy = \"x\" } }] # kept", new)
        );
        let again = run_with(folder.path(), &["test", "--update", "--yes"]).expect_err("one is left");
        assert!(again.contains("nothing to update"), "{again}");
    }

    #[test]
    fn update_writes_claims_of_regions() {
        let holds = SUBSCRIBER
            .replace("[output]", "[limits]\nresolved_by = [\"deploy.undone\"]\nequal = \"\"\n[output]");
        let (rest, _) = holds.split_once("[[tests]]").expect("tests");
        let test = |text: &str, fact: &str| {
            format!(
                "{rest}[[tests]]\nname = \"held\"\nat = [\n  {{ at = \"0s\", state = \"open\" }},\n  [\"1s\", \"deploy.done\", {{ name = \"web\" }}],\n]\n\
                 expect = [\n  {{ at = \"1s\" }},\n  {{ region = \"s\", at = \"5s\", text = {text}, decoded = {{ conditions = [{{ deploy = \"{fact}\" }}] }} }},\n]\n"
            )
        };
        let folder = layer(&test("\"\"", "api"));
        let shown = run_with(folder.path(), &["test", "--update", "--yes"]).expect("nothing is left");
        assert!(shown.contains("wrote 2 values in 1 file"), "{shown}");
        let text = std::fs::read_to_string(folder.path().join("subscribers/deploys.toml")).expect("the file");
        assert!(text.contains("decoded = { conditions = [{ deploy = \"web\" }] }"), "{text}");
        let passed = run_with(folder.path(), &["test"]);
        assert!(passed.is_ok_and(|shown| shown.starts_with("ok    deploys")), "{text}");
    }

    #[test]
    fn files_with_errors_are_not_tested() {
        let folder = layer(&SUBSCRIBER.replace("window_ms", "windw_ms"));
        let shown = run_with(folder.path(), &["test"]).expect_err("an error");
        assert!(shown.contains("did you mean `window_ms`?") && !shown.contains("FAIL"), "{shown}");
    }

    #[test]
    fn long_lines_have_their_place_below() {
        let place = Place::file(&"subscribers/x.toml".into());
        for (columns, lines) in [(60, 1), (40, 2)] {
            let line =
                Line { text: "  a text of thirty-two characters".to_owned(), place: Some(place.clone()) };
            let shown = shown(&line, &Sources::default(), &of_width(columns));
            assert_eq!(shown.lines().count(), lines, "{shown}");
            assert!(shown.lines().all(|line| width(line) <= columns), "{shown}");
        }
    }
}
