//! TLS on both sides of the boundary: what the agent is shown, and what is shown to servers.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use common::{Origin, World, party, policy, private_server};
use kernel::policy::HostPattern;
use net::{Identity, TlsRule, UpstreamRule};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::time_provider::TimeProvider;
use rustls::{ClientConfig, ClientConnection, NamedGroup, RootCertStore, ServerConfig};

fn elsewhere(base: String) -> UpstreamRule {
    UpstreamRule {
        hosts: HostPattern("*".into()),
        ports: Vec::new(),
        base,
    }
}

/// A provider that can do one key exchange only.
fn only(group: NamedGroup) -> Arc<CryptoProvider> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups.retain(|kx| kx.name() == group);
    assert_eq!(provider.kx_groups.len(), 1);
    Arc::new(provider)
}

fn roots(pem: &str) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(pem.as_bytes()).unwrap())
        .unwrap();
    roots
}

/// A clock that is wrong by so many seconds.
#[derive(Debug)]
struct Clock(i64);

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        let now = i64::try_from(UnixTime::now().as_secs()).unwrap();
        let shown = u64::try_from(now + self.0).unwrap();
        Some(UnixTime::since_unix_epoch(Duration::from_secs(shown)))
    }
}

/// As the agent would: a handshake over a stream, then one request.
struct Client {
    config: ClientConfig,
    /// Bytes of a segment; everything at once when zero.
    segment: usize,
}

impl Client {
    fn new(world: &World, provider: Arc<CryptoProvider>, clock: i64) -> Self {
        let config = ClientConfig::builder_with_details(provider, Arc::new(Clock(clock)))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots(&world.authority.pem()))
            .with_no_client_auth();
        Self { config, segment: 0 }
    }

    /// The answer, the group of the key exchange and the length of the first message.
    fn get(&self, to: SocketAddr, name: &str) -> Result<(String, NamedGroup, usize), String> {
        let server = ServerName::try_from(name.to_string()).unwrap();
        let mut tls = ClientConnection::new(Arc::new(self.config.clone()), server).unwrap();
        let mut stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(30)))
            .unwrap();
        let mut hello = Vec::new();
        tls.write_tls(&mut hello).unwrap();
        let segment = if self.segment == 0 {
            hello.len()
        } else {
            self.segment
        };
        for piece in hello.chunks(segment) {
            stream.write_all(piece).unwrap();
            if self.segment != 0 {
                // So that each is a segment of its own.
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).map_err(|e| e.to_string())?;
        }
        let group = tls.negotiated_key_exchange_group().unwrap().name();
        let host = if name.contains(':') {
            format!("[{name}]")
        } else {
            name.to_string()
        };
        let mut stream = rustls::Stream::new(&mut tls, &mut stream);
        let request =
            format!("GET /over-tls HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream
            .write_all(request.as_bytes())
            .map_err(|e| e.to_string())?;
        let mut answer = String::new();
        // Servers seldom say goodbye in TLS.
        let _ = stream.read_to_string(&mut answer);
        Ok((answer, group, hello.len()))
    }
}

#[test]
fn key_exchange_is_post_quantum_on_both_sides() {
    let (root, mut tls) = private_server(&["good.example"], true);
    let key = tls.cert_resolver.clone();
    let alpn = tls.alpn_protocols.clone();
    tls = ServerConfig::builder_with_provider(only(NamedGroup::X25519MLKEM768))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(key);
    tls.alpn_protocols = alpn;
    let origin = Origin::secure(tls);
    let world = World::with(policy(), |config| {
        config.upstreams.push(elsewhere(origin.https_base()));
        config.roots_pem.push(root.into_bytes());
    });
    let to = world.direct("good.example", 443);
    // A client and a server that can do nothing else.
    let quantum = Client::new(&world, only(NamedGroup::X25519MLKEM768), 0);
    let (answer, group, hello) = quantum.get(to, "good.example").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(group, NamedGroup::X25519MLKEM768);
    assert!(hello > 1200, "the share is large: {hello}");
    // And one that cannot do it.
    let classic = Client::new(&world, only(NamedGroup::secp256r1), 0);
    let (answer, group, _) = classic.get(to, "good.example").unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(group, NamedGroup::secp256r1);
    assert_eq!(origin.seen().len(), 2);
}

