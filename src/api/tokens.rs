//! Tokens for access over TCP, and their scopes.
//!
//! A token file has one token a line: the token, its scopes separated by commas, and a note for
//! users. Empty lines and lines that begin with `#` are ignored; a token without scopes has all.
//!
//! ```text
//! 6b1f..9c
//! 90aa..07  publish           the build server
//! 1c33..f2  publish,exchange  an agent in a container
//! ```
//!
//! The file is checked again for each request, so a change takes effect at once. A file that others
//! may read, or that cannot be read, admits no client.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
};

use axum::http::Method;
use engine::{hex::hex, words::Words};
use strum::{IntoStaticStr, VariantArray};
use subtle::ConstantTimeEq;

use crate::daemon::regular_file;

/// Path of the webhooks; the sender's name follows.
pub(crate) const WEBHOOKS_PATH: &str = "/v1/webhooks/";
/// Path to which Prometheus posts alerts for an Alertmanager.
pub(crate) const ALERTS_PATH: &str = "/api/v2/alerts";
/// Random bytes of a new token: 256 bits.
const TOKEN_BYTES: usize = 32;
/// Fewest characters of a token, so that it cannot be guessed.
const TOKEN_CHARS_MIN: usize = 16;
/// Largest token file, in bytes: some thousand tokens.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The permission that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, strum::Display, VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum Scope {
    /// Publish events
    Publish,
    /// Be an agent's harness: exchanges, hooks, waiting for notifications
    Exchange,
    /// Look: events, history, sessions, status, metrics
    Read,
    /// Everything, also to decide for the user
    Admin,
}

impl Scope {
    /// The scope that a request needs; `None` if any token is enough. Unlisted requests need
    /// [`Scope::Admin`].
    pub(super) fn needed(method: &Method, path: &str) -> Option<Self> {
        let is_harness =
            ["/v1/sessions/", "/v1/hooks/", "/v1/statusline/"].iter().any(|begin| path.starts_with(begin));
        let is_response = path.starts_with("/v1/notifications/") && path.ends_with("/respond");
        match path {
            "/healthz" | "/v1/openapi.json" | "/v1/instructions" | "/v1/formats" => None,
            "/v1/events" | ALERTS_PATH if method == Method::POST => Some(Self::Publish),
            _ if path.starts_with(WEBHOOKS_PATH) => Some(Self::Publish),
            _ if is_harness || is_response => Some(Self::Exchange),
            _ if method == Method::GET || method == Method::HEAD => Some(Self::Read),
            _ => Some(Self::Admin),
        }
    }
}

impl FromStr for Scope {
    type Err = UnknownScope;

    fn from_str(text: &str) -> Result<Self, UnknownScope> {
        Self::of_word(text).ok_or_else(|| UnknownScope(text.to_owned()))
    }
}

/// An unknown scope name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a scope; use publish, exchange, read or admin")]
pub struct UnknownScope(String);

/// One line of a token file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    secret: String,
    /// Its scopes, at least one.
    pub scopes: Vec<Scope>,
    /// Its note for users, or empty.
    pub note: String,
}

impl Token {
    /// Whether it has `scope`.
    pub(super) fn allows(&self, scope: Scope) -> bool {
        self.scopes.iter().any(|own| *own == scope || *own == Scope::Admin)
    }

    /// The first characters of the token, which identify its line.
    pub fn begin(&self) -> &str {
        self.secret.get(..8).expect("a token has at least 16 ASCII characters")
    }
}

/// Why a token file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It cannot be read or written.
    #[error("use the token file {}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// Others may read or write it.
    #[error("use the token file {}, which other users can access (mode {mode:o}): chmod 600 it", path.display())]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// Its contents are invalid.
    #[error(
        "use the token file {}: {why}; fix it, or delete it with `rm '{}'`: the next start creates a new token",
        path.display(), path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The problem, with the line number if known.
        why: String,
    },
}

/// The tokens of a file, reloaded on change.
#[derive(Debug)]
pub struct Tokens {
    path: PathBuf,
    read: Mutex<(Stamp, Arc<[Token]>)>,
}

/// Metadata that changes with a file's contents or permissions.
type Stamp = Option<(u64, u64, i64, i64, u32)>;

impl Tokens {
    /// Reads the tokens in `path`; creates the file with a token of all scopes if it does not
    /// exist.
    pub fn open(path: &Path) -> Result<Self, TokensError> {
        let stamp = stamp(path);
        if stamp.is_none() {
            add(path, &[], "")?;
        }
        let tokens = load(path)?;
        Ok(Self { path: path.to_owned(), read: Mutex::new((stamp, tokens.into())) })
    }

