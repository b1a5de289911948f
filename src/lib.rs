//! aside notifies AI agents of events: events go into a durable journal, subscribers written in
//! TOML turn them into notifications, and the queue of each session releases these at the next safe
//! point of the agent's turn.
//!
//! The flow, in the words of the tree:
//!
//! ```text
//! event:     server | source | harness | probe -> wire -> publisher -> journal -> event_loop
//!            -> records -> engine -> matcher -> pipeline -> conversation (queue)
//! exchange:  harness (parse) -> probe -> records -> journal -> event_loop -> engine
//!            -> conversation { acks, replay?, context, confirm, close due batches, offer,
//!                              fit (format, tokens), release } -> harness (reply)
//! ```
//!
//! One half decides, the other half moves bytes. The deciding half is synchronous, receives the
//! time as an input, and depends on nothing outside: the crate `engine`, and the first modules
//! below. The modules are in reading order; a layer uses only the layers before it.
//! `ARCHITECTURE.md` has the reasons.

// Decides: independent parts, for the sources and the server. Only `lsp` uses another one:
// `problem`.
pub mod log;
pub mod lsp;
pub mod paths;
pub mod problem;
pub mod schedule;
pub mod shell;
pub mod webhook;

// Decides: the configuration, and the formats of the engine's inputs and outputs.
pub mod config;
pub mod harness;
pub mod outside;
pub mod records;
pub mod wire;

// Decides: dry runs of a configuration.
pub mod trial;

// Moves bytes.
pub mod causes;
pub mod daemon;
mod produced;
pub mod program;
pub mod projection;
pub mod publisher;
pub mod regular_file;
pub mod server;
pub mod source;
pub mod version;

pub mod cli;
