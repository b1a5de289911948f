use serde_json::Value;

use super::*;

fn paths(glob: &str) -> Paths {
    Paths::new(glob).unwrap_or_else(|error| panic!("{glob}: {error}"))
}

fn search(glob: &str) -> Search {
    paths(glob).searches(&["/w".into()]).pop().expect("a search")
}

#[test]
fn search_starts_at_literal_prefix_of_its_pattern() {
    for (glob, root, files, not_files, ways, not_ways) in [
        ("schemas/*.sql", "/w/schemas", &["a.sql"][..], &["a.txt", "b/a.sql"][..], &[][..], &["b"][..]),
        ("*.toml", "/w", &["Cargo.toml"], &["a/Cargo.toml"], &[], &["a"]),
        ("Cargo.toml", "/w", &["Cargo.toml"], &["Cargo.lock"], &[], &["src"]),
        ("./a/b.txt", "/w/a", &["b.txt"], &["a/b.txt"], &[], &["c"]),
        (
            "crates/*/src/*.rs",
            "/w/crates",
            &["x/src/a.rs"],
            &["x/a.rs"],
            &["x", "x/src"],
            &["x/tests", "target", "x/src/y"],
        ),
        ("src/**/*.rs", "/w/src", &["a.rs", "x/y/a.rs"], &["a.sql"], &["x", "x/y/z"], &["target", "x/.git"]),
        ("db/{a,b}.sql", "/w/db", &["a.sql", "b.sql"], &["c.sql"], &[], &["target"]),
        ("/etc/x/*.conf", "/etc/x", &["a.conf"], &["y/a.conf"], &[], &["y"]),
        ("/*.conf", "/", &["a.conf"], &["y/a.conf"], &[], &["y"]),
    ] {
        let search = search(glob);
        assert_eq!(&*search.root, root, "{glob}");
        assert!(files.iter().all(|path| search.is_wanted(path)), "{glob}");
        assert!(!not_files.iter().any(|path| search.is_wanted(path)), "{glob}");
        assert!(ways.iter().all(|folder| search.is_way(folder)), "{glob}");
        assert!(!not_ways.iter().any(|folder| search.is_way(folder)), "{glob}");
    }
}

#[test]
fn relative_pattern_applies_to_each_open_folder() {
    let folders: [Arc<str>; 2] = ["/a".into(), "/b/".into()];
    let of = |paths: &Paths| -> Vec<(String, Option<String>)> {
        let searches = paths.searches(&folders).into_iter();
        searches
            .map(|found| (found.root.to_string(), found.workspace.map(|folder| folder.to_string())))
            .collect()
    };
    let (a, b) = (Some("/a".to_owned()), Some("/b/".to_owned()));
    assert_eq!(of(&paths("x/*")), [("/a/x".to_owned(), a), ("/b/x".to_owned(), b)]);
    assert_eq!(of(&paths("/x/*")), [("/x".to_owned(), None)]);
    let own = Paths { workspace: Some("/c".into()), ..paths("x/*") };
    assert_eq!(of(&own), [("/c/x".to_owned(), Some("/c".to_owned()))]);
}

fn seen(files: &[(&str, u64, u64)]) -> Listing {
    let stamp = |inode, content| Stamp {
        inode,
        size: 1,
        modified_ns: i128::from(inode),
        changed_ns: 0,
        hash: (content > 0).then_some(content),
        is_link: false,
        is_settled: true,
    };
    files.iter().map(|(path, inode, content)| ((*path).into(), stamp(*inode, *content))).collect()
}

#[test]
fn file_changes_are_derived_from_two_scans() {
    for (what, before, now, expected) in [
        ("nothing", &[("a", 1, 7)][..], &[("a", 1, 7)][..], &[][..]),
        ("made", &[], &[("a", 1, 7)], &["created a"]),
        ("written", &[("a", 1, 7)], &[("a", 1, 8)], &["modified a"]),
        ("saved by renaming another one over it", &[("a", 1, 7)], &[("a", 2, 8)], &["modified a"]),
        ("written again as it was", &[("a", 1, 7)], &[("a", 2, 7)], &[]),
        ("large, by its time", &[("a", 1, 0)], &[("a", 2, 0)], &["modified a"]),
        ("removed", &[("a", 1, 7), ("b", 2, 7)], &[("b", 2, 7)], &["deleted a"]),
        ("renamed", &[("a", 1, 7)], &[("b", 1, 7)], &["renamed a b"]),
        ("renamed and written", &[("a", 1, 7)], &[("b", 1, 8)], &["created b", "deleted a"]),
        ("its number taken by another one", &[("a", 1, 7)], &[("b", 1, 9)], &["created b", "deleted a"]),
        (
            "two names changed",
            &[("a", 1, 7), ("b", 2, 8)],
            &[("a", 2, 8), ("b", 1, 7)],
            &["modified a", "modified b"],
        ),
    ] {
        let changes = compare(&seen(before), &seen(now));
        let words = changes.iter().map(|change| match change {
            Change::Created(path) => format!("created {path}"),
            Change::Modified(path) => format!("modified {path}"),
            Change::Deleted(path) => format!("deleted {path}"),
            Change::Renamed { from, to } => format!("renamed {from} {to}"),
        });
        assert_eq!(words.collect::<Vec<_>>(), expected, "{what}");
    }
}

#[test]
fn excess_path_changes_are_counted_in_last_event() {
    let search = search("schemas/*.sql");
    let names: Vec<String> = (0..CHANGES_MAX + 5).map(|number| format!("{number:04}.sql")).collect();
    let files: Vec<(&str, u64, u64)> =
        (1..).zip(&names).map(|(inode, name)| (&**name, inode, 0xabc)).collect();
    let now = seen(&files);
    let events = search.events(&compare(&Listing::new(), &now), &now, Timestamp::from_millis(9));
    assert_eq!(events.len(), CHANGES_MAX);
    let payloads: Vec<Value> =
        events.iter().map(|event| serde_json::from_str(event.payload.as_str()).expect("JSON")).collect();
    assert_eq!(
        payloads[0],
        json!({ "name": "schemas/*.sql", "path": "schemas/0000.sql", "kind": "created", "content": "0000000000000abc" })
    );
    assert_eq!((&payloads[CHANGES_MAX - 1]["more"], &payloads[0]["more"]), (&json!(5), &Value::Null));
    let first = &events[0];
    assert_eq!((first.provenance, first.workspace.as_deref()), (Provenance::Quoted, Some("/w")));
    let ids: BTreeSet<&str> = events.iter().map(|event| &*event.id).collect();
    assert_eq!(ids.len(), events.len());
}

#[test]
fn invalid_glob_is_refused_with_reason() {
    for (glob, expected) in
        [("../x/*", "`..`"), ("src/", "names a folder"), ("src/[a", "unclosed"), ("{a", "unclosed")]
    {
        let error = read_glob(glob).expect_err(glob);
        assert!(error.contains(expected), "{glob}: {error}");
    }
}
