//! Mediates the network: every TCP connection and every name look-up of the agent ends here, is
//! read as what it is, and becomes an effect before anything of it leaves.
//!
//! The listeners are made inside the agent's network namespace, where every address is local; the
//! proxy itself lives in the host's and connects upstream from there. What is judged is the
//! canonical form, and the canonical form is what is sent.
//!
//! Modules in reading order:

/// What the channel is told from outside: upstreams, roots, credentials, hooks.
pub mod config;
/// The session's certificate authority; a leaf per name.
pub mod authority;
/// Canonical hosts and paths.
pub mod canonical;
/// Synthetic addresses: which name an address stands for.
mod names;
/// Name look-ups, answered here; none leaves.
pub mod dns;
/// Accepting a connection and finding out what it speaks.
mod accept;
/// Whose account a request to a model provider is on.
mod account;
/// Ending the agent's TLS.
mod tls;
/// Our own proxy port: `CONNECT` and absolute form.
mod proxy;
/// Our own proxy port: SOCKS5.
mod socks;
/// Who a request is really for; refuses what contradicts itself.
pub mod target;
/// A strict second reader of HTTP/1 framing.
pub mod framing;
/// One request: judged, released, held or refused.
mod http;
/// A request as it was read.
mod whole;
/// What a request means beyond its method.
mod meaning;
/// Pushes of git.
pub mod git;
/// GraphQL operations.
pub mod graphql;
/// A request's bytes in canonical form, parked while it is judged.
mod spool;
/// Looking into what would leave.
mod inspect;
/// Packed content.
mod unpack;
/// Requests that wait for a verdict, and stubs that stand in for one.
mod hold;
/// Asking the monitor, and telling it what came of it.
mod ask;
/// What the agent is answered when nothing is sent.
mod stub;
/// Answers on their way back to the agent.
mod ahead;
mod answer;
/// Carrying out what was held.
mod release;
/// Real credentials in place of their placeholders.
mod credentials;
/// Credentials that a server sends back.
mod mask;
/// Connections to the outside.
mod upstream;
/// Whom a secure one may lead to, and as whom we show ourselves.
mod trust;
/// One message on an open stream.
mod message;
/// gRPC: whole calls, and streams.
mod grpc;
/// WebSocket: each message is judged.
mod websocket;
/// WebSocket messages that are compressed.
pub mod deflate;
/// Connections that are not HTTP.
mod raw;
/// Those that are SSH: the server's host key is checked.
pub mod ssh;
/// How much may come at a time.
mod limits;
/// Services of the agent's own, reached from outside.
mod publish;
/// The channel as a whole: threads, listeners, shutdown.
mod net;

pub use authority::Authority;
pub use config::{
    ConversationHook, Credential, Identity, Limits, NetConfig, NoConversation, PartyRule, Rate,
    TlsRule, UpstreamRule,
};
pub use credentials::stands_in as placeholder_stands_in;
pub use net::{Net, NetError, Sockets};
pub use publish::Door;
pub use release::OfflineSender;
pub use unpack::carried;
