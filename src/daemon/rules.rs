//! The rules of every time, stored by content next to the journal.
//!
//! `<state>/rules/<hash>.json` is the bundle of one generation of the configuration: the list of
//! its files, each with the hash of its text, which is in `<sha256>.text`. The shipped texts are
//! together in `<hash>.pack`, because each separate file costs the first start a sync. A `rules`
//! record in the journal names the bundle in force from there on; a replay compiles the same texts
//! again. Every file is checked against its name when it is read; a damaged one is written again
//! when the configuration has its content. Lost rules do not prevent a start: the nearest ones are
//! used and reported.

use std::{
    cell::OnceCell,
    error::Error,
    fs,
    io::{self, Write},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use engine::{
    records::{self, RecordInput},
    rules::CompiledRules,
    sorted::{SortedMap, SortedSet},
};
use journal::{Journal, ReadError};

use crate::{
    capability::outside::Generation,
    config::{
        compile::compile,
        layers::{BundleError, LayerKind, SourceFile, Sources},
        text::{Text, sha256_hex},
    },
    daemon::causes::with_causes,
};

const BUNDLE: &str = "json";
const TEXT: &str = "text";
/// The texts of the shipped layer: a JSON object of texts by their SHA-256.
const PACK: &str = "pack";
const UNFINISHED: &str = "unfinished";
/// The file that names the last bundle used.
const CURRENT: &str = "current.hash";
/// The extensions of all files except unfinished ones.
pub(super) const EXTENSIONS: [&str; 4] = [BUNDLE, TEXT, PACK, "hash"];
/// Number of stored bundles above which unnamed ones are deleted; each edit adds one, of some
/// kilobytes.
const BUNDLES_MAX: usize = 64;
/// Most records per read.
const BATCH_RECORDS_MAX: usize = 4_096;

/// The store of bundles.
#[derive(Debug, Clone)]
pub struct RulesStore {
    folder: PathBuf,
    /// The rules used when those of an earlier time are lost and no rules are in force.
    current: Option<Arc<str>>,
    /// The most recently compiled rules, kept until the event loop reaches the record that names
    /// them.
    ///
    /// A `rules` record contains a hash. The task that appends one has already compiled the rules,
    /// to find their errors. Passing them on saves the loop that work, during which every exchange
    /// would wait. A replay, and a loop that reads an older record, compile the bundle.
    ready: Arc<Mutex<Option<Generation>>>,
}

/// Why a bundle cannot be stored or used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read or written.
    #[error("the rules bundle {} cannot be used", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The content does not match the name.
    #[error("{} is damaged: its content has another hash", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The bundle is invalid, or one of its texts is lost.
    #[error("the rules bundle {} cannot be used", path.display())]
    Bundle {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: BundleError,
    },
}

/// Why unnamed bundles cannot be collected.
#[derive(Debug, thiserror::Error)]
pub(super) enum CollectError {
    /// A folder cannot be listed, or a file cannot be deleted.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The journal cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
}

