//! Many connections at once; alone in its process, since it counts what the process has open.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Origin, World, policy, until};

/// So many idle connections are kept a party.
const IDLE_MAX: usize = 32;

#[test]
fn many_connections_leave_no_descriptors_behind() {
    requests_on_two_hundred_connections(5);
}

/// `just load`: ten thousand requests on two hundred connections.
#[test]
#[ignore = "`just load`"]
fn ten_thousand_requests_arrive_once() {
    let (before, _) = memory();
    let begun = std::time::Instant::now();
    requests_on_two_hundred_connections(50);
    println!(
        "12500 requests in {:?}: memory {} MB before, {} MB at most",
        begun.elapsed(),
        before >> 20,
        memory().0 >> 20
    );
}

fn requests_on_two_hundred_connections(each: usize) {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 80);
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let burst = |count: usize| {
        std::thread::scope(|scope| {
            for _ in 0..count {
                scope.spawn(|| {
                    let mut stream = TcpStream::connect(to).unwrap();
                    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
                    let mut piece = [0; 4096];
                    for _ in 0..each {
                        stream.write_all(b"POST /x HTTP/1.1\r\nHost: good.example\r\nContent-Length: 2\r\n\r\nhi").unwrap();
                        let n = stream.read(&mut piece).unwrap();
                        assert!(piece[..n].starts_with(b"HTTP/1.1 200"));
                    }
                });
            }
        });
    };
    let before = descriptors();
    burst(50);
    burst(200);
    assert_eq!(
        origin.seen().len(),
        250 * each,
        "every request arrived, and arrived once"
    );
    // Idle connections upstream stay for the next request, and the origin's ends of them are in
    // this process too. All else closes, when the threads get to it.
    let most = before + 2 * IDLE_MAX + 4;
    assert!(
        until(|| descriptors() <= most),
        "{before} before, {} after",
        descriptors()
    );
}

/// Bytes of this process that were in memory at most, and are now.
fn memory() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let of = |name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
        kib << 10
    };
    (of("VmHWM:"), of("VmRSS:"))
}

fn from_env(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |text| text.parse().unwrap())
}

/// `just load`: ten bodies of 2 GB at once, each read to its end and searched before it goes on.
#[test]
#[ignore = "takes 20 GB of disk and minutes: `just load`"]
fn ten_large_bodies_take_no_more_memory_than_small_ones() {
    let bytes = from_env("KAIROS_LOAD_BODY_BYTES", 2 << 30);
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let base = format!("http://{}", listener.local_addr().unwrap());
    // Reads what comes and keeps nothing of it.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut piece = vec![0; 256 << 10];
                let mut head = Vec::new();
                let end = loop {
                    let n = stream.read(&mut piece).unwrap();
                    assert!(n > 0);
                    head.extend_from_slice(&piece[..n]);
                    if let Some(end) = head.windows(4).position(|w| w == b"\r\n\r\n") {
                        break end + 4;
                    }
                };
                let mut seen = (head.len() - end) as u64;
                while seen < bytes {
                    seen += stream.read(&mut piece).unwrap() as u64;
                }
                let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{seen:020}");
                stream.write_all(answer.as_bytes()).unwrap();
            });
        }
    });
    let world = World::with(policy(), |config| {
        config.upstreams.push(net::UpstreamRule {
            hosts: kernel::policy::HostPattern("*".into()),
            ports: Vec::new(),
            base,
        });
    });
    let to = world.direct("good.example", 80);
    let before = memory();
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for n in 0..10u8 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(to).unwrap();
                let head = format!(
                    "PUT /{n} HTTP/1.1\r\nHost: good.example\r\nContent-Length: {bytes}\r\n\r\n"
                );
                stream.write_all(head.as_bytes()).unwrap();
                let piece = vec![b'a' + n; 256 << 10];
                let mut left = bytes;
                while left > 0 {
                    let take = left.min(piece.len() as u64);
                    stream
                        .write_all(&piece[..usize::try_from(take).unwrap()])
                        .unwrap();
                    left -= take;
                }
                let mut answer = String::new();
                while !answer.contains(&format!("{bytes:020}")) {
                    let mut piece = [0; 4096];
                    let n = stream.read(&mut piece).unwrap();
                    assert!(n > 0, "{answer}");
                    answer.push_str(std::str::from_utf8(&piece[..n]).unwrap());
                }
            });
        }
    });
    let after = memory();
    println!(
        "ten bodies of {} MB in {:?}: memory {} MB before, {} MB at most",
        bytes >> 20,
        start.elapsed(),
        before.0 >> 20,
        after.0 >> 20
    );
    assert!(after.0 < before.0 + (128 << 20), "{before:?} {after:?}");
}

/// `just load`: fifty thousand different requests held, none lost, then all let go or refused.
#[test]
#[ignore = "takes minutes: `just load`"]
fn fifty_thousand_held_requests_are_parked_and_none_is_lost() {
    let count = from_env("KAIROS_LOAD_HELD", 50_000);
    let origin = Origin::clear();
    let mut policy = policy();
    policy.limits.holds_max = count + 10;
    let world = World::new(policy, &origin);
    let to = world.direct("bad.example", 80);
    // What the agent has read lies there, too.
    let blobs = world.blobs() as u64;
    let before = memory();
    let start = std::time::Instant::now();
    std::thread::scope(|scope| {
        for worker in 0..8 {
            scope.spawn(move || {
                let mut stream = TcpStream::connect(to).unwrap();
                let mut piece = [0; 8192];
                for n in (worker..count).step_by(8) {
                    let body = format!("{n:0100}");
                    let request = format!(
                        "POST /x HTTP/1.1\r\nHost: bad.example\r\nContent-Length: {}\r\n\r\n{body}",
                        body.len()
                    );
                    stream.write_all(request.as_bytes()).unwrap();
                    let got = stream.read(&mut piece).unwrap();
                    assert!(piece[..got].starts_with(b"HTTP/1.1 202"));
                }
            });
        }
    });
    let held = world.session.held();
    let after = memory();
    println!(
        "{count} held in {:?}: {} bytes of memory each; {} MB at most",
        start.elapsed(),
        (after.1 - before.1) / count,
        after.0 >> 20
    );
    assert_eq!(held.len() as u64, count);
    assert!(origin.seen().is_empty());
    assert_eq!(world.blobs() as u64 - blobs, count, "each lies parked");
}
