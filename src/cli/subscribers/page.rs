//! The page of one subscriber: what it does in words, its keys with their origins, what it has open, its
//! tests and its last notifications; or how it differs from the shipped one.

use std::fmt::Write as _;

use engine::words::counted;

use super::list::{held, layers, state};
use crate::{
    api::wire::{
        history::{NotificationPage, NotificationView},
        silences::{SilenceList, SilenceView},
        subscribers::{SubscriberView, SubscribersView},
    },
    cli::{
        CliError, Context,
        configuration::Configuration,
        context::with_query,
        terminal::{Terminal, Tone, cut_beginning, one_line, width},
    },
    config::{
        described::{self, Origin},
        effective,
        layers::{LayerKind, SourceFile, Sources},
        listing::Listed,
    },
};

/// The width of the lines of a pipe.
const COLUMNS: usize = 80;
/// Most shown notifications.
const LAST: &str = "3";
/// The width of the labels.
const LABEL: usize = 12;

/// What the daemon knows of a subscriber.
pub(super) struct Live {
    pub(super) view: Option<SubscriberView>,
    pub(super) silences: Vec<SilenceView>,
    pub(super) last: Vec<NotificationView>,
}

impl Live {
    /// Errors: the daemon does not answer.
    pub(super) fn ask(id: &str, all: SubscribersView, context: &Context<'_>) -> Result<Self, CliError> {
        const DOING: &str = "read the subscriber's state";
        let silences: SilenceList = context.get(DOING, "/v1/silences")?;
        let query = [("subscriber", Some(id)), ("limit", Some(LAST))];
        let last: NotificationPage = context.get(DOING, &with_query("/v1/notifications", &query))?;
        let mut silences = silences.silences;
        silences.retain(|one| one.matchers.subscriber.as_ref().is_none_or(|own| own.as_str() == id));
        let view = all.subscribers.into_iter().find(|one| one.id == id);
        Ok(Self { view, silences, last: last.notifications })
    }
}

/// A page about `one`.
pub(super) struct Page<'a> {
    pub(super) one: &'a Listed,
    pub(super) configuration: &'a Configuration,
    /// What the daemon knows, or why that is not known.
    pub(super) live: Result<&'a Live, &'a str>,
    pub(super) terminal: &'a Terminal,
}

