//! The agent's network: nothing but a loopback device on which every address is local, so that
//! whatever is connected to ends at our listeners and nothing has a way out.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, netlink};

use crate::SandboxError;
use crate::error::During;
use crate::netlink::{
    Attribute, Message, NLM_F_ACK, NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, Netlink,
};

/// The sockets that leave the namespace.
pub(crate) struct Capture {
    pub(crate) tcp: Vec<OwnedFd>,
    pub(crate) udp: Vec<OwnedFd>,
    pub(crate) notes: Vec<String>,
    /// Whether every port is captured, or only the well-known ones.
    pub(crate) complete: bool,
    families: Vec<AddressFamily>,
}

/// Brings the network of this namespace up and captures it.
pub(crate) fn set_up() -> Result<Capture, SandboxError> {
    let families = raise_loopback().during("bring up the loopback device")?;
    let udp = families
        .iter()
        .map(|family| resolver_socket(*family))
        .collect::<io::Result<Vec<_>>>()
        .during("open the sockets for name queries")?;
    let mut notes = Vec::new();
    if families.len() < 2 {
        notes.push("this host has no IPv6; only IPv4 is captured".to_owned());
    }
    let redirected = redirect();
    let complete = redirected.is_ok();
    let tcp = match redirected {
        Ok(()) => families
            .iter()
            .map(|family| listener(*family, TPROXY_PORT))
            .collect(),
        Err(error) => {
            notes.push(format!(
                "nftables cannot redirect ({error}); only these ports are captured, others refuse \
                 connections: {FALLBACK_PORTS:?}"
            ));
            let ports = FALLBACK_PORTS.iter();
            ports
                .flat_map(|port| families.iter().map(|family| listener(*family, *port)))
                .collect()
        }
    };
    let tcp: io::Result<Vec<_>> = tcp;
    Ok(Capture {
        tcp: tcp.during("listen for the agent's connections")?,
        udp,
        notes,
        complete,
        families,
    })
}

impl Capture {
    /// Captures connections to these ports of the loopback range, too; all others there are the
    /// agent's own business.
    pub(crate) fn listen_on(&mut self, host_ports: &[u16]) -> Result<(), SandboxError> {
        for port in host_ports {
            if !self.complete && FALLBACK_PORTS.contains(port) {
                continue;
            }
            for family in &self.families {
                let one = listener(*family, *port).during("listen for the agent's connections")?;
                self.tcp.push(one);
            }
        }
        Ok(())
    }
}

/// A TCP socket of this namespace that is not connected yet.
pub(crate) fn socket(v6: bool) -> io::Result<OwnedFd> {
    let family = if v6 {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(
        family,
        SocketType::STREAM,
        flags,
        None,
    )?)
}

/// Every connection that is not to the loopback range goes to the listener on this port. It is
/// below 1024, so no agent program wants it; binding it needs a capability that no agent has.
const TPROXY_PORT: u16 = 1;

/// Without nftables, one listener each: with every address local, any destination reaches them.
/// Not the ports that programs like to listen on themselves.
const FALLBACK_PORTS: &[u16] = &[
    22, 25, 43, 80, 143, 443, 465, 587, 853, 993, 995, 8443, 9418,
];

/// What the agent finds on its device: without an address of its own in each family, name
/// resolution in the C library hides that family's answers.
const ADDRESS_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 2, 15);
const ADDRESS_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 1, 0, 0, 0, 0, 0, 0x15);

const LOOPBACK_INDEX: u32 = 1;

/// Returns the address families that this kernel has.
fn raise_loopback() -> io::Result<Vec<AddressFamily>> {
    let mut route = Netlink::open(None)?;
    route.transact(&[link_up()])?;
    route.transact(&[address(AddressFamily::INET, &ADDRESS_V4.octets())])?;
    route.transact(&[local_default(AddressFamily::INET)])?;
    let v6 = route
        .transact(&[address(AddressFamily::INET6, &ADDRESS_V6.octets())])
        .and_then(|()| route.transact(&[local_default(AddressFamily::INET6)]));
    match v6 {
        Ok(()) => Ok(vec![AddressFamily::INET, AddressFamily::INET6]),
        Err(error) if no_such_family(&error) => Ok(vec![AddressFamily::INET]),
        Err(error) => Err(error),
    }
}

