//! aside notifies AI agents of events: events go into a durable journal, subscribers written in
//! TOML turn them into notifications, and the queue of each session releases these at the next safe
//! point of the agent's turn.
//!
//! The flow, in the words of the tree:
//!
//! ```text
//! event:     api | capability | harness -> engine::draft -> engine::records -> daemon::publisher
//!            -> journal -> daemon::event_loop -> engine::records -> engine -> matcher -> pipeline
//!            -> conversation (queue)
//! exchange:  harness (parse) -> probe -> engine::records -> journal -> daemon::event_loop -> engine
//!            -> conversation { acks, replay?, context, confirm, close due batches, offer,
//!                              fit (format, tokens), release } -> harness (reply)
//! ```
//!
//! One half decides, the other half moves bytes. The deciding half is synchronous, receives the
//! time as an input, and depends on nothing outside: the crate `engine`, and the first modules
//! below. The modules are in reading order; a layer uses only the layers before it, and
//! `tests/it/tidy/modules.rs` has the layer of each. `ARCHITECTURE.md` has the reasons.

// Decides, but for the sources and `trial` in their folders.
pub mod capability;
pub mod comparison;
pub mod config;
pub mod harness;

// Moves bytes.
pub mod api;
pub mod daemon;
pub mod history;

pub mod cli;
