//! One request: read to its end, judged in its canonical form, and then released, held or
//! refused. Nothing of it goes upstream before the decision.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use ::http::header::{self, HeaderMap, HeaderValue};
use ::http::{Method, Request, Response, StatusCode, Uri, Version};
use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use kernel::{Class, Effect, Object, Operation, Policy};
use monitor::{Held, Outcome};
use store::Lease;

use crate::accept::{Place, Stream};
use crate::answer::{self, Belongs};
use crate::ask::{Asked, Settle, ask};
use crate::framing::{Doubt, Guarded};
use crate::hold::{self, Stub};
use crate::limits::Excess;
use crate::meaning::Meaning;
use crate::net::Shared;
use crate::release;
use crate::stub::{self, Shape};
use crate::target::{self, Target};
use crate::upstream::{Body, Offer, SendError};
use crate::whole::{Stopped, Whole};
use crate::{grpc, proxy, websocket};

/// Less than this the library does not take.
const HEAD_BYTES_MIN: usize = 8192;

/// Serves HTTP/1 or HTTP/2 on a connection.
pub(crate) async fn serve<S: Stream>(
    shared: Arc<Shared>,
    stream: S,
    place: Place,
) -> io::Result<()> {
    let place = Arc::new(place);
    let (stream, doubt) = Guarded::new(stream);
    let limits = shared.config.limits;
    let (of_all, at) = (Arc::clone(&shared), Arc::clone(&place));
    let service = service_fn(move |request| {
        let (shared, place, doubt) = (Arc::clone(&of_all), Arc::clone(&at), Arc::clone(&doubt));
        async move { Ok::<_, Infallible>(answer(shared, place, doubt, request).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    let fits = |n: u32| usize::try_from(n).unwrap_or(usize::MAX);
    builder
        .http1()
        .max_headers(fits(limits.headers))
        .max_buf_size(fits(limits.head_bytes).max(HEAD_BYTES_MIN));
    builder
        .http2()
        .adaptive_window(true)
        .max_concurrent_streams(256)
        .max_header_list_size(limits.head_bytes);
    builder
        .serve_connection_with_upgrades(TokioIo::new(stream), service)
        .await
        .map_err(|error| {
            // The library has answered what it cannot read.
            let read = error.downcast_ref::<hyper::Error>();
            if read.is_some_and(hyper::Error::is_parse) {
                let why = format!("it cannot be read as HTTP: {error}");
                shared.contradiction(&place, "HTTP", &Uri::default(), &why);
            }
            io::Error::other(error)
        })
}

async fn answer(
    shared: Arc<Shared>,
    place: Arc<Place>,
    doubt: Doubt,
    request: Request<Incoming>,
) -> Response<Body> {
    let shape = Shape::of(request.headers());
    if let Some(why) = doubt.get() {
        shared.contradiction(&place, request.method().as_str(), request.uri(), why);
        return doubted(shape, why);
    }
    if *request.method() == Method::CONNECT {
        return proxy::connect(&shared, &place, request);
    }
    if request
        .method()
        .as_str()
        .bytes()
        .any(|b| b.is_ascii_lowercase())
    {
        let why = "the method is not in capital letters: some servers take it for the one that is, others do not";
        shared.contradiction(&place, request.method().as_str(), request.uri(), why);
        return stub::malformed(shape, StatusCode::BAD_REQUEST, why);
    }
    let found = target::of(
        &place,
        request.method(),
        request.uri(),
        request.version(),
        request.headers(),
    );
    let target = match found {
        Ok(target) => target,
        Err(why) => {
            shared.contradiction(&place, request.method().as_str(), request.uri(), &why.0);
            return stub::malformed(shape, StatusCode::MISDIRECTED_REQUEST, &why.0);
        }
    };
    if let Err(why) = framing(request.headers(), request.version()) {
        shared.contradiction(&place, request.method().as_str(), request.uri(), why);
        return stub::malformed(shape, StatusCode::BAD_REQUEST, why);
    }
    if let Some(excess) = too_many(&shared, &place, &target) {
        let (parts, body) = request.into_parts();
        shared.contradiction(&place, parts.method.as_str(), &parts.uri, &excess.why);
        read_away(body).await;
        let mut response = stub::excess(shape, &excess);
        if place.crowded.is_some() && parts.version != Version::HTTP_2 {
            response
                .headers_mut()
                .insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        return response;
    }
    if websocket::is_upgrade(&request) {
        return websocket::open(&shared, target, request, shape).await;
    }
    if grpc::is_call(&request) {
        return grpc::call(&shared, target, request, &doubt).await;
    }
    match exchange(&shared, target, request, shape, &doubt).await {
        Ok(response) => response,
        Err(stopped) => stopped.response(shape),
    }
}

/// Reads the rest of a body that nobody wants: clients take an answer before its end for a failure.
async fn read_away(mut body: Incoming) {
    let reading = async {
        let mut bytes = 0;
        while let Some(Ok(frame)) = body.frame().await {
            bytes += frame.data_ref().map_or(0, Bytes::len);
            if bytes > UNWANTED_BYTES_MAX {
                return;
            }
        }
    };
    // Who is slower than that gets the answer before its end.
    let _ = tokio::time::timeout(UNWANTED, reading).await;
}

const UNWANTED_BYTES_MAX: usize = 1 << 20;
const UNWANTED: Duration = Duration::from_secs(2);

/// More than the policy allows.
fn too_many(shared: &Shared, place: &Place, target: &Target) -> Option<Excess> {
    if let Some(why) = &place.crowded {
        return Some(Excess {
            why: why.clone(),
            after: CROWDED,
        });
    }
    let policy = shared.session.policy();
    shared
        .limiter
        .request(&policy, &target.host, target.port)
        .err()
}

/// Who finds no room for a connection is told to come back after this.
const CROWDED: Duration = Duration::from_secs(1);

/// The answer on a connection that can be cut into requests in two ways; it ends there.
fn doubted(shape: Shape, why: &str) -> Response<Body> {
    let mut response = stub::malformed(shape, StatusCode::BAD_REQUEST, why);
    response
        .headers_mut()
        .insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Length and coding of the body must be said once, in one way.
fn framing(headers: &HeaderMap, version: Version) -> Result<(), &'static str> {
    let length = headers.get_all(header::CONTENT_LENGTH).iter().count();
    let coding = headers.get_all(header::TRANSFER_ENCODING).iter().count();
    match (length, coding) {
        (0, 0) | (1, 0) => Ok(()),
        (0, 1) if version == Version::HTTP_2 => Err("HTTP/2 has no `Transfer-Encoding`"),
        (0, 1) => {
            let chunked = headers
                .get(header::TRANSFER_ENCODING)
                .is_some_and(|v| v.as_bytes().eq_ignore_ascii_case(b"chunked"));
            if chunked {
                Ok(())
            } else {
                Err("the `Transfer-Encoding` is not just `chunked`")
            }
        }
        (_, 0) => Err("there are several `Content-Length` headers"),
        _ => Err("there are both a `Content-Length` and a `Transfer-Encoding`, or several of one"),
    }
}

/// Reads a request to its end, has it judged, and answers it.
pub(crate) async fn exchange<B>(
    shared: &Arc<Shared>,
    target: Target,
    request: Request<B>,
    shape: Shape,
    doubt: &Doubt,
) -> Result<Response<Body>, Stopped>
where
    B: http_body::Body<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    let whole = Whole::read(shared, target, request).await?;
    if let Some(why) = doubt.get() {
        return Ok(doubted(shape, why));
    }
    let Target {
        host, port, path, ..
    } = &whole.target;
    let policy = shared.session.policy();
    if whole.internal
        || whole.meaning.needs_answer()
        || policy.needs_answer(host, *port, &whole.method, path)
    {
        blocking(shared, whole, shape).await
    } else {
        stallable(shared, &policy, whole, shape).await
    }
}

/// A request whose answer the agent needs: it waits.
async fn blocking(
    shared: &Arc<Shared>,
    whole: Whole,
    shape: Shape,
) -> Result<Response<Body>, Stopped> {
    let effect = whole.effect(Class::Blocking);
    let keep = || whole.spool.keep(shared.session.blobs());
    match ask(shared, effect, whole.parked(), keep).await {
        Asked::Go(lease, settle) => Ok(send(shared, whole, lease, settle, shape).await),
        Asked::No(notice) => Ok(stub::refused(shared, shape, &notice)),
        Asked::Undecided(why) => Ok(stub::malformed(shape, StatusCode::SERVICE_UNAVAILABLE, why)),
    }
}

/// A request whose answer only reports success: when it is held, a stub stands in.
async fn stallable(
    shared: &Arc<Shared>,
    policy: &Policy,
    whole: Whole,
    shape: Shape,
) -> Result<Response<Body>, Stopped> {
    let effect = whole.effect(Class::Stallable);
    let digest = effect.payload.digest;
    let identity = hold::identity(&effect);
    let blobs = shared.session.blobs();
    let storage = |e: io::Error| Stopped::Storage(format!("the request cannot be kept: {e}"));

    // Identical requests are one decision: one proposes, the others get its stub.
    let alone = shared.holds.one_at_a_time.lock().await;
    if let Some(stub) = shared.holds.stub(&identity) {
        return Ok(held(shared, &whole, shape, &stub));
    }
    // What will most likely be held is made durable before it is: its stub is a promise.
    let early = likely_held(policy, &effect);
    if early {
        tokio::task::block_in_place(|| whole.spool.keep(blobs)).map_err(storage)?;
    }
    let mut kept = Ok(());
    let outcome = shared
        .session
        .propose(effect, whole.parked(), &mut |held: &Held| {
            shared.holds.parked(held.hold, digest);
            // Another request with the same head and body may have ended meanwhile, and its bytes with it.
            if !early || !blobs.path(&digest).exists() {
                kept = whole.spool.keep(blobs);
            }
            shared.holds.stubbed(identity, Stub::of(held));
        });
    if early && !matches!(outcome, Outcome::Held(_)) {
        shared.holds.unheld(&digest, blobs);
    }
    drop(alone);
    match (outcome, kept) {
        (Outcome::Released(lease), _) => {
            let settle = Settle::of(shared, lease.event());
            Ok(send(shared, whole, lease, settle, shape).await)
        }
        (Outcome::Refused { notice, .. }, _) => Ok(match &whole.meaning {
            Meaning::Push(push) => stub::refused_push(shared, push, &notice),
            _ => stub::refused(shared, shape, &notice),
        }),
        (Outcome::Held(hold), Ok(())) => Ok(held(shared, &whole, shape, &Stub::of(&hold))),
        (Outcome::Held(held), Err(error)) => {
            let session = Arc::clone(&shared.session);
            drop(tokio::task::spawn_blocking(move || {
                session.expire(held.hold)
            }));
            Err(storage(error))
        }
    }
}

/// What stands in for the answer, in the words of the client's protocol.
fn held(shared: &Shared, whole: &Whole, shape: Shape, stub: &Stub) -> Response<Body> {
    match &whole.meaning {
        Meaning::Push(push) => stub::held_push(shared, push, stub),
        _ => stub::held(shared, shape, stub),
    }
}

fn likely_held(policy: &Policy, effect: &Effect) -> bool {
    let Object::Party { host, port, .. } = &effect.object else {
        return true;
    };
    policy.party(host, *port).is_none()
        || effect.carries.tokens().next().is_some()
        || effect.carries.marks().next().is_some()
}

/// Sends a request upstream, once, under its lease.
async fn send(
    shared: &Arc<Shared>,
    whole: Whole,
    lease: Lease,
    settle: Settle,
    shape: Shape,
) -> Response<Body> {
    // Spent here: there is no second try with it.
    drop(lease);
    match forward(shared, &whole, whole.spool.body()).await {
        Ok(response) => relayed(shared, whole, settle, response),
        Err(error) => unanswered(&whole, settle, shape, error),
    }
}

/// Tells that no answer came, and, once a request that changes something may have arrived, that nobody knows what came of it.
pub(crate) fn unanswered(
    whole: &Whole,
    mut settle: Settle,
    shape: Shape,
    error: SendError,
) -> Response<Body> {
    let changes = !Operation::Request(whole.method.clone()).reads_only() && !whole.internal;
    let error = SendError {
        sent: error.sent && changes,
        ..error
    };
    settle.tell(Err(error.result()));
    match error.sent {
        true => stub::unknown(shape, StatusCode::BAD_GATEWAY, &error.why),
        false => stub::failed(shape, StatusCode::BAD_GATEWAY, &error.why),
    }
}

/// The other side's answer on its way to the agent.
pub(crate) fn relayed(
    shared: &Arc<Shared>,
    whole: Whole,
    mut settle: Settle,
    response: Response<Incoming>,
) -> Response<Body> {
    settle.answered(&response.status().to_string());
    let belongs = Belongs {
        settle,
        host: whole.target.host,
        port: whole.target.port,
        path: whole.target.path,
        internal: whole.internal,
    };
    answer::relay(shared, belongs, response)
}

/// Sends the head of a request with a body, and returns the head of the answer.
pub(crate) async fn forward(
    shared: &Arc<Shared>,
    whole: &Whole,
    body: Body,
) -> Result<Response<Incoming>, SendError> {
    let mut request = release::outgoing(
        &shared.upstream.routes,
        &shared.config.credentials,
        &whole.method,
        &whole.target,
        &whole.headers,
        body,
        whole.trailers.clone(),
    )?;
    let h2 = whole.version == Version::HTTP_2;
    let clear = shared.upstream.routes.in_the_clear(
        &whole.target.host,
        whole.target.port,
        whole.target.scheme,
    );
    let grpc = whole
        .headers
        .get(header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"));
    let offer = match (h2, clear) {
        (false, _) => Offer::Http1,
        // In the clear nothing is negotiated: HTTP/2 only for who began it so, and for gRPC.
        (true, true) if whole.target.scheme == "http" || grpc => Offer::Http2,
        (true, true) => Offer::Http1,
        (true, false) => Offer::Any,
    };
    if offer == Offer::Http2 {
        *request.version_mut() = Version::HTTP_2;
    }
    shared.upstream.send(offer, request).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn framing_is_said_once() {
        for (lines, expect) in [
            (&[][..], true),
            (&[("content-length", "3")], true),
            (&[("transfer-encoding", "chunked")], true),
            (&[("transfer-encoding", "Chunked")], true),
            (
                &[("content-length", "3"), ("transfer-encoding", "chunked")],
                false,
            ),
            (&[("content-length", "3"), ("content-length", "3")], false),
            (&[("transfer-encoding", "gzip, chunked")], false),
            (&[("transfer-encoding", "xchunked")], false),
            (
                &[
                    ("transfer-encoding", "chunked"),
                    ("transfer-encoding", "chunked"),
                ],
                false,
            ),
        ] {
            let mut headers = HeaderMap::new();
            for (name, value) in lines {
                headers.append(*name, value.parse().unwrap());
            }
            assert_eq!(
                framing(&headers, Version::HTTP_11).is_ok(),
                expect,
                "{lines:?}"
            );
        }
    }
}
