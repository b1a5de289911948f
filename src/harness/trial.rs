//! Harnesses for tests: one of each form that no shipped harness has.

use engine::exchange::{Conversations, Format};
use hook::harness::header;

use crate::harness::{
    installation::{ExtensionFolder, Program, Version},
    kind::{ApiExtension, Caps, Client, ClientFiles, Form, Kind, Variables},
};

/// The code of [`OWN`].
pub(crate) const CODE: &str = "export default () => {};\n";

/// All of them.
pub(crate) const KINDS: [&Kind; 2] = [&EXTENSION, &PROXY];

/// A client that loads an extension of two files.
pub(crate) static EXTENSION: Kind = Kind {
    word: "trial",
    title: "Trial Client",
    caps: caps("trial-client"),
    form: Form::Extension(&OWN),
    transcript: None,
    native: &[],
};

/// The extension of [`EXTENSION`].
pub(crate) const OWN: ApiExtension = ApiExtension {
    client: Client {
        program: Program { name: "trial", update: "trial update", lacks: &[] },
        files: ClientFiles { folder: ".trial", sessions: None },
        variables: Variables {
            forwarded: &[(header::SESSION, "TRIAL_SESSION")],
            folder: None,
            prefixes: &["TRIAL"],
        },
    },
    what: "an add-on that notifies its agent",
    folder: ExtensionFolder {
        word: "add-on",
        since: Version([1, 0, 0]),
        path: "extensions/aside",
        files: &[("package.json", r#"{ "name": "aside" }"#), ("index.ts", CODE)],
        manifest: "package.json",
    },
};

/// A command that runs an agent.
pub(crate) static PROXY: Kind = Kind {
    word: "relay",
    title: "Trial Proxy",
    caps: caps("trial-proxy"),
    form: Form::Proxy,
    transcript: None,
    native: &[],
};

const fn caps(name: &'static str) -> Caps {
    Caps { name, chars_max: 8_000, format: Format::Toon, conversations: Conversations::Many }
}
