//! The daemon's listeners: the Unix socket, its own or a passed one, and loopback TCP if
//! configured.

use std::{
    fs, io,
    net::SocketAddr,
    os::unix::{
        fs::FileTypeExt,
        net::{SocketAddr as UnixAddr, UnixListener as StdUnixListener, UnixStream},
    },
    path::{Path, PathBuf},
};

use listenfd::ListenFd;
use tokio::net::{TcpListener, UnixListener};

use crate::{
    api::{self, Tokens, TokensError},
    config::daemon::HttpConfig,
};

/// The token file in the state folder.
pub const TOKEN_FILE: &str = "token";

/// Why the daemon cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon answers there.
    #[error("another daemon listens at {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be created.
    #[error("create the socket {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The passed socket is not the daemon's.
    #[error("listen at what was passed: it is {found}, not {}", path.display())]
    Passed {
        /// The daemon's socket.
        path: PathBuf,
        /// The passed sockets.
        found: String,
    },
    /// The address cannot be bound.
    #[error("listen on {address}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// The cause.
        source: io::Error,
    },
    /// The token file cannot be used.
    #[error(transparent)]
    Tokens(#[from] TokensError),
}

/// Listening sockets that a service manager opened before it started the daemon.
#[derive(Debug, Default)]
pub struct Passed {
    listeners: Vec<io::Result<StdUnixListener>>,
}

impl Passed {
    /// Takes the sockets counted by `LISTEN_FDS`, if `LISTEN_PID` is this process.
    ///
    /// Shape: removes the variables from the environment, so call it before the first thread.
    ///
    /// Source: the protocol of systemd's socket activation.
    pub fn from_env() -> Self {
        let mut descriptors = ListenFd::from_env();
        let listeners =
            (0..descriptors.len()).filter_map(|index| descriptors.take_unix_listener(index).transpose());
        Self { listeners: listeners.collect() }
    }

    /// The socket bound to `path`; `None` if nothing was passed.
    ///
    /// Errors: only other sockets were passed. Without this error the daemon would listen where no
    /// client connects.
    pub(super) fn take(self, path: &Path) -> Result<Option<UnixListener>, ListenError> {
        let mut found = Vec::new();
        for listener in self.listeners {
            match listener.and_then(|listener| Ok((listener.local_addr()?, listener))) {
                Ok((address, listener)) if is_at(&address, path) => {
                    let ready =
                        listener.set_nonblocking(true).and_then(|()| UnixListener::from_std(listener));
                    return ready
                        .map(Some)
                        .map_err(|source| ListenError::Socket { path: path.into(), source });
                }
                Ok((address, _)) => found.push(format!("{address:?}")),
                Err(error) => found.push(error.to_string()),
            }
        }
        match found.is_empty() {
            true => Ok(None),
            false => Err(ListenError::Passed { path: path.into(), found: found.join(", ") }),
        }
    }
}

/// Whether a socket's address is `path`, after resolving links.
fn is_at(address: &UnixAddr, path: &Path) -> bool {
    address.as_pathname().is_some_and(|bound| {
        bound == path || matches!((fs::canonicalize(bound), fs::canonicalize(path)), (Ok(one), Ok(other)) if one == other)
    })
}

/// Opens the Unix socket, replacing the socket of a daemon that has ended.
pub(super) fn unix(path: &Path) -> Result<UnixListener, ListenError> {
    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse { path: path.into() });
    }
    remove(path)
        .and_then(|()| api::bind_unix(path))
        .map_err(|source| ListenError::Socket { path: path.into(), source })
}

/// Removes a socket, if there is one; does not remove any other file.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "the path exists and is not a socket")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens the TCP listener and its tokens.
pub(super) async fn tcp(http: &HttpConfig, state: &Path) -> Result<(TcpListener, Tokens), ListenError> {
    let path = http.token_file.clone().unwrap_or_else(|| state.join(TOKEN_FILE));
    let tokens = Tokens::open(&path)?;
    let listener = TcpListener::bind(http.listen)
        .await
        .map_err(|source| ListenError::Tcp { address: http.listen, source })?;
    Ok((listener, tokens))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn socket_folder_writable_by_others_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        for (mode, is_safe) in [(0o700, true), (0o755, true), (0o1777, true), (0o777, false), (0o720, false)]
        {
            let inner = folder.path().join(format!("{mode:o}"));
            fs::create_dir(&inner).expect("a folder");
            fs::set_permissions(&inner, fs::Permissions::from_mode(mode)).expect("its own");
            let opened = unix(&inner.join("aside.sock"));
            assert_eq!(opened.is_ok(), is_safe, "{mode:o}: {opened:?}");
        }
    }

    #[tokio::test]
    async fn only_a_dead_daemons_socket_is_replaced() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("aside.sock");
        let living = unix(&path).expect("listens");
        assert!(matches!(unix(&path), Err(ListenError::InUse { .. })));
        drop(living);
        unix(&path).expect("listens in its place");
    }

    #[tokio::test]
    async fn passed_socket_at_another_path_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("aside.sock");
        let passed = |name: &str| {
            let listener = StdUnixListener::bind(folder.path().join(name)).expect("bound");
            Passed { listeners: vec![Ok(listener)] }
        };
        let error = passed("other.sock").take(&path).expect_err("it listens elsewhere").to_string();
        assert!(error.contains("other.sock") && error.ends_with("aside.sock"), "{error}");
        let no_socket = Passed { listeners: vec![Err(io::Error::other("fd 3 is not a socket"))] };
        let error = no_socket.take(&path).expect_err("no socket").to_string();
        assert!(error.contains("it is fd 3 is not a socket"), "{error}");
        assert!(passed("aside.sock").take(&path).expect("its own").is_some());
        assert!(Passed::default().take(&path).expect("nothing").is_none());
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_stays() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("notes.txt");
        fs::write(&path, "mine").expect("written");
        assert!(matches!(unix(&path), Err(ListenError::Socket { .. })));
        assert_eq!(fs::read_to_string(&path).expect("still there"), "mine");
    }
}
