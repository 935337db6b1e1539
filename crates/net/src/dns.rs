//! Name look-ups, answered here over UDP and TCP. Every name has a synthetic address; no query
//! leaves, whatever its type, length or transport, so a name is no way to carry anything out.

use std::io::{self, IoSliceMut};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, ResponseCode};
use hickory_proto::rr::rdata::{A, AAAA, PTR, SOA};
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use quinn_udp::{RecvMeta, Transmit, UdpSockRef, UdpSocketState};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::UdpSocket;

use crate::canonical;
use crate::names::{self, Names};

const TTL_S: u32 = 60;
/// A client that is silent for so long on a TCP connection has gone.
const TCP_IDLE: Duration = Duration::from_secs(30);

/// Answers one message. `None` when it is no query at all and deserves no answer.
pub(crate) fn answer(names: &Names, query: &[u8]) -> Option<Vec<u8>> {
    let query = match Message::from_vec(query) {
        Ok(query) => query,
        Err(_) => {
            // What has no readable header gets no answer; what has one is told it is malformed.
            let id = u16::from_be_bytes([*query.first()?, *query.get(1)?]);
            let is_response = query.get(2)? & 0x80 != 0;
            return (!is_response)
                .then(|| Message::error_msg(id, OpCode::Query, ResponseCode::FormErr))
                .and_then(|m| m.to_vec().ok());
        }
    };
    if query.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut reply = Message::response(query.metadata.id, query.metadata.op_code);
    reply.metadata.recursion_desired = query.metadata.recursion_desired;
    reply.metadata.recursion_available = true;
    if query.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(1232);
        reply.set_edns(edns);
    }
    reply.add_queries(query.queries.iter().cloned());
    let code = match (query.metadata.op_code, query.queries.as_slice()) {
        (OpCode::Query, [one]) if one.query_class == DNSClass::IN => {
            resolve(names, one.name(), one.query_type, &mut reply)
        }
        (OpCode::Query, [_]) => ResponseCode::Refused,
        (OpCode::Query, _) => ResponseCode::FormErr,
        _ => ResponseCode::NotImp,
    };
    reply.metadata.response_code = code;
    let empty =
        matches!(code, ResponseCode::NoError | ResponseCode::NXDomain) && reply.answers.is_empty();
    if let (true, [one]) = (empty, query.queries.as_slice()) {
        // Says for how long that is so; resolvers that get none ask again at once (RFC 2308).
        let zone = zone_of(one.name());
        reply.add_authority(Record::from_rdata(zone, TTL_S, RData::SOA(soa())));
    }
    reply.to_vec().ok()
}

/// As the channel answers a session's first message.
pub fn answer_once(query: &[u8]) -> Option<Vec<u8>> {
    answer(&Names::default(), query)
}

/// Adds what is known to the reply.
fn resolve(names: &Names, asked: &Name, kind: RecordType, reply: &mut Message) -> ResponseCode {
    let text = asked.to_utf8();
    let Ok(name) = canonical::host(&text) else {
        return ResponseCode::NXDomain;
    };
    if let Some(address) = reverse(&name) {
        return match names
            .name(address)
            .and_then(|n| Name::from_utf8(format!("{n}.")).ok())
        {
            Some(known) if kind == RecordType::PTR => {
                reply.add_answer(Record::from_rdata(
                    asked.clone(),
                    TTL_S,
                    RData::PTR(PTR(known)),
                ));
                ResponseCode::NoError
            }
            Some(_) => ResponseCode::NoError,
            None => ResponseCode::NXDomain,
        };
    }
    if is_nobody(&name) {
        return ResponseCode::NXDomain;
    }
    let local = name == "localhost" || name.ends_with(".localhost");
    let number = if local { 0 } else { names.number(&name) };
    let (v4, v6) = if local {
        (Ipv4Addr::LOCALHOST, Ipv6Addr::LOCALHOST)
    } else {
        (names::v4(number), names::v6(number))
    };
    if matches!(kind, RecordType::A | RecordType::ANY) {
        reply.add_answer(Record::from_rdata(asked.clone(), TTL_S, RData::A(A(v4))));
    }
    if matches!(kind, RecordType::AAAA | RecordType::ANY) {
        reply.add_answer(Record::from_rdata(
            asked.clone(),
            TTL_S,
            RData::AAAA(AAAA(v6)),
        ));
    }
    // Who asks for the beginning of a zone takes where its names end.
    if kind == RecordType::SOA && *asked == zone_of(asked) {
        let soa = RData::SOA(soa());
        reply.add_answer(Record::from_rdata(asked.clone(), TTL_S, soa));
    }
    // Everything else exists and is empty: no HTTPS or SVCB record, so no ECH and no HTTP/3; no
    // TXT, SRV, MX.
    ResponseCode::NoError
}

/// The zone that a name is in, as far as anybody inside can tell: its last two labels.
fn zone_of(name: &Name) -> Name {
    let labels = usize::from(name.num_labels());
    name.trim_to(labels.min(2))
}

