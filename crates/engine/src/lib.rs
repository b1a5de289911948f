//! The half of aside that decides, as one pure fold over a journal's records.
//!
//! [`Engine::handle`] takes an input with the time of its record. [`Engine::poll_output`] returns
//! what has to be done, and [`Engine::poll_timeout`] when the engine wants to be called again. There
//! is no clock, file, socket or thread here: the same inputs give the same outputs. So a live
//! daemon, the start after a crash, the tests in a subscriber's file and a simulation run the same
//! code.
//!
//! ```
//! use std::{iter, sync::Arc};
//!
//! use aside_engine::{
//!     Engine, Input, Output, RequestId,
//!     event::{Seq, SessionId},
//!     exchange::{Exchange, Release},
//!     notification::InjectionPoint,
//!     rules::CompiledRules,
//! };
//! use journal::time::Timestamp;
//!
//! let mut engine = Engine::new(Arc::new(CompiledRules::none()));
//! let exchange = Exchange::new(SessionId::new("s1"), InjectionPoint::TurnStart, "message-1");
//! let input = Input::Exchange {
//!     seq: Seq(1),
//!     request: RequestId(7),
//!     exchange: Box::new(exchange),
//!     release: Release::Decide,
//! };
//! engine.handle(input, Timestamp::from_millis(1_000));
//! let answers = iter::from_fn(|| engine.poll_output())
//!     .filter(|output| matches!(output, Output::Answer { request: RequestId(7), .. }));
//! assert_eq!(answers.count(), 1);
//! ```
//!
//! The modules are in reading order; a layer uses only the layers before it.

// Basic types.
#[macro_use]
pub mod words;

pub mod hash;
pub mod hex;
pub mod name;
pub mod nearest;
pub mod raw_json;
pub mod settings;
pub mod snapshot;
pub mod sorted;

pub mod budget;
pub mod call;
pub mod event;
pub mod exchange;
pub mod fold;
pub mod hold;
pub mod json;
pub mod ledger;
pub mod notification;
pub mod rate;
pub mod request;
pub mod session;
pub mod transcript;

// Independent parts.
pub mod ci;
pub mod conversation;
pub mod detector;
pub mod format;
pub mod matcher;
pub mod pipeline;
pub mod probe;
pub mod region;
pub mod sink;
pub mod throttle;
pub mod user;
pub mod watch;

// The whole.
pub mod draft;
mod engine;
pub mod notes;
pub mod records;
pub mod rules;

pub use self::engine::{
    Delivery, Echoes, Engine, Explanation, Fate, Inhibitor, Input, Outcome, Output, Pending, RequestId,
    SILENCE_ENDED, SUBSCRIBER_FAILED, Saved, SessionChange, SubscriberOutcome, Taker, Verdict, WakeReason,
    io,
};
