//! Webhooks by the Standard Webhooks specification: an id, a time, and a signature of both with the
//! body.
//!
//! Source: github.com/standard-webhooks/standard-webhooks, version 1.0.0.

use engine::{
    notification::Sink,
    settings::Url,
    sink::{Answered, NOTICE, Notice},
};
use futures_util::FutureExt;
use journal::time::Timestamp;
use serde_json::json;

use super::{
    http::{post as post_to, reach, refusal},
    kind::{Attempt, Kind, TRY_MAX, failed, fields, never, read_secret},
};

use crate::capability::webhook::signature::{standard_key, standard_signature};

pub(super) const KIND: Kind = Kind {
    sink: Sink::Webhook,
    waits_for_choice: false,
    limit: |_, _, _| TRY_MAX,
    check: |settings, _| {
        reach(settings.webhook.url.as_ref(), settings.webhook.secret_file.as_deref()).boxed()
    },
    send: |&Attempt { notice, settings, out, .. }| {
        async move {
            match (&settings.webhook.url, &settings.webhook.secret_file) {
                (Some(url), Some(secret)) => {
                    let times = Times { notice: out.wall_at(notice.at), now: (out.wall)() };
                    post(url, secret, notice, times).await
                }
                _ => never("it is no longer configured".to_owned()),
            }
        }
        .boxed()
    },
};

/// The status of a receiver that wants no further webhooks.
const GONE: u16 = 410;

/// Times of a webhook, by the wall clock: a receiver refuses a signature of another time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Times {
    /// Of the notice.
    pub(super) notice: Timestamp,
    /// Of this attempt.
    pub(super) now: Timestamp,
}

/// Posts a notice, signed with the secret in `secret_file`; its id is the same at each attempt.
pub(super) async fn post(url: &Url, secret_file: &str, notice: &Notice, times: Times) -> Answered {
    let key = match read_secret(secret_file).await.map(|secret| standard_key(&secret)) {
        Ok(Some(key)) => key,
        Ok(None) => return failed("the secret is not base64".to_owned()),
        Err(error) => return failed(error),
    };
    let body =
        json!({ "type": NOTICE, "timestamp": times.notice.to_string(), "data": fields(notice) }).to_string();
    let seconds = (times.now.as_millis() / 1_000).to_string();
    let signature = standard_signature(&key, &notice.id, &seconds, body.as_bytes());
    let headers = [
        ("content-type", "application/json".to_owned()),
        ("webhook-id", notice.id.to_string()),
        ("webhook-timestamp", seconds),
        ("webhook-signature", signature),
    ];
    match post_to(url, &url.path, &headers, body).await {
        Ok(response) if response.is_success() => Answered::Took(Some(response.status.to_string())),
        Ok(response) if response.status == GONE => never(refusal(&response)),
        Ok(response) => failed(refusal(&response)),
        Err(error) => failed(error),
    }
}
