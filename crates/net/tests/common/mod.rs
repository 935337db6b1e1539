//! A world for tests: a session, a net channel on loopback listeners, and origin servers that
//! write down what reaches them.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "each test file uses a part of this, and a helper that fails fails its test"
)]

pub mod git;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use kernel::policy::{
    HostPattern, NoRules, Party, PathRule, SensitiveRule, SourcePattern, SourceRule,
};
use kernel::{Channel, Content, Digest, KindSet, Level, Policy, Source, Verdict};
use monitor::Session;
use monitor::session::{Parts, SystemChance};
use net::{Authority, Net, NetConfig, Sockets, UpstreamRule};
use store::{Blobs, Log, Record, SessionDir};

/// Waits until something holds; false when it does not within a minute.
pub fn until(mut holds: impl FnMut() -> bool) -> bool {
    let deadline = std::time::Instant::now() + Duration::from_secs(60);
    while !holds() {
        if std::time::Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// What an origin server saw.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    pub uri: String,
    pub host: String,
    pub headers: BTreeMap<String, String>,
    pub body: Vec<u8>,
    pub trailers: BTreeMap<String, String>,
}

/// An origin server.
pub struct Origin {
    pub address: SocketAddr,
    pub seen: Arc<Mutex<Vec<Seen>>>,
    pub connections: Arc<std::sync::atomic::AtomicUsize>,
    runtime: tokio::runtime::Runtime,
}

type ServerBody = BoxBody<Bytes, Infallible>;

fn text(body: impl Into<Bytes>) -> ServerBody {
    Full::new(body.into()).boxed()
}

async fn serve_one(
    seen: Arc<Mutex<Vec<Seen>>>,
    mut request: Request<Incoming>,
) -> Response<ServerBody> {
    let path = request.uri().path().to_string();
    let upgrade = request
        .headers()
        .contains_key("upgrade")
        .then(|| hyper::upgrade::on(&mut request));
    if path == "/grpc.Echo/Chat" {
        return echo(seen, request);
    }
    let (parts, body) = request.into_parts();
    let written = |headers: &http::HeaderMap| -> BTreeMap<String, String> {
        let text = |v: &http::HeaderValue| String::from_utf8_lossy(v.as_bytes()).into_owned();
        headers
            .iter()
            .map(|(n, v)| (n.to_string(), text(v)))
            .collect()
    };
    let headers = written(&parts.headers);
    let (body, trailers) = match body.collect().await {
        Ok(all) => {
            let trailers = all.trailers().map(written).unwrap_or_default();
            (all.to_bytes().to_vec(), trailers)
        }
        Err(_) => Default::default(),
    };
    let host = parts
        .uri
        .authority()
        .map(|a| a.to_string())
        .or_else(|| headers.get("host").cloned())
        .unwrap_or_default();
    seen.lock().unwrap().push(Seen {
        method: parts.method.to_string(),
        uri: parts
            .uri
            .path_and_query()
            .map(|p| p.to_string())
            .unwrap_or_default(),
        host,
        headers: headers.clone(),
        body: body.clone(),
        trailers,
    });
    match path.as_str() {
        "/sse" => {
            let (send, receive) = tokio::sync::mpsc::channel::<Result<Frame<Bytes>, Infallible>>(1);
            tokio::spawn(async move {
                for n in 0..4 {
                    if send
                        .send(Ok(Frame::data(format!("data: {n}\n\n").into())))
                        .await
                        .is_err()
                    {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(400)).await;
                }
            });
            let stream = futures_util::stream::unfold(receive, |mut r| async {
                r.recv().await.map(|f| (f, r))
            });
            let mut response = Response::new(BodyExt::boxed(StreamBody::new(SyncStream(
                Box::pin(stream),
            ))));
            response
                .headers_mut()
                .insert("content-type", "text/event-stream".parse().unwrap());
            response
        }
        "/trailers" => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", "0".parse().unwrap());
            let frames: Vec<Result<Frame<Bytes>, Infallible>> = vec![
                Ok(Frame::data(Bytes::from_static(b"payload"))),
                Ok(Frame::trailers(trailers)),
            ];
            let body = StreamBody::new(futures_util::stream::iter(frames));
            let mut response = Response::new(body.boxed());
            response
                .headers_mut()
                .insert("trailer", "grpc-status".parse().unwrap());
            response
        }
        "/ws" => {
            let key = headers
                .get("sec-websocket-key")
                .cloned()
                .unwrap_or_default();
            let accept =
                tokio_tungstenite::tungstenite::handshake::derive_accept_key(key.as_bytes());
            let upgrade = upgrade.unwrap();
            let echo = seen.clone();
            tokio::spawn(async move {
                use futures_util::{SinkExt, StreamExt};
                let io = hyper_util::rt::TokioIo::new(upgrade.await.unwrap());
                let mut ws = tokio_tungstenite::WebSocketStream::from_raw_socket(
                    io,
                    tokio_tungstenite::tungstenite::protocol::Role::Server,
                    None,
                )
                .await;
                let _ = ws.send("hello".into()).await;
                while let Some(Ok(message)) = ws.next().await {
                    if message.is_text() || message.is_binary() {
                        echo.lock().unwrap().push(Seen {
                            method: "MESSAGE".into(),
                            uri: "/ws".into(),
                            host: String::new(),
                            headers: BTreeMap::new(),
                            body: message.clone().into_data().to_vec(),
                            trailers: BTreeMap::new(),
                        });
                        let _ = ws.send(message).await;
                    }
                }
            });
            let mut response = Response::new(text(""));
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            response
                .headers_mut()
                .insert("upgrade", "websocket".parse().unwrap());
            response
                .headers_mut()
                .insert("connection", "Upgrade".parse().unwrap());
            response
                .headers_mut()
                .insert("sec-websocket-accept", accept.parse().unwrap());
            response
        }
        "/redirect" => {
            let mut response = Response::new(text("moved"));
            *response.status_mut() = http::StatusCode::FOUND;
            response
                .headers_mut()
                .insert("location", "/elsewhere".parse().unwrap());
            response
        }
        "/big" => Response::new(text(vec![b'x'; 8 << 20])),
        // The head of the request, in pieces, with its length.
        "/mirror" => {
            let said = format!("{} {headers:?}", parts.uri);
            let pieces: Vec<Result<Frame<Bytes>, Infallible>> = said
                .as_bytes()
                .chunks(7)
                .map(|piece| Ok(Frame::data(Bytes::copy_from_slice(piece))))
                .collect();
            let body = StreamBody::new(futures_util::stream::iter(pieces));
            let mut response = Response::new(body.boxed());
            let all = response.headers_mut();
            all.insert("content-type", "text/plain".parse().unwrap());
            all.insert("content-length", said.len().into());
            if let Some(given) = headers.get("authorization") {
                all.insert("x-mirror", given.parse().unwrap());
            }
            response
        }
        _ => {
            let mut response = Response::new(text(format!("you said {} bytes", body.len())));
            response
                .headers_mut()
                .insert("content-type", "text/plain".parse().unwrap());
            response
        }
    }
}

