//! The parts of `scripts/measure-net`: a server, a minimal proxy to stand beside, and a client that measures.
//!
//!     measure origin CA-FILE                  prints its port; writes the certificate to trust
//!     measure minimal PORT CA-FILE OWN-CA     prints its port: ends TLS and sends on to PORT, and does nothing else
//!     measure probe HOST ADDRESS PORT CA      prints one JSON object
//!     measure echo                            prints its port: sends back whatever it is sent
//!     measure raw ADDRESS PORT                prints one JSON object: connections, and bytes there and back
//!     measure within                          the same, to an echo of its own
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a measurement that fails has no result"
)]

use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, StreamOwned};

type Error = Box<dyn std::error::Error + Send + Sync>;

const SMALL_BYTES: usize = 1024;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["origin", ca] => origin(ca),
        ["minimal", port, ca, own] => minimal(port.parse().unwrap(), ca, own),
        ["probe", host, address, port, ca] => probe(host, &format!("{address}:{port}"), ca),
        ["echo"] => {
            let (port, echo) = echo();
            println!("{port}");
            echo.join().unwrap();
        }
        ["raw", address, port] => raw(&format!("{address}:{port}")),
        ["within"] => raw(&format!("127.0.0.1:{}", echo().0)),
        _ => panic!("measure origin | minimal | probe | echo | raw | within"),
    }
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap()
}

/// Every host's certificate is made by an authority of the session's kind.
fn acceptor(host: &str, ca: &str) -> tokio_rustls::TlsAcceptor {
    let authority = net::Authority::new().unwrap();
    std::fs::write(ca, authority.pem()).unwrap();
    tokio_rustls::TlsAcceptor::from(authority.server_config(host).unwrap())
}

/// Answers `/bytes/N` with so many bytes, everything else with 1 KB, and reads whatever it is sent.
fn origin(ca: &str) {
    runtime().block_on(async {
        let acceptor = acceptor("api.measure.example.test", ca);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                if let Ok(stream) = acceptor.accept(stream).await {
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                }
            });
        }
    });
}

async fn answer(
    request: Request<Incoming>,
) -> Result<Response<BoxBody<Bytes, Infallible>>, Infallible> {
    let wanted = request
        .uri()
        .path()
        .strip_prefix("/bytes/")
        .and_then(|n| n.parse().ok());
    let mut body = request.into_body();
    while let Some(Ok(_)) = body.frame().await {}
    let Some(wanted) = wanted else {
        return Ok(Response::new(Full::from(vec![b'x'; SMALL_BYTES]).boxed()));
    };
    let piece = Bytes::from(vec![b'x'; 64 << 10]);
    let pieces = futures_util::stream::unfold(wanted, move |left: usize| {
        let piece = piece.clone();
        async move {
            let take = left.min(piece.len());
            (take > 0).then(|| (Ok(Frame::data(piece.slice(..take))), left - take))
        }
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(Shared(Box::pin(pieces)))));
    response
        .headers_mut()
        .insert("content-length", wanted.into());
    response
        .headers_mut()
        .insert("content-type", "application/zip".parse().unwrap());
    Ok(response)
}

