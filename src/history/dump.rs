//! Dumps every row of every table as text, for a comparison of two files.

use std::path::Path;

use rusqlite::types::ValueRef;

use super::schema;

/// Every row, table by table, sorted by key.
pub(crate) fn dump(path: &Path) -> Vec<String> {
    let connection = schema::open_for_reading(path).expect("opened");
    let mut tables = connection
        .prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")
        .expect("a database");
    let tables = tables.query_map([], |row| row.get::<_, String>(0)).expect("readable");
    let mut lines = Vec::new();
    for table in tables {
        let table = table.expect("a name");
        let mut statement =
            connection.prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2")).expect("a table");
        let columns = statement.column_count();
        let mut rows = statement.query([]).expect("readable");
        while let Some(row) = rows.next().expect("readable") {
            let cells = (0..columns).map(|index| match row.get_ref(index).expect("a cell") {
                ValueRef::Null => "-".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                other @ (ValueRef::Real(_) | ValueRef::Blob(_)) => format!("{other:?}"),
            });
            lines.push(format!("{table} {}", cells.collect::<Vec<_>>().join("|")));
        }
    }
    lines
}

/// Number of rows in a table.
pub(crate) fn count(path: &Path, table: &str) -> usize {
    let prefix = format!("{table} ");
    dump(path).iter().filter(|line| line.starts_with(&prefix)).count()
}

/// The single number that a statement returns.
pub(crate) fn number(path: &Path, sql: &str) -> i64 {
    let connection = schema::open_for_reading(path).expect("opened");
    connection.query_row(sql, [], |row| row.get(0)).expect("a number")
}

/// Runs statements in the file.
pub(crate) fn execute(path: &Path, sql: &str) {
    rusqlite::Connection::open(path).and_then(|connection| connection.execute_batch(sql)).expect("executed");
}
