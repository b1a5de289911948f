//! The one integration binary: every file beside this one is a module of it.
#![cfg(test)]

mod bounded;
mod clients;
mod config;
mod crash;
mod demo;
mod docs;
mod doctor;
mod flips;
mod git;
mod hook;
mod hostile;
mod identity;
mod install;
mod kill;
mod last_good;
mod metrics;
mod model;
mod pending;
mod probes;
mod producers;
mod real_client;
mod recovery;
mod reference;
mod scenario;
mod screens;
mod snapshots;
mod socket;
mod subscribers;
mod support;
mod templates;
mod tidy;
mod up;
mod upgrade;
mod wake;
mod walk;
