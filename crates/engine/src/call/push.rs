//! The branches that a shell command pushes, as far as its words show: `git push` and `gh pr
//! create`.
//!
//! The words are neither executed nor resolved. A push that only deletes, a dry run, and a push of
//! tags alone do not count.

use serde::{Deserialize, Serialize};

use super::command::{absolute, steps};

/// Most pushes that count per command.
const PUSHES_MAX: usize = 8;
/// Options of `git`, before its command, that take a word.
const GIT_OPTIONS_WITH_WORD: [&str; 5] = ["-c", "--exec-path", "--git-dir", "--namespace", "--work-tree"];
/// Options of `git push` that take a word.
const PUSH_OPTIONS_WITH_WORD: [&str; 5] = ["-o", "--push-option", "--receive-pack", "--exec", "--repo"];
/// Options with which `git push` sends no branch, or none with a known name.
const NO_PUSH: [&str; 7] = ["-d", "--delete", "-n", "--dry-run", "--mirror", "-h", "--help"];
/// Options of `gh pr create` that name the branch.
const HEAD_OPTIONS: [&str; 2] = ["-H", "--head"];

/// One branch that a command pushes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Push {
    /// The absolute path of the folder of the push.
    pub folder: String,
    /// The local branch; the current one if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The branch's name at the remote; the local name if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// Whether a pull request is opened, which may start more checks.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub opens_pr: bool,
}

/// The pushes of `command`, which starts in `folder`, without duplicates.
pub fn pushes(command: &str, folder: &str) -> Vec<Push> {
    let (mut folder, mut found) = (folder.to_owned(), Vec::new());
    for step in steps(command) {
        let words: Vec<&str> = step.own_words().iter().skip(1).map(String::as_str).collect();
        match step.program() {
            "cd" => {
                if let Some(to) = words.iter().find(|word| !word.starts_with('-')) {
                    folder = absolute(to, &folder);
                }
            }
            "git" => found.extend(read_git(&words, &folder)),
            "gh" => found.extend(read_gh(&words, &folder)),
            _ => {}
        }
    }
    let mut pushes: Vec<Push> = Vec::new();
    for push in found {
        let is_same = |other: &&mut Push| {
            (&other.folder, &other.from, &other.branch) == (&push.folder, &push.from, &push.branch)
        };
        // A pull request may be for a branch that this command has just pushed.
        if let Some(other) = pushes.iter_mut().find(is_same) {
            other.opens_pr |= push.opens_pr;
        } else if pushes.len() < PUSHES_MAX {
            pushes.push(push);
        }
    }
    pushes
}

fn read_git(words: &[&str], folder: &str) -> Vec<Push> {
    let (mut words, mut folder) = (words.iter().copied(), folder.to_owned());
    let command = loop {
        match words.next() {
            Some("-C") => folder = absolute(words.next().unwrap_or_default(), &folder),
            Some(option) if GIT_OPTIONS_WITH_WORD.contains(&option) => drop(words.next()),
            Some(option) if option.starts_with('-') => {}
            command => break command,
        }
    };
    let (mut named, mut is_rest, mut has_tags) = (Vec::new(), false, false);
    if command != Some("push") {
        return Vec::new();
    }
    while let Some(word) = words.next() {
        match word {
            "--" => is_rest = true,
            "--tags" if !is_rest => has_tags = true,
            word if is_rest || !word.starts_with('-') => named.push(word),
            option if NO_PUSH.contains(&option) => return Vec::new(),
            option if PUSH_OPTIONS_WITH_WORD.contains(&option) => drop(words.next()),
            _ => {}
        }
    }
    // The first word is the remote.
    let refspecs = match named.as_slice() {
        [_, refspecs @ ..] => refspecs,
        [] => &[],
    };
    if refspecs.is_empty() {
        let push = Push { folder, from: None, branch: None, opens_pr: false };
        return if has_tags { Vec::new() } else { vec![push] };
    }
    // `tag NAME` is one refspec in two words.
    let tags: Vec<bool> = std::iter::once(false).chain(refspecs.iter().map(|word| *word == "tag")).collect();
    let branches = refspecs.iter().zip(tags).filter(|(word, is_tag)| **word != "tag" && !is_tag);
    branches.filter_map(|(refspec, _)| read_refspec(refspec, &folder)).collect()
}

