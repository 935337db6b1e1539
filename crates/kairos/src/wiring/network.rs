//! The net channel's settings: where parties are reached and how, credentials and their placeholders,
//! published ports.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use monitor::Chance as _;
use monitor::Session;
use monitor::session::SystemChance;
use policy::Loaded;
use sandbox::Plan;

use super::Published;
use crate::exit::{Failure, Outcome, at};
use crate::setup::Setup;
use crate::telling::{Conversation, Telling};
use crate::watching::Watching;

/// A stand-in for a credential, and what stands behind it.
pub(super) struct Placeholder {
    pub(super) env: String,
    pub(super) placeholder: String,
    value: String,
    hosts: Vec<kernel::policy::HostPattern>,
}

/// A fresh placeholder for every credential that the environment holds.
pub(super) fn placeholders(loaded: &Loaded) -> Outcome<Vec<Placeholder>> {
    let mut found = Vec::new();
    for credential in &loaded.credentials {
        let Ok(value) = std::env::var(&credential.env) else {
            continue;
        };
        if value.is_empty() {
            continue;
        }
        let chance = SystemChance.bytes16().map_err(Failure::new)?;
        found.push(Placeholder {
            env: credential.env.clone(),
            placeholder: credential.placeholder(&chance),
            value,
            hosts: credential.hosts.clone(),
        });
    }
    Ok(found)
}

/// Settings of the net channel for a session that runs.
pub(super) fn config(
    loaded: &Loaded,
    placeholders: &[Placeholder],
    authority: Arc<net::Authority>,
    telling: &Arc<Telling>,
    watching: &Arc<Watching>,
) -> Outcome<net::NetConfig> {
    let mut config = net::NetConfig::new(authority);
    config.upstreams = upstreams(loaded);
    config.roots_pem = roots(loaded);
    config.tls = tls(loaded)?;
    config.parties = parties(loaded);
    config.limits = limits(loaded);
    config.credentials = placeholders
        .iter()
        .map(|item| net::Credential {
            placeholder: item.placeholder.clone(),
            value: item.value.clone(),
            hosts: item.hosts.clone(),
        })
        .collect();
    config.conversation = Arc::new(Conversation {
        telling: Arc::clone(telling),
        watching: Arc::clone(watching),
    });
    let waiting = Arc::clone(telling);
    config.pending_notices = Arc::new(move || waiting.take_waiting());
    config.blocking_deadline = Duration::from_secs(loaded.oracle.deadline_s);
    Ok(config)
}

fn upstreams(loaded: &Loaded) -> Vec<net::UpstreamRule> {
    let mut rules = Vec::new();
    for rule in &loaded.upstreams {
        for hosts in &rule.hosts {
            rules.push(net::UpstreamRule {
                hosts: hosts.clone(),
                ports: rule.ports.clone(),
                base: rule.upstream.to_string(),
            });
        }
    }
    rules
}

fn parties(loaded: &Loaded) -> Vec<net::PartyRule> {
    loaded
        .connections
        .iter()
        .map(|said| net::PartyRule {
            name: said.name.clone(),
            hosts: said.hosts.clone(),
            ports: said.ports.clone(),
            host_keys: said
                .host_keys
                .iter()
                .map(|key| key.fingerprint.clone())
                .collect(),
            rate: said.rate.map(rate),
            connections: said.connections,
        })
        .collect()
}

fn rate(said: policy::Rate) -> net::Rate {
    net::Rate {
        requests: said.requests,
        per: Duration::from_secs(said.seconds.into()),
    }
}

fn limits(loaded: &Loaded) -> net::Limits {
    let said = &loaded.net_limits;
    let usual = net::Limits::default();
    net::Limits {
        rate: said.rate.map(rate),
        connections: said.connections.unwrap_or(usual.connections),
        body_bytes: said.body_bytes,
        head_bytes: said.head_bytes.unwrap_or(usual.head_bytes),
        headers: said.headers.unwrap_or(usual.headers),
    }
}

/// The SSH servers that the policy knows, as SSH inside reads them: its users need no flag.
pub(super) fn known_hosts(loaded: &Loaded) -> String {
    let mut lines = String::new();
    for said in &loaded.connections {
        let hosts = said.hosts.iter().flat_map(|host| {
            let name = host.0.as_str();
            let ports: &[u16] = if said.ports.is_empty() {
                &[22]
            } else {
                &said.ports
            };
            ports.iter().map(move |port| match port {
                22 => name.to_string(),
                port => format!("[{name}]:{port}"),
            })
        });
        let hosts = hosts.collect::<Vec<_>>().join(",");
        for key in said.host_keys.iter().filter_map(|key| key.key.as_ref()) {
            lines.push_str(&format!("{hosts} {key}\n"));
        }
    }
    lines
}

/// Roots for everybody; those of one party are its own.
fn roots(loaded: &Loaded) -> Vec<Vec<u8>> {
    loaded
        .roots
        .iter()
        .filter(|root| root.hosts.is_empty())
        .map(|root| root.pem.clone().into_bytes())
        .collect()
}

