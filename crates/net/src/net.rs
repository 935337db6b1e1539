//! The channel as a whole: threads, listeners, shutdown, and the monitor's way back in.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use kernel::policy::MALFORMED;
use kernel::{Carried, Channel, Class, Effect, Notice, Object, Operation, Payload, Refusal};
use monitor::{Happening, Held, Outcome, Session};
use store::record::UNKNOWN;
use store::{Lease, Parked};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::Semaphore;

use crate::accept::{self, Place};
use crate::account::Accounts;
use crate::canonical;
use crate::config::NetConfig;
use crate::dns;
use crate::hold::{Holds, Ruling};
use crate::limits::Limiter;
use crate::names::Names;
use crate::publish::{self, Door};
use crate::release::Sender;
use crate::target::Target;
use crate::trust::Trust;
use crate::upstream::{Routes, Upstream};

/// A request that somebody waits for has so long to be answered before the monitor goes on.
const ANSWER: Duration = Duration::from_secs(120);

/// Hosts of which a broken handshake is recorded.
const DISTRUSTED_MAX: usize = 100;

/// Sockets made inside the agent's network namespace.
#[derive(Debug, Default)]
pub struct Sockets {
    /// Listeners, transparent: the local address of what they accept is where it was going.
    pub tcp: Vec<OwnedFd>,
    /// Port-53 datagram sockets.
    pub udp: Vec<OwnedFd>,
}

/// Why the channel could not start.
#[derive(Debug, thiserror::Error)]
pub enum NetError {
    /// Threads or sockets.
    #[error("the net channel cannot start: {what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
    /// Something in the settings.
    #[error("the net channel cannot start: {0}")]
    Config(String),
}

/// What every connection works with.
pub(crate) struct Shared {
    pub(crate) session: Arc<Session>,
    pub(crate) config: NetConfig,
    pub(crate) names: Arc<Names>,
    pub(crate) upstream: Upstream,
    pub(crate) holds: Arc<Holds>,
    pub(crate) accounts: Accounts,
    pub(crate) limiter: Limiter,
    pub(crate) room: Arc<Semaphore>,
    distrusted: Mutex<BTreeSet<String>>,
}

impl Shared {
    /// Has a request that contradicts itself refused and recorded; it went nowhere.
    pub(crate) fn contradiction(&self, place: &Place, method: &str, uri: &::http::Uri, why: &str) {
        let (host, port) = match &place.target {
            Some(target) => (target.host.clone(), target.port),
            None => ("proxy.invalid".to_string(), self.config.proxy_port),
        };
        let scheme = if place.secured.is_some() {
            "https"
        } else {
            "http"
        };
        let object = Object::Party {
            scheme: scheme.to_string(),
            host,
            port,
            path: "/".to_string(),
        };
        let about = format!("it asked for {}", canonical::shown(&uri.to_string()));
        self.refuse(unsent(method, object, about), why);
    }

    /// Has a request whose body is too large refused and recorded.
    pub(crate) fn too_large(&self, method: &str, target: &Target, why: &str) {
        let object = Object::Party {
            scheme: target.scheme.to_string(),
            host: target.host.clone(),
            port: target.port,
            path: target.path.clone(),
        };
        self.refuse(unsent(method, object, String::new()), why);
    }

    /// Records that a program broke the TLS handshake off, once a host: most likely it does not
    /// trust the session's authority.
    pub(crate) fn distrusted(&self, place: &Place, error: &std::io::Error) {
        let host = place
            .target
            .as_ref()
            .map_or("the proxy port", |target| &target.host);
        let mut told = self
            .distrusted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.len() < DISTRUSTED_MAX && told.insert(host.to_string()) {
            let facts = [("host", host.to_string()), ("why", error.to_string())];
            let facts = facts
                .into_iter()
                .map(|(name, fact)| (name.to_string(), fact))
                .collect();
            self.session
                .note("TLS handshake broken off by the agent", facts);
        }
    }

    /// Has an effect refused for a reason that only this channel sees.
    pub(crate) fn refuse(&self, mut effect: Effect, why: &str) -> Option<Notice> {
        effect.fields.insert(MALFORMED.to_string(), why.to_string());
        match self.session.propose(effect, Parked::default(), &mut |_| {}) {
            Outcome::Refused { notice, .. } => Some(notice),
            // Cannot be: nothing malformed is released or held. A lease dropped here sends nothing.
            Outcome::Released(_) | Outcome::Held(_) => None,
        }
    }
}

/// A request of which nothing goes out.
fn unsent(method: &str, object: Object, about: String) -> Effect {
    Effect {
        channel: Channel::Net,
        operation: Operation::Request(canonical::shown(method)),
        object,
        class: Class::Blocking,
        gated: Vec::new(),
        arguments: Vec::new(),
        carries: Carried::nothing(),
        payload: Payload::default(),
        base: None,
        saw: Vec::new(),
        fields: BTreeMap::new(),
        about,
    }
}

/// A running net channel.
pub struct Net {
    shared: Arc<Shared>,
    sender: Sender,
    runtime: Mutex<Option<Runtime>>,
}

impl std::fmt::Debug for Net {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Net")
            .field("config", &self.shared.config)
            .finish_non_exhaustive()
    }
}

