//! Compiles the files of all layers to rules and settings, and reports every mistake in them.
//!
//! Pure: the same files give the same rules. Templates are compiled before the subscribers, which
//! name them. A subscriber or template with an error is left out and reported. If it would have
//! replaced a valid one of an earlier layer, the earlier one stays, and the report notes it. Of
//! another file that is valid TOML, only the wrong values, entries and rows are left out.

use std::sync::Arc;

use engine::{
    event::catalogue::{CatalogueEntry, OwnSeverities},
    notification::SubscriberId,
    pipeline::render::{Libraries, TemplateError, Templates},
    rules::CompiledRules,
    sorted::{SortedMap, SortedSet},
};

use crate::{
    capability::{
        outside::{self, Generation},
        webhook::Row,
    },
    config::{
        case::{Fixtures, SubscriberTest},
        catalogue::{self, Entries},
        daemon::{self, DaemonConfig},
        layers::{FileKind, LayerKind, SourceFile, Sources, Unreadable, Workspace},
        layout::{DeclaredPlaces, KnownTemplates, TEMPLATE_SUFFIX},
        lint_name::LintName,
        raw::Document,
        report::{Diagnostic, Level, Place, Report, sentence, shown},
        subscriber::Context,
        subscribers::{self, Folder, Subscribers},
        text::Text,
        webhooks::{self, Webhooks},
        workspace::CompiledWorkspace,
    },
};

/// The result of a compilation.
#[derive(Debug)]
pub struct Compiled {
    /// The rules of the engine.
    pub rules: CompiledRules,
    /// The settings of the sources.
    pub outside: Arc<outside::Settings>,
    /// The settings of the daemon.
    pub daemon: DaemonConfig,
    /// The tests in the subscribers' files: of every subscriber in `rules`, including the ones that
    /// are switched off.
    pub tests: SortedMap<SubscriberId, Vec<SubscriberTest>>,
    /// The places of what subscribers' files declare for their text.
    pub declared: SortedMap<SubscriberId, DeclaredPlaces>,
    /// The files of each subscriber, remainders included: the whole one, then those that inherit.
    pub files: SortedMap<SubscriberId, Vec<SourceFile>>,
    /// The whole file of each template that is in use, by its name in subscribers' files.
    pub template_files: SortedMap<String, Place>,
    /// The saved events of the layers.
    pub fixtures: Fixtures,
    /// Entries that the `events.toml` of the layers add to the catalogue, by type.
    pub events: Vec<CatalogueEntry>,
    /// The expected webhooks, and the rows of the layers for them.
    pub webhooks: Webhooks,
    /// The file that each setting of `aside.toml` came from, by its key, such as
    /// `injection.max_tokens`.
    pub origins: SortedMap<String, Arc<str>>,
    /// The paths of the files that are left out of the rules, or partly left out, because of an
    /// error there or in their template.
    pub left_out: SortedSet<Arc<str>>,
    /// The workspaces, by folder.
    pub workspaces: Vec<CompiledWorkspace>,
    /// Errors and warnings; the rest is usable even if this holds errors. None is of a workspace.
    pub report: Report,
}

impl Compiled {
    /// What stays in force, without the rest.
    pub fn into_generation(self) -> Generation {
        Generation { rules: Arc::new(self.rules), outside: self.outside }
    }
}

/// Compiles all files at once.
///
/// `known_types` are the catalogue's event types: a pattern that matches none of them is a warning.
/// An empty list disables that check.
///
/// Errors: none. They are in the report, and the parts with errors are left out.
pub fn compile(sources: &Sources, known_types: &[&str]) -> Compiled {
    let mut found = unreadable(sources);
    let documents = read_settings(sources, &mut found);
    let mut settings = daemon::compile(&documents);
    found.append(&mut settings.found);
    let libraries = read_libraries(sources.of_kind(FileKind::Library), &mut found);
    let of_folders: Vec<_> = sources.workspaces().iter().map(|own| own_files(sources, own)).collect();
    let (mut templates, layers) = compile_templates(sources, libraries, &mut found);
    let events: Vec<_> = read_events(sources.of_kind(FileKind::Events), &mut found).into_values().collect();
    let known = with_types(known_types, &events);
    let folders = sources.workspaces().iter().zip(&of_folders);
    let folders: Vec<_> =
        folders.map(|(own, read)| compile_own_templates(own, read, &known, &mut templates)).collect();
    let own_rows = read_webhooks(sources, &mut found);
    let severities = OwnSeverities::new(&events);
    let fixtures = Fixtures::read(sources.of_kind(FileKind::Fixture), &severities, &mut found);
    let context = Context {
        templates: KnownTemplates {
            compiled: &templates,
            names: sources.of_kind(FileKind::Template).map(template_name).collect(),
            layers,
            of_workspace: SortedMap::new(),
            libraries: templates.libraries(),
            shipped: SortedMap::new(),
        },
        known_types: known,
        injection_tokens: settings.injection.max_tokens,
        wake: Arc::clone(&settings.wake),
        fixtures: Some(&fixtures),
        core: SortedMap::new(),
    };
    let mut left_out = SortedSet::new();
    let known = context.known_types.clone();
    let Subscribers { subscribers, tests, declared, files, workspaces } =
        subscribers::compile(sources, folders, context, &mut found, &mut left_out);
    found.extend(documents.iter().flat_map(|document| daemon::doubts(document, &known, &subscribers)));
    let errors = found.iter().filter(|found| found.level == Level::Error);
    left_out.extend(errors.map(|found| Arc::clone(&found.place.file)));
    drop_consequences(sources, &mut found);
    Compiled {
        template_files: files_of_templates(sources, &templates),
        rules: CompiledRules {
            hash: sources.hash().into(),
            subscribers,
            folders: in_force(&workspaces),
            templates: Arc::new(templates),
            injection: settings.injection,
            budget: settings.budget,
            sessions: settings.sessions,
            sources: settings.sources,
            detectors: settings.detectors,
            probes: settings.probes,
            ci: settings.outside.ci.clone(),
            takes_webhooks: !settings.senders.is_empty(),
            sinks: settings.sinks,
            wake: settings.wake,
            mutes: settings.mutes,
        },
        outside: settings.outside,
        daemon: settings.daemon,
        tests,
        declared,
        files,
        fixtures,
        events,
        webhooks: Webhooks { senders: settings.senders, own_rows },
        origins: settings.origins,
        left_out,
        workspaces,
        report: in_order(sources, found),
    }
}

