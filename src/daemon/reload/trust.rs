//! The workspaces with files of their own: which ones are in force, and what their user is asked.
//!
//! A decision or a look changes the files of workspaces only: all others stay as they are in force, so
//! that no half of an edit takes effect by it.

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::Arc,
};

use engine::{
    event::is_within,
    records::Records,
    sorted::{SortedMap, SortedSet},
};

use super::{ReloadError, Reloader};
use crate::{
    api::{
        self, ConfigState,
        wire::trust::{TrustRequest, WorkspaceState, WorkspaceView},
    },
    config::{
        compile::{Compiled, compile},
        workspace::{TrustList, Trusted},
    },
    daemon::{
        rules::RulesStore,
        tasks::run_blocking,
        workspace::{self, Looked, WorkspaceFiles},
    },
};

/// Most workspaces that wait for a decision; the ones seen last are kept.
const UNDECIDED_MAX: usize = 64;

/// What a look found.
struct Found {
    /// Whether the files of a trusted workspace are others than those in force.
    is_other: bool,
    /// Workspaces that are not trusted.
    undecided: Vec<WorkspaceView>,
}

/// Looks at the workspaces of sessions in `folders`; `known` are those that are shown.
fn look(folders: &[Arc<str>], known: &[WorkspaceView], state: &Path) -> Found {
    let (list, mut found) =
        (workspace::usable_trust_list(state), Found { is_other: false, undecided: Vec::new() });
    let mut places: SortedSet<PathBuf> =
        folders.iter().filter_map(|folder| workspace::nearest(Path::new(&**folder))).collect();
    let is_around = |one: &&WorkspaceView| folders.iter().any(|folder| is_within(folder, &one.folder));
    places.extend(known.iter().filter(is_around).map(|one| PathBuf::from(&*one.folder)));
    for place in &places {
        let WorkspaceFiles { workspace, refused } = workspace::read(place);
        let (folder, hash) = (Arc::clone(&workspace.folder), workspace.hash());
        let is_in_force = known.iter().any(|one| one.folder == folder && one.state.is_active());
        match list.get(&folder) {
            Some(trusted) => {
                let is_same = trusted.hash == hash && refused.is_empty();
                found.is_other |= is_same != is_in_force;
            }
            None if !workspace.has_rules() && refused.is_empty() => {}
            None => found.undecided.push(WorkspaceView {
                folder,
                state: WorkspaceState::Untrusted,
                hash,
                trusted_at: None,
                subscribers: Vec::new(),
                problem: None,
            }),
        }
    }
    found
}

/// Compiles the files in force, of other layers, with those of the workspaces that are trusted once
/// `request` is granted.
fn compiled(
    store: &RulesStore,
    in_force: &str,
    request: Option<(TrustRequest, String)>,
) -> Result<(Compiled, Vec<Looked>), ReloadError> {
    let state = store.state();
    let mut list = match &request {
        // A damaged list is not replaced by a decision about one workspace.
        Some(_) => workspace::trust_list(state).map_err(ReloadError::Trust)?,
        None => workspace::usable_trust_list(state),
    };
    if let Some((request, at)) = &request {
        change(&mut list, request, at)?;
    }
    let (workspaces, trusted) = workspace::read_trusted(&list);
    let sources = store.sources(in_force)?.with_workspaces(workspaces);
    let compiled = compile(&sources, &[]);
    if let Some((TrustRequest { folder, hash: Some(_) }, _)) = &request {
        match compiled.workspaces.iter().find(|own| own.folder == *folder) {
            Some(own) if own.is_in_force() => {}
            Some(own) => return Err(ReloadError::Broken(own.report.clone())),
            None => {
                let why = format!(
                    "the files in {folder}/.aside are not the ones that were shown; look at them again"
                );
                return Err(ReloadError::Untrusted(why));
            }
        }
    }
    store.keep(&sources)?;
    if request.is_some() {
        workspace::write_trust_list(state, &list).map_err(ReloadError::Trust)?;
    }
    Ok((compiled, trusted))
}

