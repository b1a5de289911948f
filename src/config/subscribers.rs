//! The subscribers in force: of each id the latest valid file, with what it inherits; of a core one
//! also the remainders of the earlier files; and over all of them those of each workspace.

use std::{mem, rc::Rc, sync::Arc};

use engine::{
    event::{Territory, is_within},
    nearest::nearest,
    notification::SubscriberId,
    pipeline::{
        remainder,
        render::Libraries,
        rule::{Activity, Subscriber},
    },
    sorted::{SortedMap, SortedSet},
};

use crate::config::{
    case::SubscriberTest,
    effective,
    layers::{FileKind, LayerKind, SourceFile, Sources, Workspace},
    layout::{DeclaredPlaces, OwnText, TEMPLATE_SUFFIX},
    lint_name::LintName,
    raw::Document,
    report::{Diagnostic, Place, Report},
    subscriber::{self, Context, Protected, SubscriberFile},
    workspace::{CompiledWorkspace, name_of_folder},
};

/// The subscribers of all files, with their tests, places and files.
pub(super) struct Subscribers {
    /// Sorted by id; remainders included.
    pub(super) subscribers: Vec<Arc<Subscriber>>,
    pub(super) tests: SortedMap<SubscriberId, Vec<SubscriberTest>>,
    pub(super) declared: SortedMap<SubscriberId, DeclaredPlaces>,
    pub(super) files: SortedMap<SubscriberId, Vec<SourceFile>>,
    /// By folder.
    pub(super) workspaces: Vec<CompiledWorkspace>,
}

/// The files of a workspace, with its templates.
pub(super) struct Folder<'s> {
    pub(super) own: &'s Workspace,
    /// The names under which its templates are compiled, by their own names.
    pub(super) templates: SortedMap<&'s str, &'s str>,
    /// The libraries that its texts can take macros from.
    pub(super) libraries: &'s Libraries,
    /// The types of events that its subscribers can name; empty if none are known.
    pub(super) types: Vec<&'s str>,
    /// The findings about its templates and libraries.
    pub(super) found: Vec<Diagnostic>,
}

/// What is read of a workspace: the versions of its subscribers, none if a file has an error.
struct ReadFolder<'s> {
    folder: &'s Arc<str>,
    versions: SortedMap<SubscriberId, Version<'s>>,
    report: Report,
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
pub(super) fn compile<'s>(
    sources: &'s Sources,
    folders: Vec<Folder<'s>>,
    context: Context<'s>,
    found: &mut Vec<Diagnostic>,
    left_out: &mut SortedSet<Arc<str>>,
) -> Subscribers {
    let (seen, kept) = (SortedMap::new(), SortedMap::new());
    let mut reader = Reader { context, seen, kept, of_folder: None, found, left_out };
    for file in sources.of_kind(FileKind::Subscriber) {
        reader.read(file);
    }
    let read: Vec<_> = folders.into_iter().map(|folder| reader.read_folder(folder)).collect();
    let Reader { context, kept, .. } = reader;
    let (mut subscribers, mut tests) = (Vec::new(), SortedMap::new());
    let (mut declared, mut files) = (SortedMap::new(), SortedMap::new());
    let (workspaces, in_folders) = in_territories(read, &mut files);
    subscribers.extend(workspaces.iter().flat_map(|own| own.subscribers.iter().cloned()));
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
            version.subscriber.in_folders = in_folders.get(&id).cloned().unwrap_or_default();
            files.insert(version.subscriber.id.clone(), own_files);
            later.push(Arc::new(version.subscriber));
            end = Some(layer);
        }
        subscribers.extend(later);
    }
    subscribers.sort_by(|a, b| a.id.cmp(&b.id));
    Subscribers { subscribers, tests, declared, files, workspaces }
}

/// The subscribers of each workspace for its territory, and those of all with one id.
fn in_territories(
    read: Vec<ReadFolder<'_>>,
    files: &mut SortedMap<SubscriberId, Vec<SourceFile>>,
) -> (Vec<CompiledWorkspace>, SortedMap<SubscriberId, Vec<Arc<Subscriber>>>) {
    let mut in_folders = SortedMap::<SubscriberId, Vec<Arc<Subscriber>>>::new();
    let in_force = read.iter().filter(|one| one.report.error_count() == 0);
    let in_force: Vec<Arc<str>> = in_force.map(|one| Arc::clone(one.folder)).collect();
    let compiled = read.into_iter().map(|ReadFolder { folder, versions, report }| {
        let is_inner = |other: &&Arc<str>| *other != folder && is_within(other, folder);
        let except = in_force.iter().filter(is_inner).cloned().collect();
        let territory = Arc::new(Territory { folder: Arc::clone(folder), except });
        let subscribers = versions.into_iter().map(|(id, mut version)| {
            version.subscriber.id = remainder::id(&id, &name_of_folder(folder));
            version.subscriber.territory = Some(Arc::clone(&territory));
            files.insert(version.subscriber.id.clone(), version.files().cloned().collect());
            let own = Arc::new(version.subscriber);
            in_folders.get_or_default(id).push(Arc::clone(&own));
            own
        });
        CompiledWorkspace { folder: Arc::clone(folder), subscribers: subscribers.collect(), report }
    });
    (compiled.collect(), in_folders)
}

