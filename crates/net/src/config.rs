//! What the channel is told from outside. Nothing here comes from the agent.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use kernel::policy::HostPattern;

use crate::authority::Authority;

/// Settings of the net channel.
#[derive(Clone)]
pub struct NetConfig {
    /// The session's certificate authority.
    pub authority: Arc<Authority>,
    /// Parties that are reached elsewhere; the first that matches counts.
    pub upstreams: Vec<UpstreamRule>,
    /// Further root certificates for all upstream servers, PEM.
    pub roots_pem: Vec<Vec<u8>>,
    /// How TLS is spoken with some parties; all that match count.
    pub tls: Vec<TlsRule>,
    /// What else is said of connections to single parties.
    pub parties: Vec<PartyRule>,
    /// How much may come at a time.
    pub limits: Limits,
    /// Placeholders and what stands behind them.
    pub credentials: Vec<Credential>,
    /// Keys that the agent was given: with these a model provider is the principal's own.
    pub keys: Vec<String>,
    /// Reads and amends the conversation with the model provider.
    pub conversation: Arc<dyn ConversationHook>,
    /// Notices the agent has not been told yet; appended to the next answer made here.
    pub pending_notices: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
    /// Connections to this port of any address speak to us as to an HTTP proxy.
    pub proxy_port: u16,
    /// How long a request whose answer is needed waits for its verdict.
    pub blocking_deadline: Duration,
    /// How long the first byte of a connection to an unusual port is awaited before it is taken
    /// for a protocol in which the server speaks first.
    pub first_byte_wait: Duration,
    /// Original destinations of listeners that are not transparent (tests): local address to
    /// the destination that a connection to it stands for.
    pub destinations: BTreeMap<SocketAddr, SocketAddr>,
    /// Worker threads.
    pub threads: usize,
}

impl NetConfig {
    /// Usual settings with this authority.
    pub fn new(authority: Arc<Authority>) -> Self {
        Self {
            authority,
            upstreams: Vec::new(),
            roots_pem: Vec::new(),
            tls: Vec::new(),
            parties: Vec::new(),
            limits: Limits::default(),
            credentials: Vec::new(),
            keys: Vec::new(),
            conversation: Arc::new(NoConversation),
            pending_notices: Arc::new(Vec::new),
            proxy_port: 3128,
            blocking_deadline: Duration::from_secs(300),
            first_byte_wait: Duration::from_millis(400),
            destinations: BTreeMap::new(),
            // More than there are cores only hand work to one another.
            threads: std::thread::available_parallelism().map_or(2, |n| n.get().clamp(2, 8)),
        }
    }
}

impl std::fmt::Debug for NetConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NetConfig")
            .field("upstreams", &self.upstreams)
            .field("roots_pem", &self.roots_pem.len())
            .field("credentials", &self.credentials)
            .field("proxy_port", &self.proxy_port)
            .field("blocking_deadline", &self.blocking_deadline)
            .finish_non_exhaustive()
    }
}

/// A party that is reached elsewhere.
#[derive(Clone, Debug)]
pub struct UpstreamRule {
    /// The party's hosts.
    pub hosts: HostPattern,
    /// Its ports; empty for any.
    pub ports: Vec<u16>,
    /// `http://127.0.0.1:8080` or `https://gateway.example/prefix`.
    pub base: String,
}

impl UpstreamRule {
    /// Whether it speaks of this host and port.
    pub(crate) fn is_for(&self, host: &str, port: u16) -> bool {
        self.hosts.matches(host) && (self.ports.is_empty() || self.ports.contains(&port))
    }
}

/// How TLS is spoken with some parties.
#[derive(Clone, Debug, Default)]
pub struct TlsRule {
    /// Their hosts.
    pub hosts: Vec<HostPattern>,
    /// Their ports; empty for any.
    pub ports: Vec<u16>,
    /// Further root certificates that may sign them, PEM.
    pub roots_pem: Vec<Vec<u8>>,
    /// As whom we show ourselves when they ask.
    pub identity: Option<Identity>,
}

impl TlsRule {
    /// Whether it speaks of this host and port.
    pub(crate) fn is_for(&self, host: &str, port: u16) -> bool {
        self.hosts.iter().any(|hosts| hosts.matches(host))
            && (self.ports.is_empty() || self.ports.contains(&port))
    }
}

/// What is said of connections to a party of the policy.
#[derive(Clone, Debug, Default)]
pub struct PartyRule {
    /// Its name, for messages.
    pub name: String,
    /// Its hosts, as in the policy.
    pub hosts: Vec<HostPattern>,
    /// Its ports, as in the policy.
    pub ports: Vec<u16>,
    /// Fingerprints of its SSH host keys (`SHA256:...`); without any there is no SSH to it.
    pub host_keys: Vec<String>,
    /// Requests it may get.
    pub rate: Option<Rate>,
    /// Connections to it at a time.
    pub connections: Option<u32>,
}

/// So many requests in so much time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Requests.
    pub requests: u32,
    /// In this time.
    pub per: Duration,
}

/// How much may come at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Requests of the session.
    pub rate: Option<Rate>,
    /// Connections at a time; more wait.
    pub connections: u32,
    /// Bytes of a request's body; when it is not said, what the policy parks at most.
    pub body_bytes: Option<u64>,
    /// Bytes of a request's head.
    pub head_bytes: u32,
    /// Header lines of a request.
    pub headers: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            rate: None,
            connections: 4096,
            body_bytes: None,
            head_bytes: 256 << 10,
            headers: 200,
        }
    }
}

/// A client certificate with its key, which never gets inside the boundary.
#[derive(Clone)]
pub struct Identity {
    /// What it is called in errors: its file.
    pub name: String,
    /// The certificate, and those between it and an authority that the server knows, PEM.
    pub certificates_pem: Vec<u8>,
    /// Its private key, PEM.
    pub key_pem: Vec<u8>,
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A key never gets into a log.
        write!(f, "Identity({})", self.name)
    }
}

/// A real credential behind a placeholder. The agent has only the placeholder.
#[derive(Clone)]
pub struct Credential {
    /// What the agent has.
    pub placeholder: String,
    /// What is sent instead.
    pub value: String,
    /// Only towards these hosts.
    pub hosts: Vec<HostPattern>,
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // A real value never gets into a log.
        write!(f, "Credential({} for {:?})", self.placeholder, self.hosts)
    }
}

/// Reads and amends the conversation with the model provider. Bodies are decoded (no content
/// coding) when they get here.
pub trait ConversationHook: Send + Sync {
    /// A request to the provider; what is returned is sent.
    fn request(&self, host: &str, path: &str, content_type: &str, body: Vec<u8>) -> Vec<u8>;
    /// A text message to the provider on a WebSocket; what is returned is sent.
    fn ws_message(&self, host: &str, path: &str, text: String) -> String;
    /// A piece of the provider's answer, in order; one call with no bytes ends an answer.
    fn answer(&self, host: &str, path: &str, bytes: &[u8]);
}

/// Leaves the conversation alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoConversation;

impl ConversationHook for NoConversation {
    fn request(&self, _: &str, _: &str, _: &str, body: Vec<u8>) -> Vec<u8> {
        body
    }
    fn ws_message(&self, _: &str, _: &str, text: String) -> String {
        text
    }
    fn answer(&self, _: &str, _: &str, _: &[u8]) {}
}
