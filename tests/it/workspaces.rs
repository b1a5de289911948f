//! The layer of a workspace: its rules hold for the sessions of its folder and for no other ones.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use aside::config::{
    compile::{Compiled, compile},
    layers::{Sources, Workspace},
    text::Text,
};
use engine::{
    event::{Event, SessionId},
    exchange::{Exchange, Harness},
    io::{Input, Output},
    notification::{InjectionPoint, Priority},
    rules::CompiledRules,
};
use serde_json::json;

use crate::support::{
    drive::{Drive, Restarts},
    rules::{START, event, with_user_sources},
};

type Files<'f> = &'f [(&'f str, &'f str)];

/// A subscriber for `test.made`, with these lines of `[output]`.
fn own(id: &str, output: &str) -> String {
    format!(
        "[subscriber]\nid = \"{id}\"\n[events]\ntypes = [\"test.one.made\"]\n[batching]\nwindow_ms = 0\n\
         [output]\n{output}\n"
    )
}

fn sources(user: Files<'_>, workspaces: &[(&str, Files<'_>)]) -> Sources {
    let files = |files: Files<'_>| {
        files.iter().map(|(name, text)| (Arc::from(*name), Text::from(*text))).collect::<Vec<_>>()
    };
    let workspaces = workspaces.iter().map(|(folder, own)| Workspace::new(folder, files(own)));
    with_user_sources(user).with_workspaces(workspaces)
}

/// The rules of these files.
///
/// # Panics
/// If there is an error in one.
fn compiled(sources: &Sources) -> Compiled {
    let compiled = compile(sources, &[]);
    let reports = compiled.workspaces.iter().map(|own| &own.report).chain([&compiled.report]);
    for report in reports {
        assert_eq!(report.error_count(), 0, "{report}");
    }
    compiled
}

fn rules(user: Files<'_>, workspaces: &[(&str, Files<'_>)]) -> Arc<CompiledRules> {
    Arc::new(compiled(&sources(user, workspaces)).rules)
}

/// Sessions, by the folder of each.
struct Agents {
    drive: Drive,
    sessions: Vec<SessionId>,
    seconds: u64,
    carriers: usize,
}

impl Agents {
    fn new(rules: Arc<CompiledRules>, folders: &[&str], restarts: Restarts) -> Self {
        let (drive, sessions) = (Drive::with(rules, restarts), Vec::new());
        let mut agents = Self { drive, sessions, seconds: 0, carriers: 0 };
        folders.iter().for_each(|folder| agents.open(folder));
        agents
    }

    fn open(&mut self, folder: &str) {
        let session = SessionId::new(folder);
        let harness = Harness { workspace: Some(folder.into()), ..Harness::default() };
        self.input(Input::SessionOpened { session: session.clone(), harness });
        self.sessions.push(session);
    }

    fn input(&mut self, input: Input<'_>) {
        self.seconds += 1;
        self.drive.input(input, START + Duration::from_secs(self.seconds));
    }

    fn emit(&mut self, event: &Event) {
        self.seconds += 1;
        self.drive.emit(event, START + Duration::from_secs(self.seconds));
    }

    /// What each session gets at the start of a turn: the subscribers and texts, by folder.
    fn delivered(&mut self) -> Vec<String> {
        let mut outputs = self.drive.take_outputs();
        for session in self.sessions.clone() {
            self.seconds += 10;
            self.carriers += 1;
            let exchange = Exchange::new(session, InjectionPoint::TurnStart, &format!("c{}", self.carriers));
            self.drive.exchange(exchange, START + Duration::from_secs(self.seconds));
        }
        outputs.extend(self.drive.take_outputs());
        let mut made = BTreeMap::new();
        let mut lines = Vec::new();
        for (_, output) in outputs {
            match output {
                Output::Made(notification) => {
                    made.insert(notification.id, notification);
                }
                Output::Answer { session, answer, .. } => {
                    for one in answer.injection.into_iter().flat_map(|injection| injection.notifications) {
                        let made = &made[&one.id];
                        let text = made.content.replace('\n', " ");
                        let subscriber = made.subscriber.as_str().split('-').next().unwrap_or_default();
                        lines.push(format!("{session} {subscriber} {text}"));
                    }
                }
                Output::Record(_)
                | Output::Said(_)
                | Output::Session(..)
                | Output::Refuse { .. }
                | Output::Publish(_)
                | Output::Wake(_) => {}
            }
        }
        lines.sort();
        lines
    }
}

