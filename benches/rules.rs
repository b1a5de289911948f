//! The engine of a bench, made from the files of its rules.

use std::sync::Arc;

use aside::config::{
    compile::compile,
    layers::{LayerKind, SourceFile, Sources},
};
use engine::Engine;

/// An engine with these files as the user's layer, each a path and a text.
pub(crate) fn engine(files: impl IntoIterator<Item = (String, String)>) -> Engine {
    let files = files.into_iter().map(|(name, text)| SourceFile {
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
