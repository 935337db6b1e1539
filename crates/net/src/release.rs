//! Carrying out what was held: the parked bytes are checked against what was approved, and leave
//! once, under a lease.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;
use std::time::Duration;

use ::http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header};
use futures_util::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, BodyStream, StreamBody};
use kernel::{Digest, Notice, Object, Operation, Refusal};
use monitor::{Held, Session};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use store::Lease;
use store::record::UNKNOWN;

use crate::answer::strip_hop_by_hop;
use crate::config::{Credential, TlsRule, UpstreamRule};
use crate::credentials;
use crate::mask::Mask;
use crate::net::names_exactly;
use crate::spool;
use crate::target::Target;
use crate::trust::Trust;
use crate::upstream::{Body, Offer, Routes, Upstream, UpstreamError};

/// A held request has so long to be answered.
const ANSWER: Duration = Duration::from_secs(120);

/// What is written beside a hold: everything that is sent but not part of what was approved.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Note {
    /// Always `request`, for readers.
    pub(crate) kind: String,
    /// `1.1` or `2`.
    pub(crate) version: String,
    /// Incidental headers.
    pub(crate) headers: Vec<(String, String)>,
    /// Trailers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) trailers: Vec<(String, String)>,
}

/// Puts a request together for its upstream: canonical target, real credentials.
pub(crate) fn outgoing(
    routes: &Routes,
    credentials: &[Credential],
    method: &str,
    target: &Target,
    headers: &HeaderMap,
    body: Body,
    trailers: Option<HeaderMap>,
) -> Result<Request<Body>, UpstreamError> {
    let wrong =
        |e: &dyn std::fmt::Display| UpstreamError(format!("the request cannot be written: {e}"));
    let mut sent = BTreeSet::new();
    let uri = format!(
        "{}://{}{}{}",
        target.scheme,
        target.authority(),
        routes.prefix(&target.host, target.port),
        credentials::in_path(credentials, &target.host, &target.path, &mut sent)
    );
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(method.as_bytes()).map_err(|e| wrong(&e))?;
    *request.uri_mut() = uri
        .parse()
        .map_err(|e: ::http::uri::InvalidUri| wrong(&e))?;
    *request.headers_mut() =
        credentials::in_headers(credentials, &target.host, headers.clone(), &mut sent);
    if !sent.is_empty() && routes.open_to_all(&target.host, target.port, target.scheme) {
        return Err(UpstreamError(format!(
            "a placeholder stands in it, and its credential does not travel in the clear; use `https`, or name in \
             the policy where `{}` is reached so: `upstream = \"http://...\"`",
            target.host
        )));
    }
    if let Some(mask) = Mask::of(&sent) {
        // What comes back is searched as it is.
        let plain = HeaderValue::from_static("identity");
        request.headers_mut().insert(header::ACCEPT_ENCODING, plain);
        request.extensions_mut().insert(mask);
    }
    let host = HeaderValue::from_str(&target.authority()).map_err(|e| wrong(&e))?;
    request.headers_mut().insert(header::HOST, host);
    Ok(match trailers {
        Some(trailers) => trailing(request, trailers),
        None => request,
    })
}

/// A request with trailers behind its body. In HTTP/1 that takes chunks, also where the length is known, and the names in the head.
fn trailing(request: Request<Body>, trailers: HeaderMap) -> Request<Body> {
    let (mut parts, body) = request.into_parts();
    let names: Vec<&str> = trailers.keys().map(HeaderName::as_str).collect();
    if let Ok(names) = HeaderValue::from_str(&names.join(", ")) {
        parts.headers.insert(header::TRAILER, names);
    }
    let chunked = HeaderValue::from_static("chunked");
    parts.headers.insert(header::TRANSFER_ENCODING, chunked);
    let end = futures_util::stream::iter([Ok(Frame::trailers(trailers))]);
    let frames = BodyStream::new(body).chain(end);
    Request::from_parts(parts, StreamBody::new(frames).boxed_unsync())
}

