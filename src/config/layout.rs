//! `template`, `one`, `many`, `table` and `sentence` of `[output]`: the text of a subscriber's notifications.

use std::sync::Arc;

use engine::{
    nearest::nearest,
    notification::SubscriberId,
    pipeline::render::{
        self, BatchText, Column, Declared, EVENT_COLUMNS, EventText, Layout, Libraries, Sentence, Several,
        Table, TemplateError, Templates,
    },
    settings::{Key, keys},
    sorted::{SortedMap, SortedSet},
};

use crate::config::{
    layers::{LayerKind, SourceFile},
    raw::{Parsed, Section, Value},
    report::{Diagnostic, Place, sentence, shown},
    values,
};

/// The suffix of template names.
pub(crate) const TEMPLATE_SUFFIX: &str = ".toon.j2";

/// What a `template` can name.
pub(crate) struct KnownTemplates<'a> {
    /// The templates that compile.
    pub(crate) compiled: &'a Templates,
    /// The names of all templates, including those that do not compile.
    pub(crate) names: SortedSet<&'a str>,
    /// The layers with a template of a name that compiles.
    pub(crate) layers: SortedMap<&'a str, Vec<LayerKind>>,
    /// The templates of the workspace whose files are read, by name: the names under which they are
    /// compiled, so that those of two folders differ.
    pub(crate) of_workspace: SortedMap<&'a str, &'a str>,
    /// The libraries that texts can take macros from.
    pub(crate) libraries: &'a Libraries,
    /// The texts of the shipped subscribers. The name of such a template stays valid however its
    /// subscriber declares the text.
    pub(crate) shipped: SortedMap<SubscriberId, Layout>,
}

impl<'a> KnownTemplates<'a> {
    /// The same for the files of a workspace, which has these templates of its own.
    pub(super) fn with_own(
        &self,
        of_workspace: SortedMap<&'a str, &'a str>,
        libraries: &'a Libraries,
    ) -> Self {
        let (mut names, mut layers) = (self.names.clone(), self.layers.clone());
        for (name, compiled) in &of_workspace {
            names.insert(*name);
            if self.compiled.contains(compiled) {
                layers.get_or_default(*name).push(LayerKind::Workspace);
            }
        }
        let (compiled, shipped) = (self.compiled, self.shipped.clone());
        Self { compiled, names, layers, of_workspace, libraries, shipped }
    }

    /// The name under which the template of this name is compiled.
    fn compiled_name<'n>(&self, name: &'n str) -> &'n str
    where
        'a: 'n,
    {
        self.of_workspace.get(name).copied().unwrap_or(name)
    }

    /// The text of this name: a template of any layer, else the text of the shipped subscriber.
    fn text(&self, name: &str) -> Option<Layout> {
        let compiled = self.compiled_name(name);
        if self.compiled.contains(compiled) {
            return Some(Layout::Template(compiled.into()));
        }
        let id = SubscriberId::new(name.strip_suffix(TEMPLATE_SUFFIX)?);
        self.shipped.get(&id).cloned()
    }
}

/// The places of what a subscriber's file declares for the text of its notifications.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeclaredPlaces {
    /// The text of one event, and its place.
    pub one: Option<(Place, Arc<str>)>,
    /// The text of several events, and its place.
    pub many: Option<(Place, Arc<str>)>,
    /// The table.
    pub table: Option<Place>,
    /// The columns of the table that are named in the file.
    pub columns: SortedMap<String, Place>,
    /// The words for a person, and their place.
    pub sentence: Option<(Place, Arc<str>)>,
    /// Where the latest file chooses the text of another file: its `template`, else its id.
    pub chosen: Option<Place>,
}

impl DeclaredPlaces {
    /// The place of the declared text; `None` if the text is that of a template or of another
    /// subscriber.
    pub(crate) fn text(&self) -> Option<&Place> {
        let texts = [&self.one, &self.many].into_iter().flatten().map(|(place, _)| place);
        texts.chain(&self.table).next()
    }

