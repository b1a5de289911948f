//! Finds the ports on which a program reports that it listens, on this machine's addresses.
//!
//! A line about a connection to another host, a port in use, or a debugger is skipped: another
//! program listens there, or a connection would disturb the program.

use std::sync::LazyLock;

use regex::Regex;

/// Bytes read of a line.
const LINE_BYTES_MAX: usize = 500;

/// An address with a port. Only loopback and wildcard addresses: others are not checked.
static ADDRESS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)(?:^|[^\w.:-])(?:localhost|127(?:\.\d{1,3}){3}|0\.0\.0\.0|\[::1?\]|\*):(\d{1,5})(?:[^\w.:]|\.\s|\.?$)",
    )
});
/// A port without an address, after words for a started server.
static PORT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)\b(?:listen|running|start|serv|ready|available).{0,60}?(?:\bport(?:\(s\))?[ :=]{1,3}|[ (]:{1,3})(\d{1,5})\b",
    )
});
/// Words of lines about ports of other programs.
static OF_OTHERS: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?i)connect|econn|eaddr|in use|already|refused|upstream|proxy|forward|debugger|not listen|stop|clos",
    )
});
/// An IPv4 address. One that does not begin with an entry of [`OWN`] is of another machine.
static ELSEWHERE: LazyLock<Regex> = LazyLock::new(|| regex(r"\b\d{1,3}(?:\.\d{1,3}){3}\b"));
/// Prefixes of this machine's addresses.
const OWN: [&str; 2] = ["127.", "0.0.0.0"];

fn regex(pattern: &str) -> Regex {
    Regex::new(pattern).expect("it is tested")
}

/// The ports in a text, in order, each once.
pub(super) fn ports(text: &str) -> Vec<u16> {
    let mut found = Vec::new();
    for line in text.split(['\n', '\r']).map(|line| cut(line.trim())) {
        if !line.contains(|c: char| c.is_ascii_digit()) || OF_OTHERS.is_match(line) {
            continue;
        }
        let is_elsewhere = |address: &str| !OWN.iter().any(|own| address.starts_with(own));
        let alone = (!ELSEWHERE.find_iter(line).any(|found| is_elsewhere(found.as_str()))).then_some(&*PORT);
        let matches =
            [Some(&*ADDRESS), alone].into_iter().flatten().flat_map(|regex| regex.captures_iter(line));
        for port in matches.filter_map(|found| found.get(1)?.as_str().parse().ok()) {
            if port > 0 && !found.contains(&port) {
                found.push(port);
            }
        }
    }
    found
}

fn cut(line: &str) -> &str {
    let end = (0..=LINE_BYTES_MAX.min(line.len())).rev().find(|at| line.is_char_boundary(*at));
    end.and_then(|end| line.get(..end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Outputs of servers, and the ports in them.
    const SAMPLES: [(&str, &[u16]); 34] = [
        ("  Local:   http://localhost:5173/", &[5173]),
        ("  Network: http://192.168.1.5:5173/", &[]),
        ("   - Local:        http://localhost:3000", &[3000]),
        ("ready - started server on 0.0.0.0:3000, url: http://localhost:3000", &[3000]),
        ("Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...", &[8000]),
        ("INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)", &[8000]),
        (" * Running on http://127.0.0.1:5000", &[5000]),
        ("Starting development server at http://127.0.0.1:8000/", &[8000]),
        ("* Listening on http://[::1]:3001", &[3001]),
        ("Listening on http://[::]:8080.", &[8080]),
        ("Example app listening on port 3000", &[3000]),
        ("Example app listening on port 3000!", &[3000]),
        ("Server running at port: 4000", &[4000]),
        ("Tomcat started on port(s): 8080 (http) with context path ''", &[8080]),
        ("listening on :9090", &[9090]),
        ("time=1 level=info msg=\"Listening on\" address=127.0.0.1:9090", &[9090]),
        ("a http://localhost:1 and http://localhost:2 and http://localhost:1", &[1, 2]),
        ("first http://localhost:3000\nthen http://localhost:4000\rand 0.0.0.0:5000", &[3000, 4000, 5000]),
        ("listening on 10.0.0.7 port 3000", &[]),
        ("Server running at http://example.com:3000/", &[]),
        ("Server running at http://example.localhost.com:3000/", &[]),
        ("connected to postgres at 127.0.0.1:5432", &[]),
        ("Error: connect ECONNREFUSED 127.0.0.1:6379", &[]),
        ("Error: listen EADDRINUSE: address already in use 127.0.0.1:3000", &[]),
        ("Port 3000 is in use, trying another one...", &[]),
        ("[HPM] Proxy created: /api -> http://localhost:8080", &[]),
        ("Debugger listening on ws://127.0.0.1:9229/0f2c", &[]),
        ("at http://localhost:0/ and http://localhost:65536/ and http://localhost:123456/", &[]),
        ("in src/a.ts:3000 and 0.0.0.0:3.5", &[]),
        ("compiled port 3000 of 4000 files", &[]),
        ("reported 8080 tests", &[]),
        ("localhost:", &[]),
        ("localhost:3000x", &[]),
        ("", &[]),
    ];

    #[test]
    fn local_ports_announced_by_a_server_are_found() {
        for (text, expected) in SAMPLES {
            assert_eq!(ports(text), expected, "{text}");
        }
    }

    #[test]
    fn lines_are_searched_up_to_the_byte_bound() {
        let long = "\u{fc}".repeat(LINE_BYTES_MAX);
        assert_eq!(ports(&format!("{long} http://localhost:3000\nhttp://localhost:4000")), [4000]);
        assert_eq!(ports(&format!("x{long}")), [0; 0]);
    }
}
