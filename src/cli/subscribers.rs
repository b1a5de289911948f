//! `aside subscribers` and `aside edit`, without a daemon: the subscribers in force, or each key of one
//! with the file that it came from; and the smallest file in the layer of the user that changes a
//! subscriber of an earlier layer.

use std::{
    cmp::Reverse,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    process,
};

use engine::{event::catalogue, request::hint};
use serde_json::{Value, json};

use super::{
    CliError, Context,
    table::{Cell, Table},
};
use crate::config::{
    compile::{Compiled, compile},
    effective::{self, KeyInForce},
    layers::{FileKind, LayerKind, SourceFile, Sources},
    listing::{self, Listed, ListedState},
    load::{layers_of, read_layers},
    trial,
};
use crate::daemon::workspace;

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
            Cell::plain(&origin(one)),
            Cell::word(one.state.as_str()),
            Cell::dim(&one.description),
        ]);
    }
    table.text(&context.terminal)
}

/// Its layers, with the folder of a workspace.
fn origin(one: &Listed) -> String {
    let folder = one.folder.as_ref().map(|folder| format!(" ({folder})"));
    layers(one).join(", ") + &folder.unwrap_or_default()
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
        "folder": one.folder,
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
    let only = one.folder.as_ref().map(|folder| format!(", for sessions in {folder}")).unwrap_or_default();
    let mut text = format!("{}: {}{only}\n", one.id, one.state.as_str());
    for file in files {
        let _ = write!(text, "\nfrom {file}\n");
        for key in one.keys.iter().filter(|key| key.place.file == *file) {
            let _ = writeln!(text, "  {} = {}", key.key, key.value.replace('\n', "\n    "));
        }
    }
    text + "\nall other keys have their defaults\n"
}

#[derive(Debug, clap::Args)]
pub(super) struct EditArgs {
    /// The subscriber
    #[arg(value_name = "ID")]
    id: String,
    /// Write its text as a template, `templates/ID.toon.j2`, instead of its keys
    #[arg(long)]
    text: bool,
}

pub(super) fn edit(args: &EditArgs, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let one = configuration.subscriber(&args.id)?;
    refuse_remainder(&one)?;
    let (path, text, next) = if args.text {
        refuse_own_text(&one)?;
        let path = configuration.folder.join(format!("templates/{}.toon.j2", args.id));
        let next = "edit it, then `aside check` and `aside reload`; it replaces the text of the subscriber";
        (path, configuration.text(&args.id)?, next)
    } else {
        configuration.refuse_own(&args.id)?;
        let path = configuration.folder.join(format!("subscribers/{}.toml", args.id));
        let next = "remove the `#` of the keys to change, then `aside check` and `aside reload`";
        (path, inheriting(&one), next)
    };
    write_new(&path, &text)?;
    context.say(&format!("wrote {}\nnext: {next}\n", path.display()))
}

/// Writes a file that does not exist yet, whole or not at all.
///
/// Errors: it exists, or cannot be written.
pub(super) fn write_new(path: &Path, text: &str) -> Result<(), CliError> {
    let name = path.display().to_string();
    let wrong = |source: io::Error| {
        if source.kind() == io::ErrorKind::AlreadyExists {
            return CliError::Usage(format!("{name} exists already; edit it, or remove it first"));
        }
        CliError::Write { name: name.clone(), source }
    };
    let folder = path.parent().unwrap_or(Path::new("."));
    if fs::symlink_metadata(path).is_ok() {
        return Err(wrong(io::ErrorKind::AlreadyExists.into()));
    }
    fs::create_dir_all(folder)
        .map_err(|source| CliError::Write { name: folder.display().to_string(), source })?;
    // The name of a hidden file, which no layer reads.
    let temporary = folder.join(format!(".edit-{}", process::id()));
    let linked = fs::write(&temporary, text).and_then(|()| fs::hard_link(&temporary, path));
    let written = linked.or_else(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            return Err(error);
        }
        // Not every file system has links.
        fs::rename(&temporary, path).map_err(|_| error)
    });
    fs::remove_file(&temporary).ok();
    written.map_err(wrong)
}

/// A line about errors in the files of `compiled`; empty if there are none.
pub(super) fn note_of_errors(compiled: &Compiled) -> String {
    match compiled.report.error_count() {
        0 => String::new(),
        errors => format!("files with errors are left out: {errors} found by `aside check`\n"),
    }
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
        let paths = context.paths()?;
        let folder = paths.config.clone();
        // A list that cannot be read is shown by the daemon, which uses it.
        let trusted = workspace::trust_list(&paths.state).unwrap_or_default();
        let sources = read_layers(&layers_of(&folder)).with_workspaces(workspace::read_trusted(&trusted).0);
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
        note_of_errors(&self.compiled)
    }

    /// Refuses a second file of the user's layer, also if the first one has errors.
    fn refuse_own(&self, id: &str) -> Result<(), CliError> {
        let is_of_id = |file: &&SourceFile| {
            let keys = effective::keys(std::slice::from_ref(file));
            let own = keys.iter().find(|key| key.key == "subscriber.id").and_then(effective::text);
            file.layer == LayerKind::User && own.as_deref() == Some(id)
        };
        match self.sources.of_kind(FileKind::Subscriber).find(is_of_id) {
            Some(file) => Err(CliError::Usage(format!("`{id}` is in {} already; edit that file", file.path))),
            None => Ok(()),
        }
    }

    fn text(&self, id: &str) -> Result<String, CliError> {
        let shipped: Vec<_> = catalogue::types().collect();
        let entries: Vec<_> = shipped.into_iter().chain(&self.compiled.events).collect();
        let text = trial::text_as_template(&self.sources, &self.compiled, &entries, id);
        text.map_err(|why| CliError::Usage(format!("`{id}` has no text to edit: {why}")))
    }
}

