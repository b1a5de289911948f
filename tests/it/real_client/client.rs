//! The real client in a home of its own: no account, no network but loopback, and aside's hooks in
//! its settings.

use std::{
    env, fs,
    path::PathBuf,
    process::{Command, Output, Stdio},
};

use aside::client::HOOK_TIMEOUT_VARIABLE;
use serde_json::{Value, json};

use crate::support::daemon::{Home, text};

/// Where `scripts/real-client` says the client is.
const CLIENT_VARIABLE: &str = "ASIDE_REAL_CLAUDE";
/// No key at all; the client only wants one that was approved.
const API_KEY: &str = "sk-scripted-000000000000000000000000";
/// How much of a key the client keeps of those it may use.
const API_KEY_TAIL: usize = 20;

/// The client's program.
pub(super) fn program() -> PathBuf {
    env::var_os(CLIENT_VARIABLE)
        .unwrap_or_else(|| panic!("{CLIENT_VARIABLE} names no client: run scripts/real-client"))
        .into()
}

/// The first client that has a message socket and starts monitors without an account; an older one
/// is reached by its hooks alone.
const WOKEN_FROM: [u32; 3] = [2, 1, 224];

/// Such as `2.1.330`.
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

/// For how long a hook waits for its answer: below the two seconds after which the client ends it.
const HOOK_TIMEOUT_MS: u32 = 1_900;

/// Makes the client's home inside `home`: past its first questions, with permission for what the
/// scripts do.
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

/// Runs one of our own commands as the client's user does.
pub(super) fn aside(home: &Home, args: &[&str]) -> String {
    let output = home.command(args).envs(environment(home, "")).output().expect("the program runs");
    assert!(output.status.success(), "{args:?}: {output:?}");
    text(&output.stdout)
}

/// The client with `args`, talking to the API at `url` and to the daemon of `home`.
pub(super) fn client(home: &Home, url: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program());
    command.args(args).current_dir(home.work()).env_clear().envs(environment(home, url)).stdin(Stdio::null());
    command
}

/// What the client's process is to have around it.
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
        // Whatever would leave this machine ends at a port where nobody listens.
        ("HTTPS_PROXY", "http://127.0.0.1:1".to_owned()),
        ("NO_PROXY", "127.0.0.1,localhost".to_owned()),
        ("ASIDE_SOCKET", path("socket")),
        ("ASIDE_STATE", path("state")),
        ("ASIDE_CONFIG", path("config")),
        // What a hook says is not lost because other tests, or a build, have the machine.
        (HOOK_TIMEOUT_VARIABLE, HOOK_TIMEOUT_MS.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// Runs one prompt without a terminal, and checks that the client ended well and complained of no
/// hook.
pub(super) fn run_headless(home: &Home, url: &str) -> Vec<Value> {
    run_headless_with(home, url, &["-p", "go"])
}

/// The same with the prompt and the conversation that `args` name.
pub(super) fn run_headless_with(home: &Home, url: &str, args: &[&str]) -> Vec<Value> {
    let fixed = ["--output-format", "stream-json", "--verbose", "--permission-mode", "default"];
    let output = client(home, url, &[args, &fixed].concat()).output().expect("the client runs");
    let Output { status, stdout, stderr } = &output;
    assert!(status.success() && stderr.is_empty(), "{}\n{}", text(stdout), text(stderr));
    let said = text(stdout);
    // A call that was denied is a "hook error" to the client, so that is none of them.
    for complaint in ["hook_no_verdict", "stop-hook-error", "stop hook problem"] {
        assert!(!said.contains(complaint), "`{complaint}` in\n{said}");
    }
    said.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}