/// A stream that is polled from one place only.
struct Shared<S>(std::pin::Pin<Box<S>>);
impl<S: futures_util::Stream> futures_util::Stream for Shared<S> {
    type Item = S::Item;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

/// The least that a proxy has to do: both TLS, one pooled client, bodies as they come.
fn minimal(port: u16, ca: &str, own: &str) {
    use hyper_util::client::legacy::Client;
    runtime().block_on(async {
        let acceptor = acceptor("api.measure.example.test", own);
        let client: Client<_, Incoming> = Client::builder(TokioExecutor::new()).build(Upstream {
            port,
            tls: tokio_rustls::TlsConnector::from(trusting(ca, &[b"http/1.1"])),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        println!("{}", listener.local_addr().unwrap().port());
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let (acceptor, client) = (acceptor.clone(), client.clone());
            tokio::spawn(async move {
                stream.set_nodelay(true).unwrap();
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(move |mut request: Request<Incoming>| {
                    let path = request.uri().path().to_string();
                    *request.uri_mut() = format!("https://api.measure.example.test{path}")
                        .parse()
                        .unwrap();
                    *request.version_mut() = hyper::Version::HTTP_11;
                    client.request(request)
                });
                let _ = auto::Builder::new(TokioExecutor::new())
                    .serve_connection(TokioIo::new(stream), service)
                    .await;
            });
        }
    });
}

#[derive(Clone)]
struct Upstream {
    port: u16,
    tls: tokio_rustls::TlsConnector,
}

impl tower_service::Service<hyper::Uri> for Upstream {
    type Response = TokioIo<Secure>;
    type Error = Error;
    type Future =
        std::pin::Pin<Box<dyn std::future::Future<Output = Result<Self::Response, Error>> + Send>>;
    fn poll_ready(&mut self, _: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Error>> {
        std::task::Poll::Ready(Ok(()))
    }
    fn call(&mut self, uri: hyper::Uri) -> Self::Future {
        let Self { port, tls } = self.clone();
        Box::pin(async move {
            let stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await?;
            stream.set_nodelay(true)?;
            let name = ServerName::try_from(uri.host().unwrap_or_default().to_string())?;
            Ok(TokioIo::new(Secure(tls.connect(name, stream).await?)))
        })
    }
}

struct Secure(tokio_rustls::client::TlsStream<tokio::net::TcpStream>);

impl hyper_util::client::legacy::connect::Connection for Secure {
    fn connected(&self) -> hyper_util::client::legacy::connect::Connected {
        hyper_util::client::legacy::connect::Connected::new()
    }
}

impl tokio::io::AsyncRead for Secure {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buffer: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl tokio::io::AsyncWrite for Secure {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        data: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.0).poll_write(cx, data)
    }
    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_flush(cx)
    }
    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

fn trusting(ca: &str, alpn: &[&[u8]]) -> Arc<ClientConfig> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(ca).unwrap() {
        roots.add_parsable_certificates([certificate.unwrap()]);
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    // Every new connection makes a full handshake.
    config.resumption = rustls::client::Resumption::disabled();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    Arc::new(config)
}

struct Connection {
    stream: StreamOwned<ClientConnection, TcpStream>,
    host: String,
}

impl Connection {
    fn open(config: &Arc<ClientConfig>, host: &str, to: &str) -> Self {
        let to = to.to_socket_addrs().unwrap().next().unwrap();
        let tcp = TcpStream::connect(to).unwrap();
        tcp.set_nodelay(true).unwrap();
        let name = ServerName::try_from(host.to_string()).unwrap();
        let tls = ClientConnection::new(Arc::clone(config), name).unwrap();
        Self {
            stream: StreamOwned::new(tls, tcp),
            host: host.to_string(),
        }
    }

    fn get(&mut self) {
        self.exchange("GET", "/", 0, SMALL_BYTES);
    }

    fn exchange(&mut self, method: &str, path: &str, sends: usize, expects: usize) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {sends}\r\n\r\n",
            self.host
        );
        self.stream.write_all(head.as_bytes()).unwrap();
        // As in an archive.
        let mut seed = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            (seed >> 32) as u8
        };
        let piece: Vec<u8> = (0..sends.min(256 << 10)).map(|_| next()).collect();
        let mut left = sends;
        while left > 0 {
            let take = left.min(piece.len());
            self.stream.write_all(&piece[..take]).unwrap();
            left -= take;
        }
        let mut piece = vec![0; 256 << 10];
        let mut filled = 0;
        let body = loop {
            let n = self.stream.read(&mut piece[filled..]).unwrap();
            assert!(n > 0, "the connection ended");
            filled += n;
            if let Some(end) = piece[..filled].windows(4).position(|w| w == b"\r\n\r\n") {
                break end + 4;
            }
        };
        assert!(
            piece.starts_with(b"HTTP/1.1 200"),
            "{}",
            String::from_utf8_lossy(&piece[..filled])
        );
        let mut seen = filled - body;
        while seen < expects {
            seen += self.stream.read(&mut piece).unwrap();
        }
    }
}

/// Sends everything back, in a thread of its own; the port where it listens.
fn echo() -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                stream.set_nodelay(true).unwrap();
                let mut piece = vec![0; RAW_PIECE];
                // Who hangs up has had enough.
                while let Ok(n @ 1..) = stream.read(&mut piece) {
                    if stream.write_all(&piece[..n]).is_err() {
                        return;
                    }
                }
            });
        }
    };
    (port, std::thread::spawn(serve))
}

const RAW_PIECE: usize = 64 << 10;