    /// The template that writes a batch of `count` events, and its place; `None` for a table.
    pub(crate) fn template_for(&self, count: usize) -> Option<&(Place, Arc<str>)> {
        self.one.as_ref().filter(|_| count == 1).or(self.many.as_ref())
    }
}

/// The text that a subscriber's files define, and the layer of the file that does.
#[derive(Debug, Clone)]
pub(super) struct OwnText {
    pub(super) layout: Layout,
    pub(super) layer: LayerKind,
}

impl OwnText {
    /// The text in force with its layer: a template named like the subscriber in a later layer, up
    /// to the one before `end`, else its own.
    pub(super) fn in_force(
        &self,
        id: &SubscriberId,
        templates: &KnownTemplates<'_>,
        end: Option<LayerKind>,
    ) -> (Layout, LayerKind) {
        let name = template_name(id.as_str());
        let layers = templates.layers.get(name.as_str()).into_iter().flatten();
        let later = layers.filter(|layer| **layer > self.layer && end.is_none_or(|end| **layer < end));
        match later.max() {
            Some(layer) => (Layout::Template(templates.compiled_name(&name).into()), *layer),
            None => (self.layout.clone(), self.layer),
        }
    }
}

/// The layout in force and the file's own, the words for a person, and the places of what the file
/// declares.
pub(super) struct LayoutRule {
    pub(super) layout: Layout,
    pub(super) own: OwnText,
    pub(super) words: Option<Arc<Sentence>>,
    pub(super) places: DeclaredPlaces,
}

impl LayoutRule {
    fn new(
        id: Option<&SubscriberId>,
        own: OwnText,
        words: Option<Arc<Sentence>>,
        places: DeclaredPlaces,
        templates: &KnownTemplates<'_>,
    ) -> Self {
        let in_force = id.map(|id| own.in_force(id, templates, None).0);
        Self { layout: in_force.unwrap_or_else(|| own.layout.clone()), own, words, places }
    }
}

/// The keys that declare a text, which a template replaces; the last two replace each other.
const DECLARED: [&str; 3] = ["one", "many", "table"];

/// Removes the text that a later file replaces by one of another kind.
fn settle(section: &mut Section<'_>) {
    for [key, other] in [["many", "table"], ["table", "many"]] {
        if let Some(layer) = section.value(key).map(|value| value.file().layer) {
            section.remove_below(&[other], layer);
        }
    }
    let layer = |key| section.value(key).map(|value| value.file().layer);
    let (template, declared) = (layer("template"), DECLARED.into_iter().filter_map(layer).max());
    if let Some(template) = template {
        section.remove_below(&DECLARED, template);
    }
    if let Some(declared) = declared {
        section.remove_below(&["template"], declared);
    }
}

