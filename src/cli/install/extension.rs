//! The files of an extension in a folder of the client: written, compared and removed as one.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::{
    InstallError, Outcome,
    plan::{holds_file, read},
    templates::{Files, is_manifest, parsed},
};
use crate::harness::{installation::ExtensionFolder, kind::ApiExtension};

/// An installed extension that calls the API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// It is not there.
    Missing,
    /// Its folder has the files that this program would write.
    Current(PathBuf),
    /// This program would write this file otherwise.
    Outdated(PathBuf),
}

/// The files of an extension that calls the API; it finds the daemon by its environment.
fn files(own: &ApiExtension) -> Files {
    own.folder.written(parsed)
}

/// Installs an extension that calls the API in the client's folder `home`.
pub(super) fn install(outcome: &mut Outcome, home: &Path, own: &ApiExtension) -> Result<(), InstallError> {
    write(outcome, &home.join(own.folder.path), &own.folder, files(own))
}

/// Compares the extension in the client's folder `home` with the one that this program would write.
pub(crate) fn state(home: &Path, own: &ApiExtension) -> Result<State, InstallError> {
    let folder = home.join(own.folder.path);
    if read(&folder.join(own.folder.manifest))?.is_none() {
        return Ok(State::Missing);
    }
    let outdated = outdated(&folder, files(own))?;
    Ok(outdated.map_or(State::Current(folder), State::Outdated))
}

/// Writes the files of an extension into `folder`, which nobody else may use.
pub(super) fn write(
    outcome: &mut Outcome,
    folder: &Path,
    extension: &ExtensionFolder,
    files: Files,
) -> Result<(), InstallError> {
    refuse_foreign(folder, &folder.join(extension.manifest))?;
    for (name, text) in files {
        outcome.plan.write(folder.join(name), text)?;
    }
    Ok(())
}

/// Removes the extension from the client's folder `home`, file by file: other files there stay.
pub(super) fn remove(
    outcome: &mut Outcome,
    home: &Path,
    extension: &ExtensionFolder,
) -> Result<(), InstallError> {
    let folder = home.join(extension.path);
    if !read(&folder.join(extension.manifest))?.as_deref().is_some_and(is_manifest) {
        return Ok(());
    }
    for (name, _) in extension.files {
        let path = folder.join(name);
        let folders = path.parent().zip(folder.parent());
        outcome.emptied.extend(folders.map(|(parent, top)| (parent.to_owned(), top.to_owned())));
        outcome.plan.remove(path)?;
    }
    Ok(())
}

/// Refuses to write to `place` if it has more than empty folders, unless `manifest`, in it or equal
/// to it, identifies it as aside's.
pub(super) fn refuse_foreign(place: &Path, manifest: &Path) -> Result<(), InstallError> {
    if holds_file(place) && !read(manifest)?.as_deref().is_some_and(is_manifest) {
        return Err(InstallError::Foreign { path: place.to_owned() });
    }
    Ok(())
}

/// The first file in `folder` that this program would write otherwise, besides its version.
pub(crate) fn outdated(folder: &Path, files: Files) -> Result<Option<PathBuf>, InstallError> {
    for (name, ours) in files {
        let path = folder.join(name);
        if !is_same_text(&ours, &read(&path)?.unwrap_or_default()) {
            return Ok(Some(path));
        }
    }
    Ok(None)
}

/// Whether two files of an extension are equal, as JSON where they are, but for the version.
fn is_same_text(one: &str, other: &str) -> bool {
    let value = |text: &str| {
        let mut value: Option<Value> = serde_json::from_str(text).ok();
        if let Some(Value::Object(fields)) = &mut value {
            fields.remove("version");
        }
        value
    };
    one == other || value(one).is_some_and(|one| Some(one) == value(other))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::harness::trial::{CODE, OWN};

    /// The files below `folder`, by their paths.
    fn listing(folder: &Path) -> Vec<(PathBuf, String)> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path());
        let mut found: Vec<_> = entries
            .flat_map(|path| match path.is_dir() {
                true => std::iter::once((path.clone(), String::new())).chain(listing(&path)).collect(),
                false => vec![(path.clone(), fs::read_to_string(&path).expect("text"))],
            })
            .collect();
        found.sort();
        found
    }

    fn planned(home: &Path) -> Outcome {
        let mut outcome = Outcome::default();
        install(&mut outcome, home, &OWN).expect("planned");
        outcome
    }

    #[test]
    fn removing_an_extension_restores_the_folder() {
        let home = tempfile::tempdir().expect("a folder");
        let (home, folder) = (home.path(), home.path().join("extensions/aside"));
        fs::create_dir(home.join("extensions")).expect("a folder");
        fs::write(home.join("extensions/other.ts"), "theirs").expect("written");
        let before = listing(home);

        let outcome = planned(home);
        let diff = outcome.plan.diff();
        assert!(
            diff.contains("+++ ") && diff.contains("package.json") && diff.contains(CODE.trim_end()),
            "{diff}"
        );
        assert_eq!((listing(home), state(home, &OWN).expect("read")), (before.clone(), State::Missing));

        outcome.carry_out().expect("written");
        assert_eq!(state(home, &OWN).expect("read"), State::Current(folder.clone()));
        assert!(planned(home).plan.is_empty());
        let manifest = fs::read_to_string(folder.join("package.json")).expect("written");
        assert!(manifest.contains("\"version\""), "{manifest}");

        let code = folder.join("index.ts");
        fs::write(&code, "older").expect("written");
        assert_eq!(state(home, &OWN).expect("read"), State::Outdated(code.clone()));
        planned(home).carry_out().expect("written");
        assert_eq!(fs::read_to_string(&code).expect("written"), CODE);

        let mut outcome = Outcome::default();
        remove(&mut outcome, home, &OWN.folder).expect("planned");
        outcome.carry_out().expect("removed");
        assert_eq!(listing(home), before);
    }

    #[test]
    fn extension_of_others_stays() {
        let home = tempfile::tempdir().expect("a folder");
        let manifest = home.path().join("extensions/aside/package.json");
        fs::create_dir_all(manifest.parent().expect("below")).expect("a folder");
        fs::write(&manifest, r#"{ "name": "another" }"#).expect("written");
        let before = listing(home.path());
        let error = install(&mut Outcome::default(), home.path(), &OWN).expect_err("it is foreign");
        assert!(matches!(error, InstallError::Foreign { .. }), "{error}");
        let mut outcome = Outcome::default();
        remove(&mut outcome, home.path(), &OWN.folder).expect("planned");
        assert!(outcome.plan.is_empty());
        assert_eq!(listing(home.path()), before);
    }
}
