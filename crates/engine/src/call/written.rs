//! The content of a file after a call that wrote it, as the call's arguments give it.

/// What a call wrote into one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Written {
    /// The whole content.
    Content(String),
    /// Replacements, one after the other.
    Edits(Vec<Edit>),
}

/// A text that replaces another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// The replaced text; empty for a new file.
    pub old: String,
    /// The text in its place.
    pub new: String,
    /// Whether every place is replaced.
    pub is_everywhere: bool,
}

impl Written {
    /// The contents that the file may have after the call, the likeliest first; at most two, none if
    /// unknown. A client that removes whole lines removes their ends, or leaves them, in all its edits.
    ///
    /// Shape: with `\n` at the ends of lines. `before` is the content before the call.
    pub fn after(&self, before: Option<&str>) -> Vec<String> {
        match self {
            Self::Content(content) => vec![content.replace("\r\n", "\n")],
            Self::Edits(edits) => {
                let Some(before) = before.map(|text| text.replace("\r\n", "\n")) else { return Vec::new() };
                let with =
                    |ends: Ends| edits.iter().try_fold(before.clone(), |text, edit| edit.after(&text, ends));
                let mut contents: Vec<String> =
                    [Ends::Removed, Ends::Left].into_iter().filter_map(with).collect();
                contents.dedup();
                contents
            }
        }
    }
}

/// The ends of lines that an edit removes whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    Removed,
    Left,
}

impl Edit {
    /// The content after the edit; `None` if it does not fit `before`.
    fn after(&self, before: &str, ends: Ends) -> Option<String> {
        let Self { old, new, is_everywhere } = self;
        if old.is_empty() {
            return before.is_empty().then(|| new.clone());
        }
        let count = before.matches(old.as_str()).take(2).count();
        if count == 0 || (count > 1 && !is_everywhere) {
            return None;
        }
        let line = format!("{old}\n");
        let removes_lines = ends == Ends::Removed && new.is_empty() && !old.ends_with('\n');
        let replaced = if removes_lines && before.contains(&line) { &line } else { old };
        Some(before.replace(replaced.as_str(), new))
    }
}

/// Whether two contents differ in no more than ends of lines, which clients choose themselves, and
/// the white space before them.
pub fn is_same_content(one: &str, other: &str) -> bool {
    one.lines().map(str::trim_end).eq(other.lines().map(str::trim_end))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(old: &str, new: &str, is_everywhere: bool) -> Edit {
        Edit { old: old.to_owned(), new: new.to_owned(), is_everywhere }
    }

    #[test]
    fn edits_give_the_content_or_nothing() {
        for (before, edits, expected) in [
            (Some("a\nb\n"), vec![edit("a", "A", false)], &["A\nb\n"][..]),
            (Some("a\r\nb\r\n"), vec![edit("a\nb", "c", false)], &["c\n"]),
            (Some("a a\n"), vec![edit("a", "b", true)], &["b b\n"]),
            (Some("a a\n"), vec![edit("a", "b", false)], &[]),
            (Some("a\n"), vec![edit("x", "b", false)], &[]),
            (Some("a\n"), vec![edit("a", "b", false), edit("b", "c", false)], &["c\n"]),
            (Some("a\nb\n"), vec![edit("a", "", false)], &["b\n", "\nb\n"]),
            (Some("a = 1;\n"), vec![edit(" = 1", "", false)], &["a;\n"]),
            (Some(""), vec![edit("", "new\n", false)], &["new\n"]),
            (Some("a"), vec![edit("", "new\n", false)], &[]),
            (None, vec![edit("a", "b", false)], &[]),
        ] {
            assert_eq!(Written::Edits(edits.clone()).after(before), expected, "{before:?} {edits:?}");
        }
        assert_eq!(Written::Content("a\r\n".to_owned()).after(None), ["a\n"]);
    }

    #[test]
    fn many_removed_lines_make_two_contents() {
        let before: String = (0..1_000).map(|line| format!("line {line};\n")).collect();
        let edits = (0..1_000).map(|line| edit(&format!("line {line};"), "", false)).collect();
        assert_eq!(Written::Edits(edits).after(Some(&before)), [String::new(), "\n".repeat(1_000)]);
    }

    #[test]
    fn ends_of_lines_are_no_difference() {
        for (one, other, expected) in [
            ("a\nb\n", "a\r\nb", true),
            ("a  \n", "a\n", true),
            ("a\n", " a\n", false),
            ("a\n", "a\n\nb", false),
        ] {
            assert_eq!(is_same_content(one, other), expected, "{one:?} {other:?}");
        }
    }
}