#[test]
fn a_hello_in_many_segments_is_read_whole() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 443);
    for (group, segment) in [
        (NamedGroup::X25519, 1),
        (NamedGroup::X25519MLKEM768, 1),
        (NamedGroup::X25519MLKEM768, 700),
    ] {
        let mut client = Client::new(&world, only(group), 0);
        client.segment = segment;
        let (answer, _, hello) = client.get(to, "good.example").unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{group:?}: {answer}");
        assert!(hello > segment, "{group:?}");
    }
    assert_eq!(origin.seen().len(), 3);
}

#[test]
fn a_clock_that_is_wrong_by_less_than_a_day_does_not_matter() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let to = world.direct("good.example", 443);
    let day = 24 * 3600;
    let provider = || Arc::new(aws_lc_rs::default_provider());
    for (clock, fine) in [
        (0, true),
        (-(day - 600), true),
        (-(day + 600), false),
        (29 * day, true),
        (31 * day, false),
    ] {
        let got = Client::new(&world, provider(), clock).get(to, "good.example");
        assert_eq!(got.is_ok(), fine, "{clock}: {got:?}");
    }
}

/// A program that connects to an address names nobody in its handshake, and wants a certificate for the address.
#[test]
fn an_address_has_a_certificate_of_its_own() {
    let mut named = policy();
    named.parties.push(party("literal", "192.0.2.7"));
    let origin = Origin::clear();
    let world = World::new(named, &origin);
    let client = Client::new(&world, Arc::new(aws_lc_rs::default_provider()), 0);
    let (answer, ..) = client
        .get(world.direct("192.0.2.7", 443), "192.0.2.7")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(origin.seen()[0].host, "192.0.2.7");
    // Without a name in the handshake the connection's own name is shown.
    let mut silent = Client::new(&world, Arc::new(aws_lc_rs::default_provider()), 0);
    silent.config.enable_sni = false;
    let (answer, ..) = silent
        .get(world.direct("good.example", 443), "good.example")
        .unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(origin.seen()[1].host, "good.example");
}

#[test]
fn an_upstream_may_have_a_certificate_for_all_below_a_name() {
    let (root, tls) = private_server(&["*.wild.example"], true);
    let origin = Origin::secure(tls);
    let mut named = policy();
    named.parties.push(party("wild", "*.wild.example"));
    let world = World::with(named, |config| {
        config.upstreams.push(elsewhere(origin.https_base()));
        config.roots_pem.push(root.into_bytes());
    });
    assert_eq!(world.proxied(&["https://a.wild.example/"]).status, 200);
    let got = world.proxied(&["https://b.a.wild.example/"]);
    assert!(got.body.contains("another name"), "{got:?}");
}

/// What a policy says of one party's roots is said of nobody else.
#[test]
fn a_root_of_one_party_signs_no_other() {
    let (root, tls) = private_server(&["good.example", "paths.example"], true);
    let origin = Origin::secure(tls);
    let world = World::with(policy(), |config| {
        config.upstreams.push(elsewhere(origin.https_base()));
        config.tls.push(TlsRule {
            hosts: vec![HostPattern("good.example".into())],
            roots_pem: vec![root.into_bytes()],
            ..TlsRule::default()
        });
    });
    assert_eq!(world.curl(&["https://good.example/"]).status, 200);
    let got = world.curl(&["https://paths.example/allowed"]);
    assert_eq!(got.status, 502, "{got:?}");
    assert!(got.body.contains("does not trust"), "{got:?}");
    assert_eq!(origin.seen().len(), 1);
}

