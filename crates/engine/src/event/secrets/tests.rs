//! Forms that are masked, and texts that stay as they are. Both lists are files of tests/fixtures.

use std::borrow::Cow;

use super::*;

const SECRETS: &str = include_str!("../../../../../tests/fixtures/secrets.txt");
const HARMLESS: &str = include_str!("../../../../../tests/fixtures/harmless.txt");

/// The characters of an alphabet of the file, mixed so that few repeat.
fn body(alphabet: &str, length: usize) -> String {
    let all: &[u8] = match alphabet {
        "a" => b"Zk3Qm7Xt1LpVw9RbYc5HnDs8JfGu2AeT6KiMo4WqPz",
        "l" => b"k3qm7xt1lpvw9rbyc5hnds8jfgu2aet6ki0mo4wz",
        "h" => b"3f9a1c7e5b0d8246cfae",
        "u" => b"Q7P2ZX5WL4KD6GTY3RJHNCVM",
        "d" => b"7391846205",
        other => panic!("no alphabet {other}"),
    };
    all.iter().cycle().take(length).map(|byte| char::from(*byte)).collect()
}

/// A line's text, and its secrets.
fn written(line: &str) -> (String, Vec<String>) {
    let (mut text, mut secrets, mut rest) = (String::new(), Vec::new(), line);
    while let Some((before, from)) = rest.split_once('{') {
        let Some((inside, after)) = from.split_once('}').filter(|(inside, _)| {
            inside.as_bytes().get(1) == Some(&b':') && !inside.starts_with(['"', '\\'])
        }) else {
            text.push_str(before);
            text.push('{');
            rest = from;
            continue;
        };
        let (alphabet, what) = inside.split_once(':').expect("an alphabet");
        let secret =
            if alphabet == "w" { what.to_owned() } else { body(alphabet, what.parse().expect("a length")) };
        text.push_str(before);
        text.push_str(&secret);
        if secret.len() > 4 {
            secrets.push(secret);
        }
        rest = after;
    }
    text.push_str(rest);
    (text.replace("\\n", "\n"), secrets)
}

#[test]
fn every_form_of_a_secret_is_masked() {
    let lines: Vec<&str> = SECRETS.lines().filter(|line| !line.starts_with("# ")).collect();
    assert!(lines.len() >= 49 + 60, "{}", lines.len());
    let mut left = Vec::new();
    for line in lines {
        let (text, secrets) = written(line);
        for text in [text.clone(), format!("error: {text} (exit 1)"), format!("x\n{text}\ny")] {
            let masked = mask_secrets(&text);
            // Of several parts the last is the secret; a number or an id before it may stay.
            let secret = secrets.last().expect("a secret");
            if masked.contains(secret.as_str()) {
                left.push(format!("{text:?} -> {masked:?}"));
            }
        }
    }
    assert!(left.is_empty(), "{} are not masked:\n{}", left.len(), left.join("\n"));
}

#[test]
fn text_without_a_secret_stays_as_it_is() {
    assert!(HARMLESS.lines().count() >= 60);
    let mut changed = Vec::new();
    for line in HARMLESS.lines() {
        for text in [line.to_owned(), format!("error: {line} (exit 1)"), format!("{{\"line\":\"{line}\"}}")] {
            if let Cow::Owned(masked) = mask_secrets(&text) {
                changed.push(format!("{text:?} -> {masked:?}"));
            }
        }
    }
    assert!(changed.is_empty(), "{} changed:\n{}", changed.len(), changed.join("\n"));
}

#[test]
fn the_start_and_the_surrounding_text_stay_readable() {
    let token = body("a", 36);
    for (text, masked) in [
        (format!("before ghp_{token}, after"), "before ghp_[masked], after"),
        (format!("ghp_{token} and sk-{token}"), "ghp_[masked] and sk-[masked]"),
        (format!("Authorization: Bearer {token}, x"), "Authorization: Bearer [masked], x"),
        (format!("authorization: basic {token}"), "authorization: basic [masked]"),
        ("postgres://app:pa:ss@db.local/x".into(), "postgres://app:[masked]@db.local/x"),
        ("see https://u:p@h and http://h:80/p@q".into(), "see https://u:[masked]@h and http://h:80/p@q"),
        ("git+ssh://git@host:repo".into(), "git+ssh://git@host:repo"),
        ("t=eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.dozjgNryP4J, end".into(), "t=eyJ[masked], end"),
        ("eyJhbGciOiJub25lIn0.eyJzdWIiOiIxIn0.".into(), "eyJ[masked]"),
        ("eyJhbGciOiJIUzI1NiJ9 alone".into(), "eyJhbGciOiJIUzI1NiJ9 alone"),
        (
            "{\"password\":\"hunter2\",\"user\":\"ann\"}".into(),
            "{\"password\":\"[masked]\",\"user\":\"ann\"}",
        ),
        ("DB_PASSWORD=hunter2 DB_HOST=db".into(), "DB_PASSWORD=[masked] DB_HOST=db"),
        ("mysql -u root -phunter2 shop".into(), "mysql -u root -p[masked] shop"),
        (
            "x\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc\n-----END RSA PRIVATE KEY-----\ny".into(),
            "x\n-----BEGIN RSA PRIVATE KEY-----[masked]\ny",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMIIE".into(), "-----BEGIN PRIVATE KEY-----[masked]"),
        (format!("\u{e9}\u{2713} token={token}\u{2713} \u{e9}"), "\u{e9}\u{2713} token=[masked] \u{e9}"),
    ] {
        assert_eq!(mask_secrets(&text), masked);
    }
}

#[test]
fn a_masked_text_is_masked_no_further() {
    for line in SECRETS.lines().filter(|line| !line.starts_with("# ")) {
        let once = mask_secrets(&written(line).0).into_owned();
        assert_eq!(mask_secrets(&once), once, "{line}");
    }
}

#[test]
fn text_full_of_keywords_is_masked_in_time() {
    let words: String = forms::rule_keywords().map(|(word, _)| format!("{word}=")).collect();
    for text in [words.repeat(20), "password=".repeat(7_000), "://".repeat(20_000), "mysql -p".repeat(8_000)]
    {
        // Nextest ends a test that takes a minute.
        assert!(mask_secrets(&text).len() > 10);
    }
}
