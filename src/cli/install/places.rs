//! The files that a client reads for an installation, and our entries in them.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use super::{
    InstallError,
    client::home,
    plan::read,
    settings::{OurHook, Settings},
};
use crate::harness::{installation::Extension, kind::Hooked};

/// The scope of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    /// All projects of the user.
    User,
    Project,
}

/// The places of one client that an installation uses.
#[derive(Debug, Clone)]
pub(crate) struct Places {
    pub(crate) hooked: Hooked,
    /// The user's folder of the client.
    pub(crate) home: PathBuf,
    /// The folder of the current project.
    pub(crate) project: PathBuf,
}

impl Places {
    pub(crate) fn find(hooked: Hooked, project: &Path) -> Result<Self, InstallError> {
        let home = home(&hooked.hooks.client)?;
        let project = std::path::absolute(project).unwrap_or_else(|_| project.to_owned());
        Ok(Self { hooked, home, project })
    }

    pub(crate) fn user_settings(&self) -> PathBuf {
        self.home.join(self.hooked.hooks.installation.settings.user)
    }

    /// The project's own settings, in the row's order.
    pub(crate) fn project_settings(&self) -> Vec<PathBuf> {
        let folder = self.project.join(self.hooked.hooks.client.files.folder);
        let names = self.hooked.hooks.installation.settings.project.iter();
        names.map(|name| folder.join(name)).collect()
    }

    /// Every settings file that the client reads for this project; in the home folder, the user's
    /// and the project's coincide.
    pub(crate) fn all_settings(&self) -> Vec<PathBuf> {
        let user = self.user_settings();
        let others = self.project_settings().into_iter().filter(|path| *path != user);
        std::iter::once(user.clone()).chain(others).collect()
    }

    /// The extension's folder and definition, if the client loads extensions.
    pub(crate) fn extension(&self) -> Option<(PathBuf, &'static Extension)> {
        let extension = self.hooked.hooks.installation.extension.as_ref()?;
        Some((self.home.join(extension.folder.path), extension))
    }

    /// Whether the extension is installed.
    pub(crate) fn has_extension(&self) -> bool {
        self.extension().is_some_and(|(folder, extension)| folder.join(extension.folder.manifest).exists())
    }

    /// Our extension enabled in a settings file, in the client's words, and the command that
    /// removes it.
    pub(crate) fn enabled_extension(&self, path: &Path) -> Result<Option<(String, String)>, InstallError> {
        let Some((extension, settings)) =
            self.hooked.hooks.installation.extension.as_ref().zip(settings_at(path)?)
        else {
            return Ok(None);
        };
        let name = (extension.enabled)(&settings.value());
        Ok(name.map(|name| (format!("{} {name}", extension.folder.word), (extension.remove)(&name))))
    }

    /// The command that removes an installation.
    pub(crate) fn removal(&self, target: Target) -> String {
        let option = match target {
            Target::User => "",
            Target::Project => " --project",
        };
        format!("aside uninstall {}{option}", self.hooked.kind.caps.name)
    }
}

/// Our hooks in a settings file, which may not exist.
pub(crate) fn hooks_in(path: &Path) -> Result<Vec<OurHook>, InstallError> {
    Ok(settings_at(path)?.map(|settings| settings.our_hooks()).unwrap_or_default())
}

/// Whether a settings file has our hooks; false if it cannot be read.
pub(super) fn has_hooks(path: &Path) -> bool {
    hooks_in(path).is_ok_and(|found| !found.is_empty())
}

/// A settings file as a tree, if it exists.
pub(crate) fn settings_at(path: &Path) -> Result<Option<Settings>, InstallError> {
    read(path)?.map(|text| parse(path, &text)).transpose()
}

pub(super) fn parse(path: &Path, text: &str) -> Result<Settings, InstallError> {
    Settings::parse(text).map_err(|why| InstallError::Settings { path: path.to_owned(), why })
}

/// Whether two paths refer to the same file.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> io::Result<bool> {
    Ok(fs::canonicalize(one)? == fs::canonicalize(other)?)
}
