//! Compressed WebSocket messages (`permessage-deflate`, RFC 7692): undone, and made, below the frame
//! reader, so that it and everything above see plain messages.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::http::header::{HeaderMap, SEC_WEBSOCKET_EXTENSIONS};
use bytes::{Buf, BytesMut};
use flate2::{Compress, Compression, FlushCompress};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Reading the other side's frames.
mod frames;

use frames::{Frames, Head, mask, put_head};

/// What we offer upstream.
pub(crate) const OFFER: &str = "permessage-deflate";
/// What ends a compressed message, and is left out of it.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];
/// So much is read from below at once.
const PIECE_BYTES: usize = 16 << 10;
/// So much is undone at once.
const PLAIN_BYTES: usize = 32 << 10;

/// What is not compressed, since it is not worth it.
const PLAIN_BYTES_MIN: usize = 8;
/// So much waits to be written; then more has to wait.
const WAITING_BYTES_MAX: usize = 256 << 10;

/// How messages are compressed on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Agreed {
    /// Whether each message we send has to be compressed by itself.
    pub(crate) alone: bool,
}

/// Our answer to the extensions that a client offers, and what it comes to; `None` when there is none
/// that we take.
pub(crate) fn accepted(offered: &HeaderMap) -> Option<(String, Agreed)> {
    let mut offers = offered
        .get_all(SEC_WEBSOCKET_EXTENSIONS)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','));
    offers.find_map(answer_to)
}

/// The answer to one offer.
fn answer_to(offer: &str) -> Option<(String, Agreed)> {
    let mut parts = offer.split(';').map(str::trim);
    if parts.next() != Some(OFFER) {
        return None;
    }
    let mut answer = OFFER.to_string();
    let mut agreed = Agreed { alone: false };
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
            ("server_no_context_takeover", None) => {
                agreed.alone = true;
                answer.push_str("; server_no_context_takeover");
            }
            // Ours is as large as it can be; an offer that wants it smaller is not taken.
            ("server_max_window_bits", Some("15")) => {
                answer.push_str("; server_max_window_bits=15");
            }
            // What these allow the client to do less, it may do.
            ("client_no_context_takeover", None) => {}
            ("client_max_window_bits", bits) if bits.is_none_or(is_window) => {}
            _ => return None,
        }
    }
    Some((answer, agreed))
}

/// Whether, and how, a server took our offer. An error when it answers what was not offered.
pub(crate) fn agreed(answered: &HeaderMap) -> Result<Option<Agreed>, &'static str> {
    let odd = "the server answered with WebSocket extensions that were not offered";
    let mut answers = answered
        .get_all(SEC_WEBSOCKET_EXTENSIONS)
        .iter()
        .flat_map(|value| value.to_str().unwrap_or("?").split(','));
    let Some(answer) = answers.next() else {
        return Ok(None);
    };
    let mut parts = answer.split(';').map(str::trim);
    if answers.next().is_some() || parts.next() != Some(OFFER) {
        return Err(odd);
    }
    let mut agreed = Agreed { alone: false };
    for part in parts {
        let bits = part
            .strip_prefix("server_max_window_bits")
            .and_then(|rest| rest.trim().strip_prefix('='))
            .is_some_and(|bits| is_window(bits.trim().trim_matches('"')));
        match part {
            "client_no_context_takeover" => agreed.alone = true,
            "server_no_context_takeover" => {}
            _ if bits => {}
            _ => return Err(odd),
        }
    }
    Ok(Some(agreed))
}

fn is_window(bits: &str) -> bool {
    matches!(bits, "8" | "9" | "10" | "11" | "12" | "13" | "14" | "15")
}

/// A stream of frames in which the other side's compressed messages are undone and ours are
/// compressed. Everything else passes as it is, mistakes included: the frame reader above answers
/// them.
#[derive(Debug)]
pub(crate) struct Packing<S> {
    stream: S,
    frames: Option<(Frames, Packer)>,
    ready: BytesMut,
}

impl<S> Packing<S> {
    /// Messages above `bytes_max` are told to be too large.
    pub(crate) fn new(stream: S, agreed: Option<Agreed>, bytes_max: usize) -> Self {
        Self {
            stream,
            frames: agreed.map(|agreed| (Frames::new(bytes_max), Packer::new(agreed))),
            ready: BytesMut::new(),
        }
    }
}

/// Compresses the messages of the frames that we write: each is one frame.
#[derive(Debug)]
struct Packer {
    raw: BytesMut,
    ready: BytesMut,
    compress: Compress,
    agreed: Agreed,
}

impl Packer {
    fn new(agreed: Agreed) -> Self {
        Self {
            raw: BytesMut::new(),
            ready: BytesMut::new(),
            compress: Compress::new(Compression::fast(), false),
            agreed,
        }
    }

