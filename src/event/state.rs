//! How events and what they name are written in a snapshot.

use super::{
    Event, Scope, Seq, Severity,
    codec::{self, IdOrigin},
};
use crate::snapshot::{Damaged, Reader, Shared, State, Writer, state};

state!(Seq);
state!(Severity[Debug = 0, Info = 1, Warning = 2, Error = 3, Critical = 4]);
state!(Scope[Session(id) = 0, Workspace(folder) = 1, All = 2]);

/// An event stands in a snapshot as it stands in the journal.
impl State for Event {
    fn write(&self, to: &mut Writer) {
        let mut body = Vec::new();
        codec::encode(&self.as_ref(), IdOrigin::Producer, &mut body);
        to.block(&body);
    }

    fn read(from: &mut Reader<'_>) -> Result<Self, Damaged> {
        let damaged = from.damaged("an event");
        codec::decode(from.block()?).map(|event| event.to_event()).map_err(|_| damaged)
    }
}

impl Shared for Event {}
