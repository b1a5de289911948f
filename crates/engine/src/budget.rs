//! Budgets: how many tokens reach the agents in a turn, in an hour, in a session, from a source and
//! from a subscriber.
//!
//! A budget limits what is released over time, as the limits of an injection do for one text. What a
//! budget has no room for stays pending with a hold. A budget of a time fills evenly: its account
//! holds what was used, which drains at the budget's rate. So critical notifications may take more
//! than is left, and what follows waits until that has drained too.

use std::{fmt, num::NonZeroU32, sync::Arc, time::Duration};

use journal::time::{Timestamp, duration_millis};
use serde::{Deserialize, Serialize};

use crate::{
    event::nearness,
    notification::{SubscriberId, Tokens},
    rate::Rate,
    sorted::{SortedMap, SortedSet},
};

const HOUR: Duration = Duration::from_secs(3_600);
/// Most accounts of sources; beyond it the one that has used least is forgotten, and is full again.
const ACCOUNTS_MAX: usize = 1_024;

/// `[budget]` of `aside.toml`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BudgetSettings {
    /// Most tokens in one turn of a session; `None` for no limit.
    pub turn: Option<Tokens>,
    /// Most tokens of a session in an hour.
    pub hour: Option<Tokens>,
    /// Most tokens of a session in all.
    pub session: Option<Tokens>,
    /// Most tokens of sources, by the beginnings of their names.
    pub sources: Vec<(String, Rate)>,
    /// What has had no room for this time is summarised.
    pub summarise_after: Duration,
}

impl Default for BudgetSettings {
    fn default() -> Self {
        Self { turn: Some(TURN), hour: Some(HOUR_TOKENS), ..Budgets::NONE.settings }
    }
}

/// The default of `turn`: five injections of the default size.
pub const TURN: Tokens = Tokens(4_000);
/// The default of `hour`: five such turns.
pub const HOUR_TOKENS: Tokens = Tokens(20_000);
/// The default of `summarise_after`.
pub const SUMMARISE_AFTER: Duration = Duration::from_secs(600);

/// All budgets in force.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Budgets {
    /// `[budget]` of `aside.toml`.
    pub settings: BudgetSettings,
    /// `tokens` of subscribers.
    pub subscribers: SortedMap<SubscriberId, Rate>,
}

impl Budgets {
    /// No budget at all.
    pub const NONE: Self = Self {
        settings: BudgetSettings {
            turn: None,
            hour: None,
            session: None,
            sources: Vec::new(),
            summarise_after: SUMMARISE_AFTER,
        },
        subscribers: SortedMap::new(),
    };
}

impl BudgetSettings {
    /// The names in `sources` that these sources of events are charged to.
    pub fn charged_to<'a>(&'a self, sources: impl Iterator<Item = &'a str>) -> Box<[Arc<str>]> {
        if self.sources.is_empty() {
            return Box::default();
        }
        let nearest = |source: &str| {
            let named = self.sources.iter().filter_map(|(name, _)| Some((nearness(name, source)?, name)));
            named.max_by_key(|(nearness, _)| *nearness).map(|(_, name)| Arc::from(name.as_str()))
        };
        sources.filter_map(nearest).collect::<SortedSet<Arc<str>>>().iter().cloned().collect()
    }

    /// The rate of a source's name.
    pub fn of_source(&self, name: &str) -> Option<Rate> {
        self.sources.iter().find(|(own, _)| own == name).map(|(_, rate)| *rate)
    }
}

/// The rate of `[budget] hour`.
pub fn per_hour(tokens: Tokens) -> Rate {
    Rate { count: NonZeroU32::new(tokens.0).unwrap_or(NonZeroU32::MIN), per: HOUR }
}

/// A budget of a session.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BudgetName {
    /// Of its turn.
    Turn,
    /// Of an hour.
    Hour,
    /// Of the whole session.
    Session,
    /// Of a source, by the name in `[budget] sources`.
    Source(Arc<str>),
    /// Of a subscriber.
    Subscriber(SubscriberId),
}

impl BudgetName {
    /// Its key: in the subscriber's file if it is one's, else in `aside.toml`.
    pub fn key(&self) -> String {
        match self {
            Self::Turn => "budget.turn".to_owned(),
            Self::Hour => "budget.hour".to_owned(),
            Self::Session => "budget.session".to_owned(),
            Self::Source(name) => format!("budget.sources.{name}"),
            Self::Subscriber(_) => "limits.tokens".to_owned(),
        }
    }
}

impl fmt::Display for BudgetName {
    /// Writes it as the subject of a budget, such as `the hour's budget`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Turn => f.write_str("the turn's budget"),
            Self::Hour => f.write_str("the hour's budget"),
            Self::Session => f.write_str("the session's budget"),
            Self::Source(name) => write!(f, "the budget of the source {name}"),
            Self::Subscriber(id) => write!(f, "the budget of {id}"),
        }
    }
}

/// Parts of a token, so that each rate drains a whole number of parts in a millisecond.
const PARTS: u64 = 3_600_000;

