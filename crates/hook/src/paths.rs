//! The paths of the socket, the user's configuration and the daemon's state.
//!
//! Pure: the environment is a function, so that flags and tests can replace variables.

use std::{
    error,
    ffi::OsString,
    fmt,
    path::{Path, PathBuf},
};

/// The three paths of one daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The daemon's socket.
    pub socket: PathBuf,
    /// The folder of the user's configuration; it need not exist.
    pub config: PathBuf,
    /// The folder of the journal and all related files; it need not exist.
    pub state: PathBuf,
}

/// Most bytes of a socket's path. Source: `sun_path` in unix(7), with its end.
const SOCKET_BYTES_MAX: usize = 107;

/// Why a path is unknown or unusable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathsError {
    /// Nothing says where it is.
    Unknown {
        /// The variable that would set it.
        variable: &'static str,
    },
    /// The home depends on the working folder, so that each command would use another folder.
    Relative {
        /// The variable that would set it.
        variable: &'static str,
        /// The home.
        home: PathBuf,
    },
    /// The system has no sockets with such a path.
    Long {
        /// The path.
        path: PathBuf,
    },
}

impl fmt::Display for PathsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { variable } => write!(f, "neither {variable} nor HOME is set"),
            Self::Relative { variable, home } => {
                let home = home.display();
                write!(f, "HOME is not absolute: `{home}`; correct it, or set {variable}")
            }
            Self::Long { path } => write!(
                f,
                "the socket's path has {} bytes, and at most {SOCKET_BYTES_MAX} are possible: {}; set \
                 ASIDE_SOCKET to a shorter one",
                path.as_os_str().len(),
                path.display()
            ),
        }
    }
}

impl error::Error for PathsError {}

impl Paths {
    /// Determines all three.
    ///
    /// Shape: the config and state folders are `$ASIDE_CONFIG` and `$ASIDE_STATE`, else `aside` in
    /// the matching XDG folder; the socket is `$ASIDE_SOCKET`, else `aside.sock` in the state folder,
    /// so that a daemon and its clients agree also where `XDG_RUNTIME_DIR` is set for some of them
    /// alone, as in cron, `sudo` and containers. An empty variable counts as unset, and so does an
    /// XDG folder that is not absolute. Source: the XDG base directory specification.
    pub fn from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, PathsError> {
        let paths = Self::named(&variable)?;
        Self::socket_from_env(&variable)?;
        Ok(paths)
    }

    /// The same; the socket may be one that the system cannot have.
    pub fn named(variable: impl Fn(&str) -> Option<OsString>) -> Result<Self, PathsError> {
        Ok(Self {
            socket: socket(&variable)?,
            config: folder(&variable, "ASIDE_CONFIG", "XDG_CONFIG_HOME", ".config")?,
            state: state(&variable)?,
        })
    }

