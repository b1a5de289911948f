//! Lines of `aside test` with the places that they are about, at the right edge of the terminal.
//!
//! Lines of one text begin at its left edge, and the places below each other at its right edge, so that
//! both can be read down. A line that leaves no room has its place below.

use crate::{
    cli::terminal::{Terminal, Tone, width},
    config::{
        layers::Sources,
        report::Place,
        trial::{Case, Line, Wrong},
    },
};

/// The width of the lines of a pipe.
const COLUMNS: usize = 80;

/// Why a test failed.
pub(super) fn explained(case: &Case<'_>, wrong: &Wrong, sources: &Sources, terminal: &Terminal) -> String {
    let (subscriber, test) = (case.subscriber(), case.test);
    let place = wrong.invalid_place().unwrap_or(&test.place).clone();
    let head = Line { text: format!("{subscriber}: {}", test.name), place: Some(place) };
    let lines = std::iter::once(head).chain(wrong.lines());
    lines.map(|line| shown(&line, sources, terminal)).collect()
}

/// A line with its place at the right edge, or on a line of its own if there is no room.
pub(in crate::cli) fn shown(line: &Line, sources: &Sources, terminal: &Terminal) -> String {
    let text = terminal.cut_after(0, &line.text);
    let Some(place) = &line.place else { return format!("{text}\n") };
    let place = shown_place(place, sources);
    let columns = terminal.columns.unwrap_or(COLUMNS);
    let room = columns.saturating_sub(width(&text) + width(&place));
    let painted = terminal.paint(Tone::Dim, &place);
    match room {
        0 | 1 => {
            let indent = columns.saturating_sub(width(&place));
            format!("{text}\n{}{painted}\n", " ".repeat(indent))
        }
        room => format!("{text}{}{painted}\n", " ".repeat(room)),
    }
}

/// The file as its layer names it, with the line.
pub(super) fn shown_place(place: &Place, sources: &Sources) -> String {
    let name = sources.name_of(&place.file).unwrap_or(&place.file);
    format!("{name}:{}", place.line())
}
