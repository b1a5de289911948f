//! The minimum for a hook: it copies stdin to the socket, and the answer to stdout. `hook.rs`
//! compiles and times it.

use std::{
    env,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
};

fn main() -> io::Result<()> {
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body)?;
    let mut stream = UnixStream::connect(env::var_os("ASIDE_SOCKET").unwrap_or_default())?;
    let length = body.len();
    let mut request = format!(
        "POST /v1/hooks/claude HTTP/1.1\r\nhost: aside\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
    .into_bytes();
    request.extend_from_slice(&body);
    stream.write_all(&request)?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let body = answer.windows(4).position(|end| end == b"\r\n\r\n").map_or(0, |at| at + 4);
    io::stdout().write_all(answer.get(body..).unwrap_or_default())
}
