//! Services of the agent's own that the principal wants to reach from outside: each connection to a
//! port of this host's loopback is joined to one inside. What comes back goes to who published the
//! port, and to nobody else.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Semaphore;

use crate::accept;

/// Makes a socket of the agent's network, of IPv6 or of IPv4.
pub type Door = Arc<dyn Fn(bool) -> io::Result<OwnedFd> + Send + Sync>;

/// Connections to one port at a time; more wait.
const CONNECTIONS_MAX: usize = 256;

/// Serves a published port until the runtime ends.
pub(crate) async fn serve(listener: TcpListener, port: u16, door: Door) {
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    accept::each(listener, room, move |stream| {
        join(stream, port, Arc::clone(&door))
    })
    .await;
}

async fn join(mut outside: TcpStream, port: u16, door: Door) -> io::Result<()> {
    // Failures only cost latency.
    let _ = outside.set_nodelay(true);
    let mut inside = match connect(&door, SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
        Ok(inside) => inside,
        // A service may listen on one family only.
        Err(_) => connect(&door, SocketAddr::from((Ipv6Addr::LOCALHOST, port))).await?,
    };
    let _ = inside.set_nodelay(true);
    tokio::io::copy_bidirectional(&mut outside, &mut inside)
        .await
        .map(|_| ())
}

async fn connect(door: &Door, to: SocketAddr) -> io::Result<TcpStream> {
    let door = Arc::clone(door);
    let socket = tokio::task::spawn_blocking(move || door(to.is_ipv6()))
        .await
        .map_err(io::Error::other)??;
    TcpSocket::from_std_stream(std::net::TcpStream::from(socket))
        .connect(to)
        .await
}
