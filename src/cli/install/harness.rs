//! Installs in a harness of the table, by its form: `hooks.rs` in a client that runs hooks,
//! `extension.rs` as an extension that calls the API.

use super::{
    InstallError, Outcome,
    client::{check_version, home},
    extension, hooks,
    options::{Args, RemoveArgs},
};
use crate::{
    cli::harness,
    harness::kind::{Form, Hooked, Kind},
};

/// Installs aside in the client of the harness.
pub(super) fn install(kind: &'static Kind, args: &Args) -> Result<Outcome, InstallError> {
    match kind.form {
        Form::Hooks(hooks) => hooks::install(Hooked { kind, hooks }, args),
        Form::Extension(own) => {
            let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
            let needs = (own.folder.since, "this version of the extension needs");
            check_version(&mut outcome, &own.client, harness::version(&own.client), needs)?;
            extension::install(&mut outcome, &home(&own.client)?, own)?;
            outcome.next_steps(own.client.program.name, false);
            Ok(outcome)
        }
        Form::Proxy => Err(InstallError::NoClient { title: kind.title, start: kind.set_up() }),
    }
}

/// Removes aside from the client of the harness.
pub(super) fn uninstall(kind: &'static Kind, args: &RemoveArgs) -> Result<Outcome, InstallError> {
    match kind.form {
        Form::Hooks(hooks) => hooks::uninstall(Hooked { kind, hooks }, args),
        Form::Extension(own) => {
            let mut outcome = Outcome { is_dry_run: args.dry_run, ..Outcome::default() };
            extension::remove(&mut outcome, &home(&own.client)?, &own.folder)?;
            Ok(outcome)
        }
        Form::Proxy => Err(InstallError::NoClient { title: kind.title, start: kind.set_up() }),
    }
}

#[cfg(test)]
mod tests {
    use clap::{Args as _, Command, FromArgMatches};

    use super::*;
    use crate::harness::trial;

    #[test]
    fn a_proxy_refuses_to_be_installed() {
        let args = Args::augment_args(Command::new("install"));
        let args = Args::from_arg_matches(&args.get_matches_from(["install"]));
        let refused = install(&trial::PROXY, &args.expect("no argument is needed"));
        let removed = uninstall(&trial::PROXY, &RemoveArgs { project: None, dry_run: false });
        for refused in [refused, removed] {
            let why =
                "Trial Proxy is not installed in a client: `aside relay -- AGENT` starts an agent with it";
            assert_eq!(refused.map(drop).map_err(|error| error.to_string()), Err(why.to_owned()));
        }
    }
}
