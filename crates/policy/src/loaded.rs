//! A policy in force: what the kernel decides by, and everything else the program needs of it.

use std::path::PathBuf;

use kernel::policy::{HostPattern, Policy};

use crate::connection::{HostKey, NetLimits, Rate, Upstream};
use crate::rules::CedarRules;

/// A policy that was read without mistakes.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// What the kernel decides by; its epoch is the digest of [`Loaded::text`].
    pub kernel: Policy,
    /// Rules that refuse.
    pub rules: CedarRules,
    /// Parties that are really reached somewhere else; the first that matches counts.
    pub upstreams: Vec<UpstreamRule>,
    /// Further roots that upstream servers may be signed by.
    pub roots: Vec<Root>,
    /// Client certificates, for the parties that ask for one.
    pub identities: Vec<Identity>,
    /// What is said of connections to single parties, in the order in which it was said.
    pub connections: Vec<PartyConnection>,
    /// Limits of the net channel.
    pub net_limits: NetLimits,
    /// How the trees are served.
    pub files: Files,
    /// Secrets that are put in at the boundary.
    pub credentials: Vec<Credential>,
    /// What the agent sees besides the workspace.
    pub agent: AgentConfig,
    /// Who decides what is deferred, when the command line does not say.
    pub oracle: OracleConfig,
    /// All that the policy consists of, to be kept with a session; [`crate::recorded`] reads it.
    pub text: String,
    /// The file it came from; `None` for the built-in default alone.
    pub origin: Option<PathBuf>,
}

/// What `[files]` says; what is not said is left to the channel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Files {
    /// A read is an event when content is read for the first time, not with each open.
    pub first_reads: Option<bool>,
    /// An fsync inside waits for the disk.
    pub durable: Option<bool>,
}

impl Loaded {
    /// Where connections to a host and port really go, if the policy says so.
    pub fn upstream(&self, host: &str, port: u16) -> Option<&Upstream> {
        self.upstreams
            .iter()
            .find(|rule| {
                rule.hosts.iter().any(|pattern| pattern.matches(host))
                    && (rule.ports.is_empty() || rule.ports.contains(&port))
            })
            .map(|rule| &rule.upstream)
    }

    /// Ports of parties on the host's own loopback (`127.0.0.1:11434`), which the agent can reach
    /// only if something listens for it inside.
    pub fn loopback_ports(&self) -> Vec<u16> {
        let local = |host: &HostPattern| {
            host.0 == "localhost"
                || host
                    .0
                    .parse::<std::net::IpAddr>()
                    .is_ok_and(|address| address.is_loopback())
        };
        let parties = self
            .kernel
            .parties
            .iter()
            .filter(|party| party.hosts.iter().any(local));
        let mut ports: Vec<u16> = parties
            .flat_map(|party| party.ports.iter().copied())
            .collect();
        ports.sort_unstable();
        ports.dedup();
        ports
    }
}

/// A party that is really reached somewhere else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamRule {
    /// Its hosts.
    pub hosts: Vec<HostPattern>,
    /// Its ports; empty for any.
    pub ports: Vec<u16>,
    /// Where it is reached.
    pub upstream: Upstream,
}

/// Certificates that sign upstream servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    /// For these hosts only; empty for all.
    pub hosts: Vec<HostPattern>,
    /// The certificates, PEM.
    pub pem: String,
}

/// What is said of connections to a party.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartyConnection {
    /// The party's name.
    pub name: String,
    /// Its hosts.
    pub hosts: Vec<HostPattern>,
    /// Its ports; empty for any.
    pub ports: Vec<u16>,
    /// The keys of its SSH servers.
    pub host_keys: Vec<HostKey>,
    /// Requests it may get.
    pub rate: Option<Rate>,
    /// Connections to it at a time.
    pub connections: Option<u32>,
}

/// A client certificate. Its key stays in its file: neither a session's record nor the agent's view
/// has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// For these hosts.
    pub hosts: Vec<HostPattern>,
    /// For these ports; empty for any.
    pub ports: Vec<u16>,
    /// The certificate's file, as the policy writes it.
    pub name: String,
    /// The certificate, and those between it and its authority, PEM.
    pub certificates: String,
    /// Where the key lies.
    pub key: PathBuf,
}

/// A secret that the agent never sees.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Credential {
    /// The variable that holds it outside, and the placeholder inside.
    pub env: String,
    /// Hosts it is meant for.
    pub hosts: Vec<HostPattern>,
    /// How the placeholder starts, since some programs look at that: `sk-`.
    pub placeholder: String,
}

impl Credential {
    /// The stand-in that the agent gets: looks like a key, says what it is, cannot be guessed.
    pub fn placeholder(&self, chance: &[u8; 16]) -> String {
        let digits: String = chance.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{}kairos-placeholder-{digits}", self.placeholder)
    }
}

/// What the agent sees besides the workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentConfig {
    /// Copy-on-write trees for its own state.
    pub state: Vec<StateTree>,
    /// Whether the policy named them; otherwise they are what known agents have in this home.
    pub state_named: bool,
    /// Files its private home starts with.
    pub seed: Vec<PathBuf>,
    /// Whether the policy named them; otherwise those that do not exist are left out silently.
    pub seed_named: bool,
    /// Names of further variables it may see; a `*` at the end stands for any ending.
    pub env: Vec<String>,
    /// Host paths it may read.
    pub expose: Vec<PathBuf>,
    /// Whether it may make user namespaces of its own (its own sandbox needs them).
    pub nested_namespaces: bool,
}

impl AgentConfig {
    /// The state trees for one command: those of the agent it is known to be, all when it is not
    /// known or the policy names them.
    pub fn state_for(&self, program: &str) -> Vec<&StateTree> {
        let name = program.rsplit('/').next().unwrap_or(program);
        let known = self
            .state
            .iter()
            .any(|tree| tree.agent.as_deref() == Some(name));
        self.state
            .iter()
            .filter(|tree| self.state_named || !known || tree.agent.as_deref() == Some(name))
            .collect()
    }
}

/// A copy-on-write tree for an agent's own state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateTree {
    /// The tree's name: one path component, in events, origins and patterns.
    pub name: String,
    /// Where it lies, on the host and in the agent's view.
    pub path: PathBuf,
    /// The agent that is known to keep its state there.
    pub agent: Option<String>,
}

/// Who decides what is deferred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleConfig {
    /// As for `--oracle`; `None` for `ask` on a terminal and keeping everything otherwise.
    pub default: Option<String>,
    /// Seconds an oracle may take.
    pub deadline_s: u64,
}
