//! The net channel as programs inside meet it: what is allowed works without a flag, what is held does not stall them, what
//! is refused says why.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::time::{Duration, Instant};

use kairos_e2e::place::canary;
use kairos_e2e::run::kairos;
use kairos_e2e::{Outcome, Policy, Run, Who, Witness, Workspace};
use sha2::{Digest, Sha256};

const GOOD: &str = "good.example.test";
const HELD: &str = "held.example.test";

struct Scene {
    workspace: Workspace,
    witness: Witness,
}

impl Scene {
    fn new() -> Self {
        let workspace = Workspace::plain();
        let witness = Witness::start(&workspace.logs());
        Self { workspace, witness }
    }

    /// A session in which [`GOOD`] is allowed, and [`HELD`] leads to the witness as well.
    fn run(&self, script: &str) -> Outcome {
        let policy = Policy::new()
            .allow(GOOD, Some(&self.witness.url()))
            .elsewhere(HELD, &self.witness.url());
        Run::shell(&self.workspace, script).policy(&policy).finish()
    }

    fn paths(&self) -> Vec<String> {
        self.witness
            .requests()
            .iter()
            .map(|request| request["path"].as_str().unwrap().to_owned())
            .collect()
    }
}

/// `script` reaches `https://GOOD/canary...` without a flag.
#[track_caller]
fn trusts(script: &str) {
    let scene = Scene::new();
    let word = canary();
    let outcome = scene.run(&script.replace("{url}", &format!("https://{GOOD}/{word}")));
    assert!(scene.witness.sees(&word), "{outcome}");
}

#[test]
fn curl_trusts_the_boundary() {
    trusts("curl -sS {url}");
}

#[test]
fn curl_trusts_it_with_an_empty_environment() {
    trusts("env -i /usr/bin/curl -sS {url}");
}

#[test]
fn python_trusts_the_boundary() {
    trusts("/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"{url}\").read()'");
}

#[test]
fn node_trusts_the_boundary() {
    trusts("node -e 'fetch(\"{url}\").then(r => r.text()).then(console.log)'");
}

#[test]
fn openssl_trusts_the_boundary() {
    trusts(&format!(
        "printf 'GET /%s HTTP/1.1\\r\\nHost: {GOOD}\\r\\nConnection: close\\r\\n\\r\\n' $(basename {{url}}) | \
         openssl s_client -quiet -verify_return_error -servername {GOOD} -connect {GOOD}:443"
    ));
}

/// A runtime with a store of its own, in a form of its own, and an environment without a hint.
#[test]
fn java_trusts_the_boundary() {
    trusts(
        "cat > Get.java <<'END'
public class Get {
    public static void main(String[] to) throws Exception {
        System.out.println(((java.net.HttpURLConnection) new java.net.URL(to[0]).openConnection()).getResponseCode());
    }
}
END
env -i PATH=/usr/bin:/bin java Get.java {url}",
    );
}

#[test]
fn git_trusts_the_boundary() {
    trusts("git ls-remote {url}.git");
}

#[test]
fn a_proxy_that_the_user_is_used_to_works_as_well() {
    trusts("curl -sS -x http://proxy.example.test:3128 {url}");
    let scene = Scene::new();
    let outcome = scene.run(&format!(
        "curl -sS -x http://proxy.example.test:3128 http://{GOOD}/plain"
    ));
    assert_eq!(scene.paths(), ["/plain"], "{outcome}");
}

