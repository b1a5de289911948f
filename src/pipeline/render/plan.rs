//! Templates that come to one table, recognised when they are compiled.
//!
//! Most templates say one event in their own words and make a table of several. What they do with several then is known beforehand: they
//! write the block of [`Table`] on a line of its own, and nothing else. So it is written without running the template. The source is taken
//! apart by its text, and minijinja judges the parts: the words for one event have to be a template by themselves, so that the
//! `if` before them is the one that the last `else` belongs to, and the options have to be a constant expression. What is not recognised runs as ever.

use minijinja::{
    Environment,
    value::{Kwargs, Value as Printed},
};

use super::{filters::picked_columns, table::Table};

/// What stands before the words for one event; the constants below it stand around the table, or make it alone.
const ONE: &str = "{% if count == 1 %}";
const SEVERAL: &str = "{% else %}\n{{ rows|toon(";
const END_OF_SEVERAL: &str = ") }}\n{% endif %}";
const ALL: &str = "{{ rows|toon(";
const END_OF_ALL: &str = ") }}";
/// The function that makes a map of options.
const TO_MAP: &str = "dict";

/// What a template does with some numbers of rows.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// The least number of rows it holds for.
    pub(super) rows_min: usize,
    /// All that it writes.
    pub(super) table: Table,
}

impl Plan {
    /// Recognises a template that has been compiled.
    pub(super) fn of(source: &str, environment: &Environment<'_>) -> Option<Self> {
        let source = source.trim_matches([' ', '\t', '\r', '\n']);
        let (rows_min, options) = match source.strip_prefix(ONE) {
            Some(rest) => {
                let (words, options) = rest.strip_suffix(END_OF_SEVERAL)?.rsplit_once(SEVERAL)?;
                environment.template_from_str(words).ok()?;
                (2, options)
            }
            None => (1, source.strip_prefix(ALL)?.strip_suffix(END_OF_ALL)?),
        };
        Some(Self { rows_min, table: table(options, environment)? })
    }
}

/// The table with these options, if they are constant and there is nothing but `key` and `columns`.
fn table(options: &str, environment: &Environment<'_>) -> Option<Table> {
    // Without parentheses they are the arguments of one call.
    let is_call = !options.contains(['(', ')']);
    let source = is_call.then(|| format!("{TO_MAP}({options})"))?;
    let expression = environment.compile_expression(&source).ok()?;
    if expression.undeclared_variables(false).iter().any(|name| name != TO_MAP) {
        return None;
    }
    let options = expression.eval(()).ok()?;
    let options: Kwargs = options
        .try_iter()
        .ok()?
        .map(|key| {
            let value = options.get_item(&key).ok()?;
            Some((key.as_str()?.to_owned(), value))
        })
        .collect::<Option<Vec<(String, Printed)>>>()?
        .into_iter()
        .collect();
    let key: String = options.get("key").ok()?;
    let columns: Option<Printed> = options.get("columns").ok()?;
    options.assert_all_used().ok()?;
    let columns = columns.map(|columns| picked_columns(&columns)).transpose().ok()?;
    Some(Table { key, columns })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::render::{rows::Origin, table::Column, template::sandbox};

    fn plan(source: &str) -> Option<Plan> {
        Plan::of(source, &sandbox())
    }

    #[test]
    fn the_options_are_read_once() {
        let source = "{% if count == 1 %}\na: {{ events[0].type }}\n{% else %}\n{{ rows|toon(key=\"k\", columns={\"a\": [\"b\", \"@type\"], \"c\": \"d\"}) }}\n{% endif %}\n";
        let column = |name: &str, from: &[&str]| Column {
            name: name.into(),
            from: from.iter().map(|name| Origin::named(name)).collect(),
        };
        let columns = vec![column("a", &["b", "@type"]), column("c", &["d"])];
        let table = Table { key: "k".into(), columns: Some(columns) };
        assert_eq!(plan(source), Some(Plan { rows_min: 2, table }));
        let table = Table { key: "k".into(), columns: None };
        assert_eq!(plan(" {{ rows|toon(key=\"k\") }}\n"), Some(Plan { rows_min: 1, table }));
    }

    #[test]
    fn whatever_else_a_template_does_is_left_to_it() {
        let around =
            |words: &str, options: &str| format!("{ONE}\n{words}\n{SEVERAL}{options}{END_OF_SEVERAL}");
        assert!(plan(&around("a: 1", "key=\"k\"")).is_some());
        for source in [
            around("a: 1\n{% endif %}\n{% if repeats %}\nb: 1", "key=\"k\""),
            around("a: 1\n{% elif count == 3 %}\nb: 1", "key=\"k\""),
            around("a: 1\n{% if repeats %}\nb: 1", "key=\"k\"") + "\n{% endif %}",
            around("a: 1\n{% else %}\nb: 1", "key=\"k\""),
            around("a: 1\n{# ", "key=\"k\"") + " #}",
            around("a: 1", "key=\"k\", indent=2"),
            around("a: 1", "key=subscriber.id"),
            around("a: 1", "key=\"k\" ~ count"),
            around("a: 1", "columns=[\"a\"]"),
            around("a: 1", "key=\"k\", columns=[]"),
            around("a: 1", "key=\"a\")|upper()"),
            around("a: 1", "key=\"k\") }}\nb: {{ rows|toon(key=\"l\""),
            around("a: 1", "key=\"k\"") + "\nb: 1",
            "b: 1\n{{ rows|toon(key=\"k\") }}".into(),
            "\u{a0}{{ rows|toon(key=\"k\") }}".into(),
            "{{ rows|toon }}".into(),
        ] {
            assert_eq!(plan(&source), None, "{source}");
        }
    }
}
