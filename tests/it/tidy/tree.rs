//! Reads the files to check.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

/// The Rust files below `folder`, by their path from `root`.
pub(crate) fn read_tree(root: &Path, folder: &Path, files: &mut BTreeMap<String, String>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries {
        let path = entry.expect("a folder lists its entries").path();
        if path.is_dir() {
            read_tree(root, &path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            files.insert(name, fs::read_to_string(&path).expect("sources are text"));
        }
    }
}

/// The crates of this workspace below `crates/`. Each but [`DECIDING_CRATE`] counts as a module of the
/// program: its file `x.rs` as `src/NAME/x.rs`, and its root as `src/NAME.rs`.
pub(super) const CRATES: &[&str] = &[DECIDING_CRATE, "hook", "journal", "toon"];

/// The crate whose modules count as modules of the program.
pub(super) const DECIDING_CRATE: &str = "engine";

/// The Rust files of [`CRATES`], by their paths as modules, with `crate` as such a path too.
pub(super) fn read_crates(root: &Path, files: &mut BTreeMap<String, String>) {
    let folders = fs::read_dir(root.join("crates")).expect("a folder");
    let mut names: Vec<_> =
        folders.map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable();
    assert_eq!(names, CRATES, "each crate is in the list");
    for name in CRATES {
        let folder = root.join("crates").join(name).join("src");
        let mut own = BTreeMap::new();
        read_tree(&folder, &folder, &mut own);
        if *name == DECIDING_CRATE {
            let root = own.remove("lib.rs").expect("a crate has a root");
            files.entry("src/lib.rs".to_owned()).or_default().push_str(&root);
            files.extend(own.into_iter().map(|(path, text)| (format!("src/{path}"), text)));
            continue;
        }
        for (path, text) in own {
            let path = if path == "lib.rs" { format!("src/{name}.rs") } else { format!("src/{name}/{path}") };
            files.insert(path, text.replace("crate::", &format!("crate::{name}::")));
        }
    }
}

/// The crates in `Cargo.toml`, by their names in code.
pub(super) fn dependencies(cargo: &str) -> BTreeSet<String> {
    let mut is_dependency = false;
    let mut found = BTreeSet::new();
    for line in cargo.lines() {
        if line.starts_with('[') {
            is_dependency = line.contains("dependencies");
        } else if let (true, Some((name, _))) = (is_dependency, line.split_once('=')) {
            let name = name.trim();
            found.insert(name.strip_suffix(".workspace").unwrap_or(name).replace('-', "_"));
        }
    }
    found
}
