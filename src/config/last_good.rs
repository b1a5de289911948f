//! Handling of files with errors at the start: the last valid texts of these files are used.
//!
//! A reload with an error changes nothing. A start has no rules in memory, but the files in force
//! are stored next to the journal. Each file that is broken or unreadable is replaced by its last
//! valid text. A file without such a text is left out as a whole, so that no rule and no setting of
//! it is in force without the others. Nothing here reads a file.

use std::sync::Arc;

use engine::sorted::SortedSet;

use crate::config::{
    compile::{Compiled, compile},
    layers::{FileKind, LayerKind, SourceFile, Sources},
    report::Report,
};

/// The files that a start can use.
#[derive(Debug)]
pub struct Usable {
    /// The files: each in its current text or its last valid one.
    pub sources: Sources,
    /// The result of their compilation.
    pub compiled: Compiled,
    /// The findings about the current texts.
    pub report: Report,
    /// The paths of the files of which an earlier text is used.
    pub replaced: Vec<Arc<str>>,
    /// Whether every `aside.toml` is used completely, in its current text or an earlier one.
    /// Otherwise some settings have their defaults, which may differ from the user's choice.
    pub has_all_settings: bool,
}

/// Compiles `sources`, with the texts of `last_good` in place of the files that have errors or
/// could not be read.
///
/// `known_types`: see [`compile`].
pub fn usable(sources: Sources, last_good: Option<&Sources>, known_types: &[&str]) -> Usable {
    let mut compiled = compile(&sources, known_types);
    let report = compiled.report.clone();
    let good = match last_good {
        Some(last_good) if report.error_count() > 0 => good_files(last_good),
        Some(_) | None => Vec::new(),
    };
    // An unreadable folder counts as replaced when any file in it is, so its settings are noted.
    let is_lost = |file: &&SourceFile| sources.unreadable().iter().any(|one| one.path_below(file).is_some());
    let settings = last_good.into_iter().flat_map(|last_good| last_good.of_kind(FileKind::Settings));
    let lost: Vec<LayerKind> = settings.filter(is_lost).map(|file| file.layer).collect();
    let (mut sources, mut replaced) = (sources, Vec::new());
    // An earlier text can make another file unusable, which is then replaced too; each round
    // replaces at least one file.
    loop {
        let next: Vec<SourceFile> =
            good.iter().filter_map(|file| replacement(file, &sources, &compiled)).collect();
        if next.is_empty() {
            break;
        }
        replaced.extend(next.iter().map(|file| Arc::clone(&file.path)));
        sources = sources.replacing(next);
        compiled = compile(&sources, known_types);
    }
    let is_whole = |file: &SourceFile| !compiled.left_out.contains(&file.path);
    let is_of_settings = |name: &str| name.is_empty() || FileKind::of(name) == Some(FileKind::Settings);
    let is_found = |layer: &LayerKind| sources.of_kind(FileKind::Settings).any(|file| file.layer == *layer);
    let has_all_settings = sources.of_kind(FileKind::Settings).all(is_whole)
        && lost.iter().all(is_found)
        && !sources.unreadable().iter().any(|unreadable| is_of_settings(&unreadable.name));
    let half_read = half_read(&sources, &compiled);
    if !half_read.is_empty() {
        sources = sources.without(&half_read);
        compiled = compile(&sources, known_types);
    }
    Usable { sources, compiled, report, replaced, has_all_settings }
}

/// The files with an error and without an earlier text whose other values would be used: those of
/// lists and tables. Subscribers and templates are left out as a whole by their compilation.
fn half_read(sources: &Sources, compiled: &Compiled) -> SortedSet<Arc<str>> {
    let kinds = [FileKind::Settings, FileKind::Events, FileKind::Webhooks];
    let files = kinds.into_iter().flat_map(|kind| sources.of_kind(kind));
    files.map(|file| Arc::clone(&file.path)).filter(|path| compiled.left_out.contains(path)).collect()
}

/// The files that have no error when compiled with the others of `last_good`.
fn good_files(last_good: &Sources) -> Vec<SourceFile> {
    let left_out: SortedSet<Arc<str>> = compile(last_good, &[]).left_out;
    last_good.files().iter().filter(|file| !left_out.contains(&file.path)).cloned().collect()
}