/// Sends back each piece as it comes, and a gRPC status at the end.
fn echo(seen: Arc<Mutex<Vec<Seen>>>, request: Request<Incoming>) -> Response<ServerBody> {
    let pieces = futures_util::stream::unfold(Some(request.into_body()), move |body| {
        let seen = Arc::clone(&seen);
        async move {
            let mut body = body?;
            let frame = match body.frame().await {
                Some(frame) => frame.ok()?,
                None => {
                    let mut trailers = http::HeaderMap::new();
                    trailers.insert("grpc-status", "0".parse().unwrap());
                    return Some((Ok(Frame::trailers(trailers)), None));
                }
            };
            seen.lock().unwrap().push(Seen {
                method: "MESSAGE".into(),
                uri: String::new(),
                host: String::new(),
                headers: BTreeMap::new(),
                body: frame.data_ref().unwrap().to_vec(),
                trailers: BTreeMap::new(),
            });
            Some((Ok::<_, Infallible>(frame), Some(body)))
        }
    });
    let mut response = Response::new(BodyExt::boxed(StreamBody::new(SyncStream(Box::pin(
        pieces,
    )))));
    response
        .headers_mut()
        .insert("content-type", "application/grpc".parse().unwrap());
    response
}

struct SyncStream<S>(std::pin::Pin<Box<S>>);
impl<S: futures_util::Stream> futures_util::Stream for SyncStream<S> {
    type Item = S::Item;
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<S::Item>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl Origin {
    /// Speaks HTTP/1 and HTTP/2 in the clear.
    pub fn clear() -> Self {
        Self::start(None)
    }

    /// Speaks TLS with this certificate.
    pub fn secure(tls: rustls::ServerConfig) -> Self {
        Self::start(Some(tls))
    }

    fn start(tls: Option<rustls::ServerConfig>) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let connections: Arc<std::sync::atomic::AtomicUsize> = Arc::default();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = tls.map(|t| tokio_rustls::TlsAcceptor::from(Arc::new(t)));
        let (log, count) = (Arc::clone(&seen), Arc::clone(&connections));
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                let (log, acceptor) = (Arc::clone(&log), acceptor.clone());
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let log = Arc::clone(&log);
                        async move { Ok::<_, Infallible>(serve_one(log, request).await) }
                    });
                    let builder = hyper_util::server::conn::auto::Builder::new(
                        hyper_util::rt::TokioExecutor::new(),
                    );
                    match acceptor {
                        None => {
                            let io = hyper_util::rt::TokioIo::new(stream);
                            let _ = builder.serve_connection_with_upgrades(io, service).await;
                        }
                        Some(acceptor) => {
                            let Ok(stream) = acceptor.accept(stream).await else {
                                return;
                            };
                            let io = hyper_util::rt::TokioIo::new(stream);
                            let _ = builder.serve_connection_with_upgrades(io, service).await;
                        }
                    }
                });
            }
        });
        Self {
            address,
            seen,
            connections,
            runtime,
        }
    }

    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    pub fn http_base(&self) -> String {
        format!("http://{}", self.address)
    }

    pub fn https_base(&self) -> String {
        format!("https://{}", self.address)
    }
}

