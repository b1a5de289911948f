//! The subscribers in force: of each id the latest valid file, with what it inherits; of a core one
//! also the remainders of the earlier files.

use std::{rc::Rc, sync::Arc};

use engine::{
    nearest::nearest,
    notification::SubscriberId,
    pipeline::{
        remainder,
        rule::{Activity, Subscriber},
    },
    sorted::{SortedMap, SortedSet},
};

use crate::config::{
    case::SubscriberTest,
    effective,
    layers::{FileKind, LayerKind, SourceFile, Sources},
    layout::{DeclaredPlaces, OwnText},
    lint_name::LintName,
    raw::Document,
    report::{Diagnostic, Place},
    subscriber::{self, Context, Protected, SubscriberFile},
};

/// The subscribers of all files, with their tests, places and files.
pub(super) struct Subscribers {
    /// Sorted by id; remainders included.
    pub(super) subscribers: Vec<Arc<Subscriber>>,
    pub(super) tests: SortedMap<SubscriberId, Vec<SubscriberTest>>,
    pub(super) declared: SortedMap<SubscriberId, DeclaredPlaces>,
    pub(super) files: SortedMap<SubscriberId, Vec<SourceFile>>,
}

/// A valid version of a subscriber: a whole file, and those that inherit from it.
struct Version<'s> {
    subscriber: Subscriber,
    tests: Vec<SubscriberTest>,
    places: DeclaredPlaces,
    own_text: OwnText,
    /// The whole file first; at least one.
    documents: Vec<Rc<Document<'s>>>,
}

impl<'s> Version<'s> {
    /// The file that made it.
    fn file(&self) -> &'s SourceFile {
        self.documents.last().expect("a version has a file").file()
    }

    fn files(&self) -> impl Iterator<Item = &'s SourceFile> {
        self.documents.iter().map(|document| document.file())
    }
}

/// Reads every subscriber's file, in the order of the layers.
pub(super) fn compile(
    sources: &Sources,
    context: Context<'_>,
    found: &mut Vec<Diagnostic>,
    left_out: &mut SortedSet<Arc<str>>,
) -> Subscribers {
    let mut reader = Reader { context, seen: SortedMap::new(), kept: SortedMap::new(), found, left_out };
    for file in sources.of_kind(FileKind::Subscriber) {
        reader.read(file);
    }
    let Reader { context, kept, .. } = reader;
    let (mut subscribers, mut tests) = (Vec::new(), SortedMap::new());
    let (mut declared, mut files) = (SortedMap::new(), SortedMap::new());
    for (id, versions) in kept {
        let mut later: Vec<Arc<Subscriber>> = Vec::new();
        let mut end = None;
        for mut version in versions.into_iter().rev() {
            let layer = version.file().layer;
            let own_files = version.files().cloned().collect();
            if later.is_empty() {
                tests.insert(id.clone(), version.tests);
                declared.insert(id.clone(), version.places);
            } else {
                let templates = &context.templates;
                (version.subscriber.output.layout, _) = version.own_text.in_force(&id, templates, end);
                version.subscriber.id = remainder::id(&id, layer.as_str());
                version.subscriber.later = later.clone();
            }
            files.insert(version.subscriber.id.clone(), own_files);
            later.push(Arc::new(version.subscriber));
            end = Some(layer);
        }
        subscribers.extend(later);
    }
    subscribers.sort_by(|a, b| a.id.cmp(&b.id));
    Subscribers { subscribers, tests, declared, files }
}

struct Reader<'a, 's, 'f> {
    context: Context<'a>,
    /// The first file of each id in each layer.
    seen: SortedMap<(LayerKind, SubscriberId), Arc<str>>,
    /// The versions of each id, the latest last; earlier ones only of a core subscriber.
    kept: SortedMap<SubscriberId, Vec<Version<'s>>>,
    found: &'f mut Vec<Diagnostic>,
    left_out: &'f mut SortedSet<Arc<str>>,
}

