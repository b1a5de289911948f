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
//! time as an input, and depends on nothing outside. The modules below are in reading order; a
//! layer uses only the layers before it. `ARCHITECTURE.md` has the reasons.

// Decides: basic types.
#[macro_use]
pub mod words;

pub mod hash;
pub mod hex;
pub mod name;
pub mod nearest;
pub mod raw_json;
pub mod settings;
pub mod snapshot;
pub mod version;

pub mod call;
pub mod event;
pub mod exchange;
pub mod json;
pub mod ledger;
pub mod notification;
pub mod rate;
pub mod session;
pub mod transcript;

// Decides: independent parts, for the engine, the sources and the server. Only `lsp` uses another
// one: `problem`.
pub mod ci;
pub mod conversation;
pub mod detector;
pub mod format;
pub mod log;
pub mod lsp;
pub mod matcher;
pub mod paths;
pub mod pipeline;
pub mod probe;
pub mod problem;
pub mod schedule;
pub mod shell;
pub mod sink;
pub mod throttle;
pub mod watch;
pub mod webhook;

// Decides: the whole engine, and the formats of its inputs and outputs.
pub mod config;
pub mod engine;
pub mod harness;
pub mod outside;
pub mod records;
pub mod rules;
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

pub mod cli;
pub mod client;
