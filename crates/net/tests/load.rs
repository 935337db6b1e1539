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
                    for _ in 0..5 {
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
        1250,
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
