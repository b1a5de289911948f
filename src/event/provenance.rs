//! The route by which an event arrived; the trust in its source depends on it.

use strum::VariantArray;

/// How an event reached the daemon.
///
/// Source: the trust rules. The user's command line, harness adapters and aside itself are trusted.
/// Events from the network, a CloudEvent, a webhook, a file or another agent are trusted only if
/// the user names their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, VariantArray)]
pub enum Provenance {
    /// Over the Unix socket, from a process of the daemon's user, or from the daemon itself.
    #[default]
    Local,
    /// With a hook or an exchange, over the Unix socket: a harness's report about its own agent.
    Harness,
    /// Over TCP, or as a CloudEvent: the source that it names is unverified.
    Remote,
    /// Over the Unix socket, from a process of an agent: a message to another agent.
    Agent,
}