/// A private authority with one server certificate.
pub fn private_server(names: &[&str], valid: bool) -> (String, rustls::ServerConfig) {
    use rcgen::{
        BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose,
    };
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "a private authority");
    let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut leaf =
        CertificateParams::new(names.iter().map(|n| n.to_string()).collect::<Vec<_>>()).unwrap();
    if !valid {
        leaf.not_before = time::OffsetDateTime::now_utc() - time::Duration::days(10);
        leaf.not_after = time::OffsetDateTime::now_utc() - time::Duration::days(5);
    }
    let certificate = leaf.signed_by(&key, &issuer).unwrap();
    let mut config = rustls::ServerConfig::builder_with_provider(Arc::new(
        rustls::crypto::aws_lc_rs::default_provider(),
    ))
    .with_safe_default_protocol_versions()
    .unwrap()
    .with_no_client_auth()
    .with_single_cert(
        vec![certificate.der().clone()],
        rustls::pki_types::PrivateKeyDer::Pkcs8(key.serialize_der().into()),
    )
    .unwrap();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (issuer.pem(), config)
}

/// A party for a policy.
pub fn party(name: &str, host: &str) -> Party {
    Party {
        name: name.into(),
        hosts: vec![HostPattern(host.into())],
        ports: Vec::new(),
        clearance: Level::Public,
        methods: Vec::new(),
        paths: Vec::new(),
        internal: Vec::new(),
        blocking: Vec::new(),
        named: Vec::new(),
        gate: kernel::policy::Gate::Host,
    }
}

pub fn path_rule(methods: &[&str], path: &str) -> PathRule {
    PathRule {
        methods: methods.iter().map(|m| m.to_string()).collect(),
        path: kernel::policy::Glob(path.into()),
    }
}

