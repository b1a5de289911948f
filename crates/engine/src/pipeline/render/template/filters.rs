//! Filters that write structure: `toon`, `toon_key`, `toon_row`; `tojson` for a value as text in
//! one cell; `tail` for text that is best cut at its beginning; and `optional` for a value that may
//! be absent.
//!
//! They encode every value themselves, so their output is always valid TOON.
//! `rows|toon(key="fails")` is the fast way to a table: it writes rows without template
//! instructions per cell. `columns=` selects and names columns: a list of names, or a map from a
//! column's name in the table to its name in the row, or to several names, of which the first
//! non-null one is shown. `@type`, `@source`, `@severity`, `@time` and `@payload` are fields of the
//! event. Columns that are null in every row are omitted.
//!
//! `notify(text, level=.., category=.., link=..)` is a template's notice for the user. It writes
//! nothing into the output. Notices are sent only if the output of the same run is released: a
//! template that fails sends none, and one that runs again for shorter texts sends each once.

use minijinja::{
    Environment, Error, ErrorKind, State,
    value::{Kwargs, Value as Printed, ValueKind},
};
use serde_json::{Map, Number, Value};

use crate::{
    event::{FIELD_CHARS_MAX, Severity, cut_text},
    notification::{Category, Level, TemplateNotice, WORDS_MAX, link},
    pipeline::{
        render::{
            ROWS_MAX,
            assemble::placeholders::{OPEN, Placeholder, Placeholders},
            table::{
                Column, Origin, Table,
                rows::{RowView, list_text},
            },
        },
        sandbox::{
            OwnText,
            account::{NESTING_MAX, account, admit_text, weigh},
        },
    },
    words::Words,
};

/// The filter by which an absent value prints nothing, as in the text of one event.
pub const OPTIONAL: &str = "optional";
/// The names of the filters.
pub(super) const NAMES: [&str; 6] = ["toon", "toon_key", "toon_row", "tojson", "tail", OPTIONAL];

/// Adds the filters to `environment`.
pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("toon", toon);
    environment.add_filter("toon_key", toon_key);
    environment.add_filter("toon_row", toon_row);
    environment.add_filter("tojson", tojson);
    environment.add_filter("tail", tail);
    environment.add_filter(OPTIONAL, optional);
}

/// The detail of the error that ends a render with too large an output.
pub(super) const TOO_MUCH: &str = "the output is larger than a notification may be";
/// Stores a printed value and returns its placeholder.
pub(super) fn keep(state: &mut State<'_, '_>, placeholder: Placeholder) -> Result<String, Error> {
    let placeholders = state.get_or_insert_extension_with(Placeholders::default);
    placeholders.push(placeholder).map_err(|_| Error::new(ErrorKind::WriteFailure, TOO_MUCH))
}

/// Counts a text that is printed without a placeholder.
pub(super) fn note_printed(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    let placeholders = state.get_or_insert_extension_with(Placeholders::default);
    placeholders.count(bytes).map_err(|_| Error::new(ErrorKind::WriteFailure, TOO_MUCH))
}

fn kept(state: &mut State<'_, '_>, placeholder: Placeholder) -> Result<Printed, Error> {
    keep(state, placeholder).map(Printed::from_safe_string)
}

