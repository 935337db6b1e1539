//! A session over a real log on a real disk: what is recorded, spent, carried out and recovered.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use kernel::policy::{NoRules, Policy, Rules};
use kernel::{
    Carried, Channel, Class, Digest, Effect, EventId, HoldId, Level, Notice, Object, Operation,
    Payload, Refusal, Verdict,
};
use monitor::resolve::resolve;
use monitor::session::{Parts, SystemChance, SystemClock};
use monitor::{Answer, Held, Judgement, Oracle, Outcome, Session, View};
use store::{Blobs, Disk, Lease, Log, MemoryDisk, OsDisk, Parked, Record, SessionDir};

/// What left, in order.
#[derive(Default)]
struct Sink {
    sent: Mutex<Vec<HoldId>>,
    dropped: Mutex<Vec<HoldId>>,
}

impl monitor::Channel for Sink {
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String> {
        assert_eq!(lease.manifest(), held.manifest);
        self.sent.lock().unwrap().push(held.hold);
        Ok("sent".into())
    }

    fn abort(&self, held: &Held, _: &Refusal, _: &Notice) {
        self.dropped.lock().unwrap().push(held.hold);
    }
}

fn now() -> String {
    "t".to_string()
}

fn header() -> Record {
    Record::Header {
        format: 1,
        session: "s".into(),
        workspace: "w".into(),
        epoch: Digest::default().hex(),
        command: Vec::new(),
        started: now(),
        version: "0".into(),
    }
}

fn open(dir: &Path) -> (Arc<Session>, Arc<Sink>) {
    open_on(&OsDisk::shared(), dir)
}

fn open_on(disk: &Arc<dyn Disk>, dir: &Path) -> (Arc<Session>, Arc<Sink>) {
    open_under(disk, dir, Policy::default(), Arc::new(NoRules))
}

fn open_under(
    disk: &Arc<dyn Disk>,
    dir: &Path,
    policy: Policy,
    rules: Arc<dyn Rules + Send + Sync>,
) -> (Arc<Session>, Arc<Sink>) {
    let path = dir.join("log.jsonl");
    let blobs = Blobs::open_dir_on(disk, &dir.join("blobs")).unwrap();
    let (log, recovered) = if disk.contains(&path) {
        let (log, entries) = Log::resume_on(disk, &path, now).unwrap();
        (
            log,
            Some(store::recover(&entries, &blobs, &policy, &NoRules).unwrap()),
        )
    } else {
        let mut log = Log::create_on(disk, &path, now).unwrap();
        log.append(&header()).unwrap();
        (log, None)
    };
    let session = Session::new(Parts {
        policy: Arc::new(policy),
        rules,
        log,
        dir: SessionDir::at(dir),
        blobs,
        workspace: "w".into(),
        chance: Arc::new(SystemChance),
        clock: Arc::new(SystemClock::default()),
        labels: None,
        recovered,
    });
    let sink = Arc::new(Sink::default());
    session.attach(Channel::Net, Arc::clone(&sink) as Arc<dyn monitor::Channel>);
    (session, sink)
}

fn post(path: &str) -> Effect {
    Effect {
        channel: Channel::Net,
        operation: Operation::Request("POST".into()),
        object: Object::Party {
            scheme: "https".into(),
            host: "party.example".into(),
            port: 443,
            path: path.into(),
        },
        class: Class::Stallable,
        gated: Vec::new(),
        arguments: Vec::new(),
        carries: Carried::nothing(),
        payload: Payload {
            digest: Digest::of(path.as_bytes()),
            bytes: 1,
        },
        base: None,
        saw: Vec::new(),
        fields: BTreeMap::new(),
        about: String::new(),
    }
}

