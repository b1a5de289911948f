//! Whether a call that would overwrite a change is deferred.

/// Whether calls are deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guard {
    /// No call is deferred.
    #[default]
    Off,
    /// A call that would overwrite a change unknown to the agent.
    Overwrite,
}

impl Guard {
    /// All values.
    pub const ALL: [Self; 2] = [Self::Off, Self::Overwrite];

    /// Its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Overwrite => "overwrite",
        }
    }
}
