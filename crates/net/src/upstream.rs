//! Connections to the outside: the policy's upstreams, verified TLS, and no way from a public
//! name to a private address.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::{Request, Response, Uri};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::pki_types::ServerName;
use store::record::UNKNOWN;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::UpstreamRule;
use crate::mask::Mask;
use crate::trust::{self, Trust};

const CONNECT: Duration = Duration::from_secs(30);
/// An idle connection is kept this long for the next request.
const IDLE: Duration = Duration::from_secs(20);

/// So many idle connections are kept a party.
const IDLE_MAX: usize = 32;

/// What goes over HTTP bodies when something fails.
pub(crate) type BoxError = Box<dyn std::error::Error + Send + Sync>;
/// A body of any kind.
pub(crate) type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Why an upstream could not be reached, in words.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UpstreamError(pub(crate) String);

/// Why a request was not answered.
#[derive(Debug)]
pub(crate) struct SendError {
    /// In words.
    pub(crate) why: String,
    /// Whether bytes of it may have reached the other side.
    pub(crate) sent: bool,
}

impl From<UpstreamError> for SendError {
    /// There was no connection yet.
    fn from(UpstreamError(why): UpstreamError) -> Self {
        Self { why, sent: false }
    }
}

impl SendError {
    /// What is recorded, of a request that changes something.
    pub(crate) fn result(&self) -> String {
        match self.sent {
            true => format!(
                "{UNKNOWN}it was sent, then {}; whether it took effect is not known",
                self.why
            ),
            false => self.why.clone(),
        }
    }
}

/// Whether the policy names exactly this host or address (host, port).
pub(crate) type Named = Arc<dyn Fn(&str, u16) -> bool + Send + Sync>;

/// How parties are reached.
#[derive(Clone)]
pub(crate) struct Routes {
    rules: Arc<Vec<Route>>,
    trust: Arc<Trust>,
    named: Named,
}

struct Route {
    rule: UpstreamRule,
    secure: bool,
    host: String,
    port: u16,
    prefix: String,
}

/// Which protocols are offered upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Offer {
    /// HTTP/1.1 only.
    Http1,
    /// HTTP/2, else HTTP/1.1.
    Any,
    /// HTTP/2 without asking (in the clear).
    Http2,
}

impl Routes {
    /// Reads upstream rules.
    pub(crate) fn new(
        rules: &[UpstreamRule],
        trust: Trust,
        named: Named,
    ) -> Result<Self, UpstreamError> {
        let rules = rules.iter().map(route).collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            rules: Arc::new(rules),
            trust: Arc::new(trust),
            named,
        })
    }

    /// What stands before the path at a party's upstream.
    pub(crate) fn prefix(&self, host: &str, port: u16) -> &str {
        self.route(host, port).map_or("", |route| &route.prefix)
    }

    /// Whether a party is reached in the clear, whatever the agent speaks to us.
    pub(crate) fn in_the_clear(&self, host: &str, port: u16, scheme: &str) -> bool {
        self.route(host, port)
            .map_or(scheme == "http", |route| !route.secure)
    }

    /// Whether what is sent there can be read on the way: in the clear, and neither to this machine nor to
    /// where the policy says.
    pub(crate) fn open_to_all(&self, host: &str, port: u16, scheme: &str) -> bool {
        let here = || {
            host == "localhost"
                || host
                    .parse()
                    .is_ok_and(|address: IpAddr| address.is_loopback())
        };
        scheme == "http" && self.route(host, port).is_none() && !here()
    }

    /// Connects to a party (or to the upstream that stands for it).
    pub(crate) async fn connect(
        &self,
        host: &str,
        port: u16,
        secure: bool,
        offer: Offer,
    ) -> Result<Wire, UpstreamError> {
        let (to_host, to_port, secure, server) = match self.route(host, port) {
            Some(route) => {
                // An upstream given by address shows the party's own certificate.
                let by_address = route.host.parse::<IpAddr>().is_ok();
                let server = if by_address {
                    host
                } else {
                    route.host.as_str()
                };
                (route.host.as_str(), route.port, route.secure, server)
            }
            None => (host, port, secure, host),
        };
        let overridden = self.route(host, port).is_some();
        let stream = tokio::time::timeout(CONNECT, self.tcp(to_host, to_port, overridden))
            .await
            .map_err(|_| {
                UpstreamError(format!(
                    "no connection to `{to_host}` port {to_port} within {} s",
                    CONNECT.as_secs()
                ))
            })??;
        if !secure {
            return Ok(Wire::Clear(stream));
        }
        let name = ServerName::try_from(server.to_string())
            .map_err(|_| UpstreamError(format!("`{server}` cannot be verified by TLS")))?;
        let (config, asked) = self.trust.connection(host, port, offer)?;
        let connector = TlsConnector::from(Arc::new(config));
        let connected = tokio::time::timeout(CONNECT, connector.connect(name, stream)).await;
        if asked.load(Ordering::Relaxed) {
            self.trust.asks(host);
        }
        match connected {
            Ok(Ok(stream)) => Ok(Wire::Secure(Box::new(stream))),
            Ok(Err(error)) => Err(UpstreamError(
                trust::words(server, &error)
                    .unwrap_or_else(|| format!("no secure connection to `{server}`: {error}")),
            )),
            Err(_) => Err(UpstreamError(format!(
                "the TLS handshake with `{server}` did not end within {} s",
                CONNECT.as_secs()
            ))),
        }
    }

    async fn tcp(
        &self,
        host: &str,
        port: u16,
        overridden: bool,
    ) -> Result<TcpStream, UpstreamError> {
        let addresses: Vec<SocketAddr> = match host.parse::<IpAddr>() {
            Ok(address) => vec![SocketAddr::new(address, port)],
            Err(_) => tokio::net::lookup_host((host, port))
                .await
                .map_err(|e| UpstreamError(format!("`{host}` cannot be resolved: {e}")))?
                .collect(),
        };
        let mut last = UpstreamError(format!("`{host}` has no address"));
        for address in addresses {
            if !overridden && !self.may_lead_to(host, address) {
                last = UpstreamError(format!(
                    "`{host}` resolves to the private address {}, which the policy does not name; \
                     name that address or give the party an upstream",
                    address.ip()
                ));
                continue;
            }
            match TcpStream::connect(address).await {
                Ok(stream) => {
                    // A failure only costs latency.
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Err(error) => {
                    last =
                        UpstreamError(format!("`{host}` ({address}) cannot be reached: {error}"));
                }
            }
        }
        Err(last)
    }

    /// A public name must not lead to a private address; an address or a name of this machine or
    /// its network was judged as what it is.
    fn may_lead_to(&self, host: &str, address: SocketAddr) -> bool {
        let ip = address.ip().to_canonical();
        if !is_private(ip) || (self.named)(&ip.to_string(), address.port()) {
            return true;
        }
        let link_local = match ip {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        };
        if ip.is_loopback() || ip.is_unspecified() || link_local {
            // This machine's own services, whatever the name: only where the policy names just that.
            (host == "localhost" || host.ends_with(".localhost"))
                && (self.named)(host, address.port())
        } else {
            host.parse::<IpAddr>().is_ok()
                || (!host.contains('.') && (self.named)(host, address.port()))
        }
    }

    fn route(&self, host: &str, port: u16) -> Option<&Route> {
        self.rules
            .iter()
            .find(|route| route.rule.is_for(host, port))
    }
}

