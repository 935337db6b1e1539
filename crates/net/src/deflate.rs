//! Compressed WebSocket messages (`permessage-deflate`, RFC 7692): undone below the frame reader, so
//! that it and everything above see plain messages. What we send is never compressed, which the
//! extension leaves to each side message by message.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::header::{HeaderMap, SEC_WEBSOCKET_EXTENSIONS};
use bytes::{Buf, BufMut, BytesMut};
use flate2::{Decompress, FlushDecompress, Status};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What we offer upstream.
pub(crate) const OFFER: &str = "permessage-deflate";
/// What ends a compressed message, and is left out of it.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// So much is read from below at once.
const PIECE_BYTES: usize = 16 << 10;
/// So much is undone at once.
const PLAIN_BYTES: usize = 32 << 10;

/// Our answer to the extensions that a client offers; `None` when there is none that we take.
pub(crate) fn accepted(offered: &HeaderMap) -> Option<String> {
    let mut offers = offered
        .get_all(SEC_WEBSOCKET_EXTENSIONS)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    offers.find_map(answer_to)
}

/// The answer to one offer. What it says of our own compression is agreed to, as there is none.
fn answer_to(offer: &str) -> Option<String> {
    let mut parts = offer.split(';').map(str::trim);
    if parts.next() != Some(OFFER) {
        return None;
    }
    let mut answer = OFFER.to_string();
    let mut seen = Vec::new();
    for part in parts {
        let (name, value) = match part.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim().trim_matches('"'))),
            None => (part, None),
        };
        if seen.contains(&name) {
            return None;
        }
        seen.push(name);
        match (name, value) {
            ("server_no_context_takeover", None) => answer.push_str("; server_no_context_takeover"),
            ("server_max_window_bits", Some(bits)) if is_window(bits) => {
                answer.push_str("; server_max_window_bits=");
                answer.push_str(bits);
            }
            // What these allow the client to do less, it may do.
            ("client_no_context_takeover", None) => {}
            ("client_max_window_bits", bits) if bits.is_none_or(is_window) => {}
            _ => return None,
        }
    }
    Some(answer)
}

/// Whether a server took our offer. An error when it answers what was not offered.
pub(crate) fn agreed(answered: &HeaderMap) -> Result<bool, &'static str> {
    let mut answers = answered
        .get_all(SEC_WEBSOCKET_EXTENSIONS)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("?").split(','));
    let Some(answer) = answers.next() else {
        return Ok(false);
    };
    let sound = answers.next().is_none()
        && answer
            .split(';')
            .map(str::trim)
            .enumerate()
            .all(|(n, part)| {
                let bits = |name| {
                    part.strip_prefix(name)
                        .and_then(|rest: &str| rest.trim().strip_prefix('='))
                        .is_some_and(|bits| is_window(bits.trim().trim_matches('"')))
                };
                match n {
                    0 => part == OFFER,
                    _ => {
                        matches!(
                            part,
                            "server_no_context_takeover" | "client_no_context_takeover"
                        ) || bits("server_max_window_bits")
                            || bits("client_max_window_bits")
                    }
                }
            });
    if sound {
        Ok(true)
    } else {
        Err("the server answered with WebSocket extensions that were not offered")
    }
}

fn is_window(bits: &str) -> bool {
    matches!(bits, "8" | "9" | "10" | "11" | "12" | "13" | "14" | "15")
}

/// A stream of frames in which compressed messages are undone. Everything else passes as it is,
/// mistakes included: the frame reader above answers them.
#[derive(Debug)]
pub(crate) struct Inflating<S> {
    stream: S,
    frames: Option<Frames>,
    ready: BytesMut,
}

impl<S> Inflating<S> {
    /// `agreed` says whether the extension is in force; messages above `bytes_max` are told to be
    /// too large.
    pub(crate) fn new(stream: S, agreed: bool, bytes_max: usize) -> Self {
        Self {
            stream,
            frames: agreed.then(|| Frames::new(bytes_max)),
            ready: BytesMut::new(),
        }
    }
}

/// Frames as the reader above gets them, from pieces of any size; messages of `bytes_max` at most.
pub fn plain_frames(pieces: &[&[u8]], bytes_max: usize) -> Vec<u8> {
    let (mut frames, mut ready) = (Frames::new(bytes_max), BytesMut::new());
    for piece in pieces {
        frames.feed(piece, &mut ready);
    }
    ready.to_vec()
}

