//! `aside notify`: sends a notice to the user.
//!
//! In an agent's session the notice is from that session, which the daemon derives from the
//! requesting process; elsewhere it is from the command's folder.

use clap::builder::PossibleValuesParser;
use engine::{notification::Category, words::Words};
use serde_json::{Map, Value};

use super::{CliError, Context, absolute_folder, ids, parse, terminal::one_line, workspace_or_current};
use crate::api::wire::notify::NotifyAnswer;

const DOING: &str = "notify the user";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The message, on one line
    #[arg(value_name = "MESSAGE")]
    message: String,
    /// Read **bold**, *italic*, `code` and [text](url) in the message; else each character is shown
    /// unchanged
    #[arg(long)]
    markdown: bool,
    /// A web address to open
    #[arg(long, value_name = "URL")]
    link: Option<String>,
    /// A name for the work; a newer message with the same name replaces the older one
    #[arg(long)]
    key: Option<String>,
    /// Progress in percent
    #[arg(long, value_name = "PERCENT", requires = "key", value_parser = clap::value_parser!(u8).range(..=100))]
    progress: Option<u8>,
    /// The level: info, warn or error; any other value is info
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    level: String,
    /// Its context, such as a component
    #[arg(long, value_name = "TEXT", default_value = "llm")]
    context: String,
    /// Its category
    #[arg(long, value_parser = PossibleValuesParser::new(Category::words()))]
    category: Option<String>,
    /// The session that it comes from, as `aside sessions` names it [default: the one this runs in]
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// The folder of origin [default: the current one, outside of a session]
    #[arg(long, value_name = "DIR", conflicts_with = "session")]
    workspace: Option<String>,
    /// Print the daemon's answer as JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let session = args.session.as_deref().map(|text| ids::addressee(text, context)).transpose()?;
    let named = args.workspace.as_deref().map(absolute_folder);
    let mut fields = Map::new();
    let mut insert = |name: &str, text: Option<&str>| {
        fields.extend(text.map(|text| (name.to_owned(), Value::from(text))));
    };
    insert("message", Some(&args.message));
    insert("link", args.link.as_deref());
    insert("key", args.key.as_deref());
    insert("level", Some(&args.level));
    insert("context", Some(&args.context));
    insert("category", args.category.as_deref());
    insert("session", session.as_deref());
    insert("workspace", named.or_else(|| workspace_or_current(None)).as_deref());
    fields.extend(args.progress.map(|percent| ("progress".to_owned(), percent.into())));
    fields.extend(args.markdown.then(|| ("markdown".to_owned(), true.into())));
    let body = context.ask(DOING, "POST", "/v1/notify", Some(&Value::Object(fields)))?;
    if args.json {
        let answer: Value = parse(DOING, &body)?;
        return context.print(&format!("{answer}\n"));
    }
    let NotifyAnswer { text, .. } = parse(DOING, &body)?;
    context.print(&format!("{}\n", one_line(&text)))
}
