//! `aside check`: what is wrong with the configuration, all of it at once, without a daemon.

use std::path::PathBuf;

use super::{CliError, Context};
use crate::{
    config::{
        compile::compile,
        layers::LayerKind,
        load::{SYSTEM_FOLDER, read_layers},
    },
    event::catalogue,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Folders to check together with what ships, each with `aside.toml`, `subscribers/` and `templates/` as far as it has
    /// them [default: the configuration folder]
    #[arg(value_name = "DIR")]
    folders: Vec<PathBuf>,
    /// Print the findings as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    if let Some(absent) = args.folders.iter().find(|folder| !folder.is_dir()) {
        return Err(CliError::Usage(format!("{} is not a folder", absent.display())));
    }
    let folders = match (args.folders.as_slice(), &context.paths) {
        ([], Ok(paths)) => vec![paths.config.clone()],
        ([], Err(error)) => return Err(CliError::Paths(error.clone())),
        (folders, _) => folders.to_vec(),
    };
    let places = places(&folders);
    let system = (LayerKind::System, PathBuf::from(SYSTEM_FOLDER));
    let users = folders.into_iter().map(|folder| (LayerKind::User, folder));
    let layers: Vec<_> = std::iter::once(system).chain(users).collect();
    let known_types: Vec<&str> = catalogue::types().map(|entry| entry.event_type.as_str()).collect();
    let report = compile(&read_layers(&layers), &known_types).report;
    let (errors, warnings) = (report.error_count(), report.warning_count());
    let text = match (args.json, errors, warnings) {
        (true, ..) => format!("{}\n", report.to_json()),
        (false, 0, 0) => format!("no errors in {places}\n"),
        (false, ..) => report.to_string(),
    };
    context.print(&text)?;
    match errors {
        0 => Ok(()),
        errors => Err(CliError::Check { errors }),
    }
}

/// What was looked at, so that a folder of another name than meant is seen.
fn places(folders: &[PathBuf]) -> String {
    let place = |folder: &PathBuf| {
        let absence = if folder.is_dir() { "" } else { ", which is not there" };
        format!("{}{absence}", folder.display())
    };
    format!("what ships and {}", folders.iter().map(place).collect::<Vec<_>>().join(" and "))
}

#[cfg(test)]
mod tests {
    use crate::{
        cli::tests::run_against,
        client::fake::{FakeDaemon, Scratch},
    };

    #[test]
    fn errors_are_shown_and_fail_the_check() {
        let daemon = FakeDaemon::silent();
        let folder = Scratch::new();
        let path = folder.path().display().to_string();
        assert_eq!(
            run_against(&daemon, &["check", &path]),
            Ok(format!("no errors in what ships and {path}\n"))
        );
        let subscribers = folder.path().join("subscribers");
        std::fs::create_dir(&subscribers).expect("a folder");
        std::fs::write(subscribers.join("ci.toml"), "[subscriber]\nid = 3\n").expect("written");
        let output = run_against(&daemon, &["check", &path]).expect_err("not a subscriber");
        assert!(output.starts_with("error: ") && output.contains("accept the configuration: "), "{output}");
        assert!(daemon.requests().is_empty());
    }

    #[test]
    fn a_configuration_folder_that_is_not_there_is_said() {
        let output = run_against(&FakeDaemon::silent(), &["check"]);
        assert_eq!(output.as_deref(), Ok("no errors in what ships and c, which is not there\n"));
    }

    #[test]
    fn a_folder_that_is_not_there_is_an_error() {
        let error =
            run_against(&FakeDaemon::silent(), &["check", "/not/there"]).expect_err("nothing to check");
        assert_eq!(error, "understand the arguments: /not/there is not a folder");
    }
}
