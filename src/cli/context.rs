//! State shared by all commands, requests to the daemon, and output.

use std::{borrow::Cow, io::Write, path::PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{
    error::{CliError, refused},
    paths::{Paths, PathsError},
    terminal::Terminal,
};
use crate::client::Client;

/// State shared by all commands.
pub(super) struct Context<'a> {
    /// Commands that need only the socket also run if the folders are unknown.
    pub(super) paths: Result<Paths, PathsError>,
    pub(super) client: Client,
    pub(super) out: &'a mut dyn Write,
    pub(super) terminal: Terminal,
}

impl Context<'_> {
    pub(super) fn state(&self) -> Result<PathBuf, CliError> {
        let paths = self.paths.as_ref().map_err(|error| CliError::Paths(error.clone()))?;
        Ok(paths.state.clone())
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

    /// Writes to the output.
    ///
    /// Shape: a C1 control character, which a terminal interprets and JSON need not escape, is
    /// written as its JSON escape.
    pub(super) fn print(&mut self, text: &str) -> Result<(), CliError> {
        self.out
            .write_all(without_c1(text).as_bytes())
            .and_then(|()| self.out.flush())
            .map_err(CliError::Output)
    }
}

fn without_c1(text: &str) -> Cow<'_, str> {
    let is_c1 = |c: char| ('\u{80}'..='\u{9f}').contains(&c);
    if !text.contains(is_c1) {
        return text.into();
    }
    text.chars().map(|c| if is_c1(c) { format!("\\u{:04x}", u32::from(c)) } else { c.into() }).collect()
}

/// Parses JSON from the daemon.
pub(super) fn parse<'b, T: Deserialize<'b>>(doing: &'static str, body: &'b [u8]) -> Result<T, CliError> {
    serde_json::from_slice(body).map_err(|source| CliError::Answer { doing, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_character_of_the_terminal_is_printed_as_its_json_escape() {
        for (text, printed) in [
            ("{\"a\":\"x\u{9b}31mred\"}\n", "{\"a\":\"x\\u009b31mred\"}\n"),
            ("\u{80}\u{9f}\u{a0}", "\\u0080\\u009f\u{a0}"),
            ("plain \u{2713}", "plain \u{2713}"),
        ] {
            assert_eq!(without_c1(text), printed);
        }
    }
}
