//! What a subscriber's file loses by replacing an earlier one whole: keys that the earlier file
//! names and this one does not, so that they have their defaults.

use std::rc::Rc;

use crate::config::{
    effective::{self, KeyInForce},
    layers::LayerKind,
    raw::Document,
    report::{Diagnostic, Place, shown},
};

/// The default of each key that has one, as TOML. Keys that are not listed have no effect when they
/// are absent.
const DEFAULTS: [(&str, &str); 17] = [
    ("subscriber.enabled", "true"),
    ("events.severity_filter", "\"debug\""),
    ("batching.window_ms", "2000"),
    ("batching.max_size", "10"),
    ("batching.mode", "\"window\""),
    ("batching.dedupe_window_ms", "5000"),
    ("batching.dedupe_keep", "\"first\""),
    ("limits.retain", "false"),
    ("output.priority", "\"normal\""),
    ("output.inject_at", "\"after_tool\""),
    ("output.activation", "\"passive\""),
    ("output.active_for", "\"any\""),
    ("output.interrupt", "\"inject_and_continue\""),
    ("output.escalate_at", "\"critical\""),
    ("output.max_tokens", "200"),
    ("output.audience", "\"agent\""),
    ("output.requires_response", "false"),
];
/// Keys that say nothing about what is delivered, or stay as they were: a later file of a core
/// subscriber is one too.
const WITHOUT_EFFECT: [&str; 6] = [
    "subscriber.id",
    "subscriber.name",
    "subscriber.description",
    "subscriber.version",
    "subscriber.inherit",
    "output.core",
];
/// Keys without a meaning of their own, and the ones that they belong to.
const PARTS: [(&str, &[&str]); 6] = [
    ("batching.dedupe_window_ms", &["batching.dedupe_key"]),
    ("batching.dedupe_keep", &["batching.dedupe_key"]),
    ("batching.max_wait_ms", &["batching.mode"]),
    ("limits.equal", &["limits.resolved_by"]),
    ("limits.order_by", &["limits.supersede_key", "limits.resolved_by"]),
    ("limits.revision", &["limits.supersede_key", "limits.resolved_by"]),
];

/// Keys of a batch, without effect while `window_ms` is 0.
const OF_A_BATCH: [&str; 4] =
    ["batching.max_size", "batching.mode", "batching.max_wait_ms", "batching.group_by"];

