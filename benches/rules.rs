//! The engine of a bench, made from the files of its rules.

use std::sync::Arc;

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
};
use engine::Engine;

/// The file of settings.
const SETTINGS: &str = "aside.toml";
/// A bench delivers in a minute what a session does in a day: with the budgets that ship it would soon
/// measure what waits.
const NO_BUDGETS: &str = "[budget]\nturn = \"off\"\nhour = \"off\"\n";

/// These files, each a path and a text, with settings that have no budgets.
pub(crate) fn without_budgets(
    files: impl IntoIterator<Item = (String, String)>,
) -> impl Iterator<Item = (String, String)> {
    let mut settings = NO_BUDGETS.to_owned();
    let mut others = Vec::new();
    for (name, text) in files {
        if name == SETTINGS {
            settings.push_str(&text);
        } else {
            others.push((name, text));
        }
    }
    others.into_iter().chain([(SETTINGS.to_owned(), settings)])
}

/// An engine with these files as the user's layer, without budgets.
pub(crate) fn engine(files: impl IntoIterator<Item = (String, String)>) -> Engine {
    let files = without_budgets(files).map(|(name, text)| SourceFile {
        layer: LayerKind::User,
        path: name.as_str().into(),
        name: name.into(),
        text: text.into(),
    });
    let compiled = compile(&Sources::new(files), &[]);
    assert!(
        compiled.report.error_count() == 0,
        "the rules of this bench do not compile:\n{}",
        compiled.report
    );
    Engine::new(Arc::new(compiled.rules))
}
