//! Webhooks as Standard Webhooks says: an id, a time, and a signature of both with the body.
//!
//! Source: github.com/standard-webhooks/standard-webhooks, version 1.0.0.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::json;

use super::{
    failed, fields,
    http::{post as post_to, refusal},
    never, read_secret,
};
use crate::{
    sink::{Answered, NOTICE, Notice, Url},
    time::Timestamp,
    webhook::signature::hmac_sha256,
};

/// What a secret may begin with, which is no part of it.
const PREFIX: &str = "whsec_";
/// The status by which a receiver says that it wants no more of it.
const GONE: u16 = 410;

/// Posts a notice, signed with the secret in `secret_file`; its id is the same each time.
pub(super) async fn post(url: &Url, secret_file: &str, notice: &Notice, now: Timestamp) -> Answered {
    let key = match read_secret(secret_file).await.and_then(|secret| key(&secret)) {
        Ok(key) => key,
        Err(error) => return failed(error),
    };
    let body =
        json!({ "type": NOTICE, "timestamp": notice.at.to_string(), "data": fields(notice) }).to_string();
    let seconds = now.as_millis() / 1_000;
    let signature = sign(&key, &notice.id, seconds, &body);
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("webhook-id", notice.id.to_string()),
        ("webhook-timestamp", seconds.to_string()),
        ("webhook-signature", signature),
    ];
    match post_to(url, &url.path, &headers, body).await {
        Ok(response) if response.is_success() => Answered::Took(Some(response.status.to_string())),
        Ok(response) if response.status == GONE => never(refusal(&response)),
        Ok(response) => failed(refusal(&response)),
        Err(error) => failed(error),
    }
}

/// The bytes that a secret means.
///
/// Errors: it is no base64, or means nothing.
fn key(secret: &str) -> Result<Vec<u8>, String> {
    let encoded = secret.strip_prefix(PREFIX).unwrap_or(secret);
    let key = STANDARD.decode(encoded).ok().filter(|key| !key.is_empty());
    key.ok_or_else(|| "the secret is no base64".to_owned())
}

/// The value of `webhook-signature`.
fn sign(key: &[u8], id: &str, seconds: u64, body: &str) -> String {
    let signed = hmac_sha256(key, &[format!("{id}.{seconds}.{body}").as_bytes()]);
    format!("v1,{}", STANDARD.encode(signed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_is_the_published_one() {
        // Source: the example of the reference implementations of Standard Webhooks.
        let key = key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("base64");
        let signature = sign(&key, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, r#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn a_secret_is_base64_with_or_without_its_prefix() {
        assert_eq!(key("whsec_YW55IHRleHQ="), Ok(b"any text".to_vec()));
        assert_eq!(key("YW55IHRleHQ="), Ok(b"any text".to_vec()));
        for wrong in ["whsec_%", "whsec_", "any text"] {
            assert_eq!(key(wrong), Err("the secret is no base64".to_owned()), "{wrong}");
        }
    }
}
