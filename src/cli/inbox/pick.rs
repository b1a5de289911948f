//! Interactive selection of one notification after another, on a terminal.

use dialoguer::{Select, console::Term, theme::SimpleTheme};

use crate::{
    api::wire::inbox::{InboxList, WaitingView},
    cli::{
        CliError, Context,
        ids::{self, Names, ShortIds},
        inbox::decision::{Which, discuss, dismiss},
        terminal::one_line,
    },
};

/// An action for a notification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Leave,
    Dismiss,
    Discuss,
    /// Print its text, and choose again.
    Text,
}

impl Choice {
    fn of(waiting: &WaitingView) -> Vec<Self> {
        let is_for_user = waiting.waits_for == WaitingView::USER;
        [Some(Self::Leave), is_for_user.then_some(Self::Discuss), Some(Self::Dismiss), Some(Self::Text)]
            .into_iter()
            .flatten()
            .collect()
    }

    const fn shown(self) -> &'static str {
        match self {
            Self::Leave => "keep it",
            Self::Dismiss => "dismiss it: the agent is not notified",
            Self::Discuss => "hand it to the agent",
            Self::Text => "show the text for the agent",
        }
    }
}

/// Prompts until nothing is pending or nothing is picked.
pub(super) fn run(session: Option<&str>, context: &mut Context<'_>) -> Result<(), CliError> {
    let doing = "list the pending notifications";
    let mut at = 0;
    loop {
        let page = ids::inbox_page(session, None);
        let InboxList { notifications, questions, .. } = context.get(doing, &page)?;
        if notifications.is_empty() {
            let asked = asked(questions);
            return context.print(if asked.is_empty() { "no pending notifications\n" } else { &asked });
        }
        let names = Names::ask(context);
        let ids = ShortIds::of_notifications(notifications.iter().map(|one| &*one.id));
        let line = |one: &WaitingView| {
            let shown = one.head(&ids.short(&one.id), &names, &context.terminal);
            // The list puts two columns before each line; the last column stays free.
            context.terminal.cut_after(3, &one_line(&format!("{shown}: {}", one.sentence))).into_owned()
        };
        let lines: Vec<String> = notifications.iter().map(line).collect();
        let Some(picked) = pick("pending notifications (Esc quits)", &lines, at)? else { return Ok(()) };
        let Some(one) = notifications.get(picked) else { return Ok(()) };
        let shown = one.shown(&ids.short(&one.id), &names, &context.terminal);
        context.print(&shown)?;
        let which = || Which { id: one.id.clone(), session: queue(one).map(str::to_owned) };
        match choose(one, context)? {
            Choice::Dismiss => dismiss(&which(), context)?,
            Choice::Discuss => discuss(&which(), context)?,
            Choice::Leave | Choice::Text => at = picked.saturating_add(1) % notifications.len(),
        }
    }
}

/// The session whose queue has it; a session that is not open yet has none.
fn queue(waiting: &WaitingView) -> Option<&str> {
    waiting.session.as_deref().filter(|_| waiting.waits_for != WaitingView::NEXT_SESSION)
}

/// What to do with a notification: never [`Choice::Text`], which prints the text and prompts again.
fn choose(one: &WaitingView, context: &mut Context<'_>) -> Result<Choice, CliError> {
    let choices = Choice::of(one);
    let words: Vec<&str> = choices.iter().map(|choice| choice.shown()).collect();
    loop {
        let chosen = pick("what to do with it?", &words, 0)?.and_then(|chosen| choices.get(chosen).copied());
        let chosen = chosen.unwrap_or(Choice::Leave);
        if chosen != Choice::Text {
            return Ok(chosen);
        }
        let text = one.text_lines(&context.terminal);
        context.print(&text)?;
    }
}

/// The index of the picked line, if any.
fn pick<T: std::fmt::Display>(prompt: &str, lines: &[T], at: usize) -> Result<Option<usize>, CliError> {
    let select = Select::with_theme(&SimpleTheme).with_prompt(prompt).items(lines).default(at).report(false);
    select.interact_on_opt(&Term::stdout()).map_err(CliError::Ask)
}

/// The line about questions that wait for the user's answer; empty if there is none.
pub(super) fn asked(questions: usize) -> String {
    match questions {
        0 => String::new(),
        1 => "1 question waits for your answer: aside answer\n".to_owned(),
        count => format!("{count} questions wait for your answer: aside answer\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_not_open_yet_has_no_queue() {
        for (waits_for, expected) in [
            (WaitingView::AGENT, Some("s1")),
            (WaitingView::USER, Some("s1")),
            (WaitingView::NEXT_SESSION, None),
        ] {
            let session = Some("s1".to_owned());
            let waiting = WaitingView { session, waits_for: waits_for.to_owned(), ..WaitingView::default() };
            assert_eq!(queue(&waiting), expected, "{waits_for}");
        }
    }

    #[test]
    fn discuss_is_offered_only_for_user_notifications() {
        let waiting = |who: &str| WaitingView { waits_for: who.to_owned(), ..WaitingView::default() };
        assert_eq!(
            Choice::of(&waiting(WaitingView::USER)),
            [Choice::Leave, Choice::Discuss, Choice::Dismiss, Choice::Text]
        );
        assert_eq!(Choice::of(&waiting("agent")), [Choice::Leave, Choice::Dismiss, Choice::Text]);
    }
}
