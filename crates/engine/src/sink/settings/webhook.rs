//! `[sinks.webhook]`: a server that receives signed webhooks.

use std::sync::Arc;

use crate::settings::{Url, settings};

settings! {
    /// The receiver of webhooks, which are signed as Standard Webhooks defines. `https://` needs a
    /// build with the feature `https`.
    url: Url, url(), like "\"http://127.0.0.1:8080/aside\"";
    /// A file with the signing secret in base64, with or without `whsec_` before it.
    secret_file: Arc<str>, path(), like "\"/home/me/.config/aside/webhook.secret\"";
}