fn made_in(folder: Option<&str>) -> Event {
    Event {
        session: None,
        workspace: folder.map(Into::into),
        ..event("test.one.made", None, &json!({ "n": 1 }))
    }
}

fn made_for(session: &str) -> Event {
    Event { session: Some(SessionId::new(session)), ..made_in(None) }
}

/// What each session gets of one event.
fn of_event(rules: &Arc<CompiledRules>, folders: &[&str], event: &Event) -> Vec<String> {
    let once = |restarts| {
        let mut agents = Agents::new(Arc::clone(rules), folders, restarts);
        agents.emit(event);
        agents.delivered()
    };
    let got = once(Restarts::Never);
    assert_eq!(once(Restarts::BeforeEveryInput), got, "a restart changes nothing");
    got
}

#[test]
fn own_subscriber_holds_in_its_folder_alone() {
    let file = own("deploy", "one = \"deploy: {{ payload.n }}\"");
    let rules = rules(&[], &[("/m/shop", &[("subscribers/deploy.toml", &file)])]);
    let folders = ["/", "/m", "/m/shop", "/m/shop/src", "/m/shopping", "/n"];
    let both = ["/m/shop deploy@shop deploy: 1", "/m/shop/src deploy@shop deploy: 1"];
    assert_eq!(of_event(&rules, &folders, &made_in(None)), both);
    assert_eq!(of_event(&rules, &folders, &made_in(Some("/m"))), both);
    assert_eq!(of_event(&rules, &folders, &made_in(Some("/m/shop/src"))), both);
    assert_eq!(of_event(&rules, &folders, &made_in(Some("/m/shop/doc"))), both[..1]);
    assert_eq!(of_event(&rules, &folders, &made_in(Some("/n"))), [""; 0]);
    assert_eq!(of_event(&rules, &folders, &made_for("/m/shop/src")), both[1..]);
    assert_eq!(of_event(&rules, &folders, &made_for("/m")), [""; 0]);
    assert_eq!(of_event(&rules, &folders, &made_for("unknown")), [""; 0]);
}

#[test]
fn two_folders_with_one_id_have_two_subscribers() {
    let [a, b] = ["a", "b"].map(|text| own("deploy", &format!("one = \"{text}: {{{{ payload.n }}}}\"")));
    let rules =
        rules(&[], &[("/a/shop", &[("subscribers/x.toml", &a)]), ("/b/shop", &[("subscribers/x.toml", &b)])]);
    let got = of_event(&rules, &["/a/shop", "/b/shop", "/c"], &made_in(None));
    assert_eq!(got, ["/a/shop deploy@shop a: 1", "/b/shop deploy@shop b: 1"]);
}

#[test]
fn nearest_folder_has_the_rules_of_a_session() {
    let [outer, inner] =
        ["outer", "inner"].map(|text| own("deploy", &format!("one = \"{text}: {{{{ payload.n }}}}\"")));
    let other = own("other", "one = \"other: {{ payload.n }}\"");
    let user = own("other", "one = \"user: {{ payload.n }}\"");
    let rules = rules(
        &[("subscribers/other.toml", &user)],
        &[
            ("/m", &[("subscribers/a.toml", &outer), ("subscribers/b.toml", &other)]),
            ("/m/web", &[("subscribers/a.toml", &inner)]),
        ],
    );
    let got = of_event(&rules, &["/", "/m", "/m/web", "/m/web/x"], &made_in(None));
    let expected = [
        "/ other user: 1",
        "/m deploy@m outer: 1",
        "/m other@m other: 1",
        "/m/web deploy@web inner: 1",
        "/m/web other user: 1",
        "/m/web/x deploy@web inner: 1",
        "/m/web/x other user: 1",
    ];
    assert_eq!(got, expected);
}

