//! Every session as one state machine: open, suspended, continued by another.
//!
//! A session has a queue ([`injector`]). A notification is in the queues of the sessions that its
//! scope concerns, or waits for one to open. [`Sessions`] applies inputs to sessions, and returns
//! [`SessionOutput`]s in order. It depends neither on pipelines nor on the text of an injection;
//! the engine calls it for each step of an exchange.
//!
//! Shape: internally a session is a [`SessionKey`]; the id in an input is resolved once.

pub mod injector;

mod arrival;
mod continuation;
mod delivery;
mod departures;
mod exchange;
mod fanout;
mod folders;
mod key;
mod namesakes;
mod naming;
mod offers;
mod pressure;
mod related;
mod remarks;
mod session;
mod sessions;
mod settings;
mod table;
mod turn;
mod turns;
mod unclaimed;
mod waking;

#[cfg(test)]
mod tests;

pub use self::{
    arrival::Met,
    delivery::Concerned,
    departures::Suspension,
    exchange::Begun,
    fanout::{DIRECT_MAX, LOG_MAX, TAKEN_PER_TICK},
    key::SessionKey,
    naming::Named,
    session::SessionView,
    sessions::{SessionOutput, Sessions},
    settings::{InjectionSettings, PENDING_MAX, SessionSettings, Settings},
    turns::Passed,
};
pub(crate) use self::{fanout::Fanout, table::Table, unclaimed::Unclaimed};
