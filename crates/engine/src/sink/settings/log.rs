//! `[sinks.log]`: a file of JSON lines.

use std::sync::Arc;

use crate::settings::settings;

// The smallest log holds some dozen notices; an editor still opens the largest one.
settings! {
    /// The file; without this key, `notices.jsonl` in the state folder.
    path: Arc<str>, path(), like "\"/home/me/notices.jsonl\"";
    /// The size at which a new file begins. The previous one is kept with the suffix `.1`.
    max_bytes: u64 = 1024 * 1024, bytes(64 * 1024..=256 * 1024 * 1024);
}