/// Reads frames in pieces of any size.
#[derive(Debug)]
struct Frames {
    raw: BytesMut,
    state: State,
    /// The compressed message under way.
    message: Option<Message>,
    inflate: Decompress,
    bytes_max: usize,
}

#[derive(Debug)]
struct Message {
    opcode: u8,
    masked: bool,
    plain: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Before a frame's head.
    Head,
    /// In a payload that passes as it is.
    Passing(u64),
    /// In a payload of the compressed message.
    Packed {
        left: u64,
        mask: [u8; 4],
        at: usize,
        last: bool,
    },
    /// Something was wrong; nothing more is read.
    Broken,
}

impl Frames {
    fn new(bytes_max: usize) -> Self {
        Self {
            raw: BytesMut::new(),
            state: State::Head,
            message: None,
            inflate: Decompress::new(false),
            bytes_max,
        }
    }

    /// Reads on; what is plain by then is added to `ready`.
    fn feed(&mut self, bytes: &[u8], ready: &mut BytesMut) {
        self.raw.extend_from_slice(bytes);
        while self.step(ready) {}
    }

    /// Whether there was enough for a step.
    fn step(&mut self, ready: &mut BytesMut) -> bool {
        match self.state {
            State::Broken => {
                self.raw.clear();
                false
            }
            State::Head => self.head(ready),
            State::Passing(left) => {
                let take = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(self.raw.len());
                ready.extend_from_slice(&self.raw.split_to(take));
                let left = left - take as u64;
                self.state = if left == 0 {
                    State::Head
                } else {
                    State::Passing(left)
                };
                left == 0
            }
            State::Packed {
                left,
                mask,
                at,
                last,
            } => {
                let take = usize::try_from(left)
                    .unwrap_or(usize::MAX)
                    .min(self.raw.len());
                let mut piece = self.raw.split_to(take);
                for (n, byte) in piece.iter_mut().enumerate() {
                    *byte ^= mask.get((at + n) % 4).copied().unwrap_or_default();
                }
                if !self.undo(&piece, ready) {
                    return true;
                }
                let left = left - take as u64;
                if left > 0 {
                    self.state = State::Packed {
                        left,
                        mask,
                        at: (at + take) % 4,
                        last,
                    };
                    return false;
                }
                self.state = State::Head;
                if last && self.undo(&TAIL, ready) {
                    self.finish(ready);
                }
                true
            }
        }
    }

    fn head(&mut self, ready: &mut BytesMut) -> bool {
        let Some(head) = Head::read(&self.raw) else {
            return false;
        };
        let control = head.opcode >= 8;
        let joins = head.opcode == 0 && self.message.is_some() && !head.packed;
        let begins = matches!(head.opcode, 1 | 2) && head.packed && self.message.is_none();
        if !control && self.message.is_some() && !joins {
            // A message within another; the reader above has not seen the first begin.
            let masked = head.masked;
            self.broken(masked, ready);
            return true;
        }
        if !begins && !joins {
            ready.extend_from_slice(&self.raw.split_to(head.bytes));
            self.state = if head.length == 0 {
                State::Head
            } else {
                State::Passing(head.length)
            };
            return true;
        }
        self.raw.advance(head.bytes);
        if begins {
            self.message = Some(Message {
                opcode: head.opcode,
                masked: head.masked,
                plain: Vec::new(),
            });
        }
        self.state = State::Packed {
            left: head.length,
            mask: head.mask,
            at: 0,
            last: head.last,
        };
        true
    }

    /// Undoes a piece of the message; false when it cannot be.
    fn undo(&mut self, mut packed: &[u8], ready: &mut BytesMut) -> bool {
        let Some(message) = &mut self.message else {
            return false;
        };
        let mut piece = vec![0; PLAIN_BYTES];
        loop {
            let (read, made) = (self.inflate.total_in(), self.inflate.total_out());
            let status = self
                .inflate
                .decompress(packed, &mut piece, FlushDecompress::Sync);
            let read = usize::try_from(self.inflate.total_in() - read).unwrap_or(usize::MAX);
            let made = usize::try_from(self.inflate.total_out() - made).unwrap_or(usize::MAX);
            packed = packed.get(read..).unwrap_or_default();
            message
                .plain
                .extend_from_slice(piece.get(..made).unwrap_or_default());
            let masked = message.masked;
            if message.plain.len() > self.bytes_max {
                self.too_large(masked, ready);
                return false;
            }
            match status {
                // A last block ends the stream; the next message begins a new one.
                Ok(Status::StreamEnd) => self.inflate.reset(false),
                Ok(Status::Ok | Status::BufError) => {}
                Err(_) => {
                    self.broken(masked, ready);
                    return false;
                }
            }
            if packed.is_empty() && made < PLAIN_BYTES {
                return true;
            }
            if read == 0 && made == 0 {
                self.broken(masked, ready);
                return false;
            }
        }
    }