impl<'s> Reader<'_, 's, '_> {
    fn read(&mut self, file: &'s SourceFile) {
        let document = match Document::parse(file) {
            Ok(document) => Rc::new(document),
            Err(wrong) => {
                self.found.extend(wrong);
                return;
            }
        };
        let inherits = subscriber::inherits(&document);
        let earlier = inherits.as_ref().and_then(|(id, _)| self.kept.get(id)?.last());
        if let (Some((id, place)), None) = (&inherits, earlier) {
            let ids = self.kept.keys().map(SubscriberId::as_str);
            let message = format!("no earlier layer has a subscriber `{id}` to inherit from");
            let wrong = Diagnostic::error(place.clone(), "subscriber.inherit", message);
            self.found.push(wrong.with_nearest(nearest(id.as_str(), ids)));
            return;
        }
        let documents: Vec<_> =
            earlier.iter().flat_map(|version| &version.documents).chain([&document]).map(Rc::clone).collect();
        let inherited_tests = earlier.map(|version| version.tests.clone()).unwrap_or_default();
        let SubscriberFile { id, compiled, places, found: mut wrong } =
            subscriber::compile(&documents, &self.context, self.found);
        let has_broken_template = compiled.is_none() && wrong.is_empty();
        self.found.append(&mut wrong);
        let Some((id, place)) = id else { return };
        if let Some(first) = self.seen.get(&(file.layer, id.clone())) {
            let message = format!("there are two subscribers `{id}` in one layer, and this one is not used");
            let wrong = Diagnostic::error(place, "subscriber.id", message);
            self.found.push(wrong.with_note(format!("the first one is in {first}")));
            return;
        }
        self.seen.insert((file.layer, id.clone()), Arc::clone(&file.path));
        match compiled {
            Some(compiled) => {
                let tests = inherited_tests.into_iter().chain(compiled.tests).collect();
                let (subscriber, own_text) = (compiled.subscriber, compiled.own_text);
                let filter = compiled.filter_places;
                let version = Version { subscriber, tests, places, own_text, documents };
                self.keep(&id, version, &place, &filter);
            }
            // The template has its own finding; a second one would repeat it.
            None if has_broken_template => {
                self.left_out.insert(Arc::clone(&file.path));
            }
            None => {
                let Some(earlier) = self.kept.get(&id).and_then(|versions| versions.last()) else { return };
                let message =
                    format!("`{id}` stays as it is in {}, because this file has errors", earlier.file().path);
                self.found.push(Diagnostic::error(place, "subscriber.id", message).into_warning());
            }
        }
    }

    /// Puts a valid version in force.
    fn keep(
        &mut self,
        id: &SubscriberId,
        mut version: Version<'s>,
        place: &Place,
        filter: &SortedMap<&'static str, Place>,
    ) {
        let layers: SortedMap<_, _> =
            version.files().map(|file| (Arc::clone(&file.path), file.layer)).collect();
        let (_, text_layer) = version.own_text.in_force(id, &self.context.templates, None);
        version.tests.retain(|test| layers.get(&test.place.file).is_none_or(|layer| *layer >= text_layer));
        let file = version.file();
        if file.layer == LayerKind::Shipped {
            let text = version.own_text.layout.clone();
            self.context.templates.shipped.insert(id.clone(), text);
        }
        if version.subscriber.activity == Activity::Core {
            let protected = || Protected::new(&file.path, &version.subscriber);
            self.context.core.get_or_insert_with(id.clone(), protected);
        }
        let versions = self.kept.get_or_default(id.clone());
        if let Some(earlier) = versions.last() {
            if version.documents.len() == 1 {
                self.found.extend(effective::findings_of_lost_keys(
                    &earlier.documents,
                    &version.documents,
                    place,
                ));
            }
            if earlier.subscriber.activity == Activity::Core {
                let narrower = remainder::narrower_keys(&version.subscriber, &earlier.subscriber);
                let path = &earlier.file().path;
                let warn = |(key, why): (&'static str, String)| {
                    let place = filter.get(key).unwrap_or(place).clone();
                    let message = format!("this takes less than the core subscriber that it replaces: {why}");
                    Diagnostic::error(place, format!("events.{key}"), message)
                        .with_note(format!("what it does not take is still delivered as in {path}"))
                        .into_lint(LintName::NarrowerCore)
                };
                self.found.extend(narrower.into_iter().map(warn));
            }
        }
        let is_left = |earlier: &Version| {
            earlier.subscriber.activity == Activity::Core
                && !remainder::narrower_keys(&version.subscriber, &earlier.subscriber).is_empty()
        };
        versions.retain(is_left);
        versions.push(version);
    }
}
