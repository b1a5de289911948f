//! HTTP servers: one request per connection, no redirects.

use std::{future::poll_fn, pin::Pin, time::Duration};

use engine::settings::Url;
use hyper::{
    Request,
    body::{Body, Incoming},
    client::conn::http1::handshake,
    header,
};
use hyper_util::rt::TokioIo;
use tokio::{net::TcpStream, time::timeout};

use super::kind::{ANSWER_BYTES_MAX, Response, read_secret};

/// The time limit of a connection to a server in a check.
const CONNECT_MAX: Duration = Duration::from_secs(2);

/// The address of a server that accepts a connection now.
///
/// Errors: the reason that it cannot be called.
pub(super) async fn reach(url: Option<&Url>, secret_file: Option<&str>) -> Result<String, String> {
    let url = url.ok_or_else(|| "it has no `url`".to_owned())?;
    if let Some(file) = secret_file {
        read_secret(file).await?;
    }
    match timeout(CONNECT_MAX, TcpStream::connect((&*url.host, url.port))).await {
        Ok(Ok(_)) => Ok(url.address(&url.path)),
        Ok(Err(error)) => Err(format!("{}: {error}", url.authority)),
        Err(_) => Err(format!("{}: it accepts no connection", url.authority)),
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
