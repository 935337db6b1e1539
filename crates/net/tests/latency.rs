//! What the channel costs beside a direct connection. Not part of the usual run:
//! `cargo test --release -p kairos-net --test latency -- --ignored --nocapture`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use common::{Origin, World, policy, private_server};
use kernel::policy::HostPattern;
use net::UpstreamRule;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const HOST: &str = "good.example";

fn client(root: &str) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(root.as_bytes()).unwrap())
        .unwrap();
    Arc::new(
        ClientConfig::builder_with_provider(
            Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
        )
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth(),
    )
}

struct Connection(StreamOwned<ClientConnection, TcpStream>);

impl Connection {
    fn open(config: &Arc<ClientConfig>, to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).unwrap();
        stream.set_nodelay(true).unwrap();
        let name = ServerName::try_from(HOST).unwrap();
        Self(StreamOwned::new(
            ClientConnection::new(Arc::clone(config), name).unwrap(),
            stream,
        ))
    }

    fn get(&mut self) {
        self.0
            .write_all(b"GET /x HTTP/1.1\r\nHost: good.example\r\n\r\n")
            .unwrap();
        let mut seen = Vec::new();
        let mut piece = [0; 2048];
        loop {
            let n = self.0.read(&mut piece).unwrap();
            assert!(n > 0);
            seen.extend_from_slice(&piece[..n]);
            if seen.ends_with(b"you said 0 bytes") {
                return;
            }
        }
    }
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times[times.len() / 2]
}

#[test]
#[ignore = "a measurement: run it on a quiet machine, with optimisation"]
fn latency_beside_a_direct_connection() {
    let (root, tls) = private_server(&[HOST], true);
    let origin = Origin::secure(tls);
    let base = origin.https_base();
    let trusted = root.clone().into_bytes();
    let world = World::with(policy(), |config| {
        config.upstreams.push(UpstreamRule {
            hosts: HostPattern("*".into()),
            ports: Vec::new(),
            base,
        });
        config.roots_pem.push(trusted);
    });
    let ours = client(&world.authority.pem());
    let theirs = client(&root);
    let through = world.direct(HOST, 443);

    let keep_alive = |config: &Arc<ClientConfig>, to| {
        let mut connection = Connection::open(config, to);
        (0..100).for_each(|_| connection.get());
        median(
            (0..1000)
                .map(|_| {
                    let start = Instant::now();
                    connection.get();
                    start.elapsed()
                })
                .collect(),
        )
    };
    let fresh = |config: &Arc<ClientConfig>, to| {
        median(
            (0..200)
                .map(|_| {
                    let start = Instant::now();
                    Connection::open(config, to).get();
                    start.elapsed()
                })
                .collect(),
        )
    };
    for round in 0..3 {
        println!(
            "round {round}: keep-alive direct {:?}, through {:?}; new connection direct {:?}, through {:?}",
            keep_alive(&theirs, origin.address),
            keep_alive(&ours, through),
            fresh(&theirs, origin.address),
            fresh(&ours, through),
        );
    }
    let load = |config: &Arc<ClientConfig>, to| {
        let start = Instant::now();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    let mut connection = Connection::open(config, to);
                    (0..250).for_each(|_| connection.get());
                });
            }
        });
        4000.0 / start.elapsed().as_secs_f64()
    };
    println!(
        "16 connections, requests/s: direct {:.0}, through {:.0}",
        load(&theirs, origin.address),
        load(&ours, through)
    );
}

/// Sends a request with a body of this size, and reads the answer's head and body.
fn exchange(
    config: &Arc<ClientConfig>,
    to: SocketAddr,
    head: &str,
    body: &[u8],
    answer_bytes: usize,
) -> Duration {
    let mut connection = Connection::open(config, to);
    connection.get();
    let start = Instant::now();
    connection.0.write_all(head.as_bytes()).unwrap();
    connection.0.write_all(body).unwrap();
    let mut seen = 0;
    let mut piece = vec![0; 256 << 10];
    while seen < answer_bytes {
        let n = connection.0.read(&mut piece).unwrap();
        assert!(n > 0);
        seen += n;
    }
    start.elapsed()
}

#[test]
#[ignore = "a measurement: run it on a quiet machine, with optimisation"]
fn throughput_beside_a_direct_connection() {
    let (root, tls) = private_server(&[HOST], true);
    let origin = Origin::secure(tls);
    let base = origin.https_base();
    let trusted = root.clone().into_bytes();
    let world = World::with(policy(), |config| {
        config.upstreams.push(UpstreamRule {
            hosts: HostPattern("*".into()),
            ports: Vec::new(),
            base,
        });
        config.roots_pem.push(trusted);
    });
    let (ours, theirs) = (client(&world.authority.pem()), client(&root));
    let through = world.direct(HOST, 443);
    let body = vec![b'u'; 256 << 20];
    let upload = format!(
        "PUT /up HTTP/1.1\r\nHost: {HOST}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let download = format!("GET /big HTTP/1.1\r\nHost: {HOST}\r\n\r\n");
    for _ in 0..2 {
        let rate = |bytes: usize, time: Duration| bytes as f64 / time.as_secs_f64() / 1e6;
        println!(
            "MB/s: upload direct {:.0}, through {:.0}; download direct {:.0}, through {:.0}",
            rate(
                body.len(),
                exchange(&theirs, origin.address, &upload, &body, 40)
            ),
            rate(body.len(), exchange(&ours, through, &upload, &body, 40)),
            rate(
                8 << 20,
                exchange(&theirs, origin.address, &download, &[], 8 << 20)
            ),
            rate(8 << 20, exchange(&ours, through, &download, &[], 8 << 20)),
        );
    }
}