/// Refuses the rest of an earlier version, which no file can change, and what a workspace has.
fn refuse_remainder(one: &Listed) -> Result<(), CliError> {
    if let (Some(_), Some(file)) = (&one.folder, one.files.last()) {
        return Err(CliError::Usage(format!("`{}` is in {}; edit that file", one.id, file.path)));
    }
    if one.state != ListedState::Remainder {
        return Ok(());
    }
    let id = one.id.split('@').next().unwrap_or_default();
    let message = format!("`{}` is what later files leave to an earlier one; edit `{id}`", one.id);
    Err(CliError::Usage(message))
}

/// Refuses a text in a file of the user's layer, which goes before a template of the same layer.
fn refuse_own_text(one: &Listed) -> Result<(), CliError> {
    let is_own = |key: &&KeyInForce| {
        let files = one.files.iter().filter(|file| file.layer == LayerKind::User);
        effective::is_text(key) && files.into_iter().any(|file| file.path == key.place.file)
    };
    match one.keys.iter().find(is_own) {
        Some(key) => {
            let (id, file) = (&one.id, &key.place.file);
            let message = format!("`{}` in {file} is the text of `{id}` already; edit that file", key.key);
            Err(CliError::Usage(message))
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
    use crate::cli::tests::run_in;
    use hook::client::fake::{FakeDaemon, Scratch};
    use std::fs;

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
    fn an_edit_that_would_change_nothing_is_refused() {
        let own = |rest: &str| {
            format!("[subscriber]\nid = \"own\"\n[events]\ntypes = [\"tool.call.*\"]\n[output]\n{rest}\n")
        };
        let narrower = "[subscriber]\nid = \"tool_failure\"\n[events]\ntypes = [\"tool.call.failure\"]\n";
        let broken = "[subscriber]\nid = \"tool_failure\"\ninherit = true\n[output]\npriorty = 1\n";
        let table = "table = { key = \"as\", columns = [\"tool_name\"] }";
        for (file, args, part) in [
            (own(table), &["own", "--text"][..], "`output.table` in "),
            (own("one = \"a: 1\"\n") + table, &["own", "--text"], "x.toml is the text of `own` already"),
            (own("template = \"tool_failure\""), &["own", "--text"], "`output.template` in "),
            (own("template = \"generic\""), &["own", "--text"], "`output.template` in "),
            (own(""), &["own", "--text"], "`own` has no text to edit: its text is the generic table"),
            (own(""), &["own"], "`own` is in "),
            (narrower.to_owned(), &["tool_failure@shipped"], "edit `tool_failure`"),
            (narrower.to_owned(), &["tool_failure@shipped", "--text"], "edit `tool_failure`"),
            (broken.to_owned(), &["tool_failure"], "x.toml already; edit that file"),
        ] {
            let folder = Scratch::new();
            fs::create_dir_all(folder.path().join("subscribers")).expect("a folder");
            fs::write(folder.path().join("subscribers/x.toml"), &file).expect("written");
            let refused = run(&folder, &[&["edit"], args].concat()).expect_err("refused");
            assert!(refused.contains(part), "{args:?}: {refused}");
            let count = |name: &str| fs::read_dir(folder.path().join(name)).map_or(0, Iterator::count);
            assert_eq!((count("subscribers"), count("templates")), (1, 0), "{args:?}");
        }
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_named() {
        let folder = Scratch::new();
        fs::write(folder.path().join("templates"), "").expect("written");
        let refused = run(&folder, &["edit", "reminder", "--text"]).expect_err("no folder");
        assert!(refused.starts_with("write ") && refused.contains("/templates"), "{refused}");
        fs::create_dir(folder.path().join("subscribers")).expect("a folder");
        let link = folder.path().join("subscribers/reminder.toml");
        std::os::unix::fs::symlink("nowhere", &link).expect("a link");
        let refused = run(&folder, &["edit", "reminder"]).expect_err("there");
        assert!(refused.contains("subscribers/reminder.toml exists already"), "{refused}");
        fs::remove_file(&link).expect("removed");
        run(&folder, &["edit", "reminder"]).expect("written");
        let left: Vec<_> = fs::read_dir(folder.path().join("subscribers")).expect("read").collect();
        assert_eq!(left.len(), 1, "{left:?}");
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
