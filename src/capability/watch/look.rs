//! Checks one condition of the machine, once or until it is met: a process, a port or server, a file.

use std::{
    fs,
    io::{self, Read},
    ops::ControlFlow,
    os::unix::fs::MetadataExt,
    path::Path,
    pin::pin,
    sync::Arc,
    time::Duration,
};

use engine::{
    event::{cut_text, mask_secrets, strip_text, terminal_line},
    hash::first_64_bits,
    watch::{
        Condition,
        condition::{addresses, host_of},
    },
};
use hyper::{Request, client::conn::http1::handshake, header};
use hyper_util::rt::TokioIo;
use regex::Regex;
use sha2::{Digest, Sha256};
use tokio::{
    net::{TcpStream, ToSocketAddrs},
    sync::Notify,
    time::timeout,
};

use crate::{
    capability::source::{
        files::{Folders, LOOK_EVERY, LOOK_MAX, metadata, on_thread, open_file, watch_around},
        pause, process,
        tail::Tail,
    },
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
        return look_at_file(condition).await;
    }
    let met = match wanted(condition) {
        Some(wanted) => look_at_address(&wanted).await?,
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
        return until_file_met(condition, folders, failures).await;
    }
    let wanted = wanted(condition).ok_or_else(|| LookError::new("nothing to check"))?;
    let rhythm = wanted.rhythm();
    let mut looks = 0;
    loop {
        let state = look_at_address(&wanted).await?;
        *failures = 0;
        if let Some(state) = state {
            return Ok(state);
        }
        pause(if looks < rhythm.looks_soon { rhythm.soon } else { rhythm.later }).await;
        looks += 1;
    }
}