#[test]
fn one_connection_carries_many_requests() {
    let scene = Scene::new();
    let outcome = scene.run(&format!(
        "/usr/bin/python3 -c '
import http.client
c = http.client.HTTPSConnection(\"{GOOD}\")
for n in range(5):
    c.request(\"POST\", \"/%d\" % n, \"body\")
    r = c.getresponse()
    print(r.status, r.read())
'"
    ));
    outcome.expect_code(0);
    assert_eq!(scene.paths(), ["/0", "/1", "/2", "/3", "/4"], "{outcome}");
}

#[test]
fn a_body_in_chunks_arrives_whole() {
    let scene = Scene::new();
    let body: Vec<u8> = (0..3_000_000u32)
        .map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8)
        .collect();
    std::fs::write(scene.workspace.path().join("body"), &body).unwrap();
    let outcome = scene.run(&format!(
        "curl -sS -T - -X POST https://{GOOD}/upload < body"
    ));
    let requests = scene.witness.requests();
    assert_eq!(requests.len(), 1, "{outcome}");
    assert_eq!(
        requests[0]["sha256"],
        hex::encode(Sha256::digest(&body)),
        "{outcome}"
    );
}

#[test]
fn a_large_answer_arrives_whole() {
    let scene = Scene::new();
    let outcome = scene.run(&format!("curl -sS https://{GOOD}/bytes/20000000 | wc -c"));
    assert!(outcome.stdout.contains("20000000"), "{outcome}");
}

#[test]
fn server_sent_events_are_streamed() {
    let scene = Scene::new();
    let outcome = scene.run(&format!(
        "curl -sSN https://{GOOD}/events | while read line; do [ -n \"$line\" ] && echo \"$(date +%s%N) $line\"; done"
    ));
    let times: Vec<u64> = outcome
        .stdout
        .lines()
        .filter(|line| line.contains(" data: "))
        .map(|line| line.split(' ').next().unwrap().parse().unwrap())
        .collect();
    assert_eq!(times.len(), 3, "{outcome}");
    assert!(
        times[2] - times[0] > 400_000_000,
        "the events came all at once: {times:?}\n{outcome}"
    );
}

#[test]
fn a_held_post_gets_a_stub_and_the_program_goes_on() {
    let scene = Scene::new();
    let outcome = scene.run(&format!(
        "curl -sS --fail -d x http://{HELD}/post && echo went on"
    ));
    assert!(outcome.stdout.contains("went on"), "{outcome}");
    outcome.expect_code(75);
    assert_eq!(scene.witness.connections(), 0, "{outcome}");
    assert_eq!(outcome.listed("held", "/post").len(), 1, "{outcome}");
}

#[test]
fn a_get_that_nobody_is_there_to_decide_is_refused_at_once_and_kept_in_the_list() {
    let scene = Scene::new();
    let start = Instant::now();
    let outcome = scene.run(&format!("curl -sS -i http://{HELD}/get"));
    assert!(start.elapsed() < Duration::from_secs(20), "{outcome}");
    assert_eq!(scene.witness.connections(), 0, "{outcome}");
    let said = outcome.stdout.to_lowercase();
    assert!(said.contains("kairos"), "it says who refused\n{outcome}");
    assert!(
        !said.contains("noproxy") && !said.contains("--no-sandbox"),
        "it names no way round\n{outcome}"
    );
    let kept = outcome.listed("refused", "/get").len() + outcome.listed("held", "/get").len();
    assert_eq!(kept, 1, "{outcome}");
}

#[test]
fn telemetry_to_the_models_own_host_is_no_model_traffic() {
    let workspace = Workspace::plain();
    let witness = Witness::start(&workspace.logs());
    let policy = Policy::new().provider("api.anthropic.com", &witness.url());
    let script = "curl -sS -d '{}' https://api.anthropic.com/api/event_logging/v2/batch; \
                  curl -sS -H 'content-type: application/json' -d '{\"messages\":[]}' https://api.anthropic.com/v1/messages";
    let outcome = Run::shell(&workspace, script).policy(&policy).finish();
    let paths: Vec<_> = witness
        .requests()
        .iter()
        .map(|request| request["path"].clone())
        .collect();
    assert_eq!(paths, ["/v1/messages"], "{outcome}");
}

#[test]
fn a_server_of_the_agents_own_is_reachable_inside() {
    let scene = Scene::new();
    let outcome = scene.run(
        "echo here > index.html; /usr/bin/python3 -m http.server 3000 >/dev/null 2>&1 & sleep 1; \
         curl -sS http://localhost:3000/index.html; curl -sS http://127.0.0.1:3000/index.html; kill %1 2>/dev/null; true",
    );
    assert_eq!(outcome.stdout.matches("here\n").count(), 2, "{outcome}");
}

/// Only what is published is reachable from outside, and it is the agent's own service that answers.
#[test]
fn a_published_port_leads_to_the_agents_own_service() {
    use std::io::{Read, Write};
    let scene = Scene::new();
    let free = || {
        std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap()
            .port()
    };
    let (outside, inside, other) = (free(), free(), free());
    let script = format!(
        "/usr/bin/python3 -c '
import http.server, threading
class Service(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b\"here\\n\")
        if self.path == \"/end\":
            threading.Thread(target=self.server.shutdown).start()
other = http.server.HTTPServer((\"127.0.0.1\", {other}), Service)
http.server.HTTPServer((\"127.0.0.1\", {inside}), Service).serve_forever()
'"
    );
    let run = Run::shell(&scene.workspace, &script)
        .policy(&Policy::new())
        .option("--publish")
        .option(&format!("{outside}:{inside}"));
    let running = std::thread::scope(|scope| {
        let running = scope.spawn(|| run.limit(Duration::from_secs(90)).finish());
        let get = |path: &str| {
            let mut got = String::new();
            if let Ok(mut stream) = std::net::TcpStream::connect(("127.0.0.1", outside)) {
                let _ = stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes());
                let _ = stream.read_to_string(&mut got);
            }
            got
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let mut got = get("/");
        while !got.ends_with("here\n") && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(50));
            got = get("/");
        }
        assert!(got.ends_with("here\n"), "{got:?}");
        assert!(
            std::net::TcpStream::connect(("127.0.0.1", other)).is_err(),
            "what is not published is not reachable"
        );
        get("/end");
        running.join().unwrap()
    });
    let log = kairos(&scene.workspace, Who::Me, &["log", running.session()]);
    assert!(log.stdout.contains("port published"), "{log:?}");
}

#[test]
fn a_port_that_is_taken_outside_is_told() {
    let scene = Scene::new();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let outcome = kairos(
        &scene.workspace,
        Who::Me,
        &["run", "--publish", &format!("{port}"), "--", "true"],
    );
    assert!(
        outcome
            .stderr
            .contains(&format!("cannot publish port {port}"))
            && outcome.stderr.contains("OTHER"),
        "{outcome:?}"
    );
}

#[test]
fn fifty_identical_requests_are_one_decision() {
    let scene = Scene::new();
    let outcome = scene.run(&format!(
        "for n in $(seq 50); do curl -sS -d same http://{HELD}/same >/dev/null; done"
    ));
    outcome.expect_code(75);
    let review = kairos(&scene.workspace, Who::Me, &["review", outcome.session()]);
    let told = review.stdout.matches("/same").count();
    assert!(
        (1..10).contains(&told),
        "they are told one by one ({told}): {review:?}"
    );
}

#[test]
fn names_resolve_without_a_query_leaving() {
    let scene = Scene::new();
    let outcome = scene.run(
        "getent ahosts some.example.test && getent ahostsv6 other.example.test && echo resolved",
    );
    assert!(outcome.stdout.contains("resolved"), "{outcome}");
}

/// A tail of the log has a record for each request with what it took, and ends with its session.
#[test]
fn the_log_can_be_followed_and_tells_times() {
    let scene = Scene::new();
    let policy = Policy::new().allow(GOOD, Some(&scene.witness.url()));
    let script = format!("curl -sS https://{GOOD}/timed >/dev/null; sleep 2");
    std::thread::scope(|scope| {
        let session = scope.spawn(|| {
            let run = Run::shell(&scene.workspace, &script).policy(&policy);
            run.finish()
        });
        // Followed from when it is there to its end.
        let deadline = Instant::now() + Duration::from_secs(60);
        let followed = loop {
            let followed = kairos(&scene.workspace, Who::Me, &["log", "--follow", "--json"]);
            if followed.stdout.contains("agent ended") {
                break followed;
            }
            assert!(Instant::now() < deadline, "{followed:?}");
            std::thread::sleep(Duration::from_millis(50));
        };
        let outcome = session.join().unwrap();
        let whole = kairos(
            &scene.workspace,
            Who::Me,
            &["log", "--json", outcome.session()],
        );
        assert!(whole.stdout.starts_with(&followed.stdout), "{followed:?}");
        let done = whole
            .stdout
            .lines()
            .find(|line| line.contains("answered after") && line.contains(" ms, ended after"));
        assert!(done.is_some(), "{whole:?}");
    });
}

#[test]
fn udp_fails_fast_so_that_clients_fall_back() {
    let scene = Scene::new();
    let outcome = scene.run(&format!(
        "/usr/bin/python3 -c '
import socket, time
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(3)
s.connect((\"{GOOD}\", 443))
start = time.time()
try:
    s.send(b\"x\")
    s.recv(1)
except ConnectionRefusedError:
    print(\"refused after\", time.time() - start < 1)
'"
    ));
    assert!(outcome.stdout.contains("refused after True"), "{outcome}");
}
