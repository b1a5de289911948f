//! Watches with a real daemon: set, listed, cancelled, bounded, and fired exactly once even if
//! processes die in between.

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    acting::Client,
    support::daemon::{Answer, Daemon, Home, at, eventually},
};

/// Default number of kills between a watch and its end, see `ASIDE_WATCH_KILLS`.
const KILLS: usize = 12;

fn home() -> Home {
    Home::new()
}

/// Opens an idle session in the home's work folder.
fn open(home: &Home, session: &str) {
    let harness = json!({ "name": "loop", "workspace": home.work() });
    for (point, carrier) in [("turn_start", "c1"), ("turn_end", "c2")] {
        home.exchange(
            session,
            &json!({ "point": point, "carrier": carrier, "turn": "t1", "harness": harness }),
        );
    }
}

fn set(home: &Home, body: &Value) -> Answer {
    home.ask("POST", "/v1/watches", &body.to_string())
}

fn set_for(home: &Home, session: &str, condition: &str) -> String {
    let answer = set(home, &json!({ "conditions": [condition], "session": session, "note": "go on" }));
    assert_eq!(answer.status(), 201, "{answer:?}");
    answer.json()["watch"]["id"].as_str().expect("an id").to_owned()
}

/// The number of notifications pending for the session.
fn pending(home: &Home, session: &str) -> u64 {
    home.get(&format!("/v1/sessions/{session}"))["pending"].as_u64().expect("a number")
}

fn take(home: &Home, session: &str, carrier: &str) -> String {
    let taken =
        home.exchange(session, &json!({ "point": "turn_start", "carrier": carrier, "turn": carrier }));
    taken.json()["text"].as_str().unwrap_or_default().to_owned()
}

fn events(home: &Home, event_type: &str) -> usize {
    let found = home.get(&format!("/v1/events?type={event_type}&limit=1000"));
    found["events"].as_array().expect("a list").len()
}

fn child() -> Child {
    Command::new("cat").stdin(Stdio::piped()).spawn().expect("it runs")
}

#[test]
fn process_end_wakes_idle_session_once_with_note() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    let mut child = child();
    let id = set_for(&home, "s1", &format!("exit {}", child.id()));
    let listed = home.get("/v1/watches");
    assert_eq!(listed["watches"][0]["id"], id);
    assert_eq!(listed["watches"][0]["session"], "s1");
    child.kill().expect("a child");
    child.wait().expect("killed");
    let woken = eventually("a wake", || {
        let session = home.get("/v1/sessions/s1");
        (session["wake"] == "start_turn").then_some(session)
    });
    assert_eq!(woken["reason"], "high: watch", "{woken}");
    let text = take(&home, "s1", "c3");
    assert!(text.contains(&format!("watch: exit {}", child.id())), "{text}");
    assert!(text.contains("state: it has ended") && text.contains("note: go on"), "{text}");
    assert_eq!(home.get("/v1/watches")["watches"], json!([]));
    assert_eq!((take(&home, "s1", "c4"), events(&home, "watch.fired")), (String::new(), 1));
}

#[test]
fn condition_already_true_is_answered_without_a_watch() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    let answer = set(&home, &json!({ "conditions": ["file .", "in 1h"], "session": "s1" }));
    assert_eq!(answer.status(), 200, "{answer:?}");
    assert_eq!(answer.json(), json!({ "already": [{ "text": "file .", "state": "it exists" }] }));
    let answer = set(&home, &json!({ "conditions": ["idle s1"], "session": "s1" }));
    assert_eq!(answer.json()["already"][0]["state"], "no turn is under way");
    let all = json!({ "conditions": ["file .", "file x"], "needs": "all", "session": "s1" });
    let watch = set(&home, &all).json();
    assert_eq!(
        watch["watch"]["conditions"],
        json!([{ "text": "file .", "state": "it exists" }, { "text": "file x" }])
    );
    fs::write(home.path("work").join("x"), "").expect("written");
    eventually("its end", || (pending(&home, "s1") == 1).then_some(()));
    let text = take(&home, "s1", "c3");
    assert!(text.contains("watch: file .; file x") && text.contains("state: it exists; it exists"), "{text}");
}

