//! SSH to a party that the policy names: carried once its server has shown a host key that the policy
//! names too. The key exchange is in the clear (RFC 4253), so the key can be read on its way; until
//! it was, nothing that the client sends after it goes on.
//!
//! That the server also has the secret part of the key is proved to the client, which is the agent's.

use std::io;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use bytes::{Bytes, BytesMut};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// A key exchange takes this long at most.
const EXCHANGE: Duration = Duration::from_secs(120);
/// What either side may say before the host key is known.
const EXCHANGE_BYTES_MAX: usize = 1 << 20;
/// A line before the packets.
const LINE_BYTES_MAX: usize = 8192;
/// A packet of a key exchange.
const PACKET_BYTES_MAX: usize = 256 << 10;

const READ_BYTES: usize = 16 << 10;

const DISCONNECT: u8 = 1;
const DEBUG: u8 = 4;
const KEXINIT: u8 = 20;
/// The answer with the host key in nearly every method; in a group exchange, the group.
const REPLY: u8 = 31;
/// The answer with the host key in a group exchange.
const GROUP_REPLY: u8 = 33;
/// What a client says in the key exchanges that are known.
const CLIENT_SAYS: [u8; 3] = [30, 32, 34];

/// Key exchanges in whose answer the host key comes first.
const EXCHANGES: [&str; 7] = [
    "diffie-hellman-group",
    "ecdh-sha2-",
    "curve25519-",
    "curve448-",
    "sntrup761",
    "mlkem768",
    "mlkem1024",
];
const GROUP_EXCHANGE: &str = "diffie-hellman-group-exchange-";

/// Why a connection must not go on.
#[derive(Debug)]
pub(crate) enum Cut {
    /// For the agent and the log.
    Because(String),
    /// Somebody hung up.
    Ended(io::Error),
}

impl From<io::Error> for Cut {
    fn from(error: io::Error) -> Self {
        Self::Ended(error)
    }
}

/// Carries a key exchange until the server has shown one of these keys (`SHA256:...`), and returns
/// what was shown. What follows can be carried unread. `greeted` tells whether the client has seen
/// the server's version.
pub(crate) async fn check<C, S>(
    client: &mut C,
    server: &mut S,
    keys: &[String],
    greeted: &mut bool,
) -> Result<String, Cut>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    match tokio::time::timeout(EXCHANGE, exchange(client, server, keys, greeted)).await {
        Ok(done) => done,
        Err(_) => Err(Cut::Because(format!(
            "the server showed no host key within {} s",
            EXCHANGE.as_secs()
        ))),
    }
}

async fn exchange<C, S>(
    client: &mut C,
    server: &mut S,
    keys: &[String],
    greeted: &mut bool,
) -> Result<String, Cut>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let (mut from_client, mut from_server) = (Reader::default(), Reader::default());
    let mut offered: (Option<Vec<String>>, Option<Vec<String>>) = (None, None);
    let mut waits = false;
    loop {
        from_client.bytes.reserve(READ_BYTES);
        from_server.bytes.reserve(READ_BYTES);
        tokio::select! {
            biased;
            read = client.read_buf(&mut from_client.bytes), if !waits => {
                if read? == 0 {
                    return Err(Cut::Ended(io::ErrorKind::UnexpectedEof.into()));
                }
                while let Some(unit) = from_client.next().map_err(Cut::Because)? {
                    match unit.kind() {
                        None | Some(DISCONNECT..=DEBUG) => {}
                        Some(KEXINIT) => offered.0 = Some(exchanges(unit.payload())),
                        Some(kind) if CLIENT_SAYS.contains(&kind) => {}
                        // Whatever it is, the server's key comes first.
                        Some(_) => {
                            from_client.put_back(&unit);
                            waits = true;
                            break;
                        }
                    }
                    server.write_all(&unit.bytes).await?;
                }
                server.flush().await?;
            }
            read = server.read_buf(&mut from_server.bytes) => {
                if read? == 0 {
                    return Err(Cut::Ended(io::ErrorKind::UnexpectedEof.into()));
                }
                while let Some(unit) = from_server.next().map_err(Cut::Because)? {
                    let shown = match unit.kind() {
                        None | Some(DISCONNECT..=DEBUG) => None,
                        Some(KEXINIT) => {
                            offered.1 = Some(exchanges(unit.payload()));
                            None
                        }
                        Some(kind) => {
                            let in_group = is_group_exchange(&offered)?;
                            match (kind, in_group) {
                                (REPLY, true) => None,
                                (REPLY, false) | (GROUP_REPLY, true) => Some(shown(unit.payload(), keys)?),
                                _ => return Err(Cut::Because(format!(
                                    "the server sent message {kind} before it showed a host key"
                                ))),
                            }
                        }
                    };
                    client.write_all(&unit.bytes).await?;
                    *greeted = from_server.packets;
                    if let Some(shown) = shown {
                        client.write_all(&from_server.bytes).await?;
                        client.flush().await?;
                        server.write_all(&from_client.bytes).await?;
                        server.flush().await?;
                        return Ok(shown);
                    }
                }
                client.flush().await?;
            }
        }
    }
}