impl RulesStore {
    /// The bundles in the state folder `state`; nothing is read yet.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join("rules"), current: None, ready: Arc::default() }
    }

    /// The state folder.
    pub(super) fn state(&self) -> &Path {
        self.folder.parent().expect("the store is a folder in it")
    }

    /// Sets the rules that are used when those of an earlier time are lost and no rules are in
    /// force.
    #[must_use]
    pub fn with_current(self, hash: &str) -> Self {
        Self { current: Some(hash.into()), ..self }
    }

    /// Stores `sources` under their hash, so that they exist before the journal names them;
    /// rewrites damaged files.
    ///
    /// Shape: the hash.
    ///
    /// Errors: a file cannot be written.
    pub fn keep(&self, sources: &Sources) -> Result<String, RulesError> {
        let bundle = sources.to_bundle();
        let hash = sha256_hex(bundle.as_bytes());
        let path = self.path(&hash, BUNDLE);
        let write = || -> io::Result<()> {
            let is_shipped = |file: &&SourceFile| file.layer == LayerKind::Shipped;
            let (shipped, own): (Vec<&SourceFile>, Vec<_>) = sources.all_files().partition(is_shipped);
            let mut has_written = false;
            if !shipped.is_empty() {
                let pack = pack(&shipped);
                has_written |= self.write(&sha256_hex(pack.as_bytes()), PACK, pack.as_bytes())?;
            }
            for file in own {
                has_written |= self.write(file.text.sha256(), TEXT, file.text.as_bytes())?;
            }
            if self.write(&hash, BUNDLE, bundle.as_bytes())? || has_written {
                fs::File::open(&self.folder)?.sync_all()?;
            }
            Ok(())
        };
        write().map_err(|source| RulesError::Io { path, source })?;
        Ok(hash)
    }

    /// Writes a file unless it exists with the right content; returns whether it was written. Its
    /// name is not durable yet.
    fn write(&self, hash: &str, extension: &str, bytes: &[u8]) -> io::Result<bool> {
        let path = self.path(hash, extension);
        if fs::read(&path).is_ok_and(|found| found == bytes) {
            return Ok(false);
        }
        self.make_folder()?;
        self.replace(&path, bytes)?;
        Ok(true)
    }

    /// Writes a file atomically; its name is not durable yet.
    fn replace(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let unfinished = path.with_extension(UNFINISHED);
        let mut options = fs::OpenOptions::new();
        let mut finish = || -> io::Result<()> {
            let mut file = options.write(true).create(true).truncate(true).mode(0o600).open(&unfinished)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            // A rename cannot replace a folder.
            if path.is_dir() {
                fs::rename(path, path.with_extension("damaged"))?;
            }
            fs::rename(&unfinished, path)
        };
        finish().inspect_err(|_| {
            // The first error matters more than a failure to remove the rest.
            fs::remove_file(&unfinished).ok();
        })
    }

    /// Notes that the rules of `hash` are the configuration's, so that the next start knows which
    /// files were last valid.
    ///
    /// Errors: the file cannot be written.
    pub fn note_current(&self, hash: &str) -> Result<(), RulesError> {
        let path = self.folder.join(CURRENT);
        let write = || -> io::Result<()> {
            if fs::read(&path).is_ok_and(|found| found == hash.as_bytes()) {
                return Ok(());
            }
            self.replace(&path, hash.as_bytes())?;
            fs::File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| RulesError::Io { path: path.clone(), source })
    }

    /// The noted hash.
    fn noted(&self) -> Option<String> {
        let hash = fs::read_to_string(self.folder.join(CURRENT)).ok()?;
        let is_hash = hash.len() == 64 && hash.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then_some(hash)
    }

    /// The files of the noted rules; `None` when there are none, or they are lost.
    pub fn last_good(&self) -> Option<Sources> {
        let hash = self.noted()?;
        let read = self.sources(&hash);
        read.inspect_err(|error| {
            let error: &dyn Error = error;
            tracing::error!(error, "the files that were in force last are lost");
        })
        .ok()
    }

    fn make_folder(&self) -> io::Result<()> {
        if self.folder.is_dir() {
            return Ok(());
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        self.folder.parent().map_or(Ok(()), |state| fs::File::open(state)?.sync_all())
    }

    /// The files stored under `hash`. Texts that are in the program too are not read.
    ///
    /// Errors: one is missing, or does not match its name.
    pub fn sources(&self, hash: &str) -> Result<Sources, RulesError> {
        self.sources_with(hash, Sources::shipped_text)
    }

    /// The files stored under `hash`; texts that are `known` by their SHA-256 are not read.
    fn sources_with(&self, hash: &str, known: fn(&str) -> Option<Text>) -> Result<Sources, RulesError> {
        let bundle = self.read(hash, BUNDLE)?;
        let packs = OnceCell::new();
        let stored = |sha256: &str| match self.read(sha256, TEXT) {
            Ok(text) => String::from_utf8(text).ok().map(Text::from),
            Err(_) => packs.get_or_init(|| self.packed()).get(sha256).map(|text| text.as_str().into()),
        };
        Sources::from_bundle(&bundle, |sha256| known(sha256).or_else(|| stored(sha256)))
            .map_err(|source| RulesError::Bundle { path: self.path(hash, BUNDLE), source })
    }

    /// The texts of all readable packs, by their SHA-256.
    fn packed(&self) -> SortedMap<String, String> {
        let files = paths_in(&self.folder).unwrap_or_default();
        let packs = files.iter().filter_map(|path| name_of(path).filter(|(_, kind)| *kind == PACK));
        packs.filter_map(|(hash, _)| self.pack(hash).ok()).flatten().collect()
    }

    /// The texts of one pack.
    fn pack(&self, hash: &str) -> Result<SortedMap<String, String>, RulesError> {
        let bytes = self.read(hash, PACK)?;
        serde_json::from_slice(&bytes)
            .map_err(|source| RulesError::Bundle { path: self.path(hash, PACK), source: source.into() })
    }

    /// Stores compiled rules for the next load of their hash.
    pub fn hand_over(&self, rules: Generation) {
        *self.ready.lock().unwrap_or_else(PoisonError::into_inner) = Some(rules);
    }

    /// The rules stored under `hash`: the compiled ones if they were handed over, else compiled
    /// from the bundle.
    ///
    /// Errors: those of [`RulesStore::sources`].
    pub fn load(&self, hash: &str) -> Result<Generation, RulesError> {
        let ready = self.ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(ready) = ready.filter(|ready| &*ready.rules.hash == hash) {
            return Ok(ready);
        }
        let compiled = compile(&self.sources(hash)?, &[]);
        let errors = compiled.report.error_count();
        if errors > 0 {
            tracing::debug!(hash, errors, "stored rules have errors; the files concerned are left out");
        }
        let rules = Arc::new(CompiledRules { hash: hash.into(), ..compiled.rules });
        Ok(Generation { rules, outside: compiled.outside })
    }

    /// The rules stored under `hash`; if they are lost, those `in_force`, or else the current ones.
    pub(super) fn load_or_nearest(&self, hash: &str, in_force: Option<Generation>) -> Generation {
        let lost = match self.load(hash) {
            Ok(rules) => return rules,
            Err(lost) => lost,
        };
        let in_force = in_force.filter(|known| !known.rules.hash.is_empty());
        let current = || self.current.as_deref().and_then(|current| self.load(current).ok());
        let nearest = in_force.or_else(current).unwrap_or_else(Generation::none);
        tracing::error!(
            error = &lost as &dyn Error,
            instead = &*nearest.rules.hash,
            "earlier rules are lost; the nearest ones are used"
        );
        nearest
    }

    /// The problems of the stored files, one sentence each.
    ///
    /// Errors: the folder cannot be listed.
    pub fn verify(&self) -> io::Result<Vec<String>> {
        let mut wrong = Vec::new();
        for path in paths_in(&self.folder)? {
            let Some((hash, extension)) = name_of(&path) else { continue };
            let found = match extension {
                BUNDLE => self.sources_with(hash, |_| None).map(|_| ()),
                TEXT => self.read(hash, TEXT).map(|_| ()),
                PACK => self.pack(hash).map(|_| ()),
                _ => Ok(()),
            };
            wrong.extend(found.err().map(|error| with_causes(&error)));
        }
        Ok(wrong)
    }

    /// Deletes the files that no record of `journal` names, when more than [`BUNDLES_MAX`] bundles
    /// are stored, or twice as many as were `named_before`. No rules may be stored meanwhile.
    ///
    /// Shape: the number of named bundles; `named_before` if that was not checked. A journal whose
    /// first record is not of rules (that record was lost) may need rules that
    /// none of its records names, so nothing is deleted then.
    pub(super) fn collect_unnamed(
        &self,
        journal: &Journal,
        named_before: usize,
    ) -> Result<usize, CollectError> {
        if self.count()? <= BUNDLES_MAX.max(2 * named_before) {
            return Ok(named_before);
        }
        let Some(mut named) = named_in(journal)? else { return Ok(named_before) };
        named.extend(self.noted().map(Arc::from));
        let deleted = self.collect(&named)?;
        tracing::debug!(deleted, named = named.len(), "rules that no record names are deleted");
        Ok(named.len())
    }

    /// How many bundles are stored.
    ///
    /// Errors: the folder cannot be listed.
    fn count(&self) -> io::Result<usize> {
        let is_bundle = |path: &PathBuf| name_of(path).is_some_and(|(_, extension)| extension == BUNDLE);
        Ok(paths_in(&self.folder)?.iter().filter(|path| is_bundle(path)).count())
    }

    /// Deletes every bundle that is not in `named`, and every text and pack that no kept bundle
    /// lists; returns how many files were deleted.
    ///
    /// Errors: the folder cannot be listed, or a file cannot be deleted.
    fn collect(&self, named: &SortedSet<Arc<str>>) -> io::Result<usize> {
        let texts: SortedSet<String> = named
            .iter()
            .filter_map(|hash| self.read(hash, BUNDLE).ok())
            .flat_map(|bundle| Sources::texts_of_bundle(&bundle).collect::<Vec<_>>())
            .collect();
        let is_listed = |sha256: &String| texts.contains(sha256);
        let mut deleted = 0;
        for path in paths_in(&self.folder)? {
            let is_kept = match name_of(&path) {
                Some((hash, BUNDLE)) => named.contains(hash),
                Some((hash, TEXT)) => texts.contains(hash),
                // A damaged pack is kept for inspection.
                Some((hash, PACK)) => self.pack(hash).map_or(true, |pack| pack.keys().any(is_listed)),
                Some((_, UNFINISHED)) => false,
                Some(_) | None => true,
            };
            if !is_kept {
                fs::remove_file(&path)?;
                deleted += 1;
            }
        }
        Ok(deleted)
    }

    fn read(&self, hash: &str, extension: &str) -> Result<Vec<u8>, RulesError> {
        let path = self.path(hash, extension);
        match fs::read(&path) {
            Err(source) => Err(RulesError::Io { path, source }),
            Ok(bytes) if sha256_hex(&bytes) == hash => Ok(bytes),
            Ok(_) => Err(RulesError::Damaged { path }),
        }
    }

    fn path(&self, hash: &str, extension: &str) -> PathBuf {
        self.folder.join(format!("{hash}.{extension}"))
    }
}

