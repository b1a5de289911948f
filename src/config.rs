//! The configuration: turns the files of every layer into valid rules.
//!
//! It has three separate stages. `load` reads files into [`Sources`](layers::Sources), which are
//! plain data. `raw` keeps their contents with the place of every value.
//! [`compile`](compile::compile) makes rules and settings of them, and one report of every mistake
//! in any file. The rest of the program sees only the compiled result. Nothing here knows the path
//! of the user's folder or the use of the rules.
//!
//! ```
//! use aside::config::{compile::compile, layers::Sources};
//!
//! let compiled = compile(&Sources::shipped(), &[]);
//! assert_eq!(compiled.report.to_string(), "");
//! ```

pub mod described;
pub mod lints;
pub mod load;
pub mod reference;
pub mod scaffold;
pub mod trial;

pub mod layers;
pub mod text;
mod threshold;

mod absent;
mod budget;
mod catalogue;
pub mod lint_name;
mod raw;
mod values;

pub mod case;
pub mod daemon;
mod inhibit;
pub mod keys;
pub(crate) mod layout;
mod limits;
mod mute;
mod patterns;
pub mod producers;
mod reach;
mod repeat;
mod sinks;
mod subscriber;
mod subscribers;
pub mod webhooks;
pub mod workspace;

pub mod compile;
pub mod effective;
pub mod expected;
pub mod last_good;
pub mod listing;
pub mod report;
pub mod rule_place;
pub mod schema;
