//! The command `ivy` as an operator runs it: its lines, its exit status, signals.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Place, Replica};

const RERANK: &str = r#"{"query": "w1", "texts": ["w2", "w3"]}"#;
/// Long enough that only a hang reaches it.
const PATIENCE: Duration = Duration::from_secs(60);

fn ivy(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ivy"));
    command.args(arguments).env_clear();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    command.stderr(Stdio::piped());
    command
}

/// A running gateway, killed when dropped.
struct Gateway {
    child: Child,
    address: SocketAddr,
}

impl Gateway {
    /// In front of one replica; known by the log, which is there before the replica is.
    fn start(replica: SocketAddr) -> Self {
        let replica = replica.to_string();
        let arguments = ["--http-address", "localhost:0", "--replica", &replica];
        let mut child = ivy(&arguments).spawn().unwrap();
        let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
        let address = log.find_map(|line| {
            let line = line.unwrap();
            let (_, after) = line.split_once("address=")?;
            Some(after.split_whitespace().next().unwrap().parse().unwrap())
        });
        // A full pipe would stop it.
        std::thread::spawn(move || log.for_each(drop));
        Self {
            address: address.expect("it listens"),
            child,
        }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }

    /// Status and body of one request on a connection of its own.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        answer(send(self.connect(), method, path, body))
    }

    fn until_health_is(&self, status: u16) {
        let deadline = Instant::now() + PATIENCE;
        while self.ask("GET", "/health", "").0 != status {
            assert!(Instant::now() < deadline, "/health is not {status}");
            std::thread::yield_now();
        }
    }

    fn terminate(&self) {
        let kill = format!("kill -TERM {}", self.child.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(mut stream: TcpStream, method: &str, path: &str, body: &str) -> TcpStream {
    let length = body.len();
    let request = format!(
        "{method} {path} HTTP/1.1\r\nhost: ivy\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    stream
}

fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.into())
}

#[test]
fn it_answers_503_without_its_replica_and_says_when_it_is_ready() {
    let place = Place::reserve();
    let address = place.address();
    let mut gateway = Gateway::start(address);
    assert_eq!(gateway.ask("GET", "/health/live", "").0, 200);
    assert_eq!(gateway.ask("GET", "/health", "").0, 503);
    let (status, body) = gateway.ask("POST", "/rerank", RERANK);
    let expected = r#"{"error":"no replica has answered yet","error_type":"Unhealthy"}"#;
    assert_eq!((status, &*body), (503, expected));

    let replica = Replica::at(address, Duration::ZERO);
    let mut ready = String::new();
    let mut stdout = BufReader::new(gateway.child.stdout.take().unwrap());
    stdout.read_line(&mut ready).unwrap();
    assert_eq!(ready, format!("ready http={}\n", gateway.address));
    assert_eq!(gateway.ask("GET", "/health", "").0, 200);
    let (status, body) = gateway.ask("POST", "/rerank", RERANK);
    assert_eq!(status, 200, "{body}");

    drop(replica);
    gateway.until_health_is(503);
    let _replica = Replica::at(address, Duration::ZERO);
    gateway.until_health_is(200);
    let (again, same) = gateway.ask("POST", "/rerank", RERANK);
    assert_eq!((again, same), (200, body));
}

#[test]
fn sigterm_lets_what_is_in_flight_be_answered() {
    let replica = Replica::start(Duration::from_millis(20));
    let mut gateway = Gateway::start(replica.address());
    gateway.until_health_is(200);
    let waiting = send(gateway.connect(), "POST", "/rerank", RERANK);
    let deadline = Instant::now() + PATIENCE;
    while replica.tokens() == 0 {
        assert!(Instant::now() < deadline, "nothing was sent");
        std::thread::yield_now();
    }
    gateway.terminate();
    let (status, body) = answer(waiting);
    assert_eq!(status, 200, "{body}");
    assert!(gateway.child.wait().unwrap().success());
    TcpStream::connect(gateway.address).unwrap_err();
}

#[test]
fn sigterm_ends_it_also_while_no_replica_is_there() {
    let place = Place::reserve();
    let mut gateway = Gateway::start(place.address());
    gateway.terminate();
    assert!(gateway.child.wait().unwrap().success());
}

#[test]
fn what_cannot_be_ends_it_with_the_name_of_the_option() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap().to_string();
    let in_use = format!("ivy: --http-address: cannot listen on {taken}: Address already in use");
    let missing = ["--replica-tls", "--replica-ca", "/no/such/file"];
    let cases: [(&[&str], &str); 7] = [
        (&["--http-address", &taken], &in_use),
        (
            &["--request-timeout", "0"],
            "ivy: --request-timeout: must be more than 0, is 0",
        ),
        (
            &["--tokenizer-threads", "0"],
            "ivy: --tokenizer-threads: must be at least 1, is 0",
        ),
        (
            &["--api-key", ""],
            "ivy: --api-key: a key must not be empty",
        ),
        (
            &["--cors-origin", "here"],
            r#"ivy: --cors-origin: "here" is neither * nor"#,
        ),
        (&missing, "ivy: --replica-ca: /no/such/file: No such file"),
        (
            &["--log-format", "xml"],
            r#"error: invalid value 'xml' for '--log-format <FORMAT>'"#,
        ),
    ];
    for (wrong, expected) in cases {
        let mut command = ivy(&["--replica", "127.0.0.1:1"]);
        if wrong[0] != "--http-address" {
            command.args(["--http-address", "127.0.0.1:0"]);
        }
        let Output { status, stderr, .. } = command.args(wrong).output().unwrap();
        let stderr = String::from_utf8(stderr).unwrap();
        assert_eq!(status.code(), Some(2), "{wrong:?}: {stderr}");
        assert!(stderr.contains(expected), "{wrong:?}: {stderr}");
    }
}
