//! Code that several tests share.

pub(crate) mod daemon;
pub(crate) mod drawn;
pub(crate) mod drive;
pub(crate) mod each;
pub(crate) mod event_loop;
pub(crate) mod generations;
pub(crate) mod mounts;
pub(crate) mod random;
pub(crate) mod restored;
pub(crate) mod rules;
pub(crate) mod strace;
pub(crate) mod written;
