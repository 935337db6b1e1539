//! Accepting a connection: where it leads, by the address it went to, and what it speaks, by its
//! first bytes.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::canonical::{self, Ambiguous};
use crate::net::Shared;
use crate::{dns, http, names, raw, socks, tls};

/// Tunnels one within the other.
const DEPTH_MAX: u8 = 3;

/// A host and port, canonical.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    /// Canonical host.
    pub(crate) host: String,
    /// Port.
    pub(crate) port: u16,
}

/// What is known of a connection before any request on it.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Where it leads; `None` for our own proxy port, where each request says it.
    pub(crate) target: Option<Endpoint>,
    /// Set once TLS was ended.
    pub(crate) secured: Option<Secured>,
    /// How many `CONNECT`s lie around it.
    pub(crate) depth: u8,
    /// Why there is no room for it.
    pub(crate) crowded: Option<String>,
}

/// What the TLS handshake said.
#[derive(Clone, Debug)]
pub(crate) struct Secured {
    /// The name in it, canonical.
    pub(crate) sni: Option<String>,
}

/// Anything that carries a connection.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send + 'static> Stream for T {}

/// A stream of any kind.
pub(crate) type AnyStream = Box<dyn Stream>;

/// Accepts the agent's connections until the runtime ends.
pub(crate) async fn listen(shared: Arc<Shared>, listener: TcpListener) {
    let room = Arc::clone(&shared.room);
    each(listener, room, move |stream| {
        arrive(Arc::clone(&shared), stream)
    })
    .await;
}

