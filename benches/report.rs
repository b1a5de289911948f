//! One line per target, in a form that `scripts/bench` collects.

/// Prints the measurement for a target, and whether it is met.
///
/// `row` is the target's number in `docs/benchmarks.md`.
pub(crate) fn row(row: &str, what: &str, target: &str, measured: &str, is_met: bool) {
    let verdict = if is_met { "met" } else { "missed" };
    println!("ROW | {row} | {what} | {target} | {measured} | {verdict} |");
}