/// How TLS is spoken with single parties. Keys are read here, and are nowhere else.
fn tls(loaded: &Loaded) -> Outcome<Vec<net::TlsRule>> {
    let of_parties = loaded.roots.iter().filter(|root| !root.hosts.is_empty());
    let mut rules: Vec<net::TlsRule> = of_parties
        .map(|root| net::TlsRule {
            hosts: root.hosts.clone(),
            roots_pem: vec![root.pem.clone().into_bytes()],
            ..net::TlsRule::default()
        })
        .collect();
    for identity in &loaded.identities {
        let key = std::fs::read(&identity.key).map_err(|error| {
            Failure::new(format!(
                "cannot read `{}`, the key of the client certificate `{}`: {error}; put it there, or take \
                 `certificate` and `key` out of the policy",
                identity.key.display(),
                identity.name
            ))
        })?;
        rules.push(net::TlsRule {
            hosts: identity.hosts.clone(),
            ports: identity.ports.clone(),
            roots_pem: Vec::new(),
            identity: Some(net::Identity {
                name: identity.name.clone(),
                certificates_pem: identity.certificates.clone().into_bytes(),
                key_pem: key,
            }),
        });
    }
    Ok(rules)
}

/// Refuses to start where the agent could read the key of a client certificate.
pub(super) fn keys_are_hidden(loaded: &Loaded, plan: &Plan) -> Outcome<()> {
    for identity in &loaded.identities {
        let key = identity
            .key
            .canonicalize()
            .map_err(at("find", &identity.key))?;
        let trees = plan.trees.iter().map(|tree| &tree.target);
        let shown = trees
            .chain(plan.read_only.iter().map(|bind| &bind.source))
            .find(|shown| {
                let real = shown.canonicalize();
                key.starts_with(real.as_ref().unwrap_or(shown))
            });
        if let Some(shown) = shown {
            return Err(Failure::new(format!(
                "the key `{}` of the client certificate `{}` lies below `{}`, where the agent can read it; move it to \
                 `~/.config/kairos/` and name that in the policy",
                identity.key.display(),
                identity.name,
                shown.display()
            )));
        }
    }
    Ok(())
}

/// Sends what is still held when its session has ended.
pub(super) fn sender(
    session: &Arc<Session>,
    setup: &Setup,
    loaded: &Loaded,
) -> Outcome<net::OfflineSender> {
    net::OfflineSender::new(
        Arc::clone(session),
        &upstreams(loaded),
        &roots(loaded),
        &tls(loaded)?,
        credentials(setup, loaded),
    )
    .map_err(Failure::new)
}

/// Opens this host's loopback for services inside.
pub(super) fn publish(
    session: &Session,
    net: &net::Net,
    published: &[Published],
    door: Option<sandbox::Door>,
) -> Outcome<()> {
    let (Some(door), false) = (door, published.is_empty()) else {
        return Ok(());
    };
    let door: net::Door = Arc::new(move |v6| door.socket(v6).map_err(std::io::Error::other));
    for Published { outside, inside } in published {
        let listen = |address: std::net::IpAddr| std::net::TcpListener::bind((address, *outside));
        let listener = listen(std::net::Ipv4Addr::LOCALHOST.into()).map_err(|e| {
            Failure::new(format!(
                "cannot publish port {outside}: {e}; free it, or write `--publish OTHER:{inside}`"
            ))
        })?;
        net.publish(listener, *inside, Arc::clone(&door))
            .map_err(Failure::new)?;
        // A host without IPv6 has the other.
        if let Ok(listener) = listen(std::net::Ipv6Addr::LOCALHOST.into()) {
            net.publish(listener, *inside, Arc::clone(&door))
                .map_err(Failure::new)?;
        }
        let facts = [("outside", outside), ("inside", inside)];
        let facts = facts.map(|(name, port)| (name.to_string(), port.to_string()));
        session.note("port published", BTreeMap::from(facts));
    }
    Ok(())
}

/// Credentials of the session that the environment does not hold now: variable and placeholder.
pub(super) fn missing(setup: &Setup) -> Vec<(String, String)> {
    let is_set = |env: &str| std::env::var(env).is_ok_and(|value| !value.is_empty());
    let missing = setup.placeholders.iter().filter(|(env, _)| !is_set(env));
    missing.cloned().collect()
}

fn credentials(setup: &Setup, loaded: &Loaded) -> Vec<net::Credential> {
    let real = |env: &str| std::env::var(env).ok().filter(|value| !value.is_empty());
    setup
        .placeholders
        .iter()
        .filter_map(|(env, placeholder)| {
            let credential = loaded.credentials.iter().find(|c| c.env == *env)?;
            Some(net::Credential {
                placeholder: placeholder.clone(),
                value: real(env)?,
                hosts: credential.hosts.clone(),
            })
        })
        .collect()
}
