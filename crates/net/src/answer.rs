//! Answers on their way back to the agent: streamed as they come, and told to the monitor as
//! content that reached it.

use std::io::{self, Read};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{self, HeaderMap, HeaderName};
use ::http::response::Parts;
use ::http::{Response, StatusCode};
use bytes::{Bytes, BytesMut};
use http_body::{Body as _, Frame};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use kernel::{Channel, Content, Source};

use crate::ask::Settle;
use crate::inspect;
use crate::mask::{Mask, Masked};
use crate::net::Shared;
use crate::stub::DECISION;
use crate::upstream::{Body, BoxError};

/// So much of an answer is told to the monitor.
const TOLD_BYTES_MAX: usize = 1 << 20;

/// To look into more than this takes a while.
const LARGE_BYTES: usize = 32 << 10;

/// Headers that speak of one connection only.
const HOP_BY_HOP: [&str; 8] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "http2-settings",
];

/// Removes headers that speak of one connection only, and those that `Connection` names.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','))
        .filter_map(|name| name.trim().parse().ok())
        .collect();
    for name in named {
        headers.remove(name);
    }
    for name in HOP_BY_HOP {
        headers.remove(name);
    }
}

/// What an answer belongs to.
pub(crate) struct Belongs {
    /// Takes what came of the released effect.
    pub(crate) settle: Settle,
    /// The party's host.
    pub(crate) host: String,
    /// Its port.
    pub(crate) port: u16,
    /// The request's path.
    pub(crate) path: String,
    /// Whether it is the model provider's.
    pub(crate) internal: bool,
}

/// Turns an upstream answer into the agent's.
pub(crate) fn relay(
    shared: &Arc<Shared>,
    belongs: Belongs,
    response: Response<Incoming>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    strip_hop_by_hop(&mut parts.headers);
    // It would lead clients to a protocol that is not spoken here.
    parts.headers.remove(header::ALT_SVC);
    // Ours alone to say.
    parts.headers.remove(DECISION);
    let body = Masked::new(body, parts.extensions.remove::<Mask>());
    let tee = Tee::new(Arc::clone(shared), belongs, &parts, body);
    Response::from_parts(parts, tee.boxed_unsync())
}

/// Passes frames on and tells the monitor what reached the agent, always before the agent could
/// act on the end of it.
struct Tee {
    shared: Arc<Shared>,
    belongs: Belongs,
    status: StatusCode,
    headers: HeaderMap,
    body: Masked<Incoming>,
    expected: Option<u64>,
    passed: u64,
    told: usize,
    pending: BytesMut,
    /// Event streams are told event by event, since the agent acts on each.
    eager: bool,
    textual: Option<bool>,
    finished: bool,
}

