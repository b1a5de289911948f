//! Folders in arguments and requests.

use std::{env, fs, path};

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
