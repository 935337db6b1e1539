//! Connections that are not HTTP: judged by where they lead, and passed through only when the
//! policy names that for `CONNECT`, or an oracle approves it.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use kernel::{Channel, Class, Effect, Object, Operation, Payload};
use store::Parked;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::accept::{AnyStream, Place};
use crate::ask::{Asked, Settle, ask};
use crate::net::Shared;
use crate::upstream::Offer;

/// Ends a connection at once, with a reset.
pub(crate) fn reset(stream: TcpStream) -> io::Result<()> {
    stream.set_zero_linger()
}

/// Judges and carries a connection that is not HTTP.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut stream: AnyStream,
    place: Place,
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
    let parked = Parked {
        note: r#"{"kind":"connection"}"#.into(),
        blob: None,
    };
    match ask(&shared, effect, parked, || Ok(())).await {
        Asked::Go(lease, settle) => {
            drop(lease);
            carry(&shared, &mut stream, &place, settle).await;
            Ok(())
        }
        Asked::No(notice) => refuse(stream, target.port, &notice.text).await,
        Asked::Undecided(why) => refuse(stream, target.port, why).await,
    }
}

/// Carries bytes both ways until either side ends.
async fn carry(shared: &Shared, stream: &mut AnyStream, place: &Place, mut settle: Settle) {
    let Some(target) = &place.target else { return };
    let secure = place.secured.is_some();
    let connected = shared
        .upstream
        .routes
        .connect(&target.host, target.port, secure, Offer::Http1)
        .await;
    let mut upstream = match connected {
        Ok(upstream) => upstream,
        Err(error) => return settle.tell(Err(error.0)),
    };
    settle.answered("connected");
    settle.tell(
        match tokio::io::copy_bidirectional(stream, &mut upstream).await {
            Ok((out, back)) => Ok(format!("{out} bytes out, {back} bytes back")),
            Err(error) => Err(format!("the connection broke: {error}")),
        },
    );
}

/// Refuses in a way the client understands, where there is one.
async fn refuse(mut stream: AnyStream, port: u16, why: &str) -> io::Result<()> {
    if port == 22 {
        stream.write_all(&ssh_refusal(why)).await?;
    }
    stream.shutdown().await
}

/// An SSH identification and a disconnect message, which clients show as one line.
fn ssh_refusal(why: &str) -> Vec<u8> {
    let mut payload = vec![1, 0, 0, 0, 1];
    let text = why.as_bytes();
    payload.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
    payload.extend_from_slice(text);
    payload.extend_from_slice(&[0; 4]);
    // Length and padding length count to a multiple of eight, with four bytes of padding at least.
    let mut padding = 8 - (payload.len() + 5) % 8;
    if padding < 4 {
        padding += 8;
    }
    let mut out = b"SSH-2.0-Kairos\r\n".to_vec();
    out.extend_from_slice(
        &u32::try_from(payload.len() + padding + 1)
            .unwrap_or(0)
            .to_be_bytes(),
    );
    out.push(u8::try_from(padding).unwrap_or(8));
    out.extend_from_slice(&payload);
    out.extend(std::iter::repeat_n(0, padding));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ssh_packets_have_whole_blocks() {
        for length in 0..40 {
            let packet = ssh_refusal(&"x".repeat(length));
            let packet = packet.strip_prefix(b"SSH-2.0-Kairos\r\n").unwrap();
            assert_eq!(packet.len() % 8, 0);
            let said = u32::from_be_bytes(packet[..4].try_into().unwrap()) as usize;
            assert_eq!(said + 4, packet.len());
            assert!(packet[4] >= 4);
        }
    }
}
