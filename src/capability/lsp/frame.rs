//! The frames of the Language Server Protocol: `Content-Length: 2\r\n\r\n{}`.
//!
//! Source: the section "Base Protocol" of version 3.17. The crate `lsp-server` reads from a
//! blocking stream and allocates any length that a peer states; this module reads a frame in
//! pieces, as they arrive, with a bound.

use std::mem;

use serde_json::Value;

/// Largest message, in bytes: the findings of some ten thousand files.
pub const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
/// Longest header of a message, in bytes; the two existing fields take 100.
pub const HEADER_BYTES_MAX: usize = 4 * 1024;
const END_OF_HEADER: &[u8] = b"\r\n\r\n";
const LENGTH: &str = "content-length";

/// Takes bytes as they arrive and returns whole messages.
#[derive(Debug, Default)]
pub struct Frames {
    bytes: Vec<u8>,
    /// The length of the message at the start of `bytes`, once its header is read.
    length: Option<usize>,
}

/// Why the stream cannot be read any further.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Invalid header.
    #[error("its stdout has data other than messages")]
    NoHeader,
    /// The message is too large.
    #[error("it sent a message of {bytes} bytes; {MESSAGE_BYTES_MAX} are allowed")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
}

impl Frames {
    /// Adds received bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole message, if one has arrived.
    ///
    /// Errors: the stream is invalid from here on.
    pub fn next_message(&mut self) -> Result<Option<Vec<u8>>, FrameError> {
        let length = match self.length {
            Some(length) => length,
            None => {
                let Some(length) = self.take_header()? else { return Ok(None) };
                *self.length.insert(length)
            }
        };
        if self.bytes.len() < length {
            return Ok(None);
        }
        self.length = None;
        let rest = self.bytes.split_off(length);
        Ok(Some(mem::replace(&mut self.bytes, rest)))
    }

    /// The length in the header, if the whole header has arrived; removes the header.
    fn take_header(&mut self) -> Result<Option<usize>, FrameError> {
        let begin = self.bytes.get(..HEADER_BYTES_MAX).unwrap_or(&self.bytes);
        let Some(end) = begin.windows(END_OF_HEADER.len()).position(|window| window == END_OF_HEADER) else {
            return if begin.len() < HEADER_BYTES_MAX { Ok(None) } else { Err(FrameError::NoHeader) };
        };
        let header = begin.get(..end).and_then(|header| str::from_utf8(header).ok());
        let fields = header.into_iter().flat_map(str::lines).filter_map(|line| line.split_once(':'));
        let length = fields.filter(|(name, _)| name.trim().eq_ignore_ascii_case(LENGTH));
        let length: Option<usize> = length.filter_map(|(_, value)| value.trim().parse().ok()).next();
        match length.ok_or(FrameError::NoHeader)? {
            bytes if bytes > MESSAGE_BYTES_MAX => Err(FrameError::TooLarge { bytes }),
            length => {
                self.bytes.drain(..end + END_OF_HEADER.len());
                Ok(Some(length))
            }
        }
    }
}

/// A message with its header.
pub fn framed(message: &Value) -> Vec<u8> {
    let body = message.to_string();
    format!("Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_whole_however_their_bytes_arrive() {
        let all = b"Content-Length: 2\r\n\r\n{}Content-Type: x\r\ncontent-length:  4\r\n\r\n1234Content-Length: 0\r\n\r\n";
        for size in [1, 2, 3, 7, all.len()] {
            let (mut frames, mut found) = (Frames::default(), Vec::new());
            for piece in all.chunks(size) {
                frames.push(piece);
                while let Some(message) = frames.next_message().expect("frames") {
                    found.push(String::from_utf8(message).expect("text"));
                }
            }
            assert_eq!(found, ["{}", "1234", ""], "{size}");
        }
    }

    #[test]
    fn invalid_or_oversized_frame_ends_the_stream() {
        let long = "x".repeat(HEADER_BYTES_MAX);
        for (text, expected) in [
            ("Starting server...\r\n\r\n", Err(FrameError::NoHeader)),
            ("Content-Length: two\r\n\r\n{}", Err(FrameError::NoHeader)),
            ("Content-Length: -2\r\n\r\n{}", Err(FrameError::NoHeader)),
            (&*long, Err(FrameError::NoHeader)),
            ("Content-Length: 16777217\r\n\r\n", Err(FrameError::TooLarge { bytes: 16_777_217 })),
            ("Content-Length: 16777216\r\n\r\n{", Ok(None)),
            ("Content-Length: 2\r\n", Ok(None)),
        ] {
            let mut frames = Frames::default();
            frames.push(text.as_bytes());
            assert_eq!(frames.next_message(), expected, "{text}");
        }
    }

    #[test]
    fn framed_message_can_be_read_back() {
        let message = serde_json::json!({ "text": "\u{e4}\n" });
        let mut frames = Frames::default();
        frames.push(&framed(&message));
        let read = frames.next_message().expect("a frame").expect("whole");
        assert_eq!(serde_json::from_slice::<Value>(&read).expect("JSON"), message);
    }
}