/// The headers of a request as they may travel on: nothing that speaks of one connection.
pub(crate) fn travelling(headers: &HeaderMap) -> HeaderMap {
    let trailers = headers.get_all(header::TE).iter().any(|v| {
        v.to_str()
            .is_ok_and(|v| v.to_ascii_lowercase().contains("trailers"))
    });
    let mut headers = headers.clone();
    strip_hop_by_hop(&mut headers);
    for name in [
        header::HOST,
        header::CONTENT_LENGTH,
        header::EXPECT,
        header::PROXY_AUTHORIZATION,
    ] {
        headers.remove(name);
    }
    if trailers {
        headers.insert(header::TE, HeaderValue::from_static("trailers"));
    }
    headers
}

/// Sends what was parked, in a runtime of its own: it works while the channel runs, after it was
/// shut down, and in another process.
pub(crate) struct Sender {
    session: Arc<Session>,
    routes: Routes,
    credentials: Vec<Credential>,
}

impl Sender {
    pub(crate) fn new(session: Arc<Session>, routes: Routes, credentials: Vec<Credential>) -> Self {
        Self {
            session,
            routes,
            credentials,
        }
    }

    /// Sends a held request that nobody waits for, and returns what came of it.
    pub(crate) fn send_parked(&self, held: &Held, lease: Lease) -> Result<String, String> {
        if lease.manifest() != held.manifest {
            return Err("the leave is for another action; nothing was sent".into());
        }
        let Operation::Request(method) = &held.effect.operation else {
            return Err("the connection it belonged to has ended; it was not sent".into());
        };
        if held.effect.operation.reads_only() {
            return Err("nobody waits for its answer any more; it was not sent".into());
        }
        let Object::Party {
            scheme,
            host,
            port,
            path,
        } = &held.effect.object
        else {
            return Err("it is no request; nothing was sent".into());
        };
        let scheme = if scheme == "https" { "https" } else { "http" };
        let target = Target {
            scheme,
            host: host.clone(),
            port: *port,
            path: path.clone(),
        };
        let note: Note = serde_json::from_str(&held.parked.note).map_err(|e| {
            format!("what was written beside it cannot be read ({e}); nothing was sent")
        })?;
        let file = self.parked_file(held)?;
        let (first, mut headers, head_bytes) = spool::read_head_of(&file)
            .ok_or("the parked request cannot be read; nothing was sent")?;
        if first != format!("{method} {}", target.url()) {
            return Err("the parked request is for another target; nothing was sent".into());
        }
        append(&mut headers, &note.headers);
        let body = spool::disk_body(file, head_bytes as u64, held.effect.payload.bytes);
        let mut request = outgoing(
            &self.routes,
            &self.credentials,
            method,
            &target,
            &headers,
            body,
            trailers(&note.trailers),
        )
        .map_err(|e| format!("{e}; nothing was sent"))?;
        let offer = if note.version == "2" {
            Offer::Any
        } else {
            Offer::Http1
        };
        *request.version_mut() = Version::HTTP_11;
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| format!("no runtime to send it with ({e}); nothing was sent"))?
            .block_on(deliver(
                &Upstream::new(self.routes.clone()),
                offer,
                request,
                lease,
            ))
    }

    /// The parked bytes, if they are still what was approved.
    fn parked_file(&self, held: &Held) -> Result<File, String> {
        let payload = held.effect.payload;
        let gone = |e: io::Error| {
            format!("the parked request is not there any more ({e}); nothing was sent")
        };
        let path = self.session.blobs().path(&payload.digest);
        let mut file = File::open(path).map_err(gone)?;
        let mut hash = Sha256::new();
        let mut bytes = 0;
        let mut piece = vec![0; 256 << 10];
        loop {
            match file.read(&mut piece).map_err(gone)? {
                0 => break,
                n => {
                    hash.update(piece.get(..n).unwrap_or_default());
                    bytes += n as u64;
                }
            }
        }
        if Digest(hash.finalize().into()) != payload.digest || bytes != payload.bytes {
            return Err(
                "the parked request was changed after it was approved; nothing was sent".into(),
            );
        }
        Ok(file)
    }
}

