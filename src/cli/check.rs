//! `aside check`: reports all problems of the configuration at once, without a daemon.
//!
//! A folder is a layer. A file is checked in its layer, and only its own findings are shown; a file
//! outside of any layer is checked on top of the shipped and the system's layers. So an editor can
//! check the file it has just saved.

mod form;

use std::{
    fs,
    path::{self, Path, PathBuf},
};

use engine::{event::catalogue, words::counted};

use self::form::ReportFormat;
use super::{CliError, Context, matchers, parse, refused, status::HASH_CHARS};
use crate::{
    api::wire::views::{ConfigView, FindingsView, ReloadView},
    config::{
        compile::{Compiled, compile},
        layers::{FileKind, LAYER_NAMES, LayerKind, Sources, WORKSPACE_FOLDER},
        lints::{
            Lint,
            report::{self, Denied},
        },
        load::{SYSTEM_FOLDER, read_layers_over, with_file},
        report::{Diagnostic, Report},
    },
    daemon::workspace::{self, WorkspaceFiles},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folders with `aside.toml`, `events.toml`, `subscribers/`, `templates/`, `fixtures/` and
    /// `matchers/` (each optional), or single files, to check together with the shipped files [default: the
    /// configuration folder]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// The format of the output
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = ReportFormat::Text)]
    format: ReportFormat,
    /// Count a lint as an error, or all warnings: `--deny warnings`
    #[arg(long, value_name = "NAME|warnings")]
    deny: Vec<String>,
    /// Print the page of a lint, and check nothing
    #[arg(long, value_name = "NAME", exclusive = true)]
    explain: Option<String>,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    if let Some(name) = &args.explain {
        let lint = Lint::named(name).map_err(CliError::Usage)?;
        return context.print(&format!("{lint}\n"));
    }
    let denied = denied(&args.deny)?;
    let targets = match (args.paths.as_slice(), &context.paths) {
        ([], Ok(paths)) => vec![Target::Layer(paths.config.clone())],
        ([], Err(error)) => return Err(CliError::Paths(error.clone())),
        (paths, _) => paths.iter().map(|path| Target::of(path)).collect::<Result<_, _>>()?,
    };
    let sources = read(Sources::shipped(), &targets);
    let report = check(&sources, &denied, context).with(check_matchers(&targets));
    let report = targets.iter().filter_map(Target::of_workspace).fold(report, with_workspace);
    let is_of_files = targets.iter().all(|target| target.file().is_some());
    let is_wanted =
        |file: &str| targets.iter().filter_map(Target::file).any(|path| *path == *Path::new(file));
    let (report, places) = match is_of_files {
        true => (report.only(is_wanted), places(&targets)),
        false => (report, format!("the shipped files and {}", places(&targets))),
    };
    let errors = report.error_count();
    match (args.format, errors + report.warning_count()) {
        (ReportFormat::Json, _) => context.print(&format!("{}\n", report.to_json()))?,
        (ReportFormat::Github, _) => context.print(&form::github(&report))?,
        (ReportFormat::Sarif, _) => context.print(&format!("{}\n", form::sarif(&report)))?,
        (ReportFormat::Text, 0) => context.say(&format!("no errors in {places}\n"))?,
        (ReportFormat::Text, _) => {
            context.say(&format!("{report}\n{}\n", counts(errors, report.warning_count())))?
        }
    }
    match errors {
        0 => Ok(()),
        errors => Err(CliError::Check { errors }),
    }
}

/// The word for every warning.
const WARNINGS: &str = "warnings";

/// The lints in the arguments of `--deny`.
fn denied(names: &[String]) -> Result<Denied, CliError> {
    let mut denied = Denied::default();
    for name in names {
        match name.as_str() {
            WARNINGS => denied.warnings = true,
            name => denied.lints.push(Lint::named(name).map_err(CliError::Usage)?.name),
        }
    }
    Ok(denied)
}

/// Compiles, tests and lints everything.
fn check(sources: &Sources, denied: &Denied, context: &Context<'_>) -> Report {
    report::report_with(sources, &compiled_of(sources), denied, &|source| context.has_published(source))
}