#[test]
fn the_four_ways_hold_in_a_folder() {
    let user = own("deploy", "priority = \"high\"\none = \"user: {{ payload.n }}\"");
    let failure =
        Event { session: None, ..event("tool.call.failure", None, &json!({ "tool_name": "grep" })) };
    let narrow = "[subscriber]\nid = \"tool_failure\"\n[events]\ntypes = [\"tool.call.failure\"]\n\
                  where = \"payload.tool_name == 'make'\"\n[batching]\nwindow_ms = 0\n[output]\none = \"made: 1\"\n";
    let inherits =
        "[subscriber]\nid = \"deploy\"\ninherit = true\n[output]\none = \"mine: {{ payload.n }}\"\n";
    let off = "[subscriber]\nid = \"deploy\"\ninherit = true\nenabled = false\n";
    let folders = ["/other", "/w"];
    let rules = |files: Files<'_>| rules(&[("subscribers/deploy.toml", &user)], &[("/w", files)]);

    let text = rules(&[("templates/deploy.toon.j2", "text: {{ count }}\n")]);
    let got = of_event(&text, &folders, &made_in(None));
    assert_eq!(got, ["/other deploy user: 1", "/w deploy@w text: 1"]);

    let inherited = rules(&[("subscribers/deploy.toml", inherits)]);
    let got = of_event(&inherited, &folders, &made_in(None));
    assert_eq!(got, ["/other deploy user: 1", "/w deploy@w mine: 1"]);
    let mut both = inherited.subscribers.iter().filter(|rule| rule.id.as_str().starts_with("deploy"));
    assert!(both.all(|rule| rule.output.priority == Priority::High), "it is inherited");

    let switched_off = rules(&[("subscribers/deploy.toml", off)]);
    assert_eq!(of_event(&switched_off, &folders, &made_in(None)), ["/other deploy user: 1"]);

    let core = rules(&[("subscribers/x.toml", narrow)]);
    let got = of_event(&core, &folders, &failure);
    let shipped = ["/other tool_failure tool_fail: grep", "/w tool_failure tool_fail: grep"];
    assert_eq!(got.iter().map(|line| line.trim()).collect::<Vec<_>>(), shipped);
    let make = Event { session: None, ..event("tool.call.failure", None, &json!({ "tool_name": "make" })) };
    let got = of_event(&core, &folders, &make);
    assert_eq!(got, ["/other tool_failure tool_fail: make", "/w tool_failure@w made: 1"]);
    for (session, expected) in
        [("/w", "/w tool_failure@w made: 1"), ("/other", "/other tool_failure tool_fail: make")]
    {
        let one = Event { session: Some(SessionId::new(session)), ..make.clone() };
        assert_eq!(of_event(&core, &folders, &one), [expected]);
    }
}

#[test]
fn an_error_leaves_one_workspace_out() {
    let fine = own("deploy", "one = \"fine: {{ payload.n }}\"");
    let core = own("deploy", "core = true\none = \"x: 1\"");
    let off = "[subscriber]\nid = \"tool_failure\"\ninherit = true\nenabled = false\n";
    let wrong_key = own("deploy", "colour = 1");
    let program = own("deploy", "one = \"x: 1\"\ncommand = \"/bin/sh\"");
    let sink = format!("{fine}[sinks.ntfy]\nurl = \"http://example.test\"\n");
    let template = own("deploy", "template = \"a\"");
    for (files, expected) in [
        (&[("subscribers/x.toml", &*core)][..], "makes no core subscriber"),
        (&[("subscribers/x.toml", off)], "a core subscriber cannot be switched off"),
        (&[("subscribers/x.toml", &wrong_key)], "unknown key `colour`"),
        (&[("subscribers/x.toml", &program)], "unknown key `command`"),
        (&[("subscribers/x.toml", &sink)], "`sinks`"),
        (&[("subscribers/x.toml", "x")], "/bad/.aside/subscribers/x.toml:1"),
        (&[("subscribers/x.toml", &template), ("templates/a.toon.j2", "{% if %}")], "does not compile"),
        (
            &[("subscribers/x.toml", &fine), ("subscribers/y.toml", &fine)],
            "two subscribers `deploy` in one layer",
        ),
        (&[("subscribers/x.toml", "[subscriber]\nid = \"none\"\ninherit = true\n")], "to inherit from"),
    ] {
        let of_files = sources(&[], &[("/bad", files), ("/bad/in", &[("subscribers/x.toml", &fine)])]);
        let compiled = compile(&of_files, &[]);
        let report = compiled.workspaces[0].report.to_string();
        assert!(report.contains(expected), "{expected}: {report}");
        assert_eq!(compiled.report.to_string(), "", "nothing of it is a finding of the configuration");
        assert_eq!((compiled.workspaces[0].subscribers.len(), compiled.left_out.len()), (0, 0));
        assert_eq!(compiled.rules.folders, ["/bad/in".into()]);
        let got = of_event(&Arc::new(compiled.rules), &["/bad", "/bad/in"], &made_in(None));
        assert_eq!(got, ["/bad/in deploy@in fine: 1"]);
    }
}

