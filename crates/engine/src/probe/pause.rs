//! The time since a session was last active. There is one finding at the user's first prompt after
//! a pause; if that look times out, at the next look that completes in time. It has the length of
//! the pause, the current time, and the changes since.

use std::time::Duration;

use serde_json::{Map, Value};

use super::{Finding, Moment, Pushed, facts::shown_path};
use journal::time::{Timestamp, short_duration};

use crate::{event::Severity, settings::settings};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const PATHS_SHOWN_MAX: usize = 5;
/// The type of the finding.
pub const PAUSE_ENDED: &str = "agent.pause.ended";

/// Field with the outcome of checks; if it is set, other notifications about them are withdrawn.
pub const CHECKS: &str = "ci";

settings! {
    /// Notifies an agent, at the next prompt of its user, that time has passed and what changed in
    /// the meantime (`agent.pause.ended`).
    enabled: bool = true, flag();
    /// The shortest pause that is reported.
    gap: Duration = Duration::from_secs(30 * 60), duration(Duration::from_secs(60)..=30 * DAY);
}

/// Combines `findings` into one if they come after a pause; otherwise they stay unchanged.
///
/// Shape: the duration, the local time, the changes of the repository, the changed files, and the
/// outcome of the checks of `pushed`: at most five fields.
pub(super) fn sum_up(
    findings: Vec<Finding>,
    moment: &Moment<'_>,
    pushed: &[Pushed],
    settings: &Settings,
) -> Vec<Finding> {
    let is_pause = |heard_at: &Timestamp| moment.now.since(*heard_at) >= settings.gap;
    let Some(heard_at) = moment.prompt_after.filter(is_pause).filter(|_| settings.enabled) else {
        return findings;
    };
    let gap = moment.now.since(heard_at);
    let mut payload = Map::new();
    payload.insert("after".to_owned(), Value::from(short_duration(gap)));
    payload.insert("now".to_owned(), Value::from(moment.now.local(moment.utc_offset)));
    let (mut files, mut more, mut rest) = (Vec::new(), 0, Vec::new());
    for finding in findings {
        let text = |key: &str| finding.payload.get(key).and_then(Value::as_str);
        let list = |key: &str| finding.payload.get(key).and_then(Value::as_array).into_iter().flatten();
        if finding.event_type.starts_with("fs.known.") {
            let what = if text("kind") == Some("modified") {
                String::new()
            } else {
                format!(" ({})", text("kind").unwrap_or_default())
            };
            files.push(format!("{}{what}", text("path").unwrap_or_default()));
        } else if let Some(line) = text("said") {
            let before = payload.get("git").and_then(Value::as_str).map(|before| format!("{before}; "));
            payload.insert("git".to_owned(), Value::from(before.unwrap_or_default() + line));
            files.extend(list("changed_that_you_read").filter_map(Value::as_str).map(str::to_owned));
            more += finding.payload.get("more").and_then(Value::as_u64).unwrap_or(0);
        } else {
            rest.push(finding);
        }
    }
    more += u64::try_from(files.len().saturating_sub(PATHS_SHOWN_MAX)).unwrap_or(u64::MAX);
    files.truncate(PATHS_SHOWN_MAX);
    if !files.is_empty() {
        let more = (more > 0).then(|| format!("+{more}"));
        let shown = files.into_iter().chain(more).collect::<Vec<_>>().join(", ");
        payload.insert("changed_that_you_read".to_owned(), Value::from(shown));
    }
    let checks: Vec<String> = pushed.iter().filter(|pushed| pushed.at > heard_at).map(shown_checks).collect();
    if !checks.is_empty() {
        payload.insert(CHECKS.to_owned(), Value::from(checks.join("; ")));
    }
    let name = heard_at.as_millis().to_string();
    let ended =
        Finding { event_type: PAUSE_ENDED, severity: Severity::Info, name, payload: Value::Object(payload) };
    std::iter::once(ended).chain(rest).collect()
}

/// A text such as `fix-cart: 2 of 6 checks failed`.
fn shown_checks(pushed: &Pushed) -> String {
    let branch = pushed.branch.as_deref().map(|branch| format!("{}: ", shown_path(branch)));
    branch.unwrap_or_default() + &shown_path(&pushed.ended)
}
