//! `[budget]` of `aside.toml`.

use std::{ops::RangeInclusive, time::Duration};

use engine::{
    budget::{BudgetSettings, HOUR_TOKENS, SUMMARISE_AFTER, TURN},
    notification::Tokens,
    rate::Rate,
    settings::{Keys as _, settings},
};

use crate::config::raw::Section;

/// The limits of a budget: from the frame of a text with a short notification, to a million.
const TOKENS: RangeInclusive<Tokens> = Tokens(100)..=Tokens(1_000_000);

settings! {
    /// How many tokens reach an agent, the frames of the texts included. A subscriber has one of its
    /// own with `tokens` in its `[limits]`. Critical notifications are delivered and charged.
    pub(super) struct Written from Section<'_> {
        /// Most tokens in one turn of a session. Each turn starts with all of it.
        turn: Option<Tokens> = Some(TURN), number_or_off(TOKENS);
        /// Most tokens of a session in an hour. It fills evenly, as a rate does.
        hour: Option<Tokens> = Some(HOUR_TOKENS), number_or_off(TOKENS);
        /// Most tokens of a session in all.
        session: Option<Tokens> = None, number_or_off(TOKENS);
        /// Most tokens of notifications with events of single sources, such as
        /// `{ chat = "500/h" }`. The most specific name counts, so `chat.team` overrides `chat`. The
        /// sessions of a user share it.
        sources: Vec<(String, Rate)> = Vec::new(), rates_by_name();
        /// What one subscriber has pending below high is delivered as one item if a budget has had no
        /// room for it for this time.
        summarise_after: Duration = SUMMARISE_AFTER,
            duration(Duration::from_secs(60)..=Duration::from_secs(24 * 3_600));
    }
}

/// Reads the table.
pub(super) fn read(section: &mut Section<'_>) -> BudgetSettings {
    let Written { turn, hour, session, sources, summarise_after } = Written::read(section);
    BudgetSettings { turn, hour, session, sources, summarise_after }
}
