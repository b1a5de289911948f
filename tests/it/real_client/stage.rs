//! The stage of a play: the home of a client, alone or with aside and its daemon, in which time can
//! pass.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use journal::{
    record::{self, Decoded, Record},
    time::Timestamp,
};
use serde_json::{Value, json};

use super::{calls::put, client::aside, settled_home};
use crate::support::daemon::{Daemon, Home};

/// Offset of the first record in a journal's file.
const RECORDS_AT: usize = 16;
/// Size of the small disk, and bytes of it that are filled.
const SMALL_DISK: &str = "size=64m";
const FILLED_BYTES: usize = 60 << 20;
/// Settings of a daemon that looks at the disk.
const WITH_DISK: &str = "[sources.disk]\nenabled = true\n";

/// The user's own status line: the fill of the context, as `"used_percentage":83`.
const STATUS_LINE: &str = "grep -o '\"used_percentage\":[0-9]*' | head -n 1";

pub(super) struct Stage {
    pub(super) home: Arc<Home>,
    daemon: Option<Daemon>,
    has_small_disk: bool,
    /// Whether the event happens; without it, everything else is played.
    pub(super) happens: bool,
}

impl Stage {
    /// Without aside.
    pub(super) fn alone() -> Self {
        Self { home: home_with_status_line(), daemon: None, has_small_disk: false, happens: true }
    }

    /// Without aside and without the event.
    pub(super) fn control() -> Self {
        let mut stage = Self::alone();
        stage.happens = false;
        stage
    }

    pub(super) fn with_aside() -> Self {
        let home = home_with_status_line();
        aside(&home, &["install", "claude-code", "--user", "--statusline"]);
        let daemon = home.serve();
        Self { home, daemon: Some(daemon), has_small_disk: false, happens: true }
    }

    /// Runs `what` if the event happens.
    pub(super) fn if_it_happens(
        &self,
        what: impl FnOnce() + Send + 'static,
    ) -> impl FnOnce() + Send + 'static {
        let happens = self.happens;
        move || {
            if happens {
                what();
            }
        }
    }

    /// The user writes `content` into a file, if the event happens.
    pub(super) fn user_writes(
        &self,
        name: &'static str,
        content: &'static str,
    ) -> impl FnOnce() + Send + 'static {
        let home = self.home.clone();
        self.if_it_happens(move || put(&home, name, content))
    }

    /// Makes everything done so far older by `by`: the records in the daemon's journal and the
    /// lines in the client's transcripts. Restarts the daemon, which reads the time without a
    /// daemon from the wall clock.
    pub(super) fn pass(&mut self, by: Duration) {
        age_transcripts(&self.home.path("claude/projects"), by);
        self.pass_for_daemon(by);
    }

    /// Like [`Self::pass`] for the daemon alone, while the client works.
    pub(super) fn pass_for_daemon(&mut self, by: Duration) {
        if let Some(daemon) = self.daemon.take() {
            assert_eq!(daemon.stop().status.code(), Some(0));
            age_journal(&self.home.state(), by);
            self.daemon = Some(self.home.serve());
        }
    }

    /// Puts the client's folder on a disk of its own, and has the daemon report a full one.
    pub(super) fn have_small_disk(&mut self) {
        self.home.configure("aside.toml", WITH_DISK);
        if self.daemon.is_some() {
            aside(&self.home, &["reload"]);
        }
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", SMALL_DISK, "aside-test"]).arg(self.home.work());
        assert!(
            mount.status().is_ok_and(|status| status.success()),
            "a test with mounts of its own may mount"
        );
        self.has_small_disk = true;
    }

    /// Fills that disk except for some MB.
    pub(super) fn fill_disk(&self) -> impl FnOnce() + Send + 'static {
        let path = PathBuf::from(self.home.work()).join("large");
        move || fs::write(path, vec![0; FILLED_BYTES]).expect("it has room for that")
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.has_small_disk {
            Command::new("umount").arg("-l").arg(self.home.work()).status().ok();
        }
    }
}

fn home_with_status_line() -> Arc<Home> {
    let home = settled_home();
    let settings = home.path("claude/settings.json");
    let text = fs::read_to_string(&settings).expect("it is settled");
    let mut json: Value = serde_json::from_str(&text).expect("JSON");
    json["statusLine"] = json!({ "type": "command", "command": STATUS_LINE });
    fs::write(&settings, json.to_string()).expect("written");
    home
}

fn age_journal(state: &Path, by: Duration) {
    // Both are made again from the journal.
    fs::remove_dir_all(state.join("snapshots")).expect("one was written at the end");
    fs::remove_file(state.join("projection.db")).expect("it is there");
    for entry in fs::read_dir(state.join("journal")).expect("a folder").flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|extension| extension == "seg") && !path.ends_with("next.seg") {
            let mut bytes = fs::read(&path).expect("a file");
            assert!(age_records(&mut bytes[RECORDS_AT..], by) > 0, "no record in {}", path.display());
            fs::write(path, bytes).expect("written");
        }
    }
}

/// Makes the records older; returns their number.
fn age_records(bytes: &mut [u8], by: Duration) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Decoded::Record { record, durable, size } = record::decode(&bytes[at..]) {
        let by = u64::try_from(by.as_millis()).expect("no age of the world");
        let time = Timestamp::from_millis(record.time.as_millis() - by);
        let mut aged = Vec::new();
        record::encode(Record { time, ..record }, durable, &mut aged);
        bytes[at..at + size].copy_from_slice(&aged);
        (at, count) = (at + size, count + 1);
    }
    count
}

fn age_transcripts(projects: &Path, by: Duration) {
    let files = |folder: &Path| fs::read_dir(folder).expect("a folder").flatten().map(|entry| entry.path());
    let transcripts = files(projects).flat_map(|project| files(&project).collect::<Vec<_>>());
    let transcripts: Vec<PathBuf> =
        transcripts.filter(|path| path.extension().is_some_and(|extension| extension == "jsonl")).collect();
    assert!(!transcripts.is_empty(), "the client has written no transcript");
    for path in transcripts {
        let text = fs::read_to_string(&path).expect("text");
        let lines = text.lines().map(|line| {
            let mut line: Value = serde_json::from_str(line).expect("JSON");
            if let Some(time) = line["timestamp"].as_str() {
                let time: jiff::Timestamp = time.parse().expect("a time");
                line["timestamp"] = json!((time - by).to_string());
            }
            line.to_string() + "\n"
        });
        let aged: String = lines.collect();
        let modified = fs::metadata(&path).and_then(|found| found.modified()).expect("it has a time");
        fs::write(&path, aged).expect("written");
        let file = fs::File::options().append(true).open(&path).expect("there");
        file.set_modified(modified - by).expect("it may be set");
    }
}
