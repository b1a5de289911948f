//! How the journal's other threads request work from the sealer thread.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Wakes the sealer thread.
#[derive(Debug, Default)]
pub(crate) struct MaintenanceSignal {
    state: Mutex<State>,
    wake: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_asked: bool,
    is_idle: bool,
    is_closing: bool,
}

impl MaintenanceSignal {
    /// Signals that there may be work.
    pub(crate) fn ask(&self) {
        self.lock().is_asked = true;
        self.wake.notify_all();
    }

    /// Makes the thread end.
    pub(crate) fn close(&self) {
        self.lock().is_closing = true;
        self.wake.notify_all();
    }

    /// Waits for work; returns false when the journal is closed.
    pub(crate) fn wait(&self) -> bool {
        let mut state = self.lock();
        state.is_idle = true;
        self.wake.notify_all();
        let is_calm = |state: &mut State| !state.is_asked && !state.is_closing;
        let mut state = self.wake.wait_while(state, is_calm).unwrap_or_else(PoisonError::into_inner);
        (state.is_asked, state.is_idle) = (false, false);
        !state.is_closing
    }

    /// Pauses for `duration`; returns whether to continue.
    pub(crate) fn pause(&self, duration: Duration) -> bool {
        let is_open = |state: &mut State| !state.is_closing;
        let waited = self.wake.wait_timeout_while(self.lock(), duration, is_open);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_closing
    }

    /// Waits until all work is done.
    #[cfg(test)]
    pub(crate) fn wait_until_idle(&self) {
        let is_busy = |state: &mut State| (state.is_asked || !state.is_idle) && !state.is_closing;
        drop(self.wake.wait_while(self.lock(), is_busy).unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
