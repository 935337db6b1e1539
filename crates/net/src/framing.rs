//! A second, strict reader of how an HTTP/1 connection is cut into requests. It runs beside the
//! server's own: where bytes could be cut in two ways, the connection's requests are refused.
//! What goes upstream is framed anew in any case; this keeps what is judged beyond doubt.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;

/// A head, or a line, may be this long.
const HEAD_BYTES_MAX: usize = 256 << 10;
const LINE_BYTES_MAX: usize = 4096;
/// A head that has begun has so long to end, however it trickles in.
const HEAD_PATIENCE: Duration = Duration::from_secs(30);
/// So long a body may say nothing.
const BODY_PATIENCE: Duration = Duration::from_secs(120);

/// Why the framing of a connection is in doubt, once it is.
pub(crate) type Doubt = Arc<OnceLock<&'static str>>;

/// Reads framing, in pieces of any size.
#[derive(Debug)]
pub struct Framing {
    state: State,
    held: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// In a head.
    Head,
    /// In a body of known length.
    Body(u64),
    /// In the line that gives a chunk's size.
    Size,
    /// In a chunk.
    Chunk(u64),
    /// Behind a chunk.
    ChunkEnd,
    /// In the trailers.
    Trailers,
    /// Not HTTP/1 any more (HTTP/2, a tunnel, a WebSocket).
    Opaque,
}

/// How long is waited for bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    /// Nothing is awaited.
    Endless,
    /// From when it began.
    Total(Duration),
    /// From the last byte.
    Idle(Duration),
}

impl Default for Framing {
    fn default() -> Self {
        Self {
            state: State::Head,
            held: Vec::new(),
        }
    }
}

impl Framing {
    /// Reads on.
    ///
    /// # Errors
    /// What could be read in two ways.
    pub fn feed(&mut self, mut bytes: &[u8]) -> Result<(), &'static str> {
        while !bytes.is_empty() {
            match self.state {
                State::Opaque => return Ok(()),
                State::Body(left) => {
                    let (rest, left) = skip(bytes, left);
                    bytes = rest;
                    self.state = if left == 0 {
                        State::Head
                    } else {
                        State::Body(left)
                    };
                }
                State::Chunk(left) => {
                    let (rest, left) = skip(bytes, left);
                    bytes = rest;
                    self.state = if left == 0 {
                        State::ChunkEnd
                    } else {
                        State::Chunk(left)
                    };
                }
                State::Head | State::Size | State::ChunkEnd | State::Trailers => {
                    let end = bytes.iter().position(|b| *b == b'\n');
                    let (line, rest) = bytes.split_at(end.map_or(bytes.len(), |end| end + 1));
                    self.held.extend_from_slice(line);
                    bytes = rest;
                    if end.is_some() {
                        self.line()?;
                    }
                    let most = if self.state == State::Head {
                        HEAD_BYTES_MAX
                    } else {
                        LINE_BYTES_MAX
                    };
                    if self.held.len() > most {
                        return Err("a line or a head is too long");
                    }
                }
            }
        }
        Ok(())
    }

    /// How long the next byte may take, where one has to come: from the begin of a head, from the
    /// last byte of a body.
    fn patience(&self) -> Patience {
        match self.state {
            State::Head if self.held.is_empty() => Patience::Endless,
            State::Head => Patience::Total(HEAD_PATIENCE),
            State::Opaque => Patience::Endless,
            _ => Patience::Idle(BODY_PATIENCE),
        }
    }

    /// A line is complete.
    fn line(&mut self) -> Result<(), &'static str> {
        if !self.held.ends_with(b"\r\n") {
            // The preface of HTTP/2 has its line ends in order, so this is HTTP/1.
            return Err("a line does not end with CR LF");
        }
        match self.state {
            State::Head => {
                if self.held == b"\r\n" {
                    // Empty lines before a request are ignored.
                    self.held.clear();
                } else if self.held.starts_with(b"PRI * HTTP/2.0\r\n") {
                    self.state = State::Opaque;
                } else if self.held.ends_with(b"\r\n\r\n") {
                    let head = std::mem::take(&mut self.held);
                    self.state = head_of(&head)?;
                }
                Ok(())
            }
            State::Size => {
                let line = std::mem::take(&mut self.held);
                let size = chunk_size(&line)?;
                self.state = if size == 0 {
                    State::Trailers
                } else {
                    State::Chunk(size)
                };
                Ok(())
            }
            State::ChunkEnd => {
                let line = std::mem::take(&mut self.held);
                self.state = State::Size;
                if line == b"\r\n" {
                    Ok(())
                } else {
                    Err("a chunk is longer than it says")
                }
            }
            State::Trailers => {
                let line = std::mem::take(&mut self.held);
                if line == b"\r\n" {
                    self.state = State::Head;
                    return Ok(());
                }
                field(&line).map(|_| ())
            }
            State::Body(_) | State::Chunk(_) | State::Opaque => Ok(()),
        }
    }
}

