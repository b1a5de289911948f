//! Every outcome that a sender documents is one of three: it failed, it ends a failure, or neither.

use engine::pipeline::rule::ResolveRule;
use serde_json::{Value, json};

use super::*;
use crate::capability::webhook::said;

/// The class of an outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Failed,
    Ends,
    Neither,
}

use Class::{Ends, Failed, Neither};

/// The class of a body by the shipped rows, and whether its event is for an agent.
fn class(kind: Kind, event: &str, body: &Value) -> (Class, bool) {
    let header = |name: &str| (name.ends_with("-event")).then(|| event.to_owned());
    let all = Webhooks::default();
    let said = said(kind, &header, &body.to_string(), all.rows()).expect("JSON");
    let subscriber: toml::Table =
        toml::from_str(include_str!("../../../subscribers/ci_check.toml")).expect("TOML");
    let resolved_by = subscriber["limits"]["resolved_by"].as_array().expect("patterns");
    let by = resolved_by.iter().map(|by| by.as_str().expect("text").parse().expect("a pattern")).collect();
    let resolve = ResolveRule { by, equal: Vec::new() };
    let known = engine::event::catalogue::types().find(|entry| entry.event_type == said.event_type);
    let severity = said.severity.or(known.map(|entry| entry.severity));
    let is_delivered = severity.is_some_and(|severity| severity >= engine::event::Severity::Info);
    let class = match said.event_type.as_str() {
        "ci.check.failed" | "ci.run.failed" => Failed,
        _ if resolve.by.iter().any(|pattern| pattern.matches(&said.event_type)) => Ends,
        other => {
            assert!(other.starts_with("webhook."), "{other}");
            Neither
        }
    };
    (class, is_delivered && class != Neither)
}

/// Checks each outcome; a trailing `!` marks one that is also delivered as a result of its own.
fn check(kind: Kind, event: &str, outcomes: &[(&str, Class)], body: impl Fn(&str) -> Value) {
    for (outcome, expected) in outcomes {
        let word = outcome.trim_end_matches('!');
        let is_said = outcome.ends_with('!');
        assert_eq!(class(kind, event, &body(word)), (*expected, is_said), "{kind} {event} {word}");
    }
}

/// Source: GitHub's REST API, "Create a check run", `conclusion`; `stale` and `startup_failure` are
/// set by GitHub alone.
const CONCLUSIONS: [(&str, Class); 9] = [
    ("success!", Ends),
    ("failure!", Failed),
    ("timed_out!", Failed),
    ("action_required!", Failed),
    ("startup_failure!", Failed),
    ("neutral", Ends),
    ("skipped", Ends),
    ("cancelled", Neither),
    ("stale", Neither),
];

#[test]
fn githubs_conclusions_have_a_class_each() {
    check(
        Kind::Github,
        "check_run",
        &CONCLUSIONS,
        |word| json!({ "action": "completed", "check_run": { "name": "unit", "conclusion": word } }),
    );
    check(Kind::Github, "check_suite", &CONCLUSIONS, |word| {
        let app = json!({ "slug": "travis-ci", "name": "Travis CI" });
        json!({ "action": "completed", "check_suite": { "conclusion": word, "app": app } })
    });
    // The suites of one commit's workflows all have the same app.
    check(
        Kind::Github,
        "check_suite",
        &CONCLUSIONS.map(|(word, _)| (word.trim_end_matches('!'), Neither)),
        |word| {
            let app = json!({ "slug": "github-actions", "name": "GitHub Actions" });
            json!({ "action": "completed", "check_suite": { "conclusion": word, "app": app } })
        },
    );
    // A run that waits for an approval has not run.
    let of_run = CONCLUSIONS.map(|(word, class)| match word {
        "action_required!" => ("action_required", Neither),
        _ => (word, class),
    });
    for kind in [Kind::Github, Kind::Forgejo] {
        check(
            kind,
            "workflow_run",
            &of_run,
            |word| json!({ "action": "completed", "workflow_run": { "name": "test", "conclusion": word } }),
        );
    }
    for (event, field) in
        [("check_run", "check_run"), ("check_suite", "check_suite"), ("workflow_run", "workflow_run")]
    {
        let states = ["queued", "in_progress", "requested", "waiting", "pending"].map(|word| (word, Neither));
        check(
            Kind::Github,
            event,
            &states,
            |word| json!({ "action": word, field: { "status": word, "conclusion": null } }),
        );
    }
}

/// Sources: GitHub's webhook `status` (`state`), and the REST API's "Create a deployment status".
#[test]
fn githubs_states_have_a_class_each() {
    let states = [("error!", Failed), ("failure!", Failed), ("success!", Ends), ("pending", Neither)];
    check(Kind::Github, "status", &states, |word| json!({ "context": "ci/x", "state": word }));
    let of_deployment = [
        ("error!", Failed),
        ("failure!", Failed),
        ("success!", Ends),
        ("inactive", Neither),
        ("in_progress", Neither),
        ("queued", Neither),
        ("pending", Neither),
        ("waiting", Neither),
    ];
    check(
        Kind::Github,
        "deployment_status",
        &of_deployment,
        |word| json!({ "action": "created", "deployment": { "task": "deploy" }, "deployment_status": { "state": word } }),
    );
}

