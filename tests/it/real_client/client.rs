//! The real client in a home of its own: without an account, with no network but loopback, and with
//! aside's hooks in its settings.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use hook::client::HOOK_TIMEOUT_VARIABLE;
use serde_json::{Value, json};

use crate::support::daemon::{Home, text};

/// The variable in which `scripts/real-client` passes the client's path.
const CLIENT_VARIABLE: &str = "ASIDE_REAL_CLAUDE";
/// Not a real key; the client only requires an approved one.
const API_KEY: &str = "sk-scripted-000000000000000000000000";
/// Length of the end of each approved key that the client keeps.
const API_KEY_TAIL: usize = 20;

/// Path of the client's program.
pub(super) fn program() -> PathBuf {
    env::var_os(CLIENT_VARIABLE)
        .unwrap_or_else(|| panic!("{CLIENT_VARIABLE} names no client: run scripts/real-client"))
        .into()
}

/// The first client that has a message socket and starts monitors without an account; an older one
/// is only reachable by its hooks.
const WOKEN_FROM: [u32; 3] = [2, 1, 224];

/// The client's version, such as `2.1.330`.
pub(super) fn version() -> String {
    let mut command = Command::new(program());
    let output = command.arg("--version").env("DISABLE_AUTOUPDATER", "1").output().expect("the client runs");
    text(&output.stdout).split_whitespace().next().unwrap_or_default().to_owned()
}

/// Whether this client can be woken.
pub(super) fn can_be_woken() -> bool {
    version().split('.').map_while(|part| part.parse().ok()).collect::<Vec<u32>>().as_slice()
        >= WOKEN_FROM.as_slice()
}

/// Milliseconds that a hook waits for its answer: less than the two seconds after which the client
/// ends it.
const HOOK_TIMEOUT_MS: u32 = 1_900;

/// Makes the client's home inside `home`: its first questions are answered, and the scripts' calls
/// are permitted.
pub(super) fn settle(home: &Home) {
    let claude = home.path("claude");
    fs::create_dir_all(&claude).expect("a folder");
    let tail = API_KEY.get(API_KEY.len() - API_KEY_TAIL..).expect("long enough");
    let state = json!({
        "hasCompletedOnboarding": true, "theme": "dark", "numStartups": 5,
        "customApiKeyResponses": { "approved": [tail], "rejected": [] },
        "projects": { (home.work()): {
            "hasTrustDialogAccepted": true, "hasCompletedProjectOnboarding": true, "allowedTools": []
        } },
    });
    fs::write(claude.join(".claude.json"), state.to_string()).expect("written");
    let settings =
        json!({ "permissions": { "allow": ["Bash(*)", "Edit", "Write", "mcp__plugin_aside_aside"] } });
    fs::write(claude.join("settings.json"), settings.to_string()).expect("written");
}

/// Runs one of aside's commands as the client's user does.
pub(super) fn aside(home: &Home, args: &[&str]) -> String {
    let output = home.command(args).envs(environment(home, "")).output().expect("the program runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
    text(&output.stdout)
}

/// The client with `args`, connected to the API at `url` and to the daemon of `home`.
pub(super) fn client(home: &Home, url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).current_dir(home.work()).env_clear().envs(environment(home, url)).stdin(Stdio::null());
    command
}

/// The environment of the client's process.
pub(super) fn environment(home: &Home, url: &str) -> Vec<(String, String)> {
    let path = |name: &str| home.path(name).to_string_lossy().into_owned();
    [
        ("PATH", env::var("PATH").expect("a path")),
        ("HOME", path("")),
        ("TERM", "xterm-256color".to_owned()),
        ("CLAUDE_CONFIG_DIR", path("claude")),
        ("ANTHROPIC_BASE_URL", url.to_owned()),
        ("ANTHROPIC_API_KEY", API_KEY.to_owned()),
        ("DISABLE_AUTOUPDATER", "1".to_owned()),
        ("DISABLE_TELEMETRY", "1".to_owned()),
        ("DISABLE_ERROR_REPORTING", "1".to_owned()),
        // Requests that would leave this machine go to a port without a listener.
        ("HTTPS_PROXY", "http://127.0.0.1:1".to_owned()),
        ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
        ("ASIDE_SOCKET", path("socket")),
        ("ASIDE_STATE", path("state")),
        ("ASIDE_CONFIG", path("config")),
        // Texts of hooks are not lost if other tests, or a build, keep the machine busy.
        (HOOK_TIMEOUT_VARIABLE, HOOK_TIMEOUT_MS.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Runs one prompt without a terminal, and checks that the client succeeded and reported no problem
/// with a hook.
pub(super) fn run_headless(home: &Home, url: &str) -> Vec<Value> {
    run_headless_with(home, url, &["-p", "go"])
}

/// Like [`run_headless`], with the prompt and the conversation in `args`.
pub(super) fn run_headless_with(home: &Home, url: &str, args: &[&str]) -> Vec<Value> {
    let fixed = ["--output-format", "stream-json", "--verbose", "--permission-mode", "default"];
    let output = client(home, url, &[args, &fixed].concat()).output().expect("the client runs");
    let Output { status, stdout, stderr } = &output;
    assert!(status.success() && stderr.is_empty(), "{}\n{}", text(stdout), text(stderr));
    let said = text(stdout);
    // The client reports a denied call as a "hook error", so that term is not in the list.
    for complaint in ["hook_no_verdict", "stop-hook-error", "stop hook problem"] {
        assert!(!said.contains(complaint), "`{complaint}` in\n{said}");
    }
    said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