/// Accepts connections until the runtime ends, as many at a time as there is room for; the next one
/// waits, and those after it in the system's queue.
pub(crate) async fn each<F>(
    listener: TcpListener,
    room: Arc<Semaphore>,
    serve: impl Fn(TcpStream) -> F,
) where
    F: Future<Output = io::Result<()>> + Send + 'static,
{
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Taken only now: listeners share the room. Closed never, so there is always a
                // permit to be had in the end.
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let served = serve(stream);
                tokio::spawn(async move {
                    if let Err(error) = served.await {
                        tracing::debug!(%error, "a connection ended");
                    }
                    drop(permit);
                });
            }
            Err(error) => {
                // Out of descriptors, most likely: wait for some to be closed.
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn arrive(shared: Arc<Shared>, stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let local = stream.local_addr()?;
    let original = shared
        .config
        .destinations
        .get(&local)
        .copied()
        .unwrap_or(local);
    let address = original.ip().to_canonical();
    if original.port() == 53 {
        return dns::serve_tcp(&shared.names, stream).await;
    }
    let Some(place) = place_of(&shared, address, original) else {
        // A synthetic address that was given to no name.
        return raw::reset(stream);
    };
    serve(shared, Box::new(stream), place).await
}

fn place_of(shared: &Shared, address: IpAddr, original: SocketAddr) -> Option<Place> {
    let port = original.port();
    let target = if port == shared.config.proxy_port {
        None
    } else {
        let host = match shared.names.name(address) {
            Some(name) => name,
            None if names::is_synthetic(address) => return None,
            None => canonical::address_text(address),
        };
        Some(Endpoint { host, port })
    };
    Some(Place {
        target,
        secured: None,
        depth: 0,
        crowded: None,
    })
}

/// The place a connection through our proxy port leads to.
pub(crate) fn inner(
    shared: &Shared,
    around: &Place,
    host: &str,
    port: u16,
) -> Result<Place, Ambiguous> {
    if around.depth >= DEPTH_MAX {
        return Err(Ambiguous(
            "there are too many tunnels one within the other".into(),
        ));
    }
    let host = canonical::host(host)?;
    let target = if port == shared.config.proxy_port {
        None
    } else {
        // Clients that resolve by themselves ask for the address they were given.
        let host = match host.parse::<IpAddr>() {
            Ok(address) if names::is_synthetic(address) => shared
                .names
                .name(address)
                .ok_or_else(|| Ambiguous(format!("the address {address} belongs to nobody")))?,
            _ => host,
        };
        Some(Endpoint { host, port })
    };
    Ok(Place {
        target,
        secured: None,
        depth: around.depth + 1,
        crowded: None,
    })
}

/// [`serve`] as a future of a known type, since a tunnel may hold another.
pub(crate) fn serve_boxed(
    shared: Arc<Shared>,
    stream: AnyStream,
    place: Place,
) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> {
    Box::pin(serve(shared, stream, place))
}

/// Serves a connection that leads to a place, whatever it turns out to speak.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    stream: AnyStream,
    mut place: Place,
) -> io::Result<()> {
    let seat = place.target.as_ref().map_or(Ok(None), |target| {
        let policy = shared.session.policy();
        shared
            .limiter
            .connection(&policy, &target.host, target.port)
    });
    let _seat = match seat {
        Ok(seat) => seat,
        Err(why) => {
            place.crowded = Some(why);
            None
        }
    };
    let (speaks, stream) = listen_first(&shared, stream, &place).await?;
    match speaks {
        Speaks::Nothing => Ok(()),
        Speaks::Http => http::serve(shared, stream, place).await,
        Speaks::Other if place.target.is_none() && stream.first.first() == Some(&5) => {
            socks::serve(shared, Box::new(stream), place).await
        }
        Speaks::Other => {
            // Who says nothing at SSH's own port waits for a server that does.
            let silent_ssh =
                stream.first.is_empty() && place.target.as_ref().is_some_and(|t| t.port == 22);
            let ssh = silent_ssh || stream.first.starts_with(b"SSH-");
            raw::serve(shared, Box::new(stream), place, ssh).await
        }
        Speaks::Tls if is_opaque(&shared, &place) => {
            raw::serve(shared, Box::new(stream), place, false).await
        }
        Speaks::Tls => {
            let accepted = tls::accept(&shared.config.authority, stream, &place).await;
            let (clear, place) = accepted.inspect_err(|error| shared.distrusted(&place, error))?;
            if clear.get_ref().1.alpn_protocol() == Some(b"h2") {
                return http::serve(shared, clear, place).await;
            }
            let (speaks, clear) = listen_first(&shared, Box::new(clear), &place).await?;
            match speaks {
                Speaks::Nothing => Ok(()),
                Speaks::Http => http::serve(shared, clear, place).await,
                Speaks::Tls | Speaks::Other => {
                    raw::serve(shared, Box::new(clear), place, false).await
                }
            }
        }
    }
}

/// Whether the policy names where a connection leads for `CONNECT` and for nothing else: then its
/// TLS is left alone (programs that pin certificates), and it is judged by its destination.
fn is_opaque(shared: &Shared, place: &Place) -> bool {
    place.target.as_ref().is_some_and(|target| {
        shared
            .session
            .policy()
            .party(&target.host, target.port)
            .is_some_and(|party| {
                !party.methods.is_empty() && party.methods.iter().all(|method| method == "CONNECT")
            })
    })
}

/// What a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Speaks {
    /// It was closed before it said anything.
    Nothing,
    /// A TLS record with a handshake.
    Tls,
    /// HTTP/1 or the preface of HTTP/2.
    Http,
    /// Anything else, or the server has to speak first.
    Other,
}