    /// The token equal to `sent`, if there is one.
    pub(super) fn find(&self, sent: &str) -> Option<Token> {
        let tokens = self.current();
        let mut found = None;
        // Compares every token, so that the time does not depend on the match.
        for token in tokens.iter() {
            if token.secret.as_bytes().ct_eq(sent.as_bytes()).into() {
                found = Some(token.clone());
            }
        }
        found
    }

    fn current(&self) -> Arc<[Token]> {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.path);
        if stamp != read.0 {
            let tokens = load(&self.path).unwrap_or_else(|error| {
                tracing::error!(error = &error as &dyn std::error::Error, "no token is accepted");
                Vec::new()
            });
            *read = (stamp, tokens.into());
        }
        Arc::clone(&read.1)
    }
}

fn stamp(path: &Path) -> Stamp {
    let found = fs::metadata(path).ok()?;
    Some((found.ino(), found.len(), found.mtime(), found.mtime_nsec(), found.mode()))
}

/// Reads a token file.
///
/// Errors: also a file that others can read, because its tokens are not secret.
pub fn load(path: &Path) -> Result<Vec<Token>, TokensError> {
    let failed = |source| TokensError::File { path: path.to_owned(), source };
    let (file, about) = regular_file::open(path).map_err(failed)?;
    let mode = about.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokensError::OpenToOthers { path: path.to_owned(), mode });
    }
    let bytes = regular_file::read_whole(file, FILE_BYTES_MAX).map_err(failed)?;
    let content = |why: &str| TokensError::Content { path: path.to_owned(), why: why.to_owned() };
    let text = String::from_utf8(bytes).map_err(|_| content("it is not text"))?;
    let tokens = parse(&text).map_err(|(line, why)| content(&format!("line {line}: {why}")))?;
    if tokens.is_empty() { Err(content("it has no token")) } else { Ok(tokens) }
}

/// Parses the lines of a token file; an error is a line number, from 1, and the problem.
fn parse(text: &str) -> Result<Vec<Token>, (usize, String)> {
    let mut tokens = Vec::new();
    for (number, line) in (1..).zip(text.lines().map(str::trim)) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let (secret, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        if secret.len() < TOKEN_CHARS_MIN {
            return Err((number, format!("a token has at least {TOKEN_CHARS_MIN} characters")));
        }
        if !secret.is_ascii() {
            return Err((
                number,
                "a token has ASCII characters only, because a header carries it".to_owned(),
            ));
        }
        let (scopes, note) = rest.trim().split_once(char::is_whitespace).unwrap_or((rest.trim(), ""));
        let scopes = match scopes {
            "" => vec![Scope::Admin],
            listed => listed
                .split(',')
                .map(|scope| scope.parse().map_err(|error: UnknownScope| (number, error.to_string())))
                .collect::<Result<_, _>>()?,
        };
        tokens.push(Token { secret: secret.to_owned(), scopes, note: note.trim().to_owned() });
    }
    Ok(tokens)
}

/// Creates a token, adds it to the file at `path`, which is created if needed, and returns it.
///
/// Shape: a token without scopes has all, and its line is the token alone, so that a file of one
/// token can be used by programs that send a file's contents. Control characters are removed from
/// `note`.
pub fn add(path: &Path, scopes: &[Scope], note: &str) -> Result<String, TokensError> {
    let failed = |source| TokensError::File { path: path.to_owned(), source };
    let mut random = [0; TOKEN_BYTES];
    File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut random)).map_err(failed)?;
    let secret = hex(&random);
    let scopes: Vec<&str> = scopes.iter().map(Into::into).collect();
    let note: String = note.chars().filter(|c| !c.is_control()).collect();
    let line = format!("{secret} {} {note}", scopes.join(","));
    let mut file = OpenOptions::new().append(true).create(true).mode(0o600).open(path).map_err(failed)?;
    // A file written by hand may lack the final newline.
    let is_begun = !ends_with_newline(path).map_err(failed)?;
    let begin = if is_begun { "\n" } else { "" };
    file.write_all(format!("{begin}{}\n", line.trim_end()).as_bytes()).map_err(failed)?;
    Ok(secret)
}

