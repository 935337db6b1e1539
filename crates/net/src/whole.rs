//! A request as it was read, to its end: its head as it may travel on, its body parked, what it carries and
//! what it means.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Arc;

use ::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use ::http::{Request, Response, StatusCode, Version};
use bytes::Bytes;
use http_body_util::BodyExt;
use kernel::policy::OTHER_ACCOUNT;
use kernel::{Carried, Channel, Class, Effect, Object, Operation};
use store::Parked;

use crate::account;
use crate::ahead::Ahead;
use crate::inspect;
use crate::meaning::Meaning;
use crate::net::Shared;
use crate::release::{self, Note};
use crate::spool::{self, Spool, Spooler};
use crate::stub::{self, Shape};
use crate::target::Target;
use crate::upstream::Body;

/// A provider's conversation may be this large.
const CONVERSATION_BYTES_MAX: u64 = 256 << 20;

/// A request as read, ready to be judged and sent.
pub(crate) struct Whole {
    pub(crate) method: String,
    pub(crate) target: Target,
    /// As they may travel on.
    pub(crate) headers: HeaderMap,
    pub(crate) trailers: Option<HeaderMap>,
    pub(crate) spool: Spool,
    pub(crate) version: Version,
    pub(crate) internal: bool,
    /// Whether it would be, were it on the principal's own account.
    pub(crate) foreign: bool,
    carries: Carried,
    pub(crate) meaning: Meaning,
}

/// Why a request ended before it was decided.
pub(crate) enum Stopped {
    Malformed(String),
    TooLarge(String),
    Storage(String),
}

impl Stopped {
    pub(crate) fn response(self, shape: Shape) -> Response<Body> {
        match self {
            Self::Malformed(why) => stub::malformed(shape, StatusCode::BAD_REQUEST, &why),
            Self::TooLarge(why) => stub::malformed(shape, StatusCode::PAYLOAD_TOO_LARGE, &why),
            Self::Storage(why) => stub::malformed(shape, StatusCode::INSUFFICIENT_STORAGE, &why),
        }
    }
}

