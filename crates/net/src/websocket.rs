//! WebSocket: the handshake is judged as a request, and then each message on its own. Messages may
//! come compressed from either side; they are read, judged and passed on plain, or compressed anew.

use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderMap};
use ::http::{Method, Request, Response, StatusCode, Version};
use bytes::Bytes;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::body::Incoming;
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use kernel::{Channel, Class, Content, Operation, Source};
use tokio::sync::mpsc;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};

use crate::answer::{self, Belongs};
use crate::ask::{Asked, Settle, ask};
use crate::deflate::{self, Agreed, Packing};
use crate::mask::Mask;
use crate::message;
use crate::net::Shared;
use crate::release;
use crate::spool::full;
use crate::stub::{self, Shape};
use crate::target::Target;
use crate::upstream::{Body, Offer, UpstreamError};
use crate::whole::Whole;

/// A message may be this large.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// So much of a message is told to the monitor.
const TOLD_BYTES_MAX: usize = 1 << 20;
/// Messages on their way to the agent.
const QUEUE_MAX: usize = 16;
/// The other side has so long to answer a close.
const CLOSING: Duration = Duration::from_secs(5);
/// A close frame holds this much text.
const REASON_BYTES_MAX: usize = 123;

/// Whether a request asks to become a WebSocket.
pub(crate) fn is_upgrade<B>(request: &Request<B>) -> bool {
    let says = |name, word: &str| {
        request
            .headers()
            .get_all(name)
            .iter()
            .any(|v: &::http::HeaderValue| {
                v.to_str()
                    .is_ok_and(|v| v.split(',').any(|w| w.trim().eq_ignore_ascii_case(word)))
            })
    };
    *request.method() == Method::GET
        && request.version() == Version::HTTP_11
        && says(header::UPGRADE, "websocket")
        && says(header::CONNECTION, "upgrade")
}

/// Judges the handshake, makes the same one upstream, and then carries messages.
pub(crate) async fn open(
    shared: &Arc<Shared>,
    target: Target,
    mut request: Request<Incoming>,
    shape: Shape,
) -> Response<Body> {
    let agent = hyper::upgrade::on(&mut request);
    let compression = deflate::accepted(request.headers());
    let whole = match Whole::read(shared, target, request).await {
        Ok(whole) => whole,
        Err(stopped) => return stopped.response(shape),
    };
    let keep = || whole.spool.keep(shared.session.blobs());
    let (lease, mut settle) =
        match ask(shared, whole.effect(Class::Blocking), whole.parked(), keep).await {
            Asked::Go(lease, settle) => (lease, settle),
            Asked::No(notice) => return stub::refused(shared, shape, &notice),
            Asked::Undecided(why) => {
                return stub::malformed(shape, StatusCode::SERVICE_UNAVAILABLE, why);
            }
        };
    // Spent here: there is no second try with it.
    drop(lease);
    let (mut response, packed) = match handshake(shared, &whole, compression.is_some()).await {
        Ok(answered) => answered,
        Err(UpstreamError(why)) => {
            settle.tell(Err(why.clone()));
            return stub::failed(shape, StatusCode::BAD_GATEWAY, &why);
        }
    };
    settle.answered(&response.status().to_string());
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        let Target {
            host, port, path, ..
        } = whole.target;
        let belongs = Belongs {
            settle,
            host,
            port,
            path,
            internal: whole.internal,
        };
        return answer::relay(shared, belongs, response);
    }
    let upstream = hyper::upgrade::on(&mut response);
    let relay = Relay {
        shared: Arc::clone(shared),
        target: whole.target,
        internal: whole.internal,
        foreign: whole.foreign,
        packed: (compression.as_ref().map(|(_, agreed)| *agreed), packed),
    };
    tokio::spawn(async move {
        match tokio::try_join!(agent, upstream) {
            Ok((agent, upstream)) => relay.run(agent, upstream, settle).await,
            Err(error) => settle_broken(settle, &error.to_string()),
        }
    });
    let mut accepted = Response::new(full(""));
    *accepted.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    for (name, value) in response.headers() {
        if *name != header::SEC_WEBSOCKET_EXTENSIONS && *name != header::CONTENT_LENGTH {
            accepted.headers_mut().append(name.clone(), value.clone());
        }
    }
    if let Some(value) = compression.and_then(|(answer, _)| answer.parse().ok()) {
        let headers = accepted.headers_mut();
        headers.insert(header::SEC_WEBSOCKET_EXTENSIONS, value);
    }
    accepted
}

fn settle_broken(mut settle: Settle, why: &str) {
    settle.tell(Err(format!("the connection was not upgraded: {why}")));
}