/// Asks nftables to hand every TCP connection to the listeners.
fn redirect() -> io::Result<()> {
    let mut netfilter = Netlink::open(Some(netlink::NETFILTER))?;
    let mut batch = vec![batch_mark(NFNL_MSG_BATCH_BEGIN)];
    batch.push(nft(NFT_MSG_NEWTABLE, NLM_F_CREATE).with(Attribute::text(NFTA_TABLE_NAME, TABLE)));
    let hook = [
        Attribute::be32(NFTA_HOOK_HOOKNUM, NF_INET_PRE_ROUTING),
        Attribute::be32(NFTA_HOOK_PRIORITY, MANGLE_PRIORITY.cast_unsigned()),
    ];
    batch.push(
        nft(NFT_MSG_NEWCHAIN, NLM_F_CREATE)
            .with(Attribute::text(NFTA_CHAIN_TABLE, TABLE))
            .with(Attribute::text(NFTA_CHAIN_NAME, CHAIN))
            .with(Attribute::nest(NFTA_CHAIN_HOOK, &hook))
            .with(Attribute::text(NFTA_CHAIN_TYPE, "filter")),
    );
    let v4 = || [meta(NFT_META_NFPROTO), equals(&[NFPROTO_IPV4])];
    let v6 = || [meta(NFT_META_NFPROTO), equals(&[NFPROTO_IPV6])];
    let tcp = || [meta(NFT_META_L4PROTO), equals(&[IPPROTO_TCP])];
    batch.push(rule(v4().into_iter().chain([
        header(16, 1),
        equals(&[127]),
        accept(),
    ])));
    batch.push(rule(v6().into_iter().chain([
        header(24, 16),
        equals(&Ipv6Addr::LOCALHOST.octets()),
        accept(),
    ])));
    for (family, matches) in [(NFPROTO_IPV4, v4()), (NFPROTO_IPV6, v6())] {
        let [port, tproxy] = tproxy(family);
        let to_us = [port, tproxy, accept()];
        batch.push(rule(matches.into_iter().chain(tcp()).chain(to_us)));
    }
    batch.push(batch_mark(NFNL_MSG_BATCH_END));
    netfilter.transact(&batch)
}

fn no_such_family(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw_os_error);
    matches!(
        code,
        Some(Errno::AFNOSUPPORT | Errno::OPNOTSUPP | Errno::ACCESS)
    )
}

/// Connections arrive here whatever their destination; `getsockname` on the accepted socket is
/// that destination.
fn listener(family: AddressFamily, port: u16) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        family,
        SocketType::STREAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    if family == AddressFamily::INET6 {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
        crate::sys::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT, 1)?;
    } else {
        crate::sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_TRANSPARENT, 1)?;
    }
    rustix::net::bind(&socket, &any_address(family, port))?;
    rustix::net::listen(&socket, 4096)?;
    Ok(socket)
}

/// A socket for name queries to whatever resolver: the control message of each datagram holds
/// the address that the answer has to come from.
fn resolver_socket(family: AddressFamily) -> io::Result<OwnedFd> {
    let socket = rustix::net::socket_with(
        family,
        SocketType::DGRAM,
        SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        None,
    )?;
    if family == AddressFamily::INET6 {
        rustix::net::sockopt::set_ipv6_v6only(&socket, true)?;
        crate::sys::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        // An answer comes from the resolver's address, which is local by route only.
        crate::sys::set_option(&socket, libc::IPPROTO_IPV6, libc::IPV6_FREEBIND, 1)?;
    } else {
        crate::sys::set_option(&socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
    }
    rustix::net::bind(&socket, &any_address(family, 53))?;
    Ok(socket)
}

fn any_address(family: AddressFamily, port: u16) -> SocketAddr {
    if family == AddressFamily::INET6 {
        SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, port, 0, 0).into()
    } else {
        SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port).into()
    }
}

fn link_up() -> Message {
    let up = 1u32;
    let mut fixed = vec![0; 4]; // family, padding, device type
    fixed.extend(LOOPBACK_INDEX.to_ne_bytes());
    fixed.extend(up.to_ne_bytes());
    fixed.extend(up.to_ne_bytes()); // change mask
    Message::new(RTM_NEWLINK, NLM_F_ACK, &fixed)
}

fn address(family: AddressFamily, bytes: &[u8]) -> Message {
    let prefix_bits = u8::try_from(bytes.len() * 8).unwrap_or(u8::MAX);
    let no_duplicate_detection = 0x02;
    let family = u8::try_from(family.as_raw()).unwrap_or(0);
    let mut fixed = vec![family, prefix_bits, no_duplicate_detection, 0];
    fixed.extend(LOOPBACK_INDEX.to_ne_bytes());
    Message::new(RTM_NEWADDR, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &fixed)
        .with(Attribute::bytes(IFA_LOCAL, bytes))
        .with(Attribute::bytes(IFA_ADDRESS, bytes))
}

/// `local default dev lo`.
fn local_default(family: AddressFamily) -> Message {
    let (table_local, protocol_static, scope_host, type_local) = (255, 4, 254, 2);
    let family = u8::try_from(family.as_raw()).unwrap_or(0);
    let fixed = [
        family,
        0,
        0,
        0,
        table_local,
        protocol_static,
        scope_host,
        type_local,
        0,
        0,
        0,
        0,
    ];
    Message::new(RTM_NEWROUTE, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, &fixed)
        .with(Attribute::bytes(RTA_OIF, &LOOPBACK_INDEX.to_ne_bytes()))
}

fn batch_mark(kind: u16) -> Message {
    Message::new(kind, 0, &[0, 0, 0, NFNL_SUBSYS_NFTABLES])
}