/// A server that wants to know who comes, and the certificates that it takes.
struct Choosy {
    origin: Origin,
    root: String,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Choosy {
    fn new(required: bool) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let (root, tls) = private_server(&["good.example", "paths.example"], true);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = WebPkiClientVerifier::builder_with_provider(
            Arc::new(roots(&issuer.pem())),
            Arc::clone(&provider),
        );
        let verifier = if required {
            verifier.build().unwrap()
        } else {
            verifier.allow_unauthenticated().build().unwrap()
        };
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::clone(&tls.cert_resolver));
        config.alpn_protocols = tls.alpn_protocols;
        Self {
            origin: Origin::secure(config),
            root,
            issuer,
        }
    }

    fn identity(&self) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        Identity {
            name: "client.pem".into(),
            certificates_pem: certificate.pem().into_bytes(),
            key_pem: key.serialize_pem().into_bytes(),
        }
    }

    fn world(&self, identity: Option<Identity>) -> World {
        World::with(policy(), |config| {
            config.upstreams.push(elsewhere(self.origin.https_base()));
            config.roots_pem.push(self.root.clone().into_bytes());
            config.tls.push(TlsRule {
                hosts: vec![HostPattern("good.example".into())],
                identity,
                ..TlsRule::default()
            });
        })
    }
}

#[test]
fn a_client_certificate_is_shown_to_its_party_only() {
    let server = Choosy::new(true);
    let world = server.world(Some(server.identity()));
    for http in ["--http1.1", "--http2"] {
        let got = world.curl(&[http, "https://good.example/known"]);
        assert_eq!(got.status, 200, "{got:?}");
    }
    for http in ["--http1.1", "--http2"] {
        let got = world.curl(&[http, "https://paths.example/allowed"]);
        assert_eq!(got.status, 502, "{got:?}");
        assert!(got.body.contains("for a client certificate"), "{got:?}");
    }
    assert_eq!(server.origin.seen().len(), 2);
    // Another authority's certificate is not taken, and that is said.
    let stranger = Choosy::new(true).identity();
    let got = server
        .world(Some(stranger))
        .curl(&["https://good.example/unknown"]);
    assert_eq!(got.status, 502, "{got:?}");
    assert!(got.body.contains("client certificate"), "{got:?}");
    assert_eq!(server.origin.seen().len(), 2);
}

#[test]
fn a_client_certificate_that_cannot_be_used_is_told_at_the_start() {
    let server = Choosy::new(false);
    let good = server.identity();
    let other = server.identity();
    for (certificates_pem, key_pem, expect) in [
        (
            good.certificates_pem.clone(),
            other.key_pem.clone(),
            "another certificate",
        ),
        (b"nothing".to_vec(), good.key_pem.clone(), "no certificate"),
        (
            good.certificates_pem.clone(),
            b"-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"
                .to_vec(),
            "without a passphrase",
        ),
    ] {
        let identity = Identity {
            name: "client.pem".into(),
            certificates_pem,
            key_pem,
        };
        let rule = TlsRule {
            hosts: vec![HostPattern("good.example".into())],
            identity: Some(identity),
            ..TlsRule::default()
        };
        let world = World::new(policy(), &server.origin);
        let error = net::OfflineSender::new(Arc::clone(&world.session), &[], &[], &[rule], vec![])
            .unwrap_err();
        assert!(
            error.contains("`client.pem`") && error.contains(expect),
            "{error}"
        );
    }
}

/// NSS (Firefox) refuses a second certificate of one issuer with the number of the first.
#[test]
fn every_certificate_has_a_number_of_its_own() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let number = |name: &str| {
        let client = Client::new(&world, Arc::new(aws_lc_rs::default_provider()), 0);
        let server = ServerName::try_from(name.to_string()).unwrap();
        let mut tls = ClientConnection::new(Arc::new(client.config), server).unwrap();
        let mut stream = TcpStream::connect(world.direct(name, 443)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut stream).unwrap();
        }
        let file = world.dir.path().join(name);
        std::fs::write(&file, &tls.peer_certificates().unwrap()[0]).unwrap();
        let said = std::process::Command::new("openssl")
            .args(["x509", "-inform", "der", "-noout", "-serial", "-in"])
            .arg(&file)
            .output()
            .unwrap();
        String::from_utf8(said.stdout).unwrap()
    };
    let (one, other) = (number("good.example"), number("bad.example"));
    assert!(one.starts_with("serial=") && one.len() > 20, "{one}");
    assert_ne!(one, other);
}
