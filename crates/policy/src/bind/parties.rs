//! Parties, where they are really reached, and the credentials they get.

use std::collections::BTreeMap;

use kernel::Level;
use kernel::policy::{Gate, HostPattern, Party, PathRule};

use super::Binder;
use crate::error::{listed, nearest};
use crate::loaded::{Credential, PartyConnection, UpstreamRule};
use crate::party::{Allow, PartyEntry, ProviderEntry, below, is_any_path};
use crate::read::Word;

/// Who may be talked to, and what is needed to reach them.
pub(super) struct Parties {
    pub(super) parties: Vec<Party>,
    pub(super) upstreams: Vec<UpstreamRule>,
    pub(super) roots: Vec<RootEntry>,
    pub(super) identities: Vec<IdentityEntry>,
    pub(super) connections: Vec<PartyConnection>,
}

/// A file of certificates, for some hosts or for all.
pub(crate) struct RootEntry {
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) file: Word,
}

/// A client certificate and its key, for a party's hosts and ports.
pub(crate) struct IdentityEntry {
    pub(crate) hosts: Vec<HostPattern>,
    pub(crate) ports: Vec<u16>,
    pub(crate) certificate: Word,
    pub(crate) key: Word,
}

impl Binder<'_> {
    pub(super) fn parties(&self) -> Parties {
        let mut parties = Vec::new();
        let mut upstreams = Vec::new();
        let mut roots: Vec<RootEntry> = Vec::new();
        let mut identities = Vec::new();
        let mut connections = Vec::new();
        let mut claimed: BTreeMap<(String, u16), String> = BTreeMap::new();
        for entry in &self.sheet.parties {
            let entry = self.with_preset(entry);
            self.claim(&mut claimed, &entry);
            let hosts = host_patterns(&entry.hosts);
            if let Some(upstream) = &entry.upstream {
                upstreams.push(UpstreamRule {
                    hosts: hosts.clone(),
                    ports: entry.ports.clone(),
                    upstream: upstream.clone(),
                });
            }
            roots.extend(entry.roots.iter().map(|file| RootEntry {
                hosts: hosts.clone(),
                file: file.clone(),
            }));
            if !entry.host_keys.is_empty() || entry.rate.is_some() || entry.connections.is_some() {
                connections.push(PartyConnection {
                    name: entry.name.text.clone(),
                    hosts: hosts.clone(),
                    ports: entry.ports.clone(),
                    host_keys: entry.host_keys.clone(),
                    rate: entry.rate,
                    connections: entry.connections,
                });
            }
            identities.extend(
                entry
                    .identity
                    .clone()
                    .map(|(certificate, key)| IdentityEntry {
                        hosts,
                        ports: entry.ports.clone(),
                        certificate,
                        key,
                    }),
            );
            parties.push(self.party(&entry));
        }
        if self.sheet.defaults.parties {
            parties.extend(self.default.parties.iter().map(|entry| self.party(entry)));
        }
        roots.extend(self.sheet.roots.iter().map(|file| RootEntry {
            hosts: Vec::new(),
            file: file.clone(),
        }));
        // The first that matches counts: exact names before patterns, `*` last.
        parties.sort_by_key(|party| {
            let widest = party
                .hosts
                .iter()
                .map(|host| width(&host.0))
                .max()
                .unwrap_or(0);
            (widest, party.ports.is_empty())
        });
        Parties {
            parties,
            upstreams,
            roots,
            identities,
            connections,
        }
    }

    fn claim(&self, claimed: &mut BTreeMap<(String, u16), String>, entry: &PartyEntry) {
        let ports: &[u16] = if entry.ports.is_empty() {
            &[0]
        } else {
            &entry.ports
        };
        for host in &entry.hosts {
            for port in ports {
                let key = (host.text.clone(), *port);
                if let Some(other) = claimed.insert(key, entry.name.text.clone()) {
                    self.file.wrong_help(
                        host.span.clone(),
                        format!("party `{other}` already names `{}`", host.text),
                        "named a second time",
                        "say everything about one host and port in one party",
                    );
                    return;
                }
            }
        }
    }

    fn with_preset(&self, entry: &PartyEntry) -> PartyEntry {
        let mut entry = entry.clone();
        let Some(word) = entry.preset.clone() else {
            return entry;
        };
        let names: Vec<&str> = self
            .default
            .presets
            .iter()
            .map(|p| p.name.text.as_str())
            .collect();
        let found = self
            .default
            .presets
            .iter()
            .find(|preset| preset.name.text == word.text);
        let Some(preset) = found else {
            let help = match nearest(&word.text, names.iter().copied()) {
                Some(near) => format!("did you mean `{near}`? There is {}", listed(names)),
                None => format!("there is {}", listed(names)),
            };
            self.file.wrong_help(
                word.span,
                format!("there is no preset `{}`", word.text),
                "not known",
                help,
            );
            return entry;
        };
        if entry.hosts.is_empty() {
            // The place of the preset's name stands for the hosts it brings.
            entry.hosts = preset
                .hosts
                .iter()
                .map(|host| Word {
                    text: host.text.clone(),
                    span: word.span.clone(),
                })
                .collect();
        }
        if matches!(entry.allow, Allow::Unsaid) {
            entry.allow = preset.allow.clone();
        }
        entry.blocking.extend(preset.blocking.iter().cloned());
        entry
    }

    fn party(&self, entry: &PartyEntry) -> Party {
        let (methods, named, gate) = match &entry.allow {
            Allow::Unsaid => (Vec::new(), Vec::new(), Gate::Url),
            Allow::Any => (Vec::new(), Vec::new(), Gate::Host),
            Allow::Some(requests) => {
                let (plain, with_path): (Vec<&PathRule>, Vec<&PathRule>) =
                    requests.iter().partition(|rule| is_any_path(rule));
                let mut methods: Vec<String> = plain
                    .iter()
                    .flat_map(|rule| rule.methods.iter().cloned())
                    .collect();
                if methods.is_empty() {
                    // An empty list would stand for every method; this one matches none.
                    methods.push(String::new());
                }
                (
                    methods,
                    with_path.into_iter().cloned().collect(),
                    Gate::Host,
                )
            }
        };
        Party {
            name: entry.name.text.clone(),
            hosts: host_patterns(&entry.hosts),
            ports: entry.ports.clone(),
            clearance: entry.clearance.unwrap_or(Level::Public),
            methods,
            paths: entry.paths.clone(),
            internal: self.internal(entry),
            blocking: entry.blocking.clone(),
            named,
            gate,
        }
    }

    fn internal(&self, entry: &PartyEntry) -> Vec<PathRule> {
        let providers = || {
            self.default
                .parties
                .iter()
                .filter(|party| party.provider.is_some())
        };
        let models = |party: &PartyEntry| match &party.provider {
            Some(ProviderEntry::Models(models)) => models.clone(),
            _ => Vec::new(),
        };
        match &entry.provider {
            Some(ProviderEntry::No) => Vec::new(),
            Some(ProviderEntry::Models(models)) => models.clone(),
            Some(ProviderEntry::Any) => {
                let common = ["", "/v1"].iter().flat_map(|base| below(base));
                common.chain(providers().flat_map(models)).collect()
            }
            Some(ProviderEntry::Like(word)) => {
                let names: Vec<&str> = providers().map(|party| party.name.text.as_str()).collect();
                let parse = |name: &str| {
                    providers()
                        .find(|party| party.name.text == name)
                        .map(models)
                };
                self.file
                    .one_of(word, "known model provider", &names, parse)
                    .unwrap_or_default()
            }
            // A party that names the host of a known provider and says nothing of models.
            None => entry
                .hosts
                .iter()
                .flat_map(|host| {
                    providers().filter(|party| {
                        party
                            .hosts
                            .iter()
                            .any(|known| HostPattern(known.text.clone()).matches(&host.text))
                    })
                })
                .flat_map(models)
                .collect(),
        }
    }

    pub(super) fn credentials(&self) -> Vec<Credential> {
        let mut credentials: Vec<Credential> = self
            .sheet
            .credentials
            .iter()
            .map(|entry| Credential {
                env: entry.env.text.clone(),
                hosts: host_patterns(&entry.hosts),
                placeholder: entry.placeholder.clone(),
            })
            .collect();
        let shipped = self
            .default
            .parties
            .iter()
            .filter(|_| self.sheet.defaults.parties);
        for party in self.sheet.parties.iter().chain(shipped) {
            for env in &party.credentials {
                let hosts = host_patterns(&party.hosts);
                match credentials.iter_mut().find(|known| known.env == env.text) {
                    // What a `[[credential]]` says of a variable is all that counts for it.
                    Some(_)
                        if self
                            .sheet
                            .credentials
                            .iter()
                            .any(|c| c.env.text == env.text) => {}
                    Some(known) => known.hosts.extend(hosts),
                    None => credentials.push(Credential {
                        env: env.text.clone(),
                        hosts,
                        placeholder: party.placeholder.clone(),
                    }),
                }
            }
        }
        credentials
    }
}

fn host_patterns(hosts: &[Word]) -> Vec<HostPattern> {
    hosts
        .iter()
        .map(|host| HostPattern(host.text.clone()))
        .collect()
}

fn width(host: &str) -> u8 {
    match host {
        "*" => 2,
        pattern if pattern.starts_with(['*', '.']) => 1,
        _ => 0,
    }
}