fn nft(kind: u16, flags: u16) -> Message {
    let kind = (u16::from(NFNL_SUBSYS_NFTABLES) << 8) | kind;
    Message::new(kind, flags | NLM_F_ACK, &[NFPROTO_INET, 0, 0, 0])
}

fn rule(expressions: impl Iterator<Item = Attribute>) -> Message {
    let expressions: Vec<_> = expressions.collect();
    nft(NFT_MSG_NEWRULE, NLM_F_CREATE | NLM_F_APPEND)
        .with(Attribute::text(NFTA_RULE_TABLE, TABLE))
        .with(Attribute::text(NFTA_RULE_CHAIN, CHAIN))
        .with(Attribute::nest(NFTA_RULE_EXPRESSIONS, &expressions))
}

fn expression(name: &str, data: &[Attribute]) -> Attribute {
    Attribute::nest(
        NFTA_LIST_ELEM,
        &[
            Attribute::text(NFTA_EXPR_NAME, name),
            Attribute::nest(NFTA_EXPR_DATA, data),
        ],
    )
}

/// Loads a property of the packet.
fn meta(key: u32) -> Attribute {
    expression(
        "meta",
        &[Attribute::be32(2, key), Attribute::be32(1, NFT_REG_1)],
    )
}

/// Loads bytes of the network header.
fn header(offset: u32, length: u32) -> Attribute {
    let network_header = 1;
    expression(
        "payload",
        &[
            Attribute::be32(1, NFT_REG_1),
            Attribute::be32(2, network_header),
            Attribute::be32(3, offset),
            Attribute::be32(4, length),
        ],
    )
}

/// Goes on only if what was loaded is this.
fn equals(value: &[u8]) -> Attribute {
    let equal = 0;
    let value = Attribute::nest(3, &[Attribute::bytes(NFTA_DATA_VALUE, value)]);
    expression(
        "cmp",
        &[
            Attribute::be32(1, NFT_REG_1),
            Attribute::be32(2, equal),
            value,
        ],
    )
}

fn accept() -> Attribute {
    let nf_accept = 1;
    let verdict = Attribute::nest(NFTA_DATA_VERDICT, &[Attribute::be32(1, nf_accept)]);
    expression(
        "immediate",
        &[
            Attribute::be32(1, NFT_REG_VERDICT),
            Attribute::nest(2, &[verdict]),
        ],
    )
}

fn tproxy(family: u8) -> [Attribute; 2] {
    let port = Attribute::bytes(NFTA_DATA_VALUE, &TPROXY_PORT.to_be_bytes());
    [
        expression(
            "immediate",
            &[Attribute::be32(1, NFT_REG_1), Attribute::nest(2, &[port])],
        ),
        expression(
            "tproxy",
            &[
                Attribute::be32(1, family.into()),
                Attribute::be32(3, NFT_REG_1),
            ],
        ),
    ]
}

const TABLE: &str = "kairos";
const CHAIN: &str = "capture";

const RTM_NEWLINK: u16 = 16;
const RTM_NEWADDR: u16 = 20;
const RTM_NEWROUTE: u16 = 24;
const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const RTA_OIF: u16 = 4;

const NFNL_SUBSYS_NFTABLES: u8 = 10;
const NFNL_MSG_BATCH_BEGIN: u16 = 16;
const NFNL_MSG_BATCH_END: u16 = 17;
const NFT_MSG_NEWTABLE: u16 = 0;
const NFT_MSG_NEWCHAIN: u16 = 3;
const NFT_MSG_NEWRULE: u16 = 6;
const NFTA_TABLE_NAME: u16 = 1;
const NFTA_CHAIN_TABLE: u16 = 1;
const NFTA_CHAIN_NAME: u16 = 3;
const NFTA_CHAIN_HOOK: u16 = 4;
const NFTA_CHAIN_TYPE: u16 = 7;
const NFTA_HOOK_HOOKNUM: u16 = 1;
const NFTA_HOOK_PRIORITY: u16 = 2;
const NFTA_RULE_TABLE: u16 = 1;
const NFTA_RULE_CHAIN: u16 = 2;
const NFTA_RULE_EXPRESSIONS: u16 = 4;
const NFTA_LIST_ELEM: u16 = 1;
const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
const NFTA_DATA_VALUE: u16 = 1;
const NFTA_DATA_VERDICT: u16 = 2;
const NFT_REG_VERDICT: u32 = 0;
const NFT_REG_1: u32 = 1;
const NFT_META_NFPROTO: u32 = 15;
const NFT_META_L4PROTO: u32 = 16;
const NF_INET_PRE_ROUTING: u32 = 0;
const MANGLE_PRIORITY: i32 = -150;
const NFPROTO_INET: u8 = 1;
const NFPROTO_IPV4: u8 = 2;
const NFPROTO_IPV6: u8 = 10;
const IPPROTO_TCP: u8 = 6;