/// Changes the list as a user asked.
fn change(
    list: &mut TrustList,
    TrustRequest { folder, hash }: &TrustRequest,
    at: &str,
) -> Result<(), ReloadError> {
    match hash {
        Some(hash) => {
            let (folder, hash, at) = (Arc::clone(folder), hash.clone(), at.to_owned());
            list.trust(Trusted { folder, hash, at }).map_err(ReloadError::Untrusted)
        }
        None if list.revoke(folder) => Ok(()),
        None => Err(ReloadError::Untrusted(format!("{folder} is not trusted"))),
    }
}

impl Reloader {
    /// Trusts the files of a workspace, or ends the trust.
    pub(super) async fn decide(&mut self, request: TrustRequest) -> Result<(), ReloadError> {
        let at = self.clock.now().to_string();
        self.use_trusted(Some((request, at))).await
    }

    /// Looks at the workspaces of folders in which a session has opened.
    pub(super) async fn look_at_workspaces(&mut self) {
        let folders = Arc::clone(&self.folders.borrow_and_update());
        let new: Vec<_> = folders.iter().filter(|folder| !self.looked_at.contains(folder)).cloned().collect();
        self.looked_at = folders;
        if new.is_empty() {
            return;
        }
        let (known, state) = (Arc::clone(&self.state.borrow().workspaces), self.store.state().to_owned());
        let Ok(found) = run_blocking(move || look(&new, &known, &state)).await else { return };
        if !found.undecided.is_empty() {
            let trusted = self.state.borrow().workspaces.to_vec();
            self.show_workspaces(trusted.into_iter().chain(found.undecided).collect());
        }
        if found.is_other
            && let Err(error) = self.use_trusted(None).await
        {
            let error: &dyn Error = &error;
            tracing::error!(error, "the files of workspaces could not be put in force");
        }
    }

    /// Puts the files that are trusted in force.
    async fn use_trusted(&mut self, request: Option<(TrustRequest, String)>) -> Result<(), ReloadError> {
        let (store, in_force) = (self.store.clone(), self.in_force.hash.clone());
        let compiling = run_blocking(move || compiled(&store, &in_force, request));
        let (compiled, trusted) = compiling.await.map_err(ReloadError::Ended)??;
        let views = workspace::views(&trusted, &compiled.workspaces);
        self.put_in_force(compiled).await?;
        self.show_workspaces(views);
        Ok(())
    }

    /// Shows these workspaces, and those that wait for a decision, unless they are among them.
    pub(super) fn show_workspaces(&self, views: Vec<WorkspaceView>) {
        self.state.send_modify(|state| {
            let mut all: SortedMap<Arc<str>, WorkspaceView> = SortedMap::new();
            let undecided =
                state.workspaces.iter().filter(|one| one.state == WorkspaceState::Untrusted).cloned();
            let undecided: Vec<_> = undecided.collect();
            let kept = undecided.len().saturating_sub(UNDECIDED_MAX);
            for one in undecided.into_iter().skip(kept).chain(views) {
                all.insert(Arc::clone(&one.folder), one);
            }
            let workspaces = all.into_values().collect();
            *state = Arc::new(ConfigState { workspaces, ..ConfigState::clone(state) });
        });
    }

    /// Asks the user about the workspaces whose files are not in force, once for each content.
    pub(super) async fn ask_about_workspaces(&self) {
        let shown = Arc::clone(&self.state.borrow().workspaces);
        for one in shown.iter() {
            let (WorkspaceState::Untrusted | WorkspaceState::Changed, Some(trouble)) =
                (one.state, one.trouble())
            else {
                continue;
            };
            let event = api::question_about(one, &trouble, self.clock.now());
            let records = Records::build(|records| records.own_event(&event));
            // The same id again is a duplicate, which the journal does not record.
            if let Err(error) = self.publisher.publish(records).await {
                tracing::warn!(%error, "the user could not be asked about a workspace");
            }
        }
    }
}
