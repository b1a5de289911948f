//! The description of a key of a file, as a row of `settings!` declares it: its name, its text for
//! users, the shape of its value, its default.
//!
//! For each reader of a key there is a function of the same name, which receives the default and the
//! reader's limits. Nothing here is used while the program runs: files and documents are generated
//! from it, and a test compares them.

use std::{fmt::Display, ops::RangeInclusive, time::Duration};

use crate::words::Words;

/// An invalid word of a command: its index, and what is wrong with it.
pub type WrongWord = (usize, String);
/// Converts the words of a command.
pub type ReadWords<T> = fn(&[&str]) -> Result<T, WrongWord>;

/// A key of a table.
#[derive(Debug, Clone)]
pub struct Key {
    /// Its name in the file.
    pub name: &'static str,
    /// The lines of its description, in Markdown; each begins with a space.
    pub doc: &'static [&'static str],
    /// The shape of its value.
    pub shape: Shape,
    /// Its default, as TOML.
    pub default: Option<String>,
    /// A value of a key without a default, as TOML.
    pub example: Option<&'static str>,
    /// The effect of a key without a default, while it is absent.
    pub without: Option<&'static str>,
    /// Whether the key has to be there.
    pub is_required: bool,
}

/// The keys of a table.
#[derive(Debug, Clone)]
pub struct Table {
    /// The lines of its description; each begins with a space. Empty if those of its keys suffice.
    pub about: &'static [&'static str],
    /// Its keys, in the order of the file.
    pub keys: Vec<Key>,
}

/// The shape of a value.
#[derive(Debug, Clone)]
pub enum Shape {
    /// `true` or `false`.
    Flag,
    /// An integer.
    Number(RangeInclusive<u64>),
    /// A number, which may have a fraction.
    Decimal,
    /// A number of bytes.
    Bytes(RangeInclusive<u64>),
    /// A duration with its unit.
    Duration(RangeInclusive<Duration>),
    /// One of these texts.
    Words(Vec<&'static str>),
    /// A text, which these words describe; empty for any text.
    Text(&'static str),
    /// A text of a known form, which these words describe.
    Form(TextForm, &'static str),
    /// A list of so many items.
    List(Box<Self>, RangeInclusive<usize>),
    /// A table from names to values.
    Map(Box<Self>),
    /// A table with these keys.
    Keys(Vec<Key>),
    /// At most so many tables with these keys, each under a name chosen by the user.
    Named(Vec<Key>, usize),
    /// A value of one of these shapes.
    Either(Vec<Self>),
}

/// The form of a text that a program can change in a sensible way, as the mutations of a subscriber
/// do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// Words for people, without an effect.
    Note,
    /// Text that begins with a number, such as a rate or a delay.
    Amount,
    /// Fields of events, joined by `:`.
    Fields,
    /// An expression.
    Condition,
    /// Jinja, in lines.
    Template,
}

/// Whether something is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Switch {
    /// `true`.
    On,
    /// `false`.
    Off,
    /// `"auto"`: on if it can work.
    Auto,
}

impl From<Switch> for bool {
    fn from(switch: Switch) -> Self {
        switch != Switch::Off
    }
}

/// The required form of a text.
#[derive(Debug)]
pub struct Form<T> {
    /// The noun for a valid text, with its article, such as `an amount of free space`.
    pub noun: &'static str,
    /// Describes a valid text.
    pub note: &'static str,
    /// Parses a text; `None` if it is invalid.
    pub parse: fn(&str) -> Option<T>,
}

impl Key {
    fn new(shape: Shape, default: Option<String>) -> Self {
        Self { name: "", doc: &[], shape, default, example: None, without: None, is_required: false }
    }

    fn described(text: &'static str) -> Self {
        Self::new(Shape::Text(text), None)
    }

    fn formed(form: TextForm, text: &'static str) -> Self {
        Self::new(Shape::Form(form, text), None)
    }

    fn or_off(self, is_off: bool) -> Self {
        let default = if is_off { Some(quoted("off")) } else { self.default };
        Self { shape: Shape::Either(vec![self.shape, Shape::Words(vec!["off"])]), default, ..self }
    }

