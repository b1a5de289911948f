//! Whether a port of this machine has a listener: one connection, closed at once.

use std::{
    io::ErrorKind,
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use engine::watch::hosts::LOCALHOST;

/// Time limit of one connection. The kernel answers at once on loopback, unless a filter drops
/// packets or the listener's queue is full.
pub(super) const WITHIN: Duration = Duration::from_millis(4);
/// The time limit of one connection on a request's thread.
pub(super) const QUICK_WITHIN: Duration = Duration::from_millis(1);

/// Whether a connection to `port` is accepted; `None` when that is unknown after `within` for each
/// address.
pub(super) fn accepts(port: u16, within: Duration) -> Option<bool> {
    let mut answer = Some(false);
    for address in LOCALHOST {
        match connect(SocketAddr::new(address, port), within) {
            Some(true) => return Some(true),
            Some(false) => {}
            None => answer = None,
        }
    }
    answer
}

fn connect(address: SocketAddr, within: Duration) -> Option<bool> {
    match TcpStream::connect_timeout(&address, within) {
        // The kernel may pick the same port for the client side and connect the socket to itself.
        Ok(stream) => Some(stream.local_addr().ok() != stream.peer_addr().ok()),
        // Refused, or the machine has no such address.
        Err(error) => (!is_late(error.kind())).then_some(false),
    }
}

const fn is_late(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::TimedOut | ErrorKind::WouldBlock | ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn port_accepts_while_either_loopback_address_listens() {
        for address in ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"] {
            let Ok(listener) = TcpListener::bind(address) else { continue };
            let port = listener.local_addr().expect("bound").port();
            assert_eq!(accepts(port, WITHIN), Some(true), "{address}");
            drop(listener);
            assert_eq!(accepts(port, WITHIN), Some(false), "{address}");
        }
    }

    #[test]
    fn listener_with_full_backlog_gives_unknown_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        rustix::net::listen(&listener, 0).expect("a shorter queue");
        let wait = Duration::from_millis(20);
        // The listener accepts none of these connections.
        let waiting: Vec<_> = (0..4).map_while(|_| TcpStream::connect_timeout(&address, wait).ok()).collect();
        assert!(waiting.len() < 4, "the queue is not full");
        assert_eq!(accepts(address.port(), QUICK_WITHIN), None);
    }
}