fn wanted(condition: &Condition) -> Option<AddressState> {
    if let Condition::Port { host, port, open } = condition {
        return Some(AddressState::Port { host: host.clone(), port: *port, is_open: *open });
    }
    let Condition::Http { url, status } = condition else { return None };
    let (host, port) = host_of(url)?;
    Some(AddressState::Answer { host, port, url: url.clone(), status: *status })
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Look {
    /// The condition is met; the state as a text.
    Met(String),
    /// It is not met; the condition with everything that is needed to wait for it.
    Open(Condition),
}

/// Why a condition cannot be checked.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LookError(String);

impl From<io::Error> for LookError {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl LookError {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Time limit of a connection.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// Time limit of an answer.
const ANSWER_MAX: Duration = Duration::from_secs(5);
/// The lowest status of an error.
const STATUS_BAD: u16 = 400;

/// The errors of a port on which nothing listens.
const NOBODY: [io::ErrorKind; 2] = [io::ErrorKind::ConnectionRefused, io::ErrorKind::ConnectionReset];
/// The errors of a host that does not answer, so that its ports are not known.
const NO_ANSWER: [io::ErrorKind; 3] =
    [io::ErrorKind::TimedOut, io::ErrorKind::HostUnreachable, io::ErrorKind::NetworkUnreachable];

/// The state that a watch waits for.
#[derive(Debug, Clone)]
pub(super) enum AddressState {
    /// A port is open, or closed.
    Port { host: String, port: u16, is_open: bool },
    /// A server answers with a status.
    Answer { host: String, port: u16, url: String, status: Option<u16> },
}

/// The poll interval: short at first, then longer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    pub(super) soon: Duration,
    /// The number of first intervals: about a minute of them.
    pub(super) looks_soon: u32,
    pub(super) later: Duration,
}

impl AddressState {
    /// An answer costs its server more work than a port, so it is polled less often.
    pub(super) const fn rhythm(&self) -> Rhythm {
        let seconds = Duration::from_secs;
        match self {
            Self::Port { .. } => Rhythm { soon: seconds(1), looks_soon: 60, later: seconds(5) },
            Self::Answer { .. } => Rhythm { soon: seconds(2), looks_soon: 30, later: seconds(15) },
        }
    }
}

/// Connects once to a port or a server, without credentials, and closes the connection; redirects are
/// not followed. Returns the state as a text, if it is the wanted one.
///
/// Errors: the host has no address, this process can open no connection, or a port that should be
/// closed is at a host that does not answer.
async fn look_at_address(wanted: &AddressState) -> Result<Option<String>, LookError> {
    match wanted {
        AddressState::Port { host, port, is_open } => {
            let found = connect(host, *port).await.map(|connections| !connections.is_empty());
            Ok(port_state(found, *is_open)?.map(str::to_owned))
        }
        AddressState::Answer { host, port, url, status } => {
            let is_meant = |found: &u16| status.map_or(*found < STATUS_BAD, |wanted| wanted == *found);
            let connections = match connect(host, *port).await {
                Err(error) if NO_ANSWER.contains(&error.kind()) => Vec::new(),
                connections => connections?,
            };
            for connection in connections {
                // A broken connection, or one without HTTP, has not answered yet.
                let found = timeout(ANSWER_MAX, ask(connection, url)).await.ok().and_then(Result::ok);
                if let Some(found) = found.filter(is_meant) {
                    return Ok(Some(format!("it answers {found}")));
                }
            }
            Ok(None)
        }
    }
}

/// The state of a port, if it is the wanted one; `found` is whether a process listens.
///
/// Errors: those of `found`. That a host does not answer is one only if the port should be closed,
/// as a process may listen there.
fn port_state(found: io::Result<bool>, is_open: bool) -> io::Result<Option<&'static str>> {
    let is_there = match found {
        Err(error) if is_open && NO_ANSWER.contains(&error.kind()) => false,
        found => found?,
    };
    let state = if is_there { "a process listens" } else { "no process listens" };
    Ok((is_there == is_open).then_some(state))
}

/// Connects to each address of the host on which a process listens.
///
/// Errors: a name has no address, the host does not answer, or this process can open no connection
/// to any.
async fn connect(host: &str, port: u16) -> io::Result<Vec<TcpStream>> {
    let addresses = addresses(host);
    if addresses.is_empty() {
        return Ok(connect_to((host, port)).await?.into_iter().collect());
    }
    let (mut open, mut failed) = (Vec::new(), Vec::new());
    for address in addresses {
        match connect_to((*address, port)).await {
            Ok(connection) => open.extend(connection),
            Err(error) => failed.push(error),
        }
    }
    // A machine may have one of the two alone; but behind silence a process may listen.
    let is_known = failed.len() < addresses.len();
    let silent = |error: &io::Error| !is_known || NO_ANSWER.contains(&error.kind());
    match failed.into_iter().find(silent).filter(|_| open.is_empty()) {
        Some(error) => Err(error),
        None => Ok(open),
    }
}

/// Connects; `None` if nothing listens.
async fn connect_to(address: impl ToSocketAddrs) -> io::Result<Option<TcpStream>> {
    match timeout(CONNECT_MAX, TcpStream::connect(address)).await {
        // The kernel may pick the same port for this side and connect the socket to itself.
        Ok(Ok(connection)) if connection.local_addr().ok() == connection.peer_addr().ok() => Ok(None),
        Ok(Ok(connection)) => Ok(Some(connection)),
        Err(_) => Err(io::Error::new(io::ErrorKind::TimedOut, "the host does not answer")),
        Ok(Err(error)) if NOBODY.contains(&error.kind()) => Ok(None),
        Ok(Err(error)) => Err(error),
    }
}

/// The authority of a URL, with its port and the brackets of an IPv6 address, and the target: path
/// and query.
fn split_url(url: &str) -> (&str, String) {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let (authority, rest) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let target = rest.split('#').next().unwrap_or_default();
    let root = if target.starts_with('/') { "" } else { "/" };
    (authority, format!("{root}{target}"))
}

async fn ask(connection: TcpStream, url: &str) -> Result<u16, LookError> {
    let broken = |error: hyper::Error| LookError::new(error.to_string());
    let (authority, target) = split_url(url);
    let (mut sender, connection) = handshake::<_, String>(TokioIo::new(connection)).await.map_err(broken)?;
    let request = Request::get(target)
        .header(header::HOST, authority)
        .header(header::USER_AGENT, concat!("aside/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close")
        .body(String::new())
        .map_err(|error| LookError::new(error.to_string()))?;
    let mut answer = pin!(sender.send_request(request));
    let answer = tokio::select! {
        answer = &mut answer => answer,
        // The connection has ended; the answer may have been received before that.
        _ = connection => answer.await,
    };
    Ok(answer.map_err(broken)?.status().as_u16())
}

/// Events within this time need only one look.
const SETTLES: Duration = Duration::from_millis(100);
/// Largest file whose content is compared, in bytes; a larger one is compared by inode, size and
/// time.
const CONTENT_BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Longest shown line, in characters.
const LINE_CHARS_SHOWN: usize = 200;

/// The result of a look.
enum FileLook {
    Met(String),
    /// `is_behind`: there is more to read.
    Open {
        is_behind: bool,
    },
}

/// Looks once at a file, before a watch is set.
async fn look_at_file(condition: &Condition) -> Result<Look, LookError> {
    let asked = condition.clone();
    on_thread(condition.path().unwrap_or_default(), LOOK_MAX, move || first_look(asked))
        .await
        .map_err(LookError::from)
}

/// Waits until a condition of a path is met. Each successful check resets `failures`.
async fn until_file_met(
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
            FileLook::Met(state) => return Ok(state),
            FileLook::Open { is_behind: true } => continue,
            FileLook::Open { is_behind: false } => {}
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

fn look_again(condition: &Condition, tail: &mut Tail) -> io::Result<FileLook> {
    let open = FileLook::Open { is_behind: false };
    if let Condition::File { path, exists } = condition {
        let (is_there, state) = presence(path)?;
        return Ok(if is_there == *exists { FileLook::Met(state) } else { open });
    }
    if let Condition::Change { path, since } = condition {
        let state = match (since, content(path)?) {
            (before, now) if *before == now => return Ok(open),
            (None, _) => "it was created",
            (Some(_), None) => "it was removed",
            (Some(_), Some(_)) => "it has changed",
        };
        return Ok(FileLook::Met(state.to_owned()));
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
    Ok(met.map_or(FileLook::Open { is_behind }, FileLook::Met))
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

#[cfg(test)]
mod tests {
    use std::io::{
        Error,
        ErrorKind::{HostUnreachable, NetworkUnreachable, PermissionDenied, TimedOut},
    };

    use super::{port_state, split_url};

    #[test]
    fn silent_hosts_do_not_count_as_closed_ports() {
        for (found, wants_open, wants_closed) in [
            (Ok(true), Ok(Some("a process listens")), Ok(None)),
            (Ok(false), Ok(None), Ok(Some("no process listens"))),
            (Err(TimedOut), Ok(None), Err(TimedOut)),
            (Err(HostUnreachable), Ok(None), Err(HostUnreachable)),
            (Err(NetworkUnreachable), Ok(None), Err(NetworkUnreachable)),
            (Err(PermissionDenied), Err(PermissionDenied), Err(PermissionDenied)),
        ] {
            for (is_open, expected) in [(true, wants_open), (false, wants_closed)] {
                let state = port_state(found.map_err(Error::from), is_open).map_err(|error| error.kind());
                assert_eq!(state, expected, "{found:?} {is_open}");
            }
        }
    }

    #[test]
    fn a_url_has_an_authority_and_a_target() {
        for (url, expected) in [
            ("http://h", ("h", "/")),
            ("http://h:81/a?b=/c#d", ("h:81", "/a?b=/c")),
            ("http://[::1]:3000/", ("[::1]:3000", "/")),
            ("http://h?next=/a", ("h", "/?next=/a")),
            ("http://h#/a", ("h", "/")),
        ] {
            let (authority, target) = split_url(url);
            assert_eq!((authority, &*target), expected, "{url}");
        }
    }
}
