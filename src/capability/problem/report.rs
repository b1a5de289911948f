//! The events of a change: one per problem, and one if none is left.

use serde_json::{Map, Value, json};

use super::{Change, Level, Listed};
use engine::{event::Severity, hash::hash_parts};
use journal::time::duration_millis;

/// The type of the event that a problem was found.
pub const FOUND: &str = "problem.found";
/// The type of the event that a problem is gone; has the same `problem`.
pub const FIXED: &str = "problem.fixed";
/// The type of the event that a tool finds no problems any more.
pub const CLEARED: &str = "problem.cleared";

/// The origin of problems.
#[derive(Debug, Clone, Copy)]
pub struct Origin<'a> {
    /// The tool, such as `tsc`.
    pub tool: &'a str,
    /// The folder to which file names are relative.
    pub folder: Option<&'a str>,
    /// The folder whose path is removed from the names of files in it.
    pub workspace: Option<&'a str>,
}

/// The parts of an event to publish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// [`FOUND`], [`FIXED`] or [`CLEARED`].
    pub event_type: &'static str,
    /// The severity.
    pub severity: Severity,
    /// The key of the problem among those of its tool; the tool's name for [`CLEARED`].
    pub problem: String,
    /// The payload of the event.
    pub payload: Value,
}

impl Change {
    /// The events to publish: fixed problems, found ones, and last that none is left.
    ///
    /// Shape: the last found one has `more`, the number of problems that are not listed.
    pub fn reports(&self, origin: &Origin<'_>) -> Vec<Report> {
        let fixed = self.fixed.iter().map(|listed| origin.report(FIXED, Severity::Debug, listed));
        let found =
            self.found.iter().map(|listed| origin.report(FOUND, severity(listed.problem.severity), listed));
        let mut found: Vec<Report> = found.collect();
        if let (Some(payload), 1..) =
            (found.last_mut().and_then(|report| report.payload.as_object_mut()), self.left_out)
        {
            payload.insert("more".to_owned(), self.left_out.into());
        }
        let cleared = self.cleared_after.map(|lasted| Report {
            event_type: CLEARED,
            severity: Severity::Info,
            problem: origin.tool.to_owned(),
            payload: json!({ "tool": origin.tool, "lasted_ms": duration_millis(lasted) }),
        });
        fixed.chain(found).chain(cleared).collect()
    }
}

/// At most a warning: hundreds of compiler errors are usual during an edit, and must not wake
/// anybody.
const fn severity(level: Level) -> Severity {
    match level {
        Level::Error => Severity::Warning,
        Level::Warning => Severity::Info,
        Level::Info => Severity::Debug,
    }
}

impl Origin<'_> {
    fn report(&self, event_type: &'static str, severity: Severity, listed: &Listed) -> Report {
        let Listed { problem: of, ordinal } = listed;
        let file = of.file.as_deref().map(|file| self.shown(file));
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = hash_parts(&[
            self.tool,
            file.as_deref().unwrap_or_default(),
            &text(&of.code),
            &of.message,
            &ordinal.to_string(),
        ]);
        let key = format!("{key:016x}");
        let fields = [
            ("problem", Some(key.clone().into())),
            ("tool", Some(self.tool.into())),
            ("file", file.map(Value::from)),
            ("line", of.line.map(Value::from)),
            ("column", of.column.map(Value::from)),
            ("level", Some(of.severity.as_str().into())),
            ("code", of.code.clone().map(Value::from)),
            ("message", Some(of.message.clone().into())),
        ];
        let payload: Map<String, Value> =
            fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect();
        Report { event_type, severity, problem: key, payload: payload.into() }
    }

    /// The name of a file relative to the workspace if it is inside, otherwise its most complete
    /// path.
    fn shown(&self, file: &str) -> String {
        let file = file.strip_prefix("file://").unwrap_or(file);
        let whole = match (self.folder, file.starts_with('/')) {
            (Some(folder), false) => joined(folder, file),
            (Some(_) | None, _) => joined("", file),
        };
        let workspace = self.workspace.unwrap_or_default().trim_end_matches('/');
        let inside = whole.strip_prefix(workspace).and_then(|rest| rest.strip_prefix('/'));
        inside.filter(|_| !workspace.is_empty()).map_or(whole.clone(), str::to_owned)
    }
}

