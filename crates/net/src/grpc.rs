//! gRPC: a call that is sent in one go is a request like any other; in one that stays open each
//! message is judged on its own, since what follows may depend on the answers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use ::http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use ::http::{Request, Response, StatusCode};
use bytes::{Buf, Bytes, BytesMut};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Incoming;
use kernel::{Class, Operation};
use tokio::sync::{mpsc, oneshot};

use crate::ask::{Asked, ask};
use crate::framing::Doubt;
use crate::http;
use crate::message;
use crate::net::Shared;
use crate::spool::full;
use crate::stub::{self, Shape};
use crate::target::Target;
use crate::upstream::{Body, BoxError};
use crate::whole::Whole;

/// A call that has not ended, and says nothing for so long, stays open.
const PATIENCE: Duration = Duration::from_millis(100);
/// A call that has not ended by then stays open.
const WHOLE_BYTES_MAX: usize = 4 << 20;
/// A message may be this large.
const MESSAGE_BYTES_MAX: usize = 64 << 20;
/// A message has a flag and its length before it.
const PREFIX_BYTES: usize = 5;
/// Pieces on their way upstream.
const QUEUE_MAX: usize = 16;

/// Whether a request is a gRPC call.
pub(crate) fn is_call<B>(request: &Request<B>) -> bool {
    request
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
        && request.version() == ::http::Version::HTTP_2
}

/// Reads a call as far as it comes in one go, and judges it as a whole or as a stream.
pub(crate) async fn call(
    shared: &Arc<Shared>,
    target: Target,
    request: Request<Incoming>,
    doubt: &Doubt,
) -> Response<Body> {
    let (parts, mut body) = request.into_parts();
    let mut first: Vec<Frame<Bytes>> = Vec::new();
    let mut bytes = 0;
    let ended = loop {
        match tokio::time::timeout(PATIENCE, body.frame()).await {
            Ok(None) => break true,
            Ok(Some(Ok(frame))) => {
                bytes += frame.data_ref().map_or(0, Bytes::len);
                first.push(frame);
            }
            Ok(Some(Err(error))) => {
                let why = format!("the call could not be read: {error}");
                return stub::malformed(Shape::Grpc, StatusCode::BAD_REQUEST, &why);
            }
            Err(_) => break false,
        }
        if bytes > WHOLE_BYTES_MAX {
            break false;
        }
    };
    let done = if ended {
        let frames = first.into_iter().map(Ok::<_, BoxError>);
        let body = StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync();
        let request = Request::from_parts(parts, body);
        http::exchange(shared, target, request, Shape::Grpc, doubt).await
    } else {
        let head = Request::from_parts(parts, full(""));
        match Whole::read(shared, target, head).await {
            Ok(whole) => Ok(open(shared, whole, first, body).await),
            Err(stopped) => Err(stopped),
        }
    };
    done.unwrap_or_else(|stopped| stopped.response(Shape::Grpc))
}

/// Opens a stream: its head is judged first, then each message.
async fn open(
    shared: &Arc<Shared>,
    whole: Whole,
    first: Vec<Frame<Bytes>>,
    body: Incoming,
) -> Response<Body> {
    let mut effect = whole.effect(Class::Blocking);
    effect.fields.insert("stream".into(), "grpc".into());
    effect.about = "a stream of messages, each judged on its own".into();
    let keep = || whole.spool.keep(shared.session.blobs());
    let (lease, mut settle) = match ask(shared, effect, whole.parked(), keep).await {
        Asked::Go(lease, settle) => (lease, settle),
        Asked::No(notice) => return stub::refused(shared, Shape::Grpc, &notice),
        Asked::Undecided(why) => {
            return stub::malformed(Shape::Grpc, StatusCode::SERVICE_UNAVAILABLE, why);
        }
    };
    // Spent here: there is no second try with it.
    drop(lease);
    let (queue, queued) = mpsc::channel::<Result<Frame<Bytes>, BoxError>>(QUEUE_MAX);
    let (stop, mut stopped) = oneshot::channel();
    let pump = Pump {
        shared: Arc::clone(shared),
        target: whole.target.clone(),
        method: whole.method.clone(),
        foreign: whole.foreign,
        queue,
        pending: BytesMut::new(),
    };
    tokio::spawn(pump.run(first, body, stop));
    let outgoing = futures_util::stream::unfold(queued, |mut queued| async {
        queued.recv().await.map(|piece| (piece, queued))
    });
    let outgoing = StreamBody::new(outgoing).boxed_unsync();
    let answered = tokio::select! {
        answered = http::forward(shared, &whole, outgoing) => answered,
        Ok(text) = &mut stopped => {
            settle.tell(Err("one of its messages was not let through".into()));
            return stub::malformed(Shape::Grpc, StatusCode::FORBIDDEN, &text);
        }
    };
    match answered {
        Ok(response) => {
            let response = http::relayed(shared, whole, settle, response);
            response.map(|body| {
                Cut {
                    body: Some(body),
                    stopped: Some(stopped),
                }
                .boxed_unsync()
            })
        }
        Err(error) => http::unanswered(&whole, settle, Shape::Grpc, error),
    }
}

