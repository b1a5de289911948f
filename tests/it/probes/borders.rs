//! The border of what a session may ask of the machine, and the removal of its folder.

use std::{
    fs,
    net::{TcpListener, TcpStream},
};

use serde_json::{Value, json};

use super::{Client, home, with_sources};
use crate::support::daemon::{Home, PATIENCE, roundtrip};

const TOKEN: &str = "secret-secret-secret";

/// Makes an exchange over TCP with a token of the scope `exchange`; returns the answer's body.
fn over_tcp(address: &str, session: &str, carrier: &str, workspace: &Value, observe: &Value) -> String {
    let harness = json!({ "name": "claude-code", "workspace": workspace });
    let body = json!({ "point": "after_tool", "carrier": carrier, "harness": harness, "observe": observe });
    let body = body.to_string();
    let head = format!(
        "POST /v1/sessions/{session}/exchange HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/json\r\n\
         authorization: Bearer {TOKEN}\r\naside-timeout-ms: 30000\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    let connection = TcpStream::connect(address).expect("it listens");
    connection.set_read_timeout(Some(PATIENCE)).expect("a limit");
    let answer = roundtrip(connection, &format!("{head}{body}"));
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with("HTTP/1.1 20"), "{head} {body}");
    body.to_owned()
}

fn read(path: &str) -> Value {
    let files = json!([{ "path": path, "by": "read" }]);
    json!([{ "type": "tool.call.success", "payload": { "tool_name": "read", "files": files } }])
}

/// A daemon's home that listens at the returned address.
fn listening() -> (Home, String) {
    let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a free port");
    let home = with_sources(&format!("[http]\nlisten = \"{free}\"\ntoken_file = \"TOKENS\"\n"));
    let tokens = home.write_secret("tokens", &format!("{TOKEN} exchange\n"));
    let settings = fs::read_to_string(home.path("config/aside.toml")).expect("readable");
    let settings = settings.replace("TOKENS", &tokens.display().to_string());
    fs::write(home.path("config/aside.toml"), settings).expect("written");
    (home, free.to_string())
}

#[test]
fn a_token_learns_nothing_of_the_machine() {
    let (home, address) = listening();
    let _daemon = home.serve();
    let outside = tempfile::tempdir().expect("a folder");
    let secret = outside.path().join("secret");
    fs::write(&secret, "1\n2\n").expect("written");
    let path = secret.to_string_lossy();
    // Whatever folder it claims.
    for (number, workspace) in
        [json!("/"), json!(outside.path()), json!("/nowhere"), Value::Null].iter().enumerate()
    {
        let session = format!("remote{number}");
        over_tcp(&address, &session, "c1", workspace, &read(&path));
        fs::write(&secret, format!("1\nchanged {number}\n")).expect("written");
        for carrier in ["c2", "c3", "c4"] {
            assert_eq!(over_tcp(&address, &session, carrier, workspace, &json!([])), "", "{workspace}");
        }
    }
}

#[test]
fn a_token_learns_of_its_sessions_folder() {
    let (home, address) = listening();
    let _daemon = home.serve();
    let (work, outside) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    fs::write(work.path().join("a.rs"), "one\n").expect("written");
    fs::write(outside.path().join("secret"), "one\n").expect("written");
    std::os::unix::fs::symlink(outside.path(), work.path().join("link")).expect("linked");
    let mut client = Client::new(&home, "s1", work.path());
    client.read("a.rs");
    // The client itself has read a file elsewhere.
    client.call("Read", json!({ "file_path": outside.path().join("secret") }));
    let claimed = json!("/");
    let link = work.path().join("link/secret");
    over_tcp(&address, "s1", "c1", &claimed, &read(&link.to_string_lossy()));
    fs::write(outside.path().join("secret"), "two\n").expect("written");
    assert_eq!(over_tcp(&address, "s1", "c2", &claimed, &json!([])), "");
    fs::write(work.path().join("a.rs"), "two\n").expect("written");
    let delivered = over_tcp(&address, "s1", "c3", &claimed, &json!([]));
    assert!(delivered.contains("file_changed: a.rs") && !delivered.contains("secret"), "{delivered}");
    // The client's own exchange tells the rest.
    let delivered = client.run("ls").expect("it changed");
    assert!(delivered.contains("secret"), "{delivered}");
}

#[test]
fn a_removed_folder_is_reported_once() {
    for moves_away in [false, true] {
        let home = home();
        let _daemon = home.serve();
        let outer = tempfile::tempdir().expect("a folder");
        let work = outer.path().join("tree");
        fs::create_dir(&work).expect("made");
        let mut client = Client::new(&home, "s1", &work);
        for name in ["a.rs", "b.rs", "c.rs"] {
            fs::write(work.join(name), "one\n").expect("written");
            client.read(name);
        }
        fs::remove_dir_all(&work).expect("removed");
        let elsewhere = outer.path().to_owned();
        if moves_away {
            // The client goes on in another folder.
            client.work = &elsewhere;
        }
        let delivered = client.run("ls").expect("the folder is gone");
        assert!(delivered.contains(&format!("folder_deleted: {}", work.display())), "{delivered}");
        assert!(!delivered.contains("a.rs") && !delivered.contains("file_deleted"), "{delivered}");
        assert_eq!((client.run("ls"), client.prompt()), (None, None), "once");
    }
}

#[test]
fn a_folder_removed_by_the_agent_is_silent() {
    let home = home();
    let _daemon = home.serve();
    let outer = tempfile::tempdir().expect("a folder");
    let work = outer.path().join("tree");
    fs::create_dir(&work).expect("made");
    fs::write(work.join("a.rs"), "one\n").expect("written");
    let mut client = Client::new(&home, "s1", &work);
    client.read("a.rs");
    fs::remove_dir_all(&work).expect("removed");
    assert_eq!(client.run("rm -r ../tree"), None);
    assert_eq!((client.run("ls"), client.prompt()), (None, None));
}
