//! Checks one condition of the machine: once, or until it is met.

use std::sync::Arc;

use engine::watch::condition::{Condition, host_of};

use super::{
    address::{self, Wanted},
    looked::{Look, LookError},
    path,
};
use crate::{
    capability::source::{folders::Folders, pause, process},
    harness::process::Process,
};

/// Checks a condition once, before its watch is set, and fills in the state that it needs after a
/// restart.
///
/// Shape: a condition that the engine waits for is not checked. Errors: the object of the condition
/// cannot be checked.
pub async fn look(condition: &Condition) -> Result<Look, LookError> {
    if let Condition::Exit { pid, started } = condition {
        return Ok(look_at_process(*pid, *started));
    }
    if condition.path().is_some() {
        return path::look(condition).await;
    }
    let met = match wanted(condition) {
        Some(wanted) => address::look(&wanted).await?,
        None => None,
    };
    Ok(met.map_or_else(|| Look::Open(condition.clone()), Look::Met))
}

fn look_at_process(pid: u32, started: Option<u64>) -> Look {
    match (process::running(pid), started) {
        (Some(found), started) if started.is_none_or(|started| started == found.started) => {
            Look::Open(Condition::Exit { pid, started: Some(found.started) })
        }
        (None, None) => Look::Met("no such process".to_owned()),
        (Some(_) | None, _) => Look::Met("it has ended".to_owned()),
    }
}

/// Waits until a condition is met, and returns the state as a text. Each successful check resets
/// `failures`.
pub(super) async fn until_met(
    condition: &Condition,
    folders: &Arc<Folders>,
    failures: &mut u32,
) -> Result<String, LookError> {
    if let Condition::Exit { pid, started } = condition {
        let started = started.ok_or_else(|| LookError::new("the start of the process is not known"))?;
        process::ended(Process { pid: *pid, started }, |_| ()).await;
        return Ok("it has ended".to_owned());
    }
    if condition.path().is_some() {
        return path::until_met(condition, folders, failures).await;
    }
    let wanted = wanted(condition).ok_or_else(|| LookError::new("nothing to check"))?;
    let rhythm = wanted.rhythm();
    let mut looks = 0;
    loop {
        let state = address::look(&wanted).await?;
        *failures = 0;
        if let Some(state) = state {
            return Ok(state);
        }
        pause(if looks < rhythm.looks_soon { rhythm.soon } else { rhythm.later }).await;
        looks += 1;
    }
}

fn wanted(condition: &Condition) -> Option<Wanted> {
    if let Condition::Port { host, port, open } = condition {
        return Some(Wanted::Port { host: host.clone(), port: *port, is_open: *open });
    }
    let Condition::Http { url, status } = condition else { return None };
    let (host, port) = host_of(url)?;
    Some(Wanted::Answer { host, port, url: url.clone(), status: *status })
}
