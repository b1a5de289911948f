//! Limits which machines a watch may contact.

use std::net::IpAddr;

use super::condition::{Condition, host_of};
use crate::settings::settings;

settings! {
    /// Whether ports and servers of other machines may be contacted.
    remote: bool = false, flag();
}

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
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        time::Timestamp,
        watch::condition::{Terms, parse},
    };

    #[test]
    fn only_another_machine_is_remote() {
        let terms = Terms { now: Timestamp::ZERO, utc_offset: &|_| 0, folder: None };
        for (text, expected) in [
            ("port 3000", None),
            ("port localhost:3000", None),
            ("port [::1]:3000", None),
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