/// Joins a path lexically, without `.` and `..`.
fn joined(folder: &str, file: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in folder.split('/').chain(file.split('/')) {
        match part {
            "" | "." => {}
            ".." if parts.last().is_some_and(|last| *last != "..") => drop(parts.pop()),
            _ => parts.push(part),
        }
    }
    let is_absolute = folder.starts_with('/') || (folder.is_empty() && file.starts_with('/'));
    format!("{}{}", if is_absolute { "/" } else { "" }, parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::problem::{Problem, Problems};
    use journal::time::Timestamp;

    fn problem(file: &str) -> Problem {
        Problem {
            file: Some(file.to_owned()),
            line: Some(42),
            column: Some(9),
            severity: Level::Error,
            code: Some("E0425".to_owned()),
            message: "cannot find value `total` in this scope".to_owned(),
        }
    }

    const ORIGIN: Origin<'_> = Origin { tool: "cargo", folder: Some("/w/crates/a"), workspace: Some("/w") };

    #[test]
    fn found_and_fixed_events_name_same_problem() {
        let mut known = Problems::default();
        let found = known.replace(vec![problem("src/a.rs")], Timestamp::from_millis(1)).reports(&ORIGIN);
        let moved = Problem { line: Some(50), ..problem("src/a.rs") };
        assert_eq!(known.replace(vec![moved], Timestamp::from_millis(2)).reports(&ORIGIN), []);
        let fixed = known.replace(Vec::new(), Timestamp::from_millis(3)).reports(&ORIGIN);
        let [found] = <[Report; 1]>::try_from(found).expect("one");
        let [fixed, cleared] = <[Report; 2]>::try_from(fixed).expect("two");
        assert_eq!((found.event_type, found.severity), (FOUND, Severity::Warning));
        assert_eq!(
            (fixed.event_type, fixed.severity, &fixed.problem),
            (FIXED, Severity::Debug, &found.problem)
        );
        assert_eq!(
            found.payload,
            json!({ "problem": found.problem, "tool": "cargo", "file": "crates/a/src/a.rs", "line": 42, "column": 9,
                "level": "error", "code": "E0425", "message": "cannot find value `total` in this scope" })
        );
        assert_eq!((cleared.event_type, cleared.severity), (CLEARED, Severity::Info));
        assert_eq!(cleared.payload, json!({ "tool": "cargo", "lasted_ms": 2 }));
    }

    #[test]
    fn omitted_problems_are_counted_in_last_report() {
        let many = (0..25).map(|number| problem(&format!("{number}.rs"))).collect();
        let reports = Problems::default().replace(many, Timestamp::default()).reports(&ORIGIN);
        let more: Vec<_> = reports.iter().filter_map(|report| report.payload.get("more")).collect();
        assert_eq!((reports.len(), more), (20, vec![&json!(5)]));
        assert_eq!(reports.last().and_then(|report| report.payload.get("more")), Some(&json!(5)));
    }

    #[test]
    fn files_are_shown_from_the_workspace() {
        for (file, folder, workspace, shown) in [
            ("src/a.rs", Some("/w"), Some("/w"), "src/a.rs"),
            ("./src/../b.rs", Some("/w/x"), Some("/w/"), "x/b.rs"),
            ("/w/src/a.rs", None, Some("/w"), "src/a.rs"),
            ("file:///w/a.rs", None, Some("/w"), "a.rs"),
            ("/wide/a.rs", None, Some("/w"), "/wide/a.rs"),
            ("../../../x.rs", Some("/w"), Some("/w"), "/../../x.rs"),
            ("../x.rs", None, None, "../x.rs"),
            ("a.rs", None, Some("/w"), "a.rs"),
            ("a.rs", Some("/v"), Some("/w"), "/v/a.rs"),
            ("/", None, Some("/"), "/"),
        ] {
            let origin = Origin { tool: "t", folder, workspace };
            assert_eq!(origin.shown(file), shown, "{file}");
        }
    }
}