/// Encodes a whole value: `toon`, `toon(key=..)`,
/// `toon(key=.., columns=.., repeats=.., indent=..)`; `indent` in spaces.
///
/// With a key, rows are encoded directly, also after sorting, selecting or slicing, and at most as
/// many as a notification shows.
fn toon(state: &mut State<'_, '_>, value: &Printed, options: Kwargs) -> Result<Printed, Error> {
    let key: Option<String> = options.get("key")?;
    let columns: Option<Printed> = options.get("columns")?;
    let repeats: bool = options.get::<Option<bool>>("repeats")?.unwrap_or(true);
    let indent: usize = options.get::<Option<usize>>("indent")?.unwrap_or(0);
    options.assert_all_used()?;
    let columns = columns.map(|columns| picked_columns(&columns)).transpose()?;
    account(state)?.spend(1 + value.len().unwrap_or(0) as u64)?;
    if let Some(key) = &key
        && let Some((rows, places)) = RowView::selection(value)
    {
        let [places, left_out] = rows.cut(places, ROWS_MAX);
        let table = Table { key: key.clone(), columns, repeats };
        let written = table.write(&rows, &places).map_err(invalid)?;
        account(state)?.spend_text(written.text.len())?;
        let placeholders = state.get_or_insert_extension_with(Placeholders::default);
        placeholders.left_out += rows.occurrences(&left_out);
        placeholders.absent.extend(written.absent);
        let root_key = (indent == 0 && written.shows_repeats).then_some(table.key);
        return kept(state, Placeholder::Block(indented(written.text, indent)?, root_key));
    }
    if columns.is_none() && key.is_none() && is_scalar(value) {
        let scalar = to_scalar(state, value)?;
        return kept(state, Placeholder::Scalar(scalar));
    }
    let json = match (columns, value.downcast_object_ref::<RowView>()) {
        (Some(columns), Some(row)) => {
            let cell =
                |column: &Column| (column.name.clone(), row.rows.first(row.at, &column.from).to_json());
            columns.iter().map(cell).collect()
        }
        (Some(columns), None) => pick(whole_json(state, value)?, &columns)?,
        (None, _) => whole_json(state, value)?,
    };
    let text = key.map_or_else(|| toon::encode(&json), |key| toon::encode_field(&key, &json));
    kept(state, Placeholder::Block(indented(text, indent)?, None))
}

/// Encodes a scalar as a key.
fn toon_key(state: &mut State<'_, '_>, value: &Printed) -> Result<Printed, Error> {
    let text = Placeholder::Scalar(to_scalar(state, value)?).text();
    let mut key = String::new();
    toon::write_key(&mut key, &text);
    kept(state, Placeholder::Key(key))
}

/// Encodes a list of scalars as the cells of one row.
fn toon_row(state: &mut State<'_, '_>, value: &Printed) -> Result<Printed, Error> {
    if !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return Err(invalid(format!("toon_row takes a list of cells, not {}", value.kind())));
    }
    weigh(&*account(state)?, value)?;
    let mut cells = String::new();
    for (index, cell) in value.try_iter()?.enumerate() {
        if index > 0 {
            cells.push(',');
        }
        toon::write_scalar(&mut cells, &to_scalar(state, &cell)?);
    }
    kept(state, Placeholder::Cells(cells))
}

/// The compact JSON text of a value, as a string like any other.
fn tojson(state: &mut State<'_, '_>, value: &Printed) -> Result<String, Error> {
    let text = whole_json(state, value)?.to_string();
    admit_text(&*account(state)?, text.len())?;
    Ok(text)
}

/// Keeps the last `chars_max` characters of a text, after a mark with the number of removed ones.
fn tail(state: &mut State<'_, '_>, value: &Printed, chars_max: usize) -> Result<String, Error> {
    weigh(&*account(state)?, value)?;
    let text = Placeholder::Scalar(to_scalar(state, value)?).text();
    let missing = text.chars().count().saturating_sub(chars_max);
    if missing == 0 {
        return Ok(text);
    }
    Ok(format!("[+{missing} chars] \u{2026}{}", text.chars().skip(missing).collect::<String>()))
}

/// A value as the text of one event prints it: nothing for an absent one, null or an empty text; a
/// list or map as the text of a cell.
pub(super) fn optional(state: &mut State<'_, '_>, value: &Printed) -> Result<Printed, Error> {
    if value.is_undefined() || value.is_none() || value.as_str().is_some_and(str::is_empty) {
        return kept(state, Placeholder::Nothing);
    }
    let is_own = value.downcast_object_ref::<OwnText>().is_some();
    if is_own || !matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable | ValueKind::Map) {
        return Ok(value.clone());
    }
    let text = match whole_json(state, value)? {
        Value::Array(items) => list_text(&items),
        other @ (Value::Object(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_)) => {
            other.to_string()
        }
    };
    Ok(cut_text(text.into(), FIELD_CHARS_MAX).into_owned().into())
}

/// Reads the argument `columns=`.
///
/// Errors: another type; a repeated name; no column.
fn picked_columns(columns: &Printed) -> Result<Vec<Column>, Error> {
    let wrong =
        || invalid("columns= takes a list of names, or a map of names to names or lists of names".into());
    let origin = |value: &Printed| value.as_str().map(Origin::named).ok_or_else(wrong);
    let mut picked: Vec<Column> = Vec::new();
    for key in columns.try_iter()? {
        let name = key.as_str().ok_or_else(wrong)?.to_owned();
        let source = if columns.kind() == ValueKind::Map { columns.get_item(&key)? } else { key };
        if picked.iter().any(|column| column.name == name) {
            return Err(invalid(format!("columns= names `{name}` twice")));
        }
        let from = if source.kind() == ValueKind::Seq {
            source.try_iter()?.map(|name| origin(&name)).collect::<Result<_, _>>()?
        } else {
            vec![origin(&source)?]
        };
        picked.push(Column { name, from });
    }
    if picked.is_empty() { Err(invalid("columns= names no column".into())) } else { Ok(picked) }
}

