//! `aside edit`: writes the smallest file that changes a subscriber of an earlier layer, into the
//! user's layer; without a daemon.

use std::{
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use super::{CliError, Context};
use crate::{
    config::{
        compile::{Compiled, compile},
        effective,
        layers::{LayerKind, Sources},
        listing::{self, Listed, ListedState},
        load::{layers_of, read_layers},
    },
    event::catalogue,
    trial,
    wire::hint,
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The subscriber
    #[arg(value_name = "ID")]
    id: String,
    /// Write its text as a template, `templates/ID.toon.j2`, instead of its keys
    #[arg(long)]
    text: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let one = configuration.subscriber(&args.id)?;
    let (path, text, next) = if args.text {
        let path = configuration.folder.join(format!("templates/{}.toon.j2", args.id));
        let next = "edit it, then `aside check` and `aside reload`; it replaces the text of the subscriber";
        (path, configuration.text(&args.id)?, next)
    } else {
        refuse_own(&one)?;
        let path = configuration.folder.join(format!("subscribers/{}.toml", args.id));
        let next = "remove the `#` of the keys to change, then `aside check` and `aside reload`";
        (path, inheriting(&one), next)
    };
    write_new(&path, &text)?;
    context.print(&format!("wrote {}\nnext: {next}\n", path.display()))
}

/// Writes a file that does not exist yet.
///
/// Errors: it exists, or cannot be written.
fn write_new(path: &Path, text: &str) -> Result<(), CliError> {
    let name = path.display().to_string();
    let wrong = |source: io::Error| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            return CliError::Usage(format!("{name} exists already; edit it, or remove it first"));
        }
        CliError::Write { name: name.clone(), source }
    };
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).map_err(wrong)?;
    }
    let mut file = fs::File::create_new(path).map_err(wrong)?;
    io::Write::write_all(&mut file, text.as_bytes()).map_err(wrong)
}

/// The files of all layers, as they are now.
pub(super) struct Configuration {
    /// The user's folder.
    folder: PathBuf,
    pub(super) sources: Sources,
    /// What they compile to.
    pub(super) compiled: Compiled,
}

impl Configuration {
    pub(super) fn read(context: &Context<'_>) -> Result<Self, CliError> {
        let paths = context.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))?;
        let folder = paths.config.clone();
        let sources = read_layers(&layers_of(&folder));
        let compiled = compile(&sources, &[]);
        Ok(Self { folder, sources, compiled })
    }

    /// The subscriber with this id.
    ///
    /// Errors: there is none.
    pub(super) fn subscriber(&self, id: &str) -> Result<Listed, CliError> {
        let mut all = listing::subscribers(&self.sources, &self.compiled);
        if let Some(index) = all.iter().position(|one| one.id == id) {
            return Ok(all.swap_remove(index));
        }
        let ids: Vec<&str> = all.iter().map(|one| one.id.as_str()).collect();
        Err(CliError::Usage(format!("unknown subscriber `{id}`; {}", hint(id, &ids))))
    }

    /// A line about errors in the files; empty if there are none.
    pub(super) fn note(&self) -> String {
        match self.compiled.report.error_count() {
            0 => String::new(),
            errors => format!("files with errors are left out: {errors} found by `aside check`\n"),
        }
    }

    fn text(&self, id: &str) -> Result<String, CliError> {
        let shipped: Vec<_> = catalogue::types().collect();
        let entries: Vec<_> = shipped.into_iter().chain(&self.compiled.events).collect();
        let text = trial::text_as_template(&self.sources, &self.compiled, &entries, id);
        text.map_err(|why| CliError::Usage(format!("`{id}` has no text to edit: {why}")))
    }
}

/// Refuses what has no earlier layer to inherit from, and a second file of the user's layer.
fn refuse_own(one: &Listed) -> Result<(), CliError> {
    if one.state == ListedState::Remainder {
        let id = one.id.split('@').next().unwrap_or_default();
        let message = format!("`{}` is what later files leave to an earlier one; edit `{id}`", one.id);
        return Err(CliError::Usage(message));
    }
    match one.files.iter().find(|file| file.layer == LayerKind::User) {
        Some(file) => {
            Err(CliError::Usage(format!("`{}` is in {} already; edit that file", one.id, file.path)))
        }
        None => Ok(()),
    }
}

