//! The route by which an event arrived; the trust in its source depends on it.

use strum::VariantArray;

/// How an event reached the daemon.
///
/// Source: the trust rules. The user's command line, harness adapters and aside itself are trusted.
/// The folds over aside's own events accept [`Self::Own`] only, since any producer can write a name.
/// Events from the network, a CloudEvent, a webhook, a file or another agent are trusted only if
/// the user names their source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, VariantArray)]
pub enum Provenance {
    /// Over the Unix socket, from a process of the daemon's user.
    #[default]
    Local,
    /// With a hook or an exchange, over the Unix socket: a harness's report about its own agent.
    Harness,
    /// Over TCP, or as a CloudEvent: the source that it names is unverified.
    Remote,
    /// Over the Unix socket, from a process of an agent: a message to another agent.
    Agent,
    /// Made by the daemon. No request can have it.
    Own,
    /// Made by the daemon, with text of others: a line of a log, the name of a file, a review. No
    /// request can have it.
    Quoted,
}

impl Provenance {
    /// Whether the daemon made the event.
    pub const fn is_of_daemon(self) -> bool {
        matches!(self, Self::Own | Self::Quoted)
    }
}