/// Reads all four from a whole file and the last one that inherits from it; mistakes are added to
/// `section`, and the layout is then the generic one.
pub(super) fn read(
    section: &mut Section<'_>,
    id: Option<&SubscriberId>,
    [whole, file]: [&SourceFile; 2],
    templates: &KnownTemplates<'_>,
) -> LayoutRule {
    settle(section);
    let texts = ["template"].into_iter().chain(DECLARED).filter_map(|key| section.value(key));
    let layer = texts.map(|value| value.file().layer).max().unwrap_or(whole.layer);
    let template = section.read("template", |value| read_template(value, templates));
    let libraries = templates.libraries;
    let one = section.read("one", |value| read_one(value, libraries));
    let many = section.read("many", |value| read_many(value, libraries));
    let table = section.read("table", read_table);
    let words = section.read("sentence", |value| read_sentence(value, libraries)).map(Arc::new);
    let text = |value: &Value<'_>| Some((value.place(), value.get().as_str()?.into()));
    let places = DeclaredPlaces {
        one: section.value("one").and_then(text),
        many: section.value("many").and_then(text),
        table: section.value("table").map(Value::place),
        columns: table.as_ref().map(|table| table.places.clone()).unwrap_or_default(),
        sentence: section.value("sentence").and_then(text),
        chosen: section.value("template").map(Value::place).filter(|place| place.file == file.path),
    };
    if section.value("many").is_some() {
        section.object("table", |value| {
            value
                .error("`many` and `table` both define the text of several events")
                .with_note("keep one of them: `many` can do everything that `table` does")
        });
    }
    let declared = DECLARED.into_iter().find(|key| section.value(key).is_some());
    if let Some(declared) = declared {
        section.object("template", |value| {
            let message = format!("`template` and `{declared}` both define the text of a notification");
            value
                .error(message)
                .with_note(format!("keep one of them: a template can do everything that `{declared}` does"))
        });
        let table = table.map(|table| Several::Table(table.table));
        let layout = Layout::Declared(Arc::new(Declared::new(one, many.map(Several::Text).or(table))));
        return LayoutRule::new(id, OwnText { layout, layer }, words, places, templates);
    }
    let layout = template.unwrap_or_else(|| own_text(id, templates));
    LayoutRule::new(id, OwnText { layout, layer }, words, places, templates)
}

/// The lines of one event.
fn read_one(value: &Value<'_>, libraries: &Libraries) -> Parsed<EventText> {
    values::source(value, EventText::deferred, |source| {
        EventText::compile(source, libraries).map_err(|error| vec![unusable(value, "one", source, &error)])
    })
}

/// The text of several events.
fn read_many(value: &Value<'_>, libraries: &Libraries) -> Parsed<BatchText> {
    values::source(value, BatchText::deferred, |source| {
        BatchText::compile(source, libraries).map_err(|error| vec![unusable(value, "many", source, &error)])
    })
}

/// Most bytes of `sentence`; its output is one line of which a client shows about 100 characters.
const SENTENCE_BYTES_MAX: usize = 1_000;

/// The words for a person about one event.
fn read_sentence(value: &Value<'_>, libraries: &Libraries) -> Parsed<Sentence> {
    values::source(value, Sentence::deferred, |source| {
        if source.len() > SENTENCE_BYTES_MAX {
            let message =
                format!("`sentence` has at most {SENTENCE_BYTES_MAX} bytes, this one has {}", source.len());
            return Err(vec![value.error(message)]);
        }
        Sentence::compile(source, libraries)
            .map_err(|error| vec![unusable(value, "sentence", source, &error)])
    })
}

/// A template in a subscriber's file that does not compile.
fn unusable(value: &Value<'_>, key: &str, source: &str, error: &TemplateError) -> Diagnostic {
    let mut wrong = value.error(format!("`{key}` cannot be used: {}", sentence(&error.message)));
    let place = value.place();
    wrong.place = match error.range.clone() {
        Some(range) => place.within(source, range),
        None => place.line_within(source, error.line),
    };
    wrong
}

/// The keys of `[output]` that define the text; they are read together.
pub(super) fn keys() -> Vec<Key> {
    keys! {
        /// The text of a notification: `templates/x.toon.j2`, `x.toon.j2` or `x`; `"generic"` for the
        /// generic table. It cannot be used together with `one`, `many` or `table`.
        template: String, line(),
            else "without `one`, `many` and `table` the one named like the id, else the generic table";
        /// The text of one event, see [what it says](templates.md#what-a-notification-says).
        one: String, template();
        /// The text of several events, with the variables of a template; also of one event if there
        /// is no `one`. It cannot be used together with `table`.
        many: String, template();
        /// The table of several events, see [what it says](templates.md#what-a-notification-says).
        table: (), table(keys! {
            /// The key above the rows.
            key: String, required_line();
            /// The columns: names, or a table from names to what each column shows.
            columns: (), columns();
            /// Adds a column with the number of repeats if an event repeated.
            repeats: bool = true, flag();
        });
        /// Words for a person about one event, in at most 1,000 bytes of Jinja, see
        /// [a sentence](templates.md#a-sentence-for-a-person).
        sentence: String, template(), else "the first values of the text";
    }
}

