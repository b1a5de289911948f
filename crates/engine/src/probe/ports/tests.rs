use super::{
    super::world::{World, ran},
    *,
};
use crate::{
    fold::{Effects, Fold},
    session::Succession,
};

const OUTPUT: &str = "/t/b1.output";
const CLOSED: &str = "closed port=3000 was=npm run dev up=12m";
const OPENED: &str = "opened port=3000 was=npm run dev";
const NONE: [&str; 0] = [];

fn started(id: &str, command: &str) -> Call {
    let output = Some(format!("/t/{id}.output"));
    Call { started: Some(id.to_owned()), output, in_background: true, ..ran(command) }
}

fn says(port: u16) -> String {
    format!("> dev\n  \u{1b}[32mLocal\u{1b}[0m: http://localhost:\u{1b}[1m{port}\u{1b}[22m/\n")
}

/// A session whose server has listened on port 3000 for 12 minutes.
fn world() -> World {
    let mut world = World::with_transcript();
    begin(&mut world, "b1", 3000);
    world.wait(Duration::from_secs(12 * 60));
    world
}

fn begin(world: &mut World, id: &str, port: u16) {
    world.end_calls("s", vec![started(id, "npm run\ndev")]);
    world.write(&format!("/t/{id}.output"), &says(port));
    world.ports.insert(port, Some(true));
}

fn go_on(world: &mut World) -> Vec<String> {
    world.end_calls("s", vec![ran("ls")])
}

fn late(world: &mut World) -> Vec<String> {
    world.wait(GRACE);
    go_on(world)
}

#[test]
fn closed_and_reopened_ports_are_reported_once() {
    let mut world = World::with_transcript();
    begin(&mut world, "b1", 3000);
    assert_eq!(go_on(&mut world), NONE);
    world.wait(Duration::from_secs(12 * 60));
    assert_eq!(go_on(&mut world), NONE, "it is open");
    world.ports.clear();
    assert_eq!(go_on(&mut world), NONE, "it may be loading its program again");
    world.wait(GRACE / 2);
    assert_eq!(go_on(&mut world), NONE, "so it may still");
    assert_eq!(late(&mut world), [CLOSED]);
    assert_eq!((late(&mut world), world.prompt("s")), (vec![], vec![]), "once");
    world.ports.insert(3000, Some(true));
    assert_eq!(go_on(&mut world), [OPENED]);
    assert_eq!(late(&mut world), NONE, "once");
    world.ports.clear();
    go_on(&mut world);
    assert_eq!(late(&mut world), ["closed port=3000 was=npm run dev up=5s"]);
}

/// Actions in a session, and its findings at two later looks, the second one after the grace time.
#[test]
fn expected_port_closures_are_not_reported() {
    type Happens = fn(&mut World);
    let rows: [(&str, Happens); 9] = [
        ("it goes on", |_| ()),
        ("a reload", |world| {
            world.ports.clear();
            go_on(world);
            world.ports.insert(3000, Some(true));
        }),
        ("its own kill", |world| {
            world.ports.clear();
            world.end_calls("s", vec![ran("pkill -f 'npm run dev'")]);
        }),
        ("its own kill, which takes some time", |world| {
            world.end_calls("s", vec![ran("lsof -ti:3000 | xargs kill")]);
            world.ports.clear();
            go_on(world);
        }),
        ("its own end of the command", |world| {
            world.ports.clear();
            world.end_calls("s", vec![Call { ended: vec!["b1".to_owned()], ..Call::default() }]);
        }),
        ("an end that the client reports, late", |world| {
            world.ports.clear();
            go_on(world);
            world.write("/transcript", "b1\n");
        }),
        ("an end that `background` says if the client does not", |world| {
            world.ports.clear();
            go_on(world);
            world.tell("s", "agent.turn.end", "{\"running\":[\"b2\"]}");
        }),
        ("a port that cannot be asked", |world| {
            world.ports.insert(3000, None);
        }),
        ("a subagent's look", |world| {
            world.ports.clear();
            assert_eq!(world.end_calls("s/a", vec![ran("ls")]), NONE);
            world.wait(GRACE);
            assert_eq!(world.end_calls("s/a", vec![ran("ls")]), NONE);
            world.ports.insert(3000, Some(true));
        }),
    ];
    for (what, happens) in rows {
        let mut world = world();
        assert_eq!(go_on(&mut world), NONE);
        world.wait(GRACE);
        happens(&mut world);
        let found = [go_on(&mut world), late(&mut world), late(&mut world)].concat();
        assert_eq!(found, NONE, "{what}");
    }
}