/// Drops the findings of texts that name a library with an error: it has a finding of its own.
fn drop_consequences(sources: &Sources, found: &mut Vec<Diagnostic>) {
    let of_file = |one: &Diagnostic| {
        let mut libraries = sources.of_kind(FileKind::Library);
        libraries.find(|file| file.path == one.place.file).and_then(library_name)
    };
    let broken: SortedSet<String> = (found.iter().filter(|one| one.level == Level::Error))
        .filter_map(|one| of_file(one).map(str::to_owned))
        .collect();
    let names_broken =
        |one: &Diagnostic| broken.contains(one.place.literal().trim_matches(['"', '\'', '\\']));
    found.retain(|one| of_file(one).is_some() || !names_broken(one));
}

fn unreadable(sources: &Sources) -> Vec<Diagnostic> {
    let diagnose = |words: &str, file: &Unreadable| {
        let place = match &file.bad_byte {
            Some((text, at)) => {
                Place::new(&file.path, text, *at..*at + char::REPLACEMENT_CHARACTER.len_utf8())
            }
            None => Place::file(&file.path),
        };
        Diagnostic::error(place, "", format!("{words}: {}", sentence(&file.why)))
    };
    let unreadable = sources.unreadable().iter().map(|file| diagnose("file cannot be read", file));
    let ignored = sources
        .ignored()
        .iter()
        .map(|file| diagnose("this is not read", file).into_lint(LintName::UnusedFile));
    unreadable.chain(ignored).collect()
}

/// The settings of every layer, as they are written.
fn read_settings<'s>(sources: &'s Sources, found: &mut Vec<Diagnostic>) -> Vec<Document<'s>> {
    let mut documents = Vec::new();
    for file in sources.of_kind(FileKind::Settings) {
        match Document::parse(file) {
            Ok(document) => documents.push(document),
            Err(wrong) => found.extend(wrong),
        }
    }
    documents
}

/// The latest file of each template that compiles; of workspaces none.
fn files_of_templates(sources: &Sources, templates: &Templates) -> SortedMap<String, Place> {
    let files = sources.of_kind(FileKind::Template);
    let used = files.filter(|file| templates.contains(template_name(file)));
    used.map(|file| (template_name(file).to_owned(), Place::whole(&file.path, &file.text))).collect()
}

/// The rows of webhooks, those of later layers first.
fn read_webhooks(sources: &Sources, found: &mut Vec<Diagnostic>) -> Vec<Row> {
    let mut rows = Vec::new();
    found.extend(sources.of_kind(FileKind::Webhooks).flat_map(|file| webhooks::read(file, &mut rows)));
    rows
}

/// Adds every template, those of later layers last. If one does not compile, the earlier one of its
/// name stays. Returns also the layers of those that compile, by their names.
fn compile_templates<'s>(
    sources: &'s Sources,
    libraries: Libraries,
    found: &mut Vec<Diagnostic>,
) -> (Templates, SortedMap<&'s str, Vec<LayerKind>>) {
    let (mut templates, mut layers) = (Templates::with_libraries(libraries), SortedMap::<_, Vec<_>>::new());
    for file in sources.of_kind(FileKind::Template) {
        let name = template_name(file);
        if !name.ends_with(TEMPLATE_SUFFIX) {
            found.push(misnamed(file));
        } else if let Err(error) = add_template(&mut templates, name, &file.text) {
            let bad = bad_template("template", file, &error);
            let note = "the template of this name in an earlier layer stays in use";
            found.push(if templates.contains(name) { bad.with_note(note) } else { bad });
        } else {
            layers.get_or_default(name).push(file.layer);
        }
    }
    (templates, layers)
}

