//! Language servers: their settings, and changes of their findings in files that sessions wrote.
//!
//! [`Fleet`] takes written files, servers' messages and the time. It returns actions on server
//! processes, messages to send, and events to publish. It starts no process and reads no file. A
//! finding is compared only when its server is quiet about the newest text, which [`server`]
//! decides. docs/design/lsp.md has the reasons.

pub mod fleet;
pub mod message;
pub mod record;
pub mod server;
pub mod source;

use std::{fmt, sync::Arc, time::Duration};

use engine::{
    event::SessionId,
    settings::{Form, Keys, Table, keys, settings},
    sorted::SortedMap,
};

pub use self::fleet::{Action, End, Fleet, RunId, Write};

/// The name of the source.
pub const NAME: &str = "lsp";

/// A session that writes files.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Writer {
    /// The session.
    pub session: SessionId,
    /// Its working folder.
    pub workspace: Option<Arc<str>>,
}

/// Most kinds of servers.
const KINDS_MAX: usize = 32;
/// Most words of a command, file patterns, and root markers.
const WORDS_MAX: usize = 32;

// A start takes longer than a few seconds, and a day counts as forever.
settings! {
    /// Language servers.
    struct Own from impl Keys {
        /// Runs language servers on what sessions write, and notifies an agent of the new errors in
        /// it (`problem.*`). This is off because a server takes much memory and runs code of the
        /// project: build scripts, macros, plugins. Enable it for clients without language servers
        /// of their own.
        enabled: bool = false, flag();
        /// How long a server keeps running after the last write in its folder.
        idle: Duration = Duration::from_secs(10 * 60),
            duration(Duration::from_secs(10)..=Duration::from_secs(24 * 3_600));
    }
}

settings! {
    /// A server's table.
    struct ServerKeys from impl Keys {
        /// Starts the server.
        enabled: bool, flag(), like "true";
        /// The program and its arguments.
        command: Vec<String>, texts(&WORD, WORDS_MAX), like "[\"gopls\"]";
        /// The files that the server checks: `"*.go"`, or a whole name.
        files: Vec<Pattern>, texts(&FILES, WORDS_MAX), like "[\"*.go\"]";
        /// The names of files that mark the folder in which the server works.
        root: Vec<String>, texts(&MARK, WORDS_MAX), like "[\"go.mod\"]";
    }
}

/// The settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether servers are started.
    pub enabled: bool,
    /// How long an unused one keeps running.
    pub idle: Duration,
    /// The servers, by the names of their tables.
    pub servers: SortedMap<Arc<str>, Arc<Kind>>,
}

/// One kind of server.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kind {
    /// Whether it is started.
    pub enabled: bool,
    /// The program and its arguments.
    pub command: Vec<String>,
    /// The patterns of its files: `*.rs`, or a whole name.
    pub files: Vec<Pattern>,
    /// The names of files that mark its root folder.
    pub root: Vec<String>,
}

/// A pattern of file names: a whole name, or `*` with a suffix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// This name.
    Name(String),
    /// All with this suffix.
    Suffix(String),
}

