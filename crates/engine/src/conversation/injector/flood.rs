//! A flood drains: with any pending notifications and any amount of room, every exchange releases
//! some of them, and no release exceeds its limits. There are fewer exchanges than leases, so that
//! none expires.

use proptest::prelude::*;
use strum::VariantArray;

use super::{
    tests::{exchange, notification},
    *,
};
use crate::{
    exchange::Replaces,
    notification::{Cut, Detail, LeftOut, Tokens},
};

/// Room for the frame, the mark of a cut, and the total of those left out.
const FRAME: usize = 40;

/// Contents in a frame, one per line, and a line about those left out. A token is four characters.
pub(super) struct Framed;

impl Writer for Framed {
    fn write(&self, chosen: &[Candidate], left_out: LeftOut, detail: Detail, _: Replaces) -> String {
        let mut text = String::from("<n>\n");
        for candidate in chosen {
            let content = candidate.cut.as_ref().map_or(&candidate.notification.content, |cut| &cut.content);
            text.push_str(&format!("{}\n", &**content));
        }
        match (left_out.total(), detail) {
            (0, _) => {}
            (total, Detail::Total) => text.push_str(&format!("{total} more\n")),
            (total, Detail::Subscribers) => text.push_str(&format!("{total} more: {}\n", left_out.pending)),
        }
        text + "</n>"
    }

    fn sentence(&self, about: &[&Candidate]) -> String {
        about.len().to_string()
    }

    fn tokens(&self, text: &str) -> Tokens {
        Tokens(u32::try_from(text.len().div_ceil(4)).expect("short"))
    }

    fn shorten(&self, notification: &Notification, chars_max: usize) -> Cut {
        let kept: String = notification.content.chars().take(chars_max).collect();
        Cut { content: format!("{kept}~").into(), is_text: false, mark: "cut".into() }
    }
}

proptest! {
    #[test]
    fn every_exchange_releases_pending_notifications_within_the_limits(
        pending in proptest::collection::vec((0..4_usize, 0..400_usize), 1..60),
        points in proptest::collection::vec(0..5_usize, 60),
        max_notifications in 1..12_u32,
        max_tokens in 10..200_u32,
        carrier in FRAME..900,
    ) {
        let mut injector = Injector::new(SessionId::new("s1"), 1_000);
        for (index, (priority, length)) in pending.iter().enumerate() {
            let made = notification(&format!("s{}#{index}", index % 30), Priority::VARIANTS[*priority], InjectionPoint::TurnStart);
            injector.push(Arc::new(Notification { content: "x".repeat(*length).into(), ..made }));
        }
        let carrier_chars_max = u32::try_from(carrier).expect("small");
        let limits =
            Limits { max_notifications, max_tokens: Tokens(max_tokens), max_chars: 600, carrier_chars_max };
        let mut left = SortedSet::new();
        for (turn, point) in points.iter().take(pending.len()).enumerate() {
            let before = injector.pending().0;
            // Every other exchange is at the beginning of a turn, which releases everything.
            let point = if turn % 2 == 0 { InjectionPoint::TurnStart } else { InjectionPoint::VARIANTS[*point] };
            let exchange = exchange(point, &turn.to_string());
            injector.note_exchange(&exchange, Timestamp::ZERO);
            let due: u32 = injector.offer(&exchange, &limits).due.values().sum();
            let decided = fit(injector.offer(&exchange, &limits), &limits, &Room::unlimited(), &Framed);
            prop_assert_eq!(decided.fitted.is_some(), due > 0, "{} due, room for {}", due, carrier);
            if let Some(fitted) = &decided.fitted {
                let is_critical = |candidate: &Candidate| candidate.notification.priority == Priority::Critical;
                prop_assert!(fitted.text.chars().count() <= carrier, "{}", fitted.text);
                if !fitted.chosen.iter().all(is_critical) {
                    prop_assert!(fitted.chosen.len() <= usize::try_from(max_notifications).expect("small"));
                    prop_assert!(fitted.text.chars().count() <= 600 && fitted.tokens <= Tokens(max_tokens));
                }
                for candidate in &fitted.chosen {
                    prop_assert!(left.insert(candidate.notification.id), "it left before");
                }
            }
            let id = InjectionId::new(&format!("i{turn}"));
            let terms = Terms { lease: Duration::from_secs(900), has_delivery_notice: true, for_user: None, starts_turn: false, budgets: &crate::budget::Budgets::NONE };
            injector.release(&exchange, decided, || id, terms, Timestamp::ZERO);
            prop_assert!(due == 0 || injector.pending().0 < before);
        }
        let rest = injector.pending().0;
        prop_assert!(usize::try_from(rest).expect("small") <= pending.len() / 2, "{} of {}", rest, pending.len());
    }
}