    /// Takes bytes of frames; those of whole ones become ready.
    fn feed(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.raw.extend_from_slice(bytes);
        while let Some(head) = Head::read(&self.raw) {
            let length = usize::try_from(head.length).unwrap_or(usize::MAX);
            let whole = head.bytes.saturating_add(length);
            if self.raw.len() < whole {
                break;
            }
            let mut frame = self.raw.split_to(whole);
            let is_message = matches!(head.opcode, 1 | 2) && head.last && !head.packed;
            if !is_message || length < PLAIN_BYTES_MIN {
                self.ready.extend_from_slice(&frame);
                continue;
            }
            let mut payload = frame.split_off(head.bytes);
            mask(&mut payload, head.mask);
            let mut packed = self.pack(&payload)?;
            put_head(
                &mut self.ready,
                0xc0 | head.opcode,
                head.masked,
                packed.len() as u64,
            );
            if head.masked {
                // The head ends with a mask of zeros; the frame's own takes its place.
                let at = self.ready.len() - 4;
                self.ready.truncate(at);
                self.ready.extend_from_slice(&head.mask);
                mask(&mut packed, head.mask);
            }
            self.ready.extend_from_slice(&packed);
        }
        Ok(())
    }

    fn pack(&mut self, plain: &[u8]) -> io::Result<Vec<u8>> {
        if self.agreed.alone {
            self.compress.reset();
        }
        let mut packed = Vec::with_capacity(plain.len() / 2 + 64);
        let mut taken = 0;
        loop {
            let before = self.compress.total_in();
            let rest = plain.get(taken..).unwrap_or_default();
            self.compress
                .compress_vec(rest, &mut packed, FlushCompress::Sync)
                .map_err(io::Error::other)?;
            taken += usize::try_from(self.compress.total_in() - before).unwrap_or(usize::MAX);
            // Room that is left means that all is flushed.
            if taken >= plain.len() && packed.len() < packed.capacity() {
                break;
            }
            packed.reserve(4096);
        }
        if packed.ends_with(&TAIL) {
            packed.truncate(packed.len() - TAIL.len());
        }
        Ok(packed)
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

impl<S: AsyncRead + Unpin> AsyncRead for Packing<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let Some((frames, _)) = &mut this.frames else {
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

impl<S: AsyncWrite + Unpin> Packing<S> {
    /// Writes what is ready.
    fn drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Some((_, packer)) = &mut self.frames {
            while !packer.ready.is_empty() {
                let written =
                    std::task::ready!(Pin::new(&mut self.stream).poll_write(cx, &packer.ready))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                packer.ready.advance(written);
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Packing<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.frames.is_none() {
            return Pin::new(&mut this.stream).poll_write(cx, data);
        }
        let waits = |this: &Self| {
            let waiting = this.frames.as_ref().map(|(_, packer)| packer.ready.len());
            waiting.is_some_and(|bytes| bytes > WAITING_BYTES_MAX)
        };
        if waits(this) {
            std::task::ready!(this.drain(cx))?;
        }
        if let Some((_, packer)) = &mut this.frames {
            packer.feed(data)?;
        }
        // What cannot be written at once is written with what follows, or flushed.
        if let Poll::Ready(Err(error)) = this.drain(cx) {
            return Poll::Ready(Err(error));
        }
        Poll::Ready(Ok(data.len()))
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(this.drain(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        std::task::ready!(this.drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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
                "x-other, permessage-deflate; server_no_context_takeover; server_max_window_bits=15",
                Some("permessage-deflate; server_no_context_takeover; server_max_window_bits=15"),
            ),
            (
                "permessage-deflate; server_max_window_bits=10, permessage-deflate",
                Some("permessage-deflate"),
            ),
            ("permessage-deflate; unheard_of", None),
            ("permessage-bzip2", None),
        ] {
            let accepted = accepted(&headers(offer));
            let alone = offer.contains("server_no_context_takeover");
            assert_eq!(
                accepted
                    .as_ref()
                    .map(|(text, agreed)| (text.as_str(), agreed.alone)),
                answer.map(|text| (text, alone)),
                "{offer}"
            );
        }
        assert_eq!(agreed(&HeaderMap::new()), Ok(None));
        assert_eq!(
            agreed(&headers("permessage-deflate")),
            Ok(Some(Agreed { alone: false }))
        );
        assert_eq!(
            agreed(&headers(
                "permessage-deflate; server_max_window_bits=\"12\"; client_no_context_takeover"
            )),
            Ok(Some(Agreed { alone: true }))
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

    /// What is compressed here is undone there, masked or not, cut anywhere.
    #[test]
    fn what_is_written_is_what_the_other_side_reads() {
        for alone in [false, true] {
            for cut in [1, 5, 10_000] {
                let mut packer = Packer::new(Agreed { alone });
                let large: Vec<u8> = (0..100_000u32)
                    .map(|n| (n.wrapping_mul(n) >> 7) as u8)
                    .collect();
                let mut sent = frame(0x81, b"hello hello hello");
                sent.extend(frame(0x89, b"ping"));
                sent.extend(frame(0x81, b"tiny"));
                let mut head = BytesMut::new();
                put_head(&mut head, 0x82, false, large.len() as u64);
                sent.extend_from_slice(&head);
                sent.extend_from_slice(&large);
                sent.extend(frame(0x81, b"hello hello hello"));
                for piece in sent.chunks(cut) {
                    packer.feed(piece).unwrap();
                }
                assert!(packer.ready.len() < sent.len() + 100);
                assert_eq!(packer.ready[0], 0xc1, "it is compressed");
                let read = fed(&mut Frames::new(200_000), &packer.ready, 1000);
                let expect = [
                    plain(0x81, b"hello hello hello"),
                    frame(0x89, b"ping"),
                    frame(0x81, b"tiny"),
                    [&head[..], &large].concat(),
                    plain(0x81, b"hello hello hello"),
                ]
                .concat();
                assert!(read == expect, "{alone} {cut}");
            }
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