fn skip(bytes: &[u8], left: u64) -> (&[u8], u64) {
    let take = usize::try_from(left).unwrap_or(usize::MAX).min(bytes.len());
    (bytes.get(take..).unwrap_or_default(), left - take as u64)
}

/// What follows a head.
fn head_of(head: &[u8]) -> Result<State, &'static str> {
    let mut lines = head.split_inclusive(|b| *b == b'\n');
    let first = trimmed(lines.next().unwrap_or_default())?;
    let mut words = first.split(|b| *b == b' ');
    let method = words.next().unwrap_or_default();
    let (target, version) = (words.next(), words.next());
    if words.next().is_some() || target.is_none_or(<[u8]>::is_empty) {
        return Err("the request line is not `METHOD TARGET VERSION`");
    }
    if !matches!(version, Some(b"HTTP/1.1" | b"HTTP/1.0")) {
        return Err("the request line names no known version");
    }
    let mut length: Option<u64> = None;
    let mut chunked = false;
    let mut websocket = false;
    for line in lines {
        if line == b"\r\n" {
            break;
        }
        let (name, value) = field(line)?;
        if name.eq_ignore_ascii_case(b"content-length") {
            if length.is_some() {
                return Err("there are several `Content-Length` headers");
            }
            length = Some(decimal(value)?);
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            if chunked || !value.eq_ignore_ascii_case(b"chunked") {
                return Err("the `Transfer-Encoding` is not just `chunked`");
            }
            chunked = true;
        } else if name.eq_ignore_ascii_case(b"upgrade") {
            websocket |= value.eq_ignore_ascii_case(b"websocket");
        }
    }
    if method == b"CONNECT" || websocket {
        return Ok(State::Opaque);
    }
    match (length, chunked) {
        (Some(_), true) => Err("there are both a `Content-Length` and a `Transfer-Encoding`"),
        (None, true) if version == Some(b"HTTP/1.0") => Err("HTTP/1.0 has no `Transfer-Encoding`"),
        (None, true) => Ok(State::Size),
        (Some(0) | None, false) => Ok(State::Head),
        (Some(bytes), false) => Ok(State::Body(bytes)),
    }
}

/// Name and value of a header line.
fn field(line: &[u8]) -> Result<(&[u8], &[u8]), &'static str> {
    let line = trimmed(line)?;
    let colon = line
        .iter()
        .position(|b| *b == b':')
        .ok_or("a header line has no colon")?;
    let (name, value) = line.split_at(colon);
    if name.is_empty() || !name.iter().all(|b| is_token(*b)) {
        return Err("a header name is malformed, or a header is folded over lines");
    }
    Ok((name, value.get(1..).unwrap_or_default().trim_ascii()))
}

/// A line without its end, and with no other control characters that some take for one.
fn trimmed(line: &[u8]) -> Result<&[u8], &'static str> {
    let line = line
        .strip_suffix(b"\r\n")
        .ok_or("a line does not end with CR LF")?;
    if line.iter().any(|b| matches!(b, b'\r' | b'\n' | 0)) {
        return Err("there is a stray CR or zero byte in a head");
    }
    Ok(line)
}

fn decimal(value: &[u8]) -> Result<u64, &'static str> {
    let digits = std::str::from_utf8(value)
        .ok()
        .filter(|v| !v.is_empty() && v.bytes().all(|b| b.is_ascii_digit()));
    digits
        .and_then(|v| v.parse().ok())
        .ok_or("the `Content-Length` is not a number")
}

fn chunk_size(line: &[u8]) -> Result<u64, &'static str> {
    let line = trimmed(line)?;
    let end = line.iter().position(|b| *b == b';').unwrap_or(line.len());
    let digits = line.get(..end).unwrap_or_default().trim_ascii_end();
    let text = std::str::from_utf8(digits)
        .ok()
        .filter(|v| (1..=16).contains(&v.len()) && v.bytes().all(|b| b.is_ascii_hexdigit()));
    text.and_then(|v| u64::from_str_radix(v, 16).ok())
        .ok_or("the size of a chunk is malformed")
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// A stream whose framing is read beside.
pub(crate) struct Guarded<S> {
    stream: S,
    framing: Framing,
    doubt: Doubt,
    /// Ends what takes too long.
    clock: Option<Pin<Box<Sleep>>>,
}