struct PlacedTable {
    table: Table,
    places: SortedMap<String, Place>,
}

fn read_table(value: &Value<'_>) -> Parsed<PlacedTable> {
    let Some(mut section) = value.section() else { return Err(value.wrong_kind("a table")) };
    let key = section.require("key", |value| values::words(value).map(str::to_owned));
    let columns = section.read("columns", read_columns);
    let repeats = section.read("repeats", values::flag).unwrap_or(true);
    let found = section.finish();
    let (Some(key), true) = (key, found.is_empty()) else { return Err(found) };
    let places = columns.iter().flatten().map(|(column, place)| (column.name().to_owned(), place.clone()));
    let places = places.collect();
    let columns = columns.map(|columns| columns.into_iter().map(|(column, _)| column).collect());
    let table = Table::new(key, columns);
    Ok(PlacedTable { table: if repeats { table } else { table.without_repeats() }, places })
}

/// The columns in the order of the file, each with its place. Two forms: a list of names, or a
/// table from names to values.
fn read_columns(value: &Value<'_>) -> Parsed<Vec<(Column, Place)>> {
    let columns = match (value.entries(), value.items()) {
        (Some(entries), _) => {
            entries.iter().map(|(name, value)| read_column(name, value)).collect::<Vec<_>>()
        }
        (None, Some(items)) => {
            let mut columns: Vec<Parsed<(Column, Place)>> = Vec::new();
            for item in items {
                let column = shown_field(&item).map(|name| (Column::new(name, [name]), item.place()));
                let is_double = |other: &(Column, Place)| {
                    column.as_ref().is_ok_and(|(column, _)| column.name() == other.0.name())
                };
                if columns.iter().flatten().any(is_double) {
                    let message =
                        format!("there are two columns `{}`", item.get().as_str().unwrap_or_default());
                    columns.push(Err(vec![item.error(message)]));
                } else {
                    columns.push(column);
                }
            }
            columns
        }
        (None, None) => {
            let expected = "a list of names, or a table of names and what each shows";
            return Err(value.wrong_kind(expected));
        }
    };
    if columns.is_empty() {
        return Err(vec![
            value.error("`columns` names no column").with_note("without `columns` all are shown"),
        ]);
    }
    let (good, wrong): (Vec<_>, Vec<_>) = columns.into_iter().partition(Result::is_ok);
    let wrong: Vec<Diagnostic> = wrong.into_iter().filter_map(Result::err).flatten().collect();
    if wrong.is_empty() { Ok(good.into_iter().flatten().collect()) } else { Err(wrong) }
}

fn read_column(name: &str, value: &Value<'_>) -> Parsed<(Column, Place)> {
    if name.trim().is_empty() {
        return Err(vec![value.key_error("the name of a column is empty")]);
    }
    let from = match value.items() {
        Some(_) => values::list(value, shown_field)?,
        None => vec![shown_field(value)?],
    };
    if from.is_empty() {
        return Err(vec![value.error(format!("the column `{}` shows nothing", shown(name)))]);
    }
    Ok((Column::new(name, from), value.key_place()))
}

/// What a column shows: a field of the payload, or one of the event, which begins with `@`.
fn shown_field<'s>(value: &Value<'s>) -> Parsed<&'s str> {
    let name = values::words(value)?;
    if name.starts_with('@') && !EVENT_COLUMNS.contains(&name) {
        let wrong = value.error(format!("an event has no `{}`", shown(name)));
        return Err(vec![wrong.with_allowed(name, &EVENT_COLUMNS)]);
    }
    Ok(name)
}