/// `good`, if it has to replace the same file in `sources`.
fn replacement(good: &SourceFile, sources: &Sources, compiled: &Compiled) -> Option<SourceFile> {
    let own = sources.files().iter().find(|file| (file.layer, &file.name) == (good.layer, &good.name));
    if let Some(own) = own {
        let is_other = own.text != good.text && compiled.left_out.contains(&own.path);
        return is_other.then(|| SourceFile { path: Arc::clone(&own.path), ..good.clone() });
    }
    let (unreadable, below) =
        sources.unreadable().iter().find_map(|one| Some((one, one.path_below(good)?)))?;
    let path = match below {
        "" => unreadable.path.to_string(),
        below => format!("{}/{below}", unreadable.path),
    };
    Some(SourceFile { path: path.into(), ..good.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::layers::Unreadable;

    const TEMPLATE: &str = "ci: {{ count }}\n";

    fn file(name: &str, text: &str) -> SourceFile {
        let path = format!("/home/u/.config/aside/{name}").into();
        SourceFile { layer: LayerKind::User, name: name.into(), path, text: text.into() }
    }

    fn subscriber(id: &str, rest: &str) -> String {
        format!("[subscriber]\nid = \"{id}\"\n[events]\ntypes = [\"ci.check.failed\"]\n{rest}")
    }

    /// Files as read from a bundle, with made-up paths.
    fn kept(files: &[(&str, &str)]) -> Sources {
        Sources::shipped().with(
            files.iter().map(|(name, text)| {
                let path = format!("user:{name}").into();
                SourceFile { path, ..file(name, text) }
            }),
            [],
        )
    }

    fn read(files: &[(&str, &str)]) -> Sources {
        Sources::shipped().with(files.iter().map(|(name, text)| file(name, text)), [])
    }

    fn names(usable: &Usable) -> Vec<String> {
        let own = usable.compiled.rules.subscribers.iter().filter(|rule| rule.name.starts_with("own"));
        own.map(|rule| format!("{} {}", rule.id.as_str(), rule.name)).collect()
    }

    #[test]
    fn broken_file_is_replaced_by_last_good_text() {
        let (a, b) = (subscriber("a", ""), subscriber("b", ""));
        let named = |id: &str, name: &str| {
            subscriber(id, "").replace("[events]", &format!("name = \"own {name}\"\n[events]"))
        };
        let good =
            kept(&[("subscribers/a.toml", &named("a", "old")), ("subscribers/b.toml", &named("b", "old"))]);
        let broken = named("a", "new").replace("types", "typs");
        let now = read(&[("subscribers/a.toml", &broken), ("subscribers/b.toml", &named("b", "new"))]);
        let usable = usable(now, Some(&good), &[]);
        assert_eq!(names(&usable), ["a own old", "b own new"]);
        assert_eq!(usable.replaced, ["/home/u/.config/aside/subscribers/a.toml".into()]);
        assert!(usable.report.to_string().contains("did you mean `types`?"), "{}", usable.report);
        assert_eq!((usable.compiled.report.error_count(), usable.has_all_settings), (0, true));

        let never_good = super::usable(
            read(&[("subscribers/a.toml", "[subscriber]\n"), ("subscribers/b.toml", &b)]),
            Some(&kept(&[("subscribers/a.toml", "x = \n")])),
            &[],
        );
        assert_eq!((never_good.replaced.len(), never_good.report.error_count() > 0), (0, true));
        let gone = super::usable(
            read(&[("subscribers/b.toml", &b)]),
            Some(&kept(&[("subscribers/a.toml", &a)])),
            &[],
        );
        assert!(gone.compiled.rules.subscribers.iter().all(|rule| rule.id.as_str() != "a"), "it was deleted");
    }

    #[test]
    fn subscriber_of_broken_template_keeps_last_good_template() {
        let with = |template: &str| subscriber("a", &format!("[output]\ntemplate = \"{template}\"\n"));
        let good = kept(&[("subscribers/a.toml", &with("a")), ("templates/a.toon.j2", TEMPLATE)]);
        let template_of = |usable: &Usable| {
            let rule = usable.compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == "a");
            rule.and_then(|rule| rule.output.layout.template().map(str::to_owned))
        };
        let edited = read(&[("subscribers/a.toml", &with("a")), ("templates/a.toon.j2", "{% if %}")]);
        let edited = usable(edited, Some(&good), &[]);
        assert_eq!((template_of(&edited).as_deref(), edited.replaced.len()), (Some("a.toon.j2"), 1));
        let (to, other) = (with("other"), ("templates/other.toon.j2", "{% if %}"));
        let renamed = read(&[("subscribers/a.toml", &to), ("templates/a.toon.j2", TEMPLATE), other]);
        let renamed = usable(renamed, Some(&good), &[]);
        assert_eq!((template_of(&renamed).as_deref(), renamed.replaced.len()), (Some("a.toon.j2"), 1));
    }

    #[test]
    fn unreadable_files_use_their_last_good_text() {
        let good = kept(&[
            ("aside.toml", "[journal]\nretain_age = \"off\"\n"),
            ("subscribers/a.toml", &subscriber("a", "")),
        ]);
        for name in ["", "aside.toml", "subscribers", "subscribers/a.toml"] {
            let path = format!("/home/u/.config/aside/{name}").trim_end_matches('/').into();
            let unreadable = Unreadable {
                layer: LayerKind::User,
                name: name.into(),
                path,
                why: "no".to_owned(),
                bad_byte: None,
            };
            let usable = usable(Sources::shipped().with([], [unreadable.clone()]), Some(&good), &[]);
            let replaced: Vec<&str> =
                usable.replaced.iter().map(|path| &path["/home/u/.config/aside/".len()..]).collect();
            let expected: &[&str] = match name {
                "" => &["aside.toml", "subscribers/a.toml"],
                "aside.toml" => &["aside.toml"],
                _ => &["subscribers/a.toml"],
            };
            assert_eq!((replaced.as_slice(), usable.has_all_settings), (expected, true), "{name}");

            let without = super::usable(Sources::shipped().with([], [unreadable]), None, &[]);
            assert_eq!(without.has_all_settings, name.starts_with("subscribers"), "{name}");
        }
    }

    #[test]
    fn never_good_settings_of_missing_folder_are_incomplete() {
        for (text, has_all_settings) in [("x =", false), ("[journal]\nretain_age = \"off\"\n", true)] {
            let good = kept(&[("aside.toml", text), ("subscribers/a.toml", &subscriber("a", ""))]);
            let (name, path, why) = ("".into(), "/home/u/.config/aside".into(), "no".to_owned());
            let missing = Unreadable { layer: LayerKind::User, name, path, why, bad_byte: None };
            let usable = usable(Sources::shipped().with([], [missing]), Some(&good), &[]);
            let is_found = usable.replaced.contains(&"/home/u/.config/aside/subscribers/a.toml".into());
            assert_eq!((is_found, usable.has_all_settings), (true, has_all_settings), "{text}");
        }
    }

    #[test]
    fn never_good_settings_are_incomplete() {
        for text in ["retain_age = ", "[journal]\nretain_age = 5\n"] {
            let now = || read(&[("aside.toml", text)]);
            assert!(!usable(now(), None, &[]).has_all_settings, "{text}");
            assert!(!usable(now(), Some(&kept(&[("aside.toml", "x =")])), &[]).has_all_settings, "{text}");
            let good = kept(&[("aside.toml", "[journal]\nretain_age = \"off\"\n")]);
            let usable = usable(now(), Some(&good), &[]);
            assert_eq!((usable.has_all_settings, usable.compiled.daemon.journal.retain_age), (true, None));
        }
    }

    #[test]
    fn never_good_files_are_left_out_whole() {
        let gap = "[sources.time]\ngap = \"1m\"\n";
        let event = "[[event]]\ntype = \"test.one.made\"\nseverity = \"error\"\n";
        let webhook = "[[webhook]]\nsource = \"github\"\n";
        let shipped = usable(read(&[]), None, &[]).compiled;
        for (name, text) in [
            ("aside.toml", format!("{gap}[injection]\nmax_tokens = \"many\"\n")),
            ("events.toml", format!("{event}description = \"d\"\n{event}color = 1\n")),
            ("webhooks.toml", format!("{webhook}{webhook}color = 1\n")),
        ] {
            let usable =
                usable(read(&[(name, &text), ("subscribers/a.toml", &subscriber("a", ""))]), None, &[]);
            let left = &usable.compiled;
            assert!(usable.report.error_count() > 0, "{name}: {}", usable.report);
            assert_eq!(left.outside, shipped.outside, "{name}");
            assert_eq!(left.rules.probes, shipped.rules.probes, "{name}");
            assert_eq!(left.events.len(), shipped.events.len(), "{name}");
            assert!(left.webhooks.own_rows.is_empty(), "{name}");
            assert!(left.rules.subscribers.iter().any(|rule| rule.id.as_str() == "a"), "{name}");
            let is_it = |file: &SourceFile| file.layer == LayerKind::User && &*file.name == name;
            assert!(!usable.sources.files().iter().any(is_it), "{name}");
        }
    }
}
