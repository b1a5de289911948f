//! The files of every layer as plain data, and the bundle in which they are stored next to the
//! journal.
//!
//! A layer is a folder with `aside.toml`, `events.toml`, `webhooks.toml`, `subscribers/*.toml`,
//! `templates/**/*.j2` and `fixtures/*.json`. A later layer overrides an earlier one: a whole subscriber by its id, a
//! template by its name, an entry of `events.toml` by its type, `aside.toml` key by key. The rows
//! of its `webhooks.toml` come first. The layer of a workspace has neither `aside.toml`
//! nor `webhooks.toml`, and holds for the sessions of its folder ([`Workspace`]). A bundle lists the files of one
//! generation. The hash of the bundle names the generation, and reading the bundle again compiles to
//! the same rules.
//!
//! The bundle is JSON:
//! `{"version":1,"files":[{"layer":"user","name":"aside.toml","sha256":"..."}]}`. The texts are
//! stored next to it, each under the SHA-256 of its bytes, so that an edit costs one file (storage:
//! `daemon/rules.rs`). The path of the layer's folder is not included: the same files in another
//! home are the same generation. A file of a workspace has its folder too (`folder`), which decides
//! where it holds.

use std::sync::{Arc, LazyLock};

use engine::sorted::{SortedMap, SortedSet};
use serde::{Deserialize, Serialize};
use strum::{Display, IntoStaticStr};

use crate::config::text::{self, Text, sha256_hex};

/// The version of the bundle's format.
const BUNDLE_VERSION: u32 = 1;

/// The layer in the binary, without the tests of its subscribers.
static SHIPPED: LazyLock<Sources> = LazyLock::new(|| Sources::of_shipped(text::rules()));

/// The owner of a layer; ordered, a later one overrides an earlier one.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, IntoStaticStr, Display,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum LayerKind {
    /// In the binary.
    Shipped,
    /// The machine's.
    System,
    /// The user's own.
    User,
    /// A workspace's, which its user has trusted.
    Workspace,
}

engine::words::impl_as_str!(LayerKind);

/// The kind of a file in a layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `aside.toml`.
    Settings,
    /// `events.toml`.
    Events,
    /// `webhooks.toml`.
    Webhooks,
    /// `subscribers/*.toml`.
    Subscriber,
    /// `templates/**/*.j2`.
    Template,
    /// `templates/lib/**/*.j2`: macros for templates.
    Library,
    /// `fixtures/*.json`.
    Fixture,
}

impl FileKind {
    /// Whether a workspace may have such files: they set no program, sink, secret or budget.
    pub const fn is_of_workspace(self) -> bool {
        match self {
            Self::Events | Self::Subscriber | Self::Template | Self::Library | Self::Fixture => true,
            Self::Settings | Self::Webhooks => false,
        }
    }

    /// The kind of the file with this name; `None` if it does not belong to a layer.
    ///
    /// `name` is the path below the layer's folder, with `/` between its parts. Hidden files do not
    /// belong to a layer: editors create them next to an open file.
    pub fn of(name: &str) -> Option<Self> {
        let is_hidden = name.split('/').any(|part| part.starts_with('.'));
        match name.split_once('/') {
            _ if is_hidden => None,
            None => match name {
                "aside.toml" => Some(Self::Settings),
                "events.toml" => Some(Self::Events),
                "webhooks.toml" => Some(Self::Webhooks),
                _ => None,
            },
            Some(("subscribers", file)) => {
                (file.ends_with(".toml") && !file.contains('/')).then_some(Self::Subscriber)
            }
            Some(("templates", file)) => {
                let kind = if file.starts_with("lib/") { Self::Library } else { Self::Template };
                file.ends_with(".j2").then_some(kind)
            }
            Some(("fixtures", file)) => {
                (file.ends_with(".json") && !file.contains('/')).then_some(Self::Fixture)
            }
            Some(_) => None,
        }
    }
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceFile {
    /// Its layer.
    pub layer: LayerKind,
    /// Its path below the layer's folder, with `/` between its parts.
    pub name: Arc<str>,
    /// Its path for display.
    pub path: Arc<str>,
    /// Its text.
    pub text: Text,
}

impl SourceFile {
    /// The file `name` in the layer of the workspace `folder`.
    pub fn of_workspace(folder: &str, name: Arc<str>, text: Text) -> Self {
        let path = format!("{}/{WORKSPACE_FOLDER}/{name}", folder.trim_end_matches('/')).into();
        Self { layer: LayerKind::Workspace, name, path, text }
    }
}

/// A file or folder that is left out of the rules.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its layer.
    pub layer: LayerKind,
    /// Its path below the layer's folder, with `/` between its parts; empty for that folder itself.
    pub name: Arc<str>,
    /// Its path for display.
    pub path: Arc<str>,
    /// Why, as a lowercase fragment.
    pub why: String,
    /// The text around a byte that is not UTF-8, which is a replacement character there, and the
    /// offset of that character.
    pub bad_byte: Option<(Text, usize)>,
}

