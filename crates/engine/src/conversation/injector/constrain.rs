//! Leaves out of an injection what the budgets have no room for.
//!
//! The limits of the injection have chosen the notifications before. A budget releases in order of
//! importance: once it has no room for one, it releases none after that. Critical notifications need
//! no room. A notification larger than its whole budget is cut to it, alone, once all of the budget is
//! free.

use journal::time::Timestamp;

use super::{
    budget::{Fitting, Left, Limits, Writer, Written, is_critical},
    entry::Candidate,
    room::{Room, Short, is_charged},
};
use crate::{
    budget::BudgetName,
    notification::{Notification, Tokens},
};

/// What the budgets leave of a choice.
pub(super) struct Constrained {
    /// What is released, and its text; `None` for nothing.
    pub(super) released: Option<(Vec<Candidate>, Written)>,
    pub(super) short: Vec<Short>,
}

impl<W: Writer> Fitting<'_, W> {
    /// Takes out of `play`, which the limits of the injection allow, what `room` does not.
    pub(super) fn constrain(&self, mut play: Vec<Candidate>, room: &Room) -> Constrained {
        play.iter_mut().for_each(|candidate| candidate.cut = None);
        let least = room.common.iter().chain(&room.own).min_by_key(|balance| balance.left);
        let waiting = self.left.waiting.zip(least).map(|(waiting, least)| waiting.or_for(&least.of));
        let left = Left { waiting: waiting.as_ref(), ..self.left };
        Fitting { left, ..*self }.within(&play, room)
    }

    fn within(&self, play: &[Candidate], room: &Room) -> Constrained {
        let released = self.together(play, room).or_else(|| self.one_alone(play, room));
        let short = match &released {
            Some((chosen, written)) => self.short(play, chosen, &room.after(chosen, written.tokens)),
            None => self.short(play, &[], room),
        };
        Constrained { released, short }
    }

    /// These limits with at most so many tokens; those of `play` that are not chosen wait.
    fn lowered<'f>(&'f self, limits: &'f Limits, play: &'f [Candidate]) -> Fitting<'f, W> {
        Fitting { limits, play, ..*self }
    }

    fn at_most(&self, least: Option<Tokens>) -> Limits {
        let max_tokens = least.map_or(self.limits.max_tokens, |least| self.limits.max_tokens.min(least));
        Limits { max_tokens, ..*self.limits }
    }

    /// The most important ones that fit into all budgets.
    fn together(&self, play: &[Candidate], room: &Room) -> Option<(Vec<Candidate>, Written)> {
        let limits = self.at_most(room.common.iter().map(|balance| balance.left).min());
        let fitting = self.lowered(&limits, play);
        let mut left = play.to_vec();
        loop {
            let (count, written) = fitting.most(&left)?;
            let chosen = left.get(..count)?;
            let Some((first, of)) = room.first_over(chosen, written.tokens) else {
                left.truncate(count);
                return Some((left, written));
            };
            let mut index = 0;
            left.retain(|one| {
                let is_out = index >= first && !is_critical(one) && is_charged(of, &one.notification);
                index += 1;
                !is_out
            });
        }
    }

    /// The most important one for which all that it may ever have is free, cut to that if it is
    /// larger.
    fn one_alone(&self, play: &[Candidate], room: &Room) -> Option<(Vec<Candidate>, Written)> {
        for candidate in play.iter().filter(|one| !is_critical(one)) {
            let notification = &candidate.notification;
            let left = room.of(notification).map(|balance| balance.left).min();
            let limits = self.at_most(left);
            if limits.max_tokens < self.most_ever(notification, room) {
                continue;
            }
            let released = self.alone(candidate, limits.max_tokens, play);
            if let Some(released) =
                released.filter(|(_, written)| is_free(notification, written.tokens, room))
            {
                return Some(released);
            }
        }
        None
    }

    /// One notification, cut to `most`. A budget that is smaller than any text with it, because of the
    /// frame, is exceeded: otherwise it and all behind it would wait forever.
    fn alone(
        &self,
        candidate: &Candidate,
        most: Tokens,
        play: &[Candidate],
    ) -> Option<(Vec<Candidate>, Written)> {
        let all = self.limits.max_tokens;
        let larger = |most: &Tokens| (*most < all).then(|| all.min(Tokens(most.0.max(1).saturating_mul(2))));
        std::iter::successors(Some(most), larger).find_map(|max_tokens| {
            let limits = Limits { max_tokens, ..*self.limits };
            let fitting = self.lowered(&limits, play);
            let mut alone = vec![candidate.clone()];
            let whole = fitting.most(&alone).map(|(_, written)| written);
            let written = whole.or_else(|| fitting.first_cut(alone.first_mut()?))?;
            Some((alone, written))
        })
    }

    /// Most tokens that a notification may ever have.
    fn most_ever(&self, notification: &Notification, room: &Room) -> Tokens {
        self.at_most(room.of(notification).map(|balance| balance.size).min()).max_tokens
    }

    /// Which of `play` a budget has no room for after the release of `chosen`. The others come with
    /// another injection.
    fn short(&self, play: &[Candidate], chosen: &[Candidate], after: &Room) -> Vec<Short> {
        let mut short: Vec<Short> = Vec::new();
        let is_chosen =
            |one: &&Candidate| chosen.iter().any(|own| own.notification.id == one.notification.id);
        for candidate in play.iter().filter(|one| !is_chosen(one) && !is_critical(one)) {
            let notification = &candidate.notification;
            let before = short.iter().find(|before| is_charged(&before.of, notification));
            let (of, until) = match before {
                Some(before) => (before.of.clone(), before.until),
                None => match self.lack(candidate, play, after) {
                    Some(found) => found,
                    None => continue,
                },
            };
            short.push(Short::new(notification, of, until));
        }
        short
    }

    /// The budget that has no room for a notification alone, and when it has. Of several the one with
    /// the least left counts.
    fn lack(
        &self,
        candidate: &Candidate,
        play: &[Candidate],
        room: &Room,
    ) -> Option<(BudgetName, Option<Timestamp>)> {
        let notification = &candidate.notification;
        let whole = self.tokens_of(std::slice::from_ref(candidate));
        let most = self.most_ever(notification, room);
        let cut = || self.alone(candidate, most, play).map_or(most, |(_, written)| written.tokens);
        let needed = if whole <= most { whole } else { cut() };
        let lacking = room.of(notification).filter(|balance| balance.left < balance.share_of(needed));
        let least = lacking.min_by_key(|balance| balance.left)?;
        Some((least.of.clone(), least.free_at(needed, room.now)))
    }
}

/// Whether each budget of a notification has room for a text of so many tokens. One that is smaller than
/// the text has it once all of it is free.
fn is_free(notification: &Notification, tokens: Tokens, room: &Room) -> bool {
    room.of(notification).all(|balance| balance.left >= balance.share_of(tokens))
}