/// Adds what is an error in the files of a workspace alone.
fn with_workspace(report: Report, folder: &Path) -> Report {
    let own = workspace::read(folder).workspace;
    let lower = read_layers_over(Sources::shipped(), &[(LayerKind::System, SYSTEM_FOLDER.into())]);
    let found = compiled_of(&lower.with_workspaces([own])).workspaces;
    let mut more: Vec<Diagnostic> = found.into_iter().flat_map(|own| own.report.into_all()).collect();
    more.retain(|one| {
        !report.diagnostics().iter().any(|known| known.place == one.place && known.key == one.key)
    });
    report.with(more)
}

/// Reads the files of problem matchers.
fn check_matchers(targets: &[Target]) -> Vec<Diagnostic> {
    let unread = targets.iter().flat_map(|target| match target {
        Target::Layer(folder) => matchers::read_folder(&folder.join("matchers")).1,
        Target::Matchers(path) => matchers::read_file(path).err().into_iter().collect(),
        Target::InLayer { .. } | Target::Lone { .. } | Target::Workspace(_) => Vec::new(),
    });
    unread.map(|unread| unread.diagnostic()).collect()
}

/// What one argument names.
pub(super) enum Target {
    /// A layer's folder.
    Layer(PathBuf),
    /// A folder with the layer of a workspace.
    Workspace(PathBuf),
    /// A file of the layer in `folder`.
    InLayer { folder: PathBuf, path: PathBuf },
    /// A file of problem matchers.
    Matchers(PathBuf),
    /// A file outside of any layer, and the name that it would have in one.
    Lone { path: PathBuf, name: String },
}

impl Target {
    pub(super) fn of(path: &Path) -> Result<Self, CliError> {
        if path.is_dir() {
            return Ok(workspace_of(path).map_or_else(|| Self::Layer(path.to_owned()), Self::Workspace));
        }
        if !path.is_file() {
            return Err(CliError::Usage(format!("{} is neither a folder nor a file", path.display())));
        }
        let absolute = path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let is_matchers = absolute.extension().is_some_and(|extension| extension == "json")
            && absolute.parent().and_then(Path::file_name).is_some_and(|folder| folder == "matchers");
        if is_matchers {
            return Ok(Self::Matchers(path.to_owned()));
        }
        for folder in absolute.ancestors().skip(1) {
            let name = absolute.strip_prefix(folder).ok().and_then(Path::to_str).unwrap_or_default();
            if FileKind::of(name).is_some() {
                let depth = Path::new(name).components().count();
                let folder = path.ancestors().nth(depth).map_or_else(|| folder.to_owned(), Path::to_owned);
                return Ok(Self::InLayer { path: folder.join(name), folder });
            }
        }
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let name = ["subscribers", "templates"].map(|folder| format!("{folder}/{file_name}"));
        match name.into_iter().find(|name| FileKind::of(name).is_some()) {
            Some(name) => Ok(Self::Lone { path: path.to_owned(), name }),
            None => {
                let message = format!(
                    "{} is not a subscriber (.toml), a template (.toon.j2) or a file of matchers (matchers/*.json)",
                    path.display()
                );
                Err(CliError::Usage(message))
            }
        }
    }

    /// The file whose findings are shown; `None` for a whole layer.
    pub(super) fn file(&self) -> Option<&PathBuf> {
        match self {
            Self::Layer(_) | Self::Workspace(_) => None,
            Self::InLayer { path, .. } | Self::Lone { path, .. } | Self::Matchers(path) => Some(path),
        }
    }
}

impl Target {
    /// The folder of the workspace that it names.
    fn of_workspace(&self) -> Option<&Path> {
        match self {
            Self::Workspace(folder) => Some(folder),
            Self::Layer(_) | Self::InLayer { .. } | Self::Lone { .. } | Self::Matchers(_) => None,
        }
    }
}

/// The folder whose layer an argument of `check` or `test` names: `.aside` itself, or a folder that has
/// one and nothing else of a layer.
fn workspace_of(named: &Path) -> Option<PathBuf> {
    let absolute = path::absolute(named).ok()?;
    if absolute.file_name().is_some_and(|name| name == WORKSPACE_FOLDER) {
        return absolute.parent().map(Path::to_owned);
    }
    let is_other_layer = LAYER_NAMES.iter().any(|name| named.join(name).exists());
    (!is_other_layer && named.join(WORKSPACE_FOLDER).is_dir()).then(|| named.to_owned())
}