impl Unreadable {
    /// The path of `file` relative to this file or folder of its layer: empty for the file itself;
    /// `None` if it is elsewhere.
    pub(crate) fn path_below<'f>(&self, file: &'f SourceFile) -> Option<&'f str> {
        let below = file.name.strip_prefix(&*self.name).filter(|_| file.layer == self.layer)?;
        let is_inside = below.is_empty() || self.name.is_empty() || below.starts_with('/');
        is_inside.then_some(below.trim_start_matches('/'))
    }
}

/// The files of one generation of the configuration.
///
/// Shape: sorted by layer, then by name, unreadable ones by path; only files that [`FileKind::of`]
/// knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    unreadable: Vec<Unreadable>,
    ignored: Vec<Unreadable>,
    workspaces: Vec<Workspace>,
}

/// The names at the top of a layer's folder.
pub const LAYER_NAMES: [&str; 6] =
    ["aside.toml", "events.toml", "webhooks.toml", "subscribers", "templates", "fixtures"];

/// The name of the folder with the layer of a workspace.
pub const WORKSPACE_FOLDER: &str = ".aside";

/// The files of a workspace that its user has trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workspace {
    /// The workspace.
    pub folder: Arc<str>,
    files: Vec<SourceFile>,
}

impl Workspace {
    /// The files among `files` that a workspace may have, which are names in the layer and texts.
    pub fn new(folder: &str, files: impl IntoIterator<Item = (Arc<str>, Text)>) -> Self {
        let file = |(name, text)| SourceFile::of_workspace(folder, name, text);
        let mut files: Vec<_> = files.into_iter().map(file).collect();
        files.retain(|file| FileKind::of(&file.name).is_some_and(FileKind::is_of_workspace));
        files.sort_by(|a, b| a.name.cmp(&b.name));
        Self { folder: folder.into(), files }
    }

    /// Whether a file of it could deliver anything.
    pub fn has_rules(&self) -> bool {
        let kinds = [FileKind::Subscriber, FileKind::Template];
        kinds.into_iter().any(|kind| self.of_kind(kind).next().is_some())
    }

    /// Its files, by name.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// The files of one kind, by name.
    pub(crate) fn of_kind(&self, kind: FileKind) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| FileKind::of(&file.name) == Some(kind))
    }

    /// What is trusted: lower-case hex of the SHA-256 of the list of names and hashes of texts. Any
    /// other file, name or text has another one; the folder is not part of it.
    pub fn hash(&self) -> String {
        let files: Vec<_> = self.files.iter().map(|file| (&file.name, file.text.sha256())).collect();
        sha256_hex(serde_json::to_string(&files).expect("strings are JSON").as_bytes())
    }
}

/// The contents of a bundle of any version.
#[derive(Serialize, Deserialize)]
struct Bundle {
    version: u32,
    files: Vec<ListedFile>,
}

#[derive(Serialize, Deserialize)]
struct ListedFile {
    layer: LayerKind,
    /// The workspace; `None` for a file of another layer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    folder: Option<Arc<str>>,
    name: Arc<str>,
    sha256: String,
}

/// Why a text is not a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    /// It does not have the format that [`Sources::to_bundle`] writes.
    #[error("read the bundle of rules")]
    Shape(#[from] serde_json::Error),
    /// Written by a later version of the program.
    #[error("bundle of rules has version {found}, this program reads up to {BUNDLE_VERSION}")]
    Version {
        /// The version in the bundle.
        found: u32,
    },
    /// A file of it has no text.
    #[error("the text of `{name}` ({layer} layer) is missing")]
    Text {
        /// Its layer.
        layer: LayerKind,
        /// Its name.
        name: Arc<str>,
    },
}

