//! The journal on the disk: files, records in segments, reading, scanning and recovery.

pub(crate) mod cursor;
pub(crate) mod damaged;
pub mod files;
pub(crate) mod idempotency;
pub(crate) mod mark;
pub mod memory;
pub(crate) mod names;
pub(crate) mod reader;
pub mod record;
pub(crate) mod recover;
pub(crate) mod sealed;
pub(crate) mod segment;
pub(crate) mod segment_file;
pub(crate) mod store;
