//! Confirms injections that are in the transcript of their session.
//!
//! After a hook is answered, the end of its transcript is searched for unconfirmed injections. No
//! hook waits for that. If the file cannot be read, the injections end as they do without a
//! transcript.

use std::{
    convert::Infallible,
    io::{self, Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
    time::Duration,
};

use engine::{exchange::InjectionId, ledger::ConfirmedBy, records::Records};
use tokio::sync::mpsc;

use crate::{
    api::{App, error::ApiError, naming::unconfirmed},
    daemon::{regular_file, tasks::run_blocking},
    harness::{self, Transcript},
};

/// Most transcripts that wait for a search; a search takes about a millisecond, and the session's
/// next hook makes up for a skipped one.
pub const TRANSCRIPTS_MAX: usize = 64;
/// How long a prompt waits for the search: a sixth of the time in which a hook must answer.
const SEARCH_MAX: Duration = Duration::from_millis(25);
/// How many bytes of a transcript's end are searched: the results of a batch of tools, which the
/// file has twice, and the text before them.
const TAIL_BYTES: u64 = 512 * 1024;

/// Searches transcripts until the daemon stops.
pub async fn look_for_injections(
    app: App,
    mut transcripts: mpsc::Receiver<Transcript>,
) -> Result<(), Infallible> {
    loop {
        let transcript = tokio::select! {
            Some(transcript) = transcripts.recv() => transcript,
            () = app.stopped() => return Ok(()),
        };
        if let Err(error) = look(&app, transcript).await {
            tracing::debug!(?error, "a transcript was not searched to the end");
        }
    }
}

/// Those of `unconfirmed` that are in the end of the transcript at `path`.
///
/// A prompt waits for this: what it finds is not delivered again with the prompt. If the file
/// cannot be read in time, nothing is found.
pub(crate) async fn seen_before(path: &str, unconfirmed: Vec<InjectionId>) -> Vec<InjectionId> {
    let (path, own) = (path.to_owned(), rustix::process::geteuid().as_raw());
    let searched = run_blocking(move || {
        read_tail(&path, own).map(|tail| harness::ids_in(&tail, &unconfirmed)).unwrap_or_default()
    });
    tokio::time::timeout(SEARCH_MAX, searched).await.ok().and_then(Result::ok).unwrap_or_default()
}

async fn look(app: &App, transcript: Transcript) -> Result<(), ApiError> {
    let Transcript { session, path } = transcript;
    let unconfirmed = unconfirmed(app, &session).await?;
    if unconfirmed.is_empty() {
        return Ok(());
    }
    let own = rustix::process::geteuid().as_raw();
    let searched = run_blocking(move || {
        let tail = read_tail(&path, own)?;
        Ok::<_, io::Error>(harness::ids_in(&tail, &unconfirmed))
    });
    let seen = match searched.await {
        Ok(Ok(seen)) => seen,
        Ok(Err(error)) => {
            tracing::debug!(%session, %error, "a transcript cannot be read");
            return Ok(());
        }
        // The daemon stops.
        Err(_) => return Ok(()),
    };
    app.append(Records::build(|records| records.acks(&session, &seen, ConfirmedBy::Seen))).await
}

/// Reads the end of a regular file of the user `own`.
fn read_tail(path: &str, own: u32) -> io::Result<Vec<u8>> {
    let (mut file, found) = regular_file::open(Path::new(path))?;
    if found.uid() != own {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a file of this user"));
    }
    file.seek(SeekFrom::Start(found.len().saturating_sub(TAIL_BYTES)))?;
    let mut tail = Vec::new();
    file.take(TAIL_BYTES).read_to_end(&mut tail)?;
    Ok(tail)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[tokio::test]
    async fn a_prompt_finds_ids_in_a_readable_transcript() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("t.jsonl").to_string_lossy().into_owned();
        let ids = ["7fq2kd", "abcdef"].map(InjectionId::new);
        assert!(seen_before(&path, ids.to_vec()).await.is_empty(), "there is no file");
        fs::write(&path, r#"{"content":"<notifications id=\"abcdef\">"}"#).expect("written");
        assert_eq!(seen_before(&path, ids.to_vec()).await, [InjectionId::new("abcdef")]);
    }

    #[test]
    fn only_tail_of_own_regular_file_is_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
        let own = rustix::process::geteuid().as_raw();
        let length = usize::try_from(TAIL_BYTES).expect("small");
        fs::write(path("long"), [b"begin ".as_slice(), &vec![b'x'; length]].concat()).expect("written");
        fs::write(path("short"), "begin").expect("written");
        assert_eq!(read_tail(&path("long"), own).expect("readable"), vec![b'x'; length]);
        assert_eq!(read_tail(&path("short"), own).expect("readable"), b"begin");
        drop(std::os::unix::net::UnixListener::bind(path("socket")).expect("bound"));
        for name in ["socket", "absent", "."] {
            assert!(read_tail(&path(name), own).is_err(), "{name}");
        }
        assert!(read_tail(&path("short"), own + 1).is_err());
    }
}
