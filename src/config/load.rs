//! Reads the folders of the layers; only this part of the configuration accesses files.
//!
//! A missing folder is an empty layer. An unreadable file is data too: it is reported with
//! everything else, and the other files stay usable. Files are read whole, up to
//! [`FILE_BYTES_MAX`]. Links to files are followed; one without a target is an unreadable file, not
//! a missing one. Links to folders inside a layer are not followed, because they can form a circle. The
//! layer of a workspace is read by `daemon/workspace.rs`, since others may have written it.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    string::FromUtf8Error,
};

use engine::nearest::nearest;

use crate::config::layers::{FileKind, LAYER_NAMES, LayerKind, SourceFile, Sources, Unreadable};

/// Largest file of a layer in bytes; far larger than any template that can render within its
/// budget.
pub const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Suffixes of other files that may be in a layer's folder: copies of editors, and notes for
/// people.
const IS_NO_SLIP: [&str; 5] = ["~", ".bak", ".orig", ".md", ".txt"];
/// The layer that an administrator keeps for every user of the machine.
pub const SYSTEM_FOLDER: &str = "/etc/aside";

/// The folders of the layers above the shipped one, for the user whose folder is `user_folder`.
pub fn layers_of(user_folder: &Path) -> [(LayerKind, PathBuf); 2] {
    [(LayerKind::System, SYSTEM_FOLDER.into()), (LayerKind::User, user_folder.into())]
}

/// Reads the shipped layer and those in `folders`.
///
/// Errors: none. Unreadable files are in [`Sources::unreadable`], and therefore in the report of
/// `compile`.
pub fn read_layers(folders: &[(LayerKind, PathBuf)]) -> Sources {
    read_layers_over(Sources::shipped(), folders)
}

/// Reads the layers in `folders` over `sources`, like [`read_layers`].
pub fn read_layers_over(sources: Sources, folders: &[(LayerKind, PathBuf)]) -> Sources {
    folders.iter().fold(sources, |sources, (layer, folder)| {
        let mut found = LayerFiles::new(*layer);
        found.read_file(&folder.join("aside.toml"), "aside.toml");
        found.read_file(&folder.join("events.toml"), "events.toml");
        found.read_file(&folder.join("webhooks.toml"), "webhooks.toml");
        for name in ["subscribers", "templates", "fixtures"] {
            found.read_folder(&folder.join(name), name);
        }
        found.look_for_slips(folder);
        found.add_to(sources)
    })
}

/// Adds the user's folder as unreadable if it is missing but some of its files were used before: a
/// home that is not mounted looks like one without files. A removed system folder stays removed.
pub fn with_missing(sources: Sources, user_folder: &Path, used: &Sources) -> Sources {
    let is_used = used.files().iter().any(|file| file.layer == LayerKind::User);
    let is_missing = fs::metadata(user_folder).is_err_and(|error| error.kind() == io::ErrorKind::NotFound);
    let why = "it is missing, but files of it are in force; create it, empty to remove them";
    let missing = || unreadable(LayerKind::User, user_folder, "", why.to_owned());
    sources.with([], (is_used && is_missing).then(missing))
}

/// Adds one file to `sources`, as `name` of the user's layer.
pub fn with_file(sources: Sources, path: &Path, name: &str) -> Sources {
    let mut found = LayerFiles::new(LayerKind::User);
    found.read_file(path, name);
    found.add_to(sources)
}

struct LayerFiles {
    layer: LayerKind,
    files: Vec<SourceFile>,
    unreadable: Vec<Unreadable>,
    ignored: Vec<Unreadable>,
}

impl LayerFiles {
    fn new(layer: LayerKind) -> Self {
        Self { layer, files: Vec::new(), unreadable: Vec::new(), ignored: Vec::new() }
    }

    fn add_to(self, sources: Sources) -> Sources {
        sources.with(self.files, self.unreadable).with_ignored(self.ignored)
    }

