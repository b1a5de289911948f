//! Ports and servers, checked by one connection that is closed at once. It sends no credentials and
//! follows no redirect.

use std::{io, pin::pin, time::Duration};

use engine::watch::hosts::addresses;
use hyper::{Request, client::conn::http1::handshake, header};
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpStream, ToSocketAddrs},
    time::timeout,
};

use super::looked::LookError;

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
pub(super) enum Wanted {
    /// A port is open, or closed.
    Port { host: String, port: u16, is_open: bool },
    /// A server answers with a status.
    Answer { host: String, port: u16, url: String, status: Option<u16> },
}

/// The poll interval: short at first, then longer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rhythm {
    /// The first interval.
    pub(super) soon: Duration,
    /// The number of first intervals: about a minute of them.
    pub(super) looks_soon: u32,
    /// The later interval.
    pub(super) later: Duration,
}

impl Wanted {
    /// An answer costs its server more work than a port, so it is polled less often.
    pub(super) const fn rhythm(&self) -> Rhythm {
        let seconds = Duration::from_secs;
        match self {
            Self::Port { .. } => Rhythm { soon: seconds(1), looks_soon: 60, later: seconds(5) },
            Self::Answer { .. } => Rhythm { soon: seconds(2), looks_soon: 30, later: seconds(15) },
        }
    }
}

/// Polls once: returns the state as a text, if it is the wanted one.
///
/// Errors: the host has no address, this process can open no connection, or a port that should be
/// closed is at a host that does not answer.
pub(super) async fn look(wanted: &Wanted) -> Result<Option<String>, LookError> {
    match wanted {
        Wanted::Port { host, port, is_open } => {
            let found = connect(host, *port).await.map(|connections| !connections.is_empty());
            Ok(port_state(found, *is_open)?.map(str::to_owned))
        }
        Wanted::Answer { host, port, url, status } => {
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
