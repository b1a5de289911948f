//! The versioned JSON of the API, and validation of input.
//!
//! All external input is parsed here, once, into valid types; an error names the field and, for a
//! misspelt word, the nearest valid one. The engine's output becomes JSON here. This module uses no
//! sockets, HTTP, files or clock: a caller passes the time and creates the ids.

pub mod clients;
pub mod error;
pub mod event;
pub mod exchange;
pub mod harness;
pub mod history;
pub mod inbox;
pub mod instructions;
pub mod matching;
pub mod notify;
pub mod publish;
pub mod questions;
pub mod sources;
pub mod views;
pub mod watches;
pub mod webhooks;
