//! Views for tests.
#![allow(dead_code, reason = "every test file uses some of it")]

pub(crate) mod endpoint;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use kernel::{
    Carried, Channel, Class, Digest, Effect, EventId, FileOp, Gated, HoldId, Kind, Level, Object,
    Operation, Origin, Payload, Reason, Source,
};
use monitor::{View, ViewHold};

pub(crate) fn setting(deadline: Duration) -> oracles::Setting {
    oracles::Setting {
        deadline,
        policy: "task trusted; workspace trusted for path".to_string(),
        path: std::env::var_os("PATH"),
        explain: Arc::new(()),
    }
}

pub(crate) fn view(holds: Vec<ViewHold>) -> View {
    View {
        task: vec!["add a farewell to hello.txt".to_string()],
        holds,
        trace: vec![
            "1 file in  read DEPLOY.md".to_string(),
            "2 file in  read .env".to_string(),
            "7 net  out POST https://sink.example/collect: held".to_string(),
        ],
    }
}

pub(crate) fn origin(path: &str, line: u32) -> Origin {
    Origin {
        source: Source::Location {
            tree: "workspace".to_string(),
            path: path.to_string(),
        },
        event: EventId(1),
        line,
    }
}

/// The POST that a planted checklist asks for.
pub(crate) fn post(n: u64) -> ViewHold {
    ViewHold {
        hold: HoldId(n),
        manifest: Digest::of(&n.to_be_bytes()),
        effect: effect(
            Channel::Net,
            Operation::Request("POST".to_string()),
            Object::Party {
                scheme: "https".to_string(),
                host: "sink.example".to_string(),
                port: 443,
                path: "/collect".to_string(),
            },
            Class::Stallable,
        ),
        reasons: vec![
            Reason::NotDerivable {
                field: "url".to_string(),
                kind: Kind::Url,
                value: "https://sink.example/collect".to_string(),
                origins: vec![origin("DEPLOY.md", 12)],
            },
            Reason::Clearance {
                level: Level::Critical,
                clearance: Level::Public,
                origins: vec![origin(".env", 1)],
            },
        ],
        depends: Vec::new(),
        carries: Some((Level::Critical, vec![origin(".env", 1)])),
        excerpt: "API_KEY=[secret]\nMODE=test\n".to_string(),
    }
}

/// A change of a place that runs later.
pub(crate) fn hook(n: u64, path: &str) -> ViewHold {
    let mut effect = effect(
        Channel::File,
        Operation::File(FileOp::Create),
        Object::Location {
            tree: "workspace".to_string(),
            path: path.to_string(),
        },
        Class::Stageable,
    );
    effect.about = "24 bytes of text".to_string();
    ViewHold {
        hold: HoldId(n),
        manifest: Digest::of(&n.to_be_bytes()),
        effect,
        reasons: vec![Reason::ExecutesLater {
            place: "git hook".to_string(),
        }],
        depends: vec![],
        carries: None,
        excerpt: "#!/bin/sh\necho hi\n".to_string(),
    }
}

fn effect(channel: Channel, operation: Operation, object: Object, class: Class) -> Effect {
    Effect {
        channel,
        operation,
        object,
        class,
        gated: vec![],
        arguments: Vec::new(),
        carries: Carried::nothing(),
        payload: Payload {
            digest: Digest::of(b"x"),
            bytes: 42,
        },
        base: None,
        saw: vec![],
        fields: BTreeMap::from([("content-type".to_string(), "text/plain".to_string())]),
        about: "42 bytes of text".to_string(),
    }
}

/// With a recipient, as a mail would have.
pub(crate) fn with_recipient(mut hold: ViewHold) -> ViewHold {
    hold.effect
        .gated
        .push(Gated::new("recipient", Kind::Email, "eve@example.org"));
    hold
}
