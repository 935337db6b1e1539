//! A server may send back the credential that it was given. The agent, its log and its files get stars
//! of the same length in its place, so that lengths that were announced still hold.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::{HeaderMap, HeaderValue, Response};
use aho_corasick::{AhoCorasick, MatchKind};
use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// A shorter value is too often something else.
const BYTES_MIN: usize = 8;

/// What is not to reach the agent.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    search: Arc<AhoCorasick>,
    values: Arc<Vec<Vec<u8>>>,
}

impl Mask {
    /// For values as they were sent; `None` when there are none to look for.
    pub(crate) fn of(sent: &BTreeSet<String>) -> Option<Self> {
        let mut values: BTreeSet<Vec<u8>> = BTreeSet::new();
        for value in sent.iter().filter(|value| value.len() >= BYTES_MIN) {
            let in_json = serde_json::to_string(value).unwrap_or_default();
            values.insert(in_json.trim_matches('"').as_bytes().to_vec());
            values.insert(value.as_bytes().to_vec());
        }
        if values.is_empty() {
            return None;
        }
        let values: Vec<Vec<u8>> = values.into_iter().collect();
        let search = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(&values)
            .ok()?;
        Some(Self {
            search: Arc::new(search),
            values: Arc::new(values),
        })
    }

    /// Lays what belongs to a request over the head of its answer, and leaves it there for the body.
    pub(crate) fn lay_over<B>(mask: Option<Self>, mut answer: Response<B>) -> Response<B> {
        if let Some(mask) = mask {
            mask.headers(answer.headers_mut());
            answer.extensions_mut().insert(mask);
        }
        answer
    }

    /// Masks the values of headers, or of trailers.
    fn headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            let mut bytes = value.as_bytes().to_vec();
            if self.bytes(&mut bytes)
                && let Ok(masked) = HeaderValue::from_bytes(&bytes)
            {
                *value = masked;
            }
        }
    }

    /// Masks what is there whole. Says whether there was anything.
    fn bytes(&self, bytes: &mut [u8]) -> bool {
        let found: Vec<_> = self.search.find_iter(&*bytes).collect();
        for one in &found {
            if let Some(place) = bytes.get_mut(one.range()) {
                place.fill(b'*');
            }
        }
        !found.is_empty()
    }

    /// How many of the last bytes may be the beginning of a value.
    fn begun(&self, bytes: &[u8]) -> usize {
        let begins = |value: &Vec<u8>| {
            let most = bytes.len().min(value.len().saturating_sub(1));
            (1..=most)
                .rev()
                .find(|n| value.starts_with(bytes.get(bytes.len() - n..).unwrap_or_default()))
        };
        self.values.iter().filter_map(begins).max().unwrap_or(0)
    }
}

/// A body, with values masked where there is a mask. Of what has come, only what may be the beginning of
/// one waits.
pub(crate) struct Masked<B> {
    body: B,
    mask: Option<Mask>,
    waiting: BytesMut,
    /// The end of the body, when something was to be passed on before it.
    last: Option<Option<HeaderMap>>,
}

impl<B> Masked<B> {
    pub(crate) fn new(body: B, mask: Option<Mask>) -> Self {
        Self {
            body,
            mask,
            waiting: BytesMut::new(),
            last: None,
        }
    }

    /// What can be passed on of a piece.
    fn passed(&mut self, data: Bytes) -> Bytes {
        let Some(mask) = &self.mask else { return data };
        let waiting = &mut self.waiting;
        if waiting.is_empty() && !mask.search.is_match(&data) {
            let clear = data.len() - mask.begun(&data);
            waiting.extend_from_slice(data.get(clear..).unwrap_or_default());
            return data.slice(..clear);
        }
        waiting.extend_from_slice(&data);
        mask.bytes(waiting);
        let clear = waiting.len() - mask.begun(waiting);
        waiting.split_to(clear).freeze()
    }

