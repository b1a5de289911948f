//! Servers around an agent: one that it left running in the background, and those that give its
//! client tools (MCP).

use std::{fs, io::Write, net::TcpStream, path::PathBuf, process::Stdio, sync::mpsc, thread, time::Duration};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::{
    api::{Api, Turn},
    calls::{bash, call, delivered, go_on, in_background, put},
    client::{client, run_headless_with},
    home,
    said::Played,
    stage::Stage,
    terminal::{PATIENCE, within},
};
use crate::support::daemon::Home;

/// Most pending requests to connect a server; a play makes one.
const REQUESTS_MAX: usize = 8;
/// Listens until the file `close` exists, then closes its port and keeps running.
const DEV_SERVER: &str = r#"
import os, socket, sys, time
listener = socket.create_server(("127.0.0.1", 0))
port = listener.getsockname()[1]
print(f"  Local: http://localhost:{port}/", flush=True)
with open("port.new", "w") as file:
    file.write(str(port))
os.rename("port.new", "port")
while os.path.exists("dev.py"):
    if os.path.exists("close"):
        listener.close()
    time.sleep(0.05)
"#;
/// An MCP server with one tool; it ends immediately while the file `refuse` exists.
const MCP_SERVER: &str = r#"
import json, os, sys
folder = os.path.dirname(os.path.abspath(__file__))
if os.path.exists(folder + "/refuse"):
    sys.exit(3)
with open(folder + "/pid.new", "w") as file:
    file.write(str(os.getpid()))
os.rename(folder + "/pid.new", folder + "/pid")
TOOL = {"name": "lookup", "description": "Looks up", "inputSchema": {"type": "object", "properties": {}}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": lambda: {
            "protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
            "serverInfo": {"name": "depot", "version": "1"},
        },
        "tools/list": lambda: {"tools": [TOOL]},
        "tools/call": lambda: {"content": [{"type": "text", "text": "meanwhile"}]},
    }
    answer = {"jsonrpc": "2.0", "id": asked["id"]}
    if asked["method"] in answers:
        answer["result"] = answers[asked["method"]]()
    else:
        answer["error"] = {"code": -32601, "message": "not found"}
    print(json.dumps(answer), flush=True)
"#;
/// A call that takes longer than `mcp_server` waits for further servers, and than a port has to be
/// closed.
const LONG: &str = "sleep 6; echo meanwhile";

/// A background server whose port closes, if the event happens, while its command keeps running.
pub(super) fn port_closes(stage: &Stage) -> Played {
    put(&stage.home, "dev.py", DEV_SERVER);
    let home = stage.home.clone();
    let closes = stage.if_it_happens(move || {
        let read = || fs::read_to_string(PathBuf::from(home.work()).join("port")).ok()?.parse::<u16>().ok();
        let port = read().expect("it listens");
        put(&home, "close", "");
        assert!(within(PATIENCE, || TcpStream::connect(("127.0.0.1", port)).is_err()), "it is open");
    });
    let turns = vec![
        in_background(1, "python3 dev.py"),
        bash(2, "sleep 2; echo meanwhile"),
        go_on(3).after(closes),
        bash(4, LONG),
        // A client without a terminal waits for the end of the command; the wait is not a part of
        // the play.
        bash(5, "rm dev.py"),
        Turn::says("done"),
    ];
    let api = Api::playing(turns);
    run_headless_with(&stage.home, &api.url(), &["-p", "go"]);
    let mut conversation = api.conversation();
    conversation.truncate(5);
    Played { conversation, happened: 2 }
}

/// An MCP server that dies, if the event happens, so that a call fails; then the user reconnects
/// the client.
pub(super) fn mcp_server_returns(stage: &Stage) -> Played {
    let depot = Depot::new(&stage.home);
    let folder = depot.folder.clone();
    let dies = stage.if_it_happens(move || {
        let pid = fs::read_to_string(folder.join("pid")).expect("it runs").parse().expect("a number");
        fs::write(folder.join("refuse"), "").expect("written");
        kill_process(Pid::from_raw(pid).expect("a process"), Signal::KILL).expect("it runs");
    });
    let (folder, (sender, asked)) = (depot.folder.clone(), mpsc::sync_channel(REQUESTS_MAX));
    let comes = stage.if_it_happens(move || {
        fs::remove_file(folder.join("refuse")).expect("it is there");
        reconnect(&sender);
    });
    let lookup = |id| call(id, "mcp__depot__lookup", &json!({}));
    let turns = vec![
        lookup(1),
        lookup(2).after(dies),
        go_on(3),
        go_on(4).after(comes),
        bash(5, LONG),
        go_on(6),
        Turn::says("done"),
    ];
    Played { conversation: depot.play_by_hand(&stage.home, turns, asked), happened: 3 }
}

/// Makes the client reconnect, and waits as long as that may take.
fn reconnect(sender: &mpsc::SyncSender<()>) {
    sender.send(()).expect("the client's input is open");
    // The client answers on its output; it connects to this server, or fails to, within that time.
    thread::park_timeout(Duration::from_secs(3));
}