    /// Notes entries at the top of a layer whose name is similar to one of a layer's own.
    fn look_for_slips(&mut self, folder: &Path) {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(name) = name.to_str().filter(|name| !LAYER_NAMES.contains(name)) else { continue };
            let is_copy = IS_NO_SLIP.iter().any(|suffix| name.ends_with(suffix));
            if let Some(meant) = nearest(name, LAYER_NAMES).filter(|_| !is_copy) {
                self.ignore(&entry.path(), name, format!("did you mean `{meant}`?"));
            }
        }
    }

    fn read_folder(&mut self, folder: &Path, name: &str) {
        let entries = match fs::read_dir(folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound && !folder.is_symlink() => return,
            Err(error) => return self.refuse(folder, name, error.to_string()),
        };
        for entry in entries {
            match entry {
                Ok(entry) => self.read_entry(&entry, name),
                Err(error) => self.refuse(folder, name, error.to_string()),
            }
        }
    }

    fn read_entry(&mut self, entry: &fs::DirEntry, folder_name: &str) {
        let path = entry.path();
        let file_name = entry.file_name();
        let Some(file_name) = file_name.to_str() else {
            // `?` matches no stored file: a file with such a name was never read.
            return self.refuse(&path, &format!("{folder_name}/?"), "its name is not UTF-8".to_owned());
        };
        let name = format!("{folder_name}/{file_name}");
        let is_template_folder = folder_name.starts_with("templates");
        let (what, end) = match folder_name {
            "subscribers" => ("a subscriber's file", ".toml"),
            "fixtures" => ("a fixture", ".json"),
            _ => ("a template", ".toon.j2"),
        };
        match (path.is_dir(), is_template_folder) {
            _ if file_name.starts_with('.') => {}
            (false, _) if FileKind::of(&name).is_some() => self.read_file(&path, &name),
            (false, _) if IS_NO_SLIP.iter().any(|suffix| file_name.ends_with(suffix)) => {}
            (false, _) => self.ignore(&path, &name, format!("the name of {what} ends in {end}")),
            (true, false) => {
                let why = format!("{folder_name} are read from the folder itself, not from one in it");
                self.ignore(&path, &name, why);
            }
            (true, true) if path.is_symlink() => {
                self.refuse(&path, &name, "a link to a folder is not followed".to_owned());
            }
            (true, true) => self.read_folder(&path, &name),
        }
    }

    fn read_file(&mut self, path: &Path, name: &str) {
        match read_bytes(path).map(String::from_utf8) {
            Ok(Ok(text)) => self.files.push(SourceFile {
                layer: self.layer,
                name: name.into(),
                path: path.display().to_string().into(),
                text: text.into(),
            }),
            Ok(Err(error)) => self.unreadable.push(Unreadable {
                bad_byte: Some((
                    String::from_utf8_lossy(error.as_bytes()).into(),
                    error.utf8_error().valid_up_to(),
                )),
                ..unreadable(self.layer, path, name, not_utf8(&error))
            }),
            Err(error)
                if error.kind() == io::ErrorKind::NotFound && !name.contains('/') && !path.is_symlink() => {}
            Err(error) => self.refuse(path, name, error.to_string()),
        }
    }

    fn ignore(&mut self, path: &Path, name: &str, why: String) {
        self.ignored.push(unreadable(self.layer, path, name, why));
    }

    fn refuse(&mut self, path: &Path, name: &str, why: String) {
        self.unreadable.push(unreadable(self.layer, path, name, why));
    }
}

fn unreadable(layer: LayerKind, path: &Path, name: &str, why: String) -> Unreadable {
    Unreadable { layer, name: name.into(), path: path.display().to_string().into(), why, bad_byte: None }
}

