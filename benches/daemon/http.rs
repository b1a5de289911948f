//! A keep-alive HTTP/1.1 connection, without a library.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
};

/// A connection with one request at a time.
pub(crate) struct Connection {
    stream: BufReader<UnixStream>,
    request: Vec<u8>,
}

impl Connection {
    pub(crate) fn new(stream: UnixStream) -> Self {
        Self { stream: BufReader::new(stream), request: Vec::new() }
    }

    /// Sends a batch of NDJSON and reads the whole answer.
    ///
    /// # Panics
    /// If the daemon does not accept every line as a new event.
    pub(crate) fn publish(&mut self, body: &[u8], batch: usize) {
        self.begin_publish(body);
        self.published(batch);
    }

    /// Sends a batch of NDJSON without reading the answer. [`Connection::published`] reads the
    /// answers, in the order of the batches.
    pub(crate) fn begin_publish(&mut self, body: &[u8]) {
        self.send("POST", "/v1/events", "application/x-ndjson", body);
    }

    /// Reads the answer to a batch.
    ///
    /// # Panics
    /// If the daemon does not accept every line as a new event.
    pub(crate) fn published(&mut self, batch: usize) {
        let (status, answer) = self.answer();
        let is_whole = answer.contains(&format!("\"accepted\":{batch},"));
        assert!(status == 200 && is_whole, "the daemon refused a batch: {status} {answer}");
    }

    /// Makes an exchange of a session; returns the status and the body of the answer.
    pub(crate) fn exchange(&mut self, session: &str, carrier: usize) -> (u16, String) {
        let path = format!("/v1/sessions/{session}/exchange");
        let body = format!(r#"{{"point":"after_tool","carrier":"c{carrier}","step":{carrier}}}"#);
        self.send("POST", &path, "application/json", body.as_bytes());
        self.answer()
    }

    /// Sends a request without reading the answer; [`Connection::answer`] reads it.
    pub(crate) fn send(&mut self, method: &str, path: &str, kind: &str, body: &[u8]) {
        self.request.clear();
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: aside\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n"
        );
        self.request.extend_from_slice(head.as_bytes());
        self.request.extend_from_slice(body);
        self.stream.get_mut().write_all(&self.request).expect("the daemon reads");
    }

    /// Reads a whole answer.
    pub(crate) fn answer(&mut self) -> (u16, String) {
        let (status, length, is_chunked) = self.head();
        let body = if is_chunked { self.read_chunks() } else { self.read_bytes(length) };
        (status, String::from_utf8_lossy(&body).into_owned())
    }

    /// Reads up to the body: the status, the length, and whether the body is chunked.
    pub(crate) fn head(&mut self) -> (u16, usize, bool) {
        let status = self.line();
        let status = status.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        let (mut length, mut is_chunked) = (0, false);
        loop {
            let header = self.line().to_ascii_lowercase();
            match header.trim_end().split_once(": ") {
                Some(("content-length", value)) => length = value.parse().expect("a length is a number"),
                Some(("transfer-encoding", value)) => is_chunked = value == "chunked",
                Some(_) => {}
                None => return (status, length, is_chunked),
            }
        }
    }

    fn read_chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let line = self.line();
            let length = usize::from_str_radix(line.trim_end(), 16).expect("a chunk begins with its length");
            body.extend(self.read_bytes(length));
            self.line();
            if length == 0 {
                return body;
            }
        }
    }

    /// Reads a line, of a head or of a stream.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        let length = self.stream.read_line(&mut line).expect("the daemon answers in text");
        assert!(length > 0, "the daemon closed the connection");
        line
    }

    fn read_bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("the daemon sends its whole answer");
        bytes
    }
}
