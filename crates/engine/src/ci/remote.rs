//! The repository at GitHub that a folder's remotes name, decided from git's settings as text.
//!
//! `gh` would run git in the folder to find it, and git would run what the repository's settings
//! name.

use serde::{Deserialize, Serialize};

const GITHUB: &str = "github.com";
/// Other names of that host: the one for ssh on port 443, and the one of the web.
const ALSO_GITHUB: [&str; 2] = ["ssh.github.com", "www.github.com"];
/// The remotes that `gh` prefers, the most preferred first.
///
/// Source: `gh help repo set-default`, and its source, `context/remote.go`.
const PREFERRED: [&str; 3] = ["upstream", "github", "origin"];
/// Longest accepted name of a host, an owner or a repository.
const NAME_CHARS_MAX: usize = 100;

/// A repository at GitHub.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Remote {
    /// `github.com`, or the host of another server of GitHub.
    pub host: String,
    /// The user or the organisation.
    pub owner: String,
    /// Its name.
    pub name: String,
}

/// The hosts to which `gh` may send the user's login.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hosts {
    known: Vec<String>,
    default: String,
}

impl Hosts {
    /// The hosts of the file `hosts.yml` of `gh`, and that of the variable `GH_HOST`.
    ///
    /// Source: the manual of `gh`; each login is under the name of its host, which begins a line.
    pub fn read(logins: &str, variable: Option<&str>) -> Self {
        let is_name = |line: &&str| !line.starts_with([' ', '\t', '#', '-']);
        let hosts = logins.lines().filter(is_name).filter_map(|line| line.trim_end().strip_suffix(':'));
        let hosts = hosts.map(|host| host.trim_matches(['"', '\'']).to_lowercase());
        let variable = variable.filter(|host| !host.is_empty()).map(str::to_lowercase);
        let default = variable.clone().unwrap_or_else(|| GITHUB.to_owned());
        Self { known: hosts.chain(variable).chain([GITHUB.to_owned()]).collect(), default }
    }

    /// The known host that `host` of an address means. A name of the user's ssh settings counts as
    /// the default host.
    fn find(&self, host: &str, is_ssh: bool) -> Option<&str> {
        let host = host.to_lowercase();
        let host = if ALSO_GITHUB.contains(&&*host) { GITHUB } else { &host };
        let is_abbreviation = is_ssh && (!host.contains('.') || host.starts_with("github.com-"));
        let known = self.known.iter().find(|known| *known == host);
        known.map(String::as_str).or_else(|| is_abbreviation.then_some(&*self.default))
    }
}

/// The settings that git prints with `--null`: names, with their sections in small letters, and
/// values.
fn settings(printed: &[u8]) -> impl Iterator<Item = (&str, &str)> {
    let lines = printed.split(|byte| *byte == 0).filter_map(|setting| std::str::from_utf8(setting).ok());
    lines.filter_map(|setting| setting.split_once('\n'))
}

/// Whether the ids of a repository with these settings have 64 digits.
pub fn has_long_ids(printed: &[u8]) -> bool {
    settings(printed).any(|(name, value)| name == "extensions.objectformat" && value == "sha256")
}

impl Remote {
    /// The repository that the remotes in the settings of a repository name; `None` if none of them
    /// is at a known host. `abbreviations` are the user's settings for addresses.
    pub fn find(printed: &[u8], abbreviations: &[u8], hosts: &Hosts) -> Option<Self> {
        let mut remotes: Vec<(usize, &str)> = settings(printed)
            .filter_map(|(name, url)| {
                let name = name.strip_prefix("remote.")?.strip_suffix(".url")?;
                let rank = PREFERRED.iter().position(|preferred| *preferred == name);
                Some((rank.unwrap_or(PREFERRED.len()), url))
            })
            .collect();
        remotes.sort_by_key(|(rank, _)| *rank);
        remotes.into_iter().find_map(|(_, url)| Self::read_url(&in_full(url, abbreviations), hosts))
    }

    /// Its name for `gh`.
    pub fn full_name(&self) -> String {
        format!("{}/{}/{}", self.host, self.owner, self.name)
    }