    fn end(trailers: Option<HeaderMap>) -> Option<Frame<Bytes>> {
        trailers.map(Frame::trailers)
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Masked<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if self.mask.is_none() {
            return Pin::new(&mut self.body).poll_frame(cx);
        }
        if let Some(trailers) = self.last.take() {
            return Poll::Ready(Self::end(trailers).map(Ok));
        }
        loop {
            let next = std::task::ready!(Pin::new(&mut self.body).poll_frame(cx));
            let trailers = match next {
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => {
                        let clear = self.passed(data);
                        if clear.is_empty() {
                            continue;
                        }
                        return Poll::Ready(Some(Ok(Frame::data(clear))));
                    }
                    Err(frame) => frame.into_trailers().ok().map(|mut trailers| {
                        if let Some(mask) = &self.mask {
                            mask.headers(&mut trailers);
                        }
                        trailers
                    }),
                },
                None => None,
            };
            if self.waiting.is_empty() {
                return Poll::Ready(Self::end(trailers).map(Ok));
            }
            self.last = Some(trailers);
            let rest = self.waiting.split().freeze();
            return Poll::Ready(Some(Ok(Frame::data(rest))));
        }
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.waiting.len() as u64;
        let body = self.body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(body.lower() + rest);
        hint
    }

    fn is_end_stream(&self) -> bool {
        self.waiting.is_empty() && self.last.is_none() && self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use http_body_util::{BodyExt as _, StreamBody};
    use proptest::prelude::*;

    use super::*;

    const VALUE: &str = "s3cr\"t-s3cr\"tx";

    fn mask() -> Mask {
        Mask::of(&[VALUE.to_string(), "s3cr\"t-zz".to_string()].into()).unwrap()
    }

    fn through(pieces: Vec<Vec<u8>>) -> Vec<u8> {
        let frames = pieces
            .into_iter()
            .map(|piece| Ok::<_, Infallible>(Frame::data(Bytes::from(piece))));
        let body = Masked::new(
            StreamBody::new(futures_util::stream::iter(frames)),
            Some(mask()),
        );
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        let whole = runtime.unwrap().block_on(body.collect()).unwrap();
        whole.to_bytes().to_vec()
    }

    #[test]
    fn values_are_stars() {
        let text = format!("a {VALUE} b s3cr\"t-zz {} s3cr", VALUE.replace('"', "\\\""));
        let stars = |n| "*".repeat(n);
        let expect = format!("a {} b {} {} s3cr", stars(14), stars(9), stars(16));
        assert_eq!(
            String::from_utf8(through(vec![text.into_bytes()])).unwrap(),
            expect
        );
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", format!("Bearer {VALUE}").parse().unwrap());
        mask().headers(&mut headers);
        assert_eq!(headers["x-echo"], "Bearer **************");
        assert!(Mask::of(&["short".to_string()].into()).is_none());
    }

    fn part() -> impl Strategy<Value = String> {
        prop_oneof![
            Just(VALUE.to_string()),
            Just("s3cr\"t-zz".to_string()),
            Just("s3cr\"t-s3".to_string()),
            "[a-z]{0,9}"
        ]
    }

    proptest! {
        /// Wherever it is cut, the same comes out, and nothing of a value.
        #[test]
        fn however_it_is_cut(
            parts in proptest::collection::vec(part(), 0..8),
            cuts in proptest::collection::vec(0usize..100, 0..8),
        ) {
            let text = parts.concat().into_bytes();
            let mut pieces = vec![text.clone()];
            for cut in cuts {
                let last = pieces.pop().unwrap();
                let at = cut.min(last.len());
                pieces.push(last[..at].to_vec());
                pieces.push(last[at..].to_vec());
            }
            let cut = through(pieces);
            prop_assert_eq!(cut.len(), text.len());
            for value in [VALUE, "s3cr\"t-zz"] {
                prop_assert!(!cut.windows(value.len()).any(|w| w == value.as_bytes()));
            }
            let whole = through(vec![text]);
            prop_assert_eq!(cut, whole);
        }
    }
}
