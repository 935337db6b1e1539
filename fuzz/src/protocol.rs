//! Whatever a harness writes is answered, line by line, and nothing of it ends the service.

use std::path::PathBuf;
use std::sync::Arc;

use kernel::policy::{NoRules, Policy};
use kernel::{Carried, Scanner};
use monitor::View;
use serde_json::{Value, json};
use store::{MemoryDisk, SessionDir};
use tools::{LoadedPolicy, Outside, PolicyText, Service, Sessions};

/// A session's life, and mistakes.
pub const SEEDS: &[&[u8]] = &[
    br#"{"do":"incoming","session":"s","source":{"location":".env"},"text":"K=a1b2c3d4e5f6"}
{"id":1,"do":"propose","session":"s","tool":"pay","arguments":{"to":"a@b.example","n":[1,2.5,{"a.b":null}]}}
{"do":"verdict","session":"s","hold":"h3","manifest":"00","verdict":"refuse","oracle":"me"}
{"do":"held","session":"s"}
{"do":"close","session":"s"}"#,
    br#"{"do":"propose","session":"s","request":{"method":"POST","url":"https://a.example/b?c=d","headers":{"a":"b"},"body_base64":"AAEC"}}
{"do":"propose","session":"s","change":{"operation":"create","path":"./a/b","content":"x"},"saw":["h1"]}
{"do":"open","session":"t","policy":"p","task":"pay 12","workspace":"w"}
{"do":"view","session":"s"}"#,
    b"{\"do\":\n[]\n\xff\n{\"id\":{},\"do\":\"expire\",\"session\":\"s\",\"hold\":\"h99999999999999999999\"}",
];

struct Nothing;

impl Outside for Nothing {
    fn load(&self, _: &PolicyText) -> Result<LoadedPolicy, String> {
        Ok(LoadedPolicy {
            policy: Arc::new(Policy::default()),
            rules: Arc::new(NoRules),
            summary: String::new(),
            recorded: String::new(),
        })
    }

    fn keep(&self, _: &SessionDir, _: &LoadedPolicy) -> Result<(), String> {
        Ok(())
    }

    fn view(&self, view: &View, _: &str) -> Value {
        json!({ "holds": view.holds.len() })
    }

    fn authority(&self, text: &str) -> Result<(String, Option<u16>), String> {
        net::canonical::authority(text).map_err(|why| why.to_string())
    }

    fn target(&self, path: &str) -> Result<String, String> {
        net::canonical::path(path).map_err(|why| why.to_string())
    }

    fn carried(&self, scanner: &Scanner, bytes: &[u8]) -> Result<Carried, String> {
        net::carried(scanner, bytes)
    }
}

/// Every line has one answer, which is one line of JSON that says whether it was understood.
pub fn run(bytes: &[u8]) {
    let mut sessions = Sessions::new(Service {
        disk: MemoryDisk::shared(),
        root: PathBuf::from("/"),
        clock: || "2026-01-01T00:00:00Z".to_string(),
        outside: Box::new(Nothing),
        forget: true,
    });
    let mut out = Vec::new();
    for line in [
        &br#"{"do":"policy","name":"p","toml":""}"#[..],
        br#"{"do":"open","session":"s","policy":"p","task":"pay 12 to a@b.example"}"#,
    ] {
        sessions.answer(line, &mut out).unwrap();
    }
    for line in bytes.split(|byte| *byte == b'\n') {
        out.clear();
        sessions.answer(line, &mut out).unwrap();
        let text = std::str::from_utf8(&out).unwrap();
        assert!(text.lines().count() <= 1, "{text}");
        if !text.is_empty() {
            let reply: Value = serde_json::from_str(text).unwrap();
            assert!(reply["ok"].is_boolean(), "{reply}");
            assert_eq!(
                reply["ok"] == false,
                reply["error"]["what"].is_string(),
                "{reply}"
            );
        }
    }
}
