//! What RFC 9113 forbids, by hand, where the answer is the library's: the origin of these tests is the bare library, so the same
//! bytes to it and through the channel show whose answer it is.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use common::{Origin, World, policy};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW: u8 = 8;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const FLOW_CONTROL_ERROR: u32 = 3;

/// A frame as it came: kind, flags, stream, payload.
type Frame = (u8, u8, u32, Vec<u8>);

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// Fields as literals that are not kept in any table.
fn block(fields: &[(&str, &str)]) -> Vec<u8> {
    let text = |text: &str| [&[u8::try_from(text.len()).unwrap()], text.as_bytes()].concat();
    let field = |(name, value): &(&str, &str)| [vec![0], text(name), text(value)].concat();
    fields.iter().flat_map(field).collect()
}

fn head(path: &str) -> Vec<u8> {
    block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "good.example"),
        (":path", path),
    ])
}

/// Sends frames on a connection of their own; what comes back until `last` or the end of the connection.
fn exchange(to: SocketAddr, frames: &[Vec<u8>], last: impl Fn(&Frame) -> bool) -> Vec<Frame> {
    let mut stream = TcpStream::connect(to).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let settings = frame(SETTINGS, 0, 0, &[]);
    let sent = [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), settings].concat();
    stream.write_all(&[sent, frames.concat()].concat()).unwrap();
    let mut got = Vec::new();
    let mut prefix = [0; 9];
    while stream.read_exact(&mut prefix).is_ok() {
        let length = u32::from_be_bytes([0, prefix[0], prefix[1], prefix[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).unwrap();
        let id = u32::from_be_bytes(prefix[5..].try_into().unwrap());
        let one = (prefix[3], prefix[4], id, payload);
        let ends = last(&one);
        got.push(one);
        if ends {
            break;
        }
    }
    got
}

fn code(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[payload.len() - 4..].try_into().unwrap())
}

/// What was said of errors: kind of frame, stream, code.
fn errors(frames: &[Frame]) -> Vec<(u8, u32, u32)> {
    let told = frames
        .iter()
        .filter(|(kind, ..)| [RST, GOAWAY].contains(kind));
    // The debug text of a GOAWAY is behind its code.
    told.map(|(kind, _, stream, payload)| (*kind, *stream, code(&payload[..payload.len().min(8)])))
        .collect()
}

/// 6.9.2: the window is as large as one can be, and SETTINGS would make it larger.
#[test]
fn a_window_that_settings_make_overflow_ends_the_connection() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let room = (1_u32 << 31) - 1 - 65_535;
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &head("/open")),
        frame(WINDOW, 0, 1, &room.to_be_bytes()),
        frame(
            SETTINGS,
            0,
            0,
            &[&[0, 4], 65_536_u32.to_be_bytes().as_slice()].concat(),
        ),
    ];
    for to in [origin.address, world.direct("good.example", 80)] {
        let got = exchange(to, &frames, |_| false);
        assert!(
            errors(&got).contains(&(GOAWAY, 0, FLOW_CONTROL_ERROR)),
            "{got:?}"
        );
    }
}

/// 6.9.1: one that WINDOW_UPDATE makes overflow ends the stream alone; the next one is answered.
#[test]
fn a_window_that_an_update_makes_overflow_ends_the_stream() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &head("/open")),
        frame(WINDOW, 0, 1, &((1_u32 << 31) - 1).to_be_bytes()),
        frame(HEADERS, END_HEADERS | END_STREAM, 3, &head("/next")),
    ];
    for to in [origin.address, world.direct("good.example", 80)] {
        let (ended, answered) = (Cell::new(false), Cell::new(false));
        let got = exchange(to, &frames, |(kind, flags, stream, _)| {
            match (*kind, stream) {
                (RST, 1) => ended.set(true),
                (DATA, 3) if flags & END_STREAM != 0 => answered.set(true),
                _ => {}
            }
            ended.get() && answered.get()
        });
        assert_eq!(errors(&got), [(RST, 1, FLOW_CONTROL_ERROR)], "{got:?}");
    }
}

/// 8.1: the library leaves pseudo fields in trailers out without a word. What is judged and sent is what the head says, and
/// nothing of the trailers.
#[test]
fn pseudo_fields_in_trailers_go_nowhere() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let frames = [
        frame(HEADERS, END_HEADERS, 1, &head("/judged")),
        frame(DATA, 0, 1, b"body"),
        frame(
            HEADERS,
            END_HEADERS | END_STREAM,
            1,
            &block(&[(":path", "/other"), (":authority", "bad.example")]),
        ),
    ];
    let answered = |(kind, flags, ..): &Frame| *kind == DATA && flags & END_STREAM != 0;
    for to in [origin.address, world.direct("good.example", 80)] {
        let got = exchange(to, &frames, answered);
        assert!(got.iter().any(|(kind, ..)| *kind == HEADERS), "{got:?}");
        assert_eq!(errors(&got), [], "{got:?}");
    }
    let seen: Vec<_> = origin
        .seen()
        .into_iter()
        .map(|seen| (seen.method, seen.uri, seen.body))
        .collect();
    // Once from the library alone, once through the channel.
    let once = ("POST".to_string(), "/judged".to_string(), b"body".to_vec());
    assert_eq!(seen, [once.clone(), once]);
}

#[test]
fn requests_that_differ_in_their_trailers_are_held_one_by_one() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let answered = |(kind, flags, ..): &Frame| *kind == DATA && flags & END_STREAM != 0;
    let bad = block(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", "bad.example"),
        (":path", "/t"),
    ]);
    for sum in ["1", "2", "3", "1"] {
        let frames = [
            frame(HEADERS, END_HEADERS, 1, &bad),
            frame(DATA, 0, 1, b"a"),
            frame(
                HEADERS,
                END_HEADERS | END_STREAM,
                1,
                &block(&[("x-sum", sum)]),
            ),
        ];
        let got = exchange(world.direct("bad.example", 80), &frames, answered);
        assert_eq!(errors(&got), [], "{got:?}");
    }
    assert_eq!(world.session.held().len(), 3);
    world.decide(kernel::Verdict::Release);
    let sent: Vec<_> = origin
        .seen()
        .into_iter()
        .map(|mut seen| seen.trailers.remove("x-sum"))
        .collect();
    assert_eq!(sent, ["1", "2", "3"].map(|sum| Some(sum.to_string())));
}
