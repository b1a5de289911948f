//! The plugin's files, from the templates in `share/claude-code`.

use serde_json::{Value, json};

use super::status_line::quoted;

const MARKETPLACE: &str = include_str!("../../../share/claude-code/.claude-plugin/marketplace.json");
const MANIFEST: &str = include_str!("../../../share/claude-code/aside/.claude-plugin/plugin.json");
const HOOKS: &str = include_str!("../../../share/claude-code/aside/hooks/hooks.json");
const SKILL: &str = include_str!("../../../share/claude-code/aside/skills/aside/SKILL.md");

/// The plugin's name, and that of its folder.
pub(crate) const NAME: &str = "aside";
/// The file by which a folder is known to hold the plugin.
pub(crate) const MANIFEST_FILE: &str = ".claude-plugin/plugin.json";
/// The file by which a folder is known to be a marketplace, and which one.
pub(super) const MARKETPLACE_FILE: &str = ".claude-plugin/marketplace.json";
/// The file with the plugin's hooks.
pub(crate) const HOOKS_FILE: &str = "hooks/hooks.json";

/// What an installation can choose.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Choice {
    /// How the client calls this program: a path, or a name to look up.
    pub(super) program: String,
    /// Whether the first hook of a session starts the daemon.
    pub(super) autostart: bool,
}

impl Choice {
    /// The hooks, as they stand in a settings file: the value of its `hooks`.
    pub(super) fn hooks(&self) -> Value {
        let mut file = template(HOOKS);
        let mut hooks = file.get_mut("hooks").map(Value::take).unwrap_or_default();
        for (event, groups) in hooks.as_object_mut().into_iter().flatten() {
            let starts_daemon = self.autostart && event == "SessionStart";
            let groups = groups.as_array_mut().into_iter().flatten();
            let handlers = groups.filter_map(|group| group.get_mut("hooks")?.as_array_mut()).flatten();
            for handler in handlers.filter_map(Value::as_object_mut) {
                handler.insert("command".to_owned(), json!(self.program));
                if starts_daemon && let Some(args) = handler.get_mut("args").and_then(Value::as_array_mut) {
                    args.push(json!("--start"));
                }
            }
        }
        hooks
    }

    /// The plugin's files: path below its folder, and text.
    pub(super) fn files(&self) -> Vec<(&'static str, String)> {
        let mut manifest = template(MANIFEST);
        if let Some(fields) = manifest.as_object_mut() {
            fields.insert("version".to_owned(), json!(env!("CARGO_PKG_VERSION")));
        }
        let monitors = manifest.pointer_mut("/experimental/monitors").and_then(Value::as_array_mut);
        for monitor in monitors.into_iter().flatten().filter_map(Value::as_object_mut) {
            // This one is a shell's line.
            monitor.insert("command".to_owned(), json!(format!("{} attach claude", quoted(&self.program))));
        }
        vec![
            (MANIFEST_FILE, pretty(&manifest)),
            (HOOKS_FILE, pretty(&json!({ "hooks": self.hooks() }))),
            ("skills/aside/SKILL.md", SKILL.to_owned()),
        ]
    }

    /// The files of a folder that the client takes plugins from: the plugin in a folder of its name, and the list.
    pub(super) fn marketplace_files(&self) -> Vec<(String, String)> {
        let files = self.files().into_iter().map(|(path, text)| (format!("{NAME}/{path}"), text));
        let list = (MARKETPLACE_FILE.to_owned(), pretty(&template(MARKETPLACE)));
        std::iter::once(list).chain(files).collect()
    }
}

/// The names of the events whose hooks the plugin has.
pub(crate) fn events() -> Vec<String> {
    let hooks = Choice { program: NAME.to_owned(), autostart: false }.hooks();
    hooks.as_object().into_iter().flatten().map(|(event, _)| event.clone()).collect()
}

/// Whether this text is the manifest of the plugin, or of the marketplace that has its name.
pub(super) fn is_manifest(text: &str) -> bool {
    let manifest: Option<Value> = serde_json::from_str(text).ok();
    manifest.is_some_and(|manifest| manifest.get("name").and_then(Value::as_str) == Some(NAME))
}

fn template(text: &str) -> Value {
    serde_json::from_str(text).expect("the shipped templates are JSON, as a test holds")
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
