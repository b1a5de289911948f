//! Every session as one state machine: open, suspended, continued by another.
//!
//! A session has a queue ([`injector`]). A notification is in the queues of the sessions that its
//! scope concerns, or waits for one to open. [`Sessions`] applies inputs to sessions, and returns
//! [`SessionOutput`]s in order. It depends neither on pipelines nor on the text of an injection;
//! the engine calls it for each step of an exchange.
//!
//! Shape: internally a session is a [`SessionKey`]; the id in an input is resolved once.

pub mod injector;

mod answers;
mod budgets;
mod delivery;
mod dismissed;
mod ended;
mod exchange;
mod fanout;
mod for_user;
mod holds;
mod lifecycle;
mod naming;
mod region;
mod resolved_in;
mod retained;
mod session;
mod sessions;
mod standing;
mod table;
mod turns;
mod unclaimed;
mod unresolved;
mod waking;

#[cfg(test)]
mod tests;

pub use self::{
    delivery::Concerned,
    ended::EndedRules,
    exchange::Begun,
    fanout::{DIRECT_MAX, LOG_MAX, TAKEN_PER_TICK},
    holds::Suppressed,
    injector::{Received, Suppress},
    lifecycle::{Met, Suspension},
    naming::Named,
    region::RegionEntry,
    session::{InjectionSettings, PENDING_MAX, SessionKey, SessionSettings, SessionView, Settings},
    sessions::{SessionOutput, Sessions},
    turns::Passed,
};
pub(crate) use self::{fanout::Fanout, standing::Standing, table::Table, unclaimed::Unclaimed};
