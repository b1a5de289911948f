//! Blocks of commands.

use super::{
    user::User,
    variable::{Ids, Plain},
};
use crate::docs::Block;

/// The commands of an `sh` block, without comments.
pub(super) fn commands(text: &str) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut is_open = false;
    for line in text.lines() {
        match commands.last_mut().filter(|_| is_open) {
            Some(open) => {
                open.push('\n');
                open.push_str(line);
            }
            None => commands.push(line.to_owned()),
        }
        is_open = is_unfinished(commands.last().map(String::as_str).unwrap_or_default());
    }
    let without_comment = |command: String| match command.split_once("  # ") {
        Some((command, _)) => command.trim_end().to_owned(),
        None => command,
    };
    commands.into_iter().map(without_comment).filter(|command| !command.is_empty()).collect()
}

/// Whether the shell would read another line.
fn is_unfinished(command: &str) -> bool {
    command.ends_with('\\') || shlex::split(command).is_none()
}

/// A `console` block.
pub(super) struct Transcript {
    steps: Vec<Step>,
    /// Whether the last command fails.
    fails: bool,
}

struct Step {
    command: String,
    output: String,
}

/// A transcript that was run: what differs, and the block as it should be.
pub(super) struct Compared {
    pub(super) faults: Vec<String>,
    pub(super) text: String,
}

impl Transcript {
    pub(super) fn parse(block: &Block) -> Self {
        let mut steps: Vec<Step> = Vec::new();
        for line in block.text.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(command), _) => steps.push(Step { command: command.to_owned(), output: String::new() }),
                (None, Some(step)) if step.output.is_empty() && is_unfinished(&step.command) => {
                    step.command.push('\n');
                    step.command.push_str(line);
                }
                (None, Some(step)) => {
                    step.output.push_str(line);
                    step.output.push('\n');
                }
                (None, None) => panic!("{} does not begin with a command", block.place),
            }
        }
        Self { steps, fails: block.marks.split(' ').any(|mark| mark == "fails") }
    }

    /// Runs the commands, and compares what they print.
    pub(super) fn run(&self, user: &User, ids: &mut Ids) -> Compared {
        let (mut faults, mut text) = (Vec::new(), String::new());
        for (index, Step { command, output }) in self.steps.iter().enumerate() {
            let own = user.own(&ids.own(command));
            let is_asking = command.starts_with("aside ask ") && !command.contains("--no-wait");
            let ran = if is_asking { user.run_and_answer(&own) } else { user.run(&own) };
            let shown = user.as_in_pages(&ran.shown);
            let [page, run] = [output, &shown].map(|text| Plain::of(text));
            let has_to_succeed = !(self.fails && index + 1 == self.steps.len());
            if ran.has_succeeded != has_to_succeed {
                let ends = if ran.has_succeeded { "succeeds" } else { "fails" };
                faults.push(format!("$ {command}\n{ends}, and prints\n{shown}"));
            }
            let is_same = page.lines == run.lines;
            if !is_same {
                faults.push(format!("$ {command}\nprints\n{}\n\nand not\n{output}", shown.trim_end()));
            }
            if is_same && let Err(fault) = ids.pair(&page, &run) {
                faults.push(format!("$ {command}\n{fault}"));
            }
            let kept = if is_same { output.clone() } else { ids.written(&shown) };
            text.push_str(&format!("$ {command}\n{kept}"));
        }
        Compared { faults, text }
    }
}