fn hold(session: &Session, path: &str) -> Held {
    match session.propose(post(path), Parked::default(), &mut |_| {}) {
        Outcome::Held(held) => held,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_hold_is_carried_out_once_in_order_and_only_as_it_was_seen() {
    let dir = tempfile::tempdir().unwrap();
    let (session, sink) = open(dir.path());
    let first = hold(&session, "/1");
    let second = hold(&session, "/2");
    assert_eq!(second.question.depends, [first.hold]);
    let stale = session.verdict(first.hold, second.manifest, Verdict::Release, "o", "r");
    assert!(stale.unwrap_err().contains("void"));
    session
        .verdict(second.hold, second.manifest, Verdict::Release, "o", "r")
        .unwrap();
    assert!(
        sink.sent.lock().unwrap().is_empty(),
        "it waits for the one before"
    );
    session
        .verdict(first.hold, first.manifest, Verdict::Release, "o", "r")
        .unwrap();
    assert_eq!(*sink.sent.lock().unwrap(), [first.hold, second.hold]);
    assert!(
        session
            .verdict(first.hold, first.manifest, Verdict::Release, "o", "r")
            .is_err()
    );
    assert_eq!(sink.sent.lock().unwrap().len(), 2);
}

#[test]
fn refusing_takes_what_depends_on_it_along_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let (session, sink) = open(dir.path());
    let first = hold(&session, "/1");
    let second = hold(&session, "/2");
    session
        .verdict(second.hold, second.manifest, Verdict::Refuse, "o", "r")
        .unwrap();
    assert_eq!(*sink.dropped.lock().unwrap(), [second.hold]);
    let third = hold(&session, "/3");
    session
        .verdict(first.hold, first.manifest, Verdict::Refuse, "o", "r")
        .unwrap();
    assert_eq!(
        *sink.dropped.lock().unwrap(),
        [second.hold, first.hold, third.hold]
    );
    assert!(session.held().is_empty());
    assert!(sink.sent.lock().unwrap().is_empty());
}

#[test]
fn another_process_goes_on_where_this_one_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = open(dir.path());
    let first = hold(&session, "/1");
    let second = hold(&session, "/2");
    drop(session);
    let (session, sink) = open(dir.path());
    let held = session.held();
    assert_eq!(
        held.iter()
            .map(|h| (h.hold, h.manifest))
            .collect::<Vec<_>>(),
        [(first.hold, first.manifest), (second.hold, second.manifest)]
    );
    session
        .verdict(first.hold, first.manifest, Verdict::Release, "o", "r")
        .unwrap();
    assert_eq!(*sink.sent.lock().unwrap(), [first.hold]);
    drop(session);
    let (session, sink) = open(dir.path());
    assert!(session.is_spent(EventId(first.hold.0)));
    assert!(
        session
            .verdict(first.hold, first.manifest, Verdict::Release, "o", "r")
            .is_err()
    );
    assert!(sink.sent.lock().unwrap().is_empty());
}

/// Cut the log at every byte: whatever was spent stays spent, whatever was not is still held or
/// was never seen, and nothing is both.
#[test]
fn a_log_cut_anywhere_never_sends_twice_and_loses_no_hold() {
    let dir = tempfile::tempdir().unwrap();
    let (session, _) = open(dir.path());
    let holds: Vec<Held> = (0..3).map(|n| hold(&session, &format!("/{n}"))).collect();
    for held in holds.iter().take(2) {
        session
            .verdict(held.hold, held.manifest, Verdict::Release, "o", "r")
            .unwrap();
    }
    drop(session);
    let whole = std::fs::read(dir.path().join("log.jsonl")).unwrap();
    for cut in 1..whole.len() {
        let disk = MemoryDisk::shared();
        let mut log = disk.create(Path::new("log.jsonl")).unwrap();
        log.write_all(&whole[..cut]).unwrap();
        let (session, sink) = open_on(&disk, Path::new(""));
        let proposed: BTreeSet<HoldId> = holds
            .iter()
            .map(|h| h.hold)
            .filter(|h| recorded(&whole[..cut], *h))
            .collect();
        let held: BTreeSet<HoldId> = session.held().iter().map(|h| h.hold).collect();
        for name in &proposed {
            let spent = session.is_spent(EventId(name.0));
            // A verdict that was recorded and whose permit was not spent commits nothing by itself:
            // it is neither held nor spent only if the cut fell exactly between the two records.
            if !held.contains(name) && !spent {
                assert!(between(&whole[..cut]), "cut {cut}: {name} is lost");
            }
            assert!(
                !(held.contains(name) && spent),
                "cut {cut}: {name} is held and spent"
            );
        }
        for item in session.held() {
            let _ = session.verdict(item.hold, item.manifest, Verdict::Release, "o", "r");
        }
        let sent = sink.sent.lock().unwrap().clone();
        let unique: BTreeSet<HoldId> = sent.iter().copied().collect();
        assert_eq!(sent.len(), unique.len());
        assert!(
            sent.iter().all(|h| held.contains(h)),
            "cut {cut}: sent what was spent before"
        );
    }
}