fn read_refspec(refspec: &str, folder: &str) -> Option<Push> {
    let refspec = refspec.strip_prefix('+').unwrap_or(refspec);
    let (from, to) = refspec.split_once(':').map_or((refspec, None), |(from, to)| (from, Some(to)));
    if from.is_empty() || from.contains('*') {
        return None;
    }
    let from = branch(from)?;
    let branch = to.map_or(Some(from), branch)?;
    let is_here = |name: &&str| *name != "HEAD" && *name != "@";
    let owned = |name: &str| Some(name).filter(is_here).map(str::to_owned);
    let folder = folder.to_owned();
    Some(Push { folder, from: owned(from), branch: owned(branch), opens_pr: false })
}

/// The name of a branch; `None` for a tag, and for a name that a program would read as an option.
fn branch(name: &str) -> Option<&str> {
    let name = name.strip_prefix("refs/heads/").unwrap_or(name);
    Some(name).filter(|name| !name.is_empty() && !name.starts_with('-') && !name.starts_with("refs/"))
}

fn read_gh(words: &[&str], folder: &str) -> Option<Push> {
    let [first, second, rest @ ..] = words else { return None };
    if *first != "pr" || !["create", "new"].contains(second) || rest.contains(&"--dry-run") {
        return None;
    }
    let mut head = None;
    for (word, next) in rest.iter().zip(rest.iter().skip(1).map(Some).chain([None])) {
        let joined = word.split_once('=').filter(|(option, _)| HEAD_OPTIONS.contains(option));
        if HEAD_OPTIONS.contains(word) {
            head = next.copied();
        } else if let Some((_, value)) = joined {
            head = Some(value);
        }
    }
    // `owner:branch` names the branch of a fork.
    let head = head.map(|head| head.rsplit(':').next().unwrap_or(head)).and_then(branch).map(str::to_owned);
    Some(Push { folder: folder.to_owned(), from: head.clone(), branch: head, opens_pr: true })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(command: &str) -> String {
        let show = |push: Push| {
            let name = |name: Option<String>| name.unwrap_or_else(|| ".".to_owned());
            let opens = if push.opens_pr { " opens" } else { "" };
            format!("{} {}>{}{opens}", push.folder, name(push.from), name(push.branch))
        };
        pushes(command, "/w").into_iter().map(show).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn pushed_branches_are_parsed_from_command_words() {
        for (command, expected) in [
            ("git push", "/w .>."),
            ("git push -u origin HEAD", "/w .>."),
            ("git push --force-with-lease origin fix-cart", "/w fix-cart>fix-cart"),
            ("git add -A && git commit -qm x && git push origin HEAD:main 2>&1 | tail -3", "/w .>main"),
            ("git -C sub -c a.b=c push origin +a:refs/heads/b c", "/w/sub a>b, /w/sub c>c"),
            ("git push \\\n  origin main", "/w main>main"),
            ("git push origin main --tags", "/w main>main"),
            ("cd sub; git push -o ci.skip origin", "/w/sub .>."),
            ("GIT_SSH_COMMAND=ssh timeout 60 git push", "/w .>."),
            ("git push && gh pr create --fill", "/w .>. opens"),
            ("gh pr create --head me:fix --title 'git push'", "/w fix>fix opens"),
            ("gh pr new --head=fix", "/w fix>fix opens"),
        ] {
            assert_eq!(shown(command), expected, "{command}");
        }
    }

    #[test]
    fn dry_runs_deletions_and_tags_push_no_branch() {
        for command in [
            "git push --dry-run",
            "git push origin --delete fix",
            "git push origin :fix",
            "git push --tags",
            "git push origin refs/tags/v1",
            "git push origin tag v1",
            "git push origin --exec=x -- -x",
            "git stash push",
            "git log --grep push",
            "echo git push",
            "gh pr view",
            "gh run watch",
            "gh pr create --dry-run",
            "",
        ] {
            assert_eq!(shown(command), "", "{command}");
        }
        let many = (0..20).map(|n| format!("git push origin b{n}")).collect::<Vec<_>>().join(";");
        assert_eq!(pushes(&many, "/w").len(), PUSHES_MAX);
    }
}
