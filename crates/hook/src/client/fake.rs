//! A fake daemon for tests: sends the same answer on every connection, and keeps the requests.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

/// An empty folder, removed on drop.
pub struct Scratch(PathBuf);

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

impl Scratch {
    /// Makes one.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let folder = env::temp_dir().join(format!("aside-{}-{number}", process::id()));
        fs::create_dir(&folder).expect("a new folder");
        Self(folder)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).ok();
    }
}

/// Listens until the test ends.
pub struct FakeDaemon {
    _folder: Scratch,
    socket: PathBuf,
    requests: Arc<Mutex<Vec<String>>>,
}

impl FakeDaemon {
    /// Answers with `parts`, one write each, and closes.
    pub fn answering(parts: &[&str]) -> Self {
        let parts: Vec<String> = parts.iter().map(|part| (*part).to_owned()).collect();
        Self::start(move |connection| {
            for part in &parts {
                connection.write_all(part.as_bytes()).expect("client reads");
            }
        })
    }

    /// Answers every request with this status and JSON body.
    pub fn answering_json(status: u16, body: &str) -> Self {
        let length = body.len();
        Self::answering(&[&format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}")])
    }

    /// Answers a request with the JSON body of the first of `answers` with its path, else with 404;
    /// a path without a method means GET.
    pub fn answering_paths(answers: &[(&str, &str)]) -> Self {
        let own = |(path, body): &(&str, &str)| {
            let method = if path.starts_with('/') { "GET " } else { "" };
            (format!("{method}{path} "), (*body).to_owned())
        };
        let answers: Vec<(String, String)> = answers.iter().map(own).collect();
        Self::start_with(move |request, connection| {
            let found = answers.iter().find(|(start, _)| request.starts_with(start));
            let (status, body) =
                found.map_or((404, r#"{"error":{"message":"there is none"}}"#), |(_, body)| (200, body));
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
            connection.write_all(answer.as_bytes()).expect("client reads");
        })
    }

    /// Answers the first request with 503, and later ones with this JSON body.
    pub fn late(body: &str) -> Self {
        Self::first_with("HTTP/1.1 503 X\r\ncontent-length: 0\r\n\r\n", body)
    }

    /// Closes the connection of the first request, and answers every later one with this JSON body.
    pub fn losing(body: &str) -> Self {
        Self::first_with("", body)
    }

    fn first_with(first: &'static str, body: &str) -> Self {
        let answer = format!("HTTP/1.1 200 X\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let count = AtomicU32::new(0);
        Self::start(move |connection| {
            let is_first = count.fetch_add(1, Ordering::Relaxed) == 0;
            let said = if is_first { first } else { answer.as_str() };
            connection.write_all(said.as_bytes()).expect("client reads");
        })
    }

    /// Accepts connections, and sends nothing until the client disconnects.
    pub fn silent() -> Self {
        Self::start(|connection| {
            connection.read_to_end(&mut Vec::new()).expect("client leaves");
        })
    }

    /// Answers with `head`, and then one byte after each `pause` until the client disconnects.
    pub fn dripping(head: &str, pause: Duration) -> Self {
        let head = head.to_owned();
        Self::start(move |connection| {
            connection.write_all(head.as_bytes()).expect("client reads");
            connection.set_read_timeout(Some(pause)).expect("a time limit");
            // The client sends nothing more, so the read ends after the pause, or when the client
            // disconnects.
            while connection.read(&mut [0]).is_err() && connection.write_all(b"x").is_ok() {}
        })
    }

    fn start(answer: impl Fn(&mut UnixStream) + Send + Sync + 'static) -> Self {
        Self::start_with(move |_, connection| answer(connection))
    }

    fn start_with(answer: impl Fn(&str, &mut UnixStream) + Send + Sync + 'static) -> Self {
        let folder = Scratch::new();
        let socket = folder.path().join("fake.sock");
        let listener = UnixListener::bind(&socket).expect("bind");
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, answer) = (requests.clone(), Arc::new(answer));
        thread::spawn(move || {
            for connection in listener.incoming() {
                let mut connection = connection.expect("accept");
                let (seen, answer) = (seen.clone(), answer.clone());
                thread::spawn(move || {
                    if let Some(request) = read_request(&connection) {
                        seen.lock().expect("lock").push(request.clone());
                        answer(&request, &mut connection);
                    }
                });
            }
        });
        Self { _folder: folder, socket, requests }
    }

    /// Path of its socket.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Every complete request so far.
    pub fn requests(&self) -> Vec<String> {
        self.requests.lock().expect("lock").clone()
    }
}

fn read_request(connection: &UnixStream) -> Option<String> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.expect("a length").trim().parse().expect("a number")];
    reader.read_exact(&mut body).ok()?;
    Some(head + &String::from_utf8_lossy(&body))
}
