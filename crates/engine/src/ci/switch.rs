//! The settings in `[sources.ci]`.

use crate::settings::{Switch, settings};

settings! {
    /// After an agent pushed, notifies it of the results of the checks of its commit, and of what
    /// others write in its pull request (`ci.**`, `pr.**`). `gh` asks for them over the network, after
    /// such a push and at no other time. `"auto"`: only if `gh` is logged in. `true`: a missing login
    /// is reported. `false`: never.
    enabled: Switch = Switch::Auto, switch();
    /// Most calls of `gh` in an hour, for all pushes together. A push causes at most 60.
    calls_per_hour: u32 = 200, number(1..=1_000);
}

impl Settings {
    /// Whether pushes are followed.
    pub fn is_on(&self) -> bool {
        self.enabled.into()
    }
}