    fn list(self, default: Option<Vec<String>>, counts: RangeInclusive<usize>) -> Self {
        let default = default.map(|items| format!("[{}]", items.join(", ")));
        Self { shape: Shape::List(Box::new(self.shape), counts), default, ..self }
    }
}

fn quoted(text: impl Display) -> String {
    format!("\"{text}\"")
}

fn all<T>(items: Option<Vec<T>>, text: impl Fn(T) -> String) -> Option<Vec<String>> {
    items.map(|items| items.into_iter().map(text).collect())
}

/// A duration with the largest unit that needs no fraction.
pub fn duration_text(time: Duration) -> String {
    const UNITS: [(u128, u128, &str); 4] =
        [(86_400_000, 2, "d"), (3_600_000, 1, "h"), (60_000, 1, "m"), (1_000, 1, "s")];
    let millis = time.as_millis();
    let fits = |&&(unit, least, _): &&(u128, u128, _)| millis.is_multiple_of(unit) && millis / unit >= least;
    match UNITS.iter().find(fits) {
        Some((unit, _, name)) => format!("{}{name}", millis / unit),
        None => format!("{millis}ms"),
    }
}

fn limits<T: Display>(range: &RangeInclusive<T>) -> RangeInclusive<u64> {
    let [start, end] = [range.start(), range.end()]
        .map(|limit| limit.to_string().parse().expect("the limits of a key are whole numbers"));
    start..=end
}

/// `true` or `false`.
pub fn flag(default: Option<bool>) -> Key {
    Key::new(Shape::Flag, default.map(|flag| flag.to_string()))
}

/// `true`, `false` or `"auto"`.
pub fn switch(default: Option<Switch>) -> Key {
    let literal = |switch| match switch {
        Switch::On => "true".to_owned(),
        Switch::Off => "false".to_owned(),
        Switch::Auto => quoted("auto"),
    };
    Key::new(Shape::Either(vec![Shape::Flag, Shape::Words(vec!["auto"])]), default.map(literal))
}

/// An integer.
pub fn number<T: Display>(default: Option<T>, range: RangeInclusive<T>) -> Key {
    Key::new(Shape::Number(limits(&range)), default.map(|number| number.to_string()))
}

/// An integer, or `"off"`.
pub fn number_or_off<T: Display>(default: Option<Option<T>>, range: RangeInclusive<T>) -> Key {
    let is_off = matches!(default, Some(None));
    number(default.flatten(), range).or_off(is_off)
}

/// A size in bytes.
pub fn bytes(default: Option<u64>, range: RangeInclusive<u64>) -> Key {
    Key::new(Shape::Bytes(range), default.map(|size| size.to_string()))
}

/// A size in bytes, or `"off"`.
pub fn bytes_or_off(default: Option<Option<u64>>, range: RangeInclusive<u64>) -> Key {
    bytes(default.flatten(), range).or_off(default == Some(None))
}

/// A duration.
pub fn duration(default: Option<Duration>, range: RangeInclusive<Duration>) -> Key {
    Key::new(Shape::Duration(range), default.map(|time| quoted(duration_text(time))))
}

/// A duration, or `"off"`.
pub fn duration_or_off(default: Option<Option<Duration>>, range: RangeInclusive<Duration>) -> Key {
    duration(default.flatten(), range).or_off(default == Some(None))
}

/// Durations.
pub fn durations(default: Option<Vec<Duration>>, range: RangeInclusive<Duration>, max: usize) -> Key {
    duration(None, range).list(all(default, |time| quoted(duration_text(time))), 0..=max)
}

/// A rate.
pub fn rate<T: Display>(default: Option<T>) -> Key {
    let shape =
        Shape::Form(TextForm::Amount, "a count of 1 to 10,000 and a unit of time, such as \"10/min\"");
    Key::new(shape, default.map(quoted))
}

/// A rate, or `"off"`.
pub fn rate_or_off<T: Display>(default: Option<Option<T>>) -> Key {
    let is_off = matches!(default, Some(None));
    rate(default.flatten()).or_off(is_off)
}

/// One of the words for the values of an enum.
pub fn word<T: Words>(default: Option<T>) -> Key {
    among(default, T::VARIANTS)
}

/// One of the words for some values of an enum.
pub fn among<T: Words>(default: Option<T>, values: &[T]) -> Key {
    let words = values.iter().map(|&value| value.into()).collect();
    Key::new(Shape::Words(words), default.map(|value| quoted(value.into())))
}

/// Words for the values of an enum, each at most once.
pub fn each_once<T: Words>(default: Option<Vec<T>>) -> Key {
    word::<T>(None).list(all(default, |value| quoted(value.into())), 0..=usize::MAX)
}

/// A severity; `warn` is `warning`.
pub fn severity<T: Words>(default: Option<T>) -> Key {
    let words = T::words().chain(["warn"]).collect();
    Key::new(Shape::Words(words), default.map(|value| quoted(value.into())))
}

/// A severity, or `"never"`.
pub fn severity_or_never<T: Words>(default: Option<Option<T>>) -> Key {
    let Key { shape, default, .. } = severity(default.flatten());
    Key::new(Shape::Either(vec![shape, Shape::Words(vec!["never"])]), default)
}

/// A text of a form.
pub fn text<T: Display>(default: Option<T>, form: &Form<T>) -> Key {
    Key::new(Shape::Text(form.noun), default.map(quoted))
}

/// Texts of a form.
pub fn texts<T: Display>(default: Option<Vec<T>>, form: &Form<T>, max: usize) -> Key {
    Key::described(form.noun).list(all(default, quoted), 0..=max)
}

/// Any text, for people.
pub fn any_text<T: Display>(default: Option<T>) -> Key {
    Key::new(Shape::Form(TextForm::Note, ""), default.map(quoted))
}

/// The text of a template, which is not empty.
pub fn template<T>(_: Option<T>) -> Key {
    Key::formed(TextForm::Template, "a text")
}

/// A text that is not empty.
pub fn line<T: Display>(default: Option<T>) -> Key {
    Key::new(Shape::Text("a text"), default.map(quoted))
}

/// Texts that are not empty.
pub fn lines<T: Display>(default: Option<Vec<T>>) -> Key {
    Key::described("a text").list(all(default, quoted), 0..=usize::MAX)
}

/// The words of a command.
pub fn argv<T>(_: Option<T>, _: ReadWords<T>) -> Key {
    Key::described("a program or an argument").list(None, 1..=usize::MAX)
}

/// Rising integers.
pub fn rising(default: Option<Vec<u8>>, range: RangeInclusive<u8>, max: usize, _: &str) -> Key {
    number(None, range).list(all(default, |number| number.to_string()), 1..=max)
}

/// A table from names to words.
pub fn by_name<K, V: Words>(default: Option<Vec<(K, V)>>, _: fn(&str) -> Result<K, String>) -> Key {
    let Key { shape, .. } = word::<V>(None);
    Key::new(Shape::Map(Box::new(shape)), default.map(|_| "{}".to_owned()))
}

/// A table from names to rates.
pub fn rates_by_name<K, V: Display>(default: Option<Vec<(K, V)>>) -> Key {
    let Key { shape, .. } = rate::<V>(None);
    Key::new(Shape::Map(Box::new(shape)), default.map(|_| "{}".to_owned()))
}

/// Defines the readers of texts without a default, by a description of the texts.
macro_rules! texts {
    ($($(#[$doc:meta])* $name:ident = $text:literal $($form:ident)?;)*) => {
        $($(#[$doc])* pub fn $name<T>(_: Option<T>) -> Key {
            texts!(@key $text $($form)?)
        })*
    };
    (@key $text:literal) => { Key::described($text) };
    (@key $text:literal $form:ident) => { Key::formed(TextForm::$form, $text) };
}

texts! {
    /// An absolute path.
    path = "an absolute path";
    /// The address of a server.
    url = "an address such as \"http://127.0.0.1:8080/path\"";
    /// The address of a server, which ends in a topic.
    topic = "an address such as \"http://127.0.0.1:8080/my-topic\"";
    /// An address and port of this machine.
    loopback = "an address with a port";
    /// A semantic version.
    version = "a version such as `\"1.0.0\"`" Note;
    /// An expression in the language of templates.
    condition = "a text" Condition;
}

impl Key {
    /// One such text, or a list of them.
    fn or_list(self, counts: RangeInclusive<usize>) -> Self {
        let list = Shape::List(Box::new(self.shape.clone()), counts);
        Self { shape: Shape::Either(vec![self.shape, list]), ..self }
    }
}

/// Hours of each day and days of the week.
pub fn hours<T>(_: Option<T>) -> Key {
    Key::described("hours such as \"22:00-07:00\", a day such as \"sat\"").or_list(1..=usize::MAX)
}

/// Delays, of which the first that is over counts.
pub fn delays<T>(_: Option<Vec<T>>, max: usize) -> Key {
    Key::formed(TextForm::Amount, "a delay such as \"3 turns\"").or_list(1..=max)
}

/// Local times of a day.
pub fn times_of_day<T>(_: Option<Vec<T>>, max: usize) -> Key {
    Key::described("a time such as \"09:00\"").list(None, 1..=max)
}

/// A text that a function reads.
pub fn parsed<T>(_: Option<T>, _: fn(&str) -> Result<T, String>) -> Key {
    Key::described("a text")
}

/// The same for a required key.
pub fn needed<T>(default: Option<T>, parse: fn(&str) -> Result<T, String>) -> Key {
    Key { is_required: true, ..parsed(default, parse) }
}

/// A required id of a subscriber.
pub fn id<T>(_: Option<T>) -> Key {
    Key { is_required: true, ..Key::described("1 to 64 of `a-z`, `0-9` and `_`") }
}

/// Patterns of event types.
pub fn patterns<T>(default: Option<Vec<T>>) -> Key {
    Key::described("a pattern").list(all(default, |_| String::new()), 0..=usize::MAX)
}

/// Required patterns of event types, at least one.
pub fn types<T>(_: Option<Vec<T>>) -> Key {
    Key { is_required: true, ..Key::described("a pattern").list(None, 1..=usize::MAX) }
}

/// Fields of events, joined by `:`.
pub fn fields<T>(default: Option<Vec<T>>) -> Key {
    let shape = Shape::Form(TextForm::Fields, "fields joined by `:`");
    Key::new(shape, default.map(|_| quoted("")))
}

/// Fields of events joined by `:`, or a table from fields to fields.
pub fn equal_fields<T>(default: Option<Vec<T>>) -> Key {
    let fields = fields(default);
    let table = Shape::Map(Box::new(Shape::Text("a field")));
    Key { shape: Shape::Either(vec![fields.shape, table]), ..fields }
}

/// The same for a required key.
pub fn required_equal_fields<T>(default: Option<Vec<T>>) -> Key {
    Key { is_required: true, ..equal_fields(default) }
}

/// Rules of inhibition.
pub fn inhibitions<T>(default: Option<Vec<T>>, max: usize, keys: Vec<Key>) -> Key {
    severities_when(default, max, keys)
}

/// A required duration of an absence.
pub fn absence_after(default: Option<Duration>, range: RangeInclusive<Duration>) -> Key {
    required_duration(default, range)
}

/// `true`, or a time.
pub fn retain<T>(_: Option<T>, range: RangeInclusive<Duration>) -> Key {
    Key::new(Shape::Either(vec![Shape::Flag, Shape::Duration(range)]), None)
}

/// Required waits, at least one.
pub fn repeat_waits<T>(_: Option<Vec<T>>, max: usize) -> Key {
    Key { is_required: true, ..Key::formed(TextForm::Amount, "turns or a time").list(None, 1..=max) }
}

/// Words for values of an enum.
pub fn word_list<T: Words>(default: Option<Vec<T>>, max: usize) -> Key {
    among(None::<T>, T::VARIANTS).list(all(default, |word| quoted(word.into())), 0..=max)
}

/// Mutes.
pub fn mutes<T>(default: Option<Vec<T>>, max: usize, keys: Vec<Key>) -> Key {
    severities_when(default, max, keys)
}

/// One field of events.
pub fn field<T>(_: Option<T>) -> Key {
    Key::described("a field")
}

/// Required numbers, of which each is larger than the one before.
pub fn levels<T>(_: Option<Vec<T>>, max: usize) -> Key {
    Key { is_required: true, ..Key::new(Shape::Decimal, None).list(None, 1..=max) }
}

/// A required duration.
pub fn required_duration(default: Option<Duration>, range: RangeInclusive<Duration>) -> Key {
    Key { is_required: true, ..duration(default, range) }
}

/// A required duration, or `"day"`.
pub fn required_duration_or_day<T>(_: Option<T>, range: RangeInclusive<Duration>) -> Key {
    let shape = Shape::Either(vec![Shape::Duration(range), Shape::Words(vec!["day"])]);
    Key { is_required: true, ..Key::new(shape, None) }
}

/// Severities with their conditions, of which the first that is true counts.
pub fn severities_when<T>(default: Option<Vec<T>>, max: usize, keys: Vec<Key>) -> Key {
    Key::new(Shape::Keys(keys), None).list(default.map(|_| Vec::new()), 0..=max)
}

/// A required text that is not empty.
pub fn required_line<T: Display>(default: Option<T>) -> Key {
    Key { is_required: true, ..line(default) }
}

/// A table with keys of its own.
pub fn table<T>(_: Option<T>, keys: Vec<Key>) -> Key {
    Key::new(Shape::Keys(keys), None)
}

/// Tables under names chosen by the user; the default is a TOML table of them.
pub fn named(default: Option<String>, max: usize, keys: Vec<Key>) -> Key {
    Key::new(Shape::Named(keys, max), default)
}

/// The columns of a table: names, or what each name shows.
pub fn columns<T>(_: Option<T>) -> Key {
    let names = || Shape::List(Box::new(Shape::Text("a text")), 1..=usize::MAX);
    let from = Shape::Either(vec![Shape::Text("a text"), names()]);
    Key::new(Shape::Either(vec![names(), Shape::Map(Box::new(from))]), None)
}