/// What the first bytes say; `None` when there are too few. Whatever a server might read as HTTP is
/// HTTP: a connection that is not is judged by its destination alone.
pub(crate) fn speaks(first: &[u8]) -> Option<Speaks> {
    match first {
        [0x16] => return None,
        [0x16, 3, ..] => return Some(Speaks::Tls),
        _ => {}
    }
    // Servers pass over empty lines before a request.
    let blank = first.iter().take_while(|b| b.is_ascii_whitespace()).count();
    let line = first.get(blank..).unwrap_or_default();
    let letters = |b: &&u8| b.is_ascii_alphabetic() || **b == b'-';
    let word = line.iter().take_while(letters).count();
    match line.get(word) {
        _ if word > METHOD_BYTES_MAX || blank > LINE_BYTES_MAX => Some(Speaks::Other),
        None => None,
        Some(b' ') if word > 0 => {
            let method = line.get(..word).unwrap_or_default();
            if !method.iter().any(u8::is_ascii_lowercase) {
                return Some(Speaks::Http);
            }
            // Protocols of words in small letters look like it until the end of the line.
            match line.iter().position(|b| *b == b'\n') {
                Some(end) => {
                    let line = line.get(..end).unwrap_or_default();
                    let http = line
                        .windows(6)
                        .any(|six| six.eq_ignore_ascii_case(b" HTTP/"));
                    Some(if http { Speaks::Http } else { Speaks::Other })
                }
                None if line.len() > LINE_BYTES_MAX => Some(Speaks::Http),
                None => None,
            }
        }
        Some(_) => Some(Speaks::Other),
    }
}

/// Letters of a method.
const METHOD_BYTES_MAX: usize = 24;
/// Bytes of a request line that are waited for.
const LINE_BYTES_MAX: usize = 8192;

/// Ports on which clients open connections long before they say anything.
fn client_speaks_first(place: &Place) -> bool {
    match &place.target {
        None => true,
        Some(target) => matches!(target.port, 80 | 443 | 8000 | 8080 | 8443 | 3000),
    }
}

async fn listen_first(
    shared: &Shared,
    mut stream: AnyStream,
    place: &Place,
) -> io::Result<(Speaks, Replay<AnyStream>)> {
    let mut first = BytesMut::with_capacity(4096);
    let patience = if client_speaks_first(place) {
        Duration::from_secs(600)
    } else {
        shared.config.first_byte_wait
    };
    let found = loop {
        match tokio::time::timeout(patience, stream.read_buf(&mut first)).await {
            Ok(Ok(0)) if first.is_empty() => break Speaks::Nothing,
            Ok(Ok(0)) => break Speaks::Other,
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) if client_speaks_first(place) => break Speaks::Nothing,
            Err(_) => break Speaks::Other,
        }
        if let Some(found) = speaks(&first) {
            break found;
        }
    };
    Ok((
        found,
        Replay {
            first: first.freeze(),
            stream,
        },
    ))
}

/// A stream whose first bytes were read already.
#[derive(Debug)]
pub(crate) struct Replay<S> {
    first: Bytes,
    stream: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Replay<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.first.is_empty() {
            let take = self.first.len().min(buffer.remaining());
            buffer.put_slice(self.first.get(..take).unwrap_or_default());
            self.first.advance(take);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Replay<S> {
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

    #[test]
    fn first_bytes() {
        for (first, expect) in [
            (&b""[..], None),
            (b"G", None),
            (b"GET", None),
            (b"GET ", Some(Speaks::Http)),
            (b"PRI * HTTP/2.0", Some(Speaks::Http)),
            (b"VERSION-CONTROL /x", Some(Speaks::Http)),
            (b"\x16", None),
            (b"\x16\x03\x01", Some(Speaks::Tls)),
            (b"\x16\x02", Some(Speaks::Other)),
            (b"SSH-2.0-OpenSSH_9", Some(Speaks::Other)),
            (b"\x00", Some(Speaks::Other)),
            (b"get /", None),
            (b"get /x HTTP/1.1\r\n", Some(Speaks::Http)),
            (b"get key\r\n", Some(Speaks::Other)),
            (b"\r\n", None),
            (b"\r\n\r\nDELETE /", Some(Speaks::Http)),
            (b"\n delete /x http/1.1\n", Some(Speaks::Http)),
            (b"\r\n\x00", Some(Speaks::Other)),
            (b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", Some(Speaks::Other)),
        ] {
            assert_eq!(speaks(first), expect, "{first:?}");
        }
    }
}