impl Whole {
    /// Reads a request to its end and looks into it.
    pub(crate) async fn read<B>(
        shared: &Arc<Shared>,
        target: Target,
        request: Request<B>,
    ) -> Result<Self, Stopped>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
        B::Error: std::fmt::Display,
    {
        let raw_target = request.uri().to_string();
        let (parts, mut body) = request.into_parts();
        let method = parts.method.as_str().to_string();
        let mut looked = parts.headers;
        let mut headers = release::travelling(&looked);
        let policy = shared.session.policy();
        let provider = policy.internal(&target.host, target.port, &method, &target.path);
        let (_, query) = raw_target.split_once('?').unwrap_or_default();
        let foreign = provider && shared.accounts.is_foreign(&looked, query);
        let internal = provider && !foreign;
        let storage = |e: io::Error| Stopped::Storage(format!("the request cannot be kept: {e}"));

        if internal {
            // The answer is evidence, so it has to come readable.
            headers.insert(
                header::ACCEPT_ENCODING,
                HeaderValue::from_static("identity"),
            );
        }
        let head = spool::head(&method, &target, &headers);
        let mut spooler = Spooler::new(shared.session.blobs(), head);
        let mut ahead: Option<Ahead> = None;
        let mut trailers = None;
        let mut bytes: u64 = 0;
        let limits = shared.config.limits;
        let most = limits.body_bytes.unwrap_or(policy.limits.bytes_max);
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|e| Stopped::Malformed(format!("the body could not be read: {e}")))?;
            match frame.into_data() {
                Ok(piece) => {
                    bytes += piece.len() as u64;
                    if bytes > most {
                        let why =
                            format!("the body is larger than the policy allows ({most} bytes)");
                        shared.too_large(&method, &target, &why);
                        return Err(Stopped::TooLarge(why));
                    }
                    spooler = spooler.add(&piece).map_err(storage)?;
                    // What is amended is searched as it is then.
                    if let Some(written) = spooler.written().filter(|_| !internal) {
                        ahead
                            .get_or_insert_with(|| Ahead::new(shared.session.scanner()))
                            .reach(written);
                    }
                }
                Err(frame) => {
                    // None at all are no trailers.
                    trailers = frame.into_trailers().ok().filter(|all| !all.is_empty());
                }
            }
        }
        let mut spool = spooler.finish().map_err(storage)?;

        if internal && spool.body_bytes() > 0 {
            let plain = tokio::task::block_in_place(|| conversation(&headers, &spool))
                .map_err(Stopped::Malformed)?;
            if let Some(plain) = plain {
                let kind = headers
                    .get(header::CONTENT_TYPE)
                    .and_then(|v| v.to_str().ok())
                    .unwrap_or_default()
                    .to_string();
                let hook = &shared.config.conversation;
                let amended = tokio::task::block_in_place(|| {
                    hook.request(&target.host, &target.path, &kind, plain)
                });
                headers.remove(header::CONTENT_ENCODING);
                looked.remove(header::CONTENT_ENCODING);
                let head = spool::head(&method, &target, &headers);
                spool = Spool::in_memory(&head, &amended);
            }
        }

        // With the search as it is now, after the last byte: what the agent read meanwhile counts.
        let scanner = shared.session.scanner();
        if let Some(trailers) = &trailers {
            looked.extend(
                trailers
                    .clone()
                    .into_iter()
                    .filter_map(|(n, v)| Some((n?, v))),
            );
        }
        let look = || {
            inspect::scan(
                &scanner,
                [method.as_str(), &target.host, &raw_target],
                &looked,
                &spool,
                ahead,
            )
        };
        let carries = if spool.body_bytes() > 64 << 10 {
            tokio::task::block_in_place(look)
        } else {
            look()
        }
        .map_err(Stopped::Malformed)?;
        let mean = || Meaning::of(&method, &target.path, &headers, &spool);
        let meaning = if spool.body_bytes() > 64 << 10 {
            tokio::task::block_in_place(mean)
        } else {
            mean()
        };
        Ok(Self {
            meaning,
            method,
            target,
            headers,
            trailers,
            spool,
            version: parts.version,
            internal,
            foreign,
            carries,
        })
    }

    pub(crate) fn effect(&self, class: Class) -> Effect {
        let mut fields = BTreeMap::new();
        let kind = self
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|v| v.to_str().ok());
        if let Some(kind) = kind {
            fields.insert("content-type".to_string(), kind.to_string());
        }
        if let Some(trailers) = &self.trailers {
            fields.insert("trailers".to_string(), format!("{:?}", written(trailers)));
        }
        if self.foreign {
            fields.insert(OTHER_ACCOUNT.to_string(), account::FOREIGN.to_string());
        }
        let meaning = self.meaning.told(&mut fields);
        let about = match (self.spool.body_bytes(), kind) {
            (0, _) => "no body".to_string(),
            (bytes, Some(kind)) => format!("{bytes} bytes of {kind}"),
            (bytes, None) => format!("{bytes} bytes"),
        };
        let about = match &self.trailers {
            Some(trailers) => format!("{about}, then trailers: {}", shown(trailers)),
            None => about,
        };
        let about = match meaning {
            Some(meaning) => format!("{meaning}; {about}"),
            None => about,
        };
        Effect {
            channel: Channel::Net,
            operation: Operation::Request(self.method.clone()),
            object: Object::Party {
                scheme: self.target.scheme.to_string(),
                host: self.target.host.clone(),
                port: self.target.port,
                path: self.target.path.clone(),
            },
            class,
            gated: Vec::new(),
            arguments: Vec::new(),
            carries: self.carries.clone(),
            payload: self.spool.payload(),
            base: None,
            saw: Vec::new(),
            fields,
            about,
        }
    }

    /// What has to be written beside a hold to send it later.
    pub(crate) fn parked(&self) -> Parked {
        let incidental: HeaderMap = self
            .headers
            .iter()
            .filter(|(name, _)| spool::is_incidental(name))
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let note = Note {
            kind: "request".into(),
            version: if self.version == Version::HTTP_2 {
                "2".into()
            } else {
                "1.1".into()
            },
            headers: written(&incidental),
            trailers: self.trailers.as_ref().map(written).unwrap_or_default(),
        };
        Parked {
            // Strings alone always have a JSON form.
            note: serde_json::to_string(&note).unwrap_or_default(),
            blob: Some(self.spool.payload().digest.hex()),
        }
    }
}

/// The body without content coding, for the provider's conversation.
fn conversation(headers: &HeaderMap, spool: &Spool) -> Result<Option<Vec<u8>>, String> {
    if spool.body_bytes() > CONVERSATION_BYTES_MAX {
        return Err("the request to the model provider is too large".into());
    }
    let reader = match inspect::decoded(headers, spool.body_reader())? {
        Some(reader) => reader,
        None if inspect::is_coded(headers) => return Ok(None),
        None => spool.body_reader(),
    };
    let mut plain = Vec::new();
    reader
        .take(CONVERSATION_BYTES_MAX + 1)
        .read_to_end(&mut plain)
        .map_err(|e| format!("the body is not what its `Content-Encoding` says: {e}"))?;
    if plain.len() as u64 > CONVERSATION_BYTES_MAX {
        return Err("the request to the model provider is too large".into());
    }
    Ok(Some(plain))
}

fn written(headers: &HeaderMap) -> Vec<(String, String)> {
    headers
        .iter()
        .map(|(name, value)| {
            (
                name.to_string(),
                // A byte is the character of that number, so that no two values are written alike.
                value.as_bytes().iter().copied().map(char::from).collect(),
            )
        })
        .collect()
}

/// Trailers for people, whole.
fn shown(trailers: &HeaderMap) -> String {
    let one = |(name, value): (&HeaderName, &HeaderValue)| {
        let value = String::from_utf8(value.as_bytes().to_vec())
            .unwrap_or_else(|_| value.as_bytes().escape_ascii().to_string());
        format!("{name}: {value}")
    };
    trailers.iter().map(one).collect::<Vec<_>>().join("; ")
}
