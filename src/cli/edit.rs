//! `aside edit`, without a daemon: the smallest file in the layer of the user that changes a subscriber of
//! an earlier layer. A text is proven before it is written: it gives the same bytes. Keys with values
//! are compiled before they are written.

mod keys;

use std::fmt::Write as _;

use engine::{event::catalogue, words::counted};
use similar::{ChangeTag, TextDiff};

use super::{
    CliError, Context,
    check::compiled_of,
    configuration::Configuration,
    files::{refuse_existing, write_new},
    terminal::Tone,
};
use crate::config::{
    effective::{self, KeyInForce},
    layers::{FileKind, LayerKind, SourceFile, Sources},
    listing::{Listed, ListedState},
    load::{layers_of, read_layers_over},
    trial::{
        self,
        proof::{Different, Proven, same_bytes},
    },
};

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// The subscriber
    #[arg(value_name = "ID")]
    id: String,
    /// Keys with their new values; the file has only these: priority=normal `batching.window_ms=500`
    #[arg(value_name = "KEY=VALUE", conflicts_with = "text")]
    settings: Vec<String>,
    /// Write its text as a template, `templates/ID.toon.j2`, instead of its keys
    #[arg(long)]
    text: bool,
}

pub(super) fn run(args: &Args, context: &mut Context<'_>) -> Result<(), CliError> {
    let configuration = Configuration::read(context)?;
    let one = configuration.subscriber(&args.id)?;
    refuse_remainder(&one)?;
    if args.text {
        refuse_own_text(&one)?;
        return edit_text(&args.id, &configuration, context);
    }
    refuse_own(&args.id, &configuration)?;
    if !args.settings.is_empty() {
        return keys::edit(&one, heading(&one), &args.settings, &configuration, context);
    }
    let path = configuration.folder.join(format!("subscribers/{}.toml", args.id));
    let next = "remove the `#` of the keys to change, then `aside check` and `aside reload`";
    write_new(&path, &inheriting(&one))?;
    context.say(&format!("wrote {}\nnext: {next}\n", path.display()))
}

/// Writes the text of a subscriber as a template, after the proof that it gives the same bytes.
fn edit_text(id: &str, configuration: &Configuration, context: &mut Context<'_>) -> Result<(), CliError> {
    let name = format!("templates/{id}.toon.j2");
    let path = configuration.folder.join(&name);
    refuse_existing(&path)?;
    let sources = read_layers_over(Sources::shipped_with_tests(), &layers_of(&configuration.folder));
    let before = compiled_of(&sources);
    let shipped: Vec<_> = catalogue::types().collect();
    let entries: Vec<_> = shipped.into_iter().chain(&before.events).collect();
    let text = trial::text_as_template(&sources, &before, &entries, id)
        .map_err(|why| CliError::Usage(format!("`{id}` has no text to edit: {why}")))?;
    let file = SourceFile {
        layer: LayerKind::User,
        name: name.into(),
        path: path.display().to_string().into(),
        text: text.as_str().into(),
    };
    let after = compiled_of(&sources.replacing(vec![file]));
    match same_bytes(&before, &after, id) {
        Ok(Proven { examples, tests }) => {
            write_new(&path, &text)?;
            let (examples, tests) = (counted(examples, "example"), counted(tests, "test"));
            context.say(&format!(
                "wrote {}\nthe text in force as Jinja: same bytes as before for {examples} and {tests}\n\
                 next: edit it, then `aside preview {id}` and `aside reload`\n",
                path.display()
            ))
        }
        Err(different) => {
            let shown = difference(&different, context);
            context.print(&shown)?;
            let what = &different.what;
            Err(CliError::Usage(format!(
                "no template writes the text of `{id}`: {what} differs; nothing is written"
            )))
        }
    }
}

/// The lines that differ.
fn difference(different: &Different, context: &Context<'_>) -> String {
    let mut text = String::new();
    for change in TextDiff::from_lines(&different.before, &different.after).iter_all_changes() {
        let (mark, tone) = match change.tag() {
            ChangeTag::Delete => ('-', Tone::Bad),
            ChangeTag::Insert => ('+', Tone::Good),
            ChangeTag::Equal => (' ', Tone::Plain),
        };
        let line = format!("{mark} {}", change.value().trim_end_matches('\n'));
        let _ = writeln!(text, "{}", context.terminal.paint(tone, &context.terminal.cut_after(0, &line)));
    }
    text
}

