//! How an event arrived, which decides how far its source is trusted.

/// How an event reached the daemon.
///
/// Source: the trust rules. The user's command line, harness adapters and aside itself are trusted.
/// Events from the network, a CloudEvent, a webhook, a file or another agent are trusted only if
/// the user names their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Provenance {
    /// Over the Unix socket, from a process of the daemon's user, or from the daemon itself.
    #[default]
    Local,
    /// With a hook or an exchange, over the Unix socket: what a harness saw its own agent do.
    Harness,
    /// Over TCP, or as a CloudEvent: anybody may have written it, whatever source it names.
    Remote,
}

impl Provenance {
    /// All of them, in the order of their numbers in a record.
    pub const ALL: [Self; 3] = [Self::Local, Self::Harness, Self::Remote];
}
