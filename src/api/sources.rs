//! Lists sources, whether each can publish, and the outcome of its events.
//!
//! The rows are those of [`PRODUCERS`], switched by the active rules, with counts from the
//! projection. Other sources follow, by the source name in their events.

use std::sync::{Arc, atomic::Ordering};

use engine::sorted::{SortedMap, SortedSet};

use axum::{Json, extract::State};
use journal::time::duration_millis;
use serde::Deserialize;

#[cfg(test)]
use crate::api::wire::ErrorBody;
use crate::{
    api::{
        App,
        engine_handle::EngineView,
        error::ApiError,
        extract::Params,
        history::{how_far, moment},
        wire::{
            history::ProjectionView,
            sources::{CountView, LooksView, SlowView, SourceView, SourcesView, UnservedView},
        },
    },
    capability::{
        lsp::{self, source::missing_servers},
        outside::Generation,
        source::inputs::Troubles,
    },
    config::producers::{self, Kind, PRODUCERS, Producer},
    history::counted::{COUNTED_MAX, Count, Counted},
};

/// Default start of the counts.
const SINCE: &str = "7d";
/// Most listed sources that are not built in.
const OTHERS_MAX: usize = 20;

/// Start of the counts.
#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(utoipa::IntoParams))]
#[serde(deny_unknown_fields)]
pub(crate) struct SourcesParams {
    /// RFC 3339, or a duration before now, such as `30m`, `12h` or `7d`; `7d` if absent.
    since: Option<String>,
}

/// Lists sources, whether each can publish, and the outcome of its events.
///
/// Counts at most the newest 20,000 events and 20,000 deliveries; `since` in the answer is the
/// actual start.
#[cfg_attr(test, utoipa::path(
    get, path = "/v1/sources", tag = "admin", params(SourcesParams),
    responses((status = 200, body = SourcesView), (status = 400, body = ErrorBody), (status = 503, body = ErrorBody)),
))]
pub(crate) async fn sources(
    State(app): State<App>,
    Params(params): Params<SourcesParams>,
) -> Result<Json<SourcesView>, ApiError> {
    let since =
        moment(&app, "since", Some(params.since.as_deref().unwrap_or(SINCE)))?.expect("a moment was given");
    let read = app.projection.read(move |view| Ok((view.counted(since, COUNTED_MAX)?, view.projected)));
    let (counted, projected) = read.await?;
    let in_force = |view: &EngineView<'_>| {
        let open = view.engine.sessions().views().filter(|session| session.is_open);
        let harnesses = open.filter_map(|session| session.harness.name.clone());
        (Arc::clone(view.engine.rules()), harnesses.collect())
    };
    let (rules, harnesses) = app.engine.read(in_force).await?;
    let here = Here {
        in_force: Generation { rules, outside: app.registry.sources().settings() },
        origins: Arc::clone(&app.config.state().origins),
        harnesses,
        troubles: Arc::clone(&app.registry.sources().troubles),
    };
    Ok(Json(here.view(&counted, looks(&app), how_far(&app, projected))))
}

fn looks(app: &App) -> LooksView {
    let meters = &app.meters;
    let slow = app.registry.looks().slow_folders().into_iter().map(|(folder, slow)| SlowView {
        folder: folder.to_string(),
        count: slow.count,
        took_ms: duration_millis(slow.took),
    });
    let counts = meters.look.counts();
    let count: u64 = counts.buckets.iter().sum();
    let sum_us = u64::try_from(counts.sum.as_micros()).unwrap_or(u64::MAX);
    LooksView {
        count,
        mean_us: sum_us.checked_div(count).unwrap_or(0),
        missed: meters.looks_missed.load(Ordering::Relaxed),
        slow: slow.collect(),
    }
}

/// Facts that decide whether a source can publish.
struct Here {
    in_force: Generation,
    /// The file of each setting, by its key.
    origins: Arc<SortedMap<String, Arc<str>>>,
    /// Harnesses with an open session.
    harnesses: SortedSet<Arc<str>>,
    troubles: Arc<Troubles>,
}

