//! What a server answered.

/// How much of an answer is read, in bytes.
pub(super) const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What a server answered.
pub(super) struct Response {
    pub(super) status: u16,
    /// Its beginning.
    pub(super) body: Vec<u8>,
}

impl Response {
    pub(super) const fn is_success(&self) -> bool {
        self.status >= 200 && self.status < 300
    }
}
