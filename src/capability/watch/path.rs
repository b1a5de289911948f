//! Files: whether they exist, changes of their content, and lines added to them.

use std::{
    fs, io, io::Read, ops::ControlFlow, os::unix::fs::MetadataExt, path::Path, sync::Arc, time::Duration,
};

use engine::{
    event::{cut_text, mask_secrets, strip_text, terminal_line},
    hash::first_64_bits,
    watch::Condition,
};
use regex::Regex;
use sha2::{Digest, Sha256};
use tokio::sync::Notify;

use super::looked::{Look, LookError};
use crate::capability::source::{
    folders::Folders,
    look::{LOOK_EVERY, LOOK_MAX, metadata, on_thread, open_file, watch_around},
    pause,
    tail::Tail,
};

/// Events within this time need only one look.
const SETTLES: Duration = Duration::from_millis(100);
/// Largest file whose content is compared, in bytes; a larger one is compared by inode, size and
/// time.
const CONTENT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest shown line, in characters.
const LINE_CHARS_SHOWN: usize = 200;

/// The result of a look.
enum Found {
    Met(String),
    /// `is_behind`: there is more to read.
    Open {
        is_behind: bool,
    },
}

/// Looks once, before a watch is set.
pub(super) async fn look(condition: &Condition) -> Result<Look, LookError> {
    let asked = condition.clone();
    on_thread(condition.path().unwrap_or_default(), LOOK_MAX, move || first_look(asked))
        .await
        .map_err(LookError::from)
}

/// Waits until a condition of a path is met. Each successful check resets `failures`.
pub(super) async fn until_met(
    condition: &Condition,
    folders: &Arc<Folders>,
    failures: &mut u32,
) -> Result<String, LookError> {
    let from = if let Condition::Line { from, .. } = condition { *from } else { None };
    let mut tail = Tail::after(from);
    let who = Arc::new(Notify::new());
    loop {
        let (asked, watched, waits) = (condition.clone(), Arc::clone(folders), Arc::clone(&who));
        let (found, kept) = on_thread(condition.path().unwrap_or_default(), LOOK_MAX, move || {
            watch_around(Path::new(asked.path().unwrap_or_default()), &watched, &waits);
            look_again(&asked, &mut tail).map(|found| (found, tail))
        })
        .await?;
        (tail, *failures) = (kept, 0);
        match found {
            Found::Met(state) => return Ok(state),
            Found::Open { is_behind: true } => continue,
            Found::Open { is_behind: false } => {}
        }
        tokio::select! {
            () = who.notified() => {}
            () = pause(LOOK_EVERY) => {}
        }
        pause(SETTLES).await;
    }
}

fn first_look(condition: Condition) -> io::Result<Look> {
    if let Condition::File { path, exists } = &condition {
        let (is_there, state) = presence(path)?;
        return Ok(if is_there == *exists { Look::Met(state) } else { Look::Open(condition) });
    }
    if let Condition::Change { path, since: _ } = condition {
        let since = content(&path)?;
        return Ok(Look::Open(Condition::Change { path, since }));
    }
    let Condition::Line { path, pattern, from: _ } = condition else { return Ok(Look::Open(condition)) };
    let from = Tail::at_end(&path)?.position();
    Ok(Look::Open(Condition::Line { path, pattern, from }))
}

fn look_again(condition: &Condition, tail: &mut Tail) -> io::Result<Found> {
    let open = Found::Open { is_behind: false };
    if let Condition::File { path, exists } = condition {
        let (is_there, state) = presence(path)?;
        return Ok(if is_there == *exists { Found::Met(state) } else { open });
    }
    if let Condition::Change { path, since } = condition {
        let state = match (since, content(path)?) {
            (before, now) if *before == now => return Ok(open),
            (None, _) => "it was created",
            (Some(_), None) => "it was removed",
            (Some(_), Some(_)) => "it has changed",
        };
        return Ok(Found::Met(state.to_owned()));
    }
    let Condition::Line { path, pattern, from: _ } = condition else { return Ok(open) };
    let pattern = Regex::new(pattern).map_err(io::Error::other)?;
    let mut met = None;
    let is_behind = tail.read(path, |line| {
        let text = terminal_line(line);
        if !pattern.is_match(&text) {
            return ControlFlow::Continue(());
        }
        met = Some(cut_text(mask_secrets(&strip_text(text.trim())), LINE_CHARS_SHOWN).into());
        ControlFlow::Break(())
    })?;
    Ok(met.map_or(Found::Open { is_behind }, Found::Met))
}

/// Whether something is at `path`, also in words.
fn presence(path: &str) -> io::Result<(bool, String)> {
    let is_there = metadata(path)?.is_some();
    Ok((is_there, if is_there { "it exists" } else { "it does not exist" }.to_owned()))
}

/// A text that identifies the content of a path; `None` if nothing exists there.
fn content(path: &str) -> io::Result<Option<String>> {
    let Some(found) = metadata(path)? else { return Ok(None) };
    let mut hash = Sha256::new();
    if found.is_dir() {
        let mut names: Vec<_> =
            fs::read_dir(path)?.filter_map(Result::ok).map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        for name in names {
            hash.update(name.as_encoded_bytes());
            hash.update([0]);
        }
    } else if found.is_file() && found.len() <= CONTENT_BYTES_MAX {
        let Some((file, _)) = open_file(path)? else { return Ok(None) };
        let mut bytes = Vec::new();
        file.take(CONTENT_BYTES_MAX).read_to_end(&mut bytes)?;
        hash.update(bytes);
    } else {
        let (seconds, nanos) = (found.mtime(), found.mtime_nsec());
        return Ok(Some(format!("{}:{}:{seconds}.{nanos}", found.ino(), found.len())));
    }
    Ok(Some(format!("{:016x}", first_64_bits(hash))))
}