#[test]
fn running_command_does_not_hide_a_closed_port() {
    let mut world = world();
    go_on(&mut world);
    world.ports.clear();
    for payload in ["{\"running\":[\"b1\"]}", "{}"] {
        world.tell("s", "agent.turn.end", payload);
    }
    go_on(&mut world);
    assert_eq!(late(&mut world), ["closed port=3000 was=npm run dev up=0s"]);
}

#[test]
fn ports_never_open_or_never_named_are_ignored() {
    let mut world = World::with_transcript();
    begin(&mut world, "b1", 3000);
    world.ports = SortedMap::from([(4000, Some(true))]);
    go_on(&mut world);
    world.ports.clear();
    go_on(&mut world);
    assert_eq!(late(&mut world), NONE);
    assert!(world.asked.borrow().iter().all(|port| *port == 3000), "{:?}", world.asked);
}

#[test]
fn port_reopened_by_the_session_is_debug_only() {
    let mut world = world();
    go_on(&mut world);
    world.ports.clear();
    go_on(&mut world);
    assert_eq!(late(&mut world).len(), 1);
    begin(&mut world, "b2", 3000);
    let session = crate::event::SessionId::new("s");
    let events = world.look(session.as_str(), crate::notification::InjectionPoint::AfterTool, &[ran("ls")]);
    let opened: Vec<Severity> = events
        .iter()
        .filter(|event| event.event_type.as_str() == "tool.port.opened")
        .map(|event| event.severity)
        .collect();
    assert_eq!(opened, [Severity::Debug], "it withdraws what was said");
    world.observe(&events);
    world.ports.clear();
    go_on(&mut world);
    assert_eq!(late(&mut world).len(), 1, "it is the other command's now");
}

#[test]
fn a_fork_and_a_restart_preserve_watched_ports() {
    let mut world = world();
    world.settings.others.enabled = false;
    go_on(&mut world);
    let [from, to] = ["s", "t"].map(crate::event::SessionId::new);
    world.memory.follow(&Succession::Copied { from, to }, &mut Effects::default());
    let bytes = serde_json::to_vec(&world.memory).expect("it serializes");
    world.memory = serde_json::from_slice(&bytes).expect("its own");
    world.ports.clear();
    for session in ["s", "t"] {
        assert_eq!(world.end_calls(session, vec![ran("ls")]), NONE);
    }
    world.wait(GRACE);
    for session in ["s", "t"] {
        assert_eq!(world.end_calls(session, vec![ran("ls")]).len(), 1, "{session}");
    }
}

#[test]
fn server_output_is_searched_in_bounded_whole_lines() {
    let mut world = World::with_transcript();
    begin(&mut world, "b1", 3000);
    let filler = format!("{}\n", "x".repeat(99));
    world.write(OUTPUT, "at http://localhost:30");
    go_on(&mut world);
    assert_eq!(*world.asked.borrow(), [0; 0], "the line may go on");
    world.write(OUTPUT, "at http://localhost:3000\n");
    go_on(&mut world);
    assert_eq!(*world.asked.borrow(), [3000]);
    let many = usize::try_from(SEARCHED_BYTES_MAX).expect("small") / filler.len();
    world.write(OUTPUT, &format!("{}at http://localhost:4000\n", filler.repeat(many + 200)));
    for _ in 0..10 {
        go_on(&mut world);
    }
    assert!(!world.asked.borrow().contains(&4000), "{:?}", world.asked);
    world.write("/t/b2.output", &format!("{}\nat http://localhost:5000\n", "y".repeat(20_000)));
    world.end_calls("s", vec![started("b2", "make")]);
    go_on(&mut world);
    assert!(world.asked.borrow().contains(&5000), "a line without an end is passed");
}

