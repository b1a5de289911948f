//! `aside trust`: shows what the files of a workspace do, and asks its user whether they hold.
//!
//! The daemon reads them again and compares their hash, so what was shown is what is trusted.

use std::{fmt::Write as _, path::Path};

use dialoguer::{Confirm, console::Term, theme::SimpleTheme};
use engine::{event::is_within, words::counted};
use serde_json::{Value, json};

use super::{
    CliError, Context,
    check::counts,
    table::{Cell, Table},
    terminal::one_line,
    workspace_or_current,
};
use crate::{
    api::wire::trust::{TrustRequest, WorkspaceState, WorkspaceView, WorkspacesView},
    config::{
        compile::{Compiled, compile},
        layers::{Sources, Workspace},
        listing::{self, Asked, ListedState},
        load::{layers_of, read_layers},
    },
    daemon::workspace::{self, WorkspaceFiles},
};

const PATH: &str = "/v1/trust";
const DOING: &str = "trust the workspace";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// A folder in the workspace; its `.aside`, or the nearest one above it, is meant [default: .]
    #[arg(value_name = "DIR")]
    folder: Option<String>,
    /// Trust the files without a question
    #[arg(long)]
    yes: bool,
    /// End the trust
    #[arg(long, conflicts_with_all = ["yes", "list"])]
    revoke: bool,
    /// List the workspaces that are trusted, or wait for your decision
    #[arg(long, conflicts_with_all = ["yes", "folder"])]
    list: bool,
    /// Print JSON: the list, or what the files do, without a question
    #[arg(long, conflicts_with = "revoke")]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    if args.list {
        return list(args.json, context);
    }
    let given = workspace_or_current(args.folder.as_deref());
    let given = given.ok_or_else(|| CliError::Usage("the current folder is gone; name one".to_owned()))?;
    if args.revoke {
        return revoke(&given, context);
    }
    let Some(folder) = workspace::nearest(Path::new(&given)) else {
        let message = format!(
            "neither {given} nor a folder above it has a folder .aside that is yours, and is no link"
        );
        return Err(CliError::Usage(message));
    };
    let shown = Shown::read(&folder, context)?;
    if args.json {
        context.print(&format!("{}\n", shown.json()))?;
        return if args.yes { decide(&shown.request(), context).map(drop) } else { Ok(()) };
    }
    context.print(&shown.text(context))?;
    let known: WorkspacesView = context.get(DOING, PATH)?;
    let is_it = |one: &WorkspaceView| one.folder == shown.own.folder && one.hash == shown.own.hash();
    if known.workspaces.iter().any(|one| is_it(one) && one.state == WorkspaceState::InForce) {
        return context.say("these files are trusted already\n");
    }
    if !args.yes && !asked(context)? {
        return context.say("nothing is trusted\n");
    }
    decide(&shown.request(), context)?;
    context.say("trusted, and in force for the sessions in this folder; a file that changes asks again\n")
}

/// The files of a workspace, without an error.
struct Shown {
    own: Workspace,
    compiled: Compiled,
}

impl Shown {
    /// Reads the files and compiles them over the layers of this user.
    ///
    /// Errors: one has an error, which is printed; there is none.
    fn read(folder: &Path, context: &mut Context<'_>) -> Result<Self, CliError> {
        let WorkspaceFiles { workspace: own, refused } = workspace::read(folder);
        let lower = read_layers(&layers_of(&context.paths()?.config));
        let refused = compile(&Sources::default().with([], refused), &[]).report;
        let compiled = compile(&lower.with_workspaces([own.clone()]), &[]);
        let found = compiled.workspaces.iter().map(|own| &own.report);
        let report = found.fold(refused, |all, own| all.with(own.diagnostics().to_vec()));
        if report.diagnostics().is_empty() && !own.has_rules() {
            let message = format!("{} has no subscriber and no template in .aside", folder.display());
            return Err(CliError::Usage(message));
        }
        let errors = report.error_count();
        if !report.diagnostics().is_empty() {
            context.say(&format!("{report}\n{}\n\n", counts(errors, report.warning_count())))?;
        }
        if errors > 0 { Err(CliError::Check { errors }) } else { Ok(Self { own, compiled }) }
    }

    fn request(&self) -> TrustRequest {
        TrustRequest { folder: self.own.folder.clone(), hash: Some(self.own.hash()) }
    }

