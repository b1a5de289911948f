//! `aside schema`: the JSON schemas of files, for editors, without a daemon.

use std::path::Path;

use engine::{
    event::catalogue,
    nearest::nearest,
    words::{Words, counted},
};

use super::{
    CliError, Context,
    configuration::Configuration,
    files::{read_or_empty, rewrite},
};
use crate::config::schema::SchemaName;

/// The folder of the schemas in a layer. It is hidden, so nothing in it is read.
const FOLDER: &str = ".schema";

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The file: subscriber, aside or events
    #[arg(value_name = "NAME", value_parser = name, required_unless_present = "write", conflicts_with = "write")]
    name: Option<SchemaName>,
    /// Write all of them to .schema/ of your configuration
    #[arg(long)]
    write: bool,
}

fn name(word: &str) -> Result<SchemaName, String> {
    SchemaName::of_word(word).ok_or_else(|| {
        let hint = nearest(word, SchemaName::words()).map(|near| format!("; did you mean `{near}`?"));
        format!("there is no schema `{word}`{}; they are {}", hint.unwrap_or_default(), SchemaName::list())
    })
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    match args.name {
        Some(name) => context.print(&text(name, &configuration)),
        None => {
            let written = write(&configuration, true)?;
            let folder = context.terminal.folder(&configuration.folder.join(FOLDER).display().to_string());
            context.say(&format!(
                "wrote {} to {folder}\nnext: a subscriber begins with `#:schema ../.schema/subscriber.json`\n",
                counted(written, "schema")
            ))
        }
    }
}

/// The text of a schema, with the types of the catalogue and of the layers as suggestions.
fn text(name: SchemaName, configuration: &Configuration) -> String {
    let own = configuration.compiled.events.iter().map(|entry| entry.event_type.as_str());
    let types: Vec<&str> = catalogue::types().map(|entry| entry.event_type.as_str()).chain(own).collect();
    format!("{:#}\n", name.schema(&types))
}

/// Writes the schemas that the user's folder lacks, or all of them; returns their number.
pub(super) fn write(configuration: &Configuration, is_all: bool) -> Result<usize, CliError> {
    let mut written = 0;
    for name in <SchemaName as strum::VariantArray>::VARIANTS {
        let path = configuration.folder.join(format!("{FOLDER}/{}.json", name.as_str()));
        let before = read_or_empty(Path::new(&path))?;
        if is_all || before.is_empty() {
            rewrite(&path, &before, &text(*name, configuration))?;
            written += 1;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::cli::tests::run_in;
    use hook::client::fake::{FakeDaemon, Scratch};

    #[test]
    fn schemas_are_printed_and_written() {
        let folder = Scratch::new();
        let own = "[[event]]\ntype = \"deploy.web.finished\"\n";
        fs::write(folder.path().join("events.toml"), own).expect("written");
        let run = |args: &[&str]| run_in(&FakeDaemon::silent(), folder.path(), &[&["schema"], args].concat());
        let printed = run(&["subscriber"]).expect("printed");
        let schema: serde_json::Value = serde_json::from_str(&printed).expect("JSON");
        let types = &schema["properties"]["events"]["properties"]["types"]["items"]["anyOf"][0]["enum"];
        let types: Vec<&str> =
            types.as_array().into_iter().flatten().filter_map(|one| one.as_str()).collect();
        assert!(types.contains(&"tool.call.failure") && types.contains(&"deploy.web.finished"), "{types:?}");
        for name in ["aside", "events"] {
            let schema: serde_json::Value =
                serde_json::from_str(&run(&[name]).expect("printed")).expect("JSON");
            assert!(schema["properties"].is_object(), "{name}");
        }
        for _ in 0..2 {
            let said = run(&["--write"]).expect("written");
            assert!(said.starts_with("wrote 3 schemas to "), "{said}");
        }
        let written = fs::read_to_string(folder.path().join(".schema/subscriber.json")).expect("a file");
        assert_eq!(written, printed);
        let path = folder.path().display().to_string();
        let checked = run_in(&FakeDaemon::silent(), folder.path(), &["check", &path]).expect("valid");
        assert!(checked.starts_with("no errors"), "{checked}");
        let wrong = run(&["subscribr"]).expect_err("no schema");
        assert!(wrong.contains("did you mean `subscriber`?"), "{wrong}");
    }
}