/// Refuses a second file of the user's layer, also if the first one has errors.
fn refuse_own(id: &str, configuration: &Configuration) -> Result<(), CliError> {
    let is_of_id = |file: &&SourceFile| {
        let keys = effective::keys(std::slice::from_ref(file));
        let own = keys.iter().find(|key| key.key == "subscriber.id").and_then(effective::text);
        file.layer == LayerKind::User && own.as_deref() == Some(id)
    };
    match configuration.sources.of_kind(FileKind::Subscriber).find(is_of_id) {
        Some(file) => Err(CliError::Usage(format!("`{id}` is in {} already; edit that file", file.path))),
        None => Ok(()),
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

/// The beginning of a file that inherits everything.
fn heading(one: &Listed) -> String {
    let files: Vec<_> = one.files.iter().map(|file| &*file.path).collect();
    format!(
        "# Changes `{id}` of {files}.\n# A key named here replaces that one; all others stay.\n\n[subscriber]\nid = \
         \"{id}\"\ninherit = true\n",
        id = one.id,
        files = files.join(", "),
    )
}

/// A file that inherits everything, with the keys in force as comments.
fn inheriting(one: &Listed) -> String {
    let mut text = heading(one);
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
        run_in(&FakeDaemon::answering_paths(&[]), folder.path(), args)
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
    fn an_edit_of_keys_writes_only_these() {
        let folder = Scratch::new();
        let args =
            ["edit", "tool_failure", "window_ms=500", "priority=normal", "limits.ttl=\"1h\"", "name=a=b"];
        let said = run(&folder, &args).expect("written");
        let path = folder.path().join("subscribers/tool_failure.toml").display().to_string();
        let (wrote, next) = said.split_once('\n').expect("two lines");
        let count = wrote.strip_prefix(&format!("wrote {path}   inherits "));
        assert!(count.is_some_and(|count| count.ends_with(" keys")), "{said}");
        assert_eq!(next, "next: aside subscribers tool_failure\n");
        let text = read(&folder, "subscribers/tool_failure.toml");
        let (_, own) = text.split_once("inherit = true\n").expect("it inherits");
        let expected = "name = \"a=b\"\n\n[batching]\nwindow_ms = 500\n\n[limits]\nttl = \"1h\"\n\n[output]\n\
                        priority = \"normal\"\n";
        assert_eq!(own, expected);
        let page = run(&folder, &["subscribers", "tool_failure"]).expect("shown");
        assert!(page.contains("batching.window_ms = 500") && page.contains("output.core = true"), "{page}");
        let again = run(&folder, &["edit", "tool_failure", "priority=high"]).expect_err("there");
        assert!(again.contains(&format!("`tool_failure` is in {path} already; edit that file")), "{again}");
    }

    #[test]
    fn wrong_keys_and_values_write_nothing() {
        for (setting, part) in [
            ("priorty=normal", "unknown key `priorty`; did you mean `priority`?"),
            ("output.priorty=normal", "unknown key `output.priorty`; did you mean `output.priority`?"),
            ("limits.priority=low", "unknown key `limits.priority`; use `output.priority`"),
            ("id=other", "unknown key `id`"),
            ("equal=payload.x\nfoo=1", "1 error"),
            ("priority", "`priority` has no value: write KEY=VALUE"),
            ("at=10", "`at` is a key of several sections; use `batching.at` or `threshold.at`"),
            ("priority=urgent", "1 error"),
            ("enabled=false", "1 error"),
            ("enabled=", "1 error"),
            ("window_ms=1.5", "1 error"),
        ] {
            let folder = Scratch::new();
            let refused = run(&folder, &["edit", "tool_failure", setting]).expect_err("refused");
            assert!(refused.contains(part), "{setting}: {refused}");
            assert!(!folder.path().join("subscribers").exists(), "{setting}");
        }
        let folder = Scratch::new();
        let twice = run(&folder, &["edit", "tool_failure", "priority=low", "output.priority=high"]);
        assert!(twice.as_ref().is_err_and(|why| why.contains("is named twice")), "{twice:?}");
        fs::create_dir(folder.path().join("subscribers")).expect("a folder");
        fs::write(folder.path().join("subscribers/reminder.toml"), "").expect("written");
        let there = run(&folder, &["edit", "reminder", "priority=low"]).expect_err("there");
        assert!(there.contains("subscribers/reminder.toml exists already"), "{there}");
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
    fn texts_of_every_form_are_proven() {
        let folder = Scratch::new();
        // A template, a table of several, and texts of events that are never together.
        for id in ["background_task", "ci_check", "disk_space", "other_session", "stale_file"] {
            let said = run(&folder, &["edit", id, "--text"]);
            let said = said.unwrap_or_else(|wrong| panic!("{id}: {wrong}"));
            assert!(said.contains("same bytes as before for "), "{id}: {said}");
        }
        let path = folder.path().display().to_string();
        assert!(run(&folder, &["check", &path]).expect("valid").starts_with("no errors"));
    }

    #[test]
    fn an_edited_text_has_its_origin() {
        let folder = Scratch::new();
        let said = run(&folder, &["edit", "budget_exceeded", "--text"]).expect("written");
        let proven = said.lines().find_map(|line| line.split_once("same bytes as before for "));
        let (_, proven) = proven.unwrap_or_else(|| panic!("{said}"));
        assert!(proven.contains(" examples and ") && !proven.contains(" 0 tests"), "{said}");
        let path = folder.path().display().to_string();
        assert!(run(&folder, &["check", &path]).expect("valid").starts_with("no errors"));
        let page = run(&folder, &["subscribers", "budget_exceeded"]).expect("shown");
        assert!(page.contains("  output.template = \"templates/budget_exceeded.toon.j2\"\n"), "{page}");
        assert!(page.contains(" templates/budget_exceeded.toon.j2:1\n"), "{page}");
        assert!(page.contains("output.priority = \"critical\"") && !page.contains("output.one"), "{page}");
    }
}
