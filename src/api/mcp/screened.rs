//! Cuts messages that have too many values for any call, before they are parsed.
//!
//! A message of empty objects takes some fifty times its length as a tree, and `rmcp` builds it for
//! each kind of request that it could be.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, ReadBuf};

/// Most values, keys and levels of a message together; a call has some ten.
pub(super) const VALUES_MAX: usize = 1_000;

/// The bytes of `R`; a line with too many values ends at the first one too many, where it is no
/// JSON.
#[derive(Debug)]
pub(super) struct Screened<R> {
    from: R,
    line: Line,
}

/// The state of the current line.
#[derive(Debug, Clone, Copy, Default)]
struct Line {
    values: usize,
    is_in_string: bool,
    is_escaped: bool,
    /// Whether its end was sent already, and the rest is dropped.
    is_cut: bool,
}

impl<R> Screened<R> {
    pub(super) fn new(from: R) -> Self {
        Self { from, line: Line::default() }
    }
}

impl Line {
    /// Removes what is to be dropped from the next bytes; returns how many are left.
    fn screen(&mut self, bytes: &mut [u8]) -> usize {
        let mut kept = 0;
        for at in 0..bytes.len() {
            let Some(byte) = bytes.get(at).copied() else { break };
            let shown = self.take(byte);
            if let (Some(shown), Some(place)) = (shown, bytes.get_mut(kept)) {
                *place = shown;
                kept += 1;
            }
        }
        kept
    }

    fn take(&mut self, byte: u8) -> Option<u8> {
        if byte == b'\n' {
            let is_cut = self.is_cut;
            *self = Self::default();
            return (!is_cut).then_some(byte);
        }
        if self.is_cut {
            return None;
        }
        match byte {
            _ if self.is_escaped => self.is_escaped = false,
            b'\\' if self.is_in_string => self.is_escaped = true,
            b'"' => self.is_in_string = !self.is_in_string,
            b'{' | b'[' | b',' | b':' if !self.is_in_string => self.values += 1,
            _ => {}
        }
        self.is_cut = self.values > VALUES_MAX;
        Some(if self.is_cut { b'\n' } else { byte })
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for Screened<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        loop {
            ready!(Pin::new(&mut self.from).poll_read(cx, into))?;
            let read = into.filled_mut().get_mut(before..).unwrap_or_default();
            if read.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let kept = self.line.screen(read);
            into.set_filled(before + kept);
            // No byte would mean the end.
            if kept > 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;

    use super::*;

    async fn screened(text: &str) -> String {
        let mut read = String::new();
        Screened::new(text.as_bytes()).read_to_string(&mut read).await.expect("read");
        read
    }

    #[tokio::test]
    async fn a_line_of_too_many_values_is_cut() {
        let text = format!("{{\"a\":\"{}\\\"{{\"}}\n", "{[,:".repeat(VALUES_MAX));
        assert_eq!(screened(&text).await, text, "text is no value");
        let most = format!("[{}1]\n", "1,".repeat(VALUES_MAX - 1));
        assert_eq!(screened(&most).await, most);
        let many = format!("[{}]\n{{}}\nlast", "{},".repeat(VALUES_MAX * 100));
        let read = screened(&many).await;
        assert!(read.ends_with("\n{}\nlast") && read.len() < 3 * VALUES_MAX, "{} bytes", read.len());
    }
}
