//! Reads the rules at the start, and again on request.
//!
//! A reload is all or nothing: one error in one file leaves everything unchanged. A start goes file
//! by file: a file with errors is replaced by its last valid version; without such a version it is
//! left out; both are reported. Files are read and compiled on a separate thread, and the event
//! loop gets compiled rules, so that no exchange waits for a reload.

mod trust;

#[cfg(test)]
mod tests;

use std::{
    convert::Infallible,
    error::Error,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::{Value, json};
use tokio::{
    sync::{mpsc, watch},
    task::JoinError,
};

use super::{
    clock::Clock,
    event_loop::{self, FULL_RETRY},
    rules::{RulesError, RulesStore},
};
use engine::{
    event::{
        Event, Severity,
        catalogue::{self, OwnSeverities},
    },
    records::Records,
    words::counted,
};
use journal::{AppendError, Appended, Journal, time::Timestamp};

use crate::{
    api::{
        ConfigState, ReloadRefusal, ReloadRequest,
        wire::views::{ConfigView, FindingsView, ReloadView},
    },
    capability::{outside::Generation, source::inputs::OpenFolders},
    config::{
        compile::{Compiled, compile},
        daemon::DaemonConfig,
        last_good::{Usable, usable},
        layers::{FileKind, LayerKind, SourceFile, Sources},
        lints::report::{reloaded, without_allowed},
        load::{layers_of, read_layers, with_missing},
        report::{Diagnostic, Level, Report},
        trial,
    },
    daemon::{
        causes::with_causes,
        publisher::Publisher,
        tasks::run_blocking,
        workspace::{self, Looked},
    },
};

/// Most problems that are shown until the next reading.
const PROBLEMS_MAX: usize = 10;
/// The event that reports files with errors.
const FAILED: &str = "config.reload.failed";
/// The message for a file that has errors at a start.
const LAST_GOOD: &str = "its previous version is used until its errors are fixed";
/// The message when a start has no valid settings.
const NOTHING_DELETED: &str =
    "settings could not be read, so retention is off; restart the daemon once they are fixed";

/// Why rules could not be replaced.
#[derive(Debug, thiserror::Error)]
pub enum ReloadError {
    /// Some file has an error; the rules are unchanged.
    #[error("the configuration has {}", counted(.0.error_count(), "error"))]
    Broken(Report),
    /// The thread that reads and compiles them ended, by a panic or because the daemon stops.
    #[error("read and compile the configuration")]
    Ended(#[source] JoinError),
    /// The rules cannot be stored next to the journal.
    #[error("store the rules")]
    Rules(#[from] RulesError),
    /// The rules of the configuration cannot be stored, and there are none of an earlier time.
    #[error("store the rules of the configuration, without which there are none")]
    None(#[source] RulesError),
    /// The list of what is trusted cannot be read or written.
    #[error("keep the list of what is trusted")]
    Trust(#[source] io::Error),
    /// What is to be trusted is not there; the message says why.
    #[error("{0}")]
    Untrusted(String),
    /// The journal accepts no more records.
    #[error("write the journal")]
    Append(#[from] AppendError),
}

/// What a start uses, and the trusted workspaces.
pub(super) type AtStart = (Usable, Vec<Looked>);

/// Reads every layer. The user's folder counts as missing if it does not exist and files of it are
/// among the `used` ones.
fn read(user_folder: &Path, used: Option<&Sources>, state: &Path) -> (Sources, Vec<Looked>) {
    let sources = read_layers(&layers_of(user_folder));
    let sources = match used {
        Some(used) => with_missing(sources, user_folder, used),
        None => sources,
    };
    let (workspaces, looked) = workspace::read_trusted(&workspace::usable_trust_list(state));
    (sources.with_workspaces(workspaces), looked)
}

fn known_types() -> Vec<&'static str> {
    catalogue::types().map(|entry| entry.event_type.as_str()).collect()
}

/// Reads and compiles the files for a start: uses the last valid texts of files with errors, and
/// turns retention off if no valid settings are known.
pub(super) fn read_at_start(user_folder: &Path, store: &RulesStore) -> AtStart {
    let last_good = store.last_good();
    let (sources, trusted) = read(user_folder, last_good.as_ref(), store.state());
    // A test checks the types of what ships, and to read the catalogue takes a tenth of a start.
    let is_own = |file: &SourceFile| file.layer != LayerKind::Shipped;
    let has_own = sources.of_kind(FileKind::Subscriber).any(is_own);
    let types = if has_own { known_types() } else { Vec::new() };
    let mut usable = usable(sources, last_good.as_ref(), &types);
    if !usable.has_all_settings {
        let journal = &mut usable.compiled.daemon.journal;
        (journal.retain_age, journal.retain_bytes) = (None, None);
    }
    (usable, trusted)
}

/// Logs the problems of the files that a start read, and the replacements.
pub(super) fn log_start(usable: &Usable) {
    log_findings(&without_allowed(&usable.sources, &usable.report));
    for file in &usable.replaced {
        tracing::error!(%file, "{LAST_GOOD}");
    }
    if !usable.has_all_settings {
        tracing::error!("{NOTHING_DELETED}");
    }
}

/// Logs the problems of the configuration; `aside check` prints the [`Report`] as text.
pub(super) fn log_findings(report: &Report) {
    let (errors, warnings) = (report.error_count(), report.warning_count());
    if errors + warnings == 0 {
        return;
    }
    tracing::warn!(
        errors,
        warnings,
        "the configuration has findings; `aside check` lists them with their places"
    );
    for found in report.diagnostics() {
        let (at, key, finding) = (&found.place, found.key.as_str(), found.message.as_str());
        match found.level {
            Level::Error => tracing::error!(%at, key, finding, "an error in the configuration"),
            Level::Warning => tracing::warn!(%at, key, finding, "a warning about the configuration"),
        }
    }
}

/// Stores the rules of `sources` in `store`, as the fallback for lost rules.
///
/// Shape: the hash of `sources`; `None` if they cannot be stored, as on a full disk.
pub(super) fn keep(store: RulesStore, sources: &Sources) -> (RulesStore, Result<String, RulesError>) {
    match store.keep(sources).and_then(|hash| store.note_current(&hash).map(|()| hash)) {
        Ok(hash) => (store.with_current(&hash), Ok(hash)),
        Err(error) => {
            let cause: &dyn Error = &error;
            tracing::error!(
                error = cause,
                "the rules of the configuration cannot be stored; those in force stay"
            );
            (store, Err(error))
        }
    }
}

/// The rules in force once the journal has been replayed to its head.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct InForce {
    pub(super) hash: String,
    /// The journal does not name them yet, because the disk is full.
    pub(super) waits: bool,
}

/// Records in the journal which rules are in force from here on: the `kept` ones, else the previous
/// ones.
///
/// Errors: there are no rules at all, or the journal accepts no more records.
pub(super) async fn adopt(
    publisher: &Publisher,
    kept: Result<String, RulesError>,
    in_force: &str,
) -> Result<InForce, ReloadError> {
    let hash = match kept {
        Ok(hash) => hash,
        Err(error) if in_force.is_empty() => return Err(ReloadError::None(error)),
        Err(_) => in_force.to_owned(),
    };
    let waits = event_loop::unless_full(append(publisher, &hash).await.map(drop))?;
    Ok(InForce { hash, waits })
}

/// Appends a `rules` record. After the start only one task calls this, so that the newest rules
/// have the last record.
async fn append(publisher: &Publisher, hash: &str) -> Result<Appended, AppendError> {
    publisher.append(Records::build(|records| records.rules(hash))).await
}

/// The state of the files after the start has read them.
pub(super) fn state_of_start(usable: &Usable, trusted: &[Looked], now: Timestamp) -> ConfigState {
    let has_errors = usable.report.error_count() > 0;
    let state = if has_errors { ConfigView::PARTLY } else { ConfigView::IN_FORCE };
    let mut view = view(state, &usable.report, now);
    let replaced = usable.replaced.iter().take(PROBLEMS_MAX);
    view.problems.extend(replaced.map(|file| format!("{file}: {LAST_GOOD}")));
    view.problems.extend((!usable.has_all_settings).then(|| NOTHING_DELETED.to_owned()));
    ConfigState {
        view,
        workspaces: workspace::views(trusted, &usable.compiled.workspaces).into(),
        ..known_of(&usable.compiled)
    }
}

/// The settings kept for queries.
fn known_of(compiled: &Compiled) -> ConfigState {
    ConfigState {
        view: ConfigView::default(),
        severities: Arc::new(OwnSeverities::new(&compiled.events)),
        webhooks: Arc::new(compiled.webhooks.clone()),
        origins: Arc::new(compiled.origins.clone()),
        workspaces: Arc::default(),
    }
}

fn view(state: &'static str, report: &Report, now: Timestamp) -> ConfigView {
    let errors = report.diagnostics().iter().filter(|found| found.level == Level::Error);
    ConfigView {
        state: state.to_owned(),
        read_at: now.to_string(),
        errors: report.error_count(),
        warnings: report.warning_count(),
        problems: errors.take(PROBLEMS_MAX).map(Diagnostic::line).collect(),
    }
}

/// Reads the configuration again on request, one reload at a time.
pub(super) struct Reloader {
    pub(super) journal: Journal,
    pub(super) publisher: Publisher,
    pub(super) store: RulesStore,
    pub(super) user_folder: PathBuf,
    pub(super) clock: Arc<Clock>,
    pub(super) in_force: InForce,
    /// How many rules the journal named at the last check.
    pub(super) named: usize,
    /// The configuration of the daemon at its start.
    pub(super) at_start: DaemonConfig,
    pub(super) requests: mpsc::Receiver<ReloadRequest>,
    pub(super) state: watch::Sender<Arc<ConfigState>>,
    /// The folders of open sessions.
    pub(super) folders: watch::Receiver<OpenFolders>,
    /// Those whose workspaces were looked at.
    pub(super) looked_at: OpenFolders,
}

impl Reloader {
    /// Answers requests until all senders are dropped, and appends waiting rules when the disk has
    /// space again.
    #[expect(clippy::disallowed_methods, reason = "nothing is decided by when a full disk is tried again")]
    pub(super) async fn run(mut self) -> Result<(), Infallible> {
        self.collect().await;
        self.ask_about_workspaces().await;
        loop {
            tokio::select! {
                asked = self.requests.recv() => {
                    match asked {
                        None => return Ok(()),
                        // A signal waits for no answer, and a requester may be gone. Both find the
                        // outcome in the log.
                        Some(ReloadRequest::Reload(reply)) => {
                            let outcome = self.reload().await;
                            self.show(&outcome);
                            self.publish(&outcome).await;
                            reply.send(outcome.map_err(refusal)).ok();
                        }
                        Some(ReloadRequest::Trust(request, reply)) => {
                            let outcome = self.decide(request).await;
                            reply.send(outcome.map_err(refusal)).ok();
                        }
                    }
                    self.ask_about_workspaces().await;
                    self.collect().await;
                }
                Ok(()) = self.folders.changed() => {
                    self.look_at_workspaces().await;
                    self.ask_about_workspaces().await;
                }
                () = tokio::time::sleep(FULL_RETRY), if self.in_force.waits => {
                    // Any other failure of the journal ends the daemon.
                    let appended = append(&self.publisher, &self.in_force.hash).await;
                    self.in_force.waits = matches!(appended, Err(AppendError::Full(_)));
                }
            }
        }
    }

    /// Deletes rules that the journal does not name. No rules are stored meanwhile, because this
    /// task stores them too.
    async fn collect(&mut self) {
        let (store, journal, before) = (self.store.clone(), self.journal.clone(), self.named);
        match run_blocking(move || store.collect_unnamed(&journal, before)).await {
            Ok(Ok(named)) => self.named = named,
            Ok(Err(error)) => tracing::warn!(%error, "unused rules could not be deleted"),
            Err(error) => tracing::error!(%error, "the task that deletes rules ended"),
        }
    }

    /// Reads the files, and adopts them if they are valid and changed.
    async fn reload(&mut self) -> Result<ReloadView, ReloadError> {
        let (folder, store) = (self.user_folder.clone(), self.store.clone());
        let in_force = self.in_force.hash.clone();
        let reading = run_blocking(move || {
            let used = store.sources(&in_force).ok();
            let (sources, trusted) = read(&folder, used.as_ref(), store.state());
            let compiled = compile(&sources, &known_types());
            if compiled.report.error_count() > 0 {
                log_findings(&compiled.report);
                return Err(ReloadError::Broken(compiled.report));
            }
            store.keep(&sources)?;
            // What `aside check` refuses is in force all the same. Workspaces are checked by themselves.
            let (plain, of_plain);
            let (sources, of_files) = match sources.workspaces().is_empty() {
                true => (&sources, &compiled),
                false => {
                    plain = sources.clone().with_workspaces([]);
                    of_plain = compile(&plain, &known_types());
                    (&plain, &of_plain)
                }
            };
            let tried = trial::findings(sources, of_files);
            let failing = tried.iter().filter(|found| found.level == Level::Error).count();
            let report = reloaded(sources, of_files, tried);
            log_findings(&report);
            Ok((compiled, trusted, report, failing))
        });
        let (compiled, trusted, report, failing) = reading.await.map_err(ReloadError::Ended)??;
        let known = known_of(&compiled);
        let (subscribers, restart_needed) =
            (compiled.rules.subscribers.len(), compiled.daemon != self.at_start);
        let views = workspace::views(&trusted, &compiled.workspaces);
        let changed = self.put_in_force(compiled).await?;
        self.state.send_modify(|state| {
            let (view, workspaces) = (state.view.clone(), Arc::clone(&state.workspaces));
            *state = Arc::new(ConfigState { view, workspaces, ..known });
        });
        self.show_workspaces(views);
        let rules = self.in_force.hash.clone();
        Ok(ReloadView { changed, rules, subscribers, restart_needed, failing, found: findings(&report) })
    }

    /// Puts compiled rules, which are stored, in force; returns whether they are others than before.
    async fn put_in_force(&mut self, compiled: Compiled) -> Result<bool, AppendError> {
        let rules = Arc::new(compiled.rules);
        let changed = *rules.hash != *self.in_force.hash;
        if changed || self.in_force.waits {
            self.store.hand_over(Generation { rules: Arc::clone(&rules), outside: compiled.outside });
            let named = append(&self.publisher, &rules.hash).await?;
            self.in_force = InForce { hash: rules.hash.to_string(), waits: false };
            self.note_current().await;
            self.journal.handled(named.last().unwrap_or_default()).await;
        }
        Ok(changed)
    }

    /// Notes for the next start which files were valid; without this note that start uses earlier
    /// ones.
    async fn note_current(&self) {
        let (store, hash) = (self.store.clone(), self.in_force.hash.clone());
        if let Ok(Err(error)) = run_blocking(move || store.note_current(&hash)).await {
            let error: &dyn Error = &error;
            tracing::warn!(error, "these rules could not be recorded as the last valid ones");
        }
    }

    /// Shows the outcome of the reading until the next one.
    fn show(&self, outcome: &Result<ReloadView, ReloadError>) {
        let now = self.clock.now();
        let view = match outcome {
            Ok(reloaded) => {
                let ReloadView { subscribers, rules, .. } = reloaded;
                tracing::info!(subscribers, rules, "the configuration was read again");
                ConfigView {
                    state: ConfigView::IN_FORCE.to_owned(),
                    read_at: now.to_string(),
                    warnings: reloaded.found.warnings,
                    ..ConfigView::default()
                }
            }
            Err(error) => {
                tracing::error!(error = error as &dyn Error, "the rules are unchanged");
                match error {
                    ReloadError::Broken(report) => view(ConfigView::REFUSED, report, now),
                    ReloadError::Ended(_)
                    | ReloadError::Rules(_)
                    | ReloadError::None(_)
                    | ReloadError::Trust(_)
                    | ReloadError::Untrusted(_)
                    | ReloadError::Append(_) => ConfigView {
                        state: ConfigView::REFUSED.to_owned(),
                        read_at: now.to_string(),
                        problems: vec![with_causes(error)],
                        ..ConfigView::default()
                    },
                }
            }
        };
        self.state.send_modify(|state| {
            *state = Arc::new(ConfigState { view, ..ConfigState::clone(state) });
        });
    }

    async fn publish(&self, outcome: &Result<ReloadView, ReloadError>) {
        let event = event(outcome.as_ref(), self.clock.now());
        if let Err(error) = self.publisher.append(Records::build(|records| records.own_event(&event))).await {
            tracing::error!(%error, "the reload could not be published");
        }
    }
}

/// Requests a reload without waiting for its outcome. A full channel already has enough requests.
pub(super) fn ask(asking: &mpsc::Sender<ReloadRequest>) {
    let (reply, _) = tokio::sync::oneshot::channel();
    drop(asking.try_send(ReloadRequest::Reload(reply)));
}

fn findings(report: &Report) -> FindingsView {
    FindingsView {
        errors: report.error_count(),
        warnings: report.warning_count(),
        findings: report.to_json(),
        report: report.to_string(),
    }
}

fn refusal(error: ReloadError) -> ReloadRefusal {
    match error {
        ReloadError::Broken(report) => {
            let message = format!(
                "the configuration has {}; the rules are unchanged",
                counted(report.error_count(), "error")
            );
            ReloadRefusal::Files { message, found: findings(&report) }
        }
        ReloadError::Append(error) => ReloadRefusal::Journal(error),
        ReloadError::Untrusted(why) => ReloadRefusal::Trust(why),
        error @ (ReloadError::Ended(_)
        | ReloadError::Rules(_)
        | ReloadError::None(_)
        | ReloadError::Trust(_)) => ReloadRefusal::Failed(with_causes(&error)),
    }
}

/// The event about a reload, for watchers of the configuration.
fn event(outcome: Result<&ReloadView, &ReloadError>, now: Timestamp) -> Event {
    match outcome {
        Ok(ReloadView { subscribers, rules, .. }) => {
            let payload = json!({ "subscribers": subscribers, "rules": rules });
            own_event("config.reload.completed", Severity::Info, payload, now)
        }
        Err(ReloadError::Broken(report)) => failed(report, now),
        Err(
            other @ (ReloadError::Ended(_)
            | ReloadError::Rules(_)
            | ReloadError::None(_)
            | ReloadError::Trust(_)
            | ReloadError::Untrusted(_)
            | ReloadError::Append(_)),
        ) => own_event(FAILED, Severity::Warning, json!({ "message": with_causes(other) }), now),
    }
}

/// The event about files with errors; also for files that a start read.
pub(super) fn failed(report: &Report, now: Timestamp) -> Event {
    let first = report.diagnostics().first().map(Diagnostic::line);
    let payload = json!({ "errors": report.error_count(), "message": first });
    own_event(FAILED, Severity::Warning, payload, now)
}

fn own_event(event_type: &str, severity: Severity, payload: Value, now: Timestamp) -> Event {
    Event::own(event_type, format!("{event_type}-{}", now.as_millis()), severity, payload, now)
}