impl<S> Guarded<S> {
    /// The stream, and where a doubt will be found.
    pub(crate) fn new(stream: S) -> (Self, Doubt) {
        let doubt = Doubt::default();
        (
            Self {
                stream,
                framing: Framing::default(),
                doubt: Arc::clone(&doubt),
                clock: None,
            },
            doubt,
        )
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        if Pin::new(&mut this.stream)
            .poll_read(cx, buffer)?
            .is_pending()
        {
            return this.wait(cx);
        }
        if this.doubt.get().is_none()
            && let Err(why) = this
                .framing
                .feed(buffer.filled().get(before..).unwrap_or_default())
        {
            // Set once; the first reason stays.
            let _ = this.doubt.set(why);
        }
        if !matches!(this.framing.patience(), Patience::Total(_)) {
            this.clock = None;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S> Guarded<S> {
    /// Waits for bytes, as long as there is patience.
    fn wait(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (Patience::Total(time) | Patience::Idle(time)) = self.framing.patience() else {
            return Poll::Pending;
        };
        let clock = self
            .clock
            .get_or_insert_with(|| Box::pin(tokio::time::sleep(time)));
        clock.as_mut().poll(cx).map(|()| {
            let why = "a request did not come to its end in time";
            Err(io::Error::new(io::ErrorKind::TimedOut, why))
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
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
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
    }
    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &[u8]) -> Result<State, &'static str> {
        let mut framing = Framing::default();
        framing.feed(text).map(|()| framing.state)
    }

    #[test]
    fn sound_framing_is_followed() {
        for (text, state) in [
            (&b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..], State::Head),
            (b"\r\nGET / HTTP/1.0\r\n\r\n", State::Head),
            (b"POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\nabc", State::Body(2)),
            (b"POST / HTTP/1.1\r\ncontent-length:0\r\n\r\nGET / HTTP/1.1\r\n\r\n", State::Head),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=\"y\"\r\nabc\r\n0\r\nT: v\r\n\r\n", State::Head),
            (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0003 \r\nab", State::Chunk(1)),
            (b"CONNECT a:1 HTTP/1.1\r\n\r\n\x16\x03\n", State::Opaque),
            (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\n", State::Opaque),
            (b"GET / HTTP/1.1\r\nX: \xff\r\n\r\n", State::Head),
        ] {
            assert_eq!(check(text), Ok(state), "{}", String::from_utf8_lossy(text));
        }
    }

    #[test]
    fn doubtful_framing_is_found() {
        for text in [
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 3, 3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: +3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 0x3\r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: \r\n\r\n",
            "POST / HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding : chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: \x0bchunked\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n",
            "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nX: a\r\n Transfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nX: a\rTransfer-Encoding: chunked\r\n\r\n",
            "POST / HTTP/1.1\r\nX: a\0b\r\n\r\n",
            "POST / HTTP/1.1\r\nNo colon\r\n\r\n",
            "POST / HTTP/1.1\r\n: empty\r\n\r\n",
            "POST / x HTTP/1.1\r\n\r\n",
            "POST / HTTP/1.2\r\n\r\n",
            "POST /\r\n\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x3\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-3\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\nabc",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n11111111111111111\r\n",
            "POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n;x\r\n",
        ] {
            assert!(check(text.as_bytes()).is_err(), "{text:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_that_trickles_in_ends_and_an_idle_connection_stays() {
        use tokio::io::{AsyncReadExt, AsyncWriteExt};
        let (mut client, server) = tokio::io::duplex(4096);
        let (mut guarded, _) = Guarded::new(server);
        let start = tokio::time::Instant::now();
        let writer = tokio::spawn(async move {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            client
                .write_all(b"GET / HTTP/1.1\r\n\r\nGET / ")
                .await
                .unwrap();
            // A byte a second, for ever.
            while client.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        });
        let mut piece = [0; 64];
        let error = loop {
            match guarded.read(&mut piece).await {
                Ok(n) => assert!(n > 0),
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        let lasted = start.elapsed();
        assert!(
            lasted >= Duration::from_secs(3600) + HEAD_PATIENCE,
            "{lasted:?}"
        );
        assert!(
            lasted < Duration::from_secs(3605) + HEAD_PATIENCE,
            "{lasted:?}"
        );
        drop(guarded);
        writer.await.unwrap();
    }

    proptest! {
        /// How the bytes arrive makes no difference.
        #[test]
        fn pieces_make_no_difference(
            picks in proptest::collection::vec(0usize..12, 0..14),
            cut in 1usize..7,
        ) {
            let parts: [&[u8]; 12] = [
                b"POST / HTTP/1.1\r\n", b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n",
                b"\r\n", b"3\r\n", b"abc", b"0\r\n", b"\n", b"\r", b"GET / HTTP/1.1\r\n\r\n", b"X: y\r\n", b" z\r\n",
            ];
            let text: Vec<u8> = picks.iter().flat_map(|p| parts[*p].iter().copied()).collect();
            let mut pieces = Framing::default();
            let piecewise = text.chunks(cut).try_for_each(|piece| pieces.feed(piece));
            let whole = check(&text);
            prop_assert_eq!(piecewise.map(|()| pieces.state), whole);
        }

        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            let _ = check(&bytes);
        }
    }
}
