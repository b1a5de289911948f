//! How a batch reaches the disk: admission, writing by a group's leader, and one sync for the
//! group.
//!
//! `leader` decides which thread writes, `writer` puts records into segments, and `sync` makes them
//! durable. `sync` may give a leader the duty to sync for its group. If the duty is dropped before
//! it is done, the flusher thread takes it.

pub(crate) mod append;
pub(crate) mod leader;
pub(crate) mod next_file;
pub(crate) mod sync;
pub(crate) mod writer;