impl Sources {
    /// Takes files in any order and leaves out those that do not belong to a layer.
    pub fn new(files: impl IntoIterator<Item = SourceFile>) -> Self {
        let mut files: Vec<_> = files.into_iter().filter(|file| FileKind::of(&file.name).is_some()).collect();
        files.sort_by(|a, b| (a.layer, &a.name).cmp(&(b.layer, &b.name)));
        Self { files, ..Self::default() }
    }

    /// The layer in the binary, without the tests of its subscribers.
    pub fn shipped() -> Self {
        SHIPPED.clone()
    }

    /// The text in the binary whose SHA-256 is `sha256`, in lower-case hex.
    pub(crate) fn shipped_text(sha256: &str) -> Option<Text> {
        let found = SHIPPED.files.iter().find(|file| file.text.sha256() == sha256);
        found.map(|file| file.text.clone())
    }

    /// The layer of the file with this path for display.
    pub fn layer_of(&self, path: &str) -> Option<LayerKind> {
        self.files.iter().find(|file| *file.path == *path).map(|file| file.layer)
    }

    /// The path below its layer's folder of the file with this path for display.
    pub fn name_of(&self, path: &str) -> Option<&str> {
        self.files.iter().find(|file| *file.path == *path).map(|file| &*file.name)
    }

    /// The layer in the binary, complete.
    pub fn shipped_with_tests() -> Self {
        Self::of_shipped(text::FILES.iter().copied())
    }

    fn of_shipped(files: impl Iterator<Item = (&'static str, &'static str)>) -> Self {
        Self::new(files.map(|(name, text)| SourceFile {
            layer: LayerKind::Shipped,
            name: name.into(),
            path: format!("shipped:{name}").into(),
            text: Text::of_program(text),
        }))
    }

    /// Adds files; the `unreadable` ones are reported by the compilation.
    #[must_use]
    pub fn with(
        self,
        files: impl IntoIterator<Item = SourceFile>,
        unreadable: impl IntoIterator<Item = Unreadable>,
    ) -> Self {
        let all = Self::new(self.files.into_iter().chain(files));
        let mut unreadable: Vec<_> = self.unreadable.into_iter().chain(unreadable).collect();
        unreadable.sort_by(|a, b| a.path.cmp(&b.path));
        Self { unreadable, ignored: self.ignored, workspaces: self.workspaces, ..all }
    }

    /// Sets the workspaces whose files are trusted, in any order.
    #[must_use]
    pub fn with_workspaces(mut self, workspaces: impl IntoIterator<Item = Workspace>) -> Self {
        self.workspaces = workspaces.into_iter().collect();
        self.workspaces.sort_by(|a, b| a.folder.cmp(&b.folder));
        self.workspaces.dedup_by(|a, b| a.folder == b.folder);
        self
    }

    /// The workspaces whose files are trusted, by folder.
    pub fn workspaces(&self) -> &[Workspace] {
        &self.workspaces
    }

    /// Replaces the files of the same layers and names by `files`, and removes the matching
    /// unreadable entries.
    #[must_use]
    pub(crate) fn replacing(self, files: Vec<SourceFile>) -> Self {
        let is_replaced =
            |own: &SourceFile| files.iter().any(|file| (file.layer, &file.name) == (own.layer, &own.name));
        let kept: Vec<_> = self.files.into_iter().filter(|own| !is_replaced(own)).collect();
        let is_missed = |own: &Unreadable| !files.iter().any(|file| own.path_below(file).is_some());
        let unreadable = self.unreadable.into_iter().filter(is_missed).collect();
        Self { unreadable, files: Self::new(kept.into_iter().chain(files)).files, ..self }
    }

    /// The same without the files with these paths.
    #[must_use]
    pub(crate) fn without(mut self, paths: &SortedSet<Arc<str>>) -> Self {
        self.files.retain(|file| !paths.contains(&file.path));
        self
    }

    /// The same with only the files for which `is_kept`, and without unreadable ones and workspaces.
    #[must_use]
    pub(crate) fn only(self, is_kept: impl Fn(&SourceFile) -> bool) -> Self {
        Self { files: self.files.into_iter().filter(is_kept).collect(), ..Self::default() }
    }

    /// Adds ignored files: they are in a layer's folder, but of a kind that is not read.
    #[must_use]
    pub fn with_ignored(mut self, ignored: impl IntoIterator<Item = Unreadable>) -> Self {
        self.ignored.extend(ignored);
        self.ignored.sort_by(|a, b| a.path.cmp(&b.path));
        self
    }

