//! `aside edit ID KEY=VALUE..`: a file of the user's layer with only these keys. It is compiled with
//! all layers before it is written.

use std::fmt::Write as _;

use engine::{nearest::nearest, words::counted};

use crate::{
    cli::{
        CliError, Context,
        check::compiled_of,
        configuration::Configuration,
        files::{refuse_existing, write_new},
    },
    config::{
        effective::written,
        keys,
        layers::{LayerKind, SourceFile},
        listing::{self, Listed},
        report::{Diagnostic, Report, shown},
    },
};

/// Keys that define which subscriber a file changes.
const FIXED: [&str; 2] = ["subscriber.id", "subscriber.inherit"];

/// A key with its new value.
struct Setting {
    section: String,
    name: String,
    /// As TOML.
    value: String,
}

/// Writes `subscribers/ID.toml` with `heading` and the keys in `arguments`, unless it would have an
/// error.
pub(super) fn edit(
    one: &Listed,
    heading: String,
    arguments: &[String],
    configuration: &Configuration,
    context: &mut Context<'_>,
) -> Result<(), CliError> {
    let settings = settings(arguments).map_err(CliError::Usage)?;
    let name = format!("subscribers/{}.toml", one.id);
    let path = configuration.folder.join(&name);
    refuse_existing(&path)?;
    let text = with_keys(heading, &settings);
    let shown_path = path.display().to_string();
    let file = SourceFile {
        layer: LayerKind::User,
        name: name.into(),
        path: shown_path.as_str().into(),
        text: text.as_str().into(),
    };
    let before = compiled_of(&configuration.sources);
    let sources = configuration.sources.clone().replacing(vec![file]);
    let after = compiled_of(&sources);
    let report = added(after.report.clone(), &before.report);
    let (errors, warnings) = (report.error_count(), report.warning_count());
    if errors > 0 {
        let report = report.only_errors();
        context.say(&format!("{report}\n{}; nothing is written\n", counted(errors, "error")))?;
        return Err(CliError::Check { errors });
    }
    if warnings > 0 {
        context.say(&format!("{report}\n"))?;
    }
    let all = listing::subscribers(&sources, &after);
    let own = all.iter().find(|listed| listed.id == one.id);
    let keys = own.map_or(&[][..], |listed| &listed.keys);
    let inherited = keys.iter().filter(|key| *key.place.file != *shown_path && !is_fixed(&key.key)).count();
    write_new(&path, &text)?;
    let inherits = counted(inherited, "key");
    context.say(&format!("wrote {shown_path}   inherits {inherits}\nnext: aside subscribers {}\n", one.id))
}

/// The findings that the files did not have before.
fn added(after: Report, before: &Report) -> Report {
    let is_old = |one: &Diagnostic| {
        let is_same =
            |old: &Diagnostic| (&old.place, &old.key, &old.message) == (&one.place, &one.key, &one.message);
        before.diagnostics().iter().any(is_same)
    };
    Report::new(after.into_all().into_iter().filter(|one| !is_old(one)).collect())
}

fn is_fixed(key: &str) -> bool {
    FIXED.contains(&key)
}

/// The settings in the order of the sections.
///
/// Errors: an argument without `=`, an unknown or ambiguous key, or a key that is named twice.
fn settings(arguments: &[String]) -> Result<Vec<Setting>, String> {
    let tables = keys::subscriber();
    let in_table = |table: &keys::FileTable| {
        table.keys.iter().map(|key| (table.name.clone(), key.name.to_owned())).collect::<Vec<_>>()
    };
    let mut known: Vec<_> = tables.iter().flat_map(in_table).collect();
    known.retain(|(section, name)| !is_fixed(&format!("{section}.{name}")));
    let mut settings: Vec<(usize, Setting)> = Vec::new();
    for argument in arguments {
        let Some((key, value)) = argument.split_once('=') else {
            return Err(format!("`{}` has no value: write KEY=VALUE", shown(argument)));
        };
        let index = key_index(key.trim(), &known)?;
        if settings.iter().any(|(other, _)| *other == index) {
            return Err(format!("`{}` is named twice", shown(key)));
        }
        let (section, name) = known.get(index).cloned().expect("the index of a known key");
        settings.push((index, Setting { section, name, value: written(value) }));
    }
    settings.sort_by_key(|(index, _)| *index);
    Ok(settings.into_iter().map(|(_, setting)| setting).collect())
}

/// The index of a key, which is named with its section or belongs to one section only.
fn key_index(key: &str, known: &[(String, String)]) -> Result<usize, String> {
    let is_meant = |(section, name): &(String, String)| name == key || format!("{section}.{name}") == key;
    let meant: Vec<(usize, &(String, String))> =
        known.iter().enumerate().filter(|(_, one)| is_meant(one)).collect();
    match meant.as_slice() {
        [(index, _)] => Ok(*index),
        [] => {
            let names = known.iter().map(|(section, name)| match key.contains('.') {
                true => format!("{section}.{name}"),
                false => name.clone(),
            });
            let names: Vec<String> = names.collect();
            let homes = known.iter().filter(|(_, name)| key.rsplit('.').next() == Some(name));
            let homes: Vec<String> = homes.map(|(section, name)| format!("`{section}.{name}`")).collect();
            let hint = match (homes.as_slice(), nearest(key, names.iter().map(String::as_str))) {
                ([], Some(near)) => format!("did you mean `{near}`?"),
                ([], None) => "`aside reference keys` lists them".to_owned(),
                (homes, _) => format!("use {}", homes.join(" or ")),
            };
            Err(format!("unknown key `{}`; {hint}", shown(key)))
        }
        several => {
            let of_section =
                |(_, (section, name)): &(usize, &(String, String))| format!("`{section}.{name}`");
            let homes: Vec<String> = several.iter().map(of_section).collect();
            Err(format!("`{}` is a key of several sections; use {}", shown(key), homes.join(" or ")))
        }
    }
}

/// The file: `inherit = true`, and the keys.
fn with_keys(heading: String, settings: &[Setting]) -> String {
    let mut text = heading;
    let mut current = "subscriber";
    for Setting { section, name, value } in settings {
        if section != current {
            current = section;
            let _ = write!(text, "\n[{section}]\n");
        }
        let _ = writeln!(text, "{name} = {value}");
    }
    text
}