/// A template by its path, its file name, or its file name without the ending.
fn read_template(value: &Value<'_>, templates: &KnownTemplates<'_>) -> Parsed<Layout> {
    let found = values::words(value)?;
    if found.contains('\n') || found.contains("{{") || found.contains("{%") {
        let wrong = value.error("`template` is the name of a file, and this is a text");
        return Err(vec![wrong.with_note("use `many` for a text of several events, `one` for that of one")]);
    }
    if found == render::GENERIC {
        return Ok(Layout::generic());
    }
    if found.contains(['\n', '{']) {
        let place = value.place();
        let place = place.first_of(&["\"\"\"", "'''"]).unwrap_or(place);
        let note = "write the text of one event as `one` and that of several as [output.table], or the text of \
                    both into a file templates/ID.toon.j2";
        let wrong = value.error("`template` names a file, and this is a text");
        return Err(vec![Diagnostic { place, ..wrong }.with_note(note)]);
    }
    let name = template_name(found);
    if templates.names.contains(name.as_str()) {
        // One that does not compile has its own error; the file that names it is left out without a
        // second one.
        return Ok(Layout::Template(templates.compiled_name(&name).into()));
    }
    if let Some(text) = templates.text(&name) {
        return Ok(text);
    }
    let shipped = templates.shipped.keys().map(|id| template_name(id.as_str())).collect::<Vec<_>>();
    let known = templates.names.iter().copied().chain(shipped.iter().map(String::as_str));
    let meant = nearest(&name, known);
    let note = "a template is a file below templates/ of any layer, or ID.toon.j2 for the text of the shipped \
                subscriber ID; \"generic\" is the table without one";
    Err(vec![value.error(format!("unknown template `{}`", shown(&name))).with_nearest(meant).with_note(note)])
}

fn template_name(found: &str) -> String {
    let name = found.strip_prefix("templates/").unwrap_or(found);
    let suffix = if name.ends_with(TEMPLATE_SUFFIX) { "" } else { TEMPLATE_SUFFIX };
    format!("{name}{suffix}")
}

/// The text of the subscriber's own name, else the generic table.
fn own_text(id: Option<&SubscriberId>, templates: &KnownTemplates<'_>) -> Layout {
    let own = id.and_then(|id| templates.text(&template_name(id.as_str())));
    own.unwrap_or_else(Layout::generic)
}

#[cfg(test)]
mod tests {
    use crate::config::{
        compile::compile,
        layers::{LayerKind, SourceFile, Sources},
    };

    #[test]
    fn a_text_is_defined_once() {
        for (output, place, part) in [
            ("many = 'a: {{ count }}'", "", ""),
            ("one = 'a: 1'\nmany = 'a: {{ count }}'", "", ""),
            ("many = 'a: 1'\ntable = { key = 'a' }", "5:9", "`many` and `table` both define"),
            ("many = 'a: 1'\ntemplate = 'generic'", "5:12", "`template` and `many` both define"),
            ("many = 'a: {{ cout }}'", "4:15", "`many` cannot be used: unknown variable `cout`"),
            ("many = '''\na: 1\nb: {{ cout }}'''", "6:7", "did you mean `count`"),
            ("template = '''\na: {{ count }}\n'''", "4:12", "use `many` for a text of several events"),
            ("template = 'a: {{ count }}'", "4:12", "use `many`"),
        ] {
            let file = SourceFile {
                layer: LayerKind::User,
                name: "subscribers/a.toml".into(),
                path: "a.toml".into(),
                text: format!("subscriber.id = 'a'\nevents.types = ['a.b']\n[output]\n{output}\n").into(),
            };
            let report = compile(&Sources::shipped().with([file], []), &[]).report;
            let places: Vec<_> = report.diagnostics().iter().map(|found| found.place.to_string()).collect();
            let expected: Vec<_> =
                (!place.is_empty()).then(|| format!("a.toml:{place}")).into_iter().collect();
            assert_eq!(places, expected, "{output}: {report}");
            assert!(report.to_string().contains(part), "{output}: {report}");
        }
    }
}