/// The MCP server in a folder of its own.
struct Depot {
    folder: PathBuf,
}

impl Depot {
    fn new(home: &Home) -> Self {
        let folder = home.path("depot");
        fs::create_dir(&folder).expect("a new folder");
        fs::write(folder.join("depot.py"), MCP_SERVER).expect("written");
        let server = json!({ "type": "stdio", "command": "python3", "args": [folder.join("depot.py")] });
        let config = json!({ "mcpServers": { "depot": server } });
        fs::write(folder.join("mcp.json"), config.to_string()).expect("written");
        Self { folder }
    }

    fn play(&self, home: &Home, turns: Vec<Turn>) -> Vec<Vec<Value>> {
        let api = Api::playing(turns);
        let config = format!("--mcp-config={}", self.folder.join("mcp.json").display());
        run_headless_with(home, &api.url(), &["-p", "go", &config, "--allowedTools=mcp__depot__lookup"]);
        api.conversation()
    }

    /// Like [`Self::play`], with a user who reconnects the client on each message of `asked`.
    fn play_by_hand(&self, home: &Home, turns: Vec<Turn>, asked: mpsc::Receiver<()>) -> Vec<Vec<Value>> {
        let api = Api::playing(turns);
        let config = format!("--mcp-config={}", self.folder.join("mcp.json").display());
        let fixed = ["-p", "--input-format", "stream-json", "--output-format", "stream-json", "--verbose"];
        let mut command = client(home, &api.url(), &fixed);
        command.args([&config, "--allowedTools=mcp__depot__lookup"]).stdin(Stdio::piped());
        let mut client =
            command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the client runs");
        let mut input = client.stdin.take().expect("it is a pipe");
        let prompt = json!({ "type": "user", "message": { "role": "user", "content": "go" } });
        writeln!(input, "{prompt}").expect("it reads");
        let hand = thread::spawn(move || {
            for (number, ()) in asked.iter().enumerate() {
                let request = json!({ "subtype": "mcp_reconnect", "serverName": "depot" });
                let asks = json!({ "type": "control_request", "request_id": number.to_string(), "request": request });
                writeln!(input, "{asks}").expect("it reads");
            }
        });
        assert!(api.wait_for(7, PATIENCE), "{} requests", api.conversation().len());
        hand.join().expect("no panic");
        client.wait().expect("it ends");
        api.conversation()
    }
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn failed_mcp_server_start_is_reported_exactly_once() {
    let home = home();
    let _daemon = home.serve();
    let depot = Depot::new(&home);
    fs::write(depot.folder.join("refuse"), "").expect("written");
    let turns = vec![go_on(1), go_on(2), bash(3, LONG), bash(4, LONG), go_on(5), Turn::says("done")];
    let conversation = depot.play(&home, turns);
    let by_client = delivered(&conversation, "depot (CONNECTION_CLOSED)");
    let by_aside = delivered(&conversation, "mcp_disconnected: depot");
    let last = (by_client.last().copied(), by_aside.last().copied());
    assert!(matches!(last, (Some(1), Some(0)) | (Some(0), Some(1))), "{by_client:?} {by_aside:?}");
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn an_mcp_server_that_runs_is_no_news() {
    let home = home();
    let _daemon = home.serve();
    let depot = Depot::new(&home);
    let lookup = |id| call(id, "mcp__depot__lookup", &json!({}));
    let conversation =
        depot.play(&home, vec![lookup(1), go_on(2), bash(3, LONG), lookup(4), go_on(5), Turn::says("done")]);
    for words in ["mcp_reconnected", "mcp_disconnected"] {
        assert_eq!(delivered(&conversation, words).iter().sum::<usize>(), 0, "{words}");
    }
    assert_eq!(delivered(&conversation, "is not connected").iter().sum::<usize>(), 0);
}

#[test]
#[ignore = "needs the client: scripts/real-client"]
fn mcp_reconnect_is_reported_by_client_or_aside() {
    let home = home();
    let _daemon = home.serve();
    let depot = Depot::new(&home);
    let (goes, comes) = (depot.folder.join("refuse"), depot.folder.join("refuse"));
    let (sender, asked) = mpsc::sync_channel(REQUESTS_MAX);
    let again = sender.clone();
    let turns = vec![
        call(1, "mcp__depot__lookup", &json!({})),
        go_on(2).after(move || {
            fs::write(goes, "").expect("written");
            reconnect(&sender);
        }),
        call(3, "mcp__depot__lookup", &json!({})),
        go_on(4).after(move || {
            fs::remove_file(comes).expect("it is there");
            reconnect(&again);
        }),
        bash(5, LONG),
        go_on(6),
        Turn::says("done"),
    ];
    let conversation = depot.play_by_hand(&home, turns, asked);
    let said = ["are no longer available", "available again", "mcp_reconnected"]
        .map(|words| delivered(&conversation, words));
    let last = said.each_ref().map(|counts| counts.last().copied().unwrap_or_default());
    // A client that lists all tools reports neither; its agent gets the message of aside that they
    // are back.
    let is_listed = last == [0, 0, 1];
    assert!(is_listed || last == [1, 1, 0], "{said:?}");
}
