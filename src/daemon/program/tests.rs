use std::{collections::BTreeMap, os::unix::fs::PermissionsExt, process::Output};

use super::*;

/// A folder with programs in `bin` and `project`, and the state's folder.
fn machine() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["bin", "project", "state"] {
        fs::create_dir(folder.path().join(name)).expect("made");
    }
    folder
}

fn add(path: &Path) {
    fs::write(path, "#!/bin/sh\n").expect("written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("set");
}

fn found_in(folder: &Path, path: &str) -> Programs {
    Programs::find_in(&folder.join("state"), path.into()).expect("prepared")
}

#[test]
fn only_absolute_folders_outside_of_workspaces_are_used() {
    let machine = machine();
    let (bin, project) = (machine.path().join("bin"), machine.path().join("project"));
    add(&project.join("gh"));
    std::os::unix::fs::symlink(&project, machine.path().join("link")).expect("linked");
    let link = machine.path().join("link");
    let path = format!("project:.::{}:{}:{}", project.display(), link.display(), bin.display());
    let programs = found_in(machine.path(), &path);
    assert_eq!(programs.path_of("gh"), Ok(project.join("gh")), "no session works there");
    programs.workspaces.note(&project.to_string_lossy());
    let inside = Missing::InWorkspace { program: "gh".to_owned(), path: project.join("gh") };
    assert_eq!(programs.path_of("gh"), Err(inside.clone()));
    add(&bin.join("gh"));
    assert_eq!(programs.path_of("gh"), Err(inside), "it is found once");
    let programs = found_in(machine.path(), &path);
    programs.workspaces.note(&project.to_string_lossy());
    assert_eq!(programs.path_of("gh"), Ok(bin.join("gh")));
    assert_eq!(programs.path_of("apprise"), Err(Missing::Absent("apprise".to_owned())));
    let gh = programs.command(Program::Gh).expect("it is there");
    let variables: BTreeMap<_, _> = gh.get_envs().collect();
    assert_eq!(variables[std::ffi::OsStr::new("PATH")], Some(bin.as_os_str()));
    assert_eq!(gh.get_current_dir(), Some(&*machine.path().join("state/programs")));
}

#[test]
fn the_systems_programs_are_outside_of_every_workspace() {
    let machine = machine();
    let programs = found_in(machine.path(), "/usr/local/bin:/usr/bin:/bin");
    programs.workspaces.note("/");
    programs.workspaces.note("relative");
    assert!(programs.path_of("sh").is_ok_and(|path| path.is_absolute()));
    let mut own = machine.path().join("bin");
    add(&own.join("gh"));
    let programs = found_in(machine.path(), &own.to_string_lossy());
    programs.workspaces.note("/");
    own.push("gh");
    let inside = Missing::InWorkspace { program: "gh".to_owned(), path: own };
    assert_eq!(programs.path_of("gh"), Err(inside));
}

#[test]
fn git_gets_no_variable_of_the_daemon() {
    let machine = machine();
    add(&machine.path().join("bin/git"));
    let programs = found_in(machine.path(), &machine.path().join("bin").to_string_lossy());
    let git = programs.git_on(Path::new("/w/.git/objects"), Ids::Sha256).expect("it is there");
    let own = machine.path().join("state/programs");
    let variables: BTreeMap<_, _> = git.get_envs().collect();
    let is = |name: &str, value: &Path| {
        assert_eq!(variables[std::ffi::OsStr::new(name)], Some(value.as_os_str()), "{name}");
    };
    is("HOME", &own);
    is("GIT_DIR", &own.join("sha256"));
    is("GIT_OBJECT_DIRECTORY", Path::new("/w/.git/objects"));
    is("GIT_CEILING_DIRECTORIES", &machine.path().join("state"));
    let is_allowed = |name: &str| {
        name.starts_with("GIT_") || ["HOME", "LC_ALL", "PATH", "XDG_CONFIG_HOME"].contains(&name)
    };
    assert!(variables.keys().all(|name| is_allowed(&name.to_string_lossy())), "{variables:?}");
}

/// Runs a script in `folder`, in which `git` has nobody's settings.
fn run(folder: &Path, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(folder);
    for role in ["AUTHOR", "COMMITTER"] {
        shell.env(format!("GIT_{role}_NAME"), "a").env(format!("GIT_{role}_EMAIL"), "a@example.org");
    }
    shell.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    said(&shell.output().expect("it runs"))
}

fn said(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).expect("text").trim().to_owned()
}

#[test]
fn git_resolves_names_without_the_settings() {
    for (setup, folder, name) in [
        ("git init -q .", ".", "HEAD"),
        ("git init -q .", ".", "HEAD~1"),
        ("git init -q .", ".", "main~1"),
        ("git init -q --object-format sha256 .", ".", "HEAD~1"),
        ("git init -q --ref-format reftable .", ".", "HEAD~1"),
        ("git init -q . && mkdir deep", "deep", "v1"),
        ("git init -q .", "../tree", "HEAD"),
        ("git init -q .", "../tree", "side"),
    ] {
        let machine = machine();
        let project = machine.path().join("project");
        run(
            &project,
            &format!(
                "{setup} && git symbolic-ref HEAD refs/heads/main && git commit -q --allow-empty -m one \
                 && git tag -am v1 v1 && git commit -q --allow-empty -m two \
                 && git worktree add -q -b side ../tree HEAD~1 && git pack-refs --all && git gc -q"
            ),
        );
        let folder = project.join(folder).canonicalize().expect("it is there");
        let expected = run(&folder, &format!("git rev-parse '{name}^{{commit}}' --abbrev-ref HEAD"));
        // A setting of the repository that stops git shows that it is not read.
        run(&project, "printf '[core]\\n\\tbare = what\\n' >>.git/config");
        let programs = Programs::find(&machine.path().join("state")).expect("prepared");
        let place = Repository::of(&folder).expect("a repository");
        let ids = if setup.contains("sha256") { Ids::Sha256 } else { Ids::Sha1 };
        let mut git = programs.git_at(&place, ids).expect("prepared");
        let found = git.args(["rev-parse", &format!("{name}^{{commit}}"), "--abbrev-ref", "HEAD"]).output();
        assert_eq!(said(&found.expect("it runs")), expected, "{setup} {name}");
    }
}

#[test]
fn a_folder_without_a_repository_has_no_place() {
    let machine = machine();
    let project = machine.path().join("project");
    assert_eq!(Repository::of(&project), None);
    fs::write(project.join(".git"), "no folder\n").expect("written");
    assert_eq!(Repository::of(&project), None);
    fs::remove_file(project.join(".git")).expect("removed");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        project.join(".git"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .expect("a pipe");
    assert_eq!(Repository::of(&project), None, "a pipe is not read");
}

#[test]
fn settings_are_read_as_text_without_includes() {
    let machine = machine();
    let file = machine.path().join("config");
    fs::write(machine.path().join("more"), "[a]\n\tb = included\n").expect("written");
    fs::write(&file, "[a]\n\tb = c\n[include]\n\tpath = more\n[core]\n\tfsmonitor = touch x\n")
        .expect("written");
    let programs = Programs::find(&machine.path().join("state")).expect("prepared");
    let printed = programs.git_settings(&file).expect("it is there").output().expect("it runs");
    assert_eq!(said(&printed), "a.b\nc\0include.path\nmore\0core.fsmonitor\ntouch x\0");
}
