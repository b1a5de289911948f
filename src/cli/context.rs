//! State shared by all commands, requests to the daemon, output, and folders in arguments.

use std::{
    borrow::Cow,
    env, fs,
    io::{self, Write},
    path::{self, PathBuf},
};

use hook::{
    client::{Client, EventStream, percent_encode},
    paths::{Paths, PathsError},
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use toon::is_invisible;

use crate::{
    api::wire::history::EventPage,
    cli::{
        error::{CliError, refused},
        terminal::{Terminal, prose_of_stderr},
    },
};

/// State shared by all commands.
pub(super) struct Context<'a> {
    /// Commands that need only the socket also run if the folders are unknown.
    pub(super) paths: Result<Paths, PathsError>,
    /// Whether `--config` names a folder.
    pub(super) is_config_given: bool,
    pub(super) client: Client,
    pub(super) out: &'a mut dyn Write,
    pub(super) terminal: Terminal,
}

impl Context<'_> {
    /// Whether the history has an event of a source; false without a daemon.
    pub(super) fn has_published(&self, source: &str) -> bool {
        let path = with_query("/v1/events", &[("source", Some(source)), ("limit", Some("1"))]);
        let answer = self.client.request("GET", &path, &[], b"");
        let page = answer.ok().and_then(|answer| serde_json::from_slice::<EventPage>(&answer.body).ok());
        page.is_some_and(|page| !page.events.is_empty())
    }

    /// The folders and the socket.
    ///
    /// Errors: they are unknown.
    pub(super) fn paths(&self) -> Result<&Paths, CliError> {
        self.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))
    }

    pub(super) fn state(&self) -> Result<PathBuf, CliError> {
        self.paths().map(|paths| paths.state.clone())
    }

    /// Makes a request, and returns an error unless it succeeds.
    pub(super) fn ask(
        &self,
        doing: &'static str,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Vec<u8>, CliError> {
        let text = body.map(Value::to_string).unwrap_or_default();
        let headers: &[(&str, &str)] =
            if body.is_some() { &[("content-type", "application/json")] } else { &[] };
        let response = self
            .client
            .request(method, path, headers, text.as_bytes())
            .map_err(|source| CliError::Client { doing, source })?;
        match response.status {
            200..=299 => Ok(response.body),
            status => Err(refused(doing, status, &response.body)),
        }
    }

    /// Gets the daemon's answer at `path`.
    ///
    /// Errors: the request fails, or the answer has an unexpected form.
    pub(super) fn get<T: DeserializeOwned>(&self, doing: &'static str, path: &str) -> Result<T, CliError> {
        parse(doing, &self.ask(doing, "GET", path, None)?)
    }

    /// Follows the daemon's stream of events at `path`.
    ///
    /// Errors: the daemon is not reached, or refuses.
    pub(super) fn stream(&self, doing: &'static str, path: &str) -> Result<EventStream, CliError> {
        let accept = [("accept", "text/event-stream")];
        let stream =
            self.client.stream(path, &accept).map_err(|source| CliError::Client { doing, source })?;
        stream.map_err(|response| refused(doing, response.status, &response.body))
    }

    /// Writes sentences to the output, wrapped if it is a terminal.
    pub(super) fn say(&mut self, sentences: &str) -> Result<(), CliError> {
        let text = self.terminal.prose(sentences);
        self.print(&text)
    }

    /// Writes the daemon's answer, which is JSON, as a line.
    ///
    /// Errors: the answer is not JSON; the output is not written.
    pub(super) fn print_json(&mut self, doing: &'static str, body: &[u8]) -> Result<(), CliError> {
        let answer: Value = parse(doing, body)?;
        self.print(&format!("{answer}\n"))
    }

    /// Writes [`printable`] text to the output.
    pub(super) fn print(&mut self, text: &str) -> Result<(), CliError> {
        self.out
            .write_all(printable(text).as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(CliError::Output)
    }
}

/// Returns a text without characters that a terminal, an editor or a reader of lines interprets and
/// that JSON need not escape: C1 controls, invisible characters, and those that change the direction
/// of text or end a line.
///
/// Shape: each is written as its JSON escape. The controls of ASCII are left, as the program's own
/// colours consist of them; JSON escapes them.
pub fn printable(text: &str) -> Cow<'_, str> {
    let is_escaped = |c: char| !c.is_ascii() && is_invisible(c);
    if text.is_ascii() || !text.contains(is_escaped) {
        return text.into();
    }
    let mut printable = String::with_capacity(text.len());
    for c in text.chars() {
        if is_escaped(c) {
            let mut units = [0; 2];
            printable.extend(c.encode_utf16(&mut units).iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            printable.push(c);
        }
    }
    printable.into()
}

/// Writes a line of the program to stderr, wrapped if that is a terminal.
pub fn complain(text: &str) {
    let text = prose_of_stderr(&format!("aside: {}\n", printable(text)));
    // Without a stderr only the exit code reports an error.
    io::stderr().write_all(text.as_bytes()).ok();
}

/// Parses JSON from the daemon.
pub(super) fn parse<'b, T: Deserialize<'b>>(doing: &'static str, body: &'b [u8]) -> Result<T, CliError> {
    serde_json::from_slice(body).map_err(|source| CliError::Answer { doing, source })
}

/// A path of the API with those parameters of its query that have a value.
pub(super) fn with_query(path: &str, parameters: &[(&str, Option<&str>)]) -> String {
    let mut path = path.to_owned();
    for (name, value) in parameters {
        if let Some(value) = value {
            let sign = if path.contains('?') { '&' } else { '?' };
            path.push_str(&format!("{sign}{name}={}", percent_encode(value)));
        }
    }
    path
}

/// A JSON object of those fields that have a value.
pub(super) fn object<const N: usize>(fields: [(&str, Option<Value>); N]) -> Value {
    fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
}

/// The folder of an event or session in the form that scopes compare: absolute, with links resolved
/// if it exists.
pub(super) fn absolute_folder(folder: &str) -> String {
    let path = fs::canonicalize(folder).or_else(|_| path::absolute(folder));
    path.map_or_else(|_| folder.to_owned(), |path| path.to_string_lossy().into_owned())
}

/// The given folder, else the current one, if it still exists.
pub(super) fn workspace_or_current(given: Option<&str>) -> Option<String> {
    match given {
        Some(folder) => Some(absolute_folder(folder)),
        None => Some(env::current_dir().ok()?.to_string_lossy().into_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_printed_as_json_escapes() {
        for (text, printed) in [
            ("{\"a\":\"x\u{9b}31mred\"}\n", "{\"a\":\"x\\u009b31mred\"}\n"),
            ("\u{80}\u{9f}\u{a0}", "\\u0080\\u009f\u{a0}"),
            ("\u{202e}a\u{200b}\u{2028}\u{feff}", "\\u202ea\\u200b\\u2028\\ufeff"),
            ("\u{e0041}", "\\udb40\\udc41"),
            ("plain \u{2713}\t\u{1b}[1mbold\n", "plain \u{2713}\t\u{1b}[1mbold\n"),
        ] {
            assert_eq!(printable(text), printed);
        }
    }

    #[test]
    fn a_folder_is_named_as_scopes_compare_it() {
        let current = env::current_dir().expect("a folder").to_string_lossy().into_owned();
        for (given, expected) in [
            (None, current.clone()),
            (Some("."), current.clone()),
            (Some("src/.."), current.clone()),
            (Some("not/there"), format!("{current}/not/there")),
            (Some("/not/there"), "/not/there".to_owned()),
        ] {
            assert_eq!(workspace_or_current(given), Some(expected), "{given:?}");
        }
    }
}
