//! `aside subscribers`: lists the subscribers in force, or shows each key of one with the file that
//! it came from; without a daemon.

use std::{cmp::Reverse, fmt::Write as _};

use serde_json::{Value, json};

use super::{
    CliError, Context,
    edit::Configuration,
    table::{Cell, Table},
};
use crate::config::{
    effective::KeyInForce,
    layers::LayerKind,
    listing::{self, Listed},
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Only this one, with each key in force and its file
    #[arg(value_name = "ID")]
    id: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let text = match &args.id {
        Some(id) => {
            let one = configuration.subscriber(id)?;
            if args.json { format!("{}\n", json_of(&one)) } else { page(&one) + &configuration.note() }
        }
        None => {
            let all = listing::subscribers(&configuration.sources, &configuration.compiled);
            match args.json {
                true => format!("{}\n", Value::from(all.iter().map(head).collect::<Vec<_>>())),
                false => table(&all, context) + &configuration.note(),
            }
        }
    };
    context.print(&text)
}

fn table(all: &[Listed], context: &Context<'_>) -> String {
    let mut table = Table::new(["SUBSCRIBER", "LAYERS", "STATE", "ABOUT"]);
    for one in all {
        table.row([
            Cell::plain(&one.id),
            Cell::plain(&layers(one).join(", ")),
            Cell::word(one.state.as_str()),
            Cell::dim(&one.description),
        ]);
    }
    table.text(&context.terminal)
}

fn layers(one: &Listed) -> Vec<&'static str> {
    one.layers.iter().map(|layer| LayerKind::as_str(*layer)).collect()
}

fn head(one: &Listed) -> Value {
    json!({
        "id": one.id,
        "name": one.name,
        "description": one.description,
        "layers": layers(one),
        "state": one.state.as_str(),
    })
}

fn json_of(one: &Listed) -> Value {
    let key = |key: &KeyInForce| {
        json!({
            "key": key.key,
            "value": &*key.value,
            "file": &*key.place.file,
            "line": key.place.line(),
        })
    };
    let mut value = head(one);
    if let Some(fields) = value.as_object_mut() {
        fields.insert("keys".to_owned(), one.keys.iter().map(key).collect());
    }
    value
}

/// The keys, by the file that they came from, the latest file first.
fn page(one: &Listed) -> String {
    let layer = |path: &str| one.files.iter().find(|file| *file.path == *path).map(|file| file.layer);
    let mut files: Vec<_> = one.keys.iter().map(|key| &key.place.file).collect();
    // A template of a later layer is none of the subscriber's files.
    files.sort_by_key(|path| (layer(path).is_some(), Reverse(layer(path)), *path));
    files.dedup();
    let mut text = format!("{}: {}\n", one.id, one.state.as_str());
    for file in files {
        let _ = write!(text, "\nfrom {file}\n");
        for key in one.keys.iter().filter(|key| key.place.file == *file) {
            let _ = writeln!(text, "  {} = {}", key.key, key.value.replace('\n', "\n    "));
        }
    }
    text + "\nall other keys have their defaults\n"
}
