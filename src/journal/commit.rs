//! How a batch gets into the log and onto the disk: admitted, written by the leader of a group, and synced for all of it.
//!
//! `leader` decides who writes, `writer` puts records into segments, and `sync` makes them durable. A leader may have to sync what
//! its group waits for: `sync` hands it that as a duty, and whoever drops one undone leaves it to the flusher's thread.

pub(crate) mod admission;
pub(crate) mod append;
pub(crate) mod leader;
pub(crate) mod next_file;
pub(crate) mod preface;
pub(crate) mod role;
pub(crate) mod sync;
pub(crate) mod writer;
