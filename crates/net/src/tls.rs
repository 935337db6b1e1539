//! Ending the agent's TLS: the leaf is chosen after the ClientHello has named the server.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustls::server::Acceptor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::server::TlsStream;

use crate::accept::{Place, Secured};
use crate::authority::Authority;
use crate::canonical;

/// A handshake takes this long at most.
const HANDSHAKE: Duration = Duration::from_secs(30);

/// Reads the ClientHello, shows a certificate for the name in it (or for where the connection
/// leads), and returns the clear stream with the place as it is known now.
pub(crate) async fn accept<S>(
    authority: &Authority,
    stream: S,
    place: &Place,
) -> io::Result<(TlsStream<S>, Place)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let start = tokio::time::timeout(
        HANDSHAKE,
        LazyConfigAcceptor::new(Acceptor::default(), stream),
    )
    .await??;
    let sni = start.client_hello().server_name().map(str::to_string);
    let mut place = place.clone();
    let shown = match (&sni, &place.target) {
        (Some(name), _) => match canonical::host(name) {
            Ok(host) => host,
            Err(why) => return Err(io::Error::new(io::ErrorKind::InvalidData, why)),
        },
        (None, Some(target)) => target.host.clone(),
        // TLS to our own proxy port: clients that speak HTTPS to their proxy.
        (None, None) => "proxy.kairos.invalid".to_string(),
    };
    place.secured = Some(Secured {
        sni: sni.map(|_| shown.clone()),
    });
    let config = authority.server_config(&shown).map_err(io::Error::other)?;
    let tls = tokio::time::timeout(HANDSHAKE, start.into_stream(Arc::clone(&config))).await??;
    Ok((tls, place))
}