impl Here {
    fn view(&self, counted: &Counted, looks: LooksView, projection: ProjectionView) -> SourcesView {
        let mut shipped: SortedMap<&str, Count> = SortedMap::new();
        let mut others: SortedMap<&str, (Count, SortedSet<&str>)> = SortedMap::new();
        for ((source, event_type), count) in &counted.counts {
            match Producer::of_event(source, event_type) {
                Some(row) => shipped.get_or_default(row.name).add(count),
                None => {
                    let (sum, types) = others.get_or_default(source);
                    sum.add(count);
                    types.insert(event_type);
                }
            }
        }
        let rows =
            PRODUCERS.iter().map(|row| self.row(row, shipped.get(row.name).copied().unwrap_or_default()));
        let mut others: Vec<_> = others.into_iter().collect();
        others.sort_by_key(|(source, (count, _))| (std::cmp::Reverse(count.events), *source));
        let more = others.len().saturating_sub(OTHERS_MAX);
        let other = |(source, (count, types)): (&str, (Count, SortedSet<&str>))| SourceView {
            name: source.to_owned(),
            kind: "other".to_owned(),
            types: types.into_iter().map(str::to_owned).collect(),
            count: shown(&count),
            ..SourceView::default()
        };
        SourcesView {
            since: counted.since.to_string(),
            is_cut: counted.is_cut,
            sources: rows.chain(others.into_iter().take(OTHERS_MAX).map(other)).collect(),
            more,
            unserved: self.unserved(counted),
            looks,
            projection,
        }
    }

    fn row(&self, row: &Producer, count: Count) -> SourceView {
        let (is_on, why) = self.state(row);
        SourceView {
            name: row.name.to_owned(),
            kind: row.kind.as_str().to_owned(),
            is_on: Some(is_on),
            why,
            troubles: self.troubles.of(row.name),
            about: Some(row.about.to_owned()),
            needs: Some(row.needs.to_string()),
            missing: (is_on && row.name == lsp::NAME)
                .then(|| missing_servers(&self.in_force.outside.lsp))
                .flatten(),
            types: row.types().map(|entry| entry.event_type.to_string()).collect(),
            count: shown(&count),
        }
    }

    /// Whether it can publish, and why not or why no subscriber takes its events.
    fn state(&self, row: &Producer) -> (bool, Option<String>) {
        let is_on = row.kind.is_on(&self.in_force);
        if !is_on && row.kind.is_list() {
            return (false, Some(format!("aside.toml has no [[sources.{}]]", row.name)));
        }
        if !is_on && matches!(row.kind, Kind::Webhook) {
            return (false, Some("no [webhooks.NAME] in aside.toml has enabled = true".to_owned()));
        }
        if !is_on {
            let setting = format!("[sources.{}] enabled = false", row.name);
            let file = self.origins.get(&format!("sources.{}.enabled", row.name));
            let why = file.map_or_else(|| setting.clone(), |file| format!("{setting} in {file}"));
            return (false, Some(why));
        }
        if matches!(row.kind, Kind::Harness) && !self.harnesses.contains(row.name) {
            return (false, Some("no session of it is open".to_owned()));
        }
        let off = if row.kind.is_switched() {
            row.switched_off_subscribers(&self.in_force.rules)
        } else {
            Vec::new()
        };
        let why = || format!("no subscriber matches its events; switched off: {}", off.join(", "));
        (true, (!off.is_empty()).then(why))
    }

    fn unserved(&self, counted: &Counted) -> Vec<UnservedView> {
        let view = |rule: &engine::pipeline::rule::Subscriber| {
            let mut sum = Count::default();
            for ((_, event_type), count) in &counted.counts {
                if rule.types.iter().any(|pattern| pattern.matches_text(event_type)) {
                    sum.add(count);
                }
            }
            let types = rule.types.iter().map(ToString::to_string).collect();
            UnservedView { subscriber: rule.id.to_string(), types, count: shown(&sum) }
        };
        producers::unserved(&self.in_force.rules).map(view).collect()
    }
}

