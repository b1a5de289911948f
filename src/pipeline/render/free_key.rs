//! Keys that no other field of an object has.

/// `name`, with as many `_more` as it takes.
pub(super) fn free_key(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    let mut key = name.to_owned();
    while is_taken(&key) {
        key.push_str("_more");
    }
    key
}
