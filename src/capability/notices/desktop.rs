//! The desktop's notifications, by `notify-send`.

use std::{env, path::Path, sync::Arc};

use engine::{
    notification::Sink,
    sink::{Answered, Choices, Notice, Parts, Progress, Shown, Target},
};
use futures_util::FutureExt;

use super::{
    kind::{Attempt, Kind, never, word_of},
    process::{COMMAND_MAX, command_of, in_path, run},
};
use crate::daemon::program::{Program, Programs};

pub(super) const KIND: Kind = Kind {
    sink: Sink::Desktop,
    waits_for_choice: true,
    limit: |notice, _, now| match &notice.choices {
        // The engine ends an expired question; this limit is for questions that it does not end.
        Some(Choices { expires_at, .. }) => expires_at.since(now) + COMMAND_MAX,
        None => COMMAND_MAX,
    },
    check: |_, programs| async move { check(programs) }.boxed(),
    send: |&Attempt { notice, programs, .. }| show(notice, programs).boxed(),
};

/// The variable with the address of the session bus, and the variable with the folder of its
/// default socket.
const BUS_VARIABLE: &str = "DBUS_SESSION_BUS_ADDRESS";
const RUNTIME_VARIABLE: &str = "XDG_RUNTIME_DIR";

/// The program that shows a notice.
///
/// Errors: the reason that none can be shown.
fn check(programs: &Programs) -> Result<String, String> {
    if !has_bus() {
        return Err("the daemon has no session bus".to_owned());
    }
    in_path(Program::NotifySend.as_str(), programs)
}

/// Shows a notice on the desktop, if there is one.
async fn show(notice: &Notice, programs: &Programs) -> Answered {
    if !has_bus() {
        return never(format!("no desktop: no session bus, {BUS_VARIABLE} is not set"));
    }
    if let Some(choices) = &notice.choices
        && let Ok(answered) = ask(notice, &choices.words, programs).await
    {
        return answered;
    }
    let args = |replace: Option<String>| {
        let text = [notice.title(), notice.text_for(Target::Desktop, Parts::ALL)];
        let mut args = options(notice);
        args.extend(replace.into_iter().chain(["--".to_owned()]).chain(text));
        args
    };
    let replace = notice.progress.as_ref().map(replace_id);
    let is_replaced = replace.is_some();
    let mut shown = run(command_of(Program::NotifySend, programs), &args(replace), "").await;
    if is_replaced && shown.is_err() {
        // Older versions do not know the option.
        shown = run(command_of(Program::NotifySend, programs), &args(None), "").await;
    }
    shown.map_or_else(|refused| refused, |_| Answered::Took(None))
}

/// The option that updates the window of the replaced notice, if it is open. The number is high
/// because servers count from 1.
///
/// Source: notify-send(1) of libnotify 0.8, and the desktop notifications specification: a server
/// returns the same number, so a new window gets it if it is not in use.
fn replace_id(progress: &Progress) -> String {
    let digits = progress.line.get(..8).and_then(|digits| u32::from_str_radix(digits, 16).ok());
    format!("--replace-id={}", digits.unwrap_or_default() & 0x3fff_ffff | 0x4000_0000)
}

/// Shows a button for each choice, and waits until one is chosen or the question is closed.
///
/// Source: notify-send(1) of libnotify 0.8: `--action` prints the name of the chosen action.
/// Errors: why the command failed; an older version has no actions, and then the question is shown
/// as text.
async fn ask(notice: &Notice, choices: &[Arc<str>], programs: &Programs) -> Result<Answered, Answered> {
    let mut args = options(notice);
    args.extend(["--wait".to_owned(), "--expire-time=0".to_owned()]);
    let buttons = Parts { command: Shown::Apart, ..Parts::ALL };
    args.extend(choices.iter().enumerate().map(|(index, choice)| format!("--action={index}={choice}")));
    args.extend(["--".to_owned(), notice.title(), notice.text_for(Target::Desktop, buttons)]);
    let said = run(command_of(Program::NotifySend, programs), &args, "").await?;
    let chosen = said.trim().parse::<usize>().ok().and_then(|index| choices.get(index));
    Ok(chosen.map_or(Answered::Took(None), |choice| Answered::Chose(Arc::clone(choice))))
}

fn options(notice: &Notice) -> Vec<String> {
    let urgency = word_of(notice.level, ["low", "normal", "critical"]);
    let mut options = vec!["--app-name=aside".to_owned(), format!("--urgency={urgency}")];
    if let Some(progress) = &notice.progress {
        // For servers that ignore the number.
        options.push(format!("--hint=string:x-canonical-private-synchronous:{}", progress.line));
        options.extend(progress.percent.map(|percent| format!("--hint=int:value:{percent}")));
    }
    options
}

/// Whether the session bus exists.
fn has_bus() -> bool {
    let is_set = |name: &str| env::var_os(name).filter(|value| !value.is_empty());
    let in_folder = || is_set(RUNTIME_VARIABLE).is_some_and(|folder| Path::new(&folder).join("bus").exists());
    is_set(BUS_VARIABLE).is_some() || in_folder()
}