#[test]
fn servers_ports_and_checks_are_bounded() {
    let mut world = World::with_transcript();
    for server in 0..SERVERS_MAX + 3 {
        world.wait(Duration::from_secs(1));
        world.end_calls("s", vec![started(&format!("c{server}"), "x")]);
        let text: String =
            (0..4).map(|port| says(1_000 + u16::try_from(server * 4 + port).expect("small"))).collect();
        world.write(&format!("/t/c{server}.output"), &text);
    }
    world.asked.borrow_mut().clear();
    go_on(&mut world);
    assert!(world.asked.borrow().len() <= PORTS_MAX, "{:?}", world.asked);
    let first = world.asked.borrow()[0];
    world.ports.insert(first, None);
    world.asked.borrow_mut().clear();
    go_on(&mut world);
    assert_eq!(*world.asked.borrow(), [first], "the others would take as long");
    let long = Call { output: Some(format!("/{}", "x".repeat(PATH_BYTES_MAX))), ..started("d1", "x") };
    let mut world = World::with_transcript();
    world.end_calls("s", vec![long]);
    let view = world.memory.view(&crate::event::SessionId::new("s"), None, |_| true, Timestamp::ZERO);
    assert_eq!(view.known.around.ports, Known::default());
}

#[test]
fn a_disabled_probe_checks_no_port() {
    let mut world = World::with_transcript();
    world.settings.ports.enabled = false;
    begin(&mut world, "b1", 3000);
    go_on(&mut world);
    assert_eq!(*world.asked.borrow(), [0; 0]);
}

/// Outputs of servers, and the ports in them.
const SAMPLES: [(&str, &[u16]); 34] = [
    ("  Local:   http://localhost:5173/", &[5173]),
    ("  Network: http://192.168.1.5:5173/", &[]),
    ("   - Local:        http://localhost:3000", &[3000]),
    ("ready - started server on 0.0.0.0:3000, url: http://localhost:3000", &[3000]),
    ("Serving HTTP on 0.0.0.0 port 8000 (http://0.0.0.0:8000/) ...", &[8000]),
    ("INFO:     Uvicorn running on http://127.0.0.1:8000 (Press CTRL+C to quit)", &[8000]),
    (" * Running on http://127.0.0.1:5000", &[5000]),
    ("Starting development server at http://127.0.0.1:8000/", &[8000]),
    ("* Listening on http://[::1]:3001", &[3001]),
    ("Listening on http://[::]:8080.", &[8080]),
    ("Example app listening on port 3000", &[3000]),
    ("Example app listening on port 3000!", &[3000]),
    ("Server running at port: 4000", &[4000]),
    ("Tomcat started on port(s): 8080 (http) with context path ''", &[8080]),
    ("listening on :9090", &[9090]),
    ("time=1 level=info msg=\"Listening on\" address=127.0.0.1:9090", &[9090]),
    ("a http://localhost:1 and http://localhost:2 and http://localhost:1", &[1, 2]),
    ("first http://localhost:3000\nthen http://localhost:4000\rand 0.0.0.0:5000", &[3000, 4000, 5000]),
    ("listening on 10.0.0.7 port 3000", &[]),
    ("Server running at http://example.com:3000/", &[]),
    ("Server running at http://example.localhost.com:3000/", &[]),
    ("connected to postgres at 127.0.0.1:5432", &[]),
    ("Error: connect ECONNREFUSED 127.0.0.1:6379", &[]),
    ("Error: listen EADDRINUSE: address already in use 127.0.0.1:3000", &[]),
    ("Port 3000 is in use, trying another one...", &[]),
    ("[HPM] Proxy created: /api -> http://localhost:8080", &[]),
    ("Debugger listening on ws://127.0.0.1:9229/0f2c", &[]),
    ("at http://localhost:0/ and http://localhost:65536/ and http://localhost:123456/", &[]),
    ("in src/a.ts:3000 and 0.0.0.0:3.5", &[]),
    ("compiled port 3000 of 4000 files", &[]),
    ("reported 8080 tests", &[]),
    ("localhost:", &[]),
    ("localhost:3000x", &[]),
    ("", &[]),
];

#[test]
fn local_ports_announced_by_a_server_are_found() {
    for (text, expected) in SAMPLES {
        assert_eq!(ports(text), expected, "{text}");
    }
}

#[test]
fn lines_are_searched_up_to_the_byte_bound() {
    let long = "\u{fc}".repeat(LINE_BYTES_MAX);
    assert_eq!(ports(&format!("{long} http://localhost:3000\nhttp://localhost:4000")), [4000]);
    assert_eq!(ports(&format!("x{long}")), [0; 0]);
}