    /// The message is whole.
    fn finish(&mut self, ready: &mut BytesMut) {
        if let Some(message) = self.message.take() {
            put_head(
                ready,
                0x80 | message.opcode,
                message.masked,
                message.plain.len() as u64,
            );
            ready.extend_from_slice(&message.plain);
        }
    }

    /// Tells the reader above of a mistake: a frame of a kind that does not exist.
    fn broken(&mut self, masked: bool, ready: &mut BytesMut) {
        put_head(ready, 0x83, masked, 0);
        self.message = None;
        self.state = State::Broken;
    }

    /// Tells the reader above of a message that is too large.
    fn too_large(&mut self, masked: bool, ready: &mut BytesMut) {
        put_head(ready, 0x82, masked, self.bytes_max as u64 + 1);
        self.message = None;
        self.state = State::Broken;
    }
}

/// A frame's head.
struct Head {
    last: bool,
    packed: bool,
    opcode: u8,
    masked: bool,
    mask: [u8; 4],
    length: u64,
    bytes: usize,
}

impl Head {
    /// `None` when there is too little of it.
    fn read(raw: &[u8]) -> Option<Self> {
        let (&first, &second) = (raw.first()?, raw.get(1)?);
        let masked = second & 0x80 != 0;
        let (length, at) = match second & 0x7f {
            126 => (
                u64::from(u16::from_be_bytes(raw.get(2..4)?.try_into().ok()?)),
                4,
            ),
            127 => (u64::from_be_bytes(raw.get(2..10)?.try_into().ok()?), 10),
            short => (u64::from(short), 2),
        };
        let bytes = at + if masked { 4 } else { 0 };
        let mask = if masked {
            raw.get(at..bytes)?.try_into().ok()?
        } else {
            [0; 4]
        };
        (raw.len() >= bytes).then_some(Self {
            last: first & 0x80 != 0,
            packed: first & 0x40 != 0,
            opcode: first & 0x0f,
            masked,
            mask,
            length,
            bytes,
        })
    }
}