fn misnamed(file: &SourceFile) -> Diagnostic {
    let name = shown(template_name(file));
    let message = format!("`{name}` is not used: the name of a template ends in {TEMPLATE_SUFFIX}");
    Diagnostic::lint(LintName::UnusedFile, Place::file(&file.path), "", message)
}

/// Reads the libraries of macros; those of later layers replace earlier ones of their names.
fn read_libraries<'s>(all: impl Iterator<Item = &'s SourceFile>, found: &mut Vec<Diagnostic>) -> Libraries {
    let mut files = SortedMap::new();
    for file in all {
        match library_name(file) {
            Some(name) => drop(files.insert(name, file)),
            None => found.push(misnamed(file)),
        }
    }
    let libraries: Libraries =
        files.iter().map(|(name, file)| ((*name).into(), (*file.text).into())).collect();
    for (name, file) in &files {
        found.extend(libraries.check(name).err().map(|error| bad_template("library", file, &error)));
    }
    libraries
}

/// What is read of a workspace before its texts.
struct OwnFiles {
    /// The libraries that its texts can take macros from.
    libraries: Libraries,
    /// The types that it declares.
    events: Vec<CatalogueEntry>,
    found: Vec<Diagnostic>,
}

fn own_files(sources: &Sources, own: &Workspace) -> OwnFiles {
    let mut found = Vec::new();
    let all = sources.of_kind(FileKind::Library).chain(own.of_kind(FileKind::Library));
    let libraries = read_libraries(all, &mut found);
    found.retain(|one| own.files().iter().any(|file| file.path == one.place.file));
    let events = read_events(own.of_kind(FileKind::Events), &mut found).into_values().collect();
    OwnFiles { libraries, events, found }
}

/// The types that the files of events declare.
fn read_events<'s>(files: impl Iterator<Item = &'s SourceFile>, found: &mut Vec<Diagnostic>) -> Entries {
    let mut events = Entries::new();
    for file in files {
        found.extend(catalogue::read(file, &mut events));
    }
    events
}

/// Known types with those of `events`; none if none are known, which disables the comparison.
fn with_types<'t>(known: &[&'t str], events: &'t [CatalogueEntry]) -> Vec<&'t str> {
    let own = events.iter().map(|entry| entry.event_type.as_str()).filter(|_| !known.is_empty());
    known.iter().copied().chain(own).collect()
}

/// The folders of the workspaces whose files are in force.
fn in_force(workspaces: &[CompiledWorkspace]) -> Vec<Arc<str>> {
    workspaces.iter().filter(|own| own.is_in_force()).map(|own| Arc::clone(&own.folder)).collect()
}

/// Adds the templates of a workspace under the paths of their files, which nothing else is called.
fn compile_own_templates<'s>(
    own: &'s Workspace,
    OwnFiles { libraries, events, found }: &'s OwnFiles,
    known: &[&'s str],
    templates: &mut Templates,
) -> Folder<'s> {
    let (mut found, mut names) = (found.clone(), SortedMap::new());
    for file in own.of_kind(FileKind::Template) {
        let added = templates.add_with(&file.path, &file.text, libraries);
        found.extend(added.err().map(|error| bad_template("template", file, &error)));
        names.insert(template_name(file), &*file.path);
    }
    Folder { own, templates: names, libraries, types: with_types(known, events), found }
}

fn add_template(templates: &mut Templates, name: &str, text: &Text) -> Result<(), TemplateError> {
    if text.is_of_program() {
        templates.add_deferred(name, text);
        return Ok(());
    }
    templates.add(name, text)
}

/// The name of a template in subscribers' files.
pub(crate) fn template_name(file: &SourceFile) -> &str {
    file.name.strip_prefix("templates/").unwrap_or(&file.name)
}

/// The name of a library in templates, such as `lib/time`; `None` for a file with another suffix.
pub(crate) fn library_name(file: &SourceFile) -> Option<&str> {
    template_name(file).strip_suffix(TEMPLATE_SUFFIX)
}

fn bad_template(what: &str, file: &SourceFile, error: &TemplateError) -> Diagnostic {
    let place = match &error.range {
        Some(range) => Place::new(&file.path, &file.text, range.clone()),
        None => Place::line_of(&file.path, &file.text, error.line),
    };
    Diagnostic::error(place, "", format!("{what} does not compile: {}", sentence(&error.message)))
}

/// Sorts the findings by file and by place in the file.
fn in_order(sources: &Sources, mut found: Vec<Diagnostic>) -> Report {
    let files: SortedMap<&str, usize> =
        sources.files().iter().enumerate().map(|(index, file)| (&*file.path, index)).collect();
    found.sort_by_key(|diagnostic| {
        let place = &diagnostic.place;
        (files.get(&*place.file).copied(), place.span.start)
    });
    Report::new(found)
}