fn shown(count: &Count) -> CountView {
    let Count { events, last_at, delivered, tokens } = *count;
    CountView { events, last_at: last_at.map(|at| at.to_string()), delivered, tokens }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };
    use journal::time::Timestamp;

    fn here(files: &[(&str, &str)], harnesses: &[&str]) -> Here {
        let file = |(name, text): &(&str, &str)| SourceFile {
            layer: LayerKind::User,
            name: (*name).into(),
            path: format!("/c/{name}").into(),
            text: (*text).into(),
        };
        let compiled = compile(&Sources::shipped().with(files.iter().map(file), []), &[]);
        assert_eq!(compiled.report.to_string(), "");
        Here {
            origins: Arc::new(compiled.origins.clone()),
            in_force: compiled.into_generation(),
            harnesses: harnesses.iter().map(|name| (*name).into()).collect(),
            troubles: Arc::default(),
        }
    }

    fn counted(counts: &[(&str, &str, u64)]) -> Counted {
        let count = |(source, event_type, events): &(&str, &str, u64)| {
            let last_at = Some(Timestamp::from_millis(events * 1_000));
            let count = Count { events: *events, last_at, delivered: 1, tokens: 9 };
            (((*source).to_owned(), (*event_type).to_owned()), count)
        };
        Counted { counts: counts.iter().map(count).collect(), ..Counted::default() }
    }

    fn view(here: &Here, counted: &Counted) -> SourcesView {
        here.view(counted, LooksView::default(), ProjectionView::default())
    }

    #[test]
    fn source_counts_only_events_of_its_own_types() {
        let counted = counted(&[
            ("aside", "fs.known.deleted", 2),
            ("aside", "fs.known.modified", 3),
            ("aside", "some.other.type", 1),
            ("ide", "ide.diagnostics.changed", 4),
            ("claude-code", "tool.call.failure", 5),
            ("cli", "fs.known.modified", 6),
        ]);
        let view = view(&here(&[], &["claude-code"]), &counted);
        let said = |source: &&SourceView| source.count.events > 0;
        let shown: Vec<String> = view
            .sources
            .iter()
            .filter(said)
            .map(|one| {
                let CountView { events, last_at, delivered, tokens } = &one.count;
                format!(
                    "{} {} {events} {delivered} {tokens} {}",
                    one.name,
                    one.kind,
                    last_at.as_deref().unwrap_or("-")
                )
            })
            .collect();
        assert_eq!(
            shown,
            [
                "files probe 5 2 18 1970-01-01T00:00:03Z",
                "claude-code harness 5 1 9 1970-01-01T00:00:05Z",
                "aside daemon 1 1 9 1970-01-01T00:00:01Z",
                "cli other 6 1 9 1970-01-01T00:00:06Z",
                "ide other 4 1 9 1970-01-01T00:00:04Z",
            ]
        );
        let ide =
            view.unserved.iter().find(|one| one.subscriber == "ide_diagnostics").expect("waits for others");
        assert_eq!((ide.types.len(), ide.count.events), (1, 4));
    }

    #[test]
    fn inactive_or_unmatched_source_states_its_reason() {
        let off = [
            ("aside.toml", "[sources.git]\nenabled = false\n"),
            (
                "subscribers/disk_space.toml",
                "[subscriber]\nid = \"disk_space\"\nenabled = false\n[events]\ntypes = [\"disk.**\"]\n",
            ),
        ];
        let why = |here: &Here, name: &str| {
            let view = view(here, &Counted::default());
            let found = view.sources.into_iter().find(|one| one.name == name).expect("a row");
            (found.is_on.expect("it ships"), found.why.unwrap_or_default())
        };
        let (off, on) = (here(&off, &[]), here(&[], &["claude-code"]));
        for (name, is_on, expected) in [
            ("git", false, "[sources.git] enabled = false in /c/aside.toml"),
            ("disk", true, "no subscriber matches its events; switched off: disk_space"),
            ("claude-code", false, "no session of it is open"),
            ("schedule", false, "aside.toml has no [[sources.schedule]]"),
            ("files", true, ""),
            ("run", true, ""),
        ] {
            assert_eq!(why(&off, name), (is_on, expected.to_owned()), "{name}");
            if name != "schedule" {
                assert_eq!(why(&on, name), (true, String::new()), "{name}");
            }
        }
    }

    #[test]
    fn many_others_are_counted_and_not_listed() {
        let names: Vec<String> = (0..OTHERS_MAX + 5).map(|number| format!("s{number:02}")).collect();
        let counts: Vec<(&str, &str, u64)> = names.iter().map(|name| (name.as_str(), "a.b", 1)).collect();
        let view = view(&here(&[], &[]), &counted(&counts));
        assert_eq!((view.sources.len(), view.more), (PRODUCERS.len() + OTHERS_MAX, 5));
    }
}