fn route(rule: &UpstreamRule) -> Result<Route, UpstreamError> {
    let wrong = |why: &str| {
        UpstreamError(format!(
            "the upstream `{}` {why}; write it like `http://127.0.0.1:8080`",
            rule.base
        ))
    };
    let url = url::Url::parse(&rule.base).map_err(|e| wrong(&format!("is no URL ({e})")))?;
    let secure = match url.scheme() {
        "http" => false,
        "https" => true,
        _ => return Err(wrong("is neither http nor https")),
    };
    let host = url.host_str().ok_or_else(|| wrong("names no host"))?;
    Ok(Route {
        rule: rule.clone(),
        secure,
        host: host.trim_matches(['[', ']']).to_string(),
        port: url
            .port_or_known_default()
            .unwrap_or(if secure { 443 } else { 80 }),
        prefix: url.path().trim_end_matches('/').to_string(),
    })
}

/// Addresses that mean this machine or its own network.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => {
            let [a, b, ..] = v4.octets();
            v4.is_loopback()
                || v4.is_private()
                || v4.is_link_local()
                || v4.is_unspecified()
                || v4.is_broadcast()
                || v4.is_multicast()
                || a == 0
                || (a == 100 && (64..128).contains(&b))
                || (a == 198 && (18..20).contains(&b))
        }
        IpAddr::V6(v6) => {
            let [first, ..] = v6.segments();
            v6.is_loopback()
                || v6.is_unspecified()
                || v6.is_multicast()
                || first & 0xfe00 == 0xfc00
                || first & 0xffc0 == 0xfe80
        }
    }
}

/// A connection upstream.
pub(crate) enum Wire {
    /// In the clear.
    Clear(TcpStream),
    /// Inside TLS.
    Secure(Box<TlsStream<TcpStream>>),
}

macro_rules! either {
    ($self:ident, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Wire::Clear($stream) => {
                let $stream = Pin::new($stream);
                $call
            }
            Wire::Secure($stream) => {
                let $stream = Pin::new(&mut **$stream);
                $call
            }
        }
    };
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, s => s.poll_read(cx, buffer))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, s => s.poll_write(cx, data))
    }
    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, s => s.poll_flush(cx))
    }
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, s => s.poll_shutdown(cx))
    }
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, s => s.poll_write_vectored(cx, slices))
    }
    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Clear(s) => s.is_write_vectored(),
            Self::Secure(s) => s.is_write_vectored(),
        }
    }
}

impl Connection for Wire {
    fn connected(&self) -> Connected {
        match self {
            Self::Secure(s) if s.get_ref().1.alpn_protocol() == Some(b"h2") => {
                Connected::new().negotiated_h2()
            }
            _ => Connected::new(),
        }
    }
}