fn ends_with_newline(path: &Path) -> io::Result<bool> {
    let text = regular_file::read(path, FILE_BYTES_MAX)?;
    Ok(text.last().is_none_or(|last| *last == b'\n'))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const LONG: &str = "0123456789abcdef";

    #[test]
    fn token_line_holds_token_scopes_and_note() {
        let text = format!("# mine\n\n{LONG}\n  {LONG}1 publish\n{LONG}2\tread,exchange  two words \n");
        let token = |end: &str, scopes: &[Scope], note: &str| Token {
            secret: format!("{LONG}{end}"),
            scopes: scopes.to_vec(),
            note: note.to_owned(),
        };
        let expected = [
            token("", &[Scope::Admin], ""),
            token("1", &[Scope::Publish], ""),
            token("2", &[Scope::Read, Scope::Exchange], "two words"),
        ];
        assert_eq!(parse(&text), Ok(expected.to_vec()));
        for (text, line, why) in [
            ("short", 1, "a token has at least 16 characters"),
            ("0123456789abcd\u{e9}", 1, "a token has ASCII characters only, because a header carries it"),
            (
                &*format!("{LONG}\n{LONG} all"),
                2,
                "`all` is not a scope; use publish, exchange, read or admin",
            ),
        ] {
            assert_eq!(parse(text), Err((line, why.to_owned())));
        }
    }

    #[test]
    fn invalid_token_file_error_names_the_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        for (bytes, why) in [
            (&b"0123456789abcdef\xff\n"[..], "it is not text"),
            (b"#0123456789abcdef\n", "it has no token"),
            (b"\n0123\n", "line 2: a token has at least 16 characters"),
        ] {
            fs::write(&path, bytes).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its own");
            let error = Tokens::open(&path).expect_err("no token").to_string();
            assert!(error.contains(&format!("{}: {why}; fix it", path.display())), "{error}");
            fs::remove_file(&path).expect("as it says");
            Tokens::open(&path).expect("a new one");
            fs::remove_file(&path).expect("made");
        }
    }

    #[test]
    fn unlisted_route_requires_admin_scope() {
        let needed = |method: &str, path: &str| Scope::needed(&method.parse().expect("a method"), path);
        for (method, path, scope) in [
            ("GET", "/healthz", None),
            ("POST", "/v1/events", Some(Scope::Publish)),
            ("GET", "/v1/events", Some(Scope::Read)),
            ("GET", "/v1/events/stream", Some(Scope::Read)),
            ("GET", "/metrics", Some(Scope::Read)),
            ("GET", "/v1/sessions", Some(Scope::Read)),
            ("POST", "/v1/sessions/s1/exchange", Some(Scope::Exchange)),
            ("GET", "/v1/sessions/s1/wait", Some(Scope::Exchange)),
            ("POST", "/v1/hooks/claude", Some(Scope::Exchange)),
            ("POST", "/v1/notifications/n1/dismiss", Some(Scope::Admin)),
            ("POST", "/v1/reload", Some(Scope::Admin)),
            ("POST", "/v1/trust", Some(Scope::Admin)),
            ("POST", "/v1/admin/rebuild", Some(Scope::Admin)),
            ("DELETE", "/v1/events", Some(Scope::Admin)),
        ] {
            assert_eq!(needed(method, path), scope, "{method} {path}");
        }
    }

    #[test]
    fn token_file_is_private_and_reread_on_change() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("token");
        let tokens = Tokens::open(&path).expect("made");
        assert_eq!(fs::metadata(&path).expect("there").mode() & 0o777, 0o600);
        let made = fs::read_to_string(&path).expect("text");
        let own = made.trim_end();
        assert_eq!(own.len(), 2 * TOKEN_BYTES);
        assert!(tokens.find(own).expect("known").allows(Scope::Admin));
        assert_eq!((tokens.find(""), tokens.find(&own[1..])), (None, None));
        let added = add(&path, &[Scope::Publish], "ci\n").expect("added");
        let found = tokens.find(&added).expect("it counts at once");
        assert!(found.allows(Scope::Publish) && !found.allows(Scope::Read));
        assert_eq!(found.note, "ci");
        fs::write(&path, made.replace('\n', "")).expect("written");
        assert_eq!(tokens.find(&added), None, "it was taken out");
        let added = add(&path, &[Scope::Read], "").expect("added");
        assert!(tokens.find(own).is_some() && tokens.find(&added).is_some());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("its own");
        assert_eq!(tokens.find(own), None, "others may know it");
        let error = Tokens::open(&path).expect_err("open to others").to_string();
        assert!(error.ends_with("which other users can access (mode 640): chmod 600 it"), "{error}");
    }
}