/// Whether the two agree on an exchange in which the group is negotiated, too.
fn is_group_exchange(offered: &(Option<Vec<String>>, Option<Vec<String>>)) -> Result<bool, Cut> {
    let (Some(client), Some(server)) = offered else {
        return Err(Cut::Because(
            "the server went on before both had said what they can".into(),
        ));
    };
    let agreed = client.iter().find(|name| server.contains(name));
    let known = |name: &&String| EXCHANGES.iter().any(|start| name.starts_with(start));
    match agreed.filter(known) {
        Some(name) => Ok(name.starts_with(GROUP_EXCHANGE)),
        None => Err(Cut::Because(format!(
            "the key exchange `{}` is not known here, so the host key cannot be checked",
            agreed.map_or("", String::as_str)
        ))),
    }
}

/// The fingerprint of the key in an answer, if it is one of the policy's.
fn shown(payload: &[u8], keys: &[String]) -> Result<String, Cut> {
    let key = payload.get(1..).and_then(string);
    let (Some(key), kind) = (key, key.and_then(string).unwrap_or_default()) else {
        return Err(Cut::Because("the server's host key cannot be read".into()));
    };
    let digest = STANDARD_NO_PAD.encode(Sha256::digest(key));
    let fingerprint = format!("SHA256:{digest}");
    let kind = String::from_utf8_lossy(kind);
    if keys.contains(&fingerprint) {
        return Ok(format!("{kind} {fingerprint}"));
    }
    let kind: String = kind
        .chars()
        .filter(|c| c.is_ascii_graphic())
        .take(64)
        .collect();
    Err(Cut::Because(format!(
        "the server showed the host key {kind} {fingerprint}, which the policy does not name"
    )))
}

/// The key exchanges that a side offers.
fn exchanges(payload: &[u8]) -> Vec<String> {
    // The message's number and sixteen random bytes come first.
    let names = payload.get(17..).and_then(string).unwrap_or_default();
    String::from_utf8_lossy(names)
        .split(',')
        .map(str::to_string)
        .collect()
}

