//! What people and pages query: the journal's history in SQLite, derived from the journal and made again from it at any time.
//!
//! A fold takes [`Notes`] of what the engine says; one thread writes them with a [`Writer`], cursor and rows in one transaction;
//! requests read through a [`Projection`], each in a snapshot of its own that says how far it is. It decides nothing, and
//! nothing that decides reads it: when the file is gone, broken or behind, only these answers are.

mod apply;
mod notes;
mod progress;
mod reader;
mod rows;
mod schema;
mod writer;

pub mod counted;
pub mod events;
pub mod notifications;
pub mod sessions;

#[cfg(test)]
pub(crate) mod dump;
#[cfg(test)]
mod tests;

pub use self::{
    notes::{Note, Notes, Place, What},
    progress::Progress,
    reader::{Command, Projection, View},
    writer::{EVENTS_MAX, Writer},
};

/// Name of the file in the state folder.
pub const FILE_NAME: &str = "projection.db";

/// What a query gives.
pub type QueryResult<T> = rusqlite::Result<T>;

/// What failed about the projection.
#[derive(Debug, thiserror::Error)]
#[error("the projection cannot be {doing}: {source}")]
pub struct ProjectionError {
    /// What was tried.
    pub doing: &'static str,
    /// What SQLite or the system says.
    pub source: Failed,
}

/// Who said so.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// SQLite.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file is not what was written.
    #[error("{0}")]
    Content(&'static str),
}

impl ProjectionError {
    /// Whether the file is broken, so that another one helps.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode;
        match &self.source {
            Failed::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                // A row that stands where another one belongs was not written here.
                let is_content = error.code == ErrorCode::ConstraintViolation;
                is_content || matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            }
            // A column or table that is not what was made here.
            Failed::Sqlite(
                rusqlite::Error::InvalidColumnType(..)
                | rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::SqlInputError { .. }
                | rusqlite::Error::QueryReturnedNoRows,
            )
            | Failed::Content(_) => true,
            Failed::Sqlite(_) | Failed::Io(_) => false,
        }
    }
}

/// Says what was tried when something fails.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, ProjectionError>;
}

impl<T, E: Into<Failed>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, ProjectionError> {
        self.map_err(|source| ProjectionError { doing, source: source.into() })
    }
}