    /// The variables that set all three for another process.
    pub fn variables(&self) -> [(&'static str, &Path); 3] {
        let Self { socket, config, state } = self;
        [("ASIDE_SOCKET", socket), ("ASIDE_CONFIG", config), ("ASIDE_STATE", state)]
    }

    /// Determines only the socket, which may be known when the others are not.
    pub fn socket_from_env(variable: impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, PathsError> {
        let path = socket(&variable)?;
        if path.as_os_str().len() > SOCKET_BYTES_MAX { Err(PathsError::Long { path }) } else { Ok(path) }
    }
}

fn socket(variable: &impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, PathsError> {
    match given(variable, "ASIDE_SOCKET") {
        Some(socket) => Ok(socket),
        None => Ok(state(variable)?.join("aside.sock")),
    }
}

fn state(variable: &impl Fn(&str) -> Option<OsString>) -> Result<PathBuf, PathsError> {
    folder(variable, "ASIDE_STATE", "XDG_STATE_HOME", ".local/state")
}

fn folder(
    variable: &impl Fn(&str) -> Option<OsString>,
    own: &'static str,
    xdg: &str,
    below_home: &str,
) -> Result<PathBuf, PathsError> {
    if let Some(folder) = given(variable, own) {
        return Ok(folder);
    }
    if let Some(folder) = given(variable, xdg).filter(|folder| folder.is_absolute()) {
        return Ok(folder.join("aside"));
    }
    match given(variable, "HOME") {
        Some(home) if home.is_absolute() => Ok(home.join(below_home).join("aside")),
        Some(home) => Err(PathsError::Relative { variable: own, home }),
        None => Err(PathsError::Unknown { variable: own }),
    }
}

fn given(variable: &impl Fn(&str) -> Option<OsString>, name: &str) -> Option<PathBuf> {
    variable(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(variables: &[(&str, &str)]) -> Result<[String; 3], PathsError> {
        let lookup = |wanted: &str| {
            variables.iter().find(|(name, _)| *name == wanted).map(|(_, value)| OsString::from(value))
        };
        let paths = Paths::from_env(lookup)?;
        Ok([paths.socket, paths.config, paths.state].map(|path| path.display().to_string()))
    }

    #[test]
    fn own_variables_override_xdg_and_xdg_overrides_home() {
        let home = ("HOME", "/home/u");
        for (variables, expected) in [
            (
                &[home][..],
                [
                    "/home/u/.local/state/aside/aside.sock",
                    "/home/u/.config/aside",
                    "/home/u/.local/state/aside",
                ],
            ),
            (
                &[
                    home,
                    ("XDG_RUNTIME_DIR", "/run/user/1"),
                    ("XDG_CONFIG_HOME", "/c"),
                    ("XDG_STATE_HOME", "/s"),
                ],
                ["/s/aside/aside.sock", "/c/aside", "/s/aside"],
            ),
            (
                &[
                    ("ASIDE_SOCKET", "a.sock"),
                    ("ASIDE_CONFIG", "c"),
                    ("ASIDE_STATE", "/s"),
                    ("XDG_RUNTIME_DIR", "/run"),
                ],
                ["a.sock", "c", "/s"],
            ),
            (
                &[home, ("ASIDE_STATE", ""), ("XDG_RUNTIME_DIR", "relative"), ("XDG_STATE_HOME", "relative")],
                [
                    "/home/u/.local/state/aside/aside.sock",
                    "/home/u/.config/aside",
                    "/home/u/.local/state/aside",
                ],
            ),
        ] {
            assert_eq!(find(variables), Ok(expected.map(str::to_owned)), "{variables:?}");
        }
    }

    #[test]
    fn without_a_home_the_missing_variable_is_named() {
        let error =
            find(&[("ASIDE_SOCKET", "/a.sock"), ("ASIDE_STATE", "/s")]).expect_err("no config folder");
        assert_eq!(error.to_string(), "neither ASIDE_CONFIG nor HOME is set");
        let socket = Paths::socket_from_env(|name| (name == "ASIDE_SOCKET").then(|| "/a.sock".into()));
        assert_eq!(socket, Ok(PathBuf::from("/a.sock")));
    }

    #[test]
    fn a_home_that_is_not_absolute_is_refused() {
        let error = find(&[("HOME", "rel")]).expect_err("relative").to_string();
        assert_eq!(error, "HOME is not absolute: `rel`; correct it, or set ASIDE_STATE");
        assert!(find(&[("HOME", "rel"), ("ASIDE_STATE", "s"), ("ASIDE_CONFIG", "c")]).is_ok());
    }

    #[test]
    fn too_long_socket_paths_are_refused() {
        let state = |bytes: usize| format!("/{}", "s".repeat(bytes - "/".len() - "/aside.sock".len()));
        assert!(find(&[("HOME", "/h"), ("ASIDE_STATE", &state(107))]).is_ok());
        let error = find(&[("HOME", "/h"), ("ASIDE_STATE", &state(108))]).expect_err("too long").to_string();
        assert!(error.starts_with("the socket's path has 108 bytes"), "{error}");
        assert!(find(&[("HOME", "/h"), ("ASIDE_STATE", &state(108)), ("ASIDE_SOCKET", "/a")]).is_ok());
    }
}