/// The agent's handshake, made upstream on a connection of its own; the answer, and whether the
/// server may compress.
async fn handshake(
    shared: &Arc<Shared>,
    whole: &Whole,
    compression: bool,
) -> Result<(Response<Incoming>, Option<Agreed>), UpstreamError> {
    let Target {
        scheme, host, port, ..
    } = &whole.target;
    let wire = shared
        .upstream
        .routes
        .connect(host, *port, *scheme == "https", Offer::Http1)
        .await?;
    let wrong = |e: hyper::Error| UpstreamError(format!("`{host}` broke the connection off: {e}"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(wire))
        .await
        .map_err(wrong)?;
    tokio::spawn(async move {
        if let Err(error) = connection.with_upgrades().await {
            tracing::debug!(%error, "an upstream connection ended");
        }
    });
    let mut headers: HeaderMap = whole.headers.clone();
    headers.remove(header::SEC_WEBSOCKET_EXTENSIONS);
    if compression {
        headers.insert(
            header::SEC_WEBSOCKET_EXTENSIONS,
            ::http::HeaderValue::from_static(deflate::OFFER),
        );
    }
    headers.insert(
        header::UPGRADE,
        ::http::HeaderValue::from_static("websocket"),
    );
    headers.insert(
        header::CONNECTION,
        ::http::HeaderValue::from_static("Upgrade"),
    );
    let mut request = release::outgoing(
        &shared.upstream.routes,
        &shared.config.credentials,
        &whole.method,
        &whole.target,
        &headers,
        full(""),
        None,
    )?;
    // On a connection of its own the request target is the path alone.
    let path = request
        .uri()
        .path_and_query()
        .map_or("/", |pq| pq.as_str())
        .to_string();
    *request.uri_mut() = path
        .parse()
        .map_err(|e| UpstreamError(format!("the request cannot be written: {e}")))?;
    let mask = request.extensions().get::<Mask>().cloned();
    let response = sender.send_request(request).await.map_err(wrong)?;
    let response = Mask::lay_over(mask, response);
    let packed = match deflate::agreed(response.headers()) {
        Ok(packed) if compression || packed.is_none() => packed,
        Ok(_) => {
            return Err(UpstreamError(format!(
                "`{host}` compresses without being asked to"
            )));
        }
        Err(why) => return Err(UpstreamError(format!("`{host}`: {why}"))),
    };
    Ok((response, packed))
}

type Socket = WebSocketStream<Packing<TokioIo<Upgraded>>>;

/// Carries messages of one WebSocket.
struct Relay {
    shared: Arc<Shared>,
    target: Target,
    internal: bool,
    /// Opened on an account that is not the principal's.
    foreign: bool,
    /// How the agent, and the server, compress.
    packed: (Option<Agreed>, Option<Agreed>),
}

impl Relay {
    async fn run(self, agent: Upgraded, upstream: Upgraded, mut settle: Settle) {
        let config = WebSocketConfig::default()
            .max_message_size(Some(MESSAGE_BYTES_MAX))
            .max_frame_size(Some(MESSAGE_BYTES_MAX));
        let plain = |stream, packed| Packing::new(TokioIo::new(stream), packed, MESSAGE_BYTES_MAX);
        let (agent, upstream) = (plain(agent, self.packed.0), plain(upstream, self.packed.1));
        let agent: Socket =
            WebSocketStream::from_raw_socket(agent, Role::Server, Some(config)).await;
        let upstream: Socket =
            WebSocketStream::from_raw_socket(upstream, Role::Client, Some(config)).await;
        let (mut to_agent, from_agent) = agent.split();
        let (to_upstream, from_upstream) = upstream.split();
        let (agent_queue, mut queued) = mpsc::channel::<Message>(QUEUE_MAX);

        let writer = async {
            while let Some(message) = queued.recv().await {
                let last = message.is_close();
                if to_agent.send(message).await.is_err() || last {
                    break;
                }
            }
            // The agent may be gone already.
            let _ = to_agent.close().await;
        };
        let queue = agent_queue.clone();
        let carry = async {
            tokio::select! {
                () = self.outwards(from_agent, to_upstream, queue) => 0,
                bytes = self.backwards(from_upstream, agent_queue) => bytes,
            }
        };
        let (bytes, ()) = tokio::join!(carry, writer);
        settle.tell(Ok(format!("101, {bytes} bytes back")));
    }

    /// Messages of the agent, each judged, until either side ends.
    async fn outwards(
        &self,
        mut from_agent: SplitStream<Socket>,
        mut to_upstream: SplitSink<Socket, Message>,
        queue: mpsc::Sender<Message>,
    ) {
        loop {
            let message = match from_agent.next().await {
                Some(Ok(Message::Close(frame))) => {
                    // Either end may be gone already; the other side's answer comes back.
                    // The reason is text of the agent that nobody judged: only the code goes on.
                    let bare = frame.map(|frame| CloseFrame {
                        code: frame.code,
                        reason: String::new().into(),
                    });
                    let _ = to_upstream.send(Message::Close(bare)).await;
                    tokio::time::sleep(CLOSING).await;
                    return;
                }
                // Each side's own end answers pings.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => continue,
                Some(Ok(message)) => message,
                Some(Err(error)) => {
                    let _ = queue.send(Message::Close(closing(&error))).await;
                    let _ = to_upstream.close().await;
                    return;
                }
                None => {
                    let _ = to_upstream.close().await;
                    return;
                }
            };
            match self.judged(message).await {
                Ok((message, settle)) => {
                    let sent = to_upstream.send(message).await;
                    if let Some(mut settle) = settle {
                        settle.tell(
                            sent.as_ref()
                                .map(|()| "sent".to_string())
                                .map_err(ToString::to_string),
                        );
                    }
                    if sent.is_err() {
                        return;
                    }
                }
                Err(text) => {
                    let _ = queue.send(Message::Close(Some(refusal(&text)))).await;
                    let _ = to_upstream.close().await;
                    return;
                }
            }
        }
    }

    /// Messages of the other side, until it ends; their size.
    async fn backwards(
        &self,
        mut from_upstream: SplitStream<Socket>,
        queue: mpsc::Sender<Message>,
    ) -> usize {
        let mut bytes = 0;
        while let Some(Ok(message)) = from_upstream.next().await {
            match &message {
                Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => continue,
                Message::Text(text) => self.told(text.as_bytes()),
                Message::Binary(data) => self.told(data),
                Message::Close(_) => {}
            }
            bytes += message.len();
            let last = message.is_close();
            if queue.send(message).await.is_err() {
                break;
            }
            if last {
                // Reading on answers the close; the server then ends the connection.
                let end = async { while from_upstream.next().await.is_some() {} };
                let _ = tokio::time::timeout(CLOSING, end).await;
                break;
            }
        }
        bytes
    }

    /// The message as it may leave, or what the agent is told instead.
    async fn judged(&self, message: Message) -> Result<(Message, Option<Settle>), String> {
        let (host, path) = (&self.target.host, &self.target.path);
        // By the policy as it is now: it may have changed since the handshake.
        let policy = self.shared.session.policy();
        let internal = !self.foreign && policy.internal(host, self.target.port, "GET", path);
        let message = match message {
            Message::Text(text) if internal => {
                let hook = &self.shared.config.conversation;
                Message::Text(hook.ws_message(host, path, text.to_string()).into())
            }
            other => other,
        };
        let (word, bytes): (&str, Bytes) = match &message {
            Message::Text(text) => ("text", Bytes::copy_from_slice(text.as_bytes())),
            Message::Binary(data) => ("binary", data.clone()),
            _ => return Ok((message, None)),
        };
        let kind = message::Kind {
            operation: Operation::Message,
            scheme: if self.target.scheme == "https" {
                "wss"
            } else {
                "ws"
            },
            word,
            foreign: self.foreign,
        };
        let settle = message::judged(&self.shared, &self.target, kind, &bytes).await?;
        Ok((message, Some(settle)))
    }

    /// Content that reaches the agent.
    fn told(&self, bytes: &[u8]) {
        let Target { host, path, .. } = &self.target;
        if self.internal {
            self.shared.config.conversation.answer(host, path, bytes);
        } else if bytes.len() <= TOLD_BYTES_MAX {
            self.shared.session.incoming(kernel::Incoming {
                channel: Channel::Net,
                source: Source::Party(host.clone()),
                content: Content::new(bytes.to_vec()),
                leaves: Vec::new(),
                answers: None,
                layer: None,
            });
        }
    }
}

/// What an unreadable frame is answered.
fn closing(error: &Error) -> Option<CloseFrame> {
    let code = match error {
        Error::Capacity(_) => CloseCode::Size,
        Error::Utf8(_) => CloseCode::Invalid,
        Error::Protocol(_) => CloseCode::Protocol,
        _ => return None,
    };
    Some(CloseFrame {
        code,
        reason: "".into(),
    })
}

/// A refusal that fits into a close frame.
fn refusal(text: &str) -> CloseFrame {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    CloseFrame {
        code: CloseCode::Policy,
        reason: text.get(..end).unwrap_or_default().to_string().into(),
    }
}
