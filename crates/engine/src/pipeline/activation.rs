//! Limits how a pending notification may act on an agent: its subscriber requests a level, and the
//! user's settings limit it.
//!
//! A critical notification always requests the highest level. A user setting for the event's type,
//! or else for its source, replaces the request; the most specific name wins, so `ide.diagnostics`
//! overrides `ide`. One general level limits all. An untrusted event can neither activate a
//! notification nor make it critical, except that a message of an agent may activate one.

use crate::{
    event::{Event, EventTypeError, Pattern, PatternSegment, Provenance, Trust, nearness, source_name},
    notification::{Activation, InjectionPoint, Priority},
    pipeline::row::Row,
    settings::{Keys, settings},
};

settings! {
    /// What notifications may do by themselves.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct WakeSettings from impl Keys {
        /// The lowest priority at which an active notification wakes an idle agent.
        threshold: Priority = THRESHOLD, word();
        /// Sources whose events may be critical or active, and may state where the turn of a session
        /// is: `["tool_executor", "https://ci.example/team"]`. A name is a whole source, or its
        /// beginning up to a dot or a slash. Your own `aside publish` and `aside run`, the reports of
        /// clients over the Unix socket and aside itself are always trusted. Events over TCP and
        /// CloudEvents are trusted only if this names their source.
        trusted: Vec<String> = Vec::new(), lines();
        /// The most that a pending notification may do: `"passive"` waits for a point that releases
        /// it, `"prompt"` is shown to the user, `"active"` wakes an idle agent. Critical
        /// notifications are active unless a setting here limits them.
        level: Activation = Activation::Active, word();
        /// The level for single sources, in place of the one of the subscriber:
        /// `{ ide = "passive", "ide.diagnostics" = "prompt" }`. The most specific name counts, so
        /// `ide.diagnostics` overrides `ide`.
        sources: Vec<(String, Activation)> = Vec::new(), by_name(source_name);
        /// The level for types of events, by pattern: `{ "ci.check.*" = "active" }`. It overrides
        /// `sources`; the most specific pattern counts.
        types: Vec<(Pattern, Activation)> = Vec::new(), by_name(type_pattern);
    }
}

/// Sources whose events are trusted if they arrived over the Unix socket: the user's commands, and
/// events without a source.
pub const TRUSTED_LOCALLY: [&str; 3] = ["cli", "run", "api"];

/// The type of a message to an agent. One that another agent sent may wake its recipient; it is
/// never critical, and its text is untrusted.
pub const MESSAGE_TYPE: &str = "message.agent.sent";

/// The types of events for which an agent asked: its watches, its reminders, the answers to its
/// questions.
const ASKED_TYPES: [&str; 5] =
    ["reminder.due", "user.answered", "watch.expired", "watch.failed", "watch.fired"];

/// The default of the lowest priority at which an active notification wakes an agent. A priority
/// that may interrupt after a tool may also interrupt a pause.
pub const THRESHOLD: Priority = Priority::High;

fn type_pattern(pattern: &str) -> Result<Pattern, String> {
    pattern.parse().map_err(|error: EventTypeError| error.to_string())
}

impl WakeSettings {
    /// Whether events of `source` with this `provenance` may be critical and active, and may report
    /// on sessions.
    pub fn trust(&self, source: &str, provenance: Provenance) -> Trust {
        let is_trusted_by_default = match provenance {
            Provenance::Harness | Provenance::Own => true,
            Provenance::Local => TRUSTED_LOCALLY.contains(&source),
            Provenance::Remote | Provenance::Quoted => false,
            // Whatever it names as its source: a model wrote it.
            Provenance::Agent => return Trust::Untrusted,
        };
        let is_named = || self.trusted.iter().any(|name| nearness(name, source).is_some());
        if is_trusted_by_default || is_named() { Trust::Trusted } else { Trust::Untrusted }
    }

    /// [`Self::trust`] of the source of `event`.
    pub(crate) fn trust_in(&self, event: &Event) -> Trust {
        self.trust(&event.source, event.provenance)
    }

