//! Runs the commands of the documentation as a new user does: page by page, in the order of the
//! page, in an empty home with a daemon, and the program in the `PATH`. A page whose first block has
//! `aside up` starts the daemon itself.
//!
//! | block | |
//! |---|---|
//! | `console` | a line with `$` is a command, and the lines below it are its output on a terminal of 80 columns: equal but for [ids and times](variable). An id of an output may be used in a later command. Each command succeeds; in a `console fails` block the last one fails |
//! | `sh` | each line is a command that succeeds, or fails in a `sh fails` block, and its output fits the terminal |
//! | `json answers` | the answer to the last request of the `sh` block above, but for [ids and times](answer); in the page of the API any other `json` block says in `shows=WORD` what it shows |
//! | `toml`, `jinja`, `json` | becomes a file if its first line is the comment of a path in the home: `# ~/PATH`, `{# ~/PATH #}` |
//! | `python` | is run if it is in the README |
//! | `text` | shows no output of a command, and says in `shows=WORD` what it shows |
//!
//! A block of commands that is not run says why with `not-run=WORD`. The words are in [`marks`].
//! `ASIDE_BLESS=1` writes the outputs into the pages.

mod answer;
mod marks;
mod transcript;
mod user;
mod variable;

use std::{env, fs, path::Path};

use serde_json::Value;

use self::{
    marks::{ANSWERS, LEFT_OUT, PRINTED, unknown_mark},
    transcript::{Transcript, commands},
    user::{COLUMNS, User},
    variable::Ids,
};
use crate::{
    docs::{Block, blocks, read},
    support::daemon::text,
};

/// The pages for users.
fn pages() -> Vec<String> {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let entries = fs::read_dir(docs).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let names = entries.map(|name| name.to_string_lossy().into_owned());
    let mut pages: Vec<String> =
        names.filter(|name| name.ends_with(".md")).map(|name| format!("docs/{name}")).collect();
    pages.push("README.md".to_owned());
    pages.sort_unstable();
    pages
}

/// A block whose commands are run here.
fn is_run(block: &Block) -> bool {
    let has_commands = matches!(&*block.language, "sh" | "console");
    has_commands && !block.marks.contains("not-run=")
}

/// A run of a page.
struct Page {
    user: User,
    ids: Ids,
    faults: Vec<String>,
    /// The answer to the last request.
    answer: String,
    /// Blocks whose outputs differ, as they should be: the line of the fence and the text.
    blessed: Vec<(usize, String)>,
}

impl Page {
    fn run(name: &str) -> Vec<String> {
        let blocks = blocks(name);
        let Some(first) = blocks.iter().find(|block| is_run(block)) else { return Vec::new() };
        let mut page = Self {
            user: User::new(),
            ids: Ids::default(),
            faults: Vec::new(),
            answer: String::new(),
            blessed: Vec::new(),
        };
        if !first.text.contains("aside up") {
            assert!(page.user.run("aside up").has_succeeded, "{name}: the daemon starts");
        }
        for block in &blocks {
            match &*block.language {
                "sh" if is_run(block) => page.run_commands(block),
                "console" if is_run(block) => page.run_transcript(block),
                "json" if block.marks == ANSWERS => page.compare_answer(block),
                "python" if name == "README.md" => page.run_python(block),
                _ => {
                    if let Some(path) = file_of(block) {
                        page.user.write(path, &block.text);
                    }
                }
            }
        }
        if env::var_os("ASIDE_BLESS").is_some() {
            page.bless(name);
        }
        page.faults
    }

    fn run_commands(&mut self, block: &Block) {
        for command in commands(&block.text) {
            if LEFT_OUT.iter().any(|(begin, _)| command.starts_with(begin)) {
                continue;
            }
            let found = self.faults_of(&command, block.marks == "fails");
            self.faults.extend(found.into_iter().map(|fault| format!("{}: {command} {fault}", block.place)));
        }
    }

