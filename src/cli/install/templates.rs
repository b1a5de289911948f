//! The installed files, generated from the templates of the harness's row.

use std::path::Path;

use hook::{START, client::PROGRAM};
use serde_json::{Map, Value, json};

use super::settings::{HOOK, quoted};
use crate::{
    daemon::version::FULL_VERSION,
    harness::{
        installation::{Distribution, Extension, ExtensionFolder, Installation},
        kind::Hooked,
    },
};

/// Key of the MCP servers that a client starts, by name.
pub(crate) const SERVERS: &str = "mcpServers";

/// The files of an extension: relative path and text.
pub(crate) type Files = Vec<(&'static str, String)>;

/// The options of an installation.
#[derive(Debug, Clone)]
pub(crate) struct Choice {
    pub(super) hooked: Hooked,
    /// The client's command for this program: a path, or a name on the PATH.
    pub(super) program: String,
    /// The path of the small program for hooks; without one, this program runs them.
    pub(super) hook_program: Option<String>,
    /// Whether the first hook of a session starts the daemon.
    pub(super) autostart: bool,
    /// Whether the agent has tools: the client then lists them in each session, and reports their
    /// absence without a daemon.
    pub(super) tools: bool,
}

impl Choice {
    /// The minimal choice, for code that searches for entries of any installation.
    pub(super) fn plain(hooked: Hooked) -> Self {
        Self { hooked, program: PROGRAM.to_owned(), hook_program: None, autostart: false, tools: false }
    }

    /// The options of an installed extension, read from its files, for this program.
    pub(crate) fn installed(hooked: Hooked, program: String, manifest: &str, hooks: &str) -> Self {
        let hook_program =
            hook::small_program(Path::new(&program)).map(|path| path.to_string_lossy().into_owned());
        let has_tools = serde_json::from_str::<Value>(manifest).is_ok_and(|own| own.get(SERVERS).is_some());
        Self { hooked, program, hook_program, autostart: hooks.contains(START), tools: has_tools }
    }

    /// The value of `hooks` in a settings file.
    pub(super) fn hooks(&self) -> Value {
        self.filled(self.hooked.hooks.installation.hooks)
            .get_mut("hooks")
            .map(Value::take)
            .unwrap_or_default()
    }

    /// The extension's files: relative path and text.
    pub(crate) fn extension_files(&self, extension: &Extension) -> Files {
        extension.folder.written(|template| self.filled(template))
    }

    /// The files of a distribution folder: the extension in a folder of its name, and the list.
    pub(super) fn distribution_files(
        &self,
        extension: &Extension,
        distribution: &Distribution,
    ) -> Vec<(String, String)> {
        let files = self.extension_files(extension).into_iter();
        let files = files.map(|(path, text)| (format!("{PROGRAM}/{path}"), text));
        let list = (distribution.list.to_owned(), pretty(&self.filled(distribution.template)));
        std::iter::once(list).chain(files).collect()
    }

    /// The template's JSON with the options applied.
    fn filled(&self, template: &str) -> Value {
        let mut json = parsed(template);
        self.fill(&mut json);
        let Installation { starts, .. } = &self.hooked.hooks.installation;
        let first = json.get_mut("hooks").and_then(|hooks| hooks.get_mut(*starts)?.as_array_mut());
        for group in first.into_iter().flatten().filter(|_| self.autostart) {
            let handlers = group.get_mut("hooks").and_then(Value::as_array_mut);
            handlers.into_iter().flatten().filter_map(Value::as_object_mut).for_each(start);
        }
        if let (false, Some(fields)) = (self.tools, json.as_object_mut()) {
            fields.remove(SERVERS);
        }
        // A client starts its servers before the first hook of a session.
        let servers = json.get_mut(SERVERS).and_then(Value::as_object_mut).filter(|_| self.autostart);
        servers.into_iter().flatten().filter_map(|(_, server)| server.as_object_mut()).for_each(start);
        json
    }

    /// Sets this program in every command, and the one for hooks in every hook.
    fn fill(&self, value: &mut Value) {
        let Value::Object(fields) = value else {
            return value.as_array_mut().into_iter().flatten().for_each(|item| self.fill(item));
        };
        if let Some(program) = &self.hook_program
            && let Some(args) = fields.get_mut("args").and_then(Value::as_array_mut)
            && args.first().and_then(Value::as_str) == Some(HOOK)
        {
            args.remove(0);
            fields.insert("command".to_owned(), json!(program));
        }
        let is_alone = fields.contains_key("args");
        if let Some(Value::String(command)) = fields.get_mut("command")
            && let Some(rest) = command.strip_prefix(PROGRAM)
        {
            *command =
                if is_alone { self.program.clone() } else { format!("{}{rest}", quoted(&self.program)) };
        }
        fields.values_mut().for_each(|field| self.fill(field));
    }
}

pub(super) fn parsed(template: &str) -> Value {
    serde_json::from_str(template).expect("the shipped templates are JSON, as a test holds")
}

impl ExtensionFolder {
    /// The files: relative path and text. `filled` makes the JSON of a file from its template.
    pub(super) fn written(&self, filled: impl Fn(&str) -> Value) -> Files {
        let file = |(path, template): &(&'static str, &'static str)| {
            if !path.ends_with(".json") {
                return (*path, (*template).to_owned());
            }
            let mut file = filled(template);
            if let (true, Some(fields)) = (*path == self.manifest, file.as_object_mut()) {
                fields.insert("version".to_owned(), json!(FULL_VERSION));
            }
            (*path, pretty(&file))
        };
        self.files.iter().map(file).collect()
    }
}

/// Adds the start of the daemon to a handler.
fn start(handler: &mut Map<String, Value>) {
    if let Some(args) = handler.get_mut("args").and_then(Value::as_array_mut) {
        args.push(json!(START));
    } else if let Some(Value::String(command)) = handler.get_mut("command") {
        *command = format!("{command} {START}");
    }
}

/// The events with installed hooks.
pub(crate) fn events(hooked: Hooked) -> Vec<String> {
    let hooks = Choice::plain(hooked).hooks();
    hooks.as_object().into_iter().flatten().map(|(event, _)| event.clone()).collect()
}

/// Whether this text is the manifest of the extension, or of the distribution of its name.
pub(super) fn is_manifest(text: &str) -> bool {
    let manifest: Option<Value> = serde_json::from_str(text).ok();
    manifest.is_some_and(|manifest| manifest.get("name").and_then(Value::as_str) == Some(PROGRAM))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::harness::{kind::Kind, table::KINDS};

    #[test]
    fn every_template_command_runs_the_installed_program() {
        for hooked in KINDS.into_iter().filter_map(Kind::hooked) {
            let hook_program = Some("/a b/aside-hook".to_owned());
            let program = "/a b/aside".to_owned();
            let choice = Choice { hooked, program, hook_program, autostart: true, tools: true };
            let Installation { starts, extension, .. } = &hooked.hooks.installation;
            assert!(events(hooked).iter().any(|event| event == starts), "{}", hooked.kind.word);
            let hooks = choice.hooks().to_string();
            let files = extension.iter().flat_map(|extension| {
                let distribution = extension
                    .distribution
                    .as_ref()
                    .map(|distribution| choice.distribution_files(extension, distribution));
                let own =
                    choice.extension_files(extension).into_iter().map(|(path, text)| (path.to_owned(), text));
                own.chain(distribution.into_iter().flatten()).collect::<Vec<_>>()
            });
            for (path, text) in files.chain([("hooks".to_owned(), hooks)]) {
                let commands = text.matches("\"command\":").count();
                let ours = ["\"/a b/aside\"", "\"/a b/aside-hook\"", "\"'/a b/aside' "]
                    .map(|begin| text.matches(begin).count());
                assert_eq!(commands, ours.iter().sum::<usize>(), "{path}: {text}");
                let starts_it = [format!("\"{starts}\""), format!("\"{SERVERS}\"")];
                let count = starts_it.iter().filter(|key| text.contains(*key)).count();
                assert_eq!(text.matches(START).count(), count, "{path}: {text}");
            }
        }
    }
}
