//! Connections that are not HTTP: judged by where they lead, and passed through only when the
//! policy names that for `CONNECT`, or an oracle approves it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use kernel::{Channel, Class, Effect, Object, Operation, Payload};
use store::Parked;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional_with_sizes};
use tokio::net::TcpStream;

use crate::accept::{AnyStream, Endpoint, Place};
use crate::ask::{Asked, Settle, ask};
use crate::net::Shared;
use crate::ssh::{self, Cut};
use crate::upstream::Offer;

/// Read at once on the way through.
const PIECE_BYTES: usize = 64 << 10;

/// Ends a connection at once, with a reset.
pub(crate) fn reset(stream: TcpStream) -> io::Result<()> {
    stream.set_zero_linger()
}

/// Judges and carries a connection that is not HTTP.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut stream: AnyStream,
    place: Place,
    ssh: bool,
) -> io::Result<()> {
    let Some(target) = place.target.clone() else {
        let uri = ::http::Uri::default();
        shared.contradiction(
            &place,
            "CONNECT",
            &uri,
            "it is not HTTP, which is what the proxy port speaks",
        );
        return stream.shutdown().await;
    };
    let effect = Effect {
        channel: Channel::Net,
        operation: Operation::Connect,
        object: Object::Party {
            scheme: "tcp".into(),
            host: target.host.clone(),
            port: target.port,
            path: String::new(),
        },
        class: Class::Blocking,
        gated: Vec::new(),
        arguments: Vec::new(),
        carries: shared.session.scanner().scan_host(&target.host),
        payload: Payload::default(),
        base: None,
        saw: Vec::new(),
        fields: BTreeMap::new(),
        about: "a connection whose content is not looked into".into(),
    };
    let mut keys = Vec::new();
    let mut why_not = place.crowded.clone();
    if ssh && why_not.is_none() {
        match host_keys(&shared, &target) {
            Ok(named) => keys = named,
            Err(why) => why_not = Some(why),
        }
    }
    if let Some(why) = why_not {
        let notice = shared.refuse(effect, &why);
        let text = notice.map_or(why, |notice| notice.text);
        return refuse(stream, ssh, &text).await;
    }
    let parked = Parked {
        note: r#"{"kind":"connection"}"#.into(),
        blob: None,
    };
    match ask(&shared, effect, parked, || Ok(())).await {
        Asked::Go(lease, settle) => {
            drop(lease);
            let keys = ssh.then_some(keys.as_slice());
            match carry(&shared, &mut stream, &place, keys, settle).await {
                Ok(()) => Ok(()),
                Err((greeted, why)) => goodbye(stream, ssh.then_some(greeted), &why).await,
            }
        }
        Asked::No(notice) => refuse(stream, ssh, &notice.text).await,
        Asked::Undecided(why) => refuse(stream, ssh, why).await,
    }
}

/// The host keys that the policy names for a party, without which there is no SSH to it.
fn host_keys(shared: &Shared, target: &Endpoint) -> Result<Vec<String>, String> {
    let policy = shared.session.policy();
    let rule = policy
        .party(&target.host, target.port)
        .and_then(|party| shared.limiter.rule(party))
        .filter(|rule| !rule.host_keys.is_empty());
    rule.map(|rule| rule.host_keys.clone()).ok_or_else(|| {
        format!(
            "SSH needs a party with `hosts = [\"{}\"]`, `allow = [\"CONNECT\"]` and its server's `host_keys` in the policy",
            target.host
        )
    })
}

/// Carries bytes both ways until either side ends; in SSH only once the server has shown one of
/// these host keys. What the agent has to be told comes back, with whether the server had spoken.
async fn carry(
    shared: &Shared,
    stream: &mut AnyStream,
    place: &Place,
    keys: Option<&[String]>,
    mut settle: Settle,
) -> Result<(), (bool, String)> {
    let Some(target) = &place.target else {
        return Ok(());
    };
    let secure = place.secured.is_some();
    let connected = shared
        .upstream
        .routes
        .connect(&target.host, target.port, secure, Offer::Http1)
        .await;
    let mut upstream = match connected {
        Ok(upstream) => upstream,
        Err(error) => {
            settle.tell(Err(error.0.clone()));
            return Err((
                false,
                format!("[Kairos] It was allowed but failed: {error}."),
            ));
        }
    };
    let mut shown = String::new();
    if let Some(keys) = keys {
        let mut greeted = false;
        match ssh::check(stream, &mut upstream, keys, &mut greeted).await {
            Ok(key) => shown = format!(", host key {key}"),
            Err(Cut::Because(why)) => {
                settle.tell(Err(format!("cut off: {why}")));
                return Err((
                    greeted,
                    format!("[Kairos] The connection was cut off: {why}."),
                ));
            }
            Err(Cut::Ended(error)) => {
                settle.tell(Err(format!("the connection broke: {error}")));
                return Ok(());
            }
        }
    }
    settle.answered("connected");
    settle.tell(
        match copy_bidirectional_with_sizes(stream, &mut upstream, PIECE_BYTES, PIECE_BYTES).await {
            Ok((out, back)) => Ok(format!("{out} bytes out, {back} bytes back{shown}")),
            Err(error) => Err(format!("the connection broke: {error}{shown}")),
        },
    );
    Ok(())
}

/// Refuses in a way the client understands, where there is one.
async fn refuse(stream: AnyStream, ssh: bool, why: &str) -> io::Result<()> {
    goodbye(stream, ssh.then_some(false), why).await
}

/// Ends a connection with a reason, in SSH (`greeted`: the client has seen a server's version).
async fn goodbye(mut stream: AnyStream, greeted: Option<bool>, why: &str) -> io::Result<()> {
    match greeted {
        Some(greeted) => {
            if !greeted {
                stream.write_all(ssh::VERSION).await?;
            }
            stream.write_all(&ssh::disconnect(why)).await?;
        }
        None => return stream.shutdown().await,
    }
    stream.shutdown().await?;
    // What the client has sent meanwhile is read, since its arrival at a closed socket would take
    // the reason back.
    let mut rest = [0; 4096];
    let drained = async { while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {} };
    // Who goes on talking is not waited for.
    let _ = tokio::time::timeout(GOODBYE, drained).await;
    Ok(())
}

/// So long a refused client may take to hang up.
const GOODBYE: Duration = Duration::from_secs(5);
