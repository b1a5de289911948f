use std::{cell::Cell, os::unix::fs::symlink};

use tempfile::tempdir;

use super::*;
use crate::capability::paths::{Change, Paths};

/// A search for a glob in a folder, parsed from settings as a user writes them.
fn search(folder: &Path, glob: &str) -> Search {
    let folder: Arc<str> = folder.to_str().expect("UTF-8").into();
    Paths::new(glob).expect("a pattern").searches(&[folder]).pop().expect("a search")
}

fn look(search: &Search, before: &Listing, now: Timestamp) -> (LookResult, usize) {
    let watched = Cell::new(0);
    let mut look = Look {
        search,
        before,
        now,
        looked: LookResult::default(),
        folders: 0,
        targets: SortedSet::new(),
        read: 0,
    };
    let added = |_: &Path| {
        watched.set(watched.get() + 1);
        Ok(())
    };
    look.walk(added).expect("readable");
    (look.looked, watched.get())
}

const LATER: Timestamp = Timestamp::from_millis(1 << 43);

#[test]
fn search_descends_only_into_matching_folders() {
    let root = tempdir().expect("a folder");
    for path in ["src/a/b", "src/target/x", "src/.git", "docs"] {
        fs::create_dir_all(root.path().join(path)).expect("made");
    }
    for path in ["src/a/b/m.rs", "src/target/x/m.rs", "src/m.txt", "docs/m.rs"] {
        fs::write(root.path().join(path), "x").expect("written");
    }
    let (looked, watched) = look(&search(root.path(), "src/**/*.rs"), &Listing::new(), LATER);
    assert_eq!(looked.seen.keys().map(|path| &**path).collect::<Vec<_>>(), ["a/b/m.rs"]);
    assert_eq!((watched, looked.trouble), (3, None), "src, src/a and src/a/b");
    let (looked, _) = look(&search(root.path(), "no/such/*.rs"), &Listing::new(), LATER);
    assert!(looked.seen.is_empty() && looked.trouble.is_none());
}

/// Does something, and returns the changes since the call before.
fn changes_in(search: &Search) -> impl FnMut(&dyn Fn()) -> Vec<Change> {
    let mut before = look(search, &Listing::new(), LATER).0.seen;
    move |act| {
        act();
        let now = look(search, &before, LATER).0.seen;
        let changes = compare(&before, &now);
        before = now;
        changes
    }
}

#[test]
fn save_by_rename_counts_only_with_new_content() {
    let root = tempdir().expect("a folder");
    let (path, other) = (root.path().join("a.sql"), root.path().join(".a.sql.swp"));
    let search = search(root.path(), "*.sql");
    fs::write(&path, "1").expect("written");
    let mut changes = changes_in(&search);
    let save = |content: &str| {
        fs::write(&other, content).expect("written");
        fs::rename(&other, &path).expect("renamed");
    };
    assert_eq!(changes(&|| save("2")), [Change::Modified("a.sql".into())]);
    assert_eq!(changes(&|| save("2")), [], "the same content");
    assert_eq!(
        changes(&|| File::options().write(true).open(&path).and_then(|file| file.set_len(1)).expect("set")),
        []
    );
}

