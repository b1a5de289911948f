//! The files of every layer as plain data, and the bundle in which they are kept beside the journal.
//!
//! A layer is a folder with `aside.toml`, `events.toml`, `subscribers/*.toml` and `templates/**/*.j2`. A later layer overrides an earlier
//! one: a subscriber by its id and whole, a template by its name, `aside.toml` key by key. The files of one generation,
//! written as one text, are its bundle; its hash names the generation, and the bundle read again compiles to the same rules.
//! A workspace's own layer is not among them: it needs the user's trust first.
//!
//! The bundle is JSON: `{"version":1,"files":[{"layer":"user","name":"aside.toml","path":"/home/u/...","text":"..."}]}`.

use std::{fmt, sync::Arc};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::config::shipped;

/// The version of the bundle's shape.
const BUNDLE_VERSION: u32 = 1;

/// Whose folder a layer is; ordered, a later one overrides an earlier one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LayerKind {
    /// In the binary.
    Shipped,
    /// The machine's.
    System,
    /// The user's own.
    User,
}

impl fmt::Display for LayerKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Shipped => "shipped",
            Self::System => "system",
            Self::User => "user",
        })
    }
}

/// What a file of a layer holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `aside.toml`.
    Settings,
    /// `events.toml`.
    Events,
    /// `subscribers/*.toml`.
    Subscriber,
    /// `templates/**/*.j2`.
    Template,
}

impl FileKind {
    /// What a file of this name holds; `None` when it is no part of a layer.
    ///
    /// `name` is the path below the layer's folder, with `/` between its parts. Hidden files are no part of a layer:
    /// editors leave such beside the file they have open.
    pub fn of(name: &str) -> Option<Self> {
        let is_hidden = name.split('/').any(|part| part.starts_with('.'));
        match name.split_once('/') {
            _ if is_hidden => None,
            None => match name {
                "aside.toml" => Some(Self::Settings),
                "events.toml" => Some(Self::Events),
                _ => None,
            },
            Some(("subscribers", file)) => {
                (file.ends_with(".toml") && !file.contains('/')).then_some(Self::Subscriber)
            }
            Some(("templates", file)) => file.ends_with(".j2").then_some(Self::Template),
            Some(_) => None,
        }
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceFile {
    /// The layer it is in.
    pub layer: LayerKind,
    /// Its path below the layer's folder, with `/` between its parts.
    pub name: Arc<str>,
    /// Its path as it is shown.
    pub path: Arc<str>,
    /// What it says.
    pub text: Arc<str>,
}

/// A file that is there and has no part in the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its path as it is shown.
    pub path: Arc<str>,
    /// Why, as a lowercase fragment.
    pub why: String,
}

/// The files of one generation of the configuration.
///
/// Shape: sorted by layer, then by name, unreadable ones by path; only files that [`FileKind::of`] knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    unreadable: Vec<Unreadable>,
    ignored: Vec<Unreadable>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Bundle {
    version: u32,
    files: Vec<SourceFile>,
}

/// Why a text is no bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// Not what [`Sources::to_bundle`] writes.
    #[error("read the bundle of rules")]
    Shape(#[from] serde_json::Error),
    /// Written by another version of the program.
    #[error("bundle of rules has version {found}, this program reads {BUNDLE_VERSION}")]
    Version {
        /// The version it says.
        found: u32,
    },
}

impl Sources {
    /// Takes files in any order and leaves out those that are no part of a layer.
    pub fn new(files: impl IntoIterator<Item = SourceFile>) -> Self {
        let mut files: Vec<_> = files.into_iter().filter(|file| FileKind::of(&file.name).is_some()).collect();
        files.sort_by(|a, b| (a.layer, &a.name).cmp(&(b.layer, &b.name)));
        Self { files, ..Self::default() }
    }

    /// The layer in the binary.
    pub fn shipped() -> Self {
        Self::new(shipped::FILES.iter().map(|(name, text)| SourceFile {
            layer: LayerKind::Shipped,
            name: (*name).into(),
            path: format!("shipped:{name}").into(),
            text: (*text).into(),
        }))
    }

    /// These files and those; `unreadable` ones are reported when the whole is compiled.
    #[must_use]
    pub fn with(
        self,
        files: impl IntoIterator<Item = SourceFile>,
        unreadable: impl IntoIterator<Item = Unreadable>,
    ) -> Self {
        let all = Self::new(self.files.into_iter().chain(files));
        let mut unreadable: Vec<_> = self.unreadable.into_iter().chain(unreadable).collect();
        unreadable.sort_by(|a, b| a.path.cmp(&b.path));
        Self { unreadable, ignored: self.ignored, ..all }
    }

