//! The allowed imports between the folders of one module.

/// Folders of a module, and the parts of that module that their files may not use: the code that
/// connects the folders.
const ROOMS: &[(&str, &[&str])] = &[
    ("journal/log/", &["journal::commit", "journal::maintenance", "journal::start", "journal::settings"]),
    ("journal/commit/", &["journal::maintenance", "journal::start"]),
    ("journal/maintenance/", &["journal::commit", "journal::start"]),
];

/// The rule that a file breaks if it uses `own`, a path from the crate's root.
pub(super) fn check(inner: &str, own: &str) -> Option<String> {
    let rooms = ROOMS.iter().filter(|(room, _)| inner.starts_with(room) && !inner.ends_with("tests.rs"));
    let mut forbidden = rooms.flat_map(|(room, forbidden)| forbidden.iter().map(move |other| (room, other)));
    let (room, other) = forbidden.find(|(_, other)| is_within(own, other))?;
    Some(format!("`{}` may not use `{other}`", room.trim_end_matches('/')))
}

/// Whether `path` is `outer` or something in it.
pub(super) fn is_within(path: &str, outer: &str) -> bool {
    path.strip_prefix(outer).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[test]
fn a_folder_may_not_use_one_above_it() {
    let rule = check("journal/log/segment.rs", "journal::commit::writer::Writer");
    assert_eq!(rule.as_deref(), Some("`journal/log` may not use `journal::commit`"));
    assert_eq!(check("journal/commit/writer.rs", "journal::log::segment::Segment"), None);
}