    /// Source: git-clone(1), "GIT URLS".
    fn read_url(url: &str, hosts: &Hosts) -> Option<Self> {
        let (host, path, is_ssh) = match url.split_once("://") {
            Some((scheme, rest)) => {
                let is_ssh = match scheme {
                    "ssh" | "git+ssh" | "ssh+git" => true,
                    "https" | "http" | "git" => false,
                    _ => return None,
                };
                let (host, path) = rest.split_once('/')?;
                (host, path, is_ssh)
            }
            None => {
                let (host, path) = url.split_once(':').filter(|(host, _)| !host.contains('/'))?;
                (host, path, true)
            }
        };
        let host = host.rsplit('@').next()?;
        let host = host.split_once(':').map_or(host, |(host, _)| host);
        let path = path.trim_matches('/');
        let (owner, name) = path.strip_suffix(".git").unwrap_or(path).split_once('/')?;
        if ![host, owner, name].into_iter().all(is_name) {
            return None;
        }
        let host = hosts.find(host, is_ssh)?.to_owned();
        Some(Self { host, owner: owner.to_owned(), name: name.to_owned() })
    }
}

fn is_name(name: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=NAME_CHARS_MAX).contains(&name.len()) && name.bytes().all(is_allowed) && !name.starts_with('-')
}

/// An address with the user's longest abbreviation written out.
///
/// Source: git-config(1), `url.<base>.insteadOf`.
fn in_full(url: &str, abbreviations: &[u8]) -> String {
    let found = settings(abbreviations)
        .filter_map(|(name, short)| {
            let base = name.strip_prefix("url.")?.strip_suffix(".insteadof")?;
            Some((short.len(), base, url.strip_prefix(short)?))
        })
        .max_by_key(|(length, ..)| *length);
    found.map_or_else(|| url.to_owned(), |(_, base, rest)| format!("{base}{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(settings: &[(&str, &str)]) -> Vec<u8> {
        settings.iter().map(|(name, value)| format!("{name}\n{value}\0")).collect::<String>().into()
    }

    #[test]
    fn an_address_names_a_repository() {
        let hosts = Hosts::read("github.com:\n    user: a\n\"git.corp.example\":\n  x: y\n", None);
        for (url, expected) in [
            ("https://github.com/acme/shop.git", "github.com/acme/shop"),
            ("https://user:pw@github.com:443/acme/shop/", "github.com/acme/shop"),
            ("git@github.com:acme/shop.git", "github.com/acme/shop"),
            ("ssh://git@ssh.github.com:443/acme/shop", "github.com/acme/shop"),
            ("git@github-work:acme/shop", "github.com/acme/shop"),
            ("git@github.com-work:acme/shop", "github.com/acme/shop"),
            ("https://GIT.corp.example/acme/shop", "git.corp.example/acme/shop"),
            ("gh:acme/a.b", "github.com/acme/a.b"),
            ("https://evil.example/acme/shop", ""),
            ("git@evil.example:acme/shop", ""),
            ("https://github.com.evil.example/acme/shop", ""),
            ("https://github-work/acme/shop", ""),
            ("https://github.com/acme/shop/tree", ""),
            ("https://github.com/-acme/shop", ""),
            ("https://github.com/acme", ""),
            ("ext::sh -c x", ""),
            ("/srv/acme/shop.git", ""),
            ("../up", ""),
            ("file:///acme/shop", ""),
        ] {
            let remote = Remote::find(&printed(&[("remote.origin.url", url)]), b"", &hosts);
            assert_eq!(remote.map(|remote| remote.full_name()).unwrap_or_default(), expected, "{url}");
        }
    }

    #[test]
    fn the_preferred_remote_is_taken() {
        let hosts = Hosts::read("", Some("ghe.example"));
        let settings = printed(&[
            ("remote.a.b.url", "https://github.com/a/b"),
            ("remote.origin.url", "https://github.com/fork/shop"),
            ("remote.upstream.url", "short:acme/shop"),
            ("remote.upstream.fetch", "https://github.com/x/y"),
        ]);
        let abbreviations = printed(&[
            ("url.https://evil.example/.insteadof", "sho"),
            ("url.https://ghe.example/.insteadof", "short:"),
        ]);
        let found =
            |abbreviations| Remote::find(&settings, abbreviations, &hosts).map(|remote| remote.full_name());
        assert_eq!(found(&abbreviations).as_deref(), Some("ghe.example/acme/shop"));
        // Without the abbreviation it is a name of the user's ssh settings.
        assert_eq!(found(b"").as_deref(), Some("ghe.example/acme/shop"));
        assert_eq!(Remote::find(b"\xff\0remote.origin.url", b"", &hosts), None);
    }

    #[test]
    fn settings_say_how_long_ids_are() {
        assert!(has_long_ids(&printed(&[("core.bare", "false"), ("extensions.objectformat", "sha256")])));
        assert!(!has_long_ids(&printed(&[("extensions.objectformat", "sha1")])));
    }
}
