//! By which way an event came in, which says how far its source can be believed.

/// The way by which an event reached the daemon.
///
/// Source: semantics of trust: the command line of the user, harness adapters and aside itself are believed; what came over the
/// network, as a CloudEvent, from a webhook, a file or another agent is believed only if the user names its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Provenance {
    /// Over the Unix socket, from a process of the daemon's user, or from the daemon itself.
    #[default]
    Local,
    /// With a hook or an exchange, over the Unix socket: what a harness saw its own agent do.
    Harness,
    /// Over TCP, or as a CloudEvent: anybody can have written it, whatever source it names.
    Remote,
}

impl Provenance {
    /// All of them, in the order of their numbers in a record.
    pub const ALL: [Self; 3] = [Self::Local, Self::Harness, Self::Remote];
}