/// What was used of a budget that fills evenly.
///
/// Shape: exact, and independent of the number of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Account {
    used_parts: u64,
    parts_per_ms: u64,
    at: Timestamp,
}

impl Account {
    /// Charges tokens to a budget of `rate`.
    pub fn charge(&mut self, tokens: Tokens, rate: Rate, now: Timestamp) {
        let used_parts = self.parts_at(now).saturating_add(u64::from(tokens.0) * PARTS);
        *self = Self { used_parts, parts_per_ms: parts_per_ms(rate), at: self.at.max(now) };
    }

    /// Gives back what was charged at `charged_at`, less what may have drained of it since.
    pub fn credit(&mut self, tokens: Tokens, charged_at: Timestamp, now: Timestamp) {
        let drained = duration_millis(now.since(charged_at)).saturating_mul(self.parts_per_ms);
        let left = (u64::from(tokens.0) * PARTS).saturating_sub(drained);
        self.used_parts = self.parts_at(now).saturating_sub(left);
        self.at = self.at.max(now);
    }

    /// What is used at `now`, rounded up.
    pub fn used(&self, now: Timestamp) -> Tokens {
        Tokens(u32::try_from(self.parts_at(now).div_ceil(PARTS)).unwrap_or(u32::MAX))
    }

    /// Whether nothing is used at `now`.
    pub fn is_unused(&self, now: Timestamp) -> bool {
        self.parts_at(now) == 0
    }

    /// When `tokens` of a budget of `size` are free, which are no more than that.
    fn free_at(&self, size: Tokens, tokens: Tokens, rate: Rate, now: Timestamp) -> Timestamp {
        let most = u64::from(size.0.saturating_sub(tokens.0)) * PARTS;
        let wait_ms = self.parts_at(now).saturating_sub(most).div_ceil(parts_per_ms(rate).max(1));
        now + Duration::from_millis(wait_ms)
    }

    fn parts_at(&self, now: Timestamp) -> u64 {
        let drained = duration_millis(now.since(self.at)).saturating_mul(self.parts_per_ms);
        self.used_parts.saturating_sub(drained)
    }
}

fn parts_per_ms(rate: Rate) -> u64 {
    u64::from(rate.count.get()) * PARTS / duration_millis(rate.per).max(1)
}

/// What is left of a budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// The budget.
    pub of: BudgetName,
    /// Its size.
    pub size: Tokens,
    /// What is left; nothing if more was used.
    pub left: Tokens,
    filling: Option<(Account, Rate)>,
}

impl Balance {
    /// Of a budget that does not fill by time.
    pub fn fixed(of: BudgetName, size: Tokens, used: Tokens) -> Self {
        Self { of, size, left: Tokens(size.0.saturating_sub(used.0)), filling: None }
    }

    /// Of a budget that fills evenly; its size is the count of its rate.
    pub fn filling(of: BudgetName, rate: Rate, account: Account, now: Timestamp) -> Self {
        let size = Tokens(rate.count.get());
        Self { filling: Some((account, rate)), ..Self::fixed(of, size, account.used(now)) }
    }

    /// Charges tokens to it.
    pub(crate) fn charge(&mut self, tokens: Tokens, now: Timestamp) {
        self.left = Tokens(self.left.0.saturating_sub(tokens.0));
        if let Some((account, rate)) = &mut self.filling {
            account.charge(tokens, *rate, now);
        }
    }

    /// What of it a text of so many tokens needs: all of it, if it is smaller.
    pub(crate) fn share_of(&self, tokens: Tokens) -> Tokens {
        tokens.min(self.size)
    }

    /// When `tokens` of it are free, or all of it if it is smaller; `None` if no time gives room.
    pub fn free_at(&self, tokens: Tokens, now: Timestamp) -> Option<Timestamp> {
        let (account, rate) = self.filling.as_ref()?;
        Some(account.free_at(self.size, self.share_of(tokens), *rate, now))
    }
}

/// The account of a source: of a user, under its name in `[budget] sources`.
type SourceKey = (Arc<str>, Arc<str>);

/// What the sessions of each user used of the budgets of sources.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct SourceAccounts(SortedMap<SourceKey, Account>);

impl SourceAccounts {
    /// The account of a source for a user; unused if it is not known.
    pub(crate) fn get(&self, user: &Arc<str>, name: &Arc<str>) -> Account {
        self.0.get(&(Arc::clone(user), Arc::clone(name))).copied().unwrap_or_default()
    }

    /// Charges tokens to a source.
    pub(crate) fn charge(
        &mut self,
        user: &Arc<str>,
        name: &Arc<str>,
        tokens: Tokens,
        rate: Rate,
        now: Timestamp,
    ) {
        let key = (Arc::clone(user), Arc::clone(name));
        if self.0.get(&key).is_none() {
            self.0.retain(|_, account| !account.is_unused(now));
            if self.0.len() >= ACCOUNTS_MAX {
                self.0.pop_least(|account| account.used(now));
            }
        }
        self.0.get_or_default(key).charge(tokens, rate, now);
    }