/// `good.example` is named; `model.example` is a provider; `ssh.example` is named for `CONNECT`;
/// everything else is unknown. `secret` files are critical.
pub fn policy() -> Policy {
    let mut provider = party("provider", "model.example");
    provider.internal = vec![path_rule(&["GET", "POST"], "v1/**")];
    let mut ssh = party("ssh", "ssh.example");
    ssh.methods = vec!["CONNECT".into()];
    let mut paths = party("paths", "paths.example");
    paths.paths = vec!["/allowed".into()];
    Policy {
        epoch: Digest::of(b"test policy"),
        sources: vec![SourceRule {
            of: SourcePattern::Task,
            trusted: KindSet::ALL,
        }],
        sensitive: vec![SensitiveRule {
            of: SourcePattern::Location {
                tree: "workspace".into(),
                path: kernel::policy::Glob(".env*".into()),
            },
            level: Level::Critical,
        }],
        parties: vec![party("good", "good.example"), provider, ssh, paths],
        speculation: kernel::policy::Speculation::Matched,
        ..Policy::default()
    }
}

/// Everything together.
pub struct World {
    pub session: Arc<Session>,
    pub net: Arc<Net>,
    pub authority: Arc<Authority>,
    pub proxy: SocketAddr,
    pub ca: std::path::PathBuf,
    pub dir: tempfile::TempDir,
    direct: BTreeMap<(String, u16), SocketAddr>,
}

pub const ENV_SECRET: &str = "s3cr3t-t0ken-of-the-workspace";

impl World {
    pub fn new(policy: Policy, origin: &Origin) -> Self {
        Self::with(policy, |config| {
            config.upstreams.push(UpstreamRule {
                hosts: HostPattern("*".into()),
                ports: Vec::new(),
                base: origin.http_base(),
            });
        })
    }

    pub fn with(policy: Policy, adjust: impl FnOnce(&mut NetConfig)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let session_dir = SessionDir::at(dir.path());
        let mut log = Log::create(&session_dir.log(), || {
            "2026-01-01T00:00:00.000Z".to_string()
        })
        .unwrap();
        log.append(&Record::Header {
            format: store::record::FORMAT,
            session: "test".into(),
            workspace: "w".into(),
            epoch: policy.epoch.hex(),
            command: vec![],
            started: String::new(),
            version: "0".into(),
        })
        .unwrap();
        let session = Session::new(Parts {
            policy: Arc::new(policy),
            rules: Arc::new(NoRules),
            log,
            blobs: Blobs::open_dir(&session_dir.blobs()).unwrap(),
            dir: session_dir,
            workspace: "w".into(),
            chance: Arc::new(SystemChance),
            clock: Arc::new(monitor::session::SystemClock::default()),
            labels: None,
            recovered: None,
        });
        session.incoming(kernel::Incoming {
            channel: Channel::File,
            source: Source::Location {
                tree: "workspace".into(),
                path: ".env".into(),
            },
            content: Content::new(format!("TOKEN={ENV_SECRET}\n").into_bytes()),
            leaves: Vec::new(),
            answers: None,
            layer: None,
        });
        let authority = Arc::new(Authority::new().unwrap());
        let ca = dir.path().join("ca.pem");
        std::fs::write(&ca, authority.pem()).unwrap();
        let mut config = NetConfig::new(Arc::clone(&authority));
        config.blocking_deadline = Duration::from_secs(20);
        let mut tcp = Vec::new();
        let proxy = listener(&mut tcp);
        config
            .destinations
            .insert(proxy, "10.0.2.2:3128".parse().unwrap());
        let names = [
            "good.example",
            "bad.example",
            "model.example",
            "ssh.example",
            "paths.example",
        ];
        let mut direct = BTreeMap::new();
        for (n, name) in names.iter().enumerate() {
            for port in [80, 443, 22] {
                let address = listener(&mut tcp);
                config.destinations.insert(
                    address,
                    format!("198.18.0.{}:{port}", n + 1).parse().unwrap(),
                );
                direct.insert((name.to_string(), port), address);
            }
        }
        let dns = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        direct.insert(("dns".into(), 0), dns.local_addr().unwrap());
        let tcp_dns = listener(&mut tcp);
        config
            .destinations
            .insert(tcp_dns, "10.0.2.2:53".parse().unwrap());
        direct.insert(("dns".into(), 53), tcp_dns);
        let literal = listener(&mut tcp);
        config
            .destinations
            .insert(literal, "192.0.2.7:443".parse().unwrap());
        direct.insert(("192.0.2.7".into(), 443), literal);
        adjust(&mut config);
        let net = Arc::new(
            Net::start(
                config,
                Arc::clone(&session),
                Sockets {
                    tcp,
                    udp: vec![dns.into()],
                },
            )
            .unwrap(),
        );
        session.attach(Channel::Net, Arc::clone(&net) as Arc<dyn monitor::Channel>);
        for name in names {
            net.address_of(name);
        }
        Self {
            session,
            net,
            authority,
            proxy,
            ca,
            dir,
            direct,
        }
    }