    /// Every file, also of workspaces.
    pub(crate) fn all_files(&self) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().chain(self.workspaces.iter().flat_map(Workspace::files))
    }

    /// Every file but those of workspaces, sorted by layer, then by name.
    pub fn files(&self) -> &[SourceFile] {
        &self.files
    }

    /// Every file that could not be read.
    pub fn unreadable(&self) -> &[Unreadable] {
        &self.unreadable
    }

    /// Every file of a kind that is not read.
    pub fn ignored(&self) -> &[Unreadable] {
        &self.ignored
    }

    /// The files of one kind, in the order of the layers.
    pub(crate) fn of_kind(&self, kind: FileKind) -> impl Iterator<Item = &SourceFile> {
        self.files.iter().filter(move |file| FileKind::of(&file.name) == Some(kind))
    }

    /// The list of all files. Files that could not be read are in neither the rules nor the bundle.
    pub fn to_bundle(&self) -> String {
        let listed = |file: &SourceFile, folder| ListedFile {
            layer: file.layer,
            folder,
            name: Arc::clone(&file.name),
            sha256: file.text.sha256().to_owned(),
        };
        let of_workspaces = self
            .workspaces
            .iter()
            .flat_map(|own| own.files.iter().map(move |file| listed(file, Some(Arc::clone(&own.folder)))));
        let files = self.files.iter().map(|file| listed(file, None)).chain(of_workspaces);
        let bundle = Bundle { version: BUNDLE_VERSION, files: files.collect() };
        serde_json::to_string(&bundle).expect("strings and numbers are JSON")
    }

    /// Reads the output of [`Sources::to_bundle`]; `text_of` returns the text for a hash.
    ///
    /// Shape: the path of a file is `layer:name`; that of a file of a workspace is its own.
    ///
    /// Errors: the bundle is damaged or of a later version, or a text is missing.
    pub fn from_bundle(bundle: &[u8], text_of: impl Fn(&str) -> Option<Text>) -> Result<Self, BundleError> {
        let Bundle { version, files } = serde_json::from_slice(bundle)?;
        if version > BUNDLE_VERSION {
            return Err(BundleError::Version { found: version });
        }
        let (mut all, mut of_workspaces) = (Vec::new(), SortedMap::<Arc<str>, Vec<_>>::new());
        for ListedFile { layer, folder, name, sha256 } in files {
            let text = text_of(&sha256);
            let text = text.ok_or_else(|| BundleError::Text { layer, name: Arc::clone(&name) })?;
            match folder {
                Some(folder) => of_workspaces.get_or_default(folder).push((name, text)),
                None => {
                    let path = format!("{layer}:{name}").into();
                    all.push(SourceFile { layer, name, path, text });
                }
            }
        }
        let workspaces = of_workspaces.into_iter().map(|(folder, files)| Workspace::new(&folder, files));
        Ok(Self::new(all).with_workspaces(workspaces))
    }

    /// The hashes of the texts of a bundle; empty if the bundle is damaged.
    pub(crate) fn texts_of_bundle(bundle: &[u8]) -> impl Iterator<Item = String> {
        let bundle: Option<Bundle> = serde_json::from_slice(bundle).ok();
        bundle.into_iter().flat_map(|bundle| bundle.files).map(|file| file.sha256)
    }

    /// Names the content: lower-case hex of the SHA-256 of the bundle.
    pub fn hash(&self) -> String {
        sha256_hex(self.to_bundle().as_bytes())
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
    fn layer_accepts_only_recognized_file_names() {
        for (name, kind) in [
            ("aside.toml", Some(FileKind::Settings)),
            ("subscribers/ci.toml", Some(FileKind::Subscriber)),
            ("subscribers/ci.toml~", None),
            ("subscribers/.#ci.toml", None),
            ("subscribers/old/ci.toml", None),
            ("templates/.git/ci.toon.j2", None),
            ("templates/ci.toon.j2", Some(FileKind::Template)),
            ("templates/formats/xml.j2", Some(FileKind::Template)),
            ("templates/lib/time.toon.j2", Some(FileKind::Library)),
            ("templates/README.md", None),
            ("fixtures/failed.json", Some(FileKind::Fixture)),
            ("fixtures/old/failed.json", None),
            ("other.toml", None),
        ] {
            assert_eq!(FileKind::of(name), kind, "{name}");
        }
    }

    #[test]
    fn files_are_in_the_order_of_their_layers() {
        let sources = Sources::new([
            file(LayerKind::User, "aside.toml"),
            file(LayerKind::Shipped, "templates/a.toon.j2"),
            file(LayerKind::Shipped, "aside.toml"),
        ]);
        let paths: Vec<_> = sources.files().iter().map(|file| &*file.path).collect();
        assert_eq!(paths, ["shipped/aside.toml", "shipped/templates/a.toon.j2", "user/aside.toml"]);
    }

    fn read(bundle: &str) -> Result<Sources, BundleError> {
        let text = "x = 1\n";
        let own = sha256_hex(text.as_bytes());
        Sources::from_bundle(bundle.as_bytes(), |sha256| (sha256 == own).then(|| text.into()))
    }

    #[test]
    fn bundle_round_trips_with_files_and_hash() {
        let sources =
            Sources::new([file(LayerKind::User, "aside.toml"), file(LayerKind::System, "aside.toml")]);
        let again = read(&sources.to_bundle()).expect("a bundle");
        let files = |sources: &Sources| -> Vec<_> {
            sources.files().iter().map(|file| (file.layer, file.name.clone(), file.text.clone())).collect()
        };
        assert_eq!((again.hash(), files(&again)), (sources.hash(), files(&sources)));
        assert_eq!(sources.hash().len(), 64);
        assert_ne!(sources.hash(), Sources::default().hash());
    }

    #[test]
    fn the_shape_of_a_bundle_stays_readable() {
        let kept = r#"{"version":1,"files":[{"layer":"user","name":"aside.toml","sha256":"9e26bf369911c45c243c684147b23fc9e1dcfcf257d299a1c632016a6fcd33f4"}]}"#;
        let sources = Sources::new([file(LayerKind::User, "aside.toml")]);
        assert_eq!(sources.to_bundle(), kept);
        assert_eq!(
            read(kept).expect("a bundle").files(),
            [SourceFile { path: "user:aside.toml".into(), ..file(LayerKind::User, "aside.toml") }]
        );
    }

    #[test]
    fn workspaces_are_in_the_bundle_with_their_folders() {
        let own = |folder: &str, names: &[&str]| {
            Workspace::new(folder, names.iter().map(|name| ((*name).into(), "x = 1\n".into())))
        };
        let names = ["templates/a.toon.j2", "subscribers/a.toml", "aside.toml", "subscribers/.a.toml"];
        let sources = Sources::new([file(LayerKind::User, "aside.toml")]);
        let bundle =
            |workspaces: &[Workspace]| sources.clone().with_workspaces(workspaces.to_vec()).to_bundle();
        let both = [own("/w", &names), own("/v", &names[1..2])];
        let again = read(&bundle(&both)).expect("a bundle");
        assert_eq!(again.workspaces(), [both[1].clone(), both[0].clone()]);
        let paths: Vec<_> =
            again.workspaces().iter().flat_map(Workspace::files).map(|one| &*one.path).collect();
        let a = "/w/.aside/subscribers/a.toml";
        assert_eq!(paths, ["/v/.aside/subscribers/a.toml", a, "/w/.aside/templates/a.toon.j2"]);
        assert_eq!(bundle(&[]), sources.to_bundle());
        assert_ne!(bundle(&both[..1]), bundle(&[own("/u", &names)]));
        assert_eq!(both[0].hash(), own("/u", &names).hash());
        assert_ne!(both[0].hash(), both[1].hash());
    }

    #[test]
    fn where_a_layer_lies_makes_no_other_generation() {
        let elsewhere =
            SourceFile { path: "/elsewhere/aside.toml".into(), ..file(LayerKind::User, "aside.toml") };
        assert_eq!(
            Sources::new([elsewhere]).hash(),
            Sources::new([file(LayerKind::User, "aside.toml")]).hash()
        );
    }

    #[test]
    fn newer_or_incomplete_bundle_is_refused() {
        let error = read(r#"{"version":2,"files":[]}"#).expect_err("version 2");
        assert_eq!(error.to_string(), "bundle of rules has version 2, this program reads up to 1");
        assert!(read("{").is_err());
        let lost = r#"{"version":1,"files":[{"layer":"user","name":"aside.toml","sha256":"00"}]}"#;
        let error = read(lost).expect_err("its text is not there");
        assert_eq!(error.to_string(), "the text of `aside.toml` (user layer) is missing");
    }
}
