//! SOCKS5 on our own proxy port: a connection through it is mediated like any other, by its
//! final target. Names are resolved here; nothing is reached before it was judged.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::accept::{self, AnyStream, Place};
use crate::canonical;
use crate::net::Shared;

const VERSION: u8 = 5;
const NO_AUTHENTICATION: u8 = 0;
const USER_AND_PASSWORD: u8 = 2;
const NOTHING_ACCEPTABLE: u8 = 0xff;
const CONNECT: u8 = 1;

/// Answers, by their number.
const SUCCEEDED: u8 = 0;
const NOT_ALLOWED: u8 = 2;
const COMMAND_NOT_SUPPORTED: u8 = 7;
const ADDRESS_NOT_SUPPORTED: u8 = 8;

/// Speaks SOCKS5 until the target is known, and then serves what follows.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    mut stream: AnyStream,
    place: Place,
) -> io::Result<()> {
    let [version, count] = read(&mut stream).await?;
    let mut methods = vec![0; usize::from(count)];
    stream.read_exact(&mut methods).await?;
    let method = if version != VERSION {
        NOTHING_ACCEPTABLE
    } else if methods.contains(&NO_AUTHENTICATION) {
        NO_AUTHENTICATION
    } else if methods.contains(&USER_AND_PASSWORD) {
        USER_AND_PASSWORD
    } else {
        NOTHING_ACCEPTABLE
    };
    stream.write_all(&[VERSION, method]).await?;
    match method {
        NOTHING_ACCEPTABLE => return stream.shutdown().await,
        USER_AND_PASSWORD => {
            // Whoever is inside may ask; what counts is what for.
            let [_, user] = read(&mut stream).await?;
            let mut rest = vec![0; usize::from(user) + 1];
            stream.read_exact(&mut rest).await?;
            let mut password = vec![0; usize::from(rest.last().copied().unwrap_or(0))];
            stream.read_exact(&mut password).await?;
            stream.write_all(&[1, 0]).await?;
        }
        _ => {}
    }
    let [_, command, _, kind] = read(&mut stream).await?;
    let host = match kind {
        1 => canonical::address_text(IpAddr::V4(Ipv4Addr::from(read::<4>(&mut stream).await?))),
        4 => canonical::address_text(IpAddr::V6(Ipv6Addr::from(read::<16>(&mut stream).await?))),
        3 => {
            let [length] = read(&mut stream).await?;
            let mut name = vec![0; usize::from(length)];
            stream.read_exact(&mut name).await?;
            String::from_utf8_lossy(&name).into_owned()
        }
        _ => return answer(&mut stream, ADDRESS_NOT_SUPPORTED).await,
    };
    let port = u16::from_be_bytes(read(&mut stream).await?);
    if command != CONNECT {
        return answer(&mut stream, COMMAND_NOT_SUPPORTED).await;
    }
    match accept::inner(&shared, &place, &host, port) {
        Ok(inner) => {
            stream.write_all(&reply(SUCCEEDED)).await?;
            accept::serve_boxed(shared, stream, inner).await
        }
        Err(why) => {
            shared.contradiction(&place, "CONNECT", &::http::Uri::default(), &why.0);
            answer(&mut stream, NOT_ALLOWED).await
        }
    }
}

async fn read<const N: usize>(stream: &mut AnyStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

async fn answer(stream: &mut AnyStream, code: u8) -> io::Result<()> {
    stream.write_all(&reply(code)).await?;
    stream.shutdown().await
}

/// A reply that names no bound address.
fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
