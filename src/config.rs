//! The configuration: from the files of every layer to rules that cannot be wrong.
//!
//! Three stages, never mixed: `load` reads files into [`Sources`](layers::Sources), which are plain
//! data; `raw` holds what they say, with the place of every value; [`compile`](compile::compile)
//! makes rules and settings of it, and one report of everything that is wrong in any file. The rest
//! of the program sees only what was compiled. Nothing here knows where the folders are, or what
//! becomes of the rules.
//!
//! ```
//! use aside::config::{compile::compile, layers::Sources};
//!
//! let compiled = compile(&Sources::shipped(), &[]);
//! assert_eq!(compiled.report.to_string(), "");
//! ```

pub mod load;

pub mod layers;
pub mod shipped;

mod catalogue;
mod frames;
mod patterns;
mod protected;
mod raw;
mod unsupported;
mod values;

pub(crate) mod activation;
mod batching;
pub mod case;
pub mod daemon;
pub(crate) mod layout;
mod limits;
pub mod producers;
mod sinks;
mod sources;
mod subscriber;
pub mod webhooks;

pub mod compile;
pub mod last_good;
pub mod report;
