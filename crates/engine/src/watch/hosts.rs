//! Limits which machines a watch may contact.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::condition::{Condition, host_of};
use crate::settings::settings;

settings! {
    /// Lets agents and users wait until something comes true (`aside watch`, `aside remind`).
    /// Earlier watches continue while this is off.
    enabled: bool = true, flag();
    /// Allows connections to ports and servers of other machines.
    remote: bool = false, flag();
}

/// The addresses of `localhost`: some servers listen on only one of the two.
pub const LOCALHOST: [IpAddr; 2] = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];

/// The host that a condition connects to, if it is another machine.
pub fn remote_host(condition: &Condition) -> Option<String> {
    let host = if let Condition::Port { host, .. } = condition {
        host.clone()
    } else if let Condition::Http { url, .. } = condition {
        host_of(url)?.0
    } else {
        return None;
    };
    (!is_here(&host)).then_some(host)
}

/// Whether a name or address refers to this machine.
pub fn is_here(host: &str) -> bool {
    !addresses(host).is_empty() || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The addresses to ask, one after the other, for a host that means this machine by several;
/// empty for any other one.
///
/// Source: RFC 6761, 6.3, for names; and the addresses of "all interfaces", which servers print.
pub fn addresses(host: &str) -> &'static [IpAddr] {
    let name = host.trim_end_matches('.').to_ascii_lowercase();
    let is_all = host.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified());
    if is_all || name == "localhost" || name.ends_with(".localhost") { &LOCALHOST } else { &[] }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::condition::{Terms, parse};
    use journal::time::Timestamp;

    #[test]
    fn only_another_machine_is_remote() {
        let terms = Terms { now: Timestamp::ZERO, utc_offset: &|_| 0, folder: None };
        for (text, expected) in [
            ("port 3000", None),
            ("port localhost:3000", None),
            ("port [::1]:3000", None),
            ("port LocalHost.:3000", None),
            ("port 0.0.0.0:3000", None),
            ("http http://[::]:3000", None),
            ("http app.localhost:3000", None),
            ("port localhost.example.org:3000", Some("localhost.example.org")),
            ("http http://127.1.2.3/x", None),
            ("port db:3000", Some("db")),
            ("http http://example.org:80/x", Some("example.org")),
            ("file /x", None),
        ] {
            let condition = parse(text, &terms).expect("a condition");
            assert_eq!(remote_host(&condition).as_deref(), expected, "{text}");
        }
    }
}
