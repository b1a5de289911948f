//! aside tells AI agents what happened: events go onto a durable journal, subscribers written in TOML make notifications of
//! them, and each session's queue releases those at the next safe point of the agent's turn.
//!
//! The flow, in the words of the tree:
//!
//! ```text
//! harness/ server/ -> event/ -> publisher.rs -> journal/ -> engine.rs [ matcher -> pipeline/: filter -> dedupe -> batch -> limit -> supersede -> render
//!                 -> notification.rs -> conversation/: queue -> budget -> point -> format/ ] -> harness/ -> server/ -> the agent
//! ```
//!
//! Half of it decides and half moves bytes. What decides is synchronous, is told the time, and depends on nothing outside; the
//! layers below are in reading order, and a module uses only those above it. `ARCHITECTURE.md` says why.

// Decides: words.
pub mod hex;
pub mod meter;
pub mod name;
pub mod nearest;
pub mod settings;
pub mod snapshot;
pub mod time;

pub mod call;
pub mod event;
pub mod exchange;
pub mod ledger;
pub mod notification;
pub mod session;
pub mod tokens;
pub mod toon;
pub mod transcript;

// Decides: the parts of the engine, which do not know each other.
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
pub mod watch;
pub mod webhook;

// Decides: the whole; and describes what comes in and goes out.
pub mod config;
pub mod engine;
pub mod harness;
pub mod records;
pub mod wire;

// Decides: what becomes of configuration when it is tried.
pub mod trial;

// Moves.
pub mod background;
pub mod causes;
pub mod daemon;
pub mod journal;
pub mod projection;
pub mod publisher;
pub mod server;
pub mod source;

pub mod cli;
pub mod client;
