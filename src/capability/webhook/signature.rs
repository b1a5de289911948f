//! Verifies the sender of a body, before the body is parsed and in constant time.
//!
//! Sources: GitHub, "Validating webhook deliveries" (`X-Hub-Signature-256`, an HMAC-SHA256 of the
//! body in hex); Forgejo, "Webhooks" (the same without its prefix); GitLab, "Webhooks" (the secret
//! itself, or a Standard Webhooks signature); Standard Webhooks 1.0 (an HMAC-SHA256 of
//! `id.timestamp.body` in base64 after `v1,`, several separated by spaces, and a secret `whsec_` in
//! base64).

use base64::{Engine as _, prelude::BASE64_STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use super::{Headers, Kind};
use engine::hex::hex;
use journal::time::Timestamp;

/// Largest difference between the time of a signature and now, in seconds; an older body may be a
/// replay.
///
/// Source: the reference implementations of Standard Webhooks.
const TOLERANCE_SECONDS: u64 = 5 * 60;
/// The prefix of a Standard Webhooks secret.
const SECRET_PREFIX: &str = "whsec_";
/// The prefix of a symmetric Standard Webhooks signature.
const VERSION_PREFIX: &str = "v1,";
/// The header with the signatures of Standard Webhooks.
const STANDARD_HEADER: &str = "webhook-signature";

/// Why a body is rejected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A header is missing.
    #[error("the header `{0}` is missing")]
    Missing(&'static str),
    /// It was signed by another sender, or changed in transit.
    #[error("the signature is not that of this secret and this body")]
    Signature,
    /// The time of its signature is too far in the past or in the future.
    #[error("it was signed more than {} minutes from now: the clocks differ, or it is a replay", TOLERANCE_SECONDS / 60)]
    Time,
    /// The secret is not valid for this kind.
    #[error("the secret is not what `{0}` signs with")]
    Secret(Kind),
}

/// Checks that the sender of `body` knows `secret`; returns an id of the delivery, if there is one.
///
/// Shape: the id is the sender's, if it is signed. GitHub and Forgejo sign the body only, so a
/// captured delivery could be sent again under another id, or as another event; the id is made of
/// the body there.
///
/// Errors: the signature is missing or wrong, or its time is too far from now.
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
            Ok(Some(signed_id(body)))
        }
        Kind::Forgejo => {
            hex_is(&sent, body, secret.as_bytes())?;
            Ok(Some(signed_id(body)))
        }
        Kind::Gitlab if headers(STANDARD_HEADER).is_none() => {
            is_equal(sent.as_bytes(), secret.as_bytes())?;
            // The UUID is the same for all events that an event led to.
            let of_event = || Some(format!("{}:{}", headers("x-gitlab-event-uuid")?, signed_id(body)));
            Ok(headers("idempotency-key").or_else(of_event))
        }
        Kind::Gitlab | Kind::Standard => {
            let (id, time) = (required(headers, "webhook-id")?, required(headers, "webhook-timestamp")?);
            is_now(&time, now)?;
            let key = standard_key(secret).ok_or(Refused::Secret(kind))?;
            let own = standard_signature(&key, &id, &time, body);
            // All are compared, so that the duration reveals nothing.
            let fits = sent.split(' ').filter(|one| is_equal(one.as_bytes(), own.as_bytes()).is_ok()).count();
            if fits == 0 { Err(Refused::Signature) } else { Ok(Some(id)) }
        }
        Kind::Alertmanager => Err(Refused::Secret(kind)),
    }
}

/// The signature of a sender, or the token that it sends instead; callers check this before they
/// read the body.
///
/// Errors: it is missing.
pub fn sent(kind: Kind, headers: Headers<'_>) -> Result<String, Refused> {
    let names: &[&'static str] = match kind {
        Kind::Github => &["x-hub-signature-256"],
        Kind::Forgejo => &["x-forgejo-signature", "x-gitea-signature"],
        Kind::Gitlab => &[STANDARD_HEADER, "x-gitlab-token"],
        Kind::Standard => &[STANDARD_HEADER],
        // It does not sign; a token of the daemon authorizes the sender.
        Kind::Alertmanager => &[],
    };
    let missing = names.last().map_or(Refused::Secret(kind), |name| Refused::Missing(name));
    names.iter().find_map(|name| headers(name)).ok_or(missing)
}

/// The bytes of a Standard Webhooks secret; `None` if it is not base64, or is empty.
pub fn standard_key(secret: &str) -> Option<Vec<u8>> {
    let encoded = secret.strip_prefix(SECRET_PREFIX).unwrap_or(secret);
    BASE64_STANDARD.decode(encoded).ok().filter(|key| !key.is_empty())
}

/// The Standard Webhooks signature of a body, as in the header.
pub fn standard_signature(key: &[u8], id: &str, seconds: &str, body: &[u8]) -> String {
    let signed = hmac_sha256(key, &[id.as_bytes(), b".", seconds.as_bytes(), b".", body]);
    format!("{VERSION_PREFIX}{}", BASE64_STANDARD.encode(signed))
}

/// The HMAC-SHA256 of the concatenated `parts`.
pub fn hmac_sha256(secret: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length is one");
    parts.iter().for_each(|part| mac.update(part));
    mac.finalize().into_bytes().into()
}

/// An id of a signed body.
fn signed_id(body: &[u8]) -> String {
    hex(Sha256::digest(body).iter().take(16))
}

fn required(headers: Headers<'_>, name: &'static str) -> Result<String, Refused> {
    headers(name).ok_or(Refused::Missing(name))
}

fn is_equal(sent: &[u8], own: &[u8]) -> Result<(), Refused> {
    // An empty secret would accept everybody.
    if own.is_empty() || !bool::from(sent.ct_eq(own)) { Err(Refused::Signature) } else { Ok(()) }
}

fn hex_is(sent: &str, body: &[u8], secret: &[u8]) -> Result<(), Refused> {
    let own = hex(&hmac_sha256(secret, &[body]));
    if secret.is_empty() { Err(Refused::Signature) } else { is_equal(sent.as_bytes(), own.as_bytes()) }
}

/// Whether a time in seconds is close enough to now.
fn is_now(time: &str, now: Timestamp) -> Result<(), Refused> {
    let seconds: u64 = time.parse().map_err(|_| Refused::Time)?;
    let apart = seconds.abs_diff(now.as_millis() / 1_000);
    if apart > TOLERANCE_SECONDS { Err(Refused::Time) } else { Ok(()) }
}
