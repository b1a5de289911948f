//! Whether the templates and conditions of the active rules work.

use super::Check;
use crate::{
    cli::{Context, failing},
    daemon::causes::with_causes,
};

const NAME: &str = "templates";

/// One check per failed template and `where`; none when all is well.
pub(super) fn checks(context: &Context<'_>) -> Vec<Check> {
    let check = |found| Check::warn(NAME, found, "fix it, then aside reload; no event was lost");
    match failing::lines(context) {
        Ok(lines) => lines.into_values().flatten().map(check).collect(),
        Err(error) => vec![Check::warn(
            NAME,
            format!("failed to {}", with_causes(&error)),
            "aside status shows the error",
        )],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::tests::context;
    use hook::client::fake::FakeDaemon;

    #[test]
    fn unreadable_status_is_reported_as_a_problem() {
        for (status, found) in [
            (r#"{"subscribers":{"ci":{"enabled":true}},"new":1}"#, None),
            (
                r#"{"subscribers":{"ci":{"failing":[{"file":"a.j2","message":"m"}]}}}"#,
                Some("ci: a.j2 failed"),
            ),
            (r#"{"subscribers":[]}"#, Some("failed to read the status: the daemon's answer has a format")),
            ("{}", Some("failed to read the status: the daemon's answer has a format")),
        ] {
            let daemon = FakeDaemon::answering_paths(&[("/v1/status", status)]);
            let mut out = Vec::new();
            let checks = checks(&context(&daemon, &mut out));
            let said = checks.first().map(|check| &*check.found);
            assert_eq!(said.is_some(), found.is_some(), "{said:?}");
            assert!(said.unwrap_or_default().starts_with(found.unwrap_or_default()), "{said:?}");
        }
    }
}
