//! The part of HTTP/1.1 for one request per connection: a head, and a body of known length, in
//! chunks, or up to the end.

use std::io::{self, BufRead, Read, Write};

/// Longest head of an answer, in bytes; a daemon's has a few hundred.
const HEAD_BYTES_MAX: u64 = 64 * 1024;
/// Longest line between two chunks, in bytes: a size, and extensions, which are never used.
const CHUNK_LINE_BYTES_MAX: u64 = 1024;
/// Room for a usual line, in bytes; the start of a program allocates this size anyway.
const LINE_BYTES: usize = 80;

/// Placeholder for the digits of a body's length.
const LENGTH_ROOM: &str = "          ";

/// A request in one buffer, so that it needs one allocation and wakes the daemon once.
#[derive(Debug)]
pub(super) struct Request {
    bytes: Vec<u8>,
    /// Place of the body's length, and start of the body.
    length_at: usize,
    body_at: usize,
}

/// The head of an answer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) status: u16,
    pub(super) framing: Framing,
}

/// How the end of a body is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    Length(u64),
    Chunked,
    ToEnd,
}

impl Request {
    /// Creates a request without further headers, with room for `room` bytes in total.
    pub(super) fn new(room: usize, method: &str, path: &[&str]) -> Self {
        Self::begin(room, method, path, "close")
    }

    /// Creates a request to upgrade the connection to `protocol`.
    pub(super) fn upgrade(room: usize, path: &str, protocol: &str) -> Self {
        let mut request = Self::begin(room, "POST", &[path], "upgrade");
        request.push(&["upgrade: ", protocol, "\r\n"]);
        request
    }

    fn begin(room: usize, method: &str, path: &[&str], connection: &str) -> Self {
        let mut request = Self { bytes: Vec::with_capacity(room), length_at: 0, body_at: 0 };
        request.push(&[method, " "]);
        request.push(path);
        request.push(&[" HTTP/1.1\r\nhost: aside\r\nconnection: ", connection, "\r\n"]);
        request
    }

    /// Adds a header whose value `write` appends.
    pub(super) fn header(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        self.push(&[name, ": "]);
        write(&mut self.bytes);
        self.push(&["\r\n"]);
    }

    /// Ends the head; the body is appended to the returned buffer.
    pub(super) fn body(&mut self) -> &mut Vec<u8> {
        self.push(&["content-length:"]);
        self.length_at = self.bytes.len();
        self.push(&[LENGTH_ROOM, "\r\n\r\n"]);
        self.body_at = self.bytes.len();
        &mut self.bytes
    }

    /// Length of the body.
    pub(super) fn body_len(&self) -> usize {
        self.bytes.len() - self.body_at
    }

    /// Sends the request. The connection stays open for writing, because a half-closed one looks
    /// like a disconnected client.
    pub(super) fn send(mut self, connection: &mut impl Write) -> io::Result<()> {
        let (length, room) = (self.body_len(), LENGTH_ROOM.len());
        if let Some(mut place) = self.bytes.get_mut(self.length_at..self.length_at + room) {
            // Spaces before a header's value are not part of it.
            write!(place, "{length:>room$}")?;
        }
        connection.write_all(&self.bytes)
    }

    fn push(&mut self, parts: &[&str]) {
        parts.iter().for_each(|part| self.bytes.extend_from_slice(part.as_bytes()));
    }
}

/// Reads up to the empty line, and passes each header's name and value unchanged to `show`.
///
/// Errors: `InvalidData` if it is not HTTP, `UnexpectedEof` if it is truncated.
pub(super) fn read_head(reader: &mut impl BufRead, mut show: impl FnMut(&str, &str)) -> io::Result<Head> {
    let mut reader = reader.take(HEAD_BYTES_MAX);
    let mut line = Vec::with_capacity(LINE_BYTES);
    let status = parse_status(read_line(&mut reader, &mut line)?)?;
    let mut framing = Framing::ToEnd;
    loop {
        let line = read_line(&mut reader, &mut line)?;
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header without a colon"))?;
        let value = value.trim();
        show(name, value);
        framing = framing.with(name, value)?;
    }
    if matches!(status, 204 | 304) {
        framing = Framing::Length(0);
    }
    Ok(Head { status, framing })
}

impl Framing {
    /// Expected length of the body, if known, and at most `most`.
    pub(super) fn room(self, most: u64) -> usize {
        let Self::Length(length) = self else { return 0 };
        usize::try_from(length.min(most)).unwrap_or_default()
    }

    /// Applies a header; chunks override a length.
    fn with(self, name: &str, value: &str) -> io::Result<Self> {
        if name.eq_ignore_ascii_case("transfer-encoding") && value.eq_ignore_ascii_case("chunked") {
            return Ok(Self::Chunked);
        }
        if name.eq_ignore_ascii_case("content-length") && self != Self::Chunked {
            return value.parse().map(Self::Length).map_err(|_| invalid("a length that is not a number"));
        }
        Ok(self)
    }
}

fn parse_status(line: &str) -> io::Result<u16> {
    let code = line.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1));
    code.filter(|code| code.len() == 3)
        .and_then(|code| code.parse().ok())
        .ok_or_else(|| invalid("no HTTP status line"))
}

