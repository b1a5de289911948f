//! Filters that depend on the notification: `ago` on the time at which its batch closed, `relpath`
//! on the folder of its events.

use std::sync::Arc;

use journal::time::{Timestamp, short_duration};
use minijinja::{Environment, Error, State, value::Value};

use super::filters::expanded_value;
use crate::pipeline::{
    row::Row,
    sandbox::{
        account::{account, weigh},
        formats::{is_absent, text, time},
    },
};

/// The names of the filters.
pub(super) const AGO: &str = "ago";
pub(super) const RELPATH: &str = "relpath";
pub(super) const NAMES: [&str; 2] = [AGO, RELPATH];
/// Variables that they read; they are not valid names in a source.
pub(super) const NOW: &str = "@now";
pub(super) const FOLDER: &str = "@folder";

/// Adds the filters to `environment`.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter(AGO, ago);
    environment.add_filter(RELPATH, relpath);
}

/// The folder that all events have; `None` if there is none.
pub(super) fn folder(rows: &[Row]) -> Option<Arc<str>> {
    let (first, rest) = rows.split_first()?;
    let folder = first.event.workspace.as_ref()?;
    rest.iter().all(|row| row.event.workspace.as_ref() == Some(folder)).then(|| Arc::clone(folder))
}

/// The time since another one: `4m ago`, or `in 4m` for a later one.
fn ago(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    weigh(&*account(state)?, value)?;
    let now = state.lookup(NOW).and_then(|now| u64::try_from(now).ok()).unwrap_or_default();
    let at = time(AGO, &expanded_value(state, value)?)?.as_millisecond();
    let since = i128::from(now) - i128::from(at);
    let apart = Timestamp::from_millis(u64::try_from(since.unsigned_abs()).unwrap_or(u64::MAX));
    let apart = short_duration(apart.since(Timestamp::ZERO));
    Ok(if since < 0 { format!("in {apart}") } else { format!("{apart} ago") }.into())
}

/// A path below the folder without it; any other path as it is.
fn relpath(state: &mut State<'_, '_>, value: &Value) -> Result<Value, Error> {
    if is_absent(value) {
        return Ok(value.clone());
    }
    weigh(&*account(state)?, value)?;
    let value = expanded_value(state, value)?;
    let path = text(RELPATH, &value)?;
    let folder = state.lookup(FOLDER);
    let folder = folder.as_ref().and_then(Value::as_str).map(|folder| folder.trim_end_matches('/'));
    let below = folder.and_then(|folder| path.strip_prefix(folder));
    Ok(match below {
        Some("" | "/") => ".".into(),
        Some(below) => below.strip_prefix('/').unwrap_or(&path).into(),
        None => path.into_owned().into(),
    })
}