    /// These files; `ignored` ones lie where a layer's files are looked for and are of no kind that is read.
    #[must_use]
    pub fn with_ignored(mut self, ignored: impl IntoIterator<Item = Unreadable>) -> Self {
        self.ignored.extend(ignored);
        self.ignored.sort_by(|a, b| a.path.cmp(&b.path));
        self
    }

    /// Every file, sorted by layer, then by name.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Every file that could not be read.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Every file that is of no kind that is read.
    pub fn ignored(&self) -> &[Unreadable] {
        &self.ignored
    }

    /// The files of one kind, in the order of the layers.
    pub(crate) fn of_kind(&self, kind: FileKind) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| FileKind::of(&file.name) == Some(kind))
    }

    /// All files as one text. Files that could not be read have no part in the rules, and none in the bundle.
    pub fn to_bundle(&self) -> String {
        let bundle = Bundle { version: BUNDLE_VERSION, files: self.files.clone() };
        serde_json::to_string(&bundle).expect("strings and numbers are JSON")
    }

    /// Reads what [`Sources::to_bundle`] wrote.
    ///
    /// Errors: the text is damaged, or another version's.
    pub fn from_bundle(text: &str) -> Result<Self, BundleError> {
        let bundle: Bundle = serde_json::from_str(text)?;
        if bundle.version != BUNDLE_VERSION {
            return Err(BundleError::Version { found: bundle.version });
        }
        Ok(Self::new(bundle.files))
    }

    /// Names the content: lower-case hex of the SHA-256 of the bundle.
    pub fn hash(&self) -> String {
        use fmt::Write as _;
        let digest = Sha256::digest(self.to_bundle());
        digest.iter().fold(String::with_capacity(64), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(layer: LayerKind, name: &str) -> SourceFile {
        SourceFile {
            layer,
            name: name.into(),
            path: format!("{layer}/{name}").into(),
            text: "x = 1\n".into(),
        }
    }

    #[test]
    fn only_what_a_layer_holds_is_a_part_of_it() {
        for (name, kind) in [
            ("aside.toml", Some(FileKind::Settings)),
            ("subscribers/ci.toml", Some(FileKind::Subscriber)),
            ("subscribers/ci.toml~", None),
            ("subscribers/.#ci.toml", None),
            ("subscribers/old/ci.toml", None),
            ("templates/.git/ci.toon.j2", None),
            ("templates/ci.toon.j2", Some(FileKind::Template)),
            ("templates/formats/xml.j2", Some(FileKind::Template)),
            ("templates/README.md", None),
            ("other.toml", None),
        ] {
            assert_eq!(FileKind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn files_stand_in_the_order_of_their_layers() {
        let sources = Sources::new([
            file(LayerKind::User, "aside.toml"),
            file(LayerKind::Shipped, "templates/a.toon.j2"),
            file(LayerKind::Shipped, "aside.toml"),
        ]);
        let paths: Vec<_> = sources.files().iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["shipped/aside.toml", "shipped/templates/a.toon.j2", "user/aside.toml"]);
    }

    #[test]
    fn a_bundle_reads_back_to_the_same_files_and_the_same_hash() {
        let sources =
            Sources::new([file(LayerKind::User, "aside.toml"), file(LayerKind::System, "aside.toml")]);
        let again = Sources::from_bundle(&sources.to_bundle()).expect("a bundle");
        assert_eq!((again.hash(), &again), (sources.hash(), &sources));
        assert_eq!(sources.hash().len(), 64);
        assert_ne!(sources.hash(), Sources::default().hash());
    }

    #[test]
    fn the_shape_of_a_bundle_stays_readable() {
        let kept = r#"{"version":1,"files":[{"layer":"user","name":"aside.toml","path":"user/aside.toml","text":"x = 1\n"}]}"#;
        let sources = Sources::new([file(LayerKind::User, "aside.toml")]);
        assert_eq!(sources.to_bundle(), kept);
        assert_eq!(Sources::from_bundle(kept).expect("a bundle"), sources);
    }

    #[test]
    fn a_bundle_of_another_version_is_refused() {
        let error = Sources::from_bundle(r#"{"version":2,"files":[]}"#).expect_err("version 2");
        assert_eq!(error.to_string(), "bundle of rules has version 2, this program reads 1");
        assert!(Sources::from_bundle("{").is_err());
    }
}