#[test]
fn types_of_a_folder_are_known_there_alone() {
    let types = "[[event]]\ntype = \"test.one.made\"\nexample = { n = 1 }\n";
    let file = own("deploy", "one = \"deploy: {{ payload.n }}\"");
    let subscriber = ("subscribers/deploy.toml", file.as_str());
    let declares: Files<'_> = &[("events.toml", types), subscriber];
    let of_files = sources(&[], &[("/a", declares), ("/b", &[subscriber])]);
    let compiled = compile(&of_files, &["tool.call.failure"]);
    let found: Vec<_> = compiled.workspaces.iter().map(|own| own.report.warning_count()).collect();
    assert_eq!(found, [0, 1], "{}", compiled.workspaces[1].report);
    assert!(compiled.events.is_empty(), "nothing of it is in the catalogue of all");
    let got = of_event(&Arc::new(compiled.rules), &["/a", "/b"], &made_in(None));
    assert_eq!(got, ["/a deploy@a deploy: 1", "/b deploy@b deploy: 1"]);

    for (wrong, part) in [
        ("severity = \"error\"\n", "sets no severity"),
        ("colour = 1\n", "unknown key `colour`"),
        ("[[event]]\ntype = \"watch.ended\"\n", "reserved"),
        ("[budget]\nturn = 100\n", "`budget`"),
    ] {
        let types = format!("{types}{wrong}");
        let of_files = sources(&[], &[("/a", &[("events.toml", &types), subscriber])]);
        let compiled = compile(&of_files, &[]);
        let report = compiled.workspaces[0].report.to_string();
        assert!(report.contains(part) && report.contains("/a/.aside/events.toml:"), "{part}: {report}");
        assert_eq!(compiled.rules.folders.len(), 0, "{part}: {report}");
    }
}

#[test]
fn trust_that_ends_delivers_open_batches() {
    let batched =
        own("deploy", "one = \"deploy: {{ payload.n }}\"").replace("window_ms = 0", "window_ms = 10000");
    let core = "[subscriber]\nid = \"tool_failure\"\ninherit = true\n[output]\none = \"mine: {{ payload.tool_name }}\"\n";
    let trusted = rules(&[], &[("/w", &[("subscribers/a.toml", &batched), ("subscribers/b.toml", core)])]);
    for restarts in [Restarts::Never, Restarts::BeforeEveryInput] {
        let mut agents = Agents::new(Arc::clone(&trusted), &["/w", "/other"], restarts);
        let failure = event("tool.call.failure", None, &json!({ "tool_name": "grep" }));
        agents.emit(&made_in(Some("/w")));
        agents.emit(&Event { session: Some(SessionId::new("/w")), ..failure.clone() });
        agents.input(Input::RulesReplaced(rules(&[], &[])));
        let after = Event { session: Some(SessionId::new("/w")), id: "later".into(), ..failure };
        agents.emit(&after);
        let got = agents.delivered();
        let expected =
            ["/w deploy@w deploy: 1", "/w tool_failure tool_fail: grep", "/w tool_failure@w mine: grep"];
        assert_eq!(got, expected);
        assert_eq!(agents.delivered(), [""; 0]);
    }
}

#[test]
fn a_resolved_condition_is_withdrawn_in_its_folder() {
    let port = "[subscriber]\nid = \"lock\"\n[events]\ntypes = [\"test.lock.taken\"]\n[batching]\nwindow_ms = 0\n\
                [limits]\nresolved_by = [\"test.lock.freed\"]\nequal = \"payload.n\"\n[output]\none = \"lock: {{ payload.n }}\"\n";
    let rules = rules(&[], &[("/w", &[("subscribers/lock.toml", port)])]);
    let mut agents = Agents::new(rules, &["/w", "/w/x", "/other"], Restarts::BeforeEveryInput);
    let of_type = |event_type: &str, workspace: Option<&str>| Event {
        workspace: workspace.map(Into::into),
        session: None,
        ..event(event_type, None, &json!({ "n": 1 }))
    };
    agents.emit(&of_type("test.lock.taken", None));
    agents.emit(&of_type("test.lock.freed", Some("/other")));
    agents.emit(&of_type("test.lock.freed", Some("/w/x")));
    assert_eq!(agents.delivered(), [""; 0], "a session above the folder is in its scope");
    agents.emit(&Event { id: "again".into(), ..of_type("test.lock.taken", None) });
    assert_eq!(agents.delivered(), ["/w lock@w lock: 1", "/w/x lock@w lock: 1"]);
}
