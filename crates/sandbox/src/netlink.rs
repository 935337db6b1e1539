//! Just enough netlink: messages built as bytes, sent, and their acknowledgements read.

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType, netlink,
};

/// A netlink socket for one protocol.
pub(crate) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

/// One message: header, fixed part, attributes.
pub(crate) struct Message {
    kind: u16,
    flags: u16,
    body: Vec<u8>,
}

impl Message {
    pub(crate) fn new(kind: u16, flags: u16, fixed: &[u8]) -> Self {
        Self {
            kind,
            flags: flags | NLM_F_REQUEST,
            body: fixed.to_vec(),
        }
    }

    pub(crate) fn with(mut self, attribute: Attribute) -> Self {
        attribute.write(&mut self.body);
        self
    }
}

/// A type-length-value attribute.
#[derive(Clone)]
pub(crate) struct Attribute {
    kind: u16,
    value: Vec<u8>,
}

impl Attribute {
    pub(crate) fn bytes(kind: u16, value: &[u8]) -> Self {
        Self {
            kind,
            value: value.to_vec(),
        }
    }

    pub(crate) fn text(kind: u16, value: &str) -> Self {
        let mut value = value.as_bytes().to_vec();
        value.push(0);
        Self { kind, value }
    }

    /// In network byte order, as netfilter wants its numbers.
    pub(crate) fn be32(kind: u16, value: u32) -> Self {
        Self::bytes(kind, &value.to_be_bytes())
    }

    pub(crate) fn nest(kind: u16, inner: &[Self]) -> Self {
        let mut value = Vec::new();
        for attribute in inner {
            attribute.write(&mut value);
        }
        Self {
            kind: kind | NLA_F_NESTED,
            value,
        }
    }

    fn write(&self, to: &mut Vec<u8>) {
        let length = u16::try_from(self.value.len() + 4).unwrap_or(u16::MAX);
        to.extend(length.to_ne_bytes());
        to.extend(self.kind.to_ne_bytes());
        to.extend(&self.value);
        to.resize(to.len().next_multiple_of(4), 0);
    }
}

impl Netlink {
    /// `None` is the protocol for links, addresses and routes, whose number is zero.
    pub(crate) fn open(protocol: Option<Protocol>) -> io::Result<Self> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            protocol,
        )?;
        rustix::net::bind(&socket, &netlink::SocketAddrNetlink::new(0, 0))?;
        Ok(Self {
            socket,
            sequence: 1,
        })
    }

    /// Sends the messages as one datagram and waits until the kernel has answered for each that
    /// asks for an acknowledgement; the first error ends it.
    pub(crate) fn transact(&mut self, messages: &[Message]) -> io::Result<()> {
        let mut datagram = Vec::new();
        let mut expected = 0;
        for message in messages {
            self.sequence += 1;
            expected += usize::from(message.flags & NLM_F_ACK != 0);
            let length = u32::try_from(message.body.len() + HEADER_BYTES).unwrap_or(u32::MAX);
            datagram.extend(length.to_ne_bytes());
            datagram.extend(message.kind.to_ne_bytes());
            datagram.extend(message.flags.to_ne_bytes());
            datagram.extend(self.sequence.to_ne_bytes());
            datagram.extend(0u32.to_ne_bytes());
            datagram.extend(&message.body);
            datagram.resize(datagram.len().next_multiple_of(4), 0);
        }
        rustix::net::send(&self.socket, &datagram, SendFlags::empty())?;
        let mut buffer = vec![0; 64 * 1024];
        while expected > 0 {
            let (length, _) = rustix::net::recv(&self.socket, &mut buffer, RecvFlags::empty())?;
            expected -= acknowledged(buffer.get(..length).unwrap_or_default())?.min(expected);
        }
        Ok(())
    }
}

pub(crate) const NLM_F_REQUEST: u16 = 0x1;
pub(crate) const NLM_F_ACK: u16 = 0x4;
pub(crate) const NLM_F_EXCL: u16 = 0x200;
pub(crate) const NLM_F_CREATE: u16 = 0x400;
pub(crate) const NLM_F_APPEND: u16 = 0x800;

const NLA_F_NESTED: u16 = 0x8000;
const NLMSG_ERROR: u16 = 2;
const HEADER_BYTES: usize = 16;

/// Counts the positive acknowledgements in a datagram.
fn acknowledged(mut datagram: &[u8]) -> io::Result<usize> {
    let mut count = 0;
    while let Some(header) = datagram.first_chunk::<HEADER_BYTES>() {
        let [l0, l1, l2, l3, k0, k1, ..] = *header;
        let length = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        if u16::from_ne_bytes([k0, k1]) == NLMSG_ERROR {
            let code = datagram
                .get(HEADER_BYTES..)
                .and_then(|rest| rest.first_chunk::<4>());
            match code.map(|code| i32::from_ne_bytes(*code)) {
                Some(0) => count += 1,
                Some(code) => return Err(io::Error::from_raw_os_error(code.saturating_neg())),
                None => return Err(io::Error::other("a netlink answer was cut off")),
            }
        }
        let step = length.max(HEADER_BYTES).next_multiple_of(4);
        datagram = datagram.get(step..).unwrap_or_default();
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_are_padded_and_nested() {
        let mut bytes = Vec::new();
        Attribute::nest(4, &[Attribute::text(1, "ab"), Attribute::be32(2, 6)]).write(&mut bytes);
        let mut expect = Vec::new();
        expect.extend(20u16.to_ne_bytes());
        expect.extend(0x8004u16.to_ne_bytes());
        expect.extend(7u16.to_ne_bytes());
        expect.extend(1u16.to_ne_bytes());
        expect.extend([b'a', b'b', 0, 0]);
        expect.extend(8u16.to_ne_bytes());
        expect.extend(2u16.to_ne_bytes());
        expect.extend([0, 0, 0, 6]);
        assert_eq!(bytes, expect);
    }

    #[test]
    fn a_negative_answer_is_an_error_and_a_cut_one_too() {
        let answer = |code: Option<i32>| {
            let mut bytes = vec![0; HEADER_BYTES];
            bytes[..4].copy_from_slice(&36u32.to_ne_bytes());
            bytes[4..6].copy_from_slice(&NLMSG_ERROR.to_ne_bytes());
            bytes.extend(code.map(i32::to_ne_bytes).iter().flatten());
            bytes
        };
        assert_eq!(acknowledged(&answer(Some(0))).unwrap(), 1);
        assert_eq!(
            acknowledged(&answer(Some(-1))).unwrap_err().raw_os_error(),
            Some(1)
        );
        assert!(acknowledged(&answer(None)).is_err());
    }
}
