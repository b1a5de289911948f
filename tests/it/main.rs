//! The one integration binary: every file beside this one is a module of it.
#![cfg(test)]

mod config;
mod crash;
mod hostile;
mod model;
mod reference;
mod scenario;
mod subscribers;
mod support;
mod templates;
mod tidy;