/// The beginning of a zone of ours.
fn soa() -> SOA {
    let nobody = || Name::from_ascii("nobody.invalid.").unwrap_or_else(|_| Name::root());
    let seconds = i32::try_from(TTL_S).unwrap_or(i32::MAX);
    SOA::new(nobody(), nobody(), 1, seconds, seconds, seconds, TTL_S)
}

/// Names that stand for nobody: addresses, what never resolves, and the names by which clients
/// ask whether they may resolve elsewhere.
fn is_nobody(name: &str) -> bool {
    let last = name.rsplit('.').next().unwrap_or_default();
    name.parse::<std::net::IpAddr>().is_ok()
        || matches!(last, "invalid" | "local" | "onion" | "arpa")
        || matches!(
            name,
            "use-application-dns.net" | "mask.icloud.com" | "mask-h2.icloud.com"
        )
}

/// The address that a reverse name asks for.
fn reverse(name: &str) -> Option<std::net::IpAddr> {
    if let Some(labels) = name.strip_suffix(".in-addr.arpa") {
        let mut octets: Vec<u8> = labels
            .split('.')
            .map(|l| l.parse().ok())
            .collect::<Option<_>>()?;
        octets.reverse();
        let octets: [u8; 4] = octets.try_into().ok()?;
        return Some(Ipv4Addr::from(octets).into());
    }
    let labels = name.strip_suffix(".ip6.arpa")?;
    let nibbles: Vec<u8> = labels
        .split('.')
        .map(|l| {
            (l.len() == 1)
                .then(|| u8::from_str_radix(l, 16).ok())
                .flatten()
        })
        .collect::<Option<_>>()?;
    if nibbles.len() != 32 {
        return None;
    }
    let bits = nibbles
        .iter()
        .rev()
        .fold(0u128, |bits, nibble| (bits << 4) | u128::from(*nibble));
    Some(Ipv6Addr::from(bits).into())
}

/// Serves a port-53 datagram socket: the answer comes from the address that was asked.
pub(crate) async fn serve_udp(names: Arc<Names>, socket: std::net::UdpSocket) -> io::Result<()> {
    socket.set_nonblocking(true)?;
    let socket = UdpSocket::from_std(socket)?;
    let state = UdpSocketState::new(UdpSockRef::from(&socket))?;
    let mut buffer = vec![0u8; 65_536];
    loop {
        let mut meta = [RecvMeta::default()];
        let received = socket
            .async_io(Interest::READABLE, || {
                let mut slices = [IoSliceMut::new(&mut buffer)];
                state.recv(UdpSockRef::from(&socket), &mut slices, &mut meta)
            })
            .await;
        if let Err(error) = received {
            tracing::debug!(%error, "a look-up could not be read");
            tokio::time::sleep(Duration::from_millis(5)).await;
            continue;
        }
        let [meta] = meta;
        let stride = meta.stride.max(1);
        for query in buffer.get(..meta.len).unwrap_or_default().chunks(stride) {
            let Some(mut reply) = answer(&names, query) else {
                continue;
            };
            if reply.len() > 1232 {
                reply = truncated(&reply);
            }
            let transmit = Transmit {
                destination: meta.addr,
                ecn: None,
                contents: &reply,
                segment_size: None,
                src_ip: meta.dst_ip,
            };
            let sent = socket
                .async_io(Interest::WRITABLE, || {
                    state.try_send(UdpSockRef::from(&socket), &transmit)
                })
                .await;
            if let Err(error) = sent {
                tracing::debug!(%error, "an answer to a look-up could not be sent");
            }
        }
    }
}

fn truncated(reply: &[u8]) -> Vec<u8> {
    Message::from_vec(reply)
        .ok()
        .and_then(|m| m.truncate().to_vec().ok())
        .unwrap_or_default()
}

