//! Whom a secure connection upstream may lead to, and as whom we show ourselves there: the host's
//! roots and the policy's, and client certificates of the parties that ask for one.

use std::collections::{BTreeSet, HashMap};
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rustls::client::ResolvesClientCert;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};

use crate::config::{Identity, TlsRule};
use crate::upstream::{Offer, UpstreamError};

/// TLS settings for every party.
pub(crate) struct Trust {
    provider: Arc<CryptoProvider>,
    roots: Roots,
    rules: Vec<Rule>,
    /// By the rules that count.
    made: Mutex<HashMap<Vec<usize>, Configs>>,
    /// Servers that asked for a client certificate.
    asked: Mutex<BTreeSet<String>>,
}

/// Tells when a server asks.
#[derive(Debug)]
struct Noticed {
    resolver: Arc<dyn ResolvesClientCert>,
    asked: Arc<AtomicBool>,
}

impl ResolvesClientCert for Noticed {
    fn resolve(
        &self,
        authorities: &[&[u8]],
        schemes: &[rustls::SignatureScheme],
    ) -> Option<Arc<CertifiedKey>> {
        self.asked.store(true, Ordering::Relaxed);
        self.resolver.resolve(authorities, schemes)
    }

    fn has_certs(&self) -> bool {
        self.resolver.has_certs()
    }
}

/// Servers that asked, as many as are remembered.
const ASKED_MAX: usize = 1024;

struct Rule {
    said: TlsRule,
    roots: Vec<CertificateDer<'static>>,
    identity: Option<Certified>,
}

struct Certified {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

#[derive(Clone)]
struct Configs {
    h1: Arc<ClientConfig>,
    any: Arc<ClientConfig>,
}

impl Trust {
    /// With the host's roots, further ones for everybody, and what is said of some parties.
    pub(crate) fn new(roots_pem: &[Vec<u8>], rules: &[TlsRule]) -> Result<Self, UpstreamError> {
        let mut given = RootCertStore::empty();
        for certificate in certificates(roots_pem)? {
            given.add(certificate).map_err(|e| unusable(&e))?;
        }
        let roots = Roots::read(given);
        let rules = rules.iter().map(rule).collect::<Result<Vec<_>, _>>()?;
        let trust = Self {
            provider: Arc::new(aws_lc_rs::default_provider()),
            roots,
            rules,
            made: Mutex::default(),
            asked: Mutex::default(),
        };
        // What cannot be used is said now, and not with the first request.
        for index in 0..trust.rules.len() {
            trust.make(&[index])?;
        }
        Ok(trust)
    }

    /// The settings for a new connection to a party, and whether it asked for a client certificate.
    pub(crate) fn connection(
        &self,
        host: &str,
        port: u16,
        offer: Offer,
    ) -> Result<(ClientConfig, Arc<AtomicBool>), UpstreamError> {
        let mut config = ClientConfig::clone(&*self.config(host, port, offer)?);
        let asked = Arc::new(AtomicBool::new(false));
        config.client_auth_cert_resolver = Arc::new(Noticed {
            resolver: Arc::clone(&config.client_auth_cert_resolver),
            asked: Arc::clone(&asked),
        });
        Ok((config, asked))
    }

    /// Notes that a server asked for a client certificate; a connection that breaks afterwards most
    /// likely broke for that.
    pub(crate) fn asks(&self, host: &str) {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        if asked.len() < ASKED_MAX {
            asked.insert(host.to_string());
        }
    }

    /// What went wrong on a connection to a server, in words.
    pub(crate) fn broken(&self, host: &str, error: &(dyn Error + 'static)) -> Option<String> {
        let asked = || {
            let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            asked.contains(host).then(|| {
                format!(
                    "`{host}` asked for a client certificate and ended the connection: the policy names none for it \
                     (`certificate` and `key` of the party), or one that it does not take"
                )
            })
        };
        words(host, error).or_else(asked)
    }

    fn config(
        &self,
        host: &str,
        port: u16,
        offer: Offer,
    ) -> Result<Arc<ClientConfig>, UpstreamError> {
        let count: Vec<usize> = self
            .rules
            .iter()
            .enumerate()
            .filter(|(_, rule)| rule.said.is_for(host, port))
            .map(|(index, _)| index)
            .collect();
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let configs = match made.get(&count) {
            Some(configs) => configs.clone(),
            None => {
                let configs = self.make(&count)?;
                made.insert(count, configs.clone());
                configs
            }
        };
        Ok(if offer == Offer::Http1 {
            configs.h1
        } else {
            configs.any
        })
    }

    fn make(&self, count: &[usize]) -> Result<Configs, UpstreamError> {
        let rules = || count.iter().filter_map(|index| self.rules.get(*index));
        let mut roots = self.roots.get().clone();
        for certificate in rules().flat_map(|rule| &rule.roots) {
            roots.add(certificate.clone()).map_err(|e| unusable(&e))?;
        }
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(|e| UpstreamError(format!("TLS cannot be set up: {e}")))?
            .with_root_certificates(roots);
        let shown = rules().find_map(|rule| Some((&rule.said.identity, rule.identity.as_ref()?)));
        let base = match shown {
            None => builder.with_no_client_auth(),
            Some((said, Certified { chain, key })) => builder
                .with_client_auth_cert(chain.clone(), key.clone_key())
                .map_err(|error| wrong_identity(said.as_ref(), &words_of_pair(&error)))?,
        };
        let mut h1 = base.clone();
        h1.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut any = base;
        any.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Configs {
            h1: Arc::new(h1),
            any: Arc::new(any),
        })
    }
}

/// The host's roots and those for everybody. The host's are some hundred files, which are read once the
/// agent has started; the first connection waits for them, and they no longer for anything.
struct Roots {
    reading: Mutex<Option<(Sender<()>, JoinHandle<RootCertStore>)>>,
    read: OnceLock<RootCertStore>,
    given: RootCertStore,
}

impl Roots {
    fn read(given: RootCertStore) -> Self {
        let (needed, waiting) = channel::<()>();
        let reading = std::thread::Builder::new()
            .name("net-roots".to_string())
            .spawn(move || {
                // Whether they are needed or it is time, they are read.
                let _ = waiting.recv_timeout(AGENT_STARTS);
                roots_of_host()
            });
        Self {
            // Without a thread the first connection reads them.
            reading: Mutex::new(reading.ok().map(|reading| (needed, reading))),
            read: OnceLock::new(),
            given,
        }
    }

