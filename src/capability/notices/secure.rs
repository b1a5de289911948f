//! HTTPS servers: requests on a thread that may block, with the certificates that the system
//! trusts.

use ureq::{
    Agent,
    tls::{RootCerts, TlsConfig},
};

use super::kind::{ANSWER_BYTES_MAX, Response, TRY_MAX};

use crate::daemon::tasks::run_blocking;

/// Posts `body` to `address`.
///
/// Errors: no server answers, or its certificate is not trusted.
pub(super) async fn post(
    address: String,
    headers: Vec<(String, String)>,
    body: String,
) -> Result<Response, String> {
    let posted = run_blocking(move || ask(&address, headers, &body)).await;
    posted.map_err(|error| error.to_string())?.map_err(|error| error.to_string())
}

fn ask(address: &str, headers: Vec<(String, String)>, body: &str) -> Result<Response, ureq::Error> {
    let tls = TlsConfig::builder().root_certs(RootCerts::PlatformVerifier).build();
    let config = Agent::config_builder()
        .tls_config(tls)
        .https_only(true)
        .http_status_as_error(false)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .user_agent(concat!("aside/", env!("CARGO_PKG_VERSION")))
        .timeout_global(Some(TRY_MAX))
        .build();
    let mut request = Agent::new_with_config(config).post(address);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut response = request.send(body)?;
    let status = response.status().as_u16();
    let limit = ANSWER_BYTES_MAX as u64;
    // If the body is longer or broken, only the status counts.
    let body = response.body_mut().with_config().limit(limit).read_to_vec().unwrap_or_default();
    Ok(Response { status, body })
}
