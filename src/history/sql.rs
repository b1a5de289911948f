//! Numbers for SQLite: signed, 64 bits.

/// Converts a position or a time to SQLite's signed integer.
pub(super) fn to_sql(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

pub(super) fn from_sql(number: i64) -> u64 {
    u64::try_from(number).unwrap_or_default()
}
