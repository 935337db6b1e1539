//! Whatever the agent sends arrives at our descriptors, or nowhere.

use std::os::linux::net::SocketAddrExt;

use sandbox::SyntheticFile;

use super::{Check, Outcome, expect, prints, try_call, try_socket};
use crate::runner::User;

pub(crate) const CHECKS: &[Check] = &[
    ("tcp_is_captured_with_its_destination", tcp),
    ("many_connections_are_captured", many),
    ("name_queries_reach_us_whatever_the_resolver", names),
    ("other_datagrams_are_refused_at_once", udp),
    ("the_loopback_range_is_the_agents_own", loopback),
    ("there_is_no_other_device_and_none_can_be_made", devices),
    ("raw_and_foreign_sockets_cannot_be_opened", sockets),
    (
        "abstract_sockets_of_the_host_are_out_of_reach",
        abstract_socket,
    ),
    ("host_services_on_loopback_are_out_of_reach", host_loopback),
];

fn tcp(user: &User) -> Outcome {
    let seen = user.run(
        "for to in 198.51.100.9/443 2001:db8::9/8080 10.255.0.1/65000 10.0.2.15/22 \
         255.1.2.3/1; do head -1 < /dev/tcp/$to; done",
    );
    let to = [
        "198.51.100.9:443",
        "[2001:db8::9]:8080",
        "10.255.0.1:65000",
        "10.0.2.15:22",
        "255.1.2.3:1",
    ];
    let said: String = to.iter().map(|to| format!("you meant {to}\n")).collect();
    expect(seen.stdout == said && seen.tcp == to, &seen)
}

fn many(user: &User) -> Outcome {
    let seen = user.run(
        "for i in $(seq 200); do (exec 3<>/dev/tcp/203.0.113.5/$((1000 + i)); cat <&3) & done; \
         wait",
    );
    let mut lines: Vec<_> = seen.stdout.lines().collect();
    lines.sort_unstable();
    lines.dedup();
    expect(
        lines.len() == 200 && seen.tcp.len() == 200,
        (lines.len(), seen.tcp.len()),
    )
}

fn names(user: &User) -> Outcome {
    let mut plan = user.plan("getent ahostsv4 anything.example | head -1 | cut -d' ' -f1");
    let resolvers = "nameserver 203.0.113.53\noptions timeout:1\n";
    plan.files
        .push(SyntheticFile::read_only("/etc/resolv.conf", resolvers));
    let seen = user.confine(plan.clone());
    expect(seen.stdout == "192.0.2.7\n", &seen)?;
    expect(
        !seen.udp.is_empty() && seen.udp.iter().all(|to| to == "203.0.113.53"),
        &seen,
    )?;
    plan.files = vec![SyntheticFile::read_only(
        "/etc/resolv.conf",
        "nameserver 2001:db8::53\noptions timeout:1\n",
    )];
    let seen = user.confine(plan);
    expect(seen.stdout == "192.0.2.7\n", &seen)?;
    expect(
        !seen.udp.is_empty() && seen.udp.iter().all(|to| to == "2001:db8::53"),
        &seen,
    )
}

fn udp(user: &User) -> Outcome {
    let try_send = |to: &str| {
        format!(
            "perl -MErrno -MIO::Socket::IP -e '\
             $s = IO::Socket::IP->new(PeerAddr => \"{to}\", PeerPort => 443, Proto => \"udp\"); \
             $s->send(\"x\"); $SIG{{ALRM}} = sub {{ print \"late\\n\"; exit }}; alarm 2; \
             print $s->recv($b, 9) ? \"answer\" : $!{{ECONNREFUSED}} ? \"refused\" : $!, \"\\n\"'; "
        )
    };
    let script = format!("{}{}", try_send("198.51.100.9"), try_send("2001:db8::9"));
    prints(user, &script, &["refused", "refused"])
}

fn loopback(user: &User) -> Outcome {
    let seen = user.run(
        "timeout 5 perl -MIO::Socket::INET -e '$l = IO::Socket::INET->new(LocalAddr => \"127.0.0.1\", \
         LocalPort => 8123, Listen => 1) or die; if (fork) { $c = $l->accept; print $c \"mine\\n\" } \
         else { $s = IO::Socket::INET->new(\"127.0.0.1:8123\") or die; print scalar <$s> }; wait'; \
         (exec 3<>/dev/tcp/127.0.0.1/8124) 2>/dev/null || echo refused",
    );
    expect(
        seen.stdout == "mine\nrefused\n" && seen.tcp.is_empty(),
        &seen,
    )
}

fn devices(user: &User) -> Outcome {
    prints(
        user,
        "tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '; \
         (echo 1 > /proc/sys/net/ipv4/ip_forward) 2>/dev/null || echo no forwarding; \
         ip link add x type dummy 2>/dev/null || echo no device; \
         ip route add default dev lo 2>/dev/null || echo no route; \
         nft flush ruleset 2>/dev/null || echo no rules",
        &["lo", "no forwarding", "no device", "no route", "no rules"],
    )
}

fn sockets(user: &User) -> Outcome {
    let mut script = String::new();
    let mut lines = Vec::new();
    for (family, kind, protocol, expect) in [
        (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP, "EPERM"),
        (libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW, "EPERM"),
        (libc::AF_INET6, libc::SOCK_RAW, libc::IPPROTO_RAW, "EPERM"),
        (libc::AF_INET, libc::SOCK_STREAM, 262, "EPROTONOSUPPORT"), // MPTCP
        (libc::AF_INET, libc::SOCK_STREAM, 132, "EPROTONOSUPPORT"), // SCTP
        (libc::AF_INET6, libc::SOCK_SEQPACKET, 0, "EPROTONOSUPPORT"),
        (libc::AF_PACKET, libc::SOCK_RAW, 768, "EAFNOSUPPORT"),
        (libc::AF_VSOCK, libc::SOCK_STREAM, 0, "EAFNOSUPPORT"),
        (libc::AF_ALG, libc::SOCK_SEQPACKET, 0, "EAFNOSUPPORT"),
        (libc::AF_BLUETOOTH, libc::SOCK_RAW, 0, "EAFNOSUPPORT"),
        (libc::AF_NETLINK, libc::SOCK_RAW, 12, "EAFNOSUPPORT"), // netfilter
        (libc::AF_NETLINK, libc::SOCK_RAW, 0, "ok"),
        (libc::AF_UNIX, libc::SOCK_STREAM, 0, "ok"),
        (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP, "ok"),
        (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP, "ok"),
    ] {
        script.push_str(&try_socket(family, kind, protocol));
        lines.push(expect);
    }
    // The upper half of a register is not part of a family.
    script.push_str(&try_call(
        libc::SYS_socket,
        &format!(", {}, 1, 0", (1_u64 << 32) + 40),
    ));
    lines.push("EAFNOSUPPORT");
    prints(user, &script, &lines)
}

fn abstract_socket(user: &User) -> Outcome {
    let name = format!("kairos-test-{}", std::process::id());
    let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind_addr(&address);
    prints(
        user,
        &format!(
            "perl -MErrno -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); \
             print connect(S, pack(\"Sa*\", 1, \"\\0{name}\")) ? \"ok\" : \
             $!{{ECONNREFUSED}} ? \"refused\" : $!, \"\\n\"'"
        ),
        &["refused"],
    )
}

fn host_loopback(user: &User) -> Outcome {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    prints(
        user,
        &format!("(exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null || echo refused"),
        &["refused"],
    )?;
    listener.set_nonblocking(true).unwrap();
    expect(listener.accept().is_err(), "a connection reached the host")
}
