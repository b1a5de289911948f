//! `aside subscribers`: the subscribers in force and what each did, or a page about one. Without a
//! daemon, what the files say.

mod list;
mod page;

use std::error::Error as _;

use hook::client::ClientError;
use serde_json::{Value, json};

use self::page::{Live, Page};
use super::{CliError, Context, configuration::Configuration};
use crate::{
    api::wire::subscribers::SubscribersView,
    config::{
        described::{self, Origin},
        layers::Sources,
        listing::{self, Listed},
        report::Place,
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this one: what it does, each key in force with its origin, and what it has open
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// List those too that had no event in 7 days
    #[arg(long, conflicts_with = "id")]
    all: bool,
    /// The keys that differ from those of the shipped one that it replaces
    #[arg(long, requires = "id")]
    diff: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "diff")]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let shipped = if args.id.is_some() { Sources::shipped_with_tests() } else { Sources::shipped() };
    let configuration = Configuration::read_over(shipped, context)?;
    let text = match &args.id {
        Some(id) => {
            let one = configuration.subscriber(id)?;
            one_text(args, &one, &configuration, context)?
        }
        None if args.json => {
            let all = listing::subscribers(&configuration.sources, &configuration.compiled);
            let live = live(context).ok();
            format!("{}\n", Value::from(all.iter().map(|one| head(one, live.as_ref())).collect::<Vec<_>>()))
        }
        None => {
            let all = listing::subscribers(&configuration.sources, &configuration.compiled);
            list::text(&all, live(context).as_ref(), args.all, &context.terminal) + &configuration.note()
        }
    };
    context.print(&text)
}

fn one_text(
    args: &Args,
    one: &Listed,
    configuration: &Configuration,
    context: &Context<'_>,
) -> Result<String, CliError> {
    let page = |live| Page { one, configuration, live, terminal: &context.terminal };
    if args.diff {
        return page(Err("")).diff();
    }
    let live = live(context);
    if args.json {
        return Ok(format!("{}\n", json_of(one, live.ok().as_ref())));
    }
    let live = match live {
        Ok(all) => Ok(Live::ask(&one.id, all, context)?),
        Err(why) => Err(why),
    };
    Ok(page(live.as_ref().map_err(String::as_str)).text() + &configuration.note())
}

/// What the daemon knows.
///
/// Errors: a sentence that says why it is not known.
fn live(context: &Context<'_>) -> Result<SubscribersView, String> {
    let asked = context.get("read what subscribers did", "/v1/subscribers");
    asked.map_err(|error: CliError| {
        if let CliError::Client { source: ClientError::NoDaemon { .. } | ClientError::NoSocket(_), .. } =
            error
        {
            return "no daemon runs".to_owned();
        }
        match error.source() {
            Some(cause) => cause.to_string(),
            None => error.to_string(),
        }
    })
}

fn head(one: &Listed, live: Option<&SubscribersView>) -> Value {
    let own = live.and_then(|live| live.subscribers.iter().find(|own| own.id == one.id));
    json!({
        "id": one.id,
        "name": one.name,
        "description": one.description,
        "layers": list::layers(one),
        "folder": one.folder,
        "state": one.state.as_str(),
        "live": own,
    })
}

fn json_of(one: &Listed, live: Option<&SubscribersView>) -> Value {
    let key = |origin: &Origin| {
        json!({
            "key": origin.key,
            "value": origin.value,
            "file": origin.place.as_ref().map(|place| &*place.file),
            "line": origin.place.as_ref().map(Place::line),
        })
    };
    let mut value = head(one, live);
    if let Some(fields) = value.as_object_mut() {
        let keys = described::in_force(one);
        fields.insert("takes".to_owned(), described::takes(one).into());
        fields.insert("delivers".to_owned(), described::delivers(one).into());
        fields.insert("keys".to_owned(), keys.iter().map(key).collect());
    }
    value
}

#[cfg(test)]
mod tests {
    use crate::cli::tests::run_in;
    use hook::client::fake::{FakeDaemon, Scratch};
    use std::fs;

    fn run(folder: &Scratch, args: &[&str]) -> Result<String, String> {
        run_in(&FakeDaemon::answering_paths(&[]), folder.path(), args)
    }

    #[test]
    fn the_list_has_origin_and_state() {
        let folder = Scratch::new();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a folder");
            fs::write(path, text).expect("written");
        };
        write("subscribers/timer.toml", "[subscriber]\nid = \"timer\"\ninherit = true\nenabled = false\n");
        write(
            "subscribers/b.toml",
            "[subscriber]\nid = \"budget_warning\"\n[events]\ntypes = [\"budget.own.warning\"]\n",
        );
        write("subscribers/broken.toml", "[subscriber]\n");
        let list = run(&folder, &["subscribers"]).expect("shown");
        let row = |id: &str| {
            list.lines().find(|line| line.split_whitespace().next() == Some(id)).unwrap_or_default()
        };
        for (id, parts) in [
            ("timer", ["shipped, user", " disabled"]),
            ("budget_warning", ["user", " core"]),
            ("budget_warning@shipped", ["shipped", " remainder"]),
            ("tool_failure", ["shipped", " core"]),
        ] {
            for part in parts {
                assert!(row(id).contains(part), "{id} {part}: {list}");
            }
        }
        assert!(list.ends_with("files with errors are left out: 2 found by `aside check`\n"), "{list}");
    }
}
