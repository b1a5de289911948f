//! How what a session knows and was answered is written in a snapshot.

use super::{Answer, Directive, Harness, Injection, InjectionId, Released, Role};
use crate::snapshot::state;

state!(InjectionId);
state!(Harness { name, version, workspace, user, pid, parent });
state!(Answer { injection, pending, check_before_tool, directive, notice });
state!(Injection { id, text, role, notifications });
state!(Released { id, subscriber, priority, severity, redelivered });
state!(Role[Tool = 0, User = 1, System = 2]);
state!(Directive[Continue { reason } = 0, Cancel { reason } = 1]);
