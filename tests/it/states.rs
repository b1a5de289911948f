//! Bodies of webhooks through the shipped rows and the shipped `ci_check`: the text that is left of
//! them for an agent. Each table is the list of bodies of one story.

use std::sync::Arc;

use aside::{
    capability::webhook::{Kind, said},
    config::{compile::compile, layers::Sources, webhooks::Webhooks},
};
use engine::{
    event::{Event, Payload, Provenance, Seq, catalogue},
    pipeline::{Pipeline, PipelineOutput, Resources, silence::Silences},
};
use journal::time::{Timestamp, zone::Zone};
use serde_json::{Value, json};

/// A body: its sender, the sender's name of the event, and the text.
type Body = (Kind, &'static str, Value);

fn event(number: u64, (kind, name, body): &Body) -> Arc<Event> {
    let header = |wanted: &str| wanted.ends_with("-event").then(|| (*name).to_owned());
    let said = said(*kind, &header, &body.to_string(), Webhooks::default().rows()).expect("JSON");
    let severity = catalogue::default_severity(said.event_type.as_str());
    Arc::new(Event {
        id: format!("e{number}").into(),
        severity: said.severity.or(severity).unwrap_or(engine::event::Severity::Info),
        event_type: said.event_type,
        source: kind.as_str().into(),
        provenance: Provenance::Remote,
        timestamp: Timestamp::ZERO,
        payload: Payload::from(Value::Object(said.payload)),
        dedupe_key: None,
        session: None,
        workspace: None,
        cause: None,
        deliver_after: None,
    })
}

/// The lines of all notifications, in order, with `|` between them.
fn delivered(bodies: &[Body]) -> String {
    let compiled = compile(&Sources::shipped(), &[]);
    let rules = compiled.rules;
    let rule = rules.subscribers.iter().find(|rule| rule.id.as_str() == "ci_check").expect("it is shipped");
    let mut pipeline = Pipeline::new(Arc::clone(rule));
    let resources = Resources {
        templates: &rules.templates,
        zone: &Zone::default(),
        silences: &Silences::default(),
        budget: &rules.budget,
        muted: None,
    };
    let now = Timestamp::from_millis(1_000);
    for (number, body) in (1..).zip(bodies) {
        let (seq, event) = (Seq(number), event(number, body));
        let matches = |patterns: &[engine::event::Pattern]| {
            patterns.iter().any(|pattern| pattern.matches(&event.event_type))
        };
        if rule.resolve.as_ref().is_some_and(|resolve| matches(&resolve.by)) {
            // A stale one is an error, and shows in the text that is left.
            let _ = pipeline.resolve(seq, &event, resources, now);
        }
        if matches(&rule.types) {
            pipeline.handle(seq, &event, resources, now);
        }
    }
    pipeline.close(&|_| true, resources, now);
    let outputs = std::iter::from_fn(|| pipeline.poll_output());
    let texts = outputs.filter_map(|output| match output {
        PipelineOutput::Notification(made) => Some(made.content.text().to_string()),
        PipelineOutput::Failed(failure) => panic!("{failure:?}"),
        PipelineOutput::Said { .. }
        | PipelineOutput::Batched { .. }
        | PipelineOutput::Resolved(_)
        | PipelineOutput::Holds(_)
        | PipelineOutput::Unseen(_)
        | PipelineOutput::Events { .. }
        | PipelineOutput::Ended { .. } => None,
    });
    texts
        .flat_map(|text| text.lines().map(str::trim).map(str::to_owned).collect::<Vec<_>>())
        .collect::<Vec<_>>()
        .join("|")
}

/// `check_run` of a commit; `more` is merged into it.
fn check_run(conclusion: &str, commit: &str, more: &Value) -> Body {
    let mut body = json!({ "action": "completed", "repository": { "full_name": "acme/shop" }, "check_run": {
        "name": "unit", "conclusion": conclusion, "head_sha": commit, "html_url": "https://x/1",
        "check_suite": { "head_branch": "fix", "head_sha": commit } } });
    merge(&mut body["check_run"], more);
    (Kind::Github, "check_run", body)
}

fn workflow_run(conclusion: &str, commit: &str, more: &Value) -> Body {
    let mut body = json!({ "action": "completed", "repository": { "full_name": "acme/shop" }, "workflow_run": {
        "name": "test", "conclusion": conclusion, "head_sha": commit, "head_branch": "fix" } });
    merge(&mut body["workflow_run"], more);
    (Kind::Github, "workflow_run", body)
}

fn status(state: &str, commit: &str, committed: &str, id: u64) -> Body {
    let commit_of = json!({ "commit": { "committer": { "date": committed } } });
    let body = json!({ "id": id, "sha": commit, "state": state, "context": "ci/x", "branches": [{ "name": "fix" }],
        "repository": { "full_name": "acme/shop" }, "commit": commit_of });
    (Kind::Github, "status", body)
}

fn pipeline(status: &str, id: u64) -> Body {
    let object = json!({ "id": id, "ref": "fix", "status": status });
    let body = json!({ "object_kind": "pipeline", "object_attributes": object });
    (Kind::Gitlab, "Pipeline Hook", body)
}

fn job(name: &str, status: &str, more: &Value) -> Body {
    let mut body = json!({ "object_kind": "build", "build_name": name, "build_status": status, "ref": "fix",
        "project_name": "Acme / Shop" });
    merge(&mut body, more);
    (Kind::Gitlab, "Job Hook", body)
}

fn merge(into: &mut Value, more: &Value) {
    for (key, value) in more.as_object().into_iter().flatten() {
        match into.get_mut(key) {
            Some(own) if own.is_object() => merge(own, value),
            Some(own) => *own = value.clone(),
            None => into[key] = value.clone(),
        }
    }
}

#[test]
fn an_older_state_ends_no_newer_one() {
    let none = json!({});
    let suite = |suite: u64, run: u64| json!({ "id": run, "check_suite": { "id": suite } });
    let run = |id: u64, attempt: u64| json!({ "id": id, "run_attempt": attempt });
    let of_fork = json!({ "id": 41, "head_repository": { "full_name": "eve/shop" } });
    let of_pull = |suite_id: u64| {
        let mut more = suite(suite_id, suite_id);
        more["pull_requests"] = json!([{ "number": 412 }]);
        more
    };
    let no_branch = |suite: u64| json!({ "check_suite": { "id": suite, "head_branch": null } });
    let both = "ci[2]{check,event,repo,branch,commit,url}:|unit,failed,acme/shop,fix,bbb2,\"https://x/1\"|unit,passed,acme/shop,fix,aaa1,\"https://x/1\"";
    let failed = "ci_failed: unit|repo: acme/shop|branch: fix|commit: bbb2|url: \"https://x/1\"";
    for (name, bodies, expected) in [
        ("no order", vec![check_run("failure", "bbb2", &none), check_run("success", "aaa1", &none)], both),
        (
            "older suite",
            vec![check_run("failure", "bbb2", &suite(5, 50)), check_run("success", "aaa1", &suite(4, 40))],
            failed,
        ),
        (
            "older suite, run again",
            vec![check_run("failure", "bbb2", &suite(5, 50)), check_run("success", "aaa1", &suite(4, 60))],
            failed,
        ),
        (
            "newer suite",
            vec![check_run("failure", "aaa1", &suite(4, 40)), check_run("neutral", "bbb2", &suite(5, 50))],
            "",
        ),
        (
            "older attempt",
            vec![workflow_run("failure", "bbb2", &run(40, 2)), workflow_run("success", "bbb2", &run(40, 1))],
            "ci_failed: test|repo: acme/shop|branch: fix|commit: bbb2",
        ),
        (
            "older run, attempted again",
            vec![workflow_run("failure", "bbb2", &run(40, 1)), workflow_run("success", "aaa1", &run(39, 2))],
            "ci_failed: test|repo: acme/shop|branch: fix|commit: bbb2",
        ),
        (
            "fork",
            vec![workflow_run("failure", "bbb2", &run(40, 1)), workflow_run("neutral", "ccc3", &of_fork)],
            "ci_failed: test|repo: acme/shop|branch: fix|commit: bbb2",
        ),
        (
            "two commits of forks",
            vec![check_run("failure", "bbb2", &no_branch(5)), check_run("neutral", "aaa1", &no_branch(6))],
            "ci_failed: unit|repo: acme/shop|commit: bbb2|url: \"https://x/1\"",
        ),
        (
            "pull request opened later",
            vec![check_run("failure", "aaa1", &suite(4, 40)), check_run("skipped", "bbb2", &of_pull(5))],
            "",
        ),
    ] {
        assert_eq!(delivered(&bodies), expected, "{name}");
    }
}

#[test]
fn an_older_state_without_a_suite_ends_none() {
    let early = "2026-11-25T09:00:00Z";
    let late = "2026-11-25T10:00:00Z";
    for (name, bodies, expected) in [
        (
            "status of an older commit",
            vec![status("failure", "bbb2", late, 7), status("success", "aaa1", early, 8)],
            "ci_failed: ci/x|repo: acme/shop|branch: fix|commit: bbb2",
        ),
        (
            "older pipeline",
            vec![pipeline("failed", 31), pipeline("success", 30)],
            "ci_failed: gitlab|branch: fix",
        ),
        (
            "older job",
            vec![
                job("unit", "failed", &json!({ "pipeline_id": 31, "build_id": 70 })),
                job("unit", "success", &json!({ "pipeline_id": 30, "build_id": 71 })),
            ],
            "ci_failed: unit|repo: Acme / Shop|branch: fix",
        ),
    ] {
        assert_eq!(delivered(&bodies), expected, "{name}");
    }
}

#[test]
fn an_outcome_ends_a_failure_or_is_none() {
    let none = json!({});
    let retried = json!({ "pipeline_id": 31, "build_id": 71 });
    let unit = |conclusion: &str| check_run(conclusion, "bbb2", &none);
    let still = "ci_failed: unit|repo: acme/shop|branch: fix|commit: bbb2|url: \"https://x/1\"";
    for (name, bodies, expected) in [
        ("job may fail", vec![job("lint", "failed", &json!({ "build_allow_failure": true }))], ""),
        (
            "job retried",
            vec![
                job("unit", "failed", &json!({ "pipeline_id": 31, "build_id": 70 })),
                job("unit", "success", &retried),
            ],
            "",
        ),
        (
            "job retried, cancelled",
            vec![
                job("unit", "failed", &json!({ "pipeline_id": 31, "build_id": 70 })),
                job("unit", "canceled", &retried),
            ],
            "ci_failed: unit|repo: Acme / Shop|branch: fix",
        ),
        ("rerun is neutral", vec![unit("failure"), unit("neutral")], ""),
        ("rerun is skipped", vec![unit("failure"), unit("skipped")], ""),
        ("rerun is cancelled", vec![unit("failure"), unit("cancelled")], still),
        ("rerun is stale", vec![unit("failure"), unit("stale")], still),
    ] {
        assert_eq!(delivered(&bodies), expected, "{name}");
    }
}
