//! What an installation in a client consists of, as data: `aside install` and `aside doctor` read it, and edit and compare files by it.
//!
//! A template is valid as it is: JSON in which each `command` begins with `aside`. What is installed has the path of the program
//! there, alone where the handler has `args` and quoted for a shell where it has not.

use serde_json::Value;

use crate::harness::program::Version;

/// An installation in one client.
#[derive(Debug)]
pub struct Installation {
    /// What it is, for somebody who chooses.
    pub what: &'static str,
    /// Oldest client that takes the hooks.
    pub since: Version,
    /// Where the client reads hooks.
    pub settings: SettingsFiles,
    /// The template of the hooks.
    ///
    /// Shape: as in a settings file: `hooks` maps the name of an event to its groups, here one, each with handlers in its `hooks`.
    pub hooks: &'static str,
    /// The event whose hook may start the daemon.
    pub starts: &'static str,
    /// The plugin, if the client loads one from a folder; then it is what is installed unless somebody asks for the settings.
    pub plugin: Option<Plugin>,
    /// How the client is given a status line, if it has one.
    pub status_line: Option<StatusLineSetting>,
}

/// The settings files of a client: JSON, which may have comments.
#[derive(Debug)]
pub struct SettingsFiles {
    /// The user's, in the client's folder.
    pub user: &'static str,
    /// Those of a project, in its folder for the client; the first one is written to, unless another one has hooks of aside.
    pub project: &'static [&'static str],
    /// The key by which a settings file turns all hooks off, if it does.
    pub switched_off: fn(&Value) -> Option<&'static str>,
}

/// Files in a folder of their own that a client loads as a plugin, and runs the hooks of beside those of settings files.
#[derive(Debug)]
pub struct Plugin {
    /// Oldest client that loads it.
    pub since: Version,
    /// Its folder, in the client's.
    pub folder: &'static str,
    /// The files below that folder, and their templates.
    pub files: &'static [(&'static str, &'static str)],
    /// The one of them that says whose it is: JSON with the `name` `aside`, and the `version`.
    pub manifest: &'static str,
    /// The one of them with the hooks.
    pub hooks: &'static str,
    /// How it is passed on to others, if the client has a way.
    pub marketplace: Option<Marketplace>,
    /// The plugin named `aside` that a settings file has the client load from elsewhere, by the client's name for it.
    pub enabled: fn(&Value) -> Option<String>,
    /// The command that takes out the plugin with this name.
    pub remove: fn(&str) -> String,
}

/// A folder from which a client takes plugins.
#[derive(Debug)]
pub struct Marketplace {
    /// The file that makes a folder one: JSON with the `name` `aside`.
    pub list: &'static str,
    /// Its template.
    pub template: &'static str,
    /// The commands that come next, with the folder as a shell takes it, and what each does.
    pub next: fn(&str) -> Vec<(String, &'static str)>,
}

/// The setting of a status line: an object with the `type` `command` and a `command`, of which there can be one.
#[derive(Debug)]
pub struct StatusLineSetting {
    /// Its key.
    pub key: &'static str,
    /// The key in it of how often the line is drawn while nothing happens, in seconds.
    pub interval: &'static str,
}
