//! The output of a run's command, piece by piece.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use crate::capability::problem::collector::Stream;

/// Most queued pieces of output, of at most 64 KiB each; the command waits when the queue is full.
const PIECES_MAX: usize = 64;

/// Input from the command.
#[derive(Debug)]
pub(super) enum Piece {
    /// A piece of output.
    Output(Stream, Vec<u8>),
    /// The end.
    End,
}

/// Creates the queue of pieces.
pub(super) fn pieces() -> (SyncSender<Piece>, Receiver<Piece>) {
    sync_channel(PIECES_MAX)
}