/// Connections without TLS or HTTP: from `connect` to the first byte back, one byte there and back on a kept one,
/// and many bytes there and back.
fn raw(to: &str) {
    let to = to.to_socket_addrs().unwrap().next().unwrap();
    let open = || {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
    };
    let ping = |stream: &mut TcpStream| {
        // Nothing that a request may begin with: for the rest of one is waited.
        stream.write_all(&[0]).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    };
    let connect = |_| timed(|| ping(&mut open()));
    let connect_us = median((0..200).map(connect).collect());
    let mut kept = open();
    (0..200).for_each(|_| ping(&mut kept));
    let ping_us = median((0..2000).map(|_| timed(|| ping(&mut kept))).collect());
    let bulk: usize = std::env::var("MEASURE_BULK_BYTES").map_or(1 << 30, |n| n.parse().unwrap());
    let mut there = kept.try_clone().unwrap();
    let time = timed(|| {
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let piece = vec![b'x'; RAW_PIECE];
                let mut left = bulk;
                while left > 0 {
                    let take = left.min(piece.len());
                    there.write_all(&piece[..take]).unwrap();
                    left -= take;
                }
            });
            let mut piece = vec![0; RAW_PIECE];
            let mut seen = 0;
            while seen < bulk {
                seen += kept.read(&mut piece).unwrap();
            }
        });
    });
    println!(
        "{}",
        serde_json::json!({
            "probe": "raw", "connect_us": connect_us, "ping_us": ping_us,
            "echo_mb": bulk as f64 / time.as_secs_f64() / 1e6,
        })
    );
}

fn median(mut times: Vec<Duration>) -> f64 {
    times.sort();
    times[times.len() / 2].as_secs_f64() * 1e6
}

fn timed(act: impl FnOnce()) -> Duration {
    let start = Instant::now();
    act();
    start.elapsed()
}

fn probe(host: &str, to: &str, ca: &str) {
    let h1 = trusting(ca, &[b"http/1.1"]);
    let bulk: usize = std::env::var("MEASURE_BULK_BYTES").map_or(1 << 30, |n| n.parse().unwrap());
    let mut kept = Connection::open(&h1, host, to);
    (0..200).for_each(|_| kept.get());
    let kept_us = median((0..1000).map(|_| timed(|| kept.get())).collect());
    let fresh = |_| timed(|| Connection::open(&h1, host, to).get());
    let fresh_us = median((0..100).map(fresh).collect());
    let each = 400;
    let load = timed(|| {
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut connection = Connection::open(&h1, host, to);
                    (0..each).for_each(|_| connection.get());
                });
            }
        });
    });
    let mut down_mb = 0.0;
    let mut up_mb = 0.0;
    if bulk > 0 {
        let rate = |time: Duration| bulk as f64 / time.as_secs_f64() / 1e6;
        down_mb = rate(timed(|| {
            kept.exchange("GET", &format!("/bytes/{bulk}"), 0, bulk)
        }));
        up_mb = rate(timed(|| kept.exchange("PUT", "/up", bulk, SMALL_BYTES)));
    }
    let streams = 100;
    let rounds = 20;
    let h2 = runtime().block_on(async {
        let tls = tokio_rustls::TlsConnector::from(trusting(ca, &[b"h2"]));
        let stream = tokio::net::TcpStream::connect(to).await.unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from(host.to_string()).unwrap();
        let stream = tls.connect(name, stream).await.unwrap();
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return None;
        }
        let (sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let start = Instant::now();
        for _ in 0..rounds {
            let all = (0..streams).map(|_| {
                let mut sender = sender.clone();
                let request = Request::get(format!("https://{host}/"))
                    .body(Full::<Bytes>::default())
                    .unwrap();
                tokio::spawn(async move {
                    let answer = sender.send_request(request).await.unwrap();
                    assert_eq!(answer.status(), 200);
                    answer.into_body().collect().await.unwrap().to_bytes().len()
                })
            });
            for one in all.collect::<Vec<_>>() {
                assert_eq!(one.await.unwrap(), SMALL_BYTES);
            }
        }
        Some(f64::from(streams * rounds) / start.elapsed().as_secs_f64())
    });
    println!(
        "{}",
        serde_json::json!({
            "probe": "net", "kept_us": kept_us, "fresh_us": fresh_us,
            "load": f64::from(16 * each) / load.as_secs_f64(),
            "down_mb": down_mb, "up_mb": up_mb, "h2": h2,
        })
    );
}
