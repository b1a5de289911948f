//! The settings in `[sources.ci]`.

use crate::settings::{Keys, Switch};

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether it is on.
    pub enabled: bool,
    /// Whether it is silent if `gh` is not installed or not logged in; otherwise it reports this.
    pub is_auto: bool,
    /// Most calls of `gh` an hour, for all pushes together.
    pub calls_per_hour: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { enabled: true, is_auto: true, calls_per_hour: 200 }
    }
}

impl Settings {
    /// Reads the table.
    pub fn read(keys: &mut impl Keys) -> Self {
        let default = Self::default();
        let switch = keys.switch("enabled").unwrap_or(Switch::Auto);
        Self {
            enabled: switch != Switch::Off,
            is_auto: switch == Switch::Auto,
            calls_per_hour: keys.number("calls_per_hour", 1..=1_000).unwrap_or(default.calls_per_hour),
        }
    }
}
