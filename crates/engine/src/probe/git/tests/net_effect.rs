//! Moves and stashes after which files have what the session knows of them.

use super::*;

#[test]
fn file_with_its_known_content_was_not_changed() {
    for (known_content, content, expected) in [
        (Some("a"), Some("a"), &[][..]),
        (Some("a"), Some("b"), &["/w/src/a.rs"]),
        (Some("a"), None, &["/w/src/a.rs"]),
        (None, None, &[]),
        (None, Some("a"), &["/w/src/a.rs"]),
    ] {
        for is_stash in [true, false] {
            let mut world = World::on_main();
            let mut known = noted(&world);
            world.differing = Some(vec!["src/a.rs".to_owned()]);
            content.into_iter().for_each(|content| world.write("/w/src/a.rs", content, 995));
            if is_stash {
                world.append("/w/.git/logs/refs/stash", "0 9 995 WIP on main: 1111111 one");
                world.log("1 1 995 reset: moving to HEAD");
            } else {
                world.head("refs/heads/fix", 995);
                world.log("1 2 995 checkout: moving from main to fix");
            }
            let scene = Scene { read: vec![("/w/src/a.rs", known_content)], ..Scene::default() };
            let looked = scene.look(&mut known, &world);
            let case = format!("{known_content:?} {content:?} {is_stash}");
            let explained: Vec<&str> = looked.explained.iter().map(|path| &**path).collect();
            assert_eq!(explained, expected, "{case}");
            let is_reported = !is_stash || !expected.is_empty();
            assert_eq!(looked.findings.len(), usize::from(is_reported), "{case}");
            let named =
                looked.findings.iter().any(|found| found.payload.get("changed_that_you_read").is_some());
            assert_eq!(named, !expected.is_empty(), "{case}");
        }
    }
}
