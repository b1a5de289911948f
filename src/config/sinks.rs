//! `[sinks]` of `aside.toml` and its tables, whose keys the engine declares; and the addresses of
//! servers in them. A sink in `default` without its required keys is an error, because it could not
//! be used.

use engine::{settings::Url, sink::Settings, watch::condition::host_of};

use crate::config::{
    raw::{Parsed, Section, Value},
    report::{Diagnostic, shown},
    values,
};

/// The prefix of a server's address.
const SCHEME: &str = "http://";
/// The prefix of an address for https.
const SECURE_SCHEME: &str = "https://";
/// The default port of https.
const SECURE_PORT: u16 = 443;
/// Whether this build supports https for sinks.
const HAS_HTTPS: bool = cfg!(feature = "https");

/// Reads `[sinks]` and its tables, which have to be finished separately; reports a sink without its
/// required keys.
pub(super) fn read<'s>(sinks: &mut Section<'s>) -> (Settings, Vec<Section<'s>>) {
    let (settings, tables) = Settings::read(sinks, Section::table);
    for sink in &settings.all.default {
        let name = sink.as_str();
        let index = Settings::TABLES.iter().position(|(table, _)| *table == name);
        let table = index.and_then(|index| tables.get(index));
        let is_missing = |key: &&&str| table.is_none_or(|table| table.value(key).is_none());
        if let Some(key) = sink.delivery().needs.iter().find(is_missing) {
            let message = format!("`{name}` cannot be used: `{key}` is missing in [sinks.{name}]");
            sinks.object("default", |value| value.error(message));
        }
    }
    (settings, tables)
}

/// The address of a server.
pub(super) fn read_url(value: &Value<'_>) -> Parsed<Url> {
    let text = values::words(value)?;
    url(text).ok_or_else(|| vec![no_url(value, text)])
}

/// The address of a server, which ends in a topic.
pub(super) fn read_topic(value: &Value<'_>) -> Parsed<Url> {
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
        assert_eq!(sinks.all.default, [Sink::Ntfy, Sink::Webhook, Sink::Log]);
        assert_eq!(sinks.all.retry.iter().map(|wait| wait.as_secs()).collect::<Vec<_>>(), [1, 120]);
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
