//! A client at a terminal on a stage: with aside in its settings, or without aside.

use std::{fs, path::PathBuf, sync::Arc};

use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use super::{
    api::{Api, Turn},
    stage::Stage,
    terminal::{PATIENCE, Terminal, within},
};
use crate::support::daemon::Home;

/// The client's hints for the keys that stop a command and close a list.
const STOP_KEY: &str = "x to stop";
const CLOSE_KEY: &str = "to close";

/// A terminal with a client in it, and the API of the client.
pub(super) struct Desk {
    /// Dropped first: it is ended through a socket in the home.
    terminal: Terminal,
    pub(super) api: Api,
    home: Arc<Home>,
}

impl Desk {
    /// Starts the client with a first prompt; its model plays `turns`.
    pub(super) fn taken(stage: &Stage, turns: Vec<Turn>) -> Self {
        let (home, api) = (stage.home.clone(), Api::playing(turns));
        let terminal = Terminal::of_client(&home, &api.url(), &["go"]);
        Self { terminal, api, home }
    }

    /// Waits until the model has got `requests` requests and no turn is under way.
    pub(super) fn rest_after(&self, requests: usize) {
        assert!(self.api.wait_for(requests, PATIENCE), "no request {requests}:\n{}", self.terminal.screen());
        self.rest();
    }

    /// Enters a prompt, and waits until the model got it and the turn is over. The client may have
    /// turns of its own before.
    pub(super) fn prompt(&self, line: &str) {
        let given = || {
            let texts = |messages: &Vec<Value>| {
                messages.iter().flat_map(super::texts).filter(|text| text.trim() == line).count()
            };
            self.api.conversation().iter().map(texts).max().unwrap_or_default()
        };
        let before = given();
        self.enter(line);
        self.wait_until(line, || given() > before);
        self.rest();
    }

    /// Waits until no turn is under way, in the client and in the daemon.
    fn rest(&self) {
        self.wait_until("no turn is under way", || {
            self.terminal.says_idle(&self.home) && self.daemon_sees_none()
        });
    }

    fn enter(&self, line: &str) {
        assert!(self.terminal.enter(line), "`{line}` is not seen:\n{}", self.terminal.screen());
    }

    fn daemon_sees_none(&self) -> bool {
        let Ok(answer) = self.home.try_ask("GET", "/v1/sessions", "") else { return true };
        let list = answer.json();
        let mut open =
            list["sessions"].as_array().into_iter().flatten().filter(|session| session["is_open"] == true);
        open.all(|session| session["state"] == "idle")
    }

    /// Waits until `words` are on the screen.
    pub(super) fn see(&self, words: &str) {
        self.wait_until(words, || self.terminal.screen().contains(words));
    }

    /// The id of the conversation, as the client reports it.
    pub(super) fn conversation(&self) -> String {
        self.terminal.file(&self.home)["sessionId"].as_str().unwrap_or_default().to_owned()
    }

    /// Begins another conversation.
    pub(super) fn clear(&self) {
        let old = self.conversation();
        self.enter("/clear");
        self.wait_until("another conversation", || self.conversation() != old);
    }

    /// Resumes a conversation.
    pub(super) fn resume(&self, conversation: &str) {
        self.enter(&format!("/resume {conversation}"));
        self.wait_until("the old conversation", || self.conversation() == conversation);
    }

    /// Stops the background command with this process, as the user does.
    pub(super) fn stop_command(&self, process: Pid) {
        self.enter("/tasks");
        self.see(STOP_KEY);
        self.terminal.press(&["x"]);
        self.wait_until("the command is gone", || test_kill_process(process).is_err());
        // The list stays open if other things run.
        self.terminal.press(&["Escape"]);
        self.wait_until("the list is closed", || !self.terminal.screen().contains(CLOSE_KEY));
        // If the list was closed already, the client would combine the key with the next one, so
        // that is one without an effect.
        self.terminal.press(&["C-u"]);
    }

    /// Kills the client, once the last message of its model is in the transcript.
    pub(super) fn kill(self, said_last: &str) -> Api {
        let has_written = || self.transcripts().iter().any(|transcript| transcript.contains(said_last));
        self.wait_until("the answer is in the transcript", has_written);
        kill_process(self.terminal.pid(), Signal::KILL).expect("it runs");
        self.api
    }

    fn transcripts(&self) -> Vec<String> {
        let files =
            |folder: PathBuf| fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
        let projects = files(self.home.path("claude/projects"));
        projects.flat_map(files).filter_map(|path| fs::read_to_string(path).ok()).collect()
    }

    fn wait_until(&self, what: &str, is_so: impl FnMut() -> bool) {
        assert!(within(PATIENCE, is_so), "not so: {what}:\n{}", self.terminal.screen());
    }
}

/// The requests of the conversation without those that contain `words`.
pub(super) fn less(conversation: Vec<Vec<Value>>, words: &str) -> Vec<Vec<Value>> {
    conversation.into_iter().filter(|messages| super::place(messages, words).is_none()).collect()
}
