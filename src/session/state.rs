//! How a session's state is written in a snapshot.

use super::{SessionState, Wake, WakeKind};
use crate::snapshot::state;

state!(SessionState[
    Idle = 0,
    Streaming = 1,
    ToolPending = 2,
    ToolComplete = 3,
    Continuing = 4,
    Interrupted = 5,
]);
state!(WakeKind[StartTurn = 0, InjectAndContinue = 1, CancelAndRestart = 2]);
state!(Wake { kind, reason });
