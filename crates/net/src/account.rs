//! Whose account a request to a model provider is on. A provider's paths are an internal channel
//! because what is sent there stays with the principal's own account; with somebody else's key the
//! same paths carry files to somebody else.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use http::HeaderMap;
use kernel::Digest;
use serde_json::Value;

/// What is said of a request on another account.
pub(crate) const FOREIGN: &str = "a request on an account that is not known to be yours";
/// Headers that say whose account it is.
const HEADERS: [&str; 5] = [
    "authorization",
    "x-api-key",
    "api-key",
    "x-goog-api-key",
    "proxy-authorization",
];
/// Parameters of a query that do.
const PARAMETERS: [&str; 3] = ["key", "api_key", "access_token"];
/// Keys that are remembered; a session with more of them has to ask about the rest.
const KNOWN_MAX: usize = 1024;
/// Shorter than this nothing is a key.
const KEY_BYTES_MIN: usize = 8;
/// An answer that hands keys out is small.
const ANSWER_BYTES_MAX: usize = 64 << 10;

/// The keys that are the principal's, as far as this session knows: those that the agent was given,
/// the first that a provider sees (no content has reached the agent by then that could name
/// another), and those that parties of the policy hand out to renew one.
#[derive(Default)]
pub(crate) struct Accounts(Mutex<Known>);

#[derive(Default)]
struct Known {
    keys: BTreeSet<Digest>,
    /// Whether a request has brought one.
    used: bool,
}

impl Accounts {
    /// With keys that the agent was given.
    pub(crate) fn new(given: &[String]) -> Self {
        let accounts = Self::default();
        given.iter().for_each(|key| accounts.give(key));
        accounts
    }

    /// Whether a request to a provider is on an account that is not known to be the principal's.
    pub(crate) fn is_foreign(&self, headers: &HeaderMap, query: &str) -> bool {
        let keys: BTreeSet<Digest> = keys(headers, query)
            .map(|key| Digest::of(key.as_bytes()))
            .collect();
        if keys.is_empty() {
            // On nobody's account.
            return false;
        }
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut known.used, true) {
            known.keys.extend(keys);
            return false;
        }
        !keys.is_subset(&known.keys)
    }

    /// An answer of a party that the policy names: a key that it hands out is the principal's too.
    pub(crate) fn learn(&self, body: &[u8]) {
        if body.len() <= ANSWER_BYTES_MAX
            && let Ok(answer) = serde_json::from_slice::<Value>(body)
        {
            self.handed_out(&answer);
        }
    }

    fn handed_out(&self, answer: &Value) {
        for (name, value) in answer.as_object().into_iter().flatten() {
            match value {
                Value::String(key) if names_a_key(name) => self.give(key),
                Value::Object(_) => self.handed_out(value),
                _ => {}
            }
        }
    }

    fn give(&self, key: &str) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if key.len() >= KEY_BYTES_MIN && known.keys.len() < KNOWN_MAX {
            known.keys.insert(Digest::of(key.as_bytes()));
        }
    }
}

fn names_a_key(name: &str) -> bool {
    let name = name.to_ascii_lowercase().replace(['-', '_'], "");
    name.ends_with("token") || name.ends_with("apikey") || name == "key"
}

/// The keys of a request, without the words before them.
fn keys<'a>(headers: &'a HeaderMap, query: &'a str) -> impl Iterator<Item = &'a str> {
    let in_headers = HEADERS
        .iter()
        .flat_map(|name| headers.get_all(*name))
        .filter_map(|value| value.to_str().ok())
        .map(key_of);
    let in_query = query.split('&').filter_map(|pair| {
        let (name, value) = pair.split_once('=')?;
        PARAMETERS.contains(&name).then_some(value)
    });
    in_headers.chain(in_query).filter(|key| !key.is_empty())
}

/// `Bearer KEY`, `KEY`, or the key that an AWS signature is made with, which differs each time.
fn key_of(value: &str) -> &str {
    let value = value.trim();
    if let Some((_, credential)) = value.split_once("Credential=") {
        return credential.split(['/', ',']).next().unwrap_or(credential);
    }
    value.split_once(' ').map_or(value, |(_, key)| key.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(http::HeaderName::from_static(name), value.parse().unwrap())])
    }

    #[test]
    fn the_first_account_is_the_principals_and_another_is_not() {
        let accounts = Accounts::default();
        let own = with("authorization", "Bearer sk-own-1234");
        assert!(!accounts.is_foreign(&HeaderMap::new(), ""));
        assert!(!accounts.is_foreign(&own, ""));
        assert!(!accounts.is_foreign(&with("x-api-key", "sk-own-1234"), ""));
        for other in [
            with("authorization", "Bearer sk-other-123"),
            with("authorization", "bearer  sk-other-123"),
            with("x-api-key", "sk-other-123"),
            with("x-goog-api-key", "sk-other-123"),
        ] {
            assert!(accounts.is_foreign(&other, ""), "{other:?}");
        }
        assert!(accounts.is_foreign(&HeaderMap::new(), "alt=sse&key=sk-other-123"));
        // One key of its own does not vouch for a second beside it.
        assert!(accounts.is_foreign(&own, "key=sk-other-123"));
    }

    #[test]
    fn keys_that_were_given_or_handed_out_are_known() {
        let accounts = Accounts::new(&["sk-of-the-environment", "short"].map(str::to_string));
        assert!(!accounts.is_foreign(&with("x-api-key", "sk-first-one"), ""));
        assert!(!accounts.is_foreign(&with("x-api-key", "sk-of-the-environment"), ""));
        assert!(accounts.is_foreign(&with("x-api-key", "short"), ""));
        let renewed = with("authorization", "Bearer renewed-token-1");
        assert!(accounts.is_foreign(&renewed, ""));
        accounts.learn(br#"{"data":{"access_token":"renewed-token-1"},"text":"sk-other-123"}"#);
        assert!(!accounts.is_foreign(&renewed, ""));
        assert!(accounts.is_foreign(&with("x-api-key", "sk-other-123"), ""));
    }

    #[test]
    fn a_signature_is_on_the_account_of_its_key() {
        let accounts = Accounts::default();
        let signed = |key: &str, signature: &str| {
            let scope = "20260101/eu/bedrock/aws4_request";
            let value = format!("AWS4-HMAC-SHA256 Credential={key}/{scope}, Signature={signature}");
            with("authorization", &value)
        };
        assert!(!accounts.is_foreign(&signed("AKIAOWN", "1"), ""));
        assert!(!accounts.is_foreign(&signed("AKIAOWN", "2"), ""));
        assert!(accounts.is_foreign(&signed("AKIAOTHER", "3"), ""));
    }
}