/// Lets one request go, under its lease, and reads the answer to its end.
async fn deliver(
    upstream: &Upstream,
    offer: Offer,
    request: Request<Body>,
    lease: Lease,
) -> Result<String, String> {
    // Spent here: there is no second try with it.
    drop(lease);
    let sent = async {
        let response = upstream
            .send(offer, request)
            .await
            .map_err(|e| e.result())?;
        let status = response.status();
        let mut body = response.into_body();
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            match frame {
                Ok(frame) => bytes += frame.data_ref().map_or(0, bytes::Bytes::len),
                Err(error) => {
                    return Ok(format!(
                        "{status}, {bytes} bytes, then the connection broke: {error}"
                    ));
                }
            }
        }
        Ok(format!("{status}, {bytes} bytes"))
    };
    match tokio::time::timeout(ANSWER, sent).await {
        Ok(result) => result,
        Err(_) => Err(format!(
            "{UNKNOWN}it was sent, and no answer came within {} s; whether it took effect is not known",
            ANSWER.as_secs()
        )),
    }
}

/// Reads trailers back.
pub(crate) fn trailers(written: &[(String, String)]) -> Option<HeaderMap> {
    if written.is_empty() {
        return None;
    }
    let mut trailers = HeaderMap::new();
    append(&mut trailers, written);
    Some(trailers)
}

/// A value whose characters stand for bytes; one that was written as text before they did is that text.
fn value_of(written: &str) -> Result<HeaderValue, ::http::header::InvalidHeaderValue> {
    let bytes: Option<Vec<u8>> = written.chars().map(|c| u8::try_from(c).ok()).collect();
    HeaderValue::from_bytes(bytes.as_deref().unwrap_or(written.as_bytes()))
}

fn append(headers: &mut HeaderMap, written: &[(String, String)]) {
    for (name, value) in written {
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name.as_bytes()), value_of(value)) {
            headers.append(name, value);
        }
    }
}

/// Carries out what is held after its session has ended, in another process.
pub struct OfflineSender {
    sender: Sender,
}

impl std::fmt::Debug for OfflineSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OfflineSender")
    }
}

impl OfflineSender {
    /// Makes one with the settings that the session had. Attach it as the session's net channel.
    ///
    /// # Errors
    /// When an upstream or a certificate cannot be used.
    pub fn new(
        session: Arc<Session>,
        upstreams: &[UpstreamRule],
        roots_pem: &[Vec<u8>],
        tls: &[TlsRule],
        credentials: Vec<Credential>,
    ) -> Result<Self, String> {
        let policy = Arc::downgrade(&session);
        let named = Arc::new(move |host: &str, port: u16| {
            policy
                .upgrade()
                .is_some_and(|session| names_exactly(&session, host, port))
        });
        let routes = Trust::new(roots_pem, tls)
            .and_then(|trust| Routes::new(upstreams, trust, named))
            .map_err(|e| e.0)?;
        Ok(Self {
            sender: Sender::new(session, routes, credentials),
        })
    }
}

impl monitor::Channel for OfflineSender {
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String> {
        let result = self.sender.send_parked(held, lease);
        self.discard(held);
        result
    }

    fn abort(&self, held: &Held, _: &Refusal, _: &Notice) {
        self.discard(held);
    }
}

impl OfflineSender {
    fn discard(&self, held: &Held) {
        let digest = held.effect.payload.digest;
        let shared = self
            .sender
            .session
            .held()
            .iter()
            .any(|other| other.hold != held.hold && other.effect.payload.digest == digest);
        // A failure leaves private bytes behind and changes nothing else.
        if !shared && let Err(error) = self.sender.session.blobs().remove(&digest) {
            tracing::warn!(%error, "parked bytes cannot be removed");
        }
    }
}
