//! What the agent is answered when nothing is sent: a stub for what is held, a notice for what
//! is refused, a reason for what failed. In the shape that the client expects.

use ::http::header::{ACCEPT, CONTENT_TYPE, RETRY_AFTER};
use ::http::{HeaderMap, HeaderValue, Response, StatusCode};
use kernel::Notice;
use serde_json::json;

use crate::git::Push;
use crate::hold::Stub;
use crate::limits::Excess;
use crate::net::Shared;
use crate::spool::full;
use crate::upstream::Body;

/// The header that tells what became of a request.
pub(crate) const DECISION: &str = "kairos-decision";

/// How a client wants to be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// JSON.
    Json,
    /// Plain text.
    Text,
    /// A status in the trailers.
    Grpc,
}

impl Shape {
    /// What its headers say.
    pub(crate) fn of(headers: &HeaderMap) -> Self {
        let text = |name| {
            headers
                .get(name)
                .and_then(|v: &HeaderValue| v.to_str().ok())
                .unwrap_or_default()
                .to_ascii_lowercase()
        };
        let (accept, content) = (text(ACCEPT), text(CONTENT_TYPE));
        if content.starts_with("application/grpc") {
            Self::Grpc
        } else if accept.contains("json") || (content.contains("json") && !accept.contains("text/"))
        {
            Self::Json
        } else {
            Self::Text
        }
    }
}

/// The stand-in answer for a held request.
pub(crate) fn held(shared: &Shared, shape: Shape, stub: &Stub) -> Response<Body> {
    let text = with_pending(shared, &stub.notice.text);
    let fields = json!({
        "status": "accepted", "id": stub.mark, "held": stub.hold.to_string(), "message": text,
    });
    answer(shape, StatusCode::ACCEPTED, "held", &text, &fields)
}

/// The answer to a refused request.
pub(crate) fn refused(shared: &Shared, shape: Shape, notice: &Notice) -> Response<Body> {
    let text = with_pending(shared, &notice.text);
    let fields = json!({ "error": { "type": "refused", "message": text } });
    let response = answer(shape, StatusCode::FORBIDDEN, "refused", &text, &fields);
    shared.session.told(notice, "answer");
    response
}

/// The stand-in answer for a held push: to git it went well, and whoever pushed reads what it waits for.
pub(crate) fn held_push(shared: &Shared, push: &Push, stub: &Stub) -> Response<Body> {
    let text = with_pending(shared, &stub.notice.text);
    let text = format!("{text}\n[Kairos] hold {}, {}", stub.hold, stub.mark);
    pushed("held", push.answer(None, &text))
}

/// The answer to a refused push.
pub(crate) fn refused_push(shared: &Shared, push: &Push, notice: &Notice) -> Response<Body> {
    let text = with_pending(shared, &notice.text);
    let response = pushed("refused", push.answer(Some("refused by Kairos"), &text));
    shared.session.told(notice, "answer");
    response
}

fn pushed(decision: &'static str, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(full(body));
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static("application/x-git-receive-pack-result");
    headers.insert(CONTENT_TYPE, kind);
    headers.insert(DECISION, HeaderValue::from_static(decision));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    response
}

/// The answer to a request that contradicts itself.
pub(crate) fn malformed(shape: Shape, status: StatusCode, why: &str) -> Response<Body> {
    let text = format!("[Kairos] Nothing was sent: {why}.");
    let fields = json!({ "error": { "type": "malformed", "message": text } });
    answer(shape, status, "refused", &text, &fields)
}

/// The answer when more came than the policy allows.
pub(crate) fn excess(shape: Shape, excess: &Excess) -> Response<Body> {
    let seconds = excess.after.as_secs() + u64::from(excess.after.subsec_nanos() > 0);
    let text = format!(
        "[Kairos] Nothing was sent: {}; the next one may come in {seconds} s.",
        excess.why
    );
    let fields = json!({ "error": { "type": "too many requests", "message": text } });
    let mut response = answer(
        shape,
        StatusCode::TOO_MANY_REQUESTS,
        "refused",
        &text,
        &fields,
    );
    if shape == Shape::Grpc {
        // RESOURCE_EXHAUSTED.
        response
            .headers_mut()
            .insert("grpc-status", HeaderValue::from_static("8"));
    }
    response
        .headers_mut()
        .insert(RETRY_AFTER, HeaderValue::from(seconds));
    response
}

/// The answer when the other side could not be reached or understood.
pub(crate) fn failed(shape: Shape, status: StatusCode, why: &str) -> Response<Body> {
    let text = format!("[Kairos] The request was allowed but failed: {why}.");
    let fields = json!({ "error": { "type": "upstream", "message": text } });
    answer(shape, status, "failed", &text, &fields)
}

/// The answer to a request that may have taken effect, though no answer came.
pub(crate) fn unknown(shape: Shape, status: StatusCode, why: &str) -> Response<Body> {
    let text = format!(
        "[Kairos] The request was allowed and it was sent, but no answer came: {why}. Whether it took effect is not known; \
         do not simply send it again, find out first."
    );
    let fields = json!({ "error": { "type": "outcome_unknown", "message": text } });
    answer(shape, status, "unknown", &text, &fields)
}

fn with_pending(shared: &Shared, text: &str) -> String {
    let mut text = text.to_string();
    for pending in (shared.config.pending_notices)() {
        text.push_str("\n\n");
        text.push_str(&pending);
    }
    text
}

fn answer(
    shape: Shape,
    status: StatusCode,
    decision: &'static str,
    text: &str,
    fields: &serde_json::Value,
) -> Response<Body> {
    let (status, kind, body) = match shape {
        Shape::Json => (status, "application/json", format!("{fields}\n")),
        Shape::Text => (status, "text/plain; charset=utf-8", format!("{text}\n")),
        Shape::Grpc => (StatusCode::OK, "application/grpc", String::new()),
    };
    let mut response = Response::new(full(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(DECISION, HeaderValue::from_static(decision));
    headers.insert("cache-control", HeaderValue::from_static("no-store"));
    if shape == Shape::Grpc {
        // UNAVAILABLE when the other side failed, UNKNOWN, or PERMISSION_DENIED.
        let code = match decision {
            "failed" => "14",
            "unknown" => "2",
            _ => "7",
        };
        headers.insert("grpc-status", HeaderValue::from_static(code));
        let message = percent(text);
        if let Ok(value) = HeaderValue::from_str(&message) {
            headers.insert("grpc-message", value);
        }
    }
    response
}

/// A status message as gRPC wants it: printable ASCII, everything else percent-encoded.
pub(crate) fn percent(text: &str) -> String {
    use std::fmt::Write as _;
    let mut out = String::new();
    for byte in text.bytes() {
        if (0x20..0x7f).contains(&byte) && byte != b'%' {
            out.push(char::from(byte));
        } else {
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes() {
        for (accept, content, expect) in [
            ("", "", Shape::Text),
            ("*/*", "application/x-www-form-urlencoded", Shape::Text),
            ("*/*", "application/json", Shape::Json),
            ("application/json", "", Shape::Json),
            ("application/vnd.github+json", "", Shape::Json),
            (
                "text/html, application/xml",
                "application/json",
                Shape::Text,
            ),
            ("", "application/grpc+proto", Shape::Grpc),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT, HeaderValue::from_static(accept));
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
            assert_eq!(Shape::of(&headers), expect, "{accept} {content}");
        }
    }
}
