//! Links between documents: each names a file that exists, and a heading that it has. So does each
//! mention of a page in the sources, whose messages and comments name pages.

use std::{
    collections::BTreeMap,
    fs,
    path::{Component, Path, PathBuf},
    sync::LazyLock,
};

use regex::Regex;

/// Folders with files that name pages.
const SOURCES: [&str; 8] = ["benches", "config", "crates", "scripts", "share", "src", "subscribers", "tests"];

static LINK: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"\]\(([^)\s]+)\)").expect("a pattern"));
/// Code in a line, which has no links.
static CODE: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"``.+?``|`[^`\n]+`").expect("a pattern"));
static MENTION: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?:^|[^\w/.-])(docs/[\w/-]+\.(?:md|json|svg))(#[\w-]+)?").expect("a pattern")
});

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// The files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files = Vec::new();
    for entry in entries.map(|entry| entry.expect("an entry")) {
        match entry.file_type().expect("a kind").is_dir() {
            true => files.extend(files_below(&entry.path())),
            false => files.push(entry.path()),
        }
    }
    files
}

/// The documents: those of the root and below docs.
fn documents() -> Vec<PathBuf> {
    let in_root = fs::read_dir(root()).expect("a folder").map(|entry| entry.expect("an entry").path());
    let all = in_root.chain(files_below(&root().join("docs")));
    all.filter(|path| path.extension().is_some_and(|end| end == "md")).collect()
}

/// A document without its blocks of code.
fn prose(text: &str) -> String {
    let mut open_fence = None;
    let mut kept = String::new();
    for line in text.lines() {
        let rest = line.trim_start_matches('`');
        let backticks = line.len() - rest.len();
        match open_fence {
            Some(fence) if backticks >= fence && rest.is_empty() => open_fence = None,
            Some(_) => {}
            None if backticks >= 3 => open_fence = Some(backticks),
            None => kept.extend([line, "\n"]),
        }
    }
    kept
}

/// The anchors of a document's headings, as a site makes them: the second of a name ends with `-1`.
fn anchors(text: &str) -> Vec<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let prose = prose(text);
    let headings = prose
        .lines()
        .filter_map(|line| line.trim_start_matches('#').strip_prefix(' ').filter(|_| line.starts_with('#')));
    headings
        .map(|heading| {
            let is_kept = |c: &char| c.is_alphanumeric() || matches!(c, '-' | '_' | ' ');
            let anchor: String = heading.to_lowercase().chars().filter(is_kept).collect();
            let anchor = anchor.replace(' ', "-");
            let count = counts.entry(anchor.clone()).or_default();
            *count += 1;
            if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
        })
        .collect()
}

/// The path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        match part {
            Component::ParentDir => drop(whole.pop()),
            Component::CurDir => {}
            other @ (Component::Prefix(_) | Component::RootDir | Component::Normal(_)) => whole.push(other),
        }
        whole
    })
}

/// What is wrong with a link to a path, and to one of its headings.
fn fault(path: &Path, anchor: Option<&str>) -> Option<String> {
    if !path.exists() {
        return Some("does not exist".to_owned());
    }
    let anchor = anchor?;
    let text = fs::read_to_string(path).ok()?;
    (!anchors(&text).iter().any(|known| known == anchor)).then(|| "has no such heading".to_owned())
}

#[test]
fn every_link_of_a_document_has_its_target() {
    let (mut count, mut faults) = (0, Vec::new());
    for document in documents() {
        let text = fs::read_to_string(&document).expect("UTF-8");
        let folder = document.parent().expect("a folder");
        for link in LINK.captures_iter(&CODE.replace_all(&prose(&text), "")).filter_map(|found| found.get(1))
        {
            let link = link.as_str();
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            count += 1;
            let (path, anchor) =
                link.split_once('#').map_or((link, None), |(path, anchor)| (path, Some(anchor)));
            let path = if path.is_empty() { document.clone() } else { normal(&folder.join(path)) };
            let found = fault(&path, anchor);
            faults.extend(found.map(|fault| format!("{}: {link} {fault}", document.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 200, "{count} links");
}

#[test]
fn every_page_that_a_source_names_exists() {
    let (mut count, mut faults) = (0, Vec::new());
    let files = SOURCES.iter().flat_map(|folder| files_below(&root().join(folder)));
    for file in files.chain(documents()) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for found in MENTION.captures_iter(&text) {
            count += 1;
            let [page, anchor] = [1, 2].map(|group| found.get(group).map(|found| found.as_str()));
            let page = page.expect("a page");
            let anchor = anchor.map(|anchor| anchor.trim_start_matches('#'));
            let fault = fault(&root().join(page), anchor);
            faults.extend(fault.map(|fault| format!("{}: {page} {fault}", file.display())));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(count > 100, "{count} mentions");
}

#[test]
fn headings_have_the_anchors_of_a_site() {
    let text =
        "# A page\n\n## `[limits]`\n\n```sh\n# no heading\n```\n\n## Limits\n\n### What it's, and why?\n";
    assert_eq!(anchors(text), ["a-page", "limits", "limits-1", "what-its-and-why"]);
}
