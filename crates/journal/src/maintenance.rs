//! Maintenance of files, mostly in the background: sealing, retention, copies, verification and
//! repair.

pub(crate) mod namer;
pub(crate) mod pinned;
pub(crate) mod repair;
pub(crate) mod sealer;
pub(crate) mod verify;
