//! Where the daemon listens: the Unix socket, and loopback TCP when that is configured.

use std::{
    fs, io,
    io::{Read, Write},
    net::SocketAddr,
    os::unix::{
        fs::{FileTypeExt, OpenOptionsExt, PermissionsExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
};

use tokio::net::{TcpListener, UnixListener};

use crate::{config::daemon::HttpConfig, server};

/// Random bytes of a token that the daemon makes (research: 256 bits).
const TOKEN_BYTES: usize = 32;

/// Why the daemon cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Another daemon answers there.
    #[error("another daemon listens at {}", path.display())]
    InUse {
        /// The socket.
        path: PathBuf,
    },
    /// The socket cannot be made.
    #[error("make the socket {}", path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The address cannot be had.
    #[error("listen on {address}")]
    Tcp {
        /// The address.
        address: SocketAddr,
        /// Why.
        source: io::Error,
    },
    /// The token's file cannot be used.
    #[error("use the token file {}", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Opens the Unix socket, in place of one that a dead daemon left.
pub(super) fn unix(path: &Path) -> Result<UnixListener, ListenError> {
    if UnixStream::connect(path).is_ok() {
        return Err(ListenError::InUse { path: path.into() });
    }
    remove(path)
        .and_then(|()| server::bind_unix(path))
        .map_err(|source| ListenError::Socket { path: path.into(), source })
}

/// Removes a socket. That there is none is as good; anything else that stands there is left alone.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(found) if found.file_type().is_socket() => fs::remove_file(path),
        Ok(_) => {
            Err(io::Error::new(io::ErrorKind::AlreadyExists, "something stands there that is not a socket"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Opens the TCP listener and finds the token that it asks for.
pub(super) async fn tcp(http: &HttpConfig, state: &Path) -> Result<(TcpListener, String), ListenError> {
    let path = http.token_file.clone().unwrap_or_else(|| state.join("token"));
    let token = token(&path).map_err(|source| ListenError::Token { path, source })?;
    let listener = TcpListener::bind(http.listen)
        .await
        .map_err(|source| ListenError::Tcp { address: http.listen, source })?;
    Ok((listener, token))
}

/// Reads the token in `path`, or makes one there that only this user can read.
fn token(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Ok(token) if token.trim().is_empty() => {
            Err(io::Error::new(io::ErrorKind::InvalidData, "it is empty"))
        }
        Ok(token) => {
            let mode = fs::metadata(path)?.permissions().mode();
            if mode & 0o077 != 0 {
                tracing::warn!(path = %path.display(), "the token file can be read by others");
            }
            Ok(token.trim().to_owned())
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make_token(path),
        Err(error) => Err(error),
    }
}

fn make_token(path: &Path) -> io::Result<String> {
    let mut random = [0; TOKEN_BYTES];
    fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
    let token: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    writeln!(file, "{token}")?;
    Ok(token)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_made_once_and_only_for_its_user() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("token");
        let made = token(&path).expect("made");
        assert_eq!(made.len(), 2 * TOKEN_BYTES);
        assert_eq!(token(&path).expect("read"), made);
        assert_eq!(fs::metadata(&path).expect("there").permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn the_socket_of_a_dead_daemon_is_replaced_and_that_of_a_living_one_is_not() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("aside.sock");
        let living = unix(&path).expect("listens");
        assert!(matches!(unix(&path), Err(ListenError::InUse { .. })));
        drop(living);
        unix(&path).expect("listens in its place");
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
