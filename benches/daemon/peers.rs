//! How much faster than other servers is durable ingest, in one run on one machine?
//!
//! `scripts/peers` starts the others and passes their addresses in `ASIDE_BENCH_PEERS`, as
//! `name=address` separated by spaces. Each gets messages of 300 bytes with 2,000 in flight, from a
//! client that does only what the protocol requires, which flatters them. Ours gets batches of
//! 1,000 events of 400 bytes with two in flight, 5 % matching, each answered when it is synced.

use std::{
    env,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    time::Instant,
};

use super::{
    events::{Events, Matching},
    http::Connection,
    ingest::Load,
    process::Home,
};
use crate::{
    report::row,
    support::{Size, quantile},
};

/// Messages in flight, to each server.
const WINDOW: usize = 2_000;
/// Messages that are sent together.
const BATCH: usize = WINDOW / 2;
const PAYLOAD: [u8; 300] = [b'x'; 300];
const EVENTS: usize = 300_000;

/// Another server.
struct Peer {
    name: String,
    messages: usize,
    stream: BufReader<TcpStream>,
    protocol: Protocol,
    rates: Vec<f64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Protocol {
    Nats,
    Redis,
}

pub(crate) fn run(size: Size) {
    let places = env::var("ASIDE_BENCH_PEERS").expect("`scripts/peers` says where the peers are");
    let mut peers: Vec<Peer> = places.split_whitespace().map(|place| Peer::connect(place, size)).collect();
    let home = Home::new(&[]);
    let daemon = home.serve();
    let mut connection = Connection::new(home.connect());
    let mut events = Events::new("peers", Matching::Few);
    let mut ours = Load::new(BATCH, size.scale(EVENTS, 100), Matching::Few).with_window(WINDOW / BATCH);
    ours.round(&mut connection, &daemon, &mut events);
    ours.forget();
    for _ in 0..size.rounds() {
        ours.round(&mut connection, &daemon, &mut events);
        for peer in &mut peers {
            peer.round();
        }
    }
    let own = quantile(&ours.rates, 0.5);
    println!("| server | messages/s | ours against it |");
    println!("|---|---|---|");
    println!("| aside, synced | {own:.0} | 1 |");
    for peer in &peers {
        let rate = quantile(&peer.rates, 0.5);
        println!("| {} | {rate:.0} | {:.2} |", peer.name, own / rate);
        if let Some(least) = target(&peer.name) {
            let measured = format!("{:.2} x ({own:.0} against {rate:.0} a second)", own / rate);
            let what = format!("durable ingest against {}", peer.name);
            row("1", &what, &format!("{least} x"), &measured, own / rate >= least);
        }
    }
}

/// The factor by which ours has to be faster.
fn target(name: &str) -> Option<f64> {
    match name {
        "jetstream-default" => Some(1.5),
        "jetstream-always" => Some(60.0),
        "redis-always" => Some(3.0),
        _ => None,
    }
}

impl Peer {
    fn connect(place: &str, size: Size) -> Self {
        let (name, address) = place.split_once('=').expect("name=address");
        let protocol = if name.starts_with("redis") { Protocol::Redis } else { Protocol::Nats };
        // A server that syncs each message takes a hundred times as long.
        let messages = if name == "jetstream-always" { EVENTS / 30 } else { EVENTS };
        let stream =
            TcpStream::connect(address).unwrap_or_else(|error| panic!("{name} at {address}: {error}"));
        stream.set_nodelay(true).expect("a TCP connection");
        let messages = size.scale(messages, 100).next_multiple_of(WINDOW);
        let stream = BufReader::with_capacity(256 * 1024, stream);
        let mut peer = Self { name: name.to_owned(), messages, stream, protocol, rates: Vec::new() };
        if protocol == Protocol::Nats {
            peer.greet_nats();
        }
        peer
    }

    fn greet_nats(&mut self) {
        assert!(self.line().starts_with("INFO "), "{} is no NATS server", self.name);
        let stream = r#"{"name":"BENCH","subjects":["bench"],"storage":"file","retention":"limits"}"#;
        let length = stream.len();
        let greeting = format!(
            "CONNECT {{\"verbose\":false,\"pedantic\":false}}\r\nSUB reply.* 1\r\nPUB $JS.API.STREAM.CREATE.BENCH reply.made {length}\r\n{stream}\r\n"
        );
        self.send(greeting.as_bytes());
        let answer = self.reply();
        assert!(answer.contains("\"created\""), "{} makes no stream: {answer}", self.name);
    }

    fn round(&mut self) {
        let message = match self.protocol {
            Protocol::Nats => [b"PUB bench reply.a 300\r\n".as_slice(), &PAYLOAD, b"\r\n"].concat(),
            Protocol::Redis => [
                b"*5\r\n$4\r\nXADD\r\n$5\r\nbench\r\n$1\r\n*\r\n$1\r\np\r\n$300\r\n".as_slice(),
                &PAYLOAD,
                b"\r\n",
            ]
            .concat(),
        };
        let half = message.repeat(BATCH);
        let begin = Instant::now();
        self.send(&half);
        let mut sent = BATCH;
        let mut answered = 0;
        while answered < self.messages {
            if sent < self.messages {
                self.send(&half);
                sent += BATCH;
            }
            for _ in 0..BATCH {
                self.confirmation();
            }
            answered += BATCH;
        }
        self.rates.push(self.messages as f64 / begin.elapsed().as_secs_f64());
    }

    fn confirmation(&mut self) {
        match self.protocol {
            Protocol::Nats => {
                let answer = self.reply();
                assert!(answer.contains("\"seq\""), "{} refused a message: {answer}", self.name);
            }
            Protocol::Redis => {
                let length = self.line().strip_prefix('$').and_then(|length| length.trim_end().parse().ok());
                let length: usize = length.unwrap_or_else(|| panic!("{} refused a message", self.name));
                self.bytes(length + 2);
            }
        }
    }

    /// The payload of the next message of a NATS server.
    fn reply(&mut self) -> String {
        loop {
            let line = self.line();
            if line.starts_with("PING") {
                self.send(b"PONG\r\n");
            } else if let Some(head) = line.strip_prefix("MSG ") {
                let length =
                    head.trim_end().rsplit(' ').next().and_then(|length| length.parse::<usize>().ok());
                let payload = self.bytes(length.expect("a message has a length") + 2);
                return String::from_utf8_lossy(&payload).into_owned();
            } else {
                panic!("{} says {line}", self.name);
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).expect("the peer reads");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("the peer answers in text");
        line
    }

    fn bytes(&mut self, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes).expect("the peer sends whole answers");
        bytes
    }
}
