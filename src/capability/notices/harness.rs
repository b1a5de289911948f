//! The line that a session's hook shows; the engine delivers it with the answer to the hook.

use engine::notification::Sink;
use futures_util::{FutureExt, future::ready};

use super::kind::{Kind, TRY_MAX, never};

pub(super) const KIND: Kind = Kind {
    sink: Sink::Harness,
    waits_for_choice: false,
    limit: |_, _, _| TRY_MAX,
    check: |_, _| ready(Ok("the line that the next hook of the session shows".to_owned())).boxed(),
    send: |_| ready(never("no hook can show it".to_owned())).boxed(),
};
