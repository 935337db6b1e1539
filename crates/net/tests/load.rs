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

use common::{Origin, World, policy};

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
    burst(50);
    std::thread::sleep(Duration::from_millis(500));
    let before = descriptors();
    burst(200);
    std::thread::sleep(Duration::from_millis(1000));
    assert_eq!(
        origin.seen().len(),
        1250,
        "every request arrived, and arrived once"
    );
    assert!(
        descriptors() < before + 40,
        "{before} before, {} after",
        descriptors()
    );
}