/// A text with its length before it.
fn string(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    rest.get(..usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

/// Cuts a stream into lines, up to the one with the version, and then packets.
#[derive(Default)]
struct Reader {
    bytes: BytesMut,
    packets: bool,
    passed: usize,
}

struct Unit {
    bytes: Bytes,
    is_packet: bool,
}

impl Unit {
    /// The message's number; `None` for a line.
    fn kind(&self) -> Option<u8> {
        self.is_packet
            .then(|| self.payload().first().copied().unwrap_or_default())
    }

    /// A packet without its lengths and padding.
    fn payload(&self) -> &[u8] {
        let padding = self.bytes.get(4).copied().map_or(0, usize::from);
        let end = self.bytes.len().saturating_sub(padding);
        self.bytes.get(5..end).unwrap_or_default()
    }
}

impl Reader {
    fn next(&mut self) -> Result<Option<Unit>, String> {
        if self.passed + self.bytes.len() > EXCHANGE_BYTES_MAX {
            return Err("the key exchange is too long".into());
        }
        let length = if self.packets {
            let Some(length) = self.bytes.first_chunk::<4>() else {
                return Ok(None);
            };
            let length = usize::try_from(u32::from_be_bytes(*length)).unwrap_or(usize::MAX);
            if !(2..=PACKET_BYTES_MAX).contains(&length) {
                return Err("this is not SSH: a packet says a wrong length".into());
            }
            4 + length
        } else {
            match self.bytes.iter().position(|byte| *byte == b'\n') {
                Some(end) if end < LINE_BYTES_MAX => end + 1,
                None if self.bytes.len() < LINE_BYTES_MAX => return Ok(None),
                _ => return Err("this is not SSH: a line does not end".into()),
            }
        };
        if self.bytes.len() < length {
            return Ok(None);
        }
        let unit = Unit {
            bytes: self.bytes.split_to(length).freeze(),
            is_packet: self.packets,
        };
        self.passed += length;
        if unit.bytes.starts_with(b"SSH-") && !self.packets {
            if !unit.bytes.starts_with(b"SSH-2.0-") && !unit.bytes.starts_with(b"SSH-1.99-") {
                return Err("this is an older SSH than version 2".into());
            }
            self.packets = true;
        }
        Ok(Some(unit))
    }

    fn put_back(&mut self, unit: &Unit) {
        let rest = self.bytes.split();
        self.bytes.extend_from_slice(&unit.bytes);
        self.bytes.extend_from_slice(&rest);
        self.passed = self.passed.saturating_sub(unit.bytes.len());
    }
}

/// A message that ends a connection, which clients show as one line.
pub(crate) fn disconnect(why: &str) -> Vec<u8> {
    let mut payload = vec![DISCONNECT, 0, 0, 0, 1];
    let why: String = why
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let text = why.as_bytes();
    payload.extend_from_slice(&u32::try_from(text.len()).unwrap_or(0).to_be_bytes());
    payload.extend_from_slice(text);
    payload.extend_from_slice(&[0; 4]);
    // Length and padding length count to a multiple of eight, with four bytes of padding at least.
    let mut padding = 8 - (payload.len() + 5) % 8;
    if padding < 4 {
        padding += 8;
    }
    let length = u32::try_from(payload.len() + padding + 1).unwrap_or(0);
    let mut out = length.to_be_bytes().to_vec();
    out.push(u8::try_from(padding).unwrap_or(8));
    out.extend_from_slice(&payload);
    out.extend(std::iter::repeat_n(0, padding));
    out
}

/// What a server says first.
pub(crate) const VERSION: &[u8] = b"SSH-2.0-Kairos\r\n";

/// Reads a key exchange of these bytes, as the channel does where the policy names no key; whether it
/// passed.
pub fn any_exchange(client: &[u8], server: &[u8]) -> bool {
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().build() else {
        return false;
    };
    runtime.block_on(async {
        let mut client = tokio::io::join(client, tokio::io::sink());
        let mut server = tokio::io::join(server, tokio::io::sink());
        exchange(&mut client, &mut server, &[], &mut false)
            .await
            .is_ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_disconnect_has_whole_blocks() {
        for length in 0..40 {
            let packet = disconnect(&"x".repeat(length));
            assert_eq!(packet.len() % 8, 0);
            let said = u32::from_be_bytes(packet[..4].try_into().unwrap()) as usize;
            assert_eq!(said + 4, packet.len());
            assert!(packet[4] >= 4);
        }
    }

    fn packet(payload: &[u8]) -> Vec<u8> {
        let mut out = u32::try_from(payload.len() + 5)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        out.push(4);
        out.extend_from_slice(payload);
        out.extend_from_slice(&[0; 4]);
        out
    }

    fn text(bytes: &[u8]) -> Vec<u8> {
        [
            &u32::try_from(bytes.len()).unwrap().to_be_bytes()[..],
            bytes,
        ]
        .concat()
    }

    fn hello(exchanges: &str) -> Vec<u8> {
        let init = [&[KEXINIT][..], &[9; 16], &text(exchanges.as_bytes())].concat();
        [b"SSH-2.0-x\r\n".to_vec(), packet(&init)].concat()
    }

    fn answer(kind: u8, key: &[u8]) -> Vec<u8> {
        packet(&[&[kind][..], &text(key)].concat())
    }

    /// What arrives at the server and at the client, and the result.
    fn run(
        client: Vec<Vec<u8>>,
        server: Vec<Vec<u8>>,
        keys: &[String],
    ) -> (Vec<u8>, Vec<u8>, Result<String, String>) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (mut client_end, mut ours) = tokio::io::duplex(1 << 20);
            let (mut server_end, mut theirs) = tokio::io::duplex(1 << 20);
            client_end.write_all(&client.concat()).await.unwrap();
            server_end.write_all(&server.concat()).await.unwrap();
            let result = tokio::time::timeout(
                Duration::from_millis(300),
                exchange(&mut ours, &mut theirs, keys, &mut false),
            )
            .await;
            if matches!(result, Ok(Ok(_))) {
                let rest = tokio::io::copy_bidirectional(&mut ours, &mut theirs);
                let _ = tokio::time::timeout(Duration::from_millis(50), rest).await;
            }
            drop((ours, theirs));
            let (mut at_server, mut at_client) = (Vec::new(), Vec::new());
            server_end.read_to_end(&mut at_server).await.unwrap();
            client_end.read_to_end(&mut at_client).await.unwrap();
            let result = match result {
                Err(_) => Err("waits".to_string()),
                Ok(Err(Cut::Because(why))) => Err(why),
                Ok(Err(Cut::Ended(error))) => Err(error.to_string()),
                Ok(Ok(shown)) => Ok(shown),
            };
            (at_server, at_client, result)
        })
    }

    #[test]
    fn the_key_is_found_in_every_exchange_and_nothing_passes_before_it() {
        let key = text(b"ssh-ed25519");
        let named = [format!(
            "SHA256:{}",
            STANDARD_NO_PAD.encode(Sha256::digest(&key))
        )];
        let (init, login) = (packet(&[30, 1, 2]), packet(&[21]));
        for (ours, theirs, kind, before) in [
            ("curve25519-sha256", "curve25519-sha256", REPLY, None),
            (
                "mlkem768x25519-sha256,ext-info-c",
                "ecdh-sha2-nistp256,mlkem768x25519-sha256",
                REPLY,
                None,
            ),
            (
                "diffie-hellman-group-exchange-sha256",
                "diffie-hellman-group-exchange-sha256",
                GROUP_REPLY,
                Some(answer(REPLY, &[1, 2])),
            ),
        ] {
            let client = vec![hello(ours), init.clone(), login.clone()];
            let mut server = vec![b"a banner\r\n".to_vec(), hello(theirs)];
            server.extend(before);
            server.push(answer(kind, &key));
            server.push(packet(&[21]));
            let (at_server, at_client, result) = run(client.clone(), server.clone(), &named);
            assert_eq!(
                result.as_deref().ok(),
                Some(format!("ssh-ed25519 {}", named[0]).as_str()),
                "{ours}: {result:?}"
            );
            assert_eq!((at_server, at_client), (client.concat(), server.concat()));
            // Another key: neither its answer nor what the client says after its part passes.
            let (at_server, at_client, result) = run(client.clone(), server.clone(), &[]);
            assert!(result.unwrap_err().contains("does not name"), "{ours}");
            assert!(!at_client.windows(key.len()).any(|w| w == key), "{ours}");
            assert!(!at_server.ends_with(&login), "{ours}");
        }
    }

    #[test]
    fn what_cannot_be_checked_is_cut() {
        for (client, server, expect) in [
            (
                hello("gss-group14-sha256-x"),
                vec![hello("gss-group14-sha256-x"), answer(REPLY, b"x")],
                "not known here",
            ),
            (
                hello("curve25519-sha256"),
                vec![hello("other"), answer(REPLY, b"x")],
                "not known here",
            ),
            (
                hello("curve25519-sha256"),
                vec![hello("curve25519-sha256"), packet(&[21])],
                "before it showed",
            ),
            (
                hello("curve25519-sha256"),
                vec![hello("curve25519-sha256"), packet(&[REPLY, 0, 0])],
                "cannot be read",
            ),
            (
                hello("curve25519-sha256"),
                vec![b"SSH-1.5-old\r\n".to_vec()],
                "older SSH",
            ),
            (
                hello("curve25519-sha256"),
                vec![vec![b'x'; 9000]],
                "does not end",
            ),
            (
                hello("curve25519-sha256"),
                vec![b"SSH-2.0-x\r\n".to_vec(), vec![0xff; 16]],
                "wrong length",
            ),
        ] {
            let (.., result) = run(vec![client], server, &[]);
            let why = result.unwrap_err();
            assert!(why.contains(expect), "{why}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(client in proptest::collection::vec(any::<u8>(), 0..300), server in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = any_exchange(&client, &[b"SSH-2.0-x\r\n".to_vec(), server].concat());
        }
    }
}
