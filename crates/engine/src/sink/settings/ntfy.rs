//! `[sinks.ntfy]`: an ntfy server.

use std::sync::Arc;

use crate::{
    settings::{Keys, Url, settings},
    watch::condition::is_here,
};

settings! {
    /// The server, and the topic at the end. `https://` needs a build with the feature `https`.
    url: Url, topic(), like "\"http://127.0.0.1:8080/my-topic\"";
    /// A file with an access token.
    token_file: Arc<str>, path(), like "\"/home/me/.config/aside/ntfy.token\"";
}

/// Warns of a token that is sent unencrypted.
pub(super) fn warn_of_open_token(settings: &Settings, keys: &mut impl Keys) {
    let is_open = |url: &Url| !url.is_secure && !is_here(&url.host);
    if settings.url.as_ref().is_some_and(is_open) && settings.token_file.is_some() {
        keys.warn("token_file", "the token is sent to another machine without encryption");
    }
}