/// The texts of `files` as a pack.
fn pack(files: &[&SourceFile]) -> String {
    let texts: SortedMap<&str, &str> = files.iter().map(|file| (file.text.sha256(), &*file.text)).collect();
    serde_json::to_string(&texts).expect("strings are JSON")
}

/// The hashes that the records of `journal` name; `None` when its first record is not of rules.
fn named_in(journal: &Journal) -> Result<Option<SortedSet<Arc<str>>>, CollectError> {
    let first = journal.stored()?.first;
    let mut reader = journal.read_from(first);
    let (mut named, mut next) = (SortedSet::new(), first);
    loop {
        let batch = reader.next_batch(BATCH_RECORDS_MAX)?;
        if batch.is_empty() {
            return Ok(Some(named));
        }
        for found in batch.iter() {
            if found.kind.0 == records::RULES
                && let Ok(RecordInput::Rules { hash }) =
                    records::decode(records::RULES, found.seq, found.body)
            {
                named.insert(hash);
            } else if next == first {
                return Ok(None);
            }
            next = found.seq.next();
        }
    }
}

/// The paths in a folder, which may be missing, by name.
pub(super) fn paths_in(folder: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        entries => {
            let mut paths =
                entries?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
            paths.sort();
            Ok(paths)
        }
    }
}