    /// The priority and injection point of a notification of these rows; at most high if no row is
    /// trusted.
    pub(crate) fn lowered(
        &self,
        priority: Priority,
        inject_at: InjectionPoint,
        rows: &[Row],
    ) -> (Priority, InjectionPoint) {
        let is_trusted = || rows.iter().any(|row| self.trust_in(&row.event).is_trusted());
        if priority < Priority::Critical || is_trusted() {
            return (priority, inject_at);
        }
        // `Immediate` is for critical notifications only.
        let is_immediate = inject_at == InjectionPoint::Immediate;
        (Priority::High, if is_immediate { InjectionPoint::AfterTool } else { inject_at })
    }

    /// The level of a notification of these rows whose subscriber requests `own`.
    pub(crate) fn activation(&self, own: Activation, priority: Priority, rows: &[Row]) -> Activation {
        let own = if priority == Priority::Critical { Activation::Active } else { own };
        let is_set_for_some = !self.sources.is_empty() || !self.types.is_empty();
        if own == Activation::Passive && !is_set_for_some {
            return own;
        }
        let allowed = rows.iter().map(|row| self.activation_of_event(&row.event, own)).max();
        allowed.unwrap_or(own).min(self.level)
    }

    fn activation_of_event(&self, event: &Event, own: Activation) -> Activation {
        let by_type = self.types.iter().filter(|(pattern, _)| pattern.matches(&event.event_type));
        let by_type =
            by_type.max_by_key(|(pattern, _)| exactness(pattern)).map(|(_, activation)| *activation);
        let set =
            by_type.or_else(|| self.activation_of_source(&event.source).map(|(_, activation)| activation));
        // Untrusted text waits for its point, and never for the user.
        let is_limited = !self.trust_in(event).is_trusted() && !is_message_of_agent(event);
        let limit = if is_limited { Activation::Passive } else { Activation::Active };
        set.unwrap_or(own).min(limit)
    }

    /// Whether the agent asked for what these rows report.
    pub(crate) fn is_asked(&self, rows: &[Row]) -> bool {
        rows.iter().any(|row| {
            ASKED_TYPES.contains(&row.event.event_type.as_str()) && self.trust_in(&row.event).is_trusted()
        })
    }

    fn activation_of_source(&self, source: &str) -> Option<(usize, Activation)> {
        let named = self.sources.iter().filter_map(|(name, level)| Some((nearness(name, source)?, *level)));
        named.max_by_key(|(nearness, _)| *nearness)
    }
}

/// Whether an agent wrote the event to another one.
fn is_message_of_agent(event: &Event) -> bool {
    event.provenance == Provenance::Agent && event.event_type.as_str() == MESSAGE_TYPE
}

