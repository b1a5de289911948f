//! How `aside inbox` shows what is pending, what is taken up, and the open questions.

use std::collections::BTreeMap;

use crate::{
    api::wire::inbox::{HoldView, TakenUp, WaitingView},
    cli::{
        ids::{Names, ShortIds},
        terminal::{self, Terminal, Tone, one_line},
        why::rules::Rules,
    },
};

/// Pending notifications in the order of their first sessions, each once with the other ones.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) notifications: Vec<(WaitingView, Vec<String>)>,
    /// The places of a notification: several if it is held in some of its sessions.
    places: BTreeMap<String, Vec<usize>>,
}

impl Gathered {
    pub(super) fn add(&mut self, one: WaitingView) {
        let Self { notifications, places } = self;
        let places = places.entry(one.id.clone()).or_default();
        let is_same = |(other, _): &(WaitingView, Vec<String>)| {
            (&other.waits_for, &other.holds) == (&one.waits_for, &one.holds)
        };
        let place = places.iter().find(|place| notifications.get(**place).is_some_and(is_same));
        if let Some((_, sessions)) = place.and_then(|place| notifications.get_mut(*place)) {
            sessions.extend(one.session);
            return;
        }
        places.push(notifications.len());
        notifications.push((one, Vec::new()));
    }
}

/// What somebody has taken up, with who it is and since when.
pub(super) fn taken_up(taken: &[TakenUp], names: &Names, terminal: &Terminal) -> String {
    let ids = ShortIds::of_notifications(taken.iter().map(|one| &*one.id));
    let shown = |one: &TakenUp| {
        let id = one_line(&ids.short(&one.id));
        let by = names.known(&one.by).unwrap_or_else(|| one_line(&one.by));
        let rest = format!("{}, taken up by {by} {}", one.subscriber, terminal.moment(&one.since));
        let priority = one_line(&one.priority);
        let begin = terminal::width(&id) + terminal::width(&priority) + 3;
        let (id, rest) = (terminal.paint(Tone::Dim, &id), terminal.wrap(&one_line(&rest), begin, 4));
        let head = format!("{id}  {} {rest}\n", terminal.paint(Tone::of(&priority), &priority));
        head + &indented(&one.sentence, 4, terminal)
    };
    taken.iter().map(shown).collect()
}

impl WaitingView {
    /// A line about it and the other `sessions` that have it, and its sentence and what holds it below.
    pub(super) fn shown(
        &self,
        sessions: &[String],
        id: &str,
        names: &Names,
        rules: &Rules<'_, '_>,
        terminal: &Terminal,
    ) -> String {
        let id = one_line(id);
        let age = terminal.moments.age(self.age_ms);
        let priority = one_line(&self.priority);
        let others: String = sessions.iter().map(|session| format!(", {}", names.name(session))).collect();
        let rest = format!("{}, {age}, for {}{others}", self.subscriber, self.whom(names, terminal));
        let begin = terminal::width(&id) + terminal::width(&priority) + 3;
        let (id, rest) = (terminal.paint(Tone::Dim, &id), terminal.wrap(&one_line(&rest), begin, 4));
        let head = format!("{id}  {} {rest}\n", terminal.paint(Tone::of(&priority), &priority));
        let hold = |hold: &HoldView| format!("held: {}", hold.short(&self.subscriber, rules, terminal));
        let holds = self.holds.iter().map(|one| indented(&hold(one), 4, terminal));
        head + &indented(&self.sentence, 4, terminal) + &holds.collect::<String>()
    }

    /// The text that its agent gets.
    pub(super) fn text_lines(&self, terminal: &Terminal) -> String {
        indented(&self.text, 6, terminal)
    }

    fn whom(&self, names: &Names, terminal: &Terminal) -> String {
        let name = |session: &Option<String>| session.as_ref().map(|session| names.name(session));
        match (self.waits_for.as_str(), name(&self.session), &self.workspace) {
            (Self::NEXT_SESSION, Some(session), _) => format!("{session}, which is not open"),
            (Self::NEXT_SESSION, None, Some(folder)) => {
                format!("the next session in {}", terminal.folder(folder))
            }
            (Self::NEXT_SESSION, None, None) => "the next session".to_owned(),
            (Self::SINKS, ..) => "you".to_owned(),
            (who, session, _) => format!("the {who} of {}", session.as_deref().unwrap_or("-")),
        }
    }

    /// The line about it, without colours.
    pub(super) fn head(&self, id: &str, names: &Names, terminal: &Terminal) -> String {
        let age = terminal.moments.age(self.age_ms);
        format!("{id}  {} {}, {age}, for {}", self.priority, self.subscriber, self.whom(names, terminal))
    }

    /// Its recipient, in a word or two.
    pub(in crate::cli) fn briefly(&self, names: &Names, terminal: &Terminal) -> String {
        let name = |session: &Option<String>| session.as_ref().map(|session| names.name(session));
        match (self.waits_for.as_str(), name(&self.session), &self.workspace) {
            (Self::NEXT_SESSION, None, Some(folder)) => format!("next in {}", terminal.folder(folder)),
            (Self::NEXT_SESSION, None, None) => "next session".to_owned(),
            (Self::USER, Some(session), _) => format!("you, {session}"),
            (Self::SINKS, ..) => "you".to_owned(),
            (_, session, _) => session.unwrap_or_default(),
        }
    }
}

/// The lines of a text behind `indent` blanks, without control sequences; wrapped on a terminal.
fn indented(text: &str, indent: usize, terminal: &Terminal) -> String {
    let blanks = " ".repeat(indent);
    let line = |line| format!("{blanks}{}\n", terminal.wrap(&one_line(line), indent, indent + 2));
    text.lines().map(line).collect()
}

/// A number of open batches.
pub(in crate::cli) fn batches(count: u64) -> String {
    match count {
        1 => "1 open batch".to_owned(),
        count => format!("{count} open batches"),
    }
}

/// The line about events whose notifications are not made yet; empty without any.
pub(in crate::cli) fn collecting(batches_open: u64) -> String {
    match batches_open {
        0 => String::new(),
        count => format!("{}: events are collected for a notification\n", batches(count)),
    }
}

/// The line about questions that wait for the user's answer; empty if there is none.
pub(super) fn asked(questions: usize) -> String {
    match questions {
        0 => String::new(),
        1 => "1 question waits for your answer: aside answer\n".to_owned(),
        count => format!("{count} questions wait for your answer: aside answer\n"),
    }
}