/// A warning for each key of the files `earlier` that falls back to a default by `later`, which
/// replace them; each at `place`. None if those are switched off.
pub(crate) fn findings(
    earlier: &[Rc<Document<'_>>],
    later: &[Rc<Document<'_>>],
    place: &Place,
) -> Vec<Diagnostic> {
    let [before, own] =
        [earlier, later].map(|documents| effective::keys_of(documents.iter().map(|one| &**one)));
    let is_off = own.iter().any(|key| key.key == "subscriber.enabled" && *key.value == *"false");
    if is_off {
        return Vec::new();
    }
    let is_lost = |key: &KeyInForce| falls_back(key, &own) && !is_shipped_text(key, earlier);
    before.iter().filter(|key| is_lost(key)).map(|key| finding(key, &own, place)).collect()
}

fn falls_back(before: &KeyInForce, own: &[KeyInForce]) -> bool {
    let key = before.key.as_str();
    let has = |key: &str| own.iter().any(|one| one.key == key);
    let has_no_batch = own.iter().any(|one| one.key == "batching.window_ms" && *one.value == *"0");
    let is_without_effect = WITHOUT_EFFECT.contains(&key) || (has_no_batch && OF_A_BATCH.contains(&key));
    let is_text = effective::is_text(before) && own.iter().any(effective::is_text);
    let is_part_of_lost =
        PARTS.iter().any(|(part, wholes)| *part == key && !wholes.iter().any(|whole| has(whole)));
    !has(key)
        && !is_text
        && !is_part_of_lost
        && !is_without_effect
        && !is_default(before, default_of(key, own))
}

/// Whether a value has the effect of an absent one.
fn is_default(before: &KeyInForce, default: &str) -> bool {
    let Some(value) = effective::value(&before.value) else { return false };
    let is_empty = value.as_str().is_some_and(str::is_empty) || value.as_array().is_some_and(Vec::is_empty);
    // Without `equal` the fields of `supersede_key` must match, with an empty one none.
    effective::value(default).as_ref() == Some(&value) || (is_empty && before.key != "limits.equal")
}

/// A file without a text has the shipped one of its id, so that is not lost.
fn is_shipped_text(key: &KeyInForce, earlier: &[Rc<Document<'_>>]) -> bool {
    let mut files = earlier.iter().map(|document| document.file());
    effective::is_text(key)
        && files.any(|file| file.layer == LayerKind::Shipped && file.path == key.place.file)
}

fn default_of(key: &str, own: &[KeyInForce]) -> &'static str {
    let is_low = || own.iter().any(|one| one.key == "output.priority" && *one.value == *"\"low\"");
    match DEFAULTS.iter().find(|(known, _)| *known == key) {
        Some(("output.inject_at", _)) if is_low() => "\"turn_end\"",
        Some((_, default)) => default,
        None => "",
    }
}

fn finding(before: &KeyInForce, own: &[KeyInForce], place: &Place) -> Diagnostic {
    let name = before.key.rsplit('.').next().unwrap_or(&before.key);
    let bare = |value: &str| shown(value.trim_matches('"'));
    let is = match default_of(&before.key, own) {
        "" => "is absent here".to_owned(),
        default => format!("is {} here", bare(default)),
    };
    let message = format!("`{name}` was {} in {}, and {is}", bare(&before.value), before.place.file);
    Diagnostic::error(place.clone(), before.key.as_str(), message)
        .with_note("`inherit = true` under [subscriber] keeps what this file does not name")
        .into_warning()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        compile::compile,
        layers::{SourceFile, Sources},
    };

    /// Everything of a subscriber with these keys.
    fn subscriber(rest: &str) -> String {
        let file = SourceFile {
            layer: LayerKind::User,
            name: "subscribers/own.toml".into(),
            path: "own.toml".into(),
            text: format!("subscriber.id = \"own\"\nevents.types = [\"a.b\"]\n{rest}").into(),
        };
        let compiled = compile(&Sources::shipped().with([file], []), &[]);
        assert_eq!(compiled.report.error_count(), 0, "{}", compiled.report);
        let own = compiled.rules.subscribers.iter().find(|rule| rule.id.as_str() == "own");
        format!("{:?}", own.expect("it compiles"))
    }

    #[test]
    fn values_without_effect_are_not_lost() {
        let file = |layer: LayerKind, rest: &str| SourceFile {
            layer,
            name: "subscribers/own.toml".into(),
            path: format!("{layer}/own.toml").into(),
            text: format!("subscriber.id = \"own\"\nevents.types = [\"a.b\"]\n{rest}").into(),
        };
        for (key, warns) in [
            ("output.priority = 'normal'", false),
            ("batching.window_ms = 2_000", false),
            ("batching.dedupe_key = \"\"", false),
            ("limits.supersede_key = \"\"", false),
            ("limits.inhibited_by = []", false),
            ("limits.retain = false", false),
            ("output.requires_response = false", false),
            ("output.priority = 'high'", true),
            ("limits.resolved_by = [\"a.c\"]\nlimits.equal = \"\"", true),
        ] {
            let files = [file(LayerKind::System, key), file(LayerKind::User, "")];
            let report = compile(&Sources::shipped().with(files, []), &[]).report;
            assert_eq!(report.error_count(), 0, "{key}: {report}");
            assert_eq!(report.warning_count() > 0, warns, "{key}: {report}");
        }
        let kept = "limits.resolved_by = [\"a.c\"]\nlimits.supersede_key = \"payload.a\"\n";
        let files =
            [file(LayerKind::System, &format!("{kept}limits.equal = \"\"\n")), file(LayerKind::User, kept)];
        let report = compile(&Sources::shipped().with(files, []), &[]).report.to_string();
        assert!(report.contains("`equal` was "), "{report}");
    }

    #[test]
    fn the_listed_defaults_are_those_in_force() {
        let without = |key: &str| match key {
            "batching.dedupe_window_ms" | "batching.dedupe_keep" => "batching.dedupe_key = \"type\"\n",
            _ => "",
        };
        for (key, default) in DEFAULTS {
            let rest = without(key);
            assert_eq!(subscriber(rest), subscriber(&format!("{rest}{key} = {default}\n")), "{key}");
        }
    }
}
