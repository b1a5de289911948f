//! What several tests share, and nothing else.

pub(crate) mod drive;
pub(crate) mod generations;
pub(crate) mod written;
