//! `[sinks]` of `aside.toml` and its tables: the destinations of messages to the user.
//!
//! A sink in `default` without its required keys is an error, because it could not be used. Secrets
//! are in separate files, because every version of this file is kept with the journal.

use std::{ops::RangeInclusive, time::Duration};

use engine::{
    notification::Sink,
    sink::{Apprise, Log, Ntfy, Settings, Url, Webhook},
    watch::{condition::host_of, hosts::is_here},
};

use crate::config::{
    raw::{Parsed, Section, Value},
    report::{Diagnostic, shown},
    values,
};

/// The tables in `[sinks]`.
pub(super) const TABLES: [&str; 4] = ["log", "ntfy", "webhook", "apprise"];
/// Most retries of a sink.
const RETRIES_MAX: usize = 10;
/// Shortest and longest time between two attempts.
const RETRY_LIMITS: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_secs(24 * 3_600);
/// Smallest and largest log: some dozen notices; a size that an editor still opens.
const LOG_BYTES_LIMITS: RangeInclusive<u64> = 64 * 1024..=256 * 1024 * 1024;
/// The prefix of a server's address.
const SCHEME: &str = "http://";
/// The prefix of an address for https.
const SECURE_SCHEME: &str = "https://";
/// The default port of https.
const SECURE_PORT: u16 = 443;
/// Whether this build supports https for sinks.
const HAS_HTTPS: bool = cfg!(feature = "https");

/// Reads `[sinks]` and its tables, which are in the order of [`TABLES`].
pub(super) fn read(sinks: &mut Section<'_>, tables: &mut [Section<'_>; 4]) -> Settings {
    let shipped = Settings::default();
    let [log, ntfy, webhook, apprise] = tables;
    let settings = Settings {
        default: sinks.read("default", read_default).unwrap_or(shipped.default),
        retry: sinks.read("retry", read_retry).unwrap_or(shipped.retry),
        quiet: sinks.read("quiet", values::hours),
        log: Log {
            path: log.read("path", values::absolute_path),
            max_bytes: log
                .read("max_bytes", |value| values::integer(value, LOG_BYTES_LIMITS))
                .unwrap_or(shipped.log.max_bytes),
        },
        ntfy: Ntfy {
            url: ntfy.read("url", read_topic),
            token_file: ntfy.read("token_file", values::absolute_path),
        },
        webhook: Webhook {
            url: webhook.read("url", read_url),
            secret_file: webhook.read("secret_file", values::absolute_path),
        },
        apprise: Apprise {
            command: apprise
                .read("command", |value| values::words(value).map(Into::into))
                .unwrap_or(shipped.apprise.command),
            config_file: apprise.read("config_file", values::absolute_path),
        },
    };
    check(sinks, tables, &settings);
    settings
}

/// Finds sinks that lack required keys, and tokens that are sent unencrypted.
fn check(sinks: &mut Section<'_>, tables: &mut [Section<'_>; 4], settings: &Settings) {
    for sink in &settings.default {
        let name = sink.as_str();
        let table = TABLES.iter().zip(&*tables).find(|(table, _)| **table == name).map(|(_, table)| table);
        let is_missing = |key: &&&str| table.is_none_or(|table| table.value(key).is_none());
        if let Some(key) = sink.delivery().needs.iter().find(is_missing) {
            let message = format!("`{name}` cannot be used: `{key}` is missing in [sinks.{name}]");
            sinks.object("default", |value| value.error(message));
        }
    }
    let [_, ntfy, ..] = tables;
    let is_open = |url: &Url| !url.is_secure && !is_here(&url.host);
    if settings.ntfy.url.as_ref().is_some_and(is_open) && settings.ntfy.token_file.is_some() {
        ntfy.object("token_file", |value| {
            value.error("the token is sent to another machine without encryption").into_warning()
        });
    }
}

fn read_default(value: &Value<'_>) -> Parsed<Vec<Sink>> {
    let found = values::list(value, values::word::<Sink>)?;
    let mut once: Vec<Sink> = Vec::with_capacity(found.len());
    for sink in found {
        if once.contains(&sink) {
            return Err(vec![value.error(format!("`{}` is listed twice", sink.as_str()))]);
        }
        once.push(sink);
    }
    Ok(once)
}

fn read_retry(value: &Value<'_>) -> Parsed<Vec<Duration>> {
    match values::list(value, |item| values::duration(item, RETRY_LIMITS))? {
        found if found.len() <= RETRIES_MAX => Ok(found),
        found => {
            let message = format!("`retry` has {} times; {RETRIES_MAX} are allowed", found.len());
            Err(vec![value.error(message)])
        }
    }
}

fn read_url(value: &Value<'_>) -> Parsed<Url> {
    let text = values::words(value)?;
    url(text).ok_or_else(|| vec![no_url(value, text)])
}

fn read_topic(value: &Value<'_>) -> Parsed<Url> {
    let url = read_url(value)?;
    match url.path.rsplit('/').next() {
        Some(topic) if !topic.is_empty() && !url.path.contains(['?', '#']) => Ok(url),
        _ => {
            let wrong = value.error("the address does not end in a topic");
            Err(vec![wrong.with_note("it is written like \"http://127.0.0.1:8080/my-topic\"")])
        }
    }
}