fn pick(value: Value, columns: &[Column]) -> Result<Value, Error> {
    let first = |fields: &Map<String, Value>, from: &[Origin]| {
        from.iter()
            .filter_map(|origin| fields.get(origin.name()))
            .find(|value| !value.is_null())
            .cloned()
            .unwrap_or(Value::Null)
    };
    let picked = |fields: &Map<String, Value>| -> Value {
        columns.iter().map(|column| (column.name.clone(), first(fields, &column.from))).collect()
    };
    match value {
        Value::Object(fields) => Ok(picked(&fields)),
        Value::Array(items) if items.iter().all(Value::is_object) => {
            let mut items: Vec<Value> = items.iter().filter_map(Value::as_object).map(picked).collect();
            let is_null = |name: &str| items.iter().all(|item| item.get(name).is_none_or(Value::is_null));
            let empty: Vec<&str> =
                columns.iter().map(|column| column.name.as_str()).filter(|name| is_null(name)).collect();
            if empty.len() == columns.len() && !items.is_empty() {
                return Err(invalid(format!("no item has a column `{}`", empty.join("`, `"))));
            }
            for item in items.iter_mut().filter_map(Value::as_object_mut) {
                item.retain(|name, _| !empty.contains(&name.as_str()));
            }
            Ok(items.into())
        }
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
            Err(invalid("columns= needs a map or a list of maps".into()))
        }
    }
}

fn indented(text: String, spaces: usize) -> Result<String, Error> {
    match spaces {
        0 => Ok(text),
        spaces if spaces % toon::INDENT == 0 && spaces <= NESTING_MAX * toon::INDENT => {
            let indent = " ".repeat(spaces);
            Ok(text.lines().map(|line| format!("{indent}{line}")).collect::<Vec<_>>().join("\n"))
        }
        _ => {
            let most = NESTING_MAX * toon::INDENT;
            Err(invalid(format!("indent= takes a multiple of {} spaces, at most {most}", toon::INDENT)))
        }
    }
}

fn is_scalar(value: &Printed) -> bool {
    matches!(value.kind(), ValueKind::None | ValueKind::Bool | ValueKind::Number | ValueKind::String)
}

/// A value for one cell.
///
/// Errors: a list or a map, naming the filters that accept one; an undefined value.
pub(super) fn to_scalar(state: &State<'_, '_>, value: &Printed) -> Result<Value, Error> {
    let kind = value.kind();
    if kind == ValueKind::Undefined {
        return Err(Error::from(ErrorKind::UndefinedError));
    }
    if let Some(text) = value.as_str() {
        return Ok(expanded(state, text)?.into());
    }
    if kind == ValueKind::Number {
        return number(value);
    }
    if is_scalar(value) {
        return Ok(if kind == ValueKind::Bool { value.is_true().into() } else { Value::Null });
    }
    Err(invalid(format!(
        "a value of type {kind} cannot be in a cell: use `|toon(key=\"name\")` on a line of its own, or `|toon_row` for the \
         cells of a row"
    )))
}

/// A text with the values in place of its placeholders; any other value as it is.
pub(super) fn expanded_value(state: &State<'_, '_>, value: &Printed) -> Result<Printed, Error> {
    match value.as_str().filter(|text| text.contains(OPEN)) {
        Some(text) => expanded(state, text).map(Printed::from),
        None => Ok(value.clone()),
    }
}

fn expanded(state: &State<'_, '_>, text: &str) -> Result<String, Error> {
    if !text.contains(OPEN) {
        return Ok(text.to_owned());
    }
    match state.get_extension::<Placeholders>() {
        Some(placeholders) => {
            placeholders.expand(text).map_err(|_| Error::new(ErrorKind::WriteFailure, TOO_MUCH))
        }
        None => Ok(text.to_owned()),
    }
}

