//! HTTP servers: one request per connection, no redirects. An ntfy server is one of them.

use std::{future::poll_fn, pin::Pin};

use engine::{
    notification::Level,
    sink::{Answered, Notice, Parts, Progress, Shown, Url},
};
use hyper::{
    Request,
    body::{Body, Incoming},
    client::conn::http1::handshake,
    header,
};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde_json::Value;
use tokio::net::TcpStream;

use super::outcome::{ANSWER_BYTES_MAX, Response, failed, read_secret, word_of};

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
fn ntfy_priority(notice: &Notice) -> u8 {
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
pub(super) async fn ntfy(url: &Url, token_file: Option<&str>, notice: &Notice) -> Answered {
    let Some((base, topic)) = url.path.rsplit_once('/') else { return failed("no topic".to_owned()) };
    let tag = word_of(notice.level, ["information_source", "warning", "rotating_light"]);
    let category = notice.category.map(|category| category.as_str());
    let tapped = Parts { link: Shown::Apart, ..Parts::ALL };
    let body = NtfyBody {
        topic,
        title: notice.title(),
        message: notice.text_for(notice.target(), tapped),
        priority: ntfy_priority(notice),
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

/// The text of an answer by which a server refused a notice.
pub(super) fn refusal(response: &Response) -> String {
    let said = String::from_utf8_lossy(&response.body);
    let first = said.lines().next().unwrap_or_default();
    format!("it answered {} {first}", response.status)
}

/// Posts `body` to `path` of the server in `url`.
///
/// Errors: nothing listens there, or the connection breaks.
pub(super) async fn post(
    url: &Url,
    path: &str,
    headers: &[(&str, String)],
    body: String,
) -> Result<Response, String> {
    if url.is_secure {
        return post_securely(url.address(path), headers, body).await;
    }
    let broken = |error: hyper::Error| error.to_string();
    let connection = TcpStream::connect((&*url.host, url.port))
        .await
        .map_err(|error| format!("{}: {error}", url.authority))?;
    let (mut sender, connection) = handshake::<_, String>(TokioIo::new(connection)).await.map_err(broken)?;
    let mut request = Request::post(path)
        .header(header::HOST, &*url.authority)
        .header(header::USER_AGENT, concat!("aside/", env!("CARGO_PKG_VERSION")))
        .header(header::CONNECTION, "close");
    for (name, value) in headers {
        request = request.header(*name, value);
    }
    let request = request.body(body).map_err(|error| error.to_string())?;
    let exchange = async move {
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status().as_u16();
        Ok(Response { status, body: read(response.into_body()).await })
    };
    // The connection has to be polled. If it ends first, the answer may already be complete.
    let mut exchange = std::pin::pin!(exchange);
    tokio::select! {
        answer = &mut exchange => answer,
        _ = connection => exchange.await,
    }
}

#[cfg(feature = "https")]
async fn post_securely(
    address: String,
    headers: &[(&str, String)],
    body: String,
) -> Result<Response, String> {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
    super::secure::post(address, headers, body).await
}

#[cfg(not(feature = "https"))]
async fn post_securely(address: String, _: &[(&str, String)], _: String) -> Result<Response, String> {
    Err(format!("{address}: this program was built without https"))
}

/// The beginning of a body; of a broken one, the received part.
async fn read(mut body: Incoming) -> Vec<u8> {
    let mut read = Vec::new();
    while read.len() < ANSWER_BYTES_MAX {
        let Some(Ok(frame)) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await else { break };
        if let Ok(data) = frame.into_data() {
            let room = ANSWER_BYTES_MAX - read.len();
            read.extend_from_slice(data.get(..room).unwrap_or(&data));
        }
    }
    read
}
