//! Texts of errors.

use std::error::Error;

/// Shape: `error: its cause: the cause of that`, each the text of one error.
pub fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}
