//! The installation in Claude Code: a plugin, or hooks in a settings file; and the status line.
//!
//! From its next session on, the client loads a folder in its `skills` folder with a plugin's
//! manifest as a plugin, without asking (tried with 2.1.160 to 2.1.330). Only a plugin can have a
//! monitor, which wakes an idle session.

use serde_json::Value;

use crate::harness::installation::{
    Distribution, Extension, ExtensionFolder, Installation, Program, SettingsFiles, StatusLineSetting,
    Version,
};

const MARKETPLACE: &str = include_str!("../../../share/claude-code/.claude-plugin/marketplace.json");
const MANIFEST: &str = include_str!("../../../share/claude-code/aside/.claude-plugin/plugin.json");
const HOOKS: &str = include_str!("../../../share/claude-code/aside/hooks/hooks.json");
const SKILL: &str = include_str!("../../../share/claude-code/aside/skills/aside/SKILL.md");

const MANIFEST_FILE: &str = ".claude-plugin/plugin.json";
const HOOKS_FILE: &str = "hooks/hooks.json";

pub(super) const PROGRAM: Program = Program {
    name: "claude",
    update: "claude update",
    lacks: &[(Version([2, 1, 224]), "has no message socket, so a session is reached by hooks only")],
};

pub(super) const INSTALLATION: Installation = Installation {
    what: "a plugin with hooks, a monitor and a skill",
    // Older ones do not separate a hook's arguments from its command.
    since: Version([2, 1, 140]),
    settings: SettingsFiles {
        user: "settings.json",
        project: &["settings.local.json", "settings.json"],
        switched_off,
        check: super::settings::check,
    },
    hooks: HOOKS,
    starts: "SessionStart",
    extension: Some(Extension {
        folder: ExtensionFolder {
            word: "plugin",
            since: Version([2, 1, 160]),
            path: "skills/aside",
            files: &[(MANIFEST_FILE, MANIFEST), (HOOKS_FILE, HOOKS), ("skills/aside/SKILL.md", SKILL)],
            manifest: MANIFEST_FILE,
        },
        hooks: HOOKS_FILE,
        // 2.1.197 and 2.1.332 list the skill with its whole description in a system message.
        instructions: "the skill of the plugin has this text; without the plugin, add it to the system prompt",
        distribution: Some(Distribution {
            word: "marketplace",
            list: ".claude-plugin/marketplace.json",
            template: MARKETPLACE,
            next: marketplace_steps,
        }),
        enabled: enabled_plugin,
        remove: |plugin| format!("claude plugin uninstall {plugin}"),
    }),
    status_line: Some(StatusLineSetting { key: "statusLine", interval: "refreshInterval" }),
};

fn switched_off(settings: &Value) -> Option<&'static str> {
    const SWITCH: &str = "disableAllHooks";
    (settings.get(SWITCH).and_then(Value::as_bool) == Some(true)).then_some(SWITCH)
}

/// A plugin's name includes its origin, as in `aside@team`.
fn enabled_plugin(settings: &Value) -> Option<String> {
    let plugins = settings.get("enabledPlugins").and_then(Value::as_object);
    let is_ours = |name: &str| name.split('@').next() == Some("aside");
    let found =
        plugins.into_iter().flatten().find(|(name, is_on)| is_ours(name) && is_on.as_bool() == Some(true));
    found.map(|(name, _)| name.clone())
}

fn marketplace_steps(folder: &str) -> Vec<(String, &'static str)> {
    vec![
        (format!("claude plugin marketplace add {folder}"), "makes the folder known to the client"),
        ("claude plugin install aside@aside".to_owned(), "installs the plugin from it"),
        (format!("claude --plugin-dir {folder}/aside"), "or: loads it for one session"),
    ]
}