/// Rank of a pattern: greater for a more specific one.
fn exactness(pattern: &Pattern) -> (usize, bool) {
    let exact = pattern.segments().filter(|segment| matches!(segment, PatternSegment::Exact(_))).count();
    (exact, !pattern.segments().any(|segment| segment == PatternSegment::Rest))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::{event::Seq, pipeline::tests::event};
    use Activation::{Active, Passive, Prompt};

    fn rows(events: &[(&str, &str)]) -> Vec<Row> {
        let row = |(source, event_type): &(&str, &str)| {
            let mut event = (*event("")).clone();
            (event.source, event.provenance) = ((*source).into(), Provenance::Local);
            event.event_type = event_type.parse().expect("a type");
            Row { seq: Seq(1), event: Arc::new(event), repeats: 1, threshold: None, suppressed: None }
        };
        events.iter().map(row).collect()
    }

    fn settings() -> WakeSettings {
        WakeSettings {
            sources: vec![
                ("ide".into(), Passive),
                ("ide.diagnostics".into(), Prompt),
                ("webhook.own".into(), Active),
            ],
            types: vec![
                ("ci.**".parse().expect("a pattern"), Passive),
                ("ci.check.failed".parse().expect("a pattern"), Active),
            ],
            trusted: ["x", "ide", "ideas", "webhook.own", "https://ci.example/team"]
                .map(String::from)
                .to_vec(),
            ..WakeSettings::default()
        }
    }

    #[test]
    fn event_types_override_sources_and_specific_names_win() {
        for (own, source, event_type, expected) in [
            (Active, "x", "a.b", Active),
            (Prompt, "x", "a.b", Prompt),
            (Active, "ide", "a.b", Passive),
            (Active, "ide.lens", "a.b", Passive),
            (Passive, "ide.diagnostics", "a.b", Prompt),
            (Passive, "ide.diagnostics.rust", "a.b", Prompt),
            (Active, "ideas", "a.b", Active),
            (Active, "x", "ci.check.passed", Passive),
            (Passive, "ide", "ci.check.failed", Active),
            (Active, "webhook", "a.b", Passive),
            (Prompt, "webhook", "a.b", Passive),
            (Passive, "webhook.own", "a.b", Active),
            (Passive, "webhook.other", "ci.check.failed", Passive),
            (Active, "https://ci.example/team/7", "a.b", Active),
            (Active, "https://ci.example/teams", "a.b", Passive),
        ] {
            let found = settings().activation(own, Priority::High, &rows(&[(source, event_type)]));
            assert_eq!(found, expected, "{own:?} {source} {event_type}");
        }
    }

    #[test]
    fn critical_notifications_are_active_unless_settings_limit_them() {
        let of = |settings: &WakeSettings, source| {
            settings.activation(Passive, Priority::Critical, &rows(&[(source, "a.b")]))
        };
        assert_eq!(of(&settings(), "x"), Active);
        assert_eq!(of(&settings(), "ide"), Passive);
        assert_eq!(of(&WakeSettings { level: Prompt, ..settings() }, "x"), Prompt);
    }

    #[test]
    fn an_agents_message_wakes_and_is_not_critical() {
        let of = |event_type, provenance| {
            let mut rows = rows(&[("x", event_type)]);
            let event = Event { provenance, ..(*rows[0].event).clone() };
            rows[0].event = Arc::new(event);
            let (priority, _) = settings().lowered(Priority::Critical, InjectionPoint::Immediate, &rows);
            (settings().activation(Active, Priority::High, &rows), priority)
        };
        for (event_type, provenance, expected) in [
            (MESSAGE_TYPE, Provenance::Agent, (Active, Priority::High)),
            ("task.failed", Provenance::Agent, (Passive, Priority::High)),
            (MESSAGE_TYPE, Provenance::Local, (Active, Priority::Critical)),
        ] {
            assert_eq!(of(event_type, provenance), expected, "{event_type} {provenance:?}");
        }
    }

    #[test]
    fn an_agent_asks_for_watches_reminders_and_answers() {
        for (source, event_type, expected) in [
            ("x", "watch.fired", true),
            ("x", "reminder.due", true),
            ("x", "user.answered", true),
            ("x", "task.failed", false),
            ("webhook", "reminder.due", false),
        ] {
            assert_eq!(
                settings().is_asked(&rows(&[(source, event_type)])),
                expected,
                "{source} {event_type}"
            );
        }
    }

    #[test]
    fn the_most_permissive_event_sets_the_activation() {
        let rows = rows(&[("ide", "a.b"), ("ide.diagnostics", "a.b")]);
        assert_eq!(settings().activation(Active, Priority::Low, &rows), Prompt);
    }

    #[test]
    fn untrusted_sources_lose_critical_priority() {
        let lowered = |source| {
            settings().lowered(Priority::Critical, InjectionPoint::Immediate, &rows(&[(source, "a.b")]))
        };
        assert_eq!(lowered("x"), (Priority::Critical, InjectionPoint::Immediate));
        assert_eq!(lowered("webhook.own"), (Priority::Critical, InjectionPoint::Immediate));
        assert_eq!(lowered("webhook.github"), (Priority::High, InjectionPoint::AfterTool));
        assert_eq!(lowered("never.heard.of"), (Priority::High, InjectionPoint::AfterTool));
    }

    #[test]
    fn provenance_decides_trust_unless_settings_name_the_source() {
        use Provenance::{Agent, Harness, Local, Own, Quoted, Remote};
        for (source, provenance, is_trusted) in [
            ("cli", Agent, false),
            ("x", Agent, false),
            ("cli", Local, true),
            ("aside", Local, false),
            ("aside", Own, true),
            ("aside", Quoted, false),
            ("cli.x", Local, false),
            ("bob", Local, false),
            ("bob", Harness, true),
            ("cli", Remote, false),
            ("aside", Remote, false),
            ("webhook.own", Remote, true),
            ("webhook.own.x", Remote, true),
            ("webhook.owner", Remote, false),
            ("webhook", Remote, false),
        ] {
            assert_eq!(
                settings().trust(source, provenance).is_trusted(),
                is_trusted,
                "{source} {provenance:?}"
            );
        }
    }
}