/// A body, without its framing.
#[derive(Debug)]
pub(super) struct Body<R> {
    reader: R,
    /// Remaining bytes of the body or of the chunk.
    left: u64,
    framing: Framing,
    is_first_chunk: bool,
    is_done: bool,
}

impl<R: BufRead> Body<R> {
    pub(super) fn new(reader: R, framing: Framing) -> Self {
        let left = match framing {
            Framing::Length(length) => length,
            Framing::Chunked => 0,
            Framing::ToEnd => u64::MAX,
        };
        Self { reader, left, framing, is_first_chunk: true, is_done: framing == Framing::Length(0) }
    }

    pub(super) fn get_mut(&mut self) -> &mut R {
        &mut self.reader
    }

    /// The reader of the body.
    pub(super) fn into_inner(self) -> R {
        self.reader
    }

    fn next_chunk(&mut self) -> io::Result<()> {
        let mut line = Vec::with_capacity(LINE_BYTES);
        if !self.is_first_chunk && !self.read_chunk_line(&mut line)?.is_empty() {
            return Err(invalid("a chunk longer than its size"));
        }
        self.is_first_chunk = false;
        let size = self.read_chunk_line(&mut line)?.split(';').next().unwrap_or_default().trim();
        self.left = u64::from_str_radix(size, 16).map_err(|_| invalid("a chunk without a size"))?;
        if self.left == 0 {
            while !self.read_chunk_line(&mut line)?.is_empty() {}
            self.is_done = true;
        }
        Ok(())
    }

    fn read_chunk_line<'l>(&mut self, line: &'l mut Vec<u8>) -> io::Result<&'l str> {
        read_line(&mut self.reader.by_ref().take(CHUNK_LINE_BYTES_MAX), line)
    }
}

impl<R: BufRead> Read for Body<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.framing == Framing::Chunked && self.left == 0 && !self.is_done {
            self.next_chunk()?;
        }
        if self.is_done || buffer.is_empty() {
            return Ok(0);
        }
        let count = self.reader.by_ref().take(self.left).read(buffer)?;
        match self.framing {
            Framing::ToEnd => {}
            Framing::Length(_) | Framing::Chunked if count == 0 => {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            Framing::Length(_) | Framing::Chunked => self.left -= count as u64,
        }
        self.is_done |= self.left == 0 && self.framing != Framing::Chunked;
        Ok(count)
    }
}

/// Reads the next line into `line`, replacing its content.
fn read_line<'l>(reader: &mut io::Take<impl BufRead>, line: &'l mut Vec<u8>) -> io::Result<&'l str> {
    line.clear();
    reader.read_until(b'\n', line)?;
    if line.pop_if(|last| *last == b'\n').is_none() {
        let is_too_long = reader.limit() == 0;
        return Err(if is_too_long {
            invalid("a line too long")
        } else {
            io::ErrorKind::UnexpectedEof.into()
        });
    }
    line.pop_if(|last| *last == b'\r');
    str::from_utf8(line).map_err(|_| invalid("a head that is not text"))
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// Encodes `text` for use as one path segment or one query value.
///
/// ```
/// assert_eq!(hook::client::percent_encode("s1/agent 2"), "s1%2Fagent%202");
/// ```
pub fn percent_encode(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let mut encoded = Vec::with_capacity(text.len());
    encode_bytes(text.as_bytes(), is_plain, &mut encoded);
    String::from_utf8(encoded).unwrap_or_default()
}

/// Appends `bytes`, and percent-encodes the ones that are not plain; plain bytes must be ASCII.
pub(super) fn encode_bytes(bytes: &[u8], is_plain: impl Fn(u8) -> bool, encoded: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().unwrap_or(b'0');
    for &byte in bytes {
        if is_plain(byte) {
            encoded.push(byte);
        } else {
            encoded.extend([b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(answer: &str) -> io::Result<(u16, String)> {
        let mut reader = answer.as_bytes();
        let head = read_head(&mut reader, |_, _| ())?;
        let mut body = String::new();
        Body::new(reader, head.framing).read_to_string(&mut body)?;
        Ok((head.status, body))
    }

    #[test]
    fn a_body_ends_where_its_framing_says() {
        for (answer, expected) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nabcd", "ab"),
            ("HTTP/1.0 200 OK\n\nto the end", "to the end"),
            ("HTTP/1.1 204 No Content\r\n\r\n", ""),
            ("HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", ""),
            (
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\nx",
                "abc0123456789",
            ),
        ] {
            assert_eq!(read(answer).expect(answer).1, expected, "{answer:?}");
        }
    }

    #[test]
    fn an_invalid_http_answer_names_its_fault() {
        let long = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "y".repeat(70_000));
        for (answer, what) in [
            ("hello\r\n\r\n", "no HTTP status line"),
            ("HTTP/1.1 20 OK\r\n\r\n", "no HTTP status line"),
            ("HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n", "a length that is not a number"),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", "a chunk without a size"),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
                "a chunk longer than its size",
            ),
            (&long, "a line too long"),
        ] {
            assert_eq!(read(answer).expect_err(what).to_string(), what);
        }
    }
}