#[test]
fn invalid_watch_is_refused_with_field_and_suggestion() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    for (body, status, expected) in [
        (
            json!({ "conditions": ["in 1m", "exti 12"], "session": "s1" }),
            400,
            "conditions[1]: `exti 12` is not a condition; did you mean `exit PID`?",
        ),
        (
            json!({ "conditions": ["port example.org:80"], "session": "s1" }),
            400,
            "`example.org` is another machine, which needs `remote = true`",
        ),
        (json!({ "conditions": ["in 8d"], "session": "s1" }), 400, "more than 7 days away"),
        (json!({ "conditions": ["in 2 turns"], "workspace": "/w" }), 400, "turns need a session"),
        (json!({ "conditions": ["tool:Bash"], "workspace": "/w" }), 400, "a tool's result needs a session"),
        (json!({ "conditions": ["context:80%"], "workspace": "/w" }), 400, "needs a session, and none is"),
        (json!({ "conditions": ["idle s9"], "session": "s1" }), 400, "there is no session `s9`"),
        (json!({ "conditions": ["in 1m"], "session": "s9" }), 404, "there is no session `s9`"),
        (json!({ "conditions": ["in 1m"] }), 400, "name a session or a folder"),
        (json!({ "conditions": ["in 1m"], "session": "s1", "notes": "x" }), 400, "did you mean `note`?"),
    ] {
        let answer = set(&home, &body);
        let error = answer.json()["error"].clone();
        let place = error["field"].as_str().map(|field| format!("{field}: ")).unwrap_or_default();
        let said = format!("{place}{}", error["message"].as_str().unwrap_or_default());
        assert!(answer.status() == status && said.contains(expected), "{body}: {} {said}", answer.status());
    }
    assert_eq!(home.get("/v1/watches")["watches"], json!([]));
}

#[test]
fn watches_per_session_are_bounded_and_cancellable() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    open(&home, "s2");
    let ids: Vec<String> = (0..32).map(|_| set_for(&home, "s1", "in 1h")).collect();
    let refused = set(&home, &json!({ "conditions": ["in 1h"], "session": "s1" }));
    assert_eq!(refused.status(), 409);
    assert!(
        refused.json()["error"]["message"]
            .as_str()
            .is_some_and(|said| said.starts_with("32 watches of session s1"))
    );
    set_for(&home, "s2", "in 1h");
    let first = ids.first().expect("one");
    assert_eq!(home.ask("DELETE", "/v1/watches/w", "").status(), 409);
    assert_eq!(home.ask("DELETE", &format!("/v1/watches/{}", &first[..12]), "").status(), 204);
    assert_eq!(home.ask("DELETE", &format!("/v1/watches/{first}"), "").status(), 404);
    set_for(&home, "s1", "in 1h");
    assert_eq!(home.get("/v1/watches?session=s1")["watches"].as_array().map(Vec::len), Some(32));
}

#[test]
fn event_ending_a_watch_is_delivered_only_once() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    open(&home, "s2");
    set_for(&home, "s1", "event ci.check.failed");
    home.publish(&json!({ "type": "ci.check.failed", "workspace": home.work(), "payload": { "check": "unit", "status": "failed" } }));
    eventually("its end", || (pending(&home, "s1") == 1).then_some(()));
    eventually("the other session's", || (pending(&home, "s2") == 1).then_some(()));
    let text = take(&home, "s1", "c3");
    assert!(text.contains("state: ci.check.failed from") && !text.contains("unit"), "{text}");
    assert!(take(&home, "s2", "c3").contains("unit"));
    eventually("why the session was not notified twice", || {
        home.get("/v1/notifications?limit=100").to_string().contains("\"watched\"").then_some(())
    });
}