    fn faults_of(&mut self, command: &str, fails: bool) -> Vec<String> {
        if command.starts_with("curl ") {
            let (status, answer) = self.user.request(&self.ids.own(command));
            self.answer = self.user.as_in_pages(&text(&answer));
            return if matches!(status, 200..300) != fails {
                Vec::new()
            } else {
                vec![format!("answers {status}")]
            };
        }
        let own = self.user.own(&self.ids.own(command));
        let ran = self.user.run(&own);
        let mut faults = Vec::new();
        if ran.has_succeeded == fails {
            faults.push(format!("fails: {}", ran.shown));
        }
        // A shell's startup code is for the shell.
        if !own.contains("shell-init") {
            let wide = ran.shown.lines().filter(|line| line.chars().count() > usize::from(COLUMNS));
            faults.extend(wide.map(|line| format!("prints more than {COLUMNS} columns: {line}")));
        }
        for (_, part) in PRINTED.iter().filter(|(printing, _)| *printing == command) {
            if !ran.shown.contains(part) {
                faults.push(format!("prints no {part}: {}", ran.shown));
            }
        }
        faults
    }

    fn run_transcript(&mut self, block: &Block) {
        let ran = Transcript::parse(block).run(&self.user, &mut self.ids);
        if ran.faults.is_empty() {
            return;
        }
        self.faults.extend(ran.faults.into_iter().map(|fault| format!("{}: {fault}", block.place)));
        self.blessed.push((block.number, ran.text));
    }

    fn compare_answer(&mut self, block: &Block) {
        let [page, run] = [&block.text, &self.answer].map(|text| serde_json::from_str::<Value>(text));
        let found = match (page, run) {
            (Ok(page), Ok(run)) => answer::differences(&page, &run),
            (page, run) => vec![format!("is no JSON: {page:?}, {run:?}")],
        };
        if !found.is_empty() {
            let answer = &self.answer;
            self.faults.push(format!("{}: {}\nthe answer is {answer}", block.place, found.join("\n")));
        }
    }

    fn run_python(&mut self, block: &Block) {
        self.user.run("aside publish tool.call.failure tool_name=fetch");
        let ran = self.user.command("python3").args(["-c", &block.text]).output().expect("python3 runs");
        if !ran.status.success() || text(&ran.stdout).trim().is_empty() {
            self.faults.push(format!("{}: {ran:?}", block.place));
        }
    }

    /// Writes the outputs of this run into the page.
    fn bless(&mut self, name: &str) {
        let page = read(name);
        let mut lines: Vec<&str> = page.lines().collect();
        for (number, text) in self.blessed.iter().rev() {
            let length = lines.iter().skip(*number).take_while(|line| !line.starts_with("```")).count();
            lines.splice(*number..number + length, text.lines());
        }
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
        fs::write(path, lines.join("\n") + "\n").expect("written");
    }
}

/// The path below the home of the file that a block shows.
fn file_of(block: &Block) -> Option<&str> {
    let first = block.text.lines().next()?;
    let path = first.strip_prefix("# ~/").or_else(|| first.strip_prefix("{# ~/")?.strip_suffix(" #}"))?;
    (!path.contains(' ')).then_some(path)
}

#[test]
fn the_commands_of_every_page_run_as_printed() {
    let pages = pages();
    let found: Vec<Vec<String>> = std::thread::scope(|scope| {
        let runs: Vec<_> = pages.iter().map(|page| scope.spawn(|| Page::run(page))).collect();
        runs.into_iter().map(|run| run.join().expect("it ran")).collect()
    });
    let faults: Vec<String> = found.into_iter().flatten().collect();
    assert!(faults.is_empty(), "{}\n\nASIDE_BLESS=1 writes the outputs", faults.join("\n\n"));
    let count = pages.iter().flat_map(|page| blocks(page)).filter(is_run).count();
    assert!(count > 30, "only {count} blocks are run");
}

#[test]
fn every_block_is_run_or_says_why_not() {
    let mut faults = Vec::new();
    for block in pages().iter().flat_map(|page| blocks(page)) {
        faults.extend(unknown_mark(&block).map(|fault| format!("{}: {fault}", block.place)));
        if matches!(&*block.language, "sh" | "console") {
            let width = usize::from(COLUMNS);
            let wide = block.text.lines().find(|line| line.chars().count() > width);
            faults.extend(wide.map(|line| format!("{}: wider than {width} columns: {line}", block.place)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