/// A file that inherits everything, with the keys in force as comments.
fn inheriting(one: &Listed) -> String {
    let files: Vec<_> = one.files.iter().map(|file| &*file.path).collect();
    let mut text = format!(
        "# Changes `{id}` of {files}.\n# A key named here replaces that one; all others stay.\n\n[subscriber]\nid = \
         \"{id}\"\ninherit = true\n",
        id = one.id,
        files = files.join(", "),
    );
    let mut section = "subscriber";
    for key in &effective::keys(&one.files) {
        let (own, name) = key.key.split_once('.').unwrap_or_default();
        if ["id", "inherit", "core"].contains(&name) || (own, name) == ("subscriber", "version") {
            continue;
        }
        if own != section {
            section = own;
            let _ = write!(text, "\n[{section}]\n");
        }
        for line in format!("{name} = {}", key.value).lines() {
            let _ = writeln!(text, "{}", format!("# {line}").trim_end());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::{
        cli::tests::run_in,
        client::fake::{FakeDaemon, Scratch},
    };

    fn run(folder: &Scratch, args: &[&str]) -> Result<String, String> {
        run_in(&FakeDaemon::silent(), folder.path(), args)
    }

    fn read(folder: &Scratch, name: &str) -> String {
        fs::read_to_string(folder.path().join(name)).expect("written")
    }

    #[test]
    fn an_edited_subscriber_is_what_it_was() {
        let folder = Scratch::new();
        let before = run(&folder, &["subscribers", "tool_failure", "--json"]).expect("shown");
        let said = run(&folder, &["edit", "tool_failure"]).expect("written");
        assert!(
            said.starts_with("wrote ") && said.contains("subscribers/tool_failure.toml\nnext: "),
            "{said}"
        );
        let text = read(&folder, "subscribers/tool_failure.toml");
        for part in
            ["inherit = true\n", "\n[output]\n# priority = \"high\"\n", "# one = \"\"\"\n# tool_fail: {{"]
        {
            assert!(text.contains(part), "{part}: {text}");
        }
        let path = folder.path().display().to_string();
        let checked = run(&folder, &["check", &path]).expect("valid");
        assert!(checked.starts_with("no errors"), "{checked}");
        let keys = |json: &str| -> Vec<serde_json::Value> {
            let value: serde_json::Value = serde_json::from_str(json).expect("JSON");
            let keys = value["keys"].as_array().cloned().unwrap_or_default();
            keys.into_iter()
                .filter(|key| !key["key"].as_str().unwrap_or("").starts_with("subscriber."))
                .collect()
        };
        let after = run(&folder, &["subscribers", "tool_failure", "--json"]).expect("shown");
        assert_eq!(keys(&after), keys(&before));
        // Every commented key is valid.
        let uncommented: String = text
            .lines()
            .map(|line| line.strip_prefix("# ").unwrap_or(line))
            .skip(3)
            .collect::<Vec<_>>()
            .join("\n");
        fs::write(folder.path().join("subscribers/tool_failure.toml"), uncommented).expect("written");
        let checked = run(&folder, &["check", &path]);
        assert!(checked.as_ref().is_ok_and(|text| text.starts_with("no errors")), "{checked:?}");
    }

    #[test]
    fn an_edit_overwrites_nothing_and_names_the_nearest() {
        let folder = Scratch::new();
        run(&folder, &["edit", "tool_failure"]).expect("written");
        let again = run(&folder, &["edit", "tool_failure"]).expect_err("there");
        assert!(again.contains("`tool_failure` is in ") && again.contains("edit that file"), "{again}");
        fs::create_dir_all(folder.path().join("templates")).expect("a folder");
        fs::write(folder.path().join("templates/reminder.toon.j2"), "mine: {{ count }}\n").expect("written");
        let there = run(&folder, &["edit", "reminder", "--text"]).expect_err("there");
        assert!(there.contains("templates/reminder.toon.j2 exists already"), "{there}");
        assert_eq!(read(&folder, "templates/reminder.toon.j2"), "mine: {{ count }}\n");
        let unknown = run(&folder, &["edit", "tool_failur"]).expect_err("unknown");
        assert!(
            unknown.contains("unknown subscriber `tool_failur`") && unknown.contains("tool_failure"),
            "{unknown}"
        );
        let unknown = run(&folder, &["subscribers", "remindr"]).expect_err("unknown");
        assert!(unknown.contains("reminder"), "{unknown}");
    }

    #[test]
    fn an_edited_text_has_its_origin() {
        let folder = Scratch::new();
        run(&folder, &["edit", "budget_exceeded", "--text"]).expect("written");
        let path = folder.path().display().to_string();
        assert!(run(&folder, &["check", &path]).expect("valid").starts_with("no errors"));
        let page = run(&folder, &["subscribers", "budget_exceeded"]).expect("shown");
        let text = page.split("\n\n").nth(1).expect("the latest layer first");
        assert!(text.starts_with(&format!("from {path}/templates/budget_exceeded.toon.j2\n")), "{page}");
        assert!(text.contains("output.template = \"templates/budget_exceeded.toon.j2\""), "{page}");
        assert!(page.contains("output.priority = \"critical\"") && !page.contains("output.one"), "{page}");
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
            ("timer", ["shipped, user", " off"]),
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
