//! An ntfy server.

use engine::{
    notification::{Level, Sink},
    settings::Url,
    sink::{Answered, Notice, Parts, Progress, Shown},
};
use futures_util::FutureExt;
use serde::Serialize;
use serde_json::Value;

use super::{
    http::{post, reach, refusal},
    kind::{Attempt, Kind, TRY_MAX, failed, never, read_secret, word_of},
};

pub(super) const KIND: Kind = Kind {
    sink: Sink::Ntfy,
    waits_for_choice: false,
    limit: |_, _, _| TRY_MAX,
    check: |settings, _| reach(settings.ntfy.url.as_ref(), settings.ntfy.token_file.as_deref()).boxed(),
    send: |&Attempt { notice, settings, .. }| {
        async move {
            match &settings.ntfy.url {
                Some(url) => send(url, settings.ntfy.token_file.as_deref(), notice).await,
                None => never("it is no longer configured".to_owned()),
            }
        }
        .boxed()
    },
};

/// The priority without a sound: a percentage changes often.
const SILENT: u8 = 2;

#[derive(Serialize)]
struct NtfyBody<'a> {
    topic: &'a str,
    title: String,
    message: String,
    priority: u8,
    tags: Vec<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    markdown: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    sequence_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    click: Option<&'a str>,
}

/// The priority of a notice: unfinished progress is shown without a sound.
fn priority(notice: &Notice) -> u8 {
    match notice.level {
        Level::Info if notice.progress.as_ref().is_some_and(Progress::goes_on) => SILENT,
        Level::Info => 3,
        Level::Warn => 4,
        Level::Error => 5,
    }
}

/// Sends a notice to the topic at the end of `url`.
///
/// Source: docs.ntfy.sh, "Publish as JSON": `markdown`; `click`, the address to open when the
/// message is tapped; and `sequence_id`: a message replaces the previous one with the same id (ntfy
/// 2.16; an older server shows each).
pub(super) async fn send(url: &Url, token_file: Option<&str>, notice: &Notice) -> Answered {
    let Some((base, topic)) = url.path.rsplit_once('/') else { return failed("no topic".to_owned()) };
    let tag = word_of(notice.level, ["information_source", "warning", "rotating_light"]);
    let category = notice.category.map(|category| category.as_str());
    let tapped = Parts { link: Shown::Apart, ..Parts::ALL };
    let body = NtfyBody {
        topic,
        title: notice.title(),
        message: notice.text_for(notice.target(), tapped),
        priority: priority(notice),
        tags: [tag].into_iter().chain(category).collect(),
        markdown: notice.is_markdown,
        sequence_id: notice.progress.as_ref().map(|progress| &*progress.line),
        click: notice.link.as_deref(),
    };
    let body = serde_json::to_string(&body).expect("texts and numbers are JSON");
    let mut headers = vec![("content-type", "application/json".to_owned())];
    if let Some(file) = token_file {
        match read_secret(file).await {
            Ok(token) => headers.push(("authorization", format!("Bearer {token}"))),
            Err(error) => return failed(error),
        }
    }
    match post(url, &format!("{base}/"), &headers, body).await {
        Ok(response) if response.is_success() => {
            let answer = serde_json::from_slice::<Value>(&response.body).ok();
            let id = answer.as_ref().and_then(|answer| answer["id"].as_str()).map(str::to_owned);
            Answered::Took(id)
        }
        Ok(response) => failed(refusal(&response)),
        Err(error) => failed(error),
    }
}