    /// Where a direct connection to a name and port is accepted.
    pub fn direct(&self, name: &str, port: u16) -> SocketAddr {
        self.direct[&(name.to_string(), port)]
    }

    /// curl with our authority and nothing from the environment, directly connected.
    pub fn curl(&self, arguments: &[&str]) -> Curled {
        let mut command = self.bare_curl();
        for ((name, port), address) in &self.direct {
            if *port != 0 && name != "dns" {
                let host = if name.contains(':') {
                    format!("[{name}]")
                } else {
                    name.clone()
                };
                command.arg("--connect-to").arg(format!(
                    "{host}:{port}:{}:{}",
                    address.ip(),
                    address.port()
                ));
            }
        }
        run(command, arguments)
    }

    /// curl through the proxy port.
    pub fn proxied(&self, arguments: &[&str]) -> Curled {
        let mut command = self.bare_curl();
        command.arg("-x").arg(format!("http://{}", self.proxy));
        run(command, arguments)
    }

    fn bare_curl(&self) -> Command {
        let mut command = Command::new("curl");
        command
            .env_clear()
            .arg("-sS")
            .arg("--max-time")
            .arg("30")
            .arg("--cacert")
            .arg(&self.ca);
        command.arg("-w").arg("\n%{http_code}");
        command
    }

    /// Sends bytes on a direct connection and returns everything that comes back until it ends
    /// or is silent.
    pub fn raw(&self, to: SocketAddr, bytes: &[u8]) -> String {
        let mut stream = TcpStream::connect(to).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_millis(1500)))
            .unwrap();
        stream.write_all(bytes).unwrap();
        let mut out = Vec::new();
        let mut piece = [0; 4096];
        while let Ok(n) = stream.read(&mut piece) {
            if n == 0 {
                break;
            }
            out.extend_from_slice(&piece[..n]);
        }
        String::from_utf8_lossy(&out).into_owned()
    }

    /// Decides every hold from a thread of its own, as soon as there is one.
    pub fn decide(&self, verdict: Verdict) {
        assert!(
            until(|| !self.session.held().is_empty()),
            "nothing was held"
        );
        for one in self.session.held() {
            self.session
                .verdict(one.hold, one.manifest, verdict, "test", "because")
                .unwrap();
        }
    }

    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log.jsonl")).unwrap()
    }

    pub fn blobs(&self) -> usize {
        std::fs::read_dir(self.dir.path().join("blobs"))
            .unwrap()
            .count()
    }
}

fn listener(all: &mut Vec<std::os::fd::OwnedFd>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    all.push(listener.into());
    address
}

/// What curl said.
#[derive(Debug)]
pub struct Curled {
    pub status: u16,
    pub body: String,
    pub errors: String,
}

fn run(mut command: Command, arguments: &[&str]) -> Curled {
    let output = command.args(arguments).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let (body, status) = text.rsplit_once('\n').unwrap_or(("", "0"));
    Curled {
        status: status.trim().parse().unwrap_or(0),
        body: body.to_string(),
        errors: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}
