//! Kill -9 of Kairos at random instants of a session with 200 file effects and 20 requests, the resolution included.
//!
//! After each kill: every file is in its old state or in its new one; no refused request was ever seen and none was seen twice;
//! every hold that the agent was told about is still there to be reviewed; the log verifies. `KAIROS_CRASH_INSTANTS` says how
//! many instants, `KAIROS_CRASH_SEED` which; a failure tells the seed.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

use kairos_e2e::run::kairos;
use kairos_e2e::{Policy, Run, Who, Witness, Workspace};

const ALLOWED: &str = "allowed.example.test";
const HELD: &str = "held.example.test";

/// 80 new files, 80 changed, 20 removed, 20 renamed; 10 requests that the policy vouches for, 10 that are held.
const AGENT: &str = r#"
import http.client, os, time
def request(host, method, path, body=None):
    connection = http.client.HTTPConnection(host, timeout=20)
    connection.request(method, path, body)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    print("answered", host, path, answer.status, flush=True)
for n in range(80):
    time.sleep(0.008)
    with open("new-%d" % n, "w") as file:
        file.write("new %d\n" % n * 200)
    with open("changed-%d" % n, "w") as file:
        file.write("after %d\n" % n * 200)
    if n % 4 == 0:
        os.unlink("removed-%d" % (n // 4))
        os.rename("renamed-%d" % (n // 4), "moved-%d" % (n // 4))
    if n % 8 == 0:
        request("allowed.example.test", "GET", "/get-%d-" % (n // 8))
        request("held.example.test", "POST", "/post-%d-" % (n // 8), "body %d" % (n // 8))
print("agent done", flush=True)
"#;

/// Releases the POSTs with an even number, refuses the others, and leaves a mark that it was asked.
const ORACLE: &str = r#"#!/usr/bin/env python3
import json, os, re, sys, time
view = json.load(sys.stdin)
open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "asked"), "w").close()
time.sleep(0.3)
verdicts = []
for hold in view["holds"]:
    number = re.search(r"/post-(\d+)-", json.dumps(hold))
    even = number is None or int(number.group(1)) % 2 == 0
    verdicts.append({"hold": hold["id"], "verdict": "release" if even else "refuse", "reason": "even or odd"})
print(json.dumps({"verdicts": verdicts}))
"#;

#[test]
fn kill_at_random_instants() {
    let instants = number("KAIROS_CRASH_INSTANTS").unwrap_or(25);
    let seed = number("KAIROS_CRASH_SEED").unwrap_or_else(|| {
        let now = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        now.as_nanos() as u64
    });
    println!("seed {seed}, {instants} instants");
    let whole = uninterrupted();
    println!("a session takes {whole:?}");
    let mut random = seed | 1;
    let mut phases = BTreeMap::<&str, u32>::new();
    for instant in 0..instants {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        // A little past the end too: the last records are written there.
        let after = whole.mul_f64((random >> 11) as f64 / (1u64 << 53) as f64 * 1.05);
        *phases
            .entry(killed(
                after,
                &format!("seed {seed}, instant {instant}, after {after:?}"),
            ))
            .or_default() += 1;
    }
    println!("killed in these phases: {phases:?}");
    assert!(
        phases.get("working").copied().unwrap_or(0) > 0,
        "no kill fell into the agent's work: {phases:?}"
    );
}

/// The control: left alone, the session ends with everything done. Tells how long that takes.
fn uninterrupted() -> Duration {
    let scene = Scene::new();
    let start = Instant::now();
    let outcome = scene.run().finish();
    let whole = start.elapsed();
    outcome.expect_code(0);
    assert!(outcome.stdout.contains("agent done"), "{outcome}");
    let states = scene.files();
    assert!(
        states.values().all(|state| *state == State::New),
        "{states:?}\n{outcome}"
    );
    assert_eq!(scene.delivered("/get-").len(), 10, "{outcome}");
    assert_eq!(scene.delivered("/post-").len(), 5, "{outcome}");
    whole
}

fn killed(after: Duration, shown: &str) -> &'static str {
    let scene = Scene::new();
    let mut run = scene.run().start();
    run.wait(after);
    run.kill();
    let (said, complained) = run.so_far();
    let phase = match (
        said.contains("answered"),
        said.contains("agent done"),
        scene.asked(),
    ) {
        (false, ..) => "starting",
        (true, false, _) => "working",
        (_, true, false) => "done",
        (_, true, true) => "resolving",
    };
    let context = format!("{shown}, {phase}\n--- said\n{said}\n--- complained\n{complained}");
    // Whatever the processes that went down with it still had in their hands.
    std::thread::sleep(Duration::from_millis(300));
    scene.check_files(false, &context);
    scene.check_requests(&context);

    // Whoever looks next finds everything, and finishes or undoes what was half done.
    let sessions = kairos(&scene.workspace, Who::Me, &["sessions"]);
    assert_eq!(sessions.code, 0, "{sessions:?}\n{context}");
    let Some(session) = scene.session() else {
        assert!(!said.contains("answered"), "the session is lost\n{context}");
        return phase;
    };
    let review = kairos(&scene.workspace, Who::Me, &["review", &session]);
    assert_eq!(review.code, 0, "{review:?}\n{context}");
    if !scene.asked() {
        for number in 0..10 {
            if said.contains(&format!("answered {HELD} /post-{number}-")) {
                assert!(
                    review.stdout.contains(&format!("/post-{number}-")),
                    "hold {number} is lost: {review:?}\n{context}"
                );
            }
        }
    }
    let log = kairos(&scene.workspace, Who::Me, &["log", &session, "--verify"]);
    assert_eq!(log.code, 0, "{log:?}\n{context}");
    scene.check_files(true, &context);
    scene.check_requests(&context);
    phase
}

struct Scene {
    workspace: Workspace,
    witness: Witness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Old,
    New,
    Neither,
}

impl Scene {
    fn new() -> Self {
        let workspace = Workspace::plain();
        for n in 0..80 {
            workspace.write(
                &format!("changed-{n}"),
                &format!("before {n}\n").repeat(200),
            );
        }
        for n in 0..20 {
            workspace.write(&format!("removed-{n}"), "to be removed\n");
            workspace.write(&format!("renamed-{n}"), "to be renamed\n");
        }
        std::fs::write(workspace.folder().join("agent.py"), AGENT).unwrap();
        let oracle = workspace.folder().join("oracle");
        std::fs::write(&oracle, ORACLE).unwrap();
        std::fs::set_permissions(oracle, std::fs::Permissions::from_mode(0o755)).unwrap();
        let witness = Witness::start(&workspace.logs());
        Self { workspace, witness }
    }

    fn run(&self) -> Run<'_> {
        let policy = Policy::new()
            .allow(ALLOWED, Some(&self.witness.url()))
            .elsewhere(HELD, &self.witness.url());
        // What the policy vouches for need not wait for what is held.
        let policy = policy.more("[speculation]\nmode = \"matched\"");
        let oracle = format!(
            "command:{}",
            self.workspace.folder().join("oracle").display()
        );
        Run::new(&self.workspace, &["/usr/bin/python3", "-c", AGENT])
            .policy(&policy)
            .option("--oracle")
            .option(&oracle)
            .limit(Duration::from_secs(120))
    }

    fn asked(&self) -> bool {
        self.workspace.folder().join("asked").exists()
    }

    /// Paths of the requests that reached the witness.
    fn delivered(&self, prefix: &str) -> Vec<String> {
        let paths = self
            .witness
            .requests()
            .into_iter()
            .map(|request| request["path"].as_str().unwrap().to_owned());
        paths.filter(|path| path.starts_with(prefix)).collect()
    }

    /// The name of the one session that there is, if it came to that.
    fn session(&self) -> Option<String> {
        let sessions = self.workspace.state().join("kairos/sessions");
        let mut names = sessions
            .read_dir()
            .ok()?
            .flatten()
            // Killed before its log was there, it never began.
            .filter(|entry| entry.path().join("log.jsonl").exists())
            .map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.next()
    }

    /// Each file effect, and which of its two states the host shows.
    fn files(&self) -> BTreeMap<String, State> {
        let text = |name: &str| self.workspace.read(name);
        let choose = |old: bool, new: bool| match (old, new) {
            (true, false) => State::Old,
            (false, true) => State::New,
            _ => State::Neither,
        };
        let mut states = BTreeMap::new();
        for n in 0..80 {
            let new = text(&format!("new-{n}"));
            let whole = format!("new {n}\n").repeat(200);
            states.insert(
                format!("new-{n}"),
                choose(new.is_none(), new.as_ref() == Some(&whole)),
            );
            let changed = text(&format!("changed-{n}")).unwrap_or_default();
            let old = changed == format!("before {n}\n").repeat(200);
            states.insert(
                format!("changed-{n}"),
                choose(old, changed == format!("after {n}\n").repeat(200)),
            );
        }
        for n in 0..20 {
            let removed = text(&format!("removed-{n}"));
            states.insert(
                format!("removed-{n}"),
                choose(
                    removed.as_deref() == Some("to be removed\n"),
                    removed.is_none(),
                ),
            );
            // A rename is two effects, the new name and the end of the old one, in this order: at no instant is the content
            // under neither.
            let (from, to) = (text(&format!("renamed-{n}")), text(&format!("moved-{n}")));
            let (there, gone) = (from.as_deref() == Some("to be renamed\n"), from.is_none());
            let (arrived, not_yet) = (to.as_deref() == Some("to be renamed\n"), to.is_none());
            states.insert(format!("renamed-{n}"), choose(there, gone && arrived));
            states.insert(format!("moved-{n}"), choose(not_yet && there, arrived));
        }
        states
    }

    #[track_caller]
    fn check_files(&self, recovered: bool, context: &str) {
        let torn: Vec<_> = self
            .files()
            .into_iter()
            .filter(|(_, state)| *state == State::Neither)
            .map(|(name, _)| name)
            .collect();
        assert!(torn.is_empty(), "neither old nor new: {torn:?}\n{context}");
        let known = ["new-", "changed-", "removed-", "renamed-", "moved-"];
        for entry in self.workspace.path().read_dir().unwrap().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            // Half a file waits under a name of ours until whoever looks next clears it away.
            let ours = !recovered && name.starts_with(".kairos-");
            assert!(
                ours || known.iter().any(|start| name.starts_with(start)),
                "`{name}` is left behind\n{context}"
            );
        }
    }

    #[track_caller]
    fn check_requests(&self, context: &str) {
        let mut seen = BTreeMap::<String, u32>::new();
        for path in self.delivered("/post-") {
            *seen.entry(path).or_default() += 1;
        }
        for (path, times) in &seen {
            let number: u32 = path
                .trim_start_matches("/post-")
                .trim_end_matches('-')
                .parse()
                .unwrap();
            assert!(
                number.is_multiple_of(2),
                "`{path}` was refused, yet it was seen\n{context}"
            );
            assert_eq!(*times, 1, "`{path}` was sent {times} times\n{context}");
            assert!(
                self.asked(),
                "`{path}` was sent before anybody was asked\n{context}"
            );
        }
    }
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| {
        text.parse()
            .unwrap_or_else(|_| panic!("{name} is not a number: `{text}`"))
    })
}
