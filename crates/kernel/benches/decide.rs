//! How long a decision takes (policy and gated values, no body) with a hundred rules and a million
//! trusted values, and how fast content is learned.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    missing_docs,
    reason = "bench code"
)]

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use kernel::manifest::Nonce;
use kernel::policy::{
    FieldPattern, Gate, Gates, HostPattern, NamePattern, NoRules, PathRule, Policy, SourcePattern,
    SourceRule, ToolEffect, ToolRule,
};
use kernel::{
    Channel, Class, Content, Effect, EventId, Incoming, Input, Kind, KindSet, Leaf, Level, Object,
    Operation, Party, Source, State, step,
};

/// A hundred rules: parties, tools, sources.
fn policy() -> Policy {
    let party = |n: usize| Party {
        name: format!("party {n}"),
        hosts: vec![
            HostPattern(format!("*.p{n}.example")),
            HostPattern(format!("p{n}.example")),
        ],
        ports: vec![443],
        clearance: Level::Public,
        methods: vec!["GET".into()],
        paths: Vec::new(),
        internal: Vec::new(),
        blocking: Vec::new(),
        named: vec![PathRule {
            methods: vec!["POST".into()],
            path: kernel::policy::Glob("/v1/**".into()),
        }],
        gate: Gate::Host,
    };
    let tool = |n: usize| ToolRule {
        name: NamePattern(format!("tool_{n}")),
        effect: ToolEffect::Act,
        class: Class::Stallable,
        gate: vec![Gates::Whole(
            FieldPattern("recipient".into()),
            KindSet::of(&[Kind::Email]),
        )],
        selects: Vec::new(),
        clearance: Level::Public,
    };
    let mut parties: Vec<Party> = (0..45).map(party).collect();
    parties.push(Party {
        hosts: vec![HostPattern("*".into())],
        ports: Vec::new(),
        gate: Gate::Url,
        named: Vec::new(),
        ..party(45)
    });
    let mut sources = vec![
        SourceRule {
            of: SourcePattern::Task,
            trusted: KindSet::ALL,
        },
        SourceRule {
            of: SourcePattern::Tool(NamePattern("trusted_*".into())),
            trusted: KindSet::ALL,
        },
    ];
    sources.extend((0..12).map(|n| SourceRule {
        of: SourcePattern::Party(HostPattern(format!("s{n}.example"))),
        trusted: KindSet::of(&[Kind::Url]),
    }));
    Policy {
        parties,
        sources,
        tools: (0..40).map(tool).collect(),
        speculation: kernel::policy::Speculation::Matched,
        ..Policy::default()
    }
}

fn incoming(source: Source, text: &str) -> Incoming {
    Incoming::new(Channel::Tool, source, Content::new(text.as_bytes()))
}

fn learn(state: &mut State, policy: &Policy, event: u64, incoming: Incoming) {
    let event = EventId(event);
    step(
        state,
        policy,
        &NoRules,
        "w",
        Input::Incoming { event, incoming },
    );
}

/// Mail addresses, URLs and words, ten distinct values to a line.
fn content(from: usize, lines: usize) -> String {
    (from..from + lines)
        .map(|n| {
            format!("user{n}@corp{n}.example wrote about https://site{n}.example/page/{n} and word{n} in file{n}/x{n}\n")
        })
        .collect()
}

fn filled(policy: &Policy) -> State {
    let mut state = State::default();
    learn(
        &mut state,
        policy,
        1,
        incoming(
            Source::Task,
            "Write to bob@corp.example and read https://docs.example/guide, please.",
        ),
    );
    for chunk in 0..100 {
        let text = content(chunk * 1000, 1000);
        let source = Source::Tool("trusted_directory".into());
        learn(
            &mut state,
            policy,
            2 + chunk as u64,
            incoming(source, &text),
        );
    }
    state
}

fn call(to: &str) -> Effect {
    let object = Object::Tool {
        name: "tool_39".into(),
    };
    let mut effect = Effect::new(Channel::Tool, Operation::Call, object, Class::Stallable);
    effect.arguments = vec![
        Leaf::new("recipient", to),
        Leaf::new("subject", "the weekly report"),
        Leaf::new("body", "as you asked, here it is"),
    ];
    effect
}

fn get(host: &str, path: &str) -> Effect {
    let object = Object::Party {
        scheme: "https".into(),
        host: host.into(),
        port: 443,
        path: path.into(),
    };
    Effect::new(
        Channel::Net,
        Operation::Request("GET".into()),
        object,
        Class::Blocking,
    )
}

fn decide(c: &mut Criterion) {
    let policy = policy();
    let state = filled(&policy);
    let mut group = c.benchmark_group("decide");
    for (name, effect, released) in [
        ("tool, released", call("user77777@corp77777.example"), true),
        ("tool, task's", call("Bob@corp.example"), true),
        ("tool, deferred", call("eve@elsewhere.example"), false),
        ("url, released", get("site4711.example", "/page/4711"), true),
        (
            "url, below",
            get("docs.example", "/guide/chapter/one?q=2"),
            true,
        ),
        (
            "url, deferred",
            get("elsewhere.example", "/page/4711/and/more"),
            false,
        ),
    ] {
        let decision = policy.decide(&NoRules, &effect, state.provenance(), &[]);
        assert_eq!(
            matches!(decision, kernel::Decision::Release(_)),
            released,
            "{name}: {decision:?}"
        );
        group.bench_function(name, |b| {
            b.iter(|| policy.decide(&NoRules, black_box(&effect), state.provenance(), &[]))
        });
    }
    group.finish();
    let mut state = state;
    let mut number = 1_000_000;
    c.bench_function("step, released", |b| {
        b.iter_batched(
            || call("user77777@corp77777.example"),
            |effect| {
                number += 1;
                let input = Input::Propose {
                    event: EventId(number),
                    effect,
                    nonce: Nonce([7; 16]),
                    in_doubt: false,
                };
                step(&mut state, &policy, &NoRules, "w", input)
            },
            BatchSize::SmallInput,
        )
    });
}

fn learning(c: &mut Criterion) {
    let policy = policy();
    let text = content(0, 1000);
    let mut group = c.benchmark_group("learn");
    group.throughput(Throughput::Bytes(text.len() as u64));
    for (name, source) in [("trusted", "trusted_directory"), ("other", "search")] {
        group.bench_function(name, |b| {
            b.iter_batched(
                || {
                    (
                        State::default(),
                        incoming(Source::Tool(source.into()), &text),
                    )
                },
                |(mut state, incoming)| {
                    learn(&mut state, &policy, 1, incoming);
                    state
                },
                BatchSize::LargeInput,
            )
        });
    }
    group.finish();
}

criterion_group!(benches, decide, learning);
criterion_main!(benches);
