//! Our own proxy port: `CONNECT` opens a connection that is mediated like any other, by its
//! final target.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use ::http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use crate::accept::{self, AnyStream, Endpoint, Place};
use crate::canonical;
use crate::net::Shared;
use crate::spool::full;
use crate::stub::{self, Shape};
use crate::upstream::Body;

/// `CONNECT`s one within the other.
const DEPTH_MAX: u8 = 3;

/// Answers a `CONNECT`. Nothing is reached yet: what the tunnel carries is judged.
pub(crate) fn connect(
    shared: &Arc<Shared>,
    place: &Place,
    request: Request<Incoming>,
) -> Response<Body> {
    let refuse = |status, why: &str| {
        shared.contradiction(place, "CONNECT", request.uri(), why);
        stub::malformed(Shape::Text, status, why)
    };
    if place.target.is_some() {
        return refuse(
            StatusCode::METHOD_NOT_ALLOWED,
            "only the proxy port takes `CONNECT`",
        );
    }
    if place.depth >= DEPTH_MAX {
        return refuse(
            StatusCode::LOOP_DETECTED,
            "there are too many `CONNECT`s one within the other",
        );
    }
    let stated = request
        .uri()
        .authority()
        .map(|a| a.as_str().to_string())
        .unwrap_or_default();
    let (host, port) = match canonical::authority(&stated) {
        Ok((host, Some(port))) => (host, port),
        Ok((_, None)) => {
            return refuse(StatusCode::BAD_REQUEST, "the `CONNECT` target has no port");
        }
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why.0),
    };
    let target = if port == shared.config.proxy_port {
        None
    } else {
        Some(Endpoint { host, port })
    };
    let inner = Place {
        target,
        secured: None,
        depth: place.depth + 1,
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => {
                if let Err(error) = serve(shared, Box::new(TokioIo::new(upgraded)), inner).await {
                    tracing::debug!(%error, "a tunnel ended");
                }
            }
            Err(error) => tracing::debug!(%error, "a tunnel was not opened"),
        }
    });
    Response::new(full(""))
}

/// A future of a known type, since a tunnel may hold another.
fn serve(
    shared: Arc<Shared>,
    stream: AnyStream,
    place: Place,
) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send>> {
    Box::pin(accept::serve(shared, stream, place))
}