/// Reads a regular file within the limit; others, such as a pipe, could block.
fn read_bytes(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    let mut bytes = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let message = format!("it is larger than {} KiB", FILE_BYTES_MAX / 1024);
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Why a file that is not UTF-8 cannot be read, with the place of the first byte that is not.
pub(crate) fn not_utf8(error: &FromUtf8Error) -> String {
    let (before, rest) = error.as_bytes().split_at(error.utf8_error().valid_up_to());
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let byte = rest.first().copied().unwrap_or_default();
    format!("line {line} holds the byte {byte:#04x}, which is not UTF-8; save it as UTF-8")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(sources: &Sources) -> Vec<String> {
        let own = sources.files().iter().filter(|file| file.layer == LayerKind::User);
        own.map(|file| file.name.to_string()).collect()
    }

    #[test]
    fn missing_folder_is_an_empty_layer() {
        let folder = tempfile::tempdir().expect("a folder");
        let sources = read_layers(&[(LayerKind::User, folder.path().join("absent"))]);
        assert_eq!(sources, Sources::shipped());
    }

    #[test]
    fn layer_reads_valid_files_and_names_unreadable_ones() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().expect("has a parent")).expect("a folder");
            fs::write(path, bytes).expect("a file");
        };
        write("aside.toml", b"");
        write("subscribers/ci.toml", b"[subscriber]\n");
        write("subscribers/ci.toml~", b"backup");
        write("subscribers/bad.toml", b"name = \"\xff\"");
        write("templates/deep/er/ci.toon.j2", b"ci: 1\n");
        write("templates/big.toon.j2", &vec![b'x'; usize::try_from(FILE_BYTES_MAX).expect("fits") + 1]);
        write("notes.txt", b"");
        write("subscribers/a.tml", b"");
        write("subscribers/x/a.toml", b"");
        write("subscribers/README.md", b"");
        write("templates/ci.jinja", b"");
        write("template/ci.toon.j2", b"");
        write("fixtures/failed.json", b"{}");
        write("fixtures/failed.jsn", b"{}");

        let sources = read_layers(&[(LayerKind::User, folder.path().to_owned())]);
        assert_eq!(
            names(&sources),
            ["aside.toml", "fixtures/failed.json", "subscribers/ci.toml", "templates/deep/er/ci.toon.j2"]
        );
        let mut refused: Vec<_> = sources.unreadable().iter().map(|file| file.why.as_str()).collect();
        refused.sort_unstable();
        let not_utf8 = "line 1 holds the byte 0xff, which is not UTF-8; save it as UTF-8";
        assert_eq!(refused, ["it is larger than 256 KiB", not_utf8]);
        let ignored: Vec<_> = sources.ignored().iter().map(|file| file.why.as_str()).collect();
        assert_eq!(
            ignored,
            [
                "the name of a fixture ends in .json",
                "the name of a subscriber's file ends in .toml",
                "subscribers are read from the folder itself, not from one in it",
                "did you mean `templates`?",
                "the name of a template ends in .toon.j2",
            ]
        );
    }

    #[cfg(unix)]
    #[test]
    fn a_circle_of_links_is_not_followed() {
        let folder = tempfile::tempdir().expect("a folder");
        let templates = folder.path().join("templates");
        fs::create_dir(&templates).expect("a folder");
        std::os::unix::fs::symlink(&templates, templates.join("again")).expect("a link");
        let sources = read_layers(&[(LayerKind::User, folder.path().to_owned())]);
        let refused: Vec<_> = sources.unreadable().iter().map(|file| file.why.as_str()).collect();
        assert_eq!(refused, ["a link to a folder is not followed"]);
    }

    #[cfg(unix)]
    #[test]
    fn dangling_link_is_an_unreadable_file() {
        let folder = tempfile::tempdir().expect("a folder");
        for name in LAYER_NAMES {
            std::os::unix::fs::symlink("not/mounted", folder.path().join(name)).expect("a link");
        }
        let sources = read_layers(&[(LayerKind::User, folder.path().to_owned())]);
        let refused: Vec<_> = sources.unreadable().iter().map(|file| &*file.name).collect();
        assert_eq!(
            refused,
            ["aside.toml", "events.toml", "fixtures", "subscribers", "templates", "webhooks.toml"]
        );
    }
}