struct Reader<'a, 's, 'f> {
    context: Context<'a>,
    /// The first file of each id in each layer.
    seen: SortedMap<(LayerKind, SubscriberId), Arc<str>>,
    /// The versions of each id, the latest last; earlier ones only of a core subscriber.
    kept: SortedMap<SubscriberId, Vec<Version<'s>>>,
    /// The versions of the workspace that is being read.
    of_folder: Option<SortedMap<SubscriberId, Version<'s>>>,
    found: &'f mut Vec<Diagnostic>,
    left_out: &'f mut SortedSet<Arc<str>>,
}

impl<'s> Reader<'s, 's, '_> {
    /// Reads the files of a workspace over those of all other layers, which stay as they are.
    fn read_folder(&mut self, folder: Folder<'s>) -> ReadFolder<'s> {
        let Folder { own, templates, libraries, types, found } = folder;
        let before = mem::replace(self.found, found);
        let names: Vec<&str> = templates.keys().copied().collect();
        let for_all = self.context.templates.with_own(templates, libraries);
        let for_all = mem::replace(&mut self.context.templates, for_all);
        let of_all = mem::replace(&mut self.context.known_types, types);
        // Its rules depend on no test, and the fixtures of tests are not read.
        let fixtures = self.context.fixtures.take();
        self.of_folder = Some(SortedMap::new());
        for file in own.of_kind(FileKind::Subscriber) {
            self.read(file);
        }
        self.read_texts(&names);
        self.context.templates = for_all;
        self.context.known_types = of_all;
        self.context.fixtures = fixtures;
        self.seen.retain(|(layer, _), _| *layer != LayerKind::Workspace);
        let mut found = mem::replace(self.found, before);
        found.sort_by(|a, b| (&a.place.file, a.place.span.start).cmp(&(&b.place.file, b.place.span.start)));
        let (report, versions) = (Report::new(found), self.of_folder.take().unwrap_or_default());
        let versions = if report.error_count() == 0 { versions } else { SortedMap::new() };
        ReadFolder { folder: &own.folder, versions, report }
    }

    /// Adds the subscribers of which a workspace has the text alone: `templates/ID.toon.j2`.
    fn read_texts(&mut self, templates: &[&str]) {
        for id in templates.iter().filter_map(|name| name.strip_suffix(TEMPLATE_SUFFIX)) {
            let id = SubscriberId::new(id);
            let is_read = self.of_folder.as_ref().is_some_and(|read| read.contains_key(&id));
            let earlier = self.kept.get(&id).and_then(|versions| versions.last());
            let Some(earlier) = earlier.filter(|_| !is_read) else { continue };
            let documents = earlier.documents.clone();
            let SubscriberFile { compiled, places, .. } = subscriber::compile(&documents, &self.context, &[]);
            let (Some(compiled), Some(read)) = (compiled, &mut self.of_folder) else { continue };
            let (subscriber, own_text) = (compiled.subscriber, compiled.own_text);
            read.insert(id, Version { subscriber, tests: Vec::new(), places, own_text, documents });
        }
    }

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
                if self.of_folder.is_none() {
                    self.left_out.insert(Arc::clone(&file.path));
                }
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
        if version.subscriber.activity == Activity::Core && self.of_folder.is_none() {
            let protected = || Protected::new(&file.path, &version.subscriber);
            self.context.core.get_or_insert_with(id.clone(), protected);
        }
        if let Some(earlier) = self.kept.get(id).and_then(|versions| versions.last()) {
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
        if let Some(of_folder) = &mut self.of_folder {
            if version.subscriber.activity == Activity::Core && !self.kept.contains_key(id) {
                let core = version.documents.iter().find_map(|own| own.value("output")?.entries());
                let core = core.into_iter().flatten().find(|(name, _)| *name == "core");
                let place = core.map_or_else(|| place.clone(), |(_, value)| value.place());
                let message = "a workspace's file makes no core subscriber: its user could not switch it off";
                self.found.push(Diagnostic::error(place, "output.core", message));
            }
            of_folder.insert(id.clone(), version);
            return;
        }
        let versions = self.kept.get_or_default(id.clone());
        let is_left = |earlier: &Version| {
            earlier.subscriber.activity == Activity::Core
                && !remainder::narrower_keys(&version.subscriber, &earlier.subscriber).is_empty()
        };
        versions.retain(is_left);
        versions.push(version);
    }
}
