//! `[sinks.apprise]`: the command `apprise`.

use std::sync::Arc;

use crate::settings::settings;

settings! {
    /// The program, by its name or path.
    command: Arc<str> = "apprise".into(), line();
    /// Its file of services; without this key, its own default. The addresses hold secrets, so they
    /// are not passed as arguments.
    config_file: Arc<str>, path(), like "\"/home/me/.config/apprise.yml\"";
}