impl Net {
    /// Starts serving. Attach what is returned to the session as its net channel.
    ///
    /// # Errors
    /// When the settings are wrong or the system gives no threads or sockets.
    pub fn start(
        config: NetConfig,
        session: Arc<Session>,
        sockets: Sockets,
    ) -> Result<Self, NetError> {
        let io = |what| move |source| NetError::Io { what, source };
        let routes = routes(&config, &session)?;
        let sender = Sender::new(
            Arc::clone(&session),
            routes.clone(),
            config.credentials.clone(),
        );
        let shared = Arc::new(Shared {
            upstream: Upstream::new(routes),
            names: Arc::new(Names::default()),
            holds: Arc::new(Holds::default()),
            accounts: Accounts::new(&config.keys),
            limiter: Limiter::new(&config.limits, &config.parties),
            room: Arc::new(Semaphore::new(
                usize::try_from(config.limits.connections)
                    .unwrap_or(usize::MAX)
                    .clamp(1, Semaphore::MAX_PERMITS),
            )),
            distrusted: Mutex::default(),
            session: Arc::clone(&session),
            config,
        });
        let holds = Arc::downgrade(&shared.holds);
        session.subscribe(Box::new(move |happening| {
            if let (Happening::Withdrawn(hold), Some(holds)) = (happening, holds.upgrade()) {
                holds.withdrawn(*hold);
            }
        }));
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(shared.config.threads.max(2))
            .thread_name("kairos-net")
            .enable_all()
            .build()
            .map_err(io("threads"))?;
        {
            let _inside = runtime.enter();
            for fd in sockets.tcp {
                let listener = std::net::TcpListener::from(fd);
                listener.set_nonblocking(true).map_err(io("a listener"))?;
                let listener = TcpListener::from_std(listener).map_err(io("a listener"))?;
                runtime.spawn(accept::listen(Arc::clone(&shared), listener));
            }
            for fd in sockets.udp {
                let socket = std::net::UdpSocket::from(fd);
                let names = Arc::clone(&shared.names);
                runtime.spawn(async move {
                    if let Err(error) = dns::serve_udp(names, socket).await {
                        tracing::error!(%error, "look-ups are not answered any more");
                    }
                });
            }
        }
        Ok(Self {
            shared,
            sender,
            runtime: Mutex::new(Some(runtime)),
        })
    }

    /// Stops serving: connections end, waiting requests are taken back. What is held behind a
    /// stub can still be carried out or discarded afterwards.
    pub fn shutdown(&self) {
        let runtime = self
            .runtime
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(runtime) = runtime {
            runtime.shutdown_timeout(Duration::from_secs(2));
        }
    }

    /// Joins connections to a listener of this host with a port inside, for as long as it serves.
    ///
    /// # Errors
    /// When the listener cannot be used.
    pub fn publish(
        &self,
        listener: std::net::TcpListener,
        port: u16,
        door: Door,
    ) -> Result<(), NetError> {
        let io = |source| NetError::Io {
            what: "a published port",
            source,
        };
        let runtime = self.runtime.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(runtime) = &*runtime {
            let _inside = runtime.enter();
            listener.set_nonblocking(true).map_err(io)?;
            let listener = TcpListener::from_std(listener).map_err(io)?;
            runtime.spawn(publish::serve(listener, port, door));
        }
        Ok(())
    }

    /// The synthetic IPv4 address of a name (what a look-up inside answers).
    pub fn address_of(&self, name: &str) -> std::net::Ipv4Addr {
        crate::names::v4(self.shared.names.number(name))
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        self.shutdown();
    }
}

/// Routes by the settings and the policy in force.
fn routes(config: &NetConfig, session: &Arc<Session>) -> Result<Routes, NetError> {
    let policy = Arc::downgrade(session);
    let named = Arc::new(move |host: &str, port: u16| {
        policy
            .upgrade()
            .is_some_and(|session| names_exactly(&session, host, port))
    });
    Trust::new(&config.roots_pem, &config.tls)
        .and_then(|trust| Routes::new(&config.upstreams, trust, named))
        .map_err(|error| NetError::Config(error.0))
}

/// Whether the policy names exactly this host, not by a pattern.
pub(crate) fn names_exactly(session: &Session, host: &str, port: u16) -> bool {
    session.policy().parties.iter().any(|party| {
        party.hosts.iter().any(|pattern| pattern.0 == host)
            && (party.ports.is_empty() || party.ports.contains(&port))
    })
}

impl monitor::Channel for Net {
    fn commit(&self, held: &Held, lease: Lease) -> Result<String, String> {
        let Shared { holds, session, .. } = &*self.shared;
        let waiting = holds.take_waiting(held.hold);
        let result = match waiting {
            Some(waiting) => {
                let (report, outcome) = std::sync::mpsc::channel();
                match waiting.send(Ruling::Go { lease, report }) {
                    Ok(()) => outcome.recv_timeout(ANSWER).unwrap_or_else(|error| {
                        Err(match error {
                            RecvTimeoutError::Timeout => format!(
                                "{UNKNOWN}it was sent, and no answer came; whether it took effect is not known"
                            ),
                            // The lease came back unused: who waited was gone by then.
                            RecvTimeoutError::Disconnected => {
                                "the agent hung up at that moment; it was not sent".into()
                            }
                        })
                    }),
                    Err(_) => {
                        Err("the agent does not wait for it any more; it was not sent".into())
                    }
                }
            }
            None => self.sender.send_parked(held, lease),
        };
        holds.resolved(held, session.blobs());
        result
    }

    fn abort(&self, held: &Held, _: &Refusal, notice: &Notice) {
        let Shared { holds, session, .. } = &*self.shared;
        if let Some(waiting) = holds.take_waiting(held.hold) {
            // Who has gone meanwhile needs no answer.
            let _ = waiting.send(Ruling::No(notice.clone()));
        }
        holds.resolved(held, session.blobs());
    }
}