/// The stem and the extension of a file.
fn name_of(path: &Path) -> Option<(&str, &str)> {
    Some((path.file_stem()?.to_str()?, path.extension()?.to_str()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use journal::{AppendBatch, JournalSettings, Level, RecordKind, memory::MemoryFiles, time::Timestamp};

    fn sources(max_tokens: u32) -> Sources {
        let file = |layer, name: &str, text: String| SourceFile {
            layer,
            name: name.into(),
            path: name.into(),
            text: text.into(),
        };
        let subscriber = "[subscriber]\nid = \"a\"\n[events]\ntypes = [\"a.b\"]\n".to_owned();
        Sources::new([
            file(LayerKind::User, "aside.toml", format!("[injection]\nmax_tokens = {max_tokens}\n")),
            file(LayerKind::Shipped, "templates/a.toon.j2", "a: 1".to_owned()),
            file(LayerKind::User, "subscribers/a.toml", subscriber),
        ])
    }

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<String> = fs::read_dir(folder.join("rules"))
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("UTF-8"))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn edited_rules_store_only_the_changed_text() {
        let state = tempfile::tempdir().expect("a folder");
        let store = RulesStore::new(state.path());
        let first = store.keep(&sources(500)).expect("kept");
        assert_eq!(names(state.path()).len(), 4, "a bundle, a pack and two texts");
        let second = store.keep(&sources(600)).expect("kept");
        assert_eq!(names(state.path()).len(), 6, "a bundle and one text more");
        assert_eq!(store.count().expect("listed"), 2);
        let named = SortedSet::from([Arc::from(second.as_str())]);
        assert_eq!(store.collect(&named).expect("collected"), 2);
        assert!(store.load(&first).is_err());
        assert_eq!(store.load(&second).expect("there").rules.subscribers.len(), 1);
        assert_eq!(names(state.path()).len(), 4);
        assert_eq!(
            store.collect(&SortedSet::new()).expect("collected"),
            4,
            "the pack goes with the last of them"
        );
    }

    #[test]
    fn unnamed_rules_are_collected_once_many_are_stored() {
        let state = tempfile::tempdir().expect("a folder");
        let (store, files) = (RulesStore::new(state.path()), Arc::new(MemoryFiles::new()));
        let clock = Arc::new(|| Timestamp::ZERO);
        let opened = Journal::open(files, JournalSettings::default(), clock, &|_| None);
        let journal = opened.expect("opened").journal;
        let name = |hash: &str| {
            let mut batch = AppendBatch::new();
            let body = |body: &mut Vec<u8>| records::encode_rules(hash, body);
            batch.push_with(RecordKind(records::RULES), None, body).expect("small");
            journal.append_blocking(batch, Level::Written).expect("appended");
        };
        let many = u32::try_from(BUNDLES_MAX).expect("few");
        for edit in 0..many {
            let hash = store.keep(&sources(500 + edit)).expect("kept");
            if edit % 16 == 0 {
                name(&hash);
            }
        }
        assert_eq!(store.collect_unnamed(&journal, 7).expect("looked"), 7, "there are not many yet");
        store.keep(&sources(400)).expect("kept");
        assert_eq!(store.collect_unnamed(&journal, many as usize).expect("looked"), many as usize);
        assert_eq!(store.collect_unnamed(&journal, 7).expect("collected"), 4);
        assert_eq!((store.count().expect("listed"), names(state.path()).len()), (4, 10));
        assert_eq!(store.verify().expect("listed"), Vec::<String>::new());
    }

    #[test]
    fn damaged_rules_files_are_detected_and_rewritten() {
        let state = tempfile::tempdir().expect("a folder");
        let store = RulesStore::new(state.path());
        let hash = store.keep(&sources(500)).expect("kept");
        for name in names(state.path()) {
            let path = state.path().join("rules").join(&name);
            let mut bytes = fs::read(&path).expect("read");
            bytes[5] ^= 1;
            fs::write(&path, bytes).expect("written");
            assert!(store.load(&hash).is_err(), "{name}");
            let wrong = store.verify().expect("listed");
            assert!(wrong.iter().any(|sentence| sentence.contains(&name[..16])), "{wrong:?}");
            store.keep(&sources(500)).expect("kept");
            assert_eq!(store.load(&hash).expect("mended").rules.subscribers.len(), 1);
            assert_eq!(store.verify().expect("listed"), Vec::<String>::new());
            fs::remove_file(&path).expect("removed");
            fs::create_dir(&path).expect("a folder in its place");
            assert!(store.load(&hash).is_err(), "{name}");
            store.keep(&sources(500)).expect("kept");
            store.load(&hash).expect("mended");
            fs::remove_dir(path.with_extension("damaged")).expect("kept next to it");
        }
    }

    #[test]
    fn texts_of_the_program_need_no_pack() {
        let state = tempfile::tempdir().expect("a folder");
        let store = RulesStore::new(state.path());
        let hash = store.keep(&Sources::shipped()).expect("kept");
        let pack = names(state.path()).into_iter().find(|name| name.ends_with(PACK)).expect("a pack");
        fs::remove_file(state.path().join("rules").join(pack)).expect("removed");
        let read = store.sources(&hash).expect("in the program");
        assert!(read.files().iter().all(|file| file.text.is_of_program()));
        assert_eq!(read.hash(), hash);
        assert_eq!(store.verify().expect("listed").len(), 1, "another program needs it");
    }

    #[test]
    fn where_rules_are_lost_the_nearest_are_used() {
        let state = tempfile::tempdir().expect("a folder");
        let store = RulesStore::new(state.path());
        let hash = store.keep(&sources(500)).expect("kept");
        let current = store.keep(&sources(600)).expect("kept");
        let in_force = store.load(&hash).expect("there");
        let store = store.with_current(&current);
        let nearest = |store: &RulesStore, known| store.load_or_nearest("00", known).rules.hash.to_string();
        assert_eq!(nearest(&store, Some(in_force)), hash);
        assert_eq!(nearest(&store, Some(Generation::none())), current);
        assert_eq!(nearest(&store, None), current);
        assert_eq!(nearest(&RulesStore::new(state.path()), None), "");
    }
}