/// Serves look-ups on a TCP connection to port 53 of any address.
pub(crate) async fn serve_tcp<S: AsyncRead + AsyncWrite + Unpin>(
    names: &Names,
    mut stream: S,
) -> io::Result<()> {
    loop {
        let length = match tokio::time::timeout(TCP_IDLE, stream.read_u16()).await {
            Ok(Ok(length)) => usize::from(length),
            _ => return Ok(()),
        };
        let mut query = vec![0; length];
        tokio::time::timeout(TCP_IDLE, stream.read_exact(&mut query)).await??;
        let Some(reply) = answer(names, &query) else {
            return Ok(());
        };
        let length = u16::try_from(reply.len()).map_err(io::Error::other)?;
        let mut framed = length.to_be_bytes().to_vec();
        framed.extend_from_slice(&reply);
        stream.write_all(&framed).await?;
        stream.flush().await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::Query;
    use proptest::prelude::*;

    fn ask(names: &Names, name: &str, kind: RecordType) -> Message {
        let mut query = Message::query();
        query.add_query(Query::query(Name::from_ascii(name).unwrap(), kind));
        let reply = answer(names, &query.to_vec().unwrap()).unwrap();
        Message::from_vec(&reply).unwrap()
    }

    #[test]
    fn every_name_has_an_address_that_leads_back() {
        let names = Names::default();
        let reply = ask(&names, "Api.Example.ORG.", RecordType::A);
        assert_eq!(reply.metadata.response_code, ResponseCode::NoError);
        let RData::A(A(address)) = reply.answers[0].data.clone() else {
            panic!("{reply:?}")
        };
        assert_eq!(
            names.name(address.into()).as_deref(),
            Some("api.example.org")
        );
        let reply = ask(&names, "api.example.org.", RecordType::AAAA);
        let RData::AAAA(AAAA(address)) = reply.answers[0].data.clone() else {
            panic!("{reply:?}")
        };
        assert_eq!(
            names.name(address.into()).as_deref(),
            Some("api.example.org")
        );
    }

    #[test]
    fn what_is_no_address_is_empty_or_nothing() {
        let names = Names::default();
        for kind in [
            RecordType::HTTPS,
            RecordType::SVCB,
            RecordType::TXT,
            RecordType::SRV,
            RecordType::MX,
            RecordType::NULL,
        ] {
            let reply = ask(&names, "a.example.", kind);
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NoError,
                "{kind}"
            );
            assert!(reply.answers.is_empty(), "{kind}");
        }
        for nobody in [
            "a.invalid.",
            "127.0.0.1.",
            "printer.local.",
            "use-application-dns.net.",
            "_dns.resolver.arpa.",
        ] {
            let reply = ask(&names, nobody, RecordType::A);
            assert_eq!(
                reply.metadata.response_code,
                ResponseCode::NXDomain,
                "{nobody}"
            );
        }
        let reply = ask(&names, "localhost.", RecordType::A);
        assert_eq!(reply.answers[0].data, RData::A(A(Ipv4Addr::LOCALHOST)));
    }

    /// What is asked, how it is answered, how many answers, and whether it is said for how long.
    #[test]
    fn every_type_has_a_sensible_answer() {
        use ResponseCode::{NXDomain, NoError};
        let names = Names::default();
        names.number("a.example");
        let known = names::v4(names.number("a.example")).octets();
        let [a, b, c, d] = known;
        let reverse = format!("{d}.{c}.{b}.{a}.in-addr.arpa.");
        for (name, kind, code, answers) in [
            ("a.example.", RecordType::A, NoError, 1),
            ("a.example.", RecordType::AAAA, NoError, 1),
            ("a.example.", RecordType::ANY, NoError, 2),
            ("a.example.", RecordType::SOA, NoError, 1),
            ("www.a.example.", RecordType::SOA, NoError, 0),
            ("_sip._tcp.a.example.", RecordType::SRV, NoError, 0),
            ("a.example.", RecordType::TXT, NoError, 0),
            ("_dmarc.a.example.", RecordType::TXT, NoError, 0),
            ("a.example.", RecordType::HTTPS, NoError, 0),
            ("_8443._https.a.example.", RecordType::SVCB, NoError, 0),
            ("a.example.", RecordType::NS, NoError, 0),
            ("a.example.", RecordType::CNAME, NoError, 0),
            ("a.example.", RecordType::CAA, NoError, 0),
            ("a.example.", RecordType::DNSKEY, NoError, 0),
            (&reverse, RecordType::PTR, NoError, 1),
            (&reverse, RecordType::TXT, NoError, 0),
            ("1.2.0.192.in-addr.arpa.", RecordType::PTR, NXDomain, 0),
            ("a.invalid.", RecordType::AAAA, NXDomain, 0),
        ] {
            let reply = ask(&names, name, kind);
            assert_eq!(reply.metadata.response_code, code, "{name} {kind}");
            assert_eq!(reply.answers.len(), answers, "{name} {kind}");
            let soa = reply
                .authorities
                .iter()
                .any(|record| record.record_type() == RecordType::SOA);
            assert_eq!(soa, answers == 0, "{name} {kind}: {reply:?}");
        }
        // An answer of somebody's who speaks TXT to carry data has nothing in it that was asked.
        let carried = ask(&names, "s3cret.attacker.test.", RecordType::TXT);
        assert_eq!(carried.authorities[0].name.to_ascii(), "attacker.test.");
    }

    #[test]
    fn reverse_names() {
        let names = Names::default();
        let number = names.number("a.example");
        let [a, b, c, d] = names::v4(number).octets();
        let reply = ask(
            &names,
            &format!("{d}.{c}.{b}.{a}.in-addr.arpa."),
            RecordType::PTR,
        );
        assert_eq!(reply.answers[0].data.to_string(), "a.example.");
        let reply = ask(&names, "1.2.0.192.in-addr.arpa.", RecordType::PTR);
        assert_eq!(reply.metadata.response_code, ResponseCode::NXDomain);
    }

    #[test]
    fn a_secret_in_sixty_labels_gets_an_answer_and_nothing_else() {
        let names = Names::default();
        let name = format!("{}.attacker.test.", vec!["s3"; 60].join("."));
        for kind in [RecordType::A, RecordType::TXT, RecordType::NULL] {
            assert_eq!(
                ask(&names, &name, kind).metadata.response_code,
                ResponseCode::NoError
            );
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            let _ = answer(&Names::default(), &bytes);
        }
    }
}