/// A built-in server: command, files, root.
type Shipped = (&'static str, &'static [&'static str], &'static [&'static str], &'static [&'static str]);

/// Source: the documentation of each server.
const SHIPPED: [Shipped; 5] = [
    (
        "cpp",
        &["clangd"],
        &["*.c", "*.cc", "*.cpp", "*.h", "*.hpp"],
        &["compile_commands.json", "compile_flags.txt", ".clangd"],
    ),
    ("go", &["gopls"], &["*.go"], &["go.work", "go.mod"]),
    (
        "python",
        &["pyright-langserver", "--stdio"],
        &["*.py", "*.pyi"],
        &["pyrightconfig.json", "pyproject.toml", "setup.py", "requirements.txt"],
    ),
    ("rust", &["rust-analyzer"], &["*.rs"], &["Cargo.toml"]),
    (
        "typescript",
        &["typescript-language-server", "--stdio"],
        &["*.ts", "*.tsx", "*.js", "*.jsx", "*.mts", "*.cts", "*.mjs", "*.cjs"],
        &["tsconfig.json", "package.json"],
    ),
];

const WORD: Form<String> = Form {
    noun: "an argument of a command",
    note: "the program and its arguments are single words: [\"pyright-langserver\", \"--stdio\"]",
    parse: |text| (!text.contains('\0')).then(|| text.to_owned()),
};
const FILES: Form<Pattern> = Form {
    noun: "a pattern of file names",
    note: "files are named like \"*.rs\", or by a whole name",
    parse: Pattern::parse,
};
const MARK: Form<String> = Form {
    noun: "the name of a file",
    note: "a root is marked by the name of a file in it, such as \"Cargo.toml\"",
    parse: |text| (!text.contains(['/', '\0', '*'])).then(|| text.to_owned()),
};

impl Default for Settings {
    fn default() -> Self {
        let words = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let shipped = |(name, command, files, root): Shipped| {
            let files = files.iter().filter_map(|text| Pattern::parse(text)).collect();
            let kind = Kind { enabled: true, command: words(command), files, root: words(root) };
            (name.into(), Arc::new(kind))
        };
        let Own { enabled, idle } = Own::default();
        Self { enabled, idle, servers: SHIPPED.map(shipped).into() }
    }
}

impl Settings {
    /// Reads the table.
    ///
    /// Shape: a table of a built-in server overrides only its given keys. One of another name is
    /// added, and needs a command, files and a root.
    pub fn read(keys: &mut impl Keys) -> Self {
        let Own { enabled, idle } = Own::read(keys);
        let mut servers = Self::default().servers;
        for (name, said) in keys.named("servers", KINDS_MAX, ServerKeys::read) {
            let kind = said.overriding(servers.get(&*name).map(|kind| &**kind));
            servers.insert(name, Arc::new(kind));
        }
        Self { enabled, idle, servers }
    }

    /// The description of the keys.
    pub fn table() -> Table {
        let Table { about, mut keys } = Own::table();
        keys.extend(keys! {
            /// The servers, each a table with a name of your choice. A key that you set replaces the
            /// one here.
            servers: String = shipped_toml(), named(KINDS_MAX, ServerKeys::table().keys);
        });
        Table { about, keys }
    }

    /// The kind of server for a file, by its name; the first one by name.
    pub fn kind_of(&self, path: &str) -> Option<(&Arc<str>, &Arc<Kind>)> {
        let name = path.rsplit('/').next().unwrap_or(path);
        let runs = |kind: &Kind| kind.can_run() && kind.files.iter().any(|files| files.matches(name));
        self.servers.iter().find(|(_, kind)| runs(kind)).map(|(name, kind)| (name, kind))
    }
}

/// The built-in servers as TOML.
fn shipped_toml() -> String {
    let one = |(name, command, files, root): Shipped| {
        format!(
            "{name}.enabled = true\n{name}.command = {command:?}\n{name}.files = {files:?}\n{name}.root = {root:?}\n"
        )
    };
    SHIPPED.map(one).concat()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Suffix(end) => write!(f, "*{end}"),
        }
    }
}

impl Kind {
    /// Whether it is enabled and completely configured.
    fn can_run(&self) -> bool {
        self.enabled && !self.command.is_empty() && !self.root.is_empty()
    }

    /// The name of its program.
    pub fn program(&self) -> &str {
        let program = self.command.first().map_or("", String::as_str);
        program.rsplit('/').next().unwrap_or(program)
    }
}

impl Pattern {
    fn parse(text: &str) -> Option<Self> {
        if text.is_empty() || text.contains(['/', '\0', '?', '[']) {
            return None;
        }
        match text.strip_prefix('*') {
            Some(end) => (!end.is_empty() && !end.contains('*')).then(|| Self::Suffix(end.to_owned())),
            None => (!text.contains('*')).then(|| Self::Name(text.to_owned())),
        }
    }

    fn matches(&self, name: &str) -> bool {
        match self {
            Self::Name(own) => own == name,
            Self::Suffix(end) => name.ends_with(&**end),
        }
    }
}

impl ServerKeys {
    fn overriding(self, kind: Option<&Kind>) -> Kind {
        let kind = kind.cloned().unwrap_or(Kind { enabled: true, ..Kind::default() });
        Kind {
            enabled: self.enabled.unwrap_or(kind.enabled),
            command: self.command.unwrap_or(kind.command),
            files: self.files.unwrap_or(kind.files),
            root: self.root.unwrap_or(kind.root),
        }
    }
}

/// The folder of the server for a file; `exists` returns whether a path exists.
///
/// Shape: the outermost folder with a marker between the session's workspace and the file, because
/// a server finds projects below it. If there is none, or the file is outside of the workspace, the
/// nearest folder with a marker above the file, or `None`.
pub fn root_of(
    path: &str,
    workspace: Option<&str>,
    kind: &Kind,
    exists: &mut dyn FnMut(&str) -> bool,
) -> Option<String> {
    let above = path.match_indices('/').rev().map(|(at, _)| path.get(..at).expect("the position of a slash"));
    let mut marked = above
        .filter(|folder| !folder.is_empty())
        .filter(|folder| kind.root.iter().any(|mark| exists(&format!("{folder}/{mark}"))));
    let workspace = workspace.unwrap_or_default().trim_end_matches('/');
    let is_inside = |folder: &str| {
        let rest = folder.strip_prefix(workspace).filter(|_| !workspace.is_empty());
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut root = marked.next()?;
    while is_inside(root) {
        match marked.next() {
            Some(outer) if is_inside(outer) => root = outer,
            Some(_) | None => break,
        }
    }
    Some(root.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_has_the_server_for_its_name() {
        let mut settings = Settings::default();
        let kind = |settings: &Settings, path: &str| settings.kind_of(path).map(|(name, _)| name.to_string());
        for (path, expected) in [
            ("/w/src/a.rs", Some("rust")),
            ("/w/a.tsx", Some("typescript")),
            ("/w/a.rs.orig", None),
            ("/w/rs", None),
            ("/w/a.pyi", Some("python")),
        ] {
            assert_eq!(kind(&settings, path).as_deref(), expected, "{path}");
        }
        settings.servers.insert("rust".into(), Arc::new(Kind::default()));
        assert_eq!(kind(&settings, "/w/src/a.rs"), None, "it is off");
    }

    #[test]
    fn patterns_are_ends_and_names() {
        for (text, name, expected) in [
            ("*.rs", "a.rs", Some(true)),
            ("*.rs", "a.rsx", Some(false)),
            ("BUILD", "BUILD", Some(true)),
            ("*", "", None),
            ("*.*", "", None),
            ("src/*.rs", "", None),
            ("a*", "", None),
            ("", "", None),
        ] {
            assert_eq!(Pattern::parse(text).map(|pattern| pattern.matches(name)), expected, "{text}");
        }
    }

    #[test]
    fn root_is_outermost_marked_folder_in_workspace() {
        let kind = Kind { root: vec!["Cargo.toml".to_owned()], ..Kind::default() };
        for (path, workspace, marks, expected) in [
            ("/w/crates/a/src/a.rs", Some("/w"), &["/w", "/w/crates/a"][..], Some("/w")),
            ("/w/crates/a/src/a.rs", Some("/w/"), &["/w/crates/a"], Some("/w/crates/a")),
            ("/w/crates/a/src/a.rs", Some("/w/crates/a"), &["/w", "/w/crates/a"], Some("/w/crates/a")),
            ("/w/src/a.rs", Some("/w/src"), &["/w", "/"], Some("/w")),
            ("/v/b/a.rs", Some("/w"), &["/v", "/v/b"], Some("/v/b")),
            ("/wide/b/a.rs", Some("/w"), &["/wide", "/wide/b"], Some("/wide/b")),
            ("/w/a.rs", None, &["/w"], Some("/w")),
            ("/w/a.rs", Some("/w"), &[], None),
            ("a.rs", Some("/w"), &[], None),
        ] {
            let mut exists = |path: &str| marks.iter().any(|mark| format!("{mark}/Cargo.toml") == path);
            assert_eq!(
                root_of(path, workspace, &kind, &mut exists).as_deref(),
                expected,
                "{path} {workspace:?}"
            );
        }
    }
}
