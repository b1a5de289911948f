//! The queryable history in SQLite, derived from the journal; it can be rebuilt from it at any
//! time.
//!
//! A fold records `engine::notes` of the engine's output. One thread writes them with a [`Writer`],
//! cursor and rows in one transaction. Requests read through a [`Projection`], each in its own
//! snapshot, which has the progress. The projection makes no decisions, and no deciding code reads
//! it: a missing, corrupt or lagging file affects only its answers.

mod apply;
mod reader;
mod rows;
mod schema;
mod writer;

pub mod counted;
pub mod events;
pub mod notifications;
pub mod past;
pub mod sessions;
pub mod subscribers;

#[cfg(test)]
pub(crate) mod dump;
#[cfg(test)]
mod tests;

pub use self::{
    reader::{Command, Projection, View},
    writer::{BYTES_MAX, EVENTS_MAX, Progress, Writer},
};

/// Name of the file in the state folder.
pub const FILE_NAME: &str = "projection.db";

/// Result of a query.
pub type QueryResult<T> = rusqlite::Result<T>;

/// The result of a look-up of something that belongs to a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Looked<T> {
    /// It may be read.
    Found(T),
    /// It belongs to a session that may not be read.
    Withheld {
        /// The session.
        session: String,
    },
}

/// A failure of the projection.
#[derive(Debug, thiserror::Error)]
#[error("the projection cannot be {doing}: {source}")]
pub struct ProjectionError {
    /// The attempted operation.
    pub doing: &'static str,
    /// The error of SQLite or the system.
    pub source: Failed,
}

/// The source of the error.
#[derive(Debug, thiserror::Error)]
pub enum Failed {
    /// SQLite.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// The system.
    #[error(transparent)]
    Io(#[from] std::io::Error),
    /// The file has unexpected content.
    #[error("{0}")]
    Content(&'static str),
}

impl ProjectionError {
    /// Whether the file is corrupt, so that replacing it helps.
    pub fn is_damage(&self) -> bool {
        use rusqlite::ErrorCode;
        match &self.source {
            Failed::Sqlite(rusqlite::Error::SqliteFailure(error, _)) => {
                // A row that conflicts with another one was not written by this program.
                let is_content = error.code == ErrorCode::ConstraintViolation;
                is_content || matches!(error.code, ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase)
            }
            // A column or table differs from the schema.
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

/// Adds the operation to an error.
trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, ProjectionError>;
}

impl<T, E: Into<Failed>> Doing<T> for Result<T, E> {
    fn doing(self, doing: &'static str) -> Result<T, ProjectionError> {
        self.map_err(|source| ProjectionError { doing, source: source.into() })
    }
}
