//! Requests that some readers cut in one place and some in another. The families are those of the published tools for
//! request smuggling: every byte at every place of a `Transfer-Encoding` that contradicts a `Content-Length`, repeated and
//! folded lengths, chunk sizes that are read in two ways, and heads in HTTP/2 that turn into others in HTTP/1.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use common::{Origin, World, policy};

/// What a server that reads chunks takes for a second request.
const SECOND: &str = "0\r\n\r\nGET /second HTTP/1.1\r\nHost: good.example\r\nX: ";

/// Sends a head with a body of known length; what the origin saw of it.
fn arrives(origin: &Origin, world: &World, lines: &[u8], body: &[u8]) -> Vec<common::Seen> {
    let before = origin.seen().len();
    let mut request = format!(
        "POST /first HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(lines);
    request.extend_from_slice(b"\r\n\r\n");
    request.extend_from_slice(body);
    world.raw(world.direct("good.example", 80), &request);
    origin.seen().split_off(before)
}

/// Nothing, or the one request with the whole body and without the other length.
#[track_caller]
fn is_one_or_none(seen: &[common::Seen], body: &[u8], what: &str) {
    match seen {
        [] => {}
        [one] => {
            assert_eq!(
                (one.uri.as_str(), one.body.as_slice()),
                ("/first", body),
                "{what}"
            );
            assert!(!one.headers.contains_key("transfer-encoding"), "{what}");
        }
        more => panic!("{what}: {more:?}"),
    }
}

#[test]
fn every_byte_at_every_place_of_a_transfer_encoding() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let body = SECOND.as_bytes();
    let mut passed = Vec::new();
    for byte in 0..=255u8 {
        let families: [(&str, Vec<u8>); 7] = [
            (
                "before the name",
                [&[byte][..], b"Transfer-Encoding: chunked"].concat(),
            ),
            (
                "behind the name",
                [b"Transfer-Encoding", &[byte][..], b": chunked"].concat(),
            ),
            (
                "before the value",
                [b"Transfer-Encoding:", &[byte][..], b"chunked"].concat(),
            ),
            (
                "behind the value",
                [b"Transfer-Encoding: chunked", &[byte][..]].concat(),
            ),
            (
                "in the name",
                [b"Transfer", &[byte][..], b"Encoding: chunked"].concat(),
            ),
            (
                "within another",
                [b"X: x", &[byte][..], b"Transfer-Encoding: chunked"].concat(),
            ),
            (
                "for a line end",
                [b"X: x\r", &[byte][..], b"Transfer-Encoding: chunked"].concat(),
            ),
        ];
        for (family, lines) in families {
            let seen = arrives(&origin, &world, &lines, body);
            let what = format!("{byte:#04x} {family}");
            is_one_or_none(&seen, body, &what);
            if !seen.is_empty() {
                passed.push((family, byte));
            }
        }
    }
    // What arrives is what means nothing: another header's name, another header's value.
    let odd: Vec<_> = passed
        .iter()
        .filter(|(family, byte)| match *family {
            "in the name" | "before the name" | "behind the name" => {
                // A colon there ends the name earlier.
                let earlier = *family == "in the name" && *byte == b':';
                !(byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte) || earlier)
                    || (*family == "in the name" && *byte == b'-')
            }
            "within another" => byte.is_ascii_control() && *byte != b'\t',
            _ => true,
        })
        .collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn words_and_lengths_that_are_read_in_two_ways() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    for lines in [
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: CHUNKED",
        "transfer-encoding:chunked",
        "Transfer-Encoding:\tchunked",
        "Transfer-Encoding: \"chunked\"",
        "Transfer-Encoding: 'chunked'",
        "Transfer-Encoding: chunked, identity",
        "Transfer-Encoding: identity, chunked",
        "Transfer-Encoding: chunked;q=1",
        "Transfer-Encoding: xchunked",
        "Transfer-Encoding: chunkedx",
        "Transfer-Encoding: ch\u{212a}nked",
        "Transfer-Encoding:\r\n chunked",
        "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x",
        "Transfer-Encoding:\r\nTransfer-Encoding: chunked",
        " Transfer-Encoding: chunked",
        "Content-Length: 0",
        "Content-Length: 5",
        "content-length : 5",
        "Content-Length: 5,5",
        "Content-Length: 0x5",
        "Content-Length: +5",
        "Content-Length: -1",
        "Content-Length: 5 5",
        "Content-Length: 00000000000000000000000000000005",
        "Content-Length:",
        "Content_Length: 5\r\nContent-Length: 5",
        "Content-Length:\r\n 5",
        "Connection: content-length\r\nTransfer-Encoding: chunked",
    ] {
        let seen = arrives(&origin, &world, lines.as_bytes(), SECOND.as_bytes());
        assert!(seen.is_empty(), "{lines:?}: {seen:?}");
    }
}

