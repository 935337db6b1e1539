//! One message on a stream that is open already: judged on its own, by the policy as it is then.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use kernel::policy::OTHER_ACCOUNT;
use kernel::{Channel, Class, Digest, Effect, Object, Operation, Payload};
use store::Parked;

use crate::account;
use crate::ask::{Asked, Settle, ask};
use crate::net::Shared;
use crate::target::Target;
use crate::unpack;

/// What kind of message it is.
pub(crate) struct Kind<'a> {
    /// What it is for whoever names parties.
    pub(crate) operation: Operation,
    /// `ws`, `wss`, `http` or `https`.
    pub(crate) scheme: &'static str,
    /// What it is called: `text`, `binary`, `grpc`.
    pub(crate) word: &'a str,
    /// Whether the stream was opened on an account that is not the principal's.
    pub(crate) foreign: bool,
}

/// Leave to send it, once, or what the agent is told instead.
pub(crate) async fn judged(
    shared: &Arc<Shared>,
    target: &Target,
    kind: Kind<'_>,
    bytes: &Bytes,
) -> Result<Settle, String> {
    let scanner = shared.session.scanner();
    let look = || unpack::scan_bytes(&scanner, bytes);
    let carries = if bytes.len() > 64 << 10 {
        tokio::task::block_in_place(look)?
    } else {
        look()?
    };
    let mut fields = BTreeMap::from([("frame".to_string(), kind.word.to_string())]);
    if kind.foreign {
        fields.insert(OTHER_ACCOUNT.to_string(), account::FOREIGN.to_string());
    }
    let effect = Effect {
        channel: Channel::Net,
        operation: kind.operation,
        object: Object::Party {
            scheme: kind.scheme.into(),
            host: target.host.clone(),
            port: target.port,
            path: target.path.clone(),
        },
        class: Class::Blocking,
        gated: Vec::new(),
        arguments: Vec::new(),
        carries,
        payload: Payload {
            digest: Digest::of(bytes),
            bytes: bytes.len() as u64,
        },
        base: None,
        saw: Vec::new(),
        fields,
        about: format!("{} bytes of {}", bytes.len(), kind.word),
    };
    let parked = Parked {
        note: r#"{"kind":"message"}"#.into(),
        blob: Some(effect.payload.digest.hex()),
    };
    let keep = || shared.session.blobs().put(bytes).map(|_| ());
    match ask(shared, effect, parked, keep).await {
        Asked::Go(lease, settle) => {
            // Spent here: there is no second try with it.
            drop(lease);
            Ok(settle)
        }
        Asked::No(notice) => Err(notice.text),
        Asked::Undecided(why) => Err(why.to_string()),
    }
}
