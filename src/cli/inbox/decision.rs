//! The user's decisions about one notification.

use hook::client::percent_encode;

use crate::{
    api::wire::ErrorView,
    cli::{
        CliError, Context, ids,
        terminal::{Tone, one_line},
    },
};

/// The notification that a decision is about.
#[derive(Debug, clap::Args)]
pub(super) struct Which {
    /// The notification, as in `aside inbox`, or a prefix of its id; `last` is the newest
    pub(super) id: String,
    /// Only in the queue of this session
    #[arg(long, value_name = "ID")]
    pub(super) session: Option<String>,
}

pub(super) fn dismiss(which: &Which, context: &mut Context<'_>) -> Result<(), CliError> {
    let id = decide("dismiss the notification", "dismiss", which, context)?;
    confirm("dismissed", &id, context)
}

pub(super) fn discuss(which: &Which, context: &mut Context<'_>) -> Result<(), CliError> {
    let id = decide("hand the notification to the agent", "discuss", which, context)?;
    confirm("handed to the agent:", &id, context)
}

/// Prints the completed action.
fn confirm(done: &str, id: &str, context: &mut Context<'_>) -> Result<(), CliError> {
    let done = context.terminal.paint(Tone::Good, done);
    context.print(&format!("{done} {}\n", one_line(id)))
}

/// Sends the decision; returns the notification's whole id.
fn decide(doing: &'static str, verb: &str, which: &Which, context: &Context<'_>) -> Result<String, CliError> {
    let session = which.session.as_deref().map(|text| ids::session(text, context)).transpose()?;
    let query = ids::session_query(session.as_deref());
    let send = |id: &str| {
        let path = format!("/v1/notifications/{}/{verb}{query}", percent_encode(id));
        context.ask(doing, "POST", &path, None).map(drop)
    };
    let nothing = || CliError::Refused {
        doing,
        refusal: ErrorView { field: None, message: "no pending notifications".to_owned() },
    };
    if which.id == ids::LAST {
        let newest = ids::waiting(&which.id, session.as_deref(), context)?.ok_or_else(nothing)?;
        return send(&newest).map(|()| newest);
    }
    match send(&which.id) {
        Err(refused @ CliError::Refused { .. }) => {
            match ids::waiting(&which.id, session.as_deref(), context)?.filter(|id| *id != which.id) {
                Some(id) => send(&id).map(|()| id),
                None => Err(refused),
            }
        }
        done => done.map(|()| which.id.clone()),
    }
}