#[test]
fn file_change_ending_a_watch_is_delivered_once() {
    let home = home();
    let _daemon = home.serve();
    let path = home.path("work").join("a.rs");
    fs::write(&path, "one\n").expect("written");
    let path = home.work() + "/a.rs";
    let harness = json!({ "name": "loop", "workspace": home.work() });
    let mut number = 0;
    let mut tool = |reads: &[&str]| {
        number += 1;
        let observed = json!([{ "type": "tool.call.success", "source": "loop", "payload": { "tool_name": "read", "files": reads.iter().map(|path| json!({ "path": path, "by": "read" })).collect::<Vec<_>>() } }]);
        let body = json!({ "point": "after_tool", "carrier": format!("t{number}"), "turn": "t1", "harness": harness, "observe": observed });
        home.exchange("s1", &body).json()["text"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!([tool(&[&path]), tool(&[])], ["", ""]);
    set_for(&home, "s1", "change a.rs");
    fs::write(&path, "two\n").expect("written");
    eventually("its end", || (pending(&home, "s1") == 1).then_some(()));
    let text = tool(&[]);
    assert!(text.contains("watch: change a.rs") && !text.contains("file_changed"), "{text}");
    assert_eq!([tool(&[]), tool(&[])], ["", ""]);
    fs::write(&path, "three\n").expect("written");
    let text = tool(&[]);
    assert!(text.contains("file_changed: a.rs") && !text.contains("watch"), "{text}");
}

#[test]
fn watch_and_reminder_fire_after_a_restart() {
    let home = home();
    let daemon = home.serve();
    open(&home, "s1");
    set_for(&home, "s1", "file x");
    set_for(&home, "s1", "in 2s");
    drop(daemon);
    let _daemon = home.serve();
    fs::write(home.path("work").join("x"), "").expect("written");
    eventually("both ends", || (pending(&home, "s1") == 2).then_some(()));
    let text = take(&home, "s1", "c9");
    assert!(text.contains("watch: file x") && text.contains("reminder: go on"), "{text}");
}

/// One round: three watches, their conditions, and a kill before the conditions come true,
/// meanwhile, or while the daemon publishes the results.
struct Round<'h> {
    home: &'h Home,
    number: usize,
    child: Child,
    ids: [String; 3],
}

impl<'h> Round<'h> {
    fn new(home: &'h Home, number: usize) -> Self {
        let child = child();
        let ids = [
            set_for(home, "s1", &format!("exit {}", child.id())),
            set_for(home, "s1", &format!("file f{number}")),
            set_for(home, "s1", &format!("event round.r{number}.*")),
        ];
        Self { home, number, child, ids }
    }

    fn publish(&self) {
        let event_type = format!("round.r{}.done", self.number);
        self.home.publish(&json!({ "type": event_type, "session": "s1", "id": format!("e{}", self.number) }));
    }

    fn change_the_machine(&mut self) {
        self.child.kill().expect("a child");
        self.child.wait().expect("killed");
        fs::write(self.home.path("work").join(format!("f{}", self.number)), "").expect("written");
    }

    fn open(&self) -> usize {
        self.home.get("/v1/watches")["watches"].as_array().map_or(0, Vec::len)
    }

    fn restart(&self, daemon: Daemon) -> Daemon {
        daemon.kill();
        self.home.serve()
    }

    fn play(&mut self, daemon: Daemon) -> Daemon {
        match self.number % 4 {
            0 => {
                daemon.kill();
                self.change_the_machine();
                let daemon = self.home.serve();
                self.publish();
                daemon
            }
            1 => {
                self.publish();
                let daemon = self.restart(daemon);
                self.change_the_machine();
                daemon
            }
            2 => {
                self.change_the_machine();
                self.publish();
                self.restart(daemon)
            }
            _ => {
                self.publish();
                self.change_the_machine();
                eventually("an end", || (self.open() < 3).then_some(()));
                self.restart(daemon)
            }
        }
    }

    /// Waits until all three have ended, each once.
    fn check(&self) {
        eventually("all ends", || (self.open() == 0).then_some(()));
        let fired = eventually("what was published", || {
            let found = self.home.get("/v1/events?type=watch.fired&limit=100");
            let ids = found["events"].as_array()?.iter().filter_map(|event| at(event, "/event/id").as_str());
            let ids: Vec<String> = ids.map(str::to_owned).collect();
            self.ids.iter().all(|id| ids.contains(id)).then_some(ids)
        });
        for id in &self.ids {
            assert_eq!(fired.iter().filter(|found| *found == id).count(), 1, "{id}");
        }
    }
}

#[test]
fn watch_fires_once_despite_kills_at_any_moment() {
    let kills = std::env::var("ASIDE_WATCH_KILLS").ok().and_then(|text| text.parse().ok()).unwrap_or(KILLS);
    let home = home();
    let mut daemon = home.serve();
    open(&home, "s1");
    let mut said = String::new();
    for number in 0..kills {
        let mut round = Round::new(&home, number);
        daemon = round.play(daemon);
        round.check();
        eventually("the notifications", || (pending(&home, "s1") > 0).then_some(()));
        for carrier in 0.. {
            let text = take(&home, "s1", &format!("k{number}-{carrier}"));
            if text.is_empty() {
                break;
            }
            said += &text;
        }
    }
    let sources = home.get("/v1/sources");
    let own = sources["sources"].as_array().into_iter().flatten().find(|source| source["name"] == "watch");
    assert_eq!(own.map(|own| &own["events"]), Some(&json!(3 * kills)), "none twice");
    drop(daemon);
    for number in 0..kills {
        let wanted = format!("file f{number}");
        let cells = said.lines().flat_map(|line| line.split(['"', ',']));
        let count = cells
            .filter(|cell| cell.trim().trim_start_matches("- ").trim_start_matches("watch: ") == wanted)
            .count();
        assert_eq!(count, 1, "{wanted}:\n{said}");
    }
}

#[test]
fn reminder_has_the_priority_that_it_asks_for() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    let ask = |priority: &str| {
        let body =
            json!({ "conditions": ["in 50ms"], "note": priority, "priority": priority, "session": "s1" });
        assert_eq!(set(&home, &body).status(), 201);
        eventually("it is due", || {
            let made = home.get("/v1/notifications?subscriber=reminder&limit=1");
            let newest = &made["notifications"][0];
            let is_it = newest["content"].as_str().is_some_and(|text| text.contains(priority));
            is_it.then(|| newest["priority"].as_str().map(str::to_owned))
        })
    };
    for priority in ["low", "normal", "high", "critical"] {
        assert_eq!(ask(priority).as_deref(), Some(priority));
    }
    let wrong = set(&home, &json!({ "conditions": ["in 1h"], "priority": "hihg", "session": "s1" }));
    assert!(wrong.status() == 400 && wrong.json().to_string().contains("`high`"), "{wrong:?}");
    let mut client = Client::new(&home, "agent-1");
    let refused = client.run("\"$ASIDE\" remind 'in 1h' x --priority critical");
    assert!(refused.contains("`critical` is for the user") && refused.ends_with("1\n"), "{refused}");
    let taken = client.run("\"$ASIDE\" remind 'in 1h' x --priority high");
    assert!(taken.starts_with("watching ") && taken.contains("ends in 1h01m"), "{taken}");
}

