//! Our own proxy port: `CONNECT` opens a connection that is mediated like any other, by its
//! final target.

use std::sync::Arc;

use ::http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;

use crate::accept::{self, Place};
use crate::canonical::{self, Ambiguous};
use crate::net::Shared;
use crate::spool::full;
use crate::stub::{self, Shape};
use crate::upstream::Body;

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
    let stated = request
        .uri()
        .authority()
        .map(|a| a.as_str().to_string())
        .unwrap_or_default();
    let inner = match canonical::authority(&stated) {
        Ok((host, Some(port))) => accept::inner(shared, place, &host, port),
        Ok((_, None)) => Err(Ambiguous("the `CONNECT` target has no port".into())),
        Err(why) => Err(why),
    };
    let inner = match inner {
        Ok(inner) => inner,
        Err(why) => return refuse(StatusCode::BAD_REQUEST, &why.0),
    };
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        match hyper::upgrade::on(request).await {
            Ok(upgraded) => {
                let stream = Box::new(TokioIo::new(upgraded));
                if let Err(error) = accept::serve_boxed(shared, stream, inner).await {
                    tracing::debug!(%error, "a tunnel ended");
                }
            }
            Err(error) => tracing::debug!(%error, "a tunnel was not opened"),
        }
    });
    Response::new(full(""))
}
