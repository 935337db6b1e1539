//! The argument of `--oracle`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code"
)]

mod support;

use std::time::Duration;

use oracles::{OracleSpec, build, parse};
use support::setting;

#[test]
fn what_is_meant() {
    let command = |program: &str, arguments: &[&str]| OracleSpec::Command {
        program: program.to_string(),
        arguments: arguments.iter().map(|a| (*a).to_string()).collect(),
    };
    for (text, expect) in [
        ("ask", OracleSpec::Ask),
        (" deny ", OracleSpec::Deny),
        ("command:./judge", command("./judge", &[])),
        (
            "command:./judge --fast 'two words'",
            command("./judge", &["--fast", "two words"]),
        ),
        ("command:'/opt/my judge'", command("/opt/my judge", &[])),
        (
            "command:judge then ask",
            OracleSpec::Chain(vec![command("judge", &[]), OracleSpec::Ask]),
        ),
    ] {
        let spec = parse(text).unwrap();
        assert_eq!(spec, expect, "{text}");
        assert_eq!(
            parse(&spec.to_string()).unwrap(),
            spec,
            "{text}: written and read again"
        );
    }
}

#[test]
fn mistakes_are_told() {
    let told: Vec<String> = [
        "",
        "aks",
        "ask now",
        "command",
        "command:",
        "command:'x",
        "deny then",
        "then ask",
        "model:gpt",
    ]
    .iter()
    .map(|text| format!("{text:?}\n  {}", parse(text).unwrap_err()))
    .collect();
    insta::assert_snapshot!(told.join("\n"));
}

#[test]
fn a_program_is_found_before_anything_runs() {
    let dir = tempfile::tempdir().unwrap();
    let plain = dir.path().join("plain");
    std::fs::write(&plain, "x").unwrap();
    let setting = setting(Duration::from_secs(1));
    let error = |text: &str| {
        let spec = parse(text).unwrap();
        match build(&spec, &setting) {
            Ok(_) => panic!("{text} was built"),
            Err(why) => why.replace(dir.path().to_str().unwrap(), "DIR"),
        }
    };
    let told = [
        error("command:/no/such/oracle"),
        error("command:no-such-oracle-anywhere"),
        error(&format!("command:{}", plain.display())),
        error(&format!("command:{}", dir.path().display())),
        error("deny then command:/no/such/oracle"),
    ];
    insta::assert_snapshot!(told.join("\n"));
    assert_eq!(
        build(&parse("command:true").unwrap(), &setting)
            .unwrap()
            .name(),
        "command:true"
    );
}
