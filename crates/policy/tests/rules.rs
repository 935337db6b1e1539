//! What rules refuse, and that a rule which cannot be evaluated refuses, too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

use std::collections::BTreeMap;

use kernel::policy::Rules as _;
use kernel::{
    Carried, Channel, Class, Digest, Effect, FileOp, Gated, Kind, Level, Object, Operation,
    Payload, Refusal,
};

fn load(cedar: &str) -> policy::Loaded {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("kairos.toml");
    std::fs::write(&path, "rules = \"r.cedar\"\n").unwrap();
    std::fs::write(dir.path().join("r.cedar"), cedar).unwrap();
    policy::load(Some(&path), dir.path(), dir.path()).unwrap_or_else(|errors| panic!("{errors}"))
}

fn effect(operation: Operation, object: Object) -> Effect {
    Effect {
        channel: Channel::Net,
        operation,
        object,
        class: Class::Blocking,
        gated: vec![Gated::new("recipient", Kind::Email, "eve@example.org")],
        arguments: Vec::new(),
        carries: Carried::nothing(),
        payload: Payload {
            digest: Digest::of(b"x"),
            bytes: 2000,
        },
        base: None,
        saw: vec![],
        fields: BTreeMap::new(),
        about: String::new(),
    }
}

fn request(method: &str, url: &str) -> Effect {
    let (scheme, rest) = url.split_once("://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    let object = Object::Party {
        scheme: scheme.to_string(),
        host: host.to_string(),
        port: 443,
        path: path.to_string(),
    };
    effect(Operation::Request(method.to_string()), object)
}

fn file(operation: FileOp, path: &str) -> Effect {
    let object = Object::Location {
        tree: "workspace".to_string(),
        path: path.to_string(),
    };
    effect(Operation::File(operation), object)
}

fn broken(cedar: &str, effect: &Effect, level: Level, untrusted: bool) -> bool {
    load(cedar)
        .rules
        .forbids(effect, level, untrusted)
        .unwrap()
        .is_some()
}

#[test]
fn a_rule_is_named_and_says_why() {
    let loaded = load(
        "@name(\"no-put\")\n@says(\"releases are made by CI\")\nforbid(principal, action == \
         Kairos::Action::\"request\", resource) when { context.operation == \"PUT\" };",
    );
    assert_eq!(
        loaded
            .rules
            .forbids(&request("PUT", "https://a.example/x"), Level::Public, false),
        Ok(Some(Refusal::Rule {
            rule: "no-put".to_string(),
            says: Some("releases are made by CI".to_string()),
        }))
    );
    assert_eq!(
        loaded
            .rules
            .forbids(&request("GET", "https://a.example/x"), Level::Public, false),
        Ok(None)
    );
}

#[test]
fn rules_see_what_the_schema_says() {
    let put = request("PUT", "https://a.example/x/y?q=1");
    let address = request("GET", "http://10.1.2.3/");
    let hook = file(FileOp::Create, ".git/hooks/pre-commit");
    let gone = file(FileOp::Delete, "src/main.rs");
    let model = request("POST", "https://api.openai.com/v1/responses");
    for (when, effect, expect) in [
        (
            "resource is Kairos::Party && resource.path == \"/x/y\" && resource.query == \"q=1\"",
            &put,
            true,
        ),
        (
            "resource is Kairos::Party && resource.name == \"anybody\"",
            &put,
            true,
        ),
        (
            "resource is Kairos::Party && resource.name == \"openai\" && context.internal",
            &model,
            true,
        ),
        (
            "resource is Kairos::Party && resource has ip && resource.ip.isInRange(ip(\"10.0.0.0/8\"))",
            &address,
            true,
        ),
        (
            "resource is Kairos::Party && resource has ip && resource.ip.isLoopback()",
            &address,
            false,
        ),
        ("resource is Kairos::Party && resource has ip", &put, false),
        ("context.executes", &hook, true),
        ("context.executes", &gone, false),
        (
            "resource is Kairos::Location && resource.ext == \"rs\" && resource.name == \"main.rs\"",
            &gone,
            true,
        ),
        ("action in Kairos::Action::\"file_change\"", &gone, true),
        ("action in Kairos::Action::\"network\"", &gone, false),
        ("action == Kairos::Action::\"file_delete\"", &gone, true),
        ("action == Kairos::Action::\"file_delete\"", &hook, false),
        (
            "context.bytes > 1000 && context.class == \"blocking\"",
            &put,
            true,
        ),
        ("context.gated.contains(\"eve@example.org\")", &put, true),
    ] {
        let cedar = format!("forbid(principal, action, resource) when {{ {when} }};");
        assert_eq!(
            broken(&cedar, effect, Level::Public, false),
            expect,
            "{when}"
        );
    }
}

#[test]
fn level_and_origin_reach_the_rules() {
    let put = request("PUT", "https://a.example/x");
    let level = "forbid(principal, action, resource) when { context.rank >= 2 && context.level != \"public\" };";
    assert!(!broken(level, &put, Level::Internal, false));
    assert!(broken(level, &put, Level::Confidential, false));
    let origin = "forbid(principal, action, resource) when { context.untrusted };";
    assert!(!broken(origin, &put, Level::Public, false));
    assert!(broken(origin, &put, Level::Public, true));
    // The channel to the model is not steered by what the agent read.
    let model = request("POST", "https://api.openai.com/v1/responses");
    assert!(!broken(origin, &model, Level::Public, true));
}

#[test]
fn what_cannot_be_evaluated_refuses() {
    let overflow =
        "forbid(principal, action, resource) when { context.bytes * 9223372036854775807 > 1 };";
    let loaded = load(overflow);
    let error = loaded
        .rules
        .forbids(&request("GET", "https://a.example/"), Level::Public, false);
    assert!(error.is_err(), "{error:?}");
}

#[test]
fn odd_names_reach_the_rules_unharmed() {
    let odd = file(FileOp::Create, "a\"b\\c\u{0}\n{}.pem");
    assert!(broken(
        "forbid(principal, action, resource) when { context.bytes > 0 };",
        &odd,
        Level::Public,
        false
    ));
}

#[test]
fn rules_count_into_the_epoch() {
    let rule = |n: u32| {
        load(&format!(
            "forbid(principal, action, resource) when {{ context.bytes > {n} }};"
        ))
    };
    assert_ne!(rule(1).kernel.epoch, rule(2).kernel.epoch);
}