    fn text(&self, context: &Context<'_>) -> String {
        let bytes: usize = self.own.files().iter().map(|file| file.text.len()).sum();
        let files = counted(self.own.files().len(), "file");
        let mut text = format!("{}/.aside: {files}, {bytes} bytes\n\n", self.own.folder);
        for Asked { id, changes, types, priority, inject_at, does } in listing::asked_about(&self.compiled) {
            let is = match changes {
                None => "new",
                Some(ListedState::Core | ListedState::Remainder) => "changes a core one",
                Some(ListedState::On | ListedState::Off) => "changes yours",
            };
            let lines = [
                format!("{id} ({is})"),
                format!("  events  {}", types.join(", ")),
                format!("  {priority}, {inject_at}: {}", does.join(", ")),
            ];
            for line in lines {
                let _ = writeln!(text, "{}", context.terminal.wrap(&one_line(&line), 0, 10));
            }
            text.push('\n');
        }
        let mut files = Table::new(["FILE", "BYTES"]);
        for file in self.own.files() {
            files.row([Cell::plain(&file.name), Cell::plain(&file.text.len().to_string())]);
        }
        let _ = writeln!(text, "{}", files.text(&context.terminal));
        let note = "Agents that work in this folder read the texts that these files make of events. Read \
                    the files if you do not know who wrote them.\n";
        text + &context.terminal.prose(note)
    }

    fn json(&self) -> Value {
        let subscriber = |one: Asked| {
            json!({
                "id": one.id,
                "changes": one.changes.map(ListedState::as_str),
                "types": one.types,
                "priority": one.priority.as_str(),
                "inject_at": one.inject_at.as_str(),
                "does": one.does,
            })
        };
        let files = self.own.files().iter();
        json!({
            "folder": &*self.own.folder,
            "hash": self.own.hash(),
            "subscribers": listing::asked_about(&self.compiled).into_iter().map(subscriber).collect::<Vec<_>>(),
            "files": files.map(|file| json!({ "name": &*file.name, "bytes": file.text.len() })).collect::<Vec<_>>(),
        })
    }
}

fn asked(context: &Context<'_>) -> Result<bool, CliError> {
    if !context.terminal.is_interactive {
        let message = "nobody can be asked without a terminal; `--yes` trusts these files";
        return Err(CliError::Usage(message.to_owned()));
    }
    let confirm = Confirm::with_theme(&SimpleTheme).with_prompt("trust these files?").default(false);
    confirm.interact_on(&Term::stderr()).map_err(CliError::Ask)
}

fn decide(request: &TrustRequest, context: &Context<'_>) -> Result<Vec<u8>, CliError> {
    let body = serde_json::to_value(request).expect("text is JSON");
    context.ask(DOING, "POST", PATH, Some(&body))
}

fn revoke(given: &str, context: &mut Context<'_>) -> Result<(), CliError> {
    let known: WorkspacesView = context.get(DOING, PATH)?;
    let trusted = known.workspaces.iter().filter(|one| one.trusted_at.is_some());
    let around = trusted.filter(|one| is_within(given, &one.folder)).max_by_key(|one| one.folder.len());
    let Some(one) = around else {
        let message =
            format!("neither {given} nor a folder above it is trusted; `aside trust --list` lists them");
        return Err(CliError::Usage(message));
    };
    decide(&TrustRequest { folder: one.folder.clone(), hash: None }, context)?;
    context.say(&format!("the files in {}/.aside are not trusted any more\n", one.folder))
}

fn list(is_json: bool, context: &mut Context<'_>) -> Result<(), CliError> {
    let body = context.ask(DOING, "GET", PATH, None)?;
    if is_json {
        return context.print_json(DOING, &body);
    }
    let WorkspacesView { workspaces } = super::parse(DOING, &body)?;
    if workspaces.is_empty() {
        return context.say("no workspace is trusted, and none waits for your decision\n");
    }
    let mut table = Table::new(["WORKSPACE", "STATE", "TRUSTED", "SUBSCRIBERS"]);
    for one in &workspaces {
        let since = one.trusted_at.as_deref().map(|at| context.terminal.moment(at));
        table.row([
            Cell::path(&one.folder),
            Cell::word(one.state.as_str()),
            Cell::dim(&since.unwrap_or_else(|| "-".to_owned())),
            Cell::plain(&one.subscribers.join(", ")),
        ]);
    }
    let mut text = table.text(&context.terminal);
    let next: Vec<_> = workspaces.iter().filter(|one| one.state != WorkspaceState::InForce).collect();
    for one in next {
        let _ = writeln!(text, "next: {}", one.remedy());
    }
    context.print(&text)
}
