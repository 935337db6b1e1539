//! Readers that meet bytes from an agent, a party or a damaged disk, each as one function over arbitrary bytes
//! that also checks what the reader promises. `scripts/fuzz` runs them under libFuzzer; the test command feeds them
//! their seeds and mutations of these.
//!
//! To add one: a module here, a line in [`TARGETS`], a file in `fuzz_targets/` and its `[[bin]]`.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a target fails by panicking"
)]

/// The log's lines and chain.
pub mod log;
/// Folding records, whatever they say.
pub mod recover;
/// Policy files.
pub mod policy;
/// What is promised of every provider's protocol.
mod provider;
/// Anthropic Messages.
pub mod anthropic;
/// OpenAI Responses.
pub mod responses;
/// Chat Completions.
pub mod chat;
/// Gemini.
pub mod gemini;
/// `codex app-server`.
pub mod app_server;
/// Commands that a model writes.
pub mod shell;
/// HTTP/1 framing.
pub mod framing;
/// Compressed WebSocket messages.
pub mod websocket;
/// Pushes of git.
pub mod push;
/// GraphQL documents.
pub mod graphql;
/// Hosts in canonical form.
pub mod host;
/// Paths in canonical form.
pub mod path;
/// Name look-ups.
pub mod dns;
/// Key exchanges of SSH.
pub mod ssh;
/// What reaches the principal's terminal.
pub mod terminal;
/// The sensitive search.
pub mod scan;
/// Finding values in any text.
pub mod values;
/// Lines of `kairos decide --stdio`.
pub mod protocol;

/// One target.
#[derive(Clone, Copy)]
pub struct Target {
    /// Its name: the module, and the folder of its seeds.
    pub name: &'static str,
    /// Panics when the reader breaks its promise.
    pub run: fn(&[u8]),
    /// Bytes to start from.
    pub seeds: &'static [&'static [u8]],
}

/// All of them.
pub const TARGETS: &[Target] = &[
    Target {
        name: "log",
        run: log::run,
        seeds: log::SEEDS,
    },
    Target {
        name: "recover",
        run: recover::run,
        seeds: recover::SEEDS,
    },
    Target {
        name: "policy",
        run: policy::run,
        seeds: policy::SEEDS,
    },
    Target {
        name: "anthropic",
        run: anthropic::run,
        seeds: anthropic::SEEDS,
    },
    Target {
        name: "responses",
        run: responses::run,
        seeds: responses::SEEDS,
    },
    Target {
        name: "chat",
        run: chat::run,
        seeds: chat::SEEDS,
    },
    Target {
        name: "gemini",
        run: gemini::run,
        seeds: gemini::SEEDS,
    },
    Target {
        name: "app_server",
        run: app_server::run,
        seeds: app_server::SEEDS,
    },
    Target {
        name: "shell",
        run: shell::run,
        seeds: shell::SEEDS,
    },
    Target {
        name: "framing",
        run: framing::run,
        seeds: framing::SEEDS,
    },
    Target {
        name: "websocket",
        run: websocket::run,
        seeds: websocket::SEEDS,
    },
    Target {
        name: "push",
        run: push::run,
        seeds: push::SEEDS,
    },
    Target {
        name: "graphql",
        run: graphql::run,
        seeds: graphql::SEEDS,
    },
    Target {
        name: "host",
        run: host::run,
        seeds: host::SEEDS,
    },
    Target {
        name: "path",
        run: path::run,
        seeds: path::SEEDS,
    },
    Target {
        name: "dns",
        run: dns::run,
        seeds: dns::SEEDS,
    },
    Target {
        name: "ssh",
        run: ssh::run,
        seeds: ssh::SEEDS,
    },
    Target {
        name: "terminal",
        run: terminal::run,
        seeds: terminal::SEEDS,
    },
    Target {
        name: "scan",
        run: scan::run,
        seeds: scan::SEEDS,
    },
    Target {
        name: "values",
        run: values::run,
        seeds: values::SEEDS,
    },
    Target {
        name: "protocol",
        run: protocol::run,
        seeds: protocol::SEEDS,
    },
];

/// The first byte chooses where the rest is cut, so that readers that are fed in pieces meet every cut.
fn pieces(bytes: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let Some((first, rest)) = bytes.split_first() else {
        return (&[], Vec::new());
    };
    let size = usize::from(*first % 16) + 1;
    (rest, rest.chunks(size).collect())
}