fn recorded(log: &[u8], hold: HoldId) -> bool {
    let text = String::from_utf8_lossy(log);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole.lines().any(|line| {
        line.contains("\"proposed\"") && line.contains(&format!("\"event\":{},", hold.0))
    })
}

fn between(log: &[u8]) -> bool {
    let text = String::from_utf8_lossy(log);
    let whole = text.rfind('\n').map_or("", |end| &text[..end]);
    whole
        .lines()
        .last()
        .is_some_and(|line| line.contains("\"verdict\""))
}

struct Says(Judgement);

impl Oracle for Says {
    fn name(&self) -> String {
        "says".into()
    }
    fn judge(&self, _: &View) -> Judgement {
        self.0.clone()
    }
}

/// A guard that declines one path while the session runs, and is gone when it is recovered.
struct Declines;

impl Rules for Declines {
    fn forbids(&self, effect: &Effect, _: Level, _: bool) -> Result<Option<Refusal>, String> {
        let declined = effect.object.to_string().ends_with("/declined");
        Ok(declined.then(|| Refusal::Rule {
            rule: "guard sensitive-egress".into(),
            says: None,
        }))
    }
}

#[test]
fn what_a_guard_declined_stays_declined() {
    let dir = tempfile::tempdir().unwrap();
    let disk = OsDisk::shared();
    let (session, _) = open_under(&disk, dir.path(), Policy::default(), Arc::new(Declines));
    let declined = session.propose(post("/declined"), Parked::default(), &mut |_| {});
    assert!(matches!(declined, Outcome::Refused { .. }), "{declined:?}");
    let kept = hold(&session, "/kept");
    drop(session);
    let (session, _) = open_under(&disk, dir.path(), Policy::default(), Arc::new(NoRules));
    let held: Vec<HoldId> = session.held().iter().map(|held| held.hold).collect();
    assert_eq!(held, [kept.hold]);
}

#[test]
fn what_does_not_bind_is_released_and_says_what_it_would_have_been() {
    let dir = tempfile::tempdir().unwrap();
    let policy = Policy {
        unbound: Some("shadow"),
        ..Policy::default()
    };
    let disk = OsDisk::shared();
    let (session, _) = open_under(&disk, dir.path(), policy.clone(), Arc::new(Declines));
    let mut malformed = post("/malformed");
    malformed.fields = BTreeMap::from([("malformed".into(), "two hosts".into())]);
    for (effect, happens) in [
        (post("/held"), true),
        (post("/declined"), true),
        (malformed, false),
    ] {
        let what = effect.object.to_string();
        let outcome = session.propose(effect, Parked::default(), &mut |_| {});
        let released = matches!(outcome, Outcome::Released(_));
        assert_eq!(released, happens, "{what}: {outcome:?}");
    }
    drop(session);
    let log = std::fs::read_to_string(dir.path().join("log.jsonl")).unwrap();
    assert!(log.contains("shadow: it would be held: the policy does not name"));
    assert!(log.contains("shadow: it would be refused: rule `guard sensitive-egress` forbids it"));
    // Recovered, it still holds nothing.
    let (session, _) = open_under(&disk, dir.path(), policy, Arc::new(NoRules));
    assert!(session.held().is_empty());
}

#[test]
fn an_oracle_that_does_not_answer_refuses_and_one_that_is_not_there_keeps() {
    let dir = tempfile::tempdir().unwrap();
    let (session, sink) = open(dir.path());
    let held = hold(&session, "/1");
    let kept = resolve(&session, &Says(Judgement::Keep("nobody".into())), None);
    assert_eq!(kept.kept.as_deref(), Some("nobody"));
    assert_eq!(session.held().len(), 1);
    let stray = Answer {
        hold: HoldId(99),
        manifest: held.manifest,
        verdict: Some(Verdict::Release),
        reason: String::new(),
    };
    let resolved = resolve(&session, &Says(Judgement::Answers(vec![stray])), None);
    assert_eq!(resolved.refused, [held.hold]);
    assert_eq!(resolved.notes.len(), 1);
    let held = hold(&session, "/2");
    let resolved = resolve(&session, &Says(Judgement::Failed("prose".into())), None);
    assert_eq!(resolved.refused, [held.hold]);
    assert!(sink.sent.lock().unwrap().is_empty());
}