#[test]
fn chunks_that_are_read_in_two_ways() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let head = "POST /first HTTP/1.1\r\nHost: good.example\r\nTransfer-Encoding: chunked\r\n\r\n";
    for chunks in [
        "5\nhello\r\n0\r\n\r\n",
        "5\rhello\r\n0\r\n\r\n",
        "5 \n\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5_0\r\nhello\r\n0\r\n\r\n",
        "10000000000000005\r\nhello\r\n0\r\n\r\n",
        "5\r\nhelloXX\r\n0\r\n\r\n",
        "5\r\nhell\r\n0\r\n\r\n",
        "5;a\nb\r\nhello\r\n0\r\n\r\n",
        "5;\0\r\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello\r\n0\r\n\r\r\nGET /second HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "5\r\nhello\r\n0\r\nGET /second HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "5\r\nhello\r\n0\r\nContent Length: 5\r\n\r\n",
        "5\r\nhello\r\n0\n\n",
    ] {
        let request = format!("{head}{chunks}");
        world.raw(world.direct("good.example", 80), request.as_bytes());
        assert!(origin.seen().is_empty(), "{chunks:?}: {:?}", origin.seen());
    }
    // Trailers never become headers.
    let request =
        format!("{head}5\r\nhello\r\n0\r\nContent-Length: 3\r\nHost: bad.example\r\n\r\n");
    world.raw(world.direct("good.example", 80), request.as_bytes());
    for one in origin.seen() {
        assert_eq!(
            (one.host.as_str(), one.body.as_slice()),
            ("good.example", &b"hello"[..])
        );
    }
}

#[test]
fn heads_of_http_2_become_no_other_heads_of_http_1() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let script = r#"
import socket, ssl, struct, sys
def frame(kind, flags, stream, payload): return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload
def number(n): return bytes([n]) if n < 127 else bytes([127, n - 127])
def packed(fields):
    raw = [(n.encode(), v.encode()) for n, v in fields]
    return b"".join(b"\0" + number(len(n)) + n + number(len(v)) + v for n, v in raw)
ca, port = sys.argv[1], int(sys.argv[2])
good = [(":method", "POST"), (":scheme", "https"), (":authority", "good.example"), (":path", "/first")]
def swap(name, value): return [(n, value if n == name else v) for n, v in good]
cases = [
    good + [("content-length", "0")], good + [("content-length", "3")], good + [("content-length", "5"), ("content-length", "5")],
    good + [("transfer-encoding", "chunked")], good + [("connection", "close")], good + [("x", "a\r\nTransfer-Encoding: chunked")],
    good + [("x\r\ntransfer-encoding", "chunked")], good + [("x: y\r\nhost", "bad.example")], good + [("Transfer-Encoding", "chunked")],
    good + [("x", "a\nb")], good + [("x", "a\0b")], good + [("host", "bad.example")], good + [(":path", "/second")],
    swap(":path", "/first HTTP/1.1\r\nHost: bad.example\r\nX: y"), swap(":path", "/first\r\n"), swap(":path", ""), swap(":path", "first"),
    swap(":method", "GET /second HTTP/1.1\r\nHost: good.example\r\n\r\nPOST"), swap(":method", "PO ST"),
    swap(":authority", "good.example\r\nX: y"), swap(":authority", "good.example@bad.example"), swap(":authority", "bad.example"),
    swap(":scheme", "http://bad.example/?"), [("x", "y")] + good, good[1:],
]
for case in cases:
    context = ssl.create_default_context(cafile=ca)
    context.set_alpn_protocols(["h2"])
    s = context.wrap_socket(socket.create_connection(("127.0.0.1", port)), server_hostname="good.example")
    assert s.selected_alpn_protocol() == "h2"
    s.settimeout(2)
    head, data = frame(1, 4, 1, packed(case)), frame(0, 1, 1, b"0\r\n\r\nGET /second HTTP/1.1\r\n\r\n")
    try:
        s.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + head + data)
        while b := s.recv(65536):
            # An answer, or the end of the stream.
            if any(t in b for t in (b"Nothing was sent", b"you said")): break
    except (OSError, ssl.SSLError):
        pass
    s.close()
print("done")
"#;
    let output = std::process::Command::new("python3")
        .args(["-c", script])
        .arg(&world.ca)
        .arg(world.direct("good.example", 443).port().to_string())
        .output()
        .unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "done\n",
        "{output:?}"
    );
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

/// A party that may be connected to is still HTTP when HTTP is spoken, however that begins.
#[test]
fn http_is_no_raw_connection_whatever_it_begins_with() {
    let origin = Origin::clear();
    let mut policy = policy();
    for party in policy
        .parties
        .iter_mut()
        .filter(|party| party.name == "paths")
    {
        party.methods = vec!["CONNECT".into(), "GET".into()];
        party.paths = Vec::new();
    }
    let world = World::new(policy, &origin);
    let host = "Host: paths.example\r\nConnection: close\r\n\r\n";
    for begin in ["", "\r\n", "\r\n\r\n", "\n", " ", "\r\n ", "\t\r\n"] {
        for request in [
            "DELETE /pub/a HTTP/1.1",
            "delete /pub/a HTTP/1.1",
            "dElEtE /other HTTP/1.1",
            "get /pub/a HTTP/1.1",
            "GET /pub/a HTTP/1.1\r\nHost: other.example",
        ] {
            let bytes = format!("{begin}{request}\r\n{host}");
            let got = world.raw(world.direct("paths.example", 80), bytes.as_bytes());
            assert!(!got.contains("200 OK"), "{bytes:?}: {got}");
            assert_eq!(origin.seen().len(), 0, "{bytes:?}");
        }
    }
    let bytes = format!("\r\nGET /pub/a HTTP/1.1\r\n{host}");
    let got = world.raw(world.direct("paths.example", 80), bytes.as_bytes());
    assert!(got.contains("200 OK"), "{got}");
}