impl Page<'_> {
    pub(super) fn text(&self) -> String {
        let one = self.one;
        let view = self.live.ok().and_then(|live| live.view.as_ref());
        let layers = layers(one);
        let only =
            one.folder.as_ref().map(|folder| format!(", for sessions in {folder}")).unwrap_or_default();
        let mut text = format!("{}: {}, from {}{only}\n", one.id, state(one, view), layers.join(", "));
        for sentence in [described::takes(one), described::delivers(one)] {
            let lines = self.terminal.prose(&format!("{sentence}\n"));
            text.extend(lines.lines().map(|line| format!("{}\n", self.terminal.cut_after(0, line))));
        }
        text.push('\n');
        for origin in described::in_force(one) {
            text.push_str(&self.key(&origin));
        }
        text.push('\n');
        text.push_str(&self.labelled("tests", &self.tests()));
        match self.live {
            Ok(live) => text.push_str(&self.live_lines(live)),
            Err(why) => text.push_str(&self.labelled("open", &format!("not known: {why}"))),
        }
        let next = match one.layers.as_slice() {
            [LayerKind::Shipped] => format!("aside edit {} changes it", one.id),
            _ if self.shipped().is_some() => format!("aside subscribers {} --diff", one.id),
            _ => format!("aside preview {}", one.id),
        };
        text + &self.labelled("next", &next)
    }

    fn labelled(&self, label: &str, words: &str) -> String {
        let words = self.terminal.cut_after(LABEL, words);
        format!("{label:LABEL$}{words}\n")
    }

    /// A key with its origin at the right edge, or on a line of its own.
    fn key(&self, origin: &Origin) -> String {
        let place = match &origin.place {
            Some(place) => {
                let file = self.configuration.sources.name_of(&place.file).unwrap_or(&place.file);
                let layer = self.configuration.sources.layer_of(&place.file);
                let shipped = if layer == Some(LayerKind::Shipped) { "shipped:" } else { "" };
                format!("{shipped}{file}:{}", place.line())
            }
            None => "default".to_owned(),
        };
        let columns = self.terminal.columns.unwrap_or(COLUMNS);
        let value = format!("  {} = {}", origin.key, origin.value);
        let mut lines = value.lines();
        let first = self.terminal.cut_after(0, lines.next().unwrap_or_default());
        let place = cut_beginning(&place, columns.saturating_sub(2)).into_owned();
        let room = columns.saturating_sub(width(&first) + width(&place));
        let painted = self.terminal.paint(Tone::Dim, &place);
        let mut text = match room {
            0 | 1 => format!("{first}\n{}{painted}\n", " ".repeat(columns.saturating_sub(width(&place)))),
            room => format!("{first}{}{painted}\n", " ".repeat(room)),
        };
        for line in lines {
            let _ = writeln!(text, "    {}", self.terminal.cut_after(4, line));
        }
        text
    }

    fn tests(&self) -> String {
        let tests = self.configuration.compiled.tests.iter().find(|(id, _)| id.as_str() == self.one.id);
        match tests.map_or(0, |(_, tests)| tests.len()) {
            0 => "none; `aside new test` makes one of real events".to_owned(),
            count => format!("{}: aside test {}", counted(count, "test"), self.one.id),
        }
    }

    fn live_lines(&self, live: &Live) -> String {
        let mut text = String::new();
        let terminal = self.terminal;
        match &live.view {
            None => text.push_str(&self.labelled("open", "it is not in force yet: aside reload")),
            Some(view) => {
                let closes =
                    view.closes_at.as_deref().map(|at| format!(", the next closes {}", terminal.moment(at)));
                let open = match view.batches {
                    0 => "no batch".to_owned(),
                    1 => format!("1 batch with {}{}", counted(view.rows, "row"), closes.unwrap_or_default()),
                    count => format!(
                        "{count} batches with {}{}",
                        counted(view.rows, "row"),
                        closes.unwrap_or_default()
                    ),
                };
                text.push_str(&self.labelled("open", &open));
                text.push_str(&self.labelled("pending", &counted(view.pending, "notification")));
                if let Some(held) = held(view, terminal) {
                    text.push_str(&self.labelled("held", &held));
                }
                let holds = if view.conditions == 1 { "holds" } else { "hold" };
                text.push_str(&self.labelled("conditions", &format!("{} that {holds}", view.conditions)));
                for failing in &view.failing {
                    let line = failing.line.map(|line| format!(":{line}")).unwrap_or_default();
                    let words = format!("{}{line} {}", failing.file, failing.message);
                    text.push_str(&self.labelled("fails", &words));
                }
                let week = format!(
                    "{} taken, {} made, {} sent, {}",
                    counted(view.events, "event"),
                    view.made,
                    view.sent,
                    counted(view.tokens, "token")
                );
                text.push_str(&self.labelled("in 7 days", &week));
            }
        }
        for silence in &live.silences {
            let words = format!("{}, ends {}", silence.id, terminal.moment(&silence.until));
            text.push_str(&self.labelled("silence", &words));
        }
        for (index, notification) in live.last.iter().enumerate() {
            let label = if index == 0 { "last" } else { "" };
            let at = terminal.moment(&notification.created_at);
            let words = format!("{at:10}  {}", one_line(&notification.sentence));
            text.push_str(&self.labelled(label, &words));
        }
        text
    }

    /// The file of the shipped subscriber of this id.
    fn shipped(&self) -> Option<SourceFile> {
        let shipped = Sources::shipped();
        let is_own = |file: &&SourceFile| {
            let keys = effective::keys(std::slice::from_ref(file));
            let id = keys.iter().find(|key| key.key == "subscriber.id").and_then(effective::text);
            file.name.starts_with("subscribers/") && id.as_deref() == Some(self.one.id.as_str())
        };
        shipped.files().iter().find(is_own).cloned()
    }

    /// The keys that differ from those of the shipped subscriber.
    ///
    /// Errors: it replaces none.
    pub(super) fn diff(&self) -> Result<String, CliError> {
        let Some(shipped) = self.shipped() else {
            let message = format!("`{}` replaces no shipped subscriber", self.one.id);
            return Err(CliError::Usage(message));
        };
        let before = Listed {
            keys: effective::keys(&[shipped]),
            id: String::new(),
            name: String::new(),
            description: String::new(),
            state: self.one.state,
            folder: None,
            layers: Vec::new(),
            files: Vec::new(),
        };
        let (before, after) = (described::in_force(&before), described::in_force(self.one));
        let mut text = String::new();
        for old in &before {
            match after.iter().find(|new| new.key == old.key) {
                Some(new) if new.value == old.value => {}
                new => {
                    text.push_str(&self.changed('-', old));
                    text.push_str(&new.map(|new| self.changed('+', new)).unwrap_or_default());
                }
            }
        }
        let added = after.iter().filter(|new| before.iter().all(|old| old.key != new.key));
        text.extend(added.map(|new| self.changed('+', new)));
        Ok(if text.is_empty() { "no key differs from the shipped one\n".to_owned() } else { text })
    }

    fn changed(&self, mark: char, origin: &Origin) -> String {
        let tone = if mark == '-' { Tone::Bad } else { Tone::Good };
        let text = format!("{} = {}", origin.key, origin.value);
        let line = |line: &str| {
            let line = format!("{mark} {line}");
            format!("{}\n", self.terminal.paint(tone, &self.terminal.cut_after(0, &line)))
        };
        text.lines().map(line).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        api::wire::{inbox::HoldView, views::FailingView},
        cli::{check::compiled_of, terminal::tests::of_width},
        config::listing,
    };

    #[test]
    fn pages_fit_narrow_terminals() {
        let sources = Sources::shipped_with_tests();
        let compiled = compiled_of(&sources);
        let all = listing::subscribers(&sources, &compiled);
        let configuration = Configuration { folder: "c".into(), sources, compiled };
        let hold = HoldView {
            kind: "deferred".to_owned(),
            cause: "limits.deliver_after".to_owned(),
            ..HoldView::default()
        };
        let failing = FailingView { file: "f".repeat(50), message: "m".repeat(90), ..FailingView::default() };
        let view = SubscriberView {
            held: 2,
            batches: 2,
            rows: 7,
            holds: vec![hold],
            failing: vec![failing],
            ..SubscriberView::default()
        };
        let last = NotificationView { sentence: "a long sentence ".repeat(9), ..NotificationView::default() };
        let live = Live {
            view: Some(view),
            silences: vec![SilenceView { id: "s".repeat(70), ..SilenceView::default() }],
            last: vec![last],
        };
        for columns in [80, 60] {
            let terminal = of_width(columns);
            for one in &all {
                for live in
                    [Ok(&live), Err("a reason that is rather long, and so is cut at the end of its line")]
                {
                    let page = Page { one, configuration: &configuration, live, terminal: &terminal };
                    let shown = page.text();
                    let wide: Vec<&str> = shown.lines().filter(|line| width(line) > columns).collect();
                    assert!(wide.is_empty(), "{}: {wide:?}", one.id);
                }
            }
        }
    }
}
