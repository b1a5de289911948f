//! Whether a body comes from whom it says, which is found out before it is read, in constant time.
//!
//! Sources: GitHub, "Validating webhook deliveries" (`X-Hub-Signature-256`, an HMAC-SHA256 of the body in hex); Forgejo, "Webhooks" (the same
//! without its prefix); GitLab, "Webhooks" (the secret itself, or a Standard Webhooks signature); Standard Webhooks 1.0 (an HMAC-SHA256 of
//! `id.timestamp.body` in base64 after `v1,`, several with blanks between them, and a secret `whsec_` in base64).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::{Headers, Kind};
use crate::time::Timestamp;

/// How far the time of a signature may be from now, in seconds; an older body may be one that somebody sends again.
///
/// Source: the reference implementations of Standard Webhooks.
const TOLERANCE_SECONDS: u64 = 5 * 60;
/// What a secret of Standard Webhooks begins with.
const SECRET_PREFIX: &str = "whsec_";
/// What a symmetric signature of Standard Webhooks begins with.
const VERSION_PREFIX: &str = "v1,";

/// Why a body is not believed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header is not there.
    #[error("the header `{0}` is missing")]
    Missing(&'static str),
    /// It is signed by somebody else, or changed on its way.
    #[error("the signature is not that of this secret and this body")]
    Signature,
    /// It was signed too long ago, or will be.
    #[error("it was signed more than {} minutes from now: the clocks differ, or somebody sends it again", TOLERANCE_SECONDS / 60)]
    Time,
    /// The secret cannot be one.
    #[error("the secret is not what `{0}` signs with")]
    Secret(Kind),
}

/// Checks that somebody who knows `secret` sent `body`; gives the sender's id of the delivery, if it has one.
///
/// Errors: it is not signed so, or not now.
pub fn check(
    kind: Kind,
    headers: Headers<'_>,
    body: &[u8],
    secret: &str,
    now: Timestamp,
) -> Result<Option<String>, Refused> {
    match kind {
        Kind::Github => {
            let sent = required(headers, "x-hub-signature-256")?;
            hex_is(sent.strip_prefix("sha256=").unwrap_or_default(), body, secret.as_bytes())?;
            Ok(headers("x-github-delivery"))
        }
        Kind::Forgejo => {
            let sent = headers("x-forgejo-signature").or_else(|| headers("x-gitea-signature"));
            hex_is(&sent.ok_or(Refused::Missing("x-forgejo-signature"))?, body, secret.as_bytes())?;
            Ok(headers("x-forgejo-delivery").or_else(|| headers("x-gitea-delivery")))
        }
        Kind::Gitlab if headers("webhook-signature").is_none() => {
            let sent = required(headers, "x-gitlab-token")?;
            is_equal(sent.as_bytes(), secret.as_bytes())?;
            Ok(headers("idempotency-key").or_else(|| headers("x-gitlab-event-uuid")))
        }
        Kind::Gitlab | Kind::Standard => standard(headers, body, secret, now, kind).map(Some),
        // It signs nothing; who may send is said by a token of the daemon.
        Kind::Alertmanager => Err(Refused::Secret(kind)),
    }
}

/// The HMAC-SHA256 of `parts`, one after the other.
pub fn hmac_sha256(secret: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length is one");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

fn required(headers: Headers<'_>, name: &'static str) -> Result<String, Refused> {
    headers(name).ok_or(Refused::Missing(name))
}

fn is_equal(sent: &[u8], own: &[u8]) -> Result<(), Refused> {
    // An empty secret would let everybody in.
    if own.is_empty() || !bool::from(sent.ct_eq(own)) { Err(Refused::Signature) } else { Ok(()) }
}

fn hex_is(sent: &str, body: &[u8], secret: &[u8]) -> Result<(), Refused> {
    let own: String = hmac_sha256(secret, &[body]).iter().map(|byte| format!("{byte:02x}")).collect();
    if secret.is_empty() { Err(Refused::Signature) } else { is_equal(sent.as_bytes(), own.as_bytes()) }
}

fn standard(
    headers: Headers<'_>,
    body: &[u8],
    secret: &str,
    now: Timestamp,
    kind: Kind,
) -> Result<String, Refused> {
    let id = required(headers, "webhook-id")?;
    let time = required(headers, "webhook-timestamp")?;
    let sent = required(headers, "webhook-signature")?;
    let seconds: u64 = time.parse().map_err(|_| Refused::Time)?;
    if seconds.abs_diff(now.as_millis() / 1_000) > TOLERANCE_SECONDS {
        return Err(Refused::Time);
    }
    let encoded = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    let key = BASE64_STANDARD.decode(encoded).ok().filter(|key| !key.is_empty());
    let key = key.ok_or(Refused::Secret(kind))?;
    let own = BASE64_STANDARD.encode(hmac_sha256(&key, &[id.as_bytes(), b".", time.as_bytes(), b".", body]));
    // All are compared, so that how long it takes says nothing.
    let signatures = sent.split(' ').filter_map(|one| one.strip_prefix(VERSION_PREFIX));
    let fits = signatures.filter(|one| is_equal(one.as_bytes(), own.as_bytes()).is_ok()).count();
    if fits == 0 { Err(Refused::Signature) } else { Ok(id) }
}