#[test]
fn reminder_comes_with_first_condition_of_a_list() {
    let home = home();
    let _daemon = home.serve();
    open(&home, "s1");
    let file = format!("{}/x", home.work());
    let said = home.print(&["remind", &format!("in 1h or file {file}"), "Go on.", "--session", "s1"]);
    assert!(said.starts_with("watching w"), "{said}");
    assert!(home.print(&["watch"]).contains(": Go on."));
    std::fs::write(&file, "").expect("written");
    eventually("it is met", || {
        let made = home.get("/v1/notifications?limit=1").to_string();
        made.contains("Go on.").then_some(())
    });
    let many = ["1h"; 9].join(" or ");
    for (conditions, needs, expected) in [
        (json!(["in 1h or 2 turns"]), "all", "a list of which one is enough, and `all` was requested"),
        (json!(many), "any", "has at most 8, not 9"),
        (json!(["in 1h or prot 3000"]), "any", "did you mean `port [HOST:]PORT`?"),
    ] {
        let wrong = set(&home, &json!({ "conditions": conditions, "needs": needs, "session": "s1" }));
        assert!(wrong.status() == 400 && wrong.json().to_string().contains(expected), "{wrong:?}");
    }
}

#[test]
fn watch_command_inside_client_addresses_its_session() {
    let home = home();
    let _daemon = home.serve();
    // This process counts as the client, as its number is in the exchange.
    let harness = json!({ "name": "loop", "workspace": home.work(), "pid": std::process::id() });
    home.exchange("s1", &json!({ "point": "turn_start", "carrier": "c1", "turn": "t1", "harness": harness }));
    let said = home.print(&["watch", "in 20m", "--note", "Look."]);
    assert!(said.starts_with("watching w") && said.contains(" for s1"), "{said}");
    let said = home.print(&["remind", "in 20m", "Push.", "--workspace", &home.work()]);
    assert!(said.contains(&format!(" for {}", home.work())), "{said}");
    let listed = home.print(&["watch"]);
    assert!(listed.contains("in 20m: Look.") && listed.contains("in 20m: Push."), "{listed}");
}