fn number(value: &Printed) -> Result<Value, Error> {
    if let Some(integer) = value.as_i64() {
        return Ok(integer.into());
    }
    if let Ok(integer) = u64::try_from(value.clone()) {
        return Ok(integer.into());
    }
    if value.is_integer() {
        return Ok(value.to_string().into());
    }
    let float = f64::try_from(value.clone())?;
    Ok(Number::from_f64(float).map_or(Value::Null, Value::Number))
}

/// The whole value as JSON, after paying for it.
fn whole_json(state: &mut State<'_, '_>, value: &Printed) -> Result<Value, Error> {
    weigh(&*account(state)?, value)?;
    to_json(state, value, 0)
}

fn to_json(state: &State<'_, '_>, value: &Printed, depth: usize) -> Result<Value, Error> {
    if depth > NESTING_MAX {
        return Err(invalid(format!("a value nested deeper than {NESTING_MAX} levels cannot be written")));
    }
    if value.kind() == ValueKind::Map {
        let mut fields = Map::new();
        for key in value.try_iter()? {
            let name = Placeholder::Scalar(to_scalar(state, &key)?).text();
            fields.insert(name, to_json(state, &value.get_item(&key)?, depth + 1)?);
        }
        return Ok(Value::Object(fields));
    }
    if matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable) {
        return value.try_iter()?.map(|item| to_json(state, &item, depth + 1)).collect();
    }
    to_scalar(state, value)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidOperation, message)
}

/// The name of the function.
pub(super) const NAME: &str = "notify";

/// Adds the function to `environment`.
pub(super) fn add_notify(environment: &mut Environment<'static>) {
    environment.add_function(NAME, notify);
}

/// The notices of one run.
#[derive(Debug, Default)]
pub(super) struct Notices {
    /// At most [`WORDS_MAX`].
    words: Vec<TemplateNotice>,
    /// Number of further notices.
    more: u64,
}

impl Notices {
    fn say(&mut self, word: TemplateNotice) {
        if self.words.len() < WORDS_MAX {
            self.words.push(word);
        } else {
            self.more += 1;
        }
    }

    /// The notices; the last one also has the number of further ones.
    pub(super) fn words(mut self) -> Vec<TemplateNotice> {
        if let Some(last) = self.words.last_mut().filter(|_| self.more > 0) {
            last.message.push_str(&format!(" [and {} more]", self.more));
        }
        self.words
    }
}

/// Adds a notice.
///
/// Shape: returns an empty text, which adds no cell and no line. An absent or null option is
/// ignored, and so is an invalid link. Errors: a blank text, an unknown option, level or category.
fn notify(state: &mut State<'_, '_>, text: &Printed, options: Kwargs) -> Result<Printed, Error> {
    let account = account(state)?;
    weigh(&account, text)?;
    let (level, category, link) = (options.get("level")?, options.get("category")?, options.get("link")?);
    options.assert_all_used()?;
    let message = Placeholder::Scalar(to_scalar(state, text)?).text();
    if message.trim().is_empty() {
        return Err(invalid("notify() has an empty text".to_owned()));
    }
    let option = |value: Option<Printed>| -> Result<Option<String>, Error> {
        let is_there = |value: &Printed| !value.is_none() && !value.is_undefined();
        let Some(value) = value.filter(is_there) else { return Ok(None) };
        weigh(&account, &value)?;
        Ok(Some(Placeholder::Scalar(to_scalar(state, &value)?).text()))
    };
    let word = TemplateNotice {
        message,
        level: option(level)?.map_or(Ok(Level::default()), |word| read_level(&word))?,
        category: option(category)?.map(|word| read_category(&word)).transpose()?,
        // The link may be from an event, whose producer must control nothing but the text.
        link: option(link)?.filter(|link| link::check(link).is_ok()),
    };
    state.get_or_insert_extension_with(Notices::default).say(word);
    Ok(Printed::from_safe_string(String::new()))
}

/// A level, or the severity of an event.
fn read_level(word: &str) -> Result<Level, Error> {
    let severity = || word.parse::<Severity>().ok().map(Level::of);
    Level::of_word(word)
        .or_else(severity)
        .ok_or_else(|| invalid(format!("level= is one of {}, or a severity, not `{word}`", Level::list())))
}

fn read_category(word: &str) -> Result<Category, Error> {
    Category::of_word(word)
        .ok_or_else(|| invalid(format!("category= is one of {}, not `{word}`", Category::list())))
}