#[derive(Clone)]
struct Connector {
    routes: Routes,
    offer: Offer,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<Wire>;
    type Error = UpstreamError;
    type Future =
        Pin<Box<dyn std::future::Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { routes, offer } = self.clone();
        Box::pin(async move {
            let host = uri
                .host()
                .unwrap_or_default()
                .trim_matches(['[', ']'])
                .to_string();
            let secure = uri.scheme_str() == Some("https");
            let port = uri.port_u16().unwrap_or(if secure { 443 } else { 80 });
            routes
                .connect(&host, port, secure, offer)
                .await
                .map(TokioIo::new)
        })
    }
}

/// Sends requests over pooled connections.
#[derive(Clone)]
pub(crate) struct Upstream {
    pub(crate) routes: Routes,
    h1: Client<Connector, Body>,
    any: Client<Connector, Body>,
    h2: Client<Connector, Body>,
}

impl Upstream {
    pub(crate) fn new(routes: Routes) -> Self {
        let client = |offer, h2_only| {
            Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_max_idle_per_host(IDLE_MAX)
                .pool_timer(TokioTimer::new())
                .timer(TokioTimer::new())
                .http2_only(h2_only)
                .http2_adaptive_window(true)
                .set_host(false)
                .build(Connector {
                    routes: routes.clone(),
                    offer,
                })
        };
        let (h1, any, h2) = (
            client(Offer::Http1, false),
            client(Offer::Any, false),
            client(Offer::Http2, true),
        );
        Self {
            routes,
            h1,
            any,
            h2,
        }
    }

    /// Sends one request, once. A pooled connection that turns out to be closed before a byte of
    /// the request was written is replaced; nothing is ever sent twice.
    pub(crate) async fn send(
        &self,
        offer: Offer,
        request: Request<Body>,
    ) -> Result<Response<Incoming>, SendError> {
        let client = match offer {
            Offer::Http1 => &self.h1,
            Offer::Any => &self.any,
            Offer::Http2 => &self.h2,
        };
        let host = request.uri().host().unwrap_or_default().to_string();
        let mask = request.extensions().get::<Mask>().cloned();
        let answer = client.request(request).await;
        let answer = answer.map(|answer| Mask::lay_over(mask, answer));
        answer.map_err(|error| {
            let mut words = None;
            // Whatever is not known to have gone nowhere may have arrived.
            let mut sent = !error.is_connect();
            let mut source = error.source();
            while let Some(inner) = source {
                if let Some(UpstreamError(known)) = inner.downcast_ref() {
                    return UpstreamError(known.clone()).into();
                }
                // In TLS 1.3 a server looks at a client's certificate after the handshake.
                if let Some(known) = self.routes.trust.broken(&host, inner) {
                    return UpstreamError(known).into();
                }
                if let Some(inner) = inner.downcast_ref::<hyper::Error>() {
                    sent &= !inner.is_canceled();
                }
                words = Some(inner.to_string());
                source = inner.source();
            }
            SendError {
                why: words.unwrap_or_else(|| error.to_string()),
                sent,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn private_addresses() {
        for private in [
            "127.0.0.1",
            "10.1.2.3",
            "169.254.169.254",
            "192.168.0.1",
            "0.0.0.0",
            "100.64.0.1",
            "::1",
            "fd00::1",
            "fe80::1",
        ] {
            assert!(is_private(private.parse().unwrap()), "{private}");
        }
        for public in ["1.1.1.1", "93.184.216.34", "2606:4700::1111"] {
            assert!(!is_private(public.parse().unwrap()), "{public}");
        }
    }

    #[test]
    fn a_public_name_does_not_lead_home() {
        let routes = Routes::new(
            &[],
            Trust::new(&[], &[]).unwrap(),
            Arc::new(|host, _| ["10.0.0.7", "box", "named.localhost", "127.0.0.2"].contains(&host)),
        )
        .unwrap();
        for (host, address, expect) in [
            ("rebind.example", "127.0.0.1:80", false),
            ("rebind.example", "169.254.169.254:80", false),
            ("rebind.example", "[::ffff:127.0.0.1]:80", false),
            ("rebind.example", "93.184.216.34:80", true),
            ("corp.example", "10.0.0.7:80", true),
            ("localhost", "127.0.0.1:80", false),
            ("named.localhost", "127.0.0.1:80", true),
            ("169.254.169.254", "169.254.169.254:80", false),
            ("0.0.0.0", "0.0.0.0:80", false),
            ("192.168.1.2", "192.168.1.2:80", true),
            ("box", "127.0.0.1:80", false),
            ("box", "192.168.1.2:80", true),
            ("other", "192.168.1.2:80", false),
            ("127.0.0.1", "127.0.0.1:80", false),
            ("127.0.0.2", "127.0.0.2:80", true),
        ] {
            assert_eq!(
                routes.may_lead_to(host, address.parse().unwrap()),
                expect,
                "{host} {address}"
            );
        }
    }
}
