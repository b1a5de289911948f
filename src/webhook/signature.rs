//! Whether a body comes from whom it says, which is found out before it is read, in constant time.
//!
//! Sources: GitHub, "Validating webhook deliveries" (`X-Hub-Signature-256`, an HMAC-SHA256 of the
//! body in hex); Forgejo, "Webhooks" (the same without its prefix); GitLab, "Webhooks" (the secret
//! itself, or a Standard Webhooks signature); Standard Webhooks 1.0 (an HMAC-SHA256 of
//! `id.timestamp.body` in base64 after `v1,`, several with blanks between them, and a secret
//! `whsec_` in base64).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use super::{Headers, Kind};
use crate::{hex::hex, time::Timestamp};

/// How far the time of a signature may be from now, in seconds; an older body may be one that
/// somebody sends again.
///
/// Source: the reference implementations of Standard Webhooks.
const TOLERANCE_SECONDS: u64 = 5 * 60;
/// What a secret of Standard Webhooks begins with.
const SECRET_PREFIX: &str = "whsec_";
/// What a symmetric signature of Standard Webhooks begins with.
const VERSION_PREFIX: &str = "v1,";
/// The header with the signatures of Standard Webhooks.
const STANDARD_HEADER: &str = "webhook-signature";

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
    #[error("it was signed more than {} minutes from now: the clocks differ, or it is a replay", TOLERANCE_SECONDS / 60)]
    Time,
    /// The secret cannot be one.
    #[error("the secret is not what `{0}` signs with")]
    Secret(Kind),
}

/// Checks that somebody who knows `secret` sent `body`; gives the sender's id of the delivery, if
/// it has one.
///
/// Errors: it is not signed so, or not now.
pub fn check(
    kind: Kind,
    headers: Headers<'_>,
    body: &[u8],
    secret: &str,
    now: Timestamp,
) -> Result<Option<String>, Refused> {
    let sent = sent(kind, headers)?;
    match kind {
        Kind::Github => {
            hex_is(sent.strip_prefix("sha256=").unwrap_or_default(), body, secret.as_bytes())?;
            Ok(headers("x-github-delivery"))
        }
        Kind::Forgejo => {
            hex_is(&sent, body, secret.as_bytes())?;
            Ok(headers("x-forgejo-delivery").or_else(|| headers("x-gitea-delivery")))
        }
        Kind::Gitlab if headers(STANDARD_HEADER).is_none() => {
            is_equal(sent.as_bytes(), secret.as_bytes())?;
            Ok(headers("idempotency-key").or_else(|| headers("x-gitlab-event-uuid")))
        }
        Kind::Gitlab | Kind::Standard => {
            let (id, time) = (required(headers, "webhook-id")?, required(headers, "webhook-timestamp")?);
            is_now(&time, now)?;
            let key = standard_key(secret).ok_or(Refused::Secret(kind))?;
            let own = standard_signature(&key, &id, &time, body);
            // All are compared, so that how long it takes says nothing.
            let fits = sent.split(' ').filter(|one| is_equal(one.as_bytes(), own.as_bytes()).is_ok()).count();
            if fits == 0 { Err(Refused::Signature) } else { Ok(Some(id)) }
        }
        Kind::Alertmanager => Err(Refused::Secret(kind)),
    }
}

/// What a sender signed with, or the token that it sends instead; it is there before a body is
/// worth reading.
///
/// Errors: there is none.
pub fn sent(kind: Kind, headers: Headers<'_>) -> Result<String, Refused> {
    let names: &[&'static str] = match kind {
        Kind::Github => &["x-hub-signature-256"],
        Kind::Forgejo => &["x-forgejo-signature", "x-gitea-signature"],
        Kind::Gitlab => &[STANDARD_HEADER, "x-gitlab-token"],
        Kind::Standard => &[STANDARD_HEADER],
        // It signs nothing; who may send is said by a token of the daemon.
        Kind::Alertmanager => &[],
    };
    let missing = names.last().map_or(Refused::Secret(kind), |name| Refused::Missing(name));
    names.iter().find_map(|name| headers(name)).ok_or(missing)
}

/// The bytes that a secret of Standard Webhooks means; `None` if it is no base64, or means nothing.
pub fn standard_key(secret: &str) -> Option<Vec<u8>> {
    let encoded = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    BASE64_STANDARD.decode(encoded).ok().filter(|key| !key.is_empty())
}

/// What Standard Webhooks sign a body with, as it is written in the header.
pub fn standard_signature(key: &[u8], id: &str, seconds: &str, body: &[u8]) -> String {
    let signed = hmac_sha256(key, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body]);
    format!("{VERSION_PREFIX}{}", BASE64_STANDARD.encode(signed))
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
    let own = hex(&hmac_sha256(secret, &[body]));
    if secret.is_empty() { Err(Refused::Signature) } else { is_equal(sent.as_bytes(), own.as_bytes()) }
}

/// Whether a time in seconds is near enough to now.
fn is_now(time: &str, now: Timestamp) -> Result<(), Refused> {
    let seconds: u64 = time.parse().map_err(|_| Refused::Time)?;
    let apart = seconds.abs_diff(now.as_millis() / 1_000);
    if apart > TOLERANCE_SECONDS { Err(Refused::Time) } else { Ok(()) }
}
