//! How much may come: rates, connections, bodies and heads, each as the policy says.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod common;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use common::{Origin, World, policy};
use kernel::policy::HostPattern;
use net::{NetConfig, PartyRule, Rate, UpstreamRule};

fn world(origin: &Origin, adjust: impl FnOnce(&mut NetConfig)) -> World {
    World::with(policy(), |config| {
        config.upstreams.push(UpstreamRule {
            hosts: HostPattern("*".into()),
            ports: Vec::new(),
            base: origin.http_base(),
        });
        adjust(config);
    })
}

fn party(host: &str) -> PartyRule {
    PartyRule {
        name: host.into(),
        hosts: vec![HostPattern(host.into())],
        ..PartyRule::default()
    }
}

fn hourly(requests: u32) -> Option<Rate> {
    Some(Rate {
        requests,
        per: Duration::from_secs(3600),
    })
}

#[test]
fn more_requests_than_a_party_may_get_are_answered_429() {
    let origin = Origin::clear();
    let world = world(&origin, |config| {
        config.parties.push(PartyRule {
            rate: hourly(3),
            ..party("good.example")
        });
    });
    for _ in 0..3 {
        assert_eq!(world.curl(&["https://good.example/"]).status, 200);
    }
    for more in [
        &["https://good.example/"][..],
        &["-d", "x", "https://good.example/"],
    ] {
        let got = world.curl(&[more, &["-i"]].concat());
        assert_eq!(got.status, 429, "{got:?}");
        assert!(
            got.body
                .contains("party `good.example` 3 requests in 3600 s")
                && got.body.to_lowercase().contains("retry-after: "),
            "{got:?}"
        );
    }
    // Of others nothing was said.
    for _ in 0..5 {
        assert_eq!(world.curl(&["https://paths.example/allowed"]).status, 200);
    }
    assert_eq!(origin.seen().len(), 8);
    assert!(
        world.log().contains("3 requests in 3600 s"),
        "{}",
        world.log()
    );
}

#[test]
fn a_session_has_a_rate_of_its_own() {
    let origin = Origin::clear();
    let world = world(&origin, |config| config.limits.rate = hourly(4));
    let hosts = ["https://good.example/", "https://paths.example/allowed"];
    let statuses: Vec<u16> = (0..6).map(|n| world.curl(&[hosts[n % 2]]).status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 429, 429]);
    assert_eq!(origin.seen().len(), 4);
}

#[test]
fn more_connections_than_a_party_may_have_are_told_so() {
    let origin = Origin::clear();
    let world = world(&origin, |config| {
        config.parties.push(PartyRule {
            connections: Some(2),
            ..party("good.example")
        });
    });
    let to = world.direct("good.example", 80);
    let request = b"GET / HTTP/1.1\r\nHost: good.example\r\n\r\n";
    let open = || {
        let mut stream = TcpStream::connect(to).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        stream.write_all(request).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        (stream, String::from_utf8_lossy(&answer).into_owned())
    };
    let (first, second, third) = (open(), open(), open());
    assert_eq!(
        (first.1.as_str(), second.1.as_str()),
        ("HTTP/1.1 200", "HTTP/1.1 200")
    );
    assert_eq!(third.1, "HTTP/1.1 429");
    // It ends there, and whoever ends makes room.
    let mut rest = String::new();
    let _ = { third.0 }.read_to_string(&mut rest);
    assert!(rest.contains("2 connections at a time"), "{rest}");
    drop(first);
    assert!(common::until(|| open().1 == "HTTP/1.1 200"));
}

#[test]
fn connections_of_a_session_wait_for_room() {
    let origin = Origin::clear();
    let world = world(&origin, |config| config.limits.connections = 1);
    let to = world.direct("good.example", 80);
    let holder = TcpStream::connect(to).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| world.curl(&["http://good.example/"]));
        // Nothing can tell that it never comes; that it is not there yet is all there is to see.
        std::thread::sleep(Duration::from_millis(300));
        assert!(!waiting.is_finished() && origin.seen().is_empty());
        drop(holder);
        assert_eq!(waiting.join().unwrap().status, 200);
    });
}

#[test]
fn bodies_and_heads_are_as_large_as_the_policy_says() {
    let origin = Origin::clear();
    let world = world(&origin, |config| {
        config.limits.body_bytes = Some(100_000);
        config.limits.head_bytes = 16 << 10;
        config.limits.headers = 20;
    });
    let file = world.dir.path().join("body");
    for (bytes, status) in [(100_000, 200), (100_001, 413)] {
        std::fs::write(&file, vec![b'x'; bytes]).unwrap();
        let body = format!("@{}", file.display());
        for http in ["--http1.1", "--http2"] {
            let got = world.curl(&[http, "--data-binary", &body, "https://good.example/"]);
            assert_eq!(got.status, status, "{bytes} {http}: {got:?}");
        }
    }
    assert!(
        world
            .log()
            .contains("larger than the policy allows (100000 bytes)")
    );
    let long = format!("x: {}", "y".repeat(20 << 10));
    let many: Vec<String> = (0..30).map(|n| format!("x-{n}: y")).collect();
    let many: Vec<&str> = many.iter().flat_map(|line| ["-H", line]).collect();
    for arguments in [&["-H", &long][..], &many] {
        let got = world.curl(&[arguments, &["--http1.1", "https://good.example/"]].concat());
        assert_eq!(got.status, 431, "{got:?}");
    }
    let got = world.curl(&["--http2", "-H", &long, "https://good.example/"]);
    assert_ne!(got.status, 200, "{got:?}");
    assert_eq!(origin.seen().len(), 2);
}