    fn get(&self) -> &RootCertStore {
        self.read.get_or_init(|| {
            let mut reading = self.reading.lock().unwrap_or_else(PoisonError::into_inner);
            let host = reading.take().and_then(|(needed, reading)| {
                drop(needed);
                reading.join().ok()
            });
            let mut all = host.unwrap_or_else(roots_of_host);
            all.extend(self.given.roots.iter().cloned());
            all
        })
    }
}

/// So long the processor is left to the agent's start.
const AGENT_STARTS: Duration = Duration::from_millis(50);

fn roots_of_host() -> RootCertStore {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "a root certificate of this host cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    roots
}

fn rule(said: &TlsRule) -> Result<Rule, UpstreamError> {
    let identity = said.identity.as_ref().map(certified).transpose()?;
    Ok(Rule {
        roots: certificates(&said.roots_pem)?,
        identity,
        said: said.clone(),
    })
}

fn certified(said: &Identity) -> Result<Certified, UpstreamError> {
    let wrong = |why: &str| wrong_identity(Some(said), why);
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_slice_iter(&said.certificates_pem)
            .collect::<Result<_, _>>()
            .map_err(|e| wrong(&format!("it cannot be read: {e}")))?;
    if chain.is_empty() {
        return Err(wrong("there is no certificate in it"));
    }
    let key = PrivateKeyDer::from_pem_slice(&said.key_pem)
        .map_err(|_| wrong("its key is no private key without a passphrase in PEM form"))?;
    Ok(Certified { chain, key })
}

fn certificates(pems: &[Vec<u8>]) -> Result<Vec<CertificateDer<'static>>, UpstreamError> {
    pems.iter()
        .flat_map(|pem| CertificateDer::pem_slice_iter(pem))
        .map(|certificate| certificate.map_err(|e| unusable(&e)))
        .collect()
}

fn unusable(error: &dyn fmt::Display) -> UpstreamError {
    UpstreamError(format!(
        "a root certificate of the policy cannot be used: {error}"
    ))
}

fn wrong_identity(said: Option<&Identity>, why: &str) -> UpstreamError {
    let name = said.map_or("", |said| said.name.as_str());
    UpstreamError(format!(
        "the client certificate `{name}` cannot be used: {why}"
    ))
}

fn words_of_pair(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InconsistentKeys(_) => "its key belongs to another certificate".to_string(),
        other => other.to_string(),
    }
}

/// What went wrong between us and a server, where it was TLS that did.
pub(crate) fn words(server: &str, error: &(dyn Error + 'static)) -> Option<String> {
    use rustls::CertificateError as C;
    let what = match within(error) {
        Some(rustls::Error::InvalidCertificate(why)) => match why {
            C::UnknownIssuer => {
                "its certificate is signed by an authority that this host does not trust \
                 (add the authority to the policy's `roots` if you trust it)"
                    .to_string()
            }
            C::Expired | C::ExpiredContext { .. } => "its certificate has expired".to_string(),
            C::NotValidYet | C::NotValidYetContext { .. } => {
                "its certificate is not valid yet".to_string()
            }
            C::NotValidForName | C::NotValidForNameContext { .. } => {
                "its certificate is for another name".to_string()
            }
            other => format!("its certificate is wrong: {other:?}"),
        },
        Some(rustls::Error::AlertReceived(alert)) => words_of_alert(&format!("{alert:?}")),
        Some(other) => other.to_string(),
        // HTTP/2 keeps only the words of what broke its connection.
        None => {
            let text = error.to_string();
            let (_, alert) = text.split_once("received fatal alert: ")?;
            words_of_alert(alert.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()))
        }
    };
    Some(format!("no secure connection to `{server}`: {what}"))
}

fn words_of_alert(alert: &str) -> String {
    match alert {
        "CertificateRequired" => {
            "it asks for a client certificate, and the policy names none for it \
             (`certificate` and `key` of the party)"
                .to_string()
        }
        "BadCertificate"
        | "UnsupportedCertificate"
        | "CertificateRevoked"
        | "CertificateExpired"
        | "CertificateUnknown"
        | "UnknownCA"
        | "AccessDenied" => {
            format!("it does not take our client certificate, or wants one ({alert})")
        }
        other => format!("it broke the handshake off ({other})"),
    }
}

/// The TLS library's own error, in however many others it is wrapped.
fn within<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    error.downcast_ref().or_else(|| {
        let wrapped = error.downcast_ref::<io::Error>()?.get_ref()?;
        within(wrapped)
    })
}