    /// Gives tokens back to a source.
    pub(crate) fn credit(
        &mut self,
        user: &Arc<str>,
        name: &Arc<str>,
        tokens: Tokens,
        charged_at: Timestamp,
        now: Timestamp,
    ) {
        if let Some(account) = self.0.get_mut(&(Arc::clone(user), Arc::clone(name))) {
            account.credit(tokens, charged_at, now);
        }
    }

    /// The accounts, by user and name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&Arc<str>, &Arc<str>, &Account)> {
        self.0.iter().map(|((user, name), account)| (user, name, account))
    }
}

/// What is used of a budget, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Usage {
    /// What is used.
    pub used: u64,
    /// Its size; `None` if it is off.
    pub size: Option<Tokens>,
}

/// What a session used of its budgets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionUsage {
    /// In its turn.
    pub turn: Usage,
    /// Of the hour's.
    pub hour: Usage,
    /// In all.
    pub session: Usage,
    /// Of those of subscribers.
    pub subscribers: Vec<(SubscriberId, Usage)>,
}

/// What the sessions of a user used of a source's budget.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceUsage {
    /// The name in `[budget] sources`.
    pub source: Arc<str>,
    /// The user, if the sessions name one.
    pub user: Arc<str>,
    /// What is used.
    pub usage: Usage,
}

/// What is left of a session's budgets after an answer; `None` for one that is off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BudgetLeft {
    /// Of the turn's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<Tokens>,
    /// Of the hour's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hour: Option<Tokens>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn an_account_drains_evenly_and_may_be_overdrawn() {
        let rate = per_hour(Tokens(3_600));
        let mut account = Account::default();
        account.charge(Tokens(4_000), rate, at(0));
        let balance = |account: &Account, ms| Balance::filling(BudgetName::Hour, rate, *account, at(ms));
        assert_eq!(balance(&account, 0).left, Tokens(0));
        assert_eq!(balance(&account, 400_000).left, Tokens(0));
        assert_eq!(balance(&account, 500_000).left, Tokens(100));
        assert_eq!(balance(&account, 0).free_at(Tokens(100), at(0)), Some(at(500_000)));
        assert_eq!(balance(&account, 0).free_at(Tokens(9_999), at(0)), Some(at(4_000_000)));
        assert_eq!(account.used(at(4_000_000)), Tokens(0));
    }

    #[test]
    fn names_of_sources_match_as_in_activation() {
        let rate = per_hour(Tokens(500));
        let settings = BudgetSettings {
            sources: vec![("chat".into(), rate), ("chat.team".into(), rate)],
            ..BudgetSettings::default()
        };
        let of = |sources: &[&str]| settings.charged_to(sources.iter().copied()).join(" ");
        assert_eq!(of(&["chat", "chat/x", "chats", "ci"]), "chat");
        assert_eq!(of(&["chat.team.a", "chat.b"]), "chat chat.team");
        assert_eq!(of(&["ci"]), "");
    }

    #[test]
    fn the_number_of_source_accounts_is_bounded() {
        let (mut accounts, rate) = (SourceAccounts::default(), per_hour(Tokens(500)));
        let user: Arc<str> = "".into();
        for number in 0..=u32::try_from(ACCOUNTS_MAX).expect("small") {
            let name: Arc<str> = format!("s{number}").into();
            accounts.charge(&user, &name, Tokens(number + 1), rate, at(0));
        }
        assert_eq!(accounts.iter().count(), ACCOUNTS_MAX);
        assert!(accounts.get(&user, &"s0".into()).is_unused(at(0)));
        accounts.charge(&user, &"new".into(), Tokens(1), rate, at(100_000_000));
        assert_eq!(accounts.iter().count(), 1);
    }

    proptest! {
        /// With a credit no more is ever left than if the charge had not been made.
        #[test]
        fn a_credit_gives_back_no_more_than_charged(
            charges in prop::collection::vec((0_u64..600_000, 0_u32..900), 1..20), credited in 0_usize..20, late in 0_u64..900_000,
        ) {
            let rate = per_hour(Tokens(5_000));
            let credited = credited % charges.len();
            let (mut with, mut without, mut ms, mut charged_at) = (Account::default(), Account::default(), 0, 0);
            for (index, (gap, tokens)) in charges.iter().enumerate() {
                ms += gap;
                with.charge(Tokens(*tokens), rate, at(ms));
                if index == credited {
                    charged_at = ms;
                } else {
                    without.charge(Tokens(*tokens), rate, at(ms));
                }
            }
            let mut same = with;
            same.credit(Tokens(0), at(ms), at(ms));
            prop_assert_eq!(same.used(at(ms + late)), with.used(at(ms + late)));
            with.credit(Tokens(charges[credited].1), at(charged_at), at(ms + late));
            prop_assert!(with.used(at(ms + late)) >= without.used(at(ms + late)));
            if late == 0 && credited + 1 == charges.len() {
                prop_assert_eq!(with.used(at(ms + late)), without.used(at(ms + late)));
            }
        }
    }
}