/// Source: GitLab's "Pipelines API" and "Jobs API", `status`.
#[test]
fn gitlabs_statuses_have_a_class_each() {
    const OPEN: [&str; 11] = [
        "created",
        "waiting_for_resource",
        "preparing",
        "pending",
        "running",
        "canceled",
        "canceling",
        "skipped",
        "manual",
        "scheduled",
        "waiting_for_callback",
    ];
    let open = OPEN.map(|word| (word, Neither));
    let of_pipeline = [&open[..], &[("failed!", Failed), ("success!", Ends)]].concat();
    check(
        Kind::Gitlab,
        "Pipeline Hook",
        &of_pipeline,
        |word| json!({ "object_kind": "pipeline", "object_attributes": { "id": 31, "status": word } }),
    );
    // A job that passed is not a result of its own, because its pipeline is.
    let job = |may_fail: bool| {
        move |word: &str| {
            json!({ "object_kind": "build", "build_name": "lint", "build_status": word,
                "build_allow_failure": may_fail })
        }
    };
    let of_job = [&open[..], &[("failed!", Failed), ("success", Ends)]].concat();
    check(Kind::Gitlab, "Job Hook", &of_job, job(false));
    let of_job_that_may_fail = [&open[..], &[("failed", Ends), ("success", Ends)]].concat();
    check(Kind::Gitlab, "Job Hook", &of_job_that_may_fail, job(true));
    check(
        Kind::Gitlab,
        "Job Hook",
        &[("failed!", Failed)],
        |word| json!({ "object_kind": "build", "build_name": "lint", "build_status": word }),
    );
}

/// Sources: Gitea's and Forgejo's `CommitStatusState`, and Forgejo's webhook for action runs.
#[test]
fn forgejos_states_have_a_class_each() {
    let states = [
        ("error!", Failed),
        ("failure!", Failed),
        ("success!", Ends),
        ("warning", Ends),
        ("skipped", Ends),
        ("pending", Neither),
    ];
    check(Kind::Forgejo, "status", &states, |word| json!({ "context": "ci/x", "state": word }));
    let actions = [("failure!", Failed), ("success!", Ends), ("recover!", Ends), ("cancelled", Neither)];
    let body = |word: &str| json!({ "action": word, "run": { "id": 7, "workflow_id": "test.yml" } });
    check(Kind::Forgejo, "action_run", &actions, body);
    for (word, class) in [("failure!", Failed), ("success!", Ends), ("recover!", Ends)] {
        let event = format!("action_run_{}", word.trim_end_matches('!'));
        check(Kind::Forgejo, &event, &[(word, class)], body);
    }
}

/// Fields that tell states apart, and which of two is newer.
#[test]
fn rows_have_what_orders_a_state() {
    let check_run = json!({ "action": "completed", "repository": { "full_name": "acme/shop", "url": "u" },
        "check_run": { "name": "unit", "conclusion": "failure", "id": 7, "head_sha": "bbb2",
            "completed_at": "2026-11-25T10:00:00Z", "pull_requests": [],
            "check_suite": { "id": 3, "head_branch": "fix", "head_sha": "bbb2" } } });
    let of_fork = json!({ "action": "completed", "repository": { "full_name": "acme/shop" },
        "workflow_run": { "name": "test", "conclusion": "success", "id": 9, "run_attempt": 2, "head_branch": "fix",
            "head_sha": "384a3e139a2dfa7023d93ad419bf63c264da293b", "head_repository": { "full_name": "eve/shop" } } });
    let status = json!({ "id": 5, "sha": "aaa1", "state": "failure", "context": "ci/x",
        "updated_at": "2026-11-25T10:00:00Z",
        "commit": { "commit": { "committer": { "date": "2026-11-25T09:00:00Z" } } } });
    let job = json!({ "build_name": "lint", "build_status": "failed", "build_id": 44, "pipeline_id": 31, "sha": "bbb2",
        "build_finished_at": "2026-11-25 10:00:00 UTC", "project_name": "Acme / Shop" });
    for (kind, event, body, expected) in [
        (
            Kind::Github,
            "check_run",
            check_run,
            json!({ "head_repo": "u", "commit": "bbb2", "run": 3, "attempt": 7, "at": "2026-11-25T10:00:00Z" }),
        ),
        (
            Kind::Github,
            "workflow_run",
            of_fork,
            json!({ "head_repo": "eve/shop", "commit": "384a3e139", "run": 9, "attempt": 2 }),
        ),
        (
            Kind::Github,
            "status",
            status,
            json!({ "commit": "aaa1", "attempt": 5, "at": "2026-11-25T10:00:00Z",
                "committed_at": "2026-11-25T09:00:00Z" }),
        ),
        (
            Kind::Gitlab,
            "Job Hook",
            job,
            json!({ "commit": "bbb2", "run": 31, "attempt": 44, "at": "2026-11-25 10:00:00 UTC" }),
        ),
    ] {
        let header = |name: &str| name.ends_with("-event").then(|| event.to_owned());
        let mut found =
            said(kind, &header, &body.to_string(), Webhooks::default().rows()).expect("JSON").payload;
        found.retain(|name, _| {
            ["head_repo", "commit", "run", "attempt", "at", "committed_at"].contains(&name.as_str())
        });
        assert_eq!(Value::Object(found), expected, "{kind} {event}");
    }
}

#[test]
fn unnamed_pipelines_are_named_after_their_project() {
    let header = |name: &str| name.ends_with("-event").then(|| "Pipeline Hook".to_owned());
    let project = json!({ "name": "Shop", "path_with_namespace": "acme/shop" });
    for status in ["failed", "success"] {
        for (name, workflow) in [(Value::Null, "Shop"), (json!("nightly"), "nightly")] {
            let body = json!({ "object_attributes": { "id": 31, "status": status, "name": name }, "project": project });
            let found =
                said(Kind::Gitlab, &header, &body.to_string(), Webhooks::default().rows()).expect("JSON");
            assert_eq!(found.payload["workflow"], workflow, "{status}");
        }
    }
}
