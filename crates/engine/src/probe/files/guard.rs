//! Whether a call that would overwrite a change is deferred.

use strum::{IntoStaticStr, VariantArray};

impl_as_str!(Guard);

/// Whether calls are deferred.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Guard {
    /// No call is deferred.
    #[default]
    Off,
    /// A call that would overwrite a change unknown to the agent.
    Overwrite,
}
