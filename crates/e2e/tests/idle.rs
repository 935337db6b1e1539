//! A stream that says nothing for ten minutes is still there afterwards: `just idle`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use kairos_e2e::{Policy, Run, Workspace};

/// Five events, one a second, silence, and one more. Returns when each was sent.
fn serve(listener: &TcpListener, idle: Duration) -> Vec<f64> {
    let (mut stream, _) = listener.accept().unwrap();
    let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
    while !lines.next().unwrap().unwrap().is_empty() {}
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let mut sent = Vec::new();
    for n in 0..6 {
        if n > 0 {
            std::thread::sleep(if n == 5 { idle } else { Duration::from_secs(1) });
        }
        let now = std::time::SystemTime::now();
        let now = now.duration_since(std::time::UNIX_EPOCH).unwrap();
        sent.push(now.as_secs_f64());
        stream
            .write_all(format!("data: {n}\n\n").as_bytes())
            .unwrap();
    }
    sent
}

#[test]
#[ignore = "takes ten minutes: `just idle`"]
fn events_come_at_once_and_after_ten_idle_minutes() {
    let idle = std::env::var("KAIROS_IDLE_SECONDS").map_or(600, |text| text.parse().unwrap());
    let idle = Duration::from_secs(idle);
    let workspace = Workspace::plain();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = format!("http://{}", listener.local_addr().unwrap());
    let policy = Policy::new().allow("events.example.test", Some(&upstream));
    let script = "curl -sSN https://events.example.test/stream | \
                  while read line; do [ -n \"$line\" ] && echo \"$(date +%s.%N) $line\"; done";
    let start = Instant::now();
    let (sent, outcome) = std::thread::scope(|scope| {
        let server = scope.spawn(|| serve(&listener, idle));
        let run = Run::shell(&workspace, script)
            .policy(&policy)
            .limit(idle + Duration::from_secs(120));
        let outcome = run.finish();
        (server.join().unwrap(), outcome)
    });
    let arrived: Vec<f64> = outcome
        .stdout
        .lines()
        .filter(|line| line.contains(" data: "))
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(arrived.len(), 6, "{outcome}");
    let late: Vec<f64> = arrived
        .iter()
        .zip(&sent)
        .map(|(got, sent)| got - sent)
        .collect();
    eprintln!(
        "events came after {late:.4?} s; the stream was open for {:?}",
        start.elapsed()
    );
    assert!(late.iter().all(|late| *late < 0.2), "{late:?}");
}