/// A head as the reader above expects it from this side; a mask of zeros changes nothing.
fn put_head(out: &mut BytesMut, first: u8, masked: bool, length: u64) {
    let mask = if masked { 0x80 } else { 0 };
    out.put_u8(first);
    match (u8::try_from(length), u16::try_from(length)) {
        (Ok(length), _) if length < 126 => out.put_u8(mask | length),
        (_, Ok(length)) => {
            out.put_u8(mask | 126);
            out.put_u16(length);
        }
        _ => {
            out.put_u8(mask | 127);
            out.put_u64(length);
        }
    }
    if masked {
        out.put_u32(0);
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Inflating<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some(frames) = &mut this.frames else {
            return Pin::new(&mut this.stream).poll_read(cx, buffer);
        };
        while this.ready.is_empty() {
            let mut piece = [0; PIECE_BYTES];
            let mut piece = ReadBuf::new(&mut piece);
            std::task::ready!(Pin::new(&mut this.stream).poll_read(cx, &mut piece))?;
            if piece.filled().is_empty() {
                return Poll::Ready(Ok(()));
            }
            frames.feed(piece.filled(), &mut this.ready);
        }
        let take = this.ready.len().min(buffer.remaining());
        buffer.put_slice(&this.ready.split_to(take));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Inflating<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, data)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compress, Compression, FlushCompress};
    use proptest::prelude::*;

    /// A message as a client compresses it.
    fn packed(compress: &mut Compress, text: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(text.len() * 2 + 100);
        compress
            .compress_vec(text, &mut out, FlushCompress::Sync)
            .unwrap();
        assert!(out.ends_with(&TAIL));
        out.truncate(out.len() - 4);
        out
    }

    fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
        let mask = [1, 2, 3, 4];
        let mut out = vec![first, 0x80 | u8::try_from(payload.len()).unwrap()];
        out.extend_from_slice(&mask);
        out.extend(payload.iter().enumerate().map(|(n, b)| b ^ mask[n % 4]));
        out
    }

    fn fed(frames: &mut Frames, bytes: &[u8], cut: usize) -> Vec<u8> {
        let mut ready = BytesMut::new();
        for piece in bytes.chunks(cut) {
            frames.feed(piece, &mut ready);
        }
        ready.to_vec()
    }

    fn plain(first: u8, payload: &[u8]) -> Vec<u8> {
        let mut out = BytesMut::new();
        put_head(&mut out, first, true, payload.len() as u64);
        out.extend_from_slice(payload);
        out.to_vec()
    }

    #[test]
    fn what_is_offered_and_answered() {
        let headers = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.append(SEC_WEBSOCKET_EXTENSIONS, value.parse().unwrap());
            headers
        };
        for (offer, answer) in [
            ("permessage-deflate", Some("permessage-deflate")),
            (
                "permessage-deflate; client_max_window_bits",
                Some("permessage-deflate"),
            ),
            (
                "x-other, permessage-deflate; server_no_context_takeover; server_max_window_bits=10",
                Some("permessage-deflate; server_no_context_takeover; server_max_window_bits=10"),
            ),
            (
                "permessage-deflate; server_max_window_bits=20, permessage-deflate",
                Some("permessage-deflate"),
            ),
            ("permessage-deflate; unheard_of", None),
            ("permessage-bzip2", None),
        ] {
            assert_eq!(accepted(&headers(offer)).as_deref(), answer, "{offer}");
        }
        assert_eq!(agreed(&HeaderMap::new()), Ok(false));
        assert_eq!(agreed(&headers("permessage-deflate")), Ok(true));
        assert_eq!(
            agreed(&headers(
                "permessage-deflate; server_max_window_bits=\"12\"; client_no_context_takeover"
            )),
            Ok(true)
        );
        for wrong in [
            "x-other",
            "permessage-deflate; odd",
            "permessage-deflate, permessage-deflate",
        ] {
            assert!(agreed(&headers(wrong)).is_err(), "{wrong}");
        }
    }

    #[test]
    fn messages_are_undone_with_what_came_before() {
        let mut compress = Compress::new(Compression::default(), false);
        let mut sent = frame(0xc1, &packed(&mut compress, b"hello hello hello"));
        // In two frames, a ping between them.
        let second = packed(&mut compress, b"hello hello again");
        let (a, b) = second.split_at(3);
        sent.extend(frame(0x41, a));
        sent.extend(frame(0x89, b"ping"));
        sent.extend(frame(0x80, b));
        sent.extend(frame(0x82, b"as it is"));
        for cut in [1, 2, 7, 1000] {
            let got = fed(&mut Frames::new(1000), &sent, cut);
            let expect = [
                plain(0x81, b"hello hello hello"),
                frame(0x89, b"ping"),
                plain(0x81, b"hello hello again"),
                frame(0x82, b"as it is"),
            ]
            .concat();
            assert_eq!(got, expect, "{cut}");
        }
    }

    #[test]
    fn mistakes_are_told() {
        let mut compress = Compress::new(Compression::best(), false);
        let bomb = frame(0xc2, &packed(&mut compress, &[0; 20_000]));
        let got = fed(&mut Frames::new(10_000), &bomb, 10);
        assert_eq!(
            got,
            plain(0x82, &[])[..1]
                .iter()
                .copied()
                .chain([0x80 | 126, 39, 17, 0, 0, 0, 0])
                .collect::<Vec<_>>()
        );
        let garbage = frame(0xc1, &[0xff, 0xff, 0xff]);
        assert_eq!(fed(&mut Frames::new(1000), &garbage, 10), plain(0x83, &[]));
        let mut within = frame(0x41, &[]);
        within.extend(frame(0x81, b"x"));
        assert_eq!(fed(&mut Frames::new(1000), &within, 10), plain(0x83, &[]));
        // What is wrong without us is wrong for the reader above, unchanged.
        let odd = frame(0xc0, b"x");
        assert_eq!(fed(&mut Frames::new(1000), &odd, 10), odd);
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400), cut in 1usize..50) {
            fed(&mut Frames::new(1000), &bytes, cut);
        }
    }
}