impl Tee {
    fn new(shared: Arc<Shared>, belongs: Belongs, parts: &Parts, body: Masked<Incoming>) -> Self {
        let kind = parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok())
            .unwrap_or_default()
            .to_ascii_lowercase();
        let expected = body.size_hint().exact();
        let mut headers = HeaderMap::new();
        for name in [header::CONTENT_ENCODING, header::LOCATION] {
            for value in parts.headers.get_all(&name) {
                headers.append(name.clone(), value.clone());
            }
        }
        let mut tee = Self {
            shared,
            belongs,
            status: parts.status,
            headers,
            body,
            expected,
            passed: 0,
            told: 0,
            pending: BytesMut::new(),
            eager: kind.starts_with("text/event-stream")
                || kind.contains("ndjson")
                || kind.starts_with("application/grpc"),
            textual: is_textual(&kind),
            finished: false,
        };
        // Where a redirection leads is content like any other.
        for value in tee.headers.get_all(header::LOCATION) {
            tee.pending.extend_from_slice(value.as_bytes());
            tee.pending.extend_from_slice(b"\n");
        }
        if expected == Some(0) {
            tee.finish(Ok(()));
        }
        tee
    }

    fn pass(&mut self, data: &Bytes) {
        self.passed += data.len() as u64;
        if self.belongs.internal {
            self.shared
                .config
                .conversation
                .answer(&self.belongs.host, &self.belongs.path, data);
        } else {
            let coded = self.headers.contains_key(header::CONTENT_ENCODING);
            let textual = *self.textual.get_or_insert_with(|| {
                coded || (std::str::from_utf8(sample(data)).is_ok() && !data.contains(&0))
            });
            if textual {
                let room = TOLD_BYTES_MAX.saturating_sub(self.told + self.pending.len());
                self.pending
                    .extend_from_slice(data.get(..room.min(data.len())).unwrap_or_default());
            }
            if self.eager && !coded {
                self.tell();
            }
        }
        if self.expected == Some(self.passed) {
            self.finish(Ok(()));
        }
    }

    /// Tells the monitor what is pending.
    fn tell(&mut self) {
        let Some(incoming) = self.take_pending() else {
            return;
        };
        let session = &self.shared.session;
        looking_into(incoming.content.bytes.len(), || {
            session.incoming(incoming);
        });
    }

    /// What the monitor was not told yet.
    fn take_pending(&mut self) -> Option<kernel::Incoming> {
        if self.pending.is_empty() || self.belongs.internal {
            return None;
        }
        let raw = self.pending.split().freeze();
        self.told += raw.len();
        let bytes = plain(&self.headers, raw);
        self.renewed(&bytes);
        Some(kernel::Incoming {
            channel: Channel::Net,
            source: Source::Party(self.belongs.host.clone()),
            content: Content::new(bytes.to_vec()),
            leaves: Vec::new(),
            answers: None,
            layer: None,
        })
    }

    /// A party that the policy names may hand out keys, to renew one.
    fn renewed(&self, bytes: &[u8]) {
        let kind = self.headers.get(header::CONTENT_TYPE);
        let json = kind.is_some_and(|kind| kind.as_bytes().windows(4).any(|word| word == b"json"));
        let policy = self.shared.session.policy();
        if json
            && policy
                .party(&self.belongs.host, self.belongs.port)
                .is_some()
        {
            self.shared.accounts.learn(bytes);
        }
    }

    fn finish(&mut self, result: Result<(), String>) {
        if self.finished {
            return;
        }
        self.finished = true;
        let rest = self.take_pending();
        if self.belongs.internal {
            self.shared
                .config
                .conversation
                .answer(&self.belongs.host, &self.belongs.path, &[]);
        }
        let what = format!("{}, {} bytes", self.status, self.passed);
        let result = match result {
            Ok(()) => Ok(what),
            Err(why) => Err(format!("{what}, then {why}")),
        };
        let settle = &mut self.belongs.settle;
        let bytes = rest.as_ref().map_or(0, |rest| rest.content.bytes.len());
        looking_into(bytes, || settle.tell_with(rest, result));
    }
}

/// Does what looks into so many bytes; while it takes long others go on.
fn looking_into(bytes: usize, work: impl FnOnce()) {
    if bytes > LARGE_BYTES {
        tokio::task::block_in_place(work);
    } else {
        work();
    }
}

impl http_body::Body for Tee {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        match std::task::ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            Some(Ok(frame)) => {
                match frame.data_ref() {
                    Some(data) => {
                        let data = data.clone();
                        self.pass(&data);
                    }
                    None => self.finish(Ok(())),
                }
                Poll::Ready(Some(Ok(frame)))
            }
            Some(Err(error)) => {
                self.finish(Err(format!("the connection broke: {error}")));
                Poll::Ready(Some(Err(error.into())))
            }
            None => {
                self.finish(Ok(()));
                Poll::Ready(None)
            }
        }
    }

    fn size_hint(&self) -> http_body::SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.finished && self.body.is_end_stream()
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        self.finish(Err("the agent stopped reading".into()));
    }
}

/// Whether a content type is text; `None` when its first bytes have to tell.
fn is_textual(kind: &str) -> Option<bool> {
    let known = [
        "text/",
        "json",
        "xml",
        "javascript",
        "yaml",
        "toml",
        "x-www-form-urlencoded",
        "graphql",
        // What it carries is mostly text, between lengths and tags.
        "application/grpc",
    ];
    let binary = [
        "image/",
        "audio/",
        "video/",
        "font/",
        "application/zip",
        "application/wasm",
    ];
    if known.iter().any(|word| kind.contains(word)) {
        Some(true)
    } else if binary.iter().any(|word| kind.starts_with(word)) && !kind.contains("svg") {
        Some(false)
    } else {
        None
    }
}

/// The start of a piece, cut where a character may be.
fn sample(data: &[u8]) -> &[u8] {
    let mut end = data.len().min(512);
    while end > 0 && data.get(end).is_some_and(|b| b & 0xc0 == 0x80) {
        end -= 1;
    }
    data.get(..end).unwrap_or_default()
}

/// The bytes without their content coding, as far as they are there.
fn plain(headers: &HeaderMap, raw: Bytes) -> Bytes {
    let reader: Box<dyn Read + Send> = Box::new(io::Cursor::new(raw.clone()));
    match inspect::decoded(headers, reader) {
        Ok(Some(reader)) => {
            let mut out = Vec::new();
            // What is cut short is still worth telling up to there.
            let _ = reader.take(TOLD_BYTES_MAX as u64).read_to_end(&mut out);
            out.into()
        }
        _ => raw,
    }
}