/// Reads the system's layer and the layers and files in the arguments over `shipped`.
pub(super) fn read(shipped: Sources, targets: &[Target]) -> Sources {
    let mut layers = vec![(LayerKind::System, PathBuf::from(SYSTEM_FOLDER))];
    for target in targets {
        match target {
            Target::Layer(folder) | Target::InLayer { folder, .. } => {
                let layer = (LayerKind::User, folder.clone());
                if !layers.contains(&layer) {
                    layers.push(layer);
                }
            }
            Target::Lone { .. } | Target::Matchers(_) | Target::Workspace(_) => {}
        }
    }
    targets.iter().fold(read_layers_over(shipped, &layers), |sources, target| match target {
        Target::Lone { path, name } => with_file(sources, path, name),
        Target::Workspace(folder) => {
            let WorkspaceFiles { workspace, refused } = workspace::read(folder);
            sources.with(workspace.files().iter().cloned(), refused)
        }
        Target::Layer(_) | Target::InLayer { .. } | Target::Matchers(_) => sources,
    })
}

/// The layer of the user, unless one of `paths` is in it already, and `paths`.
pub(super) fn over_layer(layer: &Path, paths: &[&String]) -> Result<Vec<Target>, CliError> {
    let targets = paths.iter().map(|path| Target::of(Path::new(path))).collect::<Result<Vec<_>, _>>()?;
    let whole = |folder: &Path| {
        let is_here = folder.as_os_str().is_empty();
        fs::canonicalize(if is_here { Path::new(".") } else { folder }).ok()
    };
    let own = whole(layer);
    let is_own = |target: &Target| match target {
        Target::Layer(folder) | Target::InLayer { folder, .. } => own.is_some() && whole(folder) == own,
        Target::Lone { .. } | Target::Matchers(_) | Target::Workspace(_) => false,
    };
    let other = if targets.iter().any(is_own) { None } else { Some(Target::Layer(layer.to_owned())) };
    Ok(other.into_iter().chain(targets).collect())
}

/// Compiles the layers and files, and prints their errors.
///
/// Errors: there are some.
pub(super) fn compiled(sources: &Sources, context: &mut Context<'_>) -> Result<Compiled, CliError> {
    let compiled = compiled_of(sources);
    let errors = compiled.report.error_count();
    if errors > 0 {
        let counts = counts(errors, compiled.report.warning_count());
        context.say(&format!("{}\n{counts}\n", compiled.report))?;
        return Err(CliError::Check { errors });
    }
    Ok(compiled)
}

/// What the layers compile to, with the types of the catalogue.
pub(super) fn compiled_of(sources: &Sources) -> Compiled {
    let known_types: Vec<&str> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    compile(sources, &known_types)
}

/// Whether an argument is a path; otherwise it is the id of a subscriber.
pub(super) fn is_path(wanted: &str) -> bool {
    let is_id = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    !wanted.chars().all(is_id) || Path::new(wanted).is_dir()
}

/// The checked paths, so that a wrong folder is noticed.
fn places(targets: &[Target]) -> String {
    let place = |target: &Target| match target {
        Target::Layer(folder) if !folder.is_dir() => format!("{}, which does not exist", folder.display()),
        Target::Workspace(folder) => folder.join(WORKSPACE_FOLDER).display().to_string(),
        Target::Layer(path)
        | Target::InLayer { path, .. }
        | Target::Lone { path, .. }
        | Target::Matchers(path) => path.display().to_string(),
    };
    targets.iter().map(place).collect::<Vec<_>>().join(" and ")
}

/// Text with the number of findings.
pub(super) fn counts(errors: usize, warnings: usize) -> String {
    format!("{}, {}", counted(errors, "error"), counted(warnings, "warning"))
}

