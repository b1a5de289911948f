//! The folder that a session works in, when somebody else removes it, as with a worktree. One
//! finding says so, instead of one for each known file.

use std::{path::Path, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    call::command,
    event::Severity,
    hash::hash_parts,
    notification::InjectionPoint,
    probe::{Entry, Facts, Finding, Moment, facts::shown_path},
    sorted::SortedSet,
};

/// The folder of a session, to notice its removal.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Known {
    /// The folder in which it worked at the last look, if that existed. A folder that never existed
    /// is one of another machine or of a container.
    #[serde(skip_serializing_if = "Option::is_none")]
    here: Option<Arc<str>>,
    /// How often its folder was found removed; distinguishes the findings.
    #[serde(skip_serializing_if = "is_zero")]
    count: u32,
}

/// The result of a look at the folder.
#[derive(Debug, Default)]
pub(in crate::probe) struct Looked {
    pub(in crate::probe) findings: Vec<Finding>,
    /// The known files whose removal this explains.
    pub(in crate::probe) explained: SortedSet<Arc<str>>,
}

impl Known {
    /// Checks the folder in which the session worked at the last look; it may be elsewhere by now.
    /// `files`: its known files.
    pub(in crate::probe) fn look<'f>(
        &mut self,
        files: impl Iterator<Item = &'f Arc<str>>,
        moment: &Moment<'_>,
        facts: &dyn Facts,
    ) -> Looked {
        let before = self.here.take();
        let found = before.as_deref().map(|folder| facts.entry(Path::new(folder)));
        self.here = moment.workspace.and_then(|folder| {
            let is_same = before.as_deref() == Some(folder);
            let found = found.filter(|_| is_same).unwrap_or_else(|| facts.entry(Path::new(folder)));
            (found == Entry::Folder || is_same && found == Entry::Unknown).then(|| folder.into())
        });
        let Some(folder) = before.filter(|_| found == Some(Entry::Absent)) else { return Looked::default() };
        self.count = self.count.saturating_add(1);
        let explained = files.filter(|path| Path::new(&***path).starts_with(&*folder)).cloned().collect();
        let mut commands = moment.calls.iter().filter_map(|call| call.command.as_deref());
        if moment.point == InjectionPoint::AfterTool && commands.any(command::may_write) {
            return Looked { findings: Vec::new(), explained };
        }
        let finding = Finding {
            event_type: "fs.known.folder_deleted",
            severity: Severity::Info,
            name: format!("{:016x}", hash_parts(&[&folder, &self.count.to_string()])),
            payload: json!({ "path": shown_path(&folder), "kind": "folder_deleted" }),
        };
        Looked { findings: vec![finding], explained }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks with a reference")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}
