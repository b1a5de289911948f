//! Finds keys that are free in an object.

/// `name`, with as many `_more` as needed to be free.
pub(super) fn free_key(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut key = name.to_owned();
    while is_taken(&key) {
        key.push_str("_more");
    }
    key
}
