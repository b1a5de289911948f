//! The rules of every time, kept by content beside the journal.
//!
//! A bundle is the text of every file the rules were compiled from, in `<state>/rules/<hash>.json`. A `rules` record in the
//! journal names the hash from which on they hold; a replay compiles the same text again.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    config::{compile::compile, layers::Sources},
    engine::CompiledRules,
};

/// Where bundles are kept.
#[derive(Debug, Clone)]
pub struct RulesStore {
    folder: PathBuf,
}

/// Why a bundle cannot be kept or used.
#[derive(Debug, thiserror::Error)]
pub enum RulesError {
    /// The file cannot be read or written.
    #[error("the rules bundle {} cannot be used", path.display())]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file is not what its name says.
    #[error("the rules bundle {} is damaged: its content has another hash", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
    },
}

impl RulesStore {
    /// The bundles in the state folder `state`; nothing is read yet.
    pub fn new(state: &Path) -> Self {
        Self { folder: state.join("rules") }
    }

    /// Keeps `sources` under their hash, so that they are there before the journal names them.
    ///
    /// Errors: the file cannot be written.
    pub fn keep(&self, sources: &Sources) -> Result<(), RulesError> {
        let path = self.path(&sources.hash());
        if path.exists() {
            return Ok(());
        }
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.folder)?;
            let unfinished = path.with_extension("unfinished");
            let mut file = fs::File::create(&unfinished)?;
            io::Write::write_all(&mut file, sources.to_bundle().as_bytes())?;
            file.sync_all()?;
            fs::rename(&unfinished, &path)?;
            fs::File::open(&self.folder)?.sync_all()
        };
        write().map_err(|source| RulesError::Io { path: path.clone(), source })
    }

    /// Compiles the rules that were kept under `hash`.
    ///
    /// Errors: the file is not there, or is not what its name says.
    pub fn load(&self, hash: &str) -> Result<Arc<CompiledRules>, RulesError> {
        let path = self.path(hash);
        let text =
            fs::read_to_string(&path).map_err(|source| RulesError::Io { path: path.clone(), source })?;
        let damaged = || RulesError::Damaged { path: path.clone() };
        let sources = Sources::from_bundle(&text).map_err(|_| damaged())?;
        if sources.hash() != hash {
            return Err(damaged());
        }
        Ok(Arc::new(compile(&sources, &[]).rules))
    }

    fn path(&self, hash: &str) -> PathBuf {
        self.folder.join(format!("{hash}.json"))
    }
}