#[derive(Debug, clap::Args)]
pub(super) struct ReloadArgs {
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

impl ConfigView {
    /// A message if a file of the configuration has errors and is not used; `None` otherwise.
    pub(super) fn trouble(&self) -> Option<String> {
        let (errors, at) = (counted(self.errors, "error"), &self.read_at);
        match self.state.as_str() {
            Self::REFUSED => Some(format!("REFUSED at {at} with {errors}; the previous rules stay in force")),
            Self::PARTLY => Some(format!(
                "read with {errors} at {at}; files with errors are not used in their present form"
            )),
            _ => None,
        }
    }
}

impl FindingsView {
    /// The findings in the format of `aside check`, and their number; empty if there are none.
    fn text(&self) -> String {
        match self.errors + self.warnings {
            0 => String::new(),
            _ => format!("{}\n{}\n", self.report, counts(self.errors, self.warnings)),
        }
    }
}

pub(super) fn reload(args: &ReloadArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "reload the configuration";
    let response = context
        .client
        .request("POST", "/v1/reload", &[], b"")
        .map_err(|source| CliError::Client { doing, source })?;
    if args.json && matches!(response.status, 200 | 422) {
        context.print(&format!("{}\n", String::from_utf8_lossy(&response.body)))?;
    }
    match response.status {
        200 if args.json => Ok(()),
        200 => {
            let reloaded: ReloadView = parse(doing, &response.body)?;
            context.say(&(reloaded.found.text() + &reloaded.text()))
        }
        422 => {
            let found: FindingsView = parse(doing, &response.body)?;
            if !args.json {
                context.say(&(found.text() + "nothing was changed\n"))?;
            }
            Err(CliError::Check { errors: found.errors })
        }
        status => Err(refused(doing, status, &response.body)),
    }
}

impl ReloadView {
    fn text(&self) -> String {
        let Self { changed, rules, subscribers, restart_needed, failing, found: _ } = self;
        let outcome = if *changed { "in force" } else { "in force, unchanged" };
        let hash: String = rules.chars().take(HASH_CHARS).collect();
        let restart =
            if *restart_needed { "[journal] or [http] changed; this needs a restart\n" } else { "" };
        let failing = match failing {
            0 => String::new(),
            failing => format!(
                "`aside check` refuses these files: {}; a text that fails is delivered as a generic table\n",
                counted(*failing, "failing text or test")
            ),
        };
        format!("{outcome}: {}, hash {hash}\n{restart}{failing}", counted(*subscribers, "subscriber"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::run_against;
    use hook::client::fake::{FakeDaemon, Scratch};

    fn write(folder: &Path, name: &str, text: &str) -> String {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().expect("has a parent")).expect("a folder");
        std::fs::write(&path, text).expect("written");
        path.display().to_string()
    }

    #[test]
    fn matcher_file_error_names_line_or_field() {
        let daemon = FakeDaemon::silent();
        let folder = Scratch::new();
        let path = folder.path().display().to_string();
        let right = r#"{"problemMatcher": [{"owner": "a", "pattern": [{"regexp": "(.*)", "message": 1}]}]}"#;
        let file = write(folder.path(), "matchers/a.json", right);
        let fine = run_against(&daemon, &["check", &file]);
        assert_eq!(fine, Ok(format!("no errors in {file}\n")));
        write(folder.path(), "matchers/a.json", &right.replace("(.*)", "("));
        write(folder.path(), "matchers/b.json", "{\n  \"problemMatchers\": []\n}");
        let shown = run_against(&daemon, &["check", &path, "--format", "json"]).expect_err("fails");
        for part in ["problemMatcher[0].pattern[0].regexp", "did you mean `problemMatcher`?", "\"line\":2"] {
            assert!(shown.contains(part), "{part}: {shown}");
        }
    }

    #[test]
    fn errors_are_shown_and_fail_the_check() {
        let daemon = FakeDaemon::silent();
        let folder = Scratch::new();
        let path = folder.path().display().to_string();
        assert_eq!(
            run_against(&daemon, &["check", &path]),
            Ok(format!("no errors in the shipped files and {path}\n"))
        );
        write(folder.path(), "subscribers/ci.toml", "[subscriber]\nid = 3\n");
        let output = run_against(&daemon, &["check", &path]).expect_err("not a subscriber");
        assert!(output.starts_with("error: ") && output.contains("accept the configuration: "), "{output}");
        assert!(output.contains("\n\n2 errors, 0 warnings\n"), "{output}");
        assert!(daemon.requests().is_empty());
    }

    #[test]
    fn a_source_in_the_history_is_known() {
        let folder = Scratch::new();
        let text =
            "subscriber.id = \"x\"\n[events]\ntypes = [\"tool.call.failure\"]\nsources = [\"langgraph\"]\n";
        let file = write(folder.path(), "subscribers/x.toml", text);
        let event = r#"{"source":"langgraph"}"#;
        for (events, found) in [(event, "no errors in "), ("", "no known source is called `langgraph`")] {
            let page =
                format!(r#"{{"events":[{events}],"unmatched":0,"projection":{{"seq":9,"behind":0}}}}"#);
            let daemon =
                FakeDaemon::answering_paths(&[("/v1/events?source=langgraph&limit=1", page.as_str())]);
            let shown = run_against(&daemon, &["check", &file]).expect("no error");
            assert!(shown.contains(found), "{shown}");
        }
    }

    #[test]
    fn check_mentions_a_missing_configuration_folder() {
        let output = run_against(&FakeDaemon::silent(), &["check"]);
        assert_eq!(output.as_deref(), Ok("no errors in the shipped files and c, which does not exist\n"));
    }

    #[test]
    fn check_refuses_a_missing_path() {
        let error =
            run_against(&FakeDaemon::silent(), &["check", "/not/there"]).expect_err("nothing to check");
        assert_eq!(error, "understand the arguments: /not/there is neither a folder nor a file");
    }

    #[test]
    fn file_check_reports_only_its_own_findings() {
        let folder = Scratch::new();
        let subscriber = "[subscriber]\nid = \"ci\"\n[events]\ntypes = [\"ci.check.failed\"]\n";
        let good = write(folder.path(), "subscribers/ci.toml", subscriber);
        let broken = write(folder.path(), "subscribers/other.toml", "[subscriber]\n");
        let template = write(folder.path(), "templates/ci.toon.j2", "check: {{ events[0].payload.chek }}\n");
        let check = |path: &str| run_against(&FakeDaemon::silent(), &["check", path]);
        assert_eq!(check(&good), Ok(format!("no errors in {good}\n")));
        let error = check(&broken).expect_err("no id");
        assert!(error.contains("`id` is missing") && !error.contains("templates/"), "{error}");
        let error = check(&template).expect_err("a field that is not there");
        assert!(error.contains("ci.toon.j2:1:1") && error.contains("chek"), "{error}");
        assert!(!error.contains("other.toml"), "{error}");
    }

    #[test]
    fn file_outside_any_layer_is_checked_by_name() {
        let folder = Scratch::new();
        let lone = write(folder.path(), "ci.toml", "[subscriber]\nid = \"ci\"\n[events]\ntyps = []\n");
        let error = run_against(&FakeDaemon::silent(), &["check", &lone]).expect_err("a slip");
        assert!(error.contains("did you mean `types`?"), "{error}");
        let other = write(folder.path(), "ci.yaml", "");
        let error = run_against(&FakeDaemon::silent(), &["check", &other]).expect_err("of no kind");
        assert!(
            error.contains(
                "is not a subscriber (.toml), a template (.toon.j2) or a file of matchers (matchers/*.json)"
            ),
            "{error}"
        );
    }

    #[test]
    fn lint_is_explained_denied_and_allowed() {
        let folder = Scratch::new();
        let subscriber =
            "[subscriber]\nid = \"ci\"\n[events]\ntypes = [\"ci.check.failed\"]\nwhere = \"'a' == 'a'\"";
        let file = write(folder.path(), "subscribers/ci.toml", subscriber);
        let check = |args: &[&str]| run_against(&FakeDaemon::silent(), &[&["check"], args].concat());
        let warned = check(&[&file]).expect("a warning");
        assert!(
            warned.contains("warning[constant-where]") && warned.contains("0 errors, 1 warning"),
            "{warned}"
        );
        for deny in ["warnings", "constant-where"] {
            let denied = check(&[&file, "--deny", deny]).expect_err("an error");
            assert!(denied.starts_with("error[constant-where]"), "{denied}");
        }
        let unknown = check(&[&file, "--deny", "constant-were"]).expect_err("no lint");
        assert!(
            unknown.ends_with("there is no lint `constant-were`; did you mean `constant-where`?"),
            "{unknown}"
        );
        let page = check(&["--explain", "constant-where"]).expect("its page");
        assert!(page.starts_with("constant-where (warning)\n") && page.contains("\nright: "), "{page}");
        write(folder.path(), "subscribers/ci.toml", &format!("{subscriber} # aside: allow(constant-where)"));
        assert_eq!(check(&[&file, "--deny", "warnings"]), Ok(format!("no errors in {file}\n")));
    }

    #[test]
    fn findings_have_forms_for_services() {
        let folder = Scratch::new();
        let subscriber = "[subscriber]\nid = \"ci\"\n[events]\ntyps = []\ntypes = [\"ci.check.faild\"]\n";
        let file = write(folder.path(), "subscribers/ci.toml", subscriber);
        let check = |form: &str| {
            run_against(&FakeDaemon::silent(), &["check", &file, "--format", form]).expect_err("an error")
        };
        let github = check("github");
        let expected = format!(
            "::error file={file},line=4,col=1,title=mistake::unknown key `typs`; did you mean `types`?"
        );
        assert!(github.starts_with(&expected), "{github}");
        let sarif = check("sarif");
        let (json, _) = sarif.split_once('\n').expect("a line");
        let log: serde_json::Value = serde_json::from_str(json).expect("JSON");
        let results = &log["runs"][0]["results"];
        assert_eq!(
            (&results[0]["ruleId"], &results[1]["ruleId"]),
            (&"mistake".into(), &"unknown-type".into())
        );
        let location = &results[1]["locations"][0]["physicalLocation"];
        let region = serde_json::json!({ "startLine": 5, "startColumn": 10, "endLine": 5, "endColumn": 26 });
        assert_eq!(location["region"], region);
        assert_eq!(location["artifactLocation"]["uri"], format!("file://{file}"));
        assert_eq!(log["runs"][0]["tool"]["driver"]["rules"].as_array().map(Vec::len), Some(20));
    }

    #[test]
    fn the_outcome_is_shown_with_the_findings() {
        let body = r#"{"changed":true,"rules":"b21532ec8694b10c52aa","subscribers":12,"restart_needed":false,
            "errors":0,"warnings":0,"findings":[],"report":""}"#;
        let daemon = FakeDaemon::answering_json(200, body);
        let printed = run_against(&daemon, &["reload"]);
        assert_eq!(printed.as_deref(), Ok("in force: 12 subscribers, hash b21532ec8694\n"));
        assert!(daemon.requests()[0].starts_with("POST /v1/reload HTTP/1.1\r\n"));

        let body = r#"{"changed":false,"rules":"b2","subscribers":1,"restart_needed":true,
            "errors":0,"warnings":1,"findings":[],"report":"warning: twice\n"}"#;
        let printed = run_against(&FakeDaemon::answering_json(200, body), &["reload"]);
        let expected = "warning: twice\n\n0 errors, 1 warning\nin force, unchanged: 1 subscriber, hash b2\n\
                        [journal] or [http] changed; this needs a restart\n";
        assert_eq!(printed.as_deref(), Ok(expected));
    }

    #[test]
    fn texts_that_fail_are_said() {
        let body = r#"{"changed":true,"rules":"b2","subscribers":1,"restart_needed":false,"failing":1,
            "errors":0,"warnings":1,"findings":[],"report":"warning: it fails\n"}"#;
        let printed = run_against(&FakeDaemon::answering_json(200, body), &["reload"]);
        let expected = "warning: it fails\n\n0 errors, 1 warning\nin force: 1 subscriber, hash b2\n\
                        `aside check` refuses these files: 1 failing text or test; a text that fails is delivered as a generic table\n";
        assert_eq!(printed.as_deref(), Ok(expected));
    }

    #[test]
    fn a_refused_one_shows_every_finding_and_fails() {
        let body = r#"{"error":{"message":"the configuration has 2 errors; the rules are unchanged"},
            "errors":2,"warnings":0,"findings":[{"line":3}],"report":"error: a\n\nerror: b\n"}"#;
        let printed = run_against(&FakeDaemon::answering_json(422, body), &["reload"]);
        let expected = "error: a\n\nerror: b\n\n2 errors, 0 warnings\nnothing was changed\n\
                        accept the configuration: 2 errors";
        assert_eq!(printed.expect_err("refused"), expected);
        let printed = run_against(&FakeDaemon::answering_json(422, body), &["reload", "--json"]);
        assert!(printed.expect_err("refused").starts_with("{\"error\":"));

        let body = r#"{"error":{"message":"the disk is full"}}"#;
        let printed = run_against(&FakeDaemon::answering_json(507, body), &["reload"]);
        assert_eq!(printed.expect_err("refused"), "reload the configuration: the disk is full");
    }
}