/// Carries the agent's messages of one stream.
struct Pump {
    shared: Arc<Shared>,
    target: Target,
    method: String,
    foreign: bool,
    queue: mpsc::Sender<Result<Frame<Bytes>, BoxError>>,
    pending: BytesMut,
}

impl Pump {
    /// Until either side ends; what is not let through ends the stream, and `stop` says why.
    async fn run(
        mut self,
        first: Vec<Frame<Bytes>>,
        body: Incoming,
        stop: oneshot::Sender<String>,
    ) {
        let queue = self.queue.clone();
        let carried = tokio::select! {
            carried = self.carry(first, body) => carried,
            // Nobody listens upstream any more; a message that waits is taken back.
            () = queue.closed() => Ok(()),
        };
        if let Err(why) = carried {
            // Either end may be gone already.
            let _ = queue.send(Err(why.clone().into())).await;
            let _ = stop.send(why);
        }
    }

    async fn carry(&mut self, first: Vec<Frame<Bytes>>, mut body: Incoming) -> Result<(), String> {
        for frame in first {
            self.frame(frame).await?;
        }
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| format!("the call broke off: {error}"))?;
            self.frame(frame).await?;
        }
        if self.pending.is_empty() {
            Ok(())
        } else {
            Err("the call ended within a message".into())
        }
    }

    async fn frame(&mut self, frame: Frame<Bytes>) -> Result<(), String> {
        let Ok(data) = frame.into_data() else {
            return Err("a call has no trailers".into());
        };
        self.pending.extend_from_slice(&data);
        while let Some(message) = message_of(&mut self.pending)? {
            let kind = message::Kind {
                // Whoever names the call names its messages.
                operation: Operation::Request(self.method.clone()),
                scheme: self.target.scheme,
                word: "grpc",
                foreign: self.foreign,
            };
            let mut settle = message::judged(&self.shared, &self.target, kind, &message).await?;
            let sent = self.queue.send(Ok(Frame::data(message))).await;
            settle.tell(match sent {
                Ok(()) => Ok("sent".into()),
                Err(_) => Err("the stream had ended".into()),
            });
        }
        Ok(())
    }
}

/// The next message with its prefix, once it is there.
fn message_of(pending: &mut BytesMut) -> Result<Option<Bytes>, String> {
    let Some(prefix) = pending.get(..PREFIX_BYTES) else {
        return Ok(None);
    };
    let mut prefix = prefix;
    if prefix.get_u8() > 1 {
        return Err("a message has a prefix that gRPC does not know".into());
    }
    let length = usize::try_from(prefix.get_u32()).unwrap_or(usize::MAX);
    if length > MESSAGE_BYTES_MAX {
        return Err("a message is too large".into());
    }
    let whole = PREFIX_BYTES + length;
    Ok((pending.len() >= whole).then(|| pending.split_to(whole).freeze()))
}

/// An answer that ends early when a message was not let through, with the reason in its trailers.
struct Cut {
    body: Option<Body>,
    stopped: Option<oneshot::Receiver<String>>,
}

impl http_body::Body for Cut {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        if let Some(stopped) = &mut this.stopped {
            match Pin::new(stopped).poll(cx) {
                Poll::Ready(Ok(why)) => {
                    // What the other side still says belongs to a stream that has ended.
                    this.body = None;
                    this.stopped = None;
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("7"));
                    if let Ok(message) = HeaderValue::from_str(&stub::percent(&why)) {
                        trailers.insert("grpc-message", message);
                    }
                    return Poll::Ready(Some(Ok(Frame::trailers(trailers))));
                }
                Poll::Ready(Err(_)) => this.stopped = None,
                Poll::Pending => {}
            }
        }
        match &mut this.body {
            Some(body) => Pin::new(body).poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body
            .as_ref()
            .is_none_or(http_body::Body::is_end_stream)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_cut_at_their_length() {
        let mut pending = BytesMut::from(&b"\0\0\0\0\x02hi\x01\0\0\0\0\0\0"[..]);
        assert_eq!(
            message_of(&mut pending).unwrap().unwrap(),
            &b"\0\0\0\0\x02hi"[..]
        );
        assert_eq!(
            message_of(&mut pending).unwrap().unwrap(),
            &b"\x01\0\0\0\0"[..]
        );
        assert_eq!(message_of(&mut pending), Ok(None));
        assert!(message_of(&mut BytesMut::from(&b"\x02\0\0\0\0"[..])).is_err());
        assert!(message_of(&mut BytesMut::from(&b"\0\xff\0\0\0"[..])).is_err());
    }
}