#[test]
fn links_are_the_files_they_resolve_to() {
    let root = tempdir().expect("a folder");
    for folder in ["conf", "other", "conf/..1", "conf/..2"] {
        fs::create_dir(root.path().join(folder)).expect("made");
    }
    let write = |path: &str, text: &str| fs::write(root.path().join(path), text).expect("written");
    let link = |to: &str, path: &str| {
        let (new, path) = (root.path().join("other/new"), root.path().join(path));
        symlink(to, &new).and_then(|()| fs::rename(new, path)).expect("linked");
    };
    write("real.toml", "1");
    write("conf/b.toml", "1");
    write("conf/..1/c.toml", "1");
    write("conf/..2/c.toml", "2");
    let search = search(root.path(), "conf/*.toml");
    let mut changes = changes_in(&search);
    let [created, modified, deleted] = [Change::Created, Change::Modified, Change::Deleted];
    let file = |name: &str| Arc::<str>::from(name);
    assert_eq!(changes(&|| link("../real.toml", "conf/b.toml")), [], "the same content");
    assert_eq!(changes(&|| write("real.toml", "2")), [modified(file("b.toml"))]);
    assert_eq!(changes(&|| link("../none.toml", "conf/b.toml")), [deleted(file("b.toml"))]);
    assert_eq!(changes(&|| write("none.toml", "3")), [created(file("b.toml"))]);
    assert_eq!(changes(&|| write("conf/b2.toml", "3")), [created(file("b2.toml"))]);
    assert_eq!(changes(&|| link("b2.toml", "conf/b.toml")), [], "a link to a neighbour");
    let rename =
        || fs::rename(root.path().join("conf/b2.toml"), root.path().join("conf/b3.toml")).expect("renamed");
    let renamed = Change::Renamed { from: file("b2.toml"), to: file("b3.toml") };
    assert_eq!(changes(&rename), [renamed, deleted(file("b.toml"))]);
    // As in a volume of settings, whose folder is exchanged behind two links.
    link("..1", "conf/..data");
    assert_eq!(changes(&|| link("..data/c.toml", "conf/c.toml")), [created(file("c.toml"))]);
    assert_eq!(changes(&|| link("..2", "conf/..data")), [modified(file("c.toml"))]);
    assert_eq!(changes(&|| link("c.toml", "conf/c.toml")), [deleted(file("c.toml"))], "a link to itself");
}

#[test]
fn links_to_folders_are_followed_at_fixed_depths() {
    let root = tempdir().expect("a folder");
    fs::create_dir_all(root.path().join("real/deep")).expect("made");
    fs::write(root.path().join("real/a.toml"), "1").expect("written");
    symlink("real", root.path().join("link")).expect("linked");
    symlink("..", root.path().join("real/deep/up")).expect("linked");
    for (glob, expected, folders) in [
        ("*/*.toml", &["link/a.toml", "real/a.toml"][..], 4),
        ("link/*.toml", &["a.toml"], 1),
        ("**/*.toml", &["real/a.toml"], 3),
        ("{real,link}/*.toml", &["real/a.toml"], 3),
    ] {
        let (looked, watched) = look(&search(root.path(), glob), &Listing::new(), LATER);
        let seen: Vec<&str> = looked.seen.keys().map(|path| &**path).collect();
        assert_eq!(seen, expected, "{glob}");
        assert!(watched >= folders && watched < 9 && looked.trouble.is_none(), "{glob}: {watched}");
    }
}

#[test]
fn change_during_look_is_found_by_next_look() {
    let root = tempdir().expect("a folder");
    let path = root.path().join("a.sql");
    let search = search(root.path(), "*.sql");
    fs::write(&path, "1").expect("written");
    // The look is no later than the file's change, so the file's time proves nothing.
    let mut before = look(&search, &Listing::new(), Timestamp::ZERO).0.seen;
    fs::write(&path, "2").expect("written");
    // As if the clock of the file system had not advanced.
    let now = look(&search, &Listing::new(), LATER).0.seen;
    let racy = Stamp { is_settled: false, hash: before["a.sql"].hash, ..now["a.sql"] };
    before.insert("a.sql".into(), racy);
    let now = look(&search, &before, LATER).0.seen;
    assert_eq!(compare(&before, &now), [Change::Modified("a.sql".into())]);
}

#[test]
fn more_files_than_are_watched_are_said() {
    let root = tempdir().expect("a folder");
    (0..FILES_MAX + 1)
        .for_each(|number| fs::write(root.path().join(number.to_string()), "").expect("written"));
    let (looked, _) = look(&search(root.path(), "*"), &Listing::new(), LATER);
    assert_eq!(looked.seen.len(), FILES_MAX);
    assert!(looked.trouble.is_some_and(|trouble| trouble.contains("only 10000 files")));
}

#[tokio::test]
async fn files_are_polled_without_change_notification_support() {
    let root = tempdir().expect("a folder");
    let (folders, who) = (Arc::new(Folders::default()), Arc::new(Notify::new()));
    let search = Arc::new(search(root.path(), "*"));
    let task = Task { search, folders: Arc::clone(&folders), troubles: Arc::default() };
    // No inotify is open, as after the system refused one.
    assert!(task.look(None, &who, LATER).await.expect("readable").needs_polling);
    folders.renew(1);
    let looked = task.look(None, &who, LATER).await.expect("readable");
    assert_eq!(looked.needs_polling, is_remote(&root.path().join("x")));
}