fn url(text: &str) -> Option<Url> {
    let secure = text.strip_prefix(SECURE_SCHEME).filter(|_| HAS_HTTPS);
    let rest = secure.or_else(|| text.strip_prefix(SCHEME))?;
    let (host, port) = host_of(&format!("{SCHEME}{rest}"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let path = path.split('#').next().unwrap_or_default();
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
        return None;
    }
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let (is_secure, names_port) = (secure.is_some(), authority.ends_with(&format!(":{port}")));
    let port = if is_secure && !names_port { SECURE_PORT } else { port };
    Some(Url { is_secure, host: host.into(), port, authority: authority.into(), path: path.into() })
}

fn no_url(value: &Value<'_>, text: &str) -> Diagnostic {
    if text.starts_with(SECURE_SCHEME) && !HAS_HTTPS {
        let note = "use http:// for a server on this machine or in your network, use the sink `apprise`, \
                    which speaks https, or build the program with `--features https`";
        return value.error("this program was built without https").with_note(note);
    }
    let wrong = value.error(format!("`{}` is not the address of a server", shown(text)));
    wrong.with_note("it is written like \"http://127.0.0.1:8080/path\"")
}

#[cfg(test)]
mod tests {
    use crate::config::{
        compile::{Compiled, compile},
        layers::{LayerKind, SourceFile, Sources},
    };
    use engine::notification::Sink;

    fn compiled(text: &str) -> Compiled {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "aside.toml".into(),
            path: "aside.toml".into(),
            text: text.into(),
        };
        compile(&Sources::shipped().with([file], []), &[])
    }

    #[test]
    fn every_sink_is_read() {
        let found = compiled(
            "[sinks]\ndefault = [\"ntfy\", \"webhook\", \"log\"]\nretry = [\"1s\", \"2m\"]\n\
             log = { path = \"/l\", max_bytes = 65536 }\n\
             ntfy = { url = \"http://127.0.0.1:8080/base/alerts\", token_file = \"/t\" }\n\
             [sinks.webhook]\nurl = \"http://[::1]:9/hook?x=1\"\nsecret_file = \"/s\"\n",
        );
        assert_eq!(found.report.to_string(), "");
        let sinks = &found.rules.sinks;
        assert_eq!(sinks.default, [Sink::Ntfy, Sink::Webhook, Sink::Log]);
        assert_eq!(sinks.retry.iter().map(|wait| wait.as_secs()).collect::<Vec<_>>(), [1, 120]);
        let ntfy = sinks.ntfy.url.as_ref().expect("an address");
        assert_eq!((&*ntfy.host, ntfy.port, &*ntfy.path), ("127.0.0.1", 8080, "/base/alerts"));
        let webhook = sinks.webhook.url.as_ref().expect("an address");
        assert_eq!((&*webhook.host, &*webhook.authority, &*webhook.path), ("::1", "[::1]:9", "/hook?x=1"));
    }

    #[test]
    fn invalid_sink_setting_is_refused_with_a_reason() {
        for (text, expected) in [
            ("default = [\"ntfi\"]", "did you mean `ntfy`?"),
            ("default = [\"log\", \"log\"]", "`log` is listed twice"),
            ("default = [\"ntfy\"]", "`ntfy` cannot be used: `url` is missing in [sinks.ntfy]"),
            ("default = [\"webhook\"]", "`webhook` cannot be used: `url` is missing in [sinks.webhook]"),
            (
                "default = [\"webhook\"]\nwebhook = { url = \"http://127.0.0.1/\" }",
                "`webhook` cannot be used: `secret_file` is missing in [sinks.webhook]",
            ),
            ("ntfy = { url = \"http://127.0.0.1/\" }", "the address does not end in a topic"),
            ("ntfy = { url = \"http://u:p@h/x\" }", "is not the address of a server"),
            ("webhook = { url = \"http://h/a b\" }", "is not the address of a server"),
            ("log = { path = \"notices\" }", "is not an absolute path"),
            ("retry = [\"1ms\"]", "must be 1s to"),
            (
                "ntfy = { url = \"http://ntfy.example/x\", token_file = \"/t\" }",
                "the token is sent to another machine without encryption",
            ),
        ] {
            let report = compiled(&format!("[sinks]\n{text}\n")).report.to_string();
            assert!(report.contains(expected), "{text}: {report}");
        }
    }

    #[test]
    fn https_address_needs_a_build_with_https() {
        let found = compiled("[sinks]\nntfy = { url = \"https://ntfy.example/x\", token_file = \"/t\" }\n");
        let url = found.rules.sinks.ntfy.url.as_ref();
        if cfg!(feature = "https") {
            assert_eq!(found.report.to_string(), "");
            assert_eq!(url.map(|url| (url.is_secure, url.port)), Some((true, 443)));
        } else {
            let report = found.report.to_string();
            assert!(report.contains("this program was built without https"), "{report}");
            assert!(report.contains("`--features https`") && url.is_none(), "{report}");
        }
    }
}
