//! The installation in a client, as data: `aside install` and `aside doctor` edit and compare files
//! with it.
//!
//! A template is valid JSON in which each `command` begins with `aside`. The installed file has the
//! program's path there, plain if the handler has `args`, else quoted for a shell.

use serde_json::Value;

use crate::harness::{program::Version, settings::WrongValue};

/// An installation in one client.
#[derive(Debug)]
pub struct Installation {
    /// Its description for users.
    pub what: &'static str,
    /// Oldest client that supports the hooks.
    pub since: Version,
    /// The settings files with hooks.
    pub settings: SettingsFiles,
    /// The template of the hooks.
    ///
    /// Shape: as in a settings file: `hooks` maps an event's name to its groups, here one, each
    /// with handlers in its `hooks`.
    pub hooks: &'static str,
    /// The event whose hook may start the daemon.
    pub starts: &'static str,
    /// The plugin, if the client loads one from a folder; then it is installed unless the settings
    /// are requested.
    pub plugin: Option<Plugin>,
    /// The setting of a status line, if the client has one.
    pub status_line: Option<StatusLineSetting>,
}

/// The settings files of a client: JSON. The client skips a file with an error whole.
#[derive(Debug)]
pub struct SettingsFiles {
    /// The user's file, in the client's folder.
    pub user: &'static str,
    /// The project's files, in its folder for the client; the first one is written, unless another
    /// has hooks of aside.
    pub project: &'static [&'static str],
    /// The key by which a settings file disables all hooks, if it does.
    pub switched_off: fn(&Value) -> Option<&'static str>,
    /// Finds a value that the client does not accept.
    pub check: fn(&Value) -> Result<(), WrongValue>,
}

/// Files in a separate folder that a client loads as a plugin; their hooks run in addition to those
/// of settings files.
#[derive(Debug)]
pub struct Plugin {
    /// Oldest client that supports it.
    pub since: Version,
    /// Its folder, in the client's.
    pub folder: &'static str,
    /// The files below that folder, and their templates.
    pub files: &'static [(&'static str, &'static str)],
    /// The file that identifies the plugin: JSON with the `name` `aside`, and the `version`.
    pub manifest: &'static str,
    /// The file with the hooks.
    pub hooks: &'static str,
    /// How it is distributed, if the client supports that.
    pub marketplace: Option<Marketplace>,
    /// The plugin named `aside` that a settings file loads from another source, by the client's
    /// name for it.
    pub enabled: fn(&Value) -> Option<String>,
    /// The command that removes the plugin with this name.
    pub remove: fn(&str) -> String,
}

/// A folder that is a source of plugins for a client.
#[derive(Debug)]
pub struct Marketplace {
    /// The file that identifies such a folder: JSON with the `name` `aside`.
    pub list: &'static str,
    /// Its template.
    pub template: &'static str,
    /// The next commands, with the folder quoted for a shell, and the effect of each.
    pub next: fn(&str) -> Vec<(String, &'static str)>,
}

/// The setting of the only status line: an object with the `type` `command` and a `command`.
#[derive(Debug)]
pub struct StatusLineSetting {
    /// Its key.
    pub key: &'static str,
    /// The key in it of the refresh interval, in seconds.
    pub interval: &'static str,
}
