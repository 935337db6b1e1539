//! From files to a policy in force, and back from what a session recorded of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use kernel::Digest;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde::{Deserialize, Serialize};

use crate::bind::{Binder, IdentityEntry, RootEntry, expand};
use crate::error::{Finding, PolicyErrors};
use crate::loaded::{Identity, Loaded, OracleConfig, Root};
use crate::read::{Document, Word};
use crate::rules::{CedarRules, RuleText};
use crate::sheet::Sheet;

/// The built-in default, in the format of every policy.
pub const DEFAULT: &str = include_str!("../../../policies/default.toml");

/// No policy, rule file or certificate is longer.
const FILE_BYTES_MAX: u64 = 4 << 20;
const DEADLINE_S: u64 = 30;

/// Reads a policy file, or the built-in default alone, for a workspace and a home.
///
/// # Errors
/// Everything that is wrong with it, with places and what to write instead.
pub fn load(path: Option<&Path>, workspace: &Path, home: &Path) -> Result<Loaded, PolicyErrors> {
    let text = path.map(read_policy).transpose()?;
    load_from(path, text, workspace, home)
}

/// As [`load`], for a policy whose text is at hand; files that it names are looked for from the
/// current directory.
///
/// # Errors
/// As [`load`].
pub fn load_text(text: &str, workspace: &Path, home: &Path) -> Result<Loaded, PolicyErrors> {
    load_from(None, Some(text.to_string()), workspace, home)
}

fn load_from(
    path: Option<&Path>,
    text: Option<String>,
    workspace: &Path,
    home: &Path,
) -> Result<Loaded, PolicyErrors> {
    let directory = path
        .and_then(Path::parent)
        .map(Path::to_path_buf)
        .unwrap_or_default();
    let fetch = |name: &str| read_text(&directory.join(expand(name, home)));
    let record = Record {
        version: 1,
        origin: path.map(Path::to_path_buf),
        workspace: workspace.to_path_buf(),
        home: home.to_path_buf(),
        present: present(home),
        policy: text,
        files: BTreeMap::new(),
        default: DEFAULT.to_string(),
    };
    put_together(record, &fetch, true)
}

/// What a session recorded of its policy file: where it was, and its text. Nothing for the built-in
/// default alone.
///
/// # Errors
/// As [`recorded`].
pub fn recorded_file(text: &str) -> Result<Option<(PathBuf, String)>, PolicyErrors> {
    recorded(text)?;
    let record: Option<Record> = serde_json::from_str(text).ok();
    Ok(record.and_then(|record| Some((record.origin?, record.policy?))))
}

/// What a session recorded of its policy, with `addition` at the end of its file: what would be in
/// force if the file said that too. Nothing is written.
///
/// # Errors
/// Everything that is wrong with the two together.
pub fn amended(text: &str, addition: &str) -> Result<Loaded, PolicyErrors> {
    let loaded = recorded(text)?;
    let Ok(mut record) = serde_json::from_str::<Record>(text) else {
        return Ok(loaded);
    };
    let mut policy = record.policy.take().unwrap_or_default();
    if !policy.is_empty() && !policy.ends_with('\n') {
        policy.push('\n');
    }
    policy.push_str(addition);
    record.policy = Some(policy);
    let files = record.files.clone();
    let fetch = |name: &str| {
        files
            .get(name)
            .cloned()
            .ok_or_else(|| "it was not recorded".to_string())
    };
    put_together(record, &fetch, false)
}

/// Reads back what [`Loaded::text`] holds, without looking at the disk: the same policy with the
/// same epoch, whatever happened to its files since.
///
/// # Errors
/// When the text is damaged, or from a newer version.
pub fn recorded(text: &str) -> Result<Loaded, PolicyErrors> {
    let damaged = |why: String| {
        PolicyErrors(vec![Finding::whole(
            Path::new("the session's policy"),
            format!("what the session recorded of its policy cannot be read: {why}"),
            "the session was made by another version, or its files are damaged; its holds cannot be released",
        )])
    };
    let record: Record = serde_json::from_str(text).map_err(|error| damaged(error.to_string()))?;
    if record.version != 1 {
        return Err(damaged(format!("version {} is not known", record.version)));
    }
    let files = record.files.clone();
    let fetch = |name: &str| {
        files
            .get(name)
            .cloned()
            .ok_or_else(|| "it was not recorded".to_string())
    };
    let loaded = put_together(record, &fetch, false)?;
    if loaded.text != text {
        return Err(damaged("it was not written by this program".to_string()));
    }
    Ok(loaded)
}

/// Digest of what an operator reads when approving a policy: its text and every file it names.
pub(crate) fn fingerprint(loaded: &Loaded) -> Digest {
    let Ok(record) = serde_json::from_str::<Record>(&loaded.text) else {
        return Digest::of(loaded.text.as_bytes());
    };
    let said = serde_json::to_vec(&(record.policy, record.files)).unwrap_or_default();
    Digest::of(&said)
}

/// All that a policy consists of.
#[derive(Serialize, Deserialize)]
struct Record {
    version: u32,
    origin: Option<PathBuf>,
    workspace: PathBuf,
    home: PathBuf,
    present: Vec<String>,
    policy: Option<String>,
    files: BTreeMap<String, String>,
    default: String,
}

type Fetch<'a> = &'a dyn Fn(&str) -> Result<String, String>;

/// `fresh` when the policy comes from its files, and not from what was recorded of them.
fn put_together(mut record: Record, fetch: Fetch<'_>, fresh: bool) -> Result<Loaded, PolicyErrors> {
    let shipped = Document::new("the built-in default", &record.default);
    let default = Sheet::read(&shipped, true);
    let name = record
        .origin
        .as_ref()
        .map(|path| path.display().to_string());
    let file = Document::new(
        name.as_deref().unwrap_or("kairos.toml"),
        record.policy.as_deref().unwrap_or_default(),
    );
    let sheet = Sheet::read(&file, false);
    let files = RefCell::new(BTreeMap::new());
    let read = |word: &Word| match fetch(&word.text) {
        Ok(text) => {
            files.borrow_mut().insert(word.text.clone(), text.clone());
            Some(text)
        }
        Err(why) => {
            file.wrong_help(
                word.span.clone(),
                format!("`{}` cannot be read: {why}", word.text),
                "this file",
                "write a path from the policy's directory, from `~/` or from `/`",
            );
            None
        }
    };
    let home = record.home.clone();
    let binder = Binder {
        file: &file,
        sheet: &sheet,
        default: &default,
        home: &home,
        present: &record.present,
        trees: Vec::new(),
    };
    let mut bound = binder.bind();
    let roots = roots(&file, std::mem::take(&mut bound.roots), &read);
    let directory = record.origin.as_deref().and_then(Path::parent);
    let key = |word: &Word| {
        let path = expand(&word.text, &home);
        directory.map_or_else(|| path.clone(), |directory| directory.join(&path))
    };
    let identities = identities(
        &file,
        std::mem::take(&mut bound.identities),
        &read,
        &key,
        fresh,
    );
    let rules = rules(&file, &sheet, &bound.policy, &read);
    let mut findings = file.into_findings();
    findings.extend(shipped.into_findings());
    let mut rules = rules.unwrap_or_else(|wrong| {
        findings.extend(wrong);
        CedarRules::default()
    });
    if !findings.is_empty() {
        return Err(PolicyErrors(findings));
    }
    record.files = files.into_inner();
    let text = serde_json::to_string(&record).unwrap_or_default();
    bound.policy.epoch = Digest::of(text.as_bytes());
    rules.rebind(&bound.policy);
    Ok(Loaded {
        kernel: bound.policy,
        rules,
        upstreams: bound.upstreams,
        roots,
        identities,
        connections: bound.connections,
        net_limits: sheet.net_limits,
        files: sheet.files,
        credentials: bound.credentials,
        agent: bound.agent,
        oracle: OracleConfig {
            default: sheet.oracle.map(|word| word.text),
            deadline_s: sheet.deadline_s.unwrap_or(DEADLINE_S),
        },
        text,
        origin: record.origin,
    })
}

fn roots(
    file: &Document<'_>,
    named: Vec<RootEntry>,
    read: &dyn Fn(&Word) -> Option<String>,
) -> Vec<Root> {
    named
        .into_iter()
        .filter_map(|RootEntry { hosts, file: word }| {
            let pem = read(&word)?;
            let certificates: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
            if certificates.is_ok_and(|certificates| !certificates.is_empty()) {
                return Some(Root { hosts, pem });
            }
            file.wrong_help(
                word.span,
                format!("`{}` holds no certificate", word.text),
                "this file",
                "name a PEM file: one with a line `-----BEGIN CERTIFICATE-----`",
            );
            None
        })
        .collect()
}

/// A key is looked at when its policy comes into force, and kept nowhere.
fn identities(
    file: &Document<'_>,
    named: Vec<IdentityEntry>,
    read: &dyn Fn(&Word) -> Option<String>,
    key: &dyn Fn(&Word) -> PathBuf,
    fresh: bool,
) -> Vec<Identity> {
    let sound = |entry: &IdentityEntry, path: &Path| {
        let wrong = |what: String, help: &str| {
            file.wrong_help(entry.key.span.clone(), what, "this file", help);
        };
        match read_text(path) {
            Ok(pem) if PrivateKeyDer::from_pem_slice(pem.as_bytes()).is_ok() => {}
            Ok(_) => wrong(
                format!("`{}` holds no private key that can be used", entry.key.text),
                "name a PEM file with a line `-----BEGIN PRIVATE KEY-----`; a key with a passphrase has to be \
                 unlocked first (`openssl pkey -in IN -out OUT`)",
            ),
            Err(why) => wrong(
                format!("`{}` cannot be read: {why}", entry.key.text),
                "write a path from the policy's directory, from `~/` or from `/`",
            ),
        }
    };
    named
        .into_iter()
        .filter_map(|entry| {
            let path = key(&entry.key);
            if fresh {
                sound(&entry, &path);
            }
            let certificates = read(&entry.certificate)?;
            if certificates.contains("PRIVATE KEY-----") {
                // What the policy names is recorded with every session; a key must not be.
                file.wrong_help(
                    entry.certificate.span,
                    format!("`{}` holds a private key", entry.certificate.text),
                    "this file",
                    "put the certificate into a file of its own (`openssl x509 -in BOTH -out CERTIFICATE`), and name \
                     the other one as `key`",
                );
                return None;
            }
            let found: Result<Vec<_>, _> =
                CertificateDer::pem_slice_iter(certificates.as_bytes()).collect();
            if !found.is_ok_and(|found| !found.is_empty()) {
                file.wrong_help(
                    entry.certificate.span,
                    format!("`{}` holds no certificate", entry.certificate.text),
                    "this file",
                    "name a PEM file: one with a line `-----BEGIN CERTIFICATE-----`",
                );
                return None;
            }
            Some(Identity {
                hosts: entry.hosts,
                ports: entry.ports,
                name: entry.certificate.text,
                certificates,
                key: path,
            })
        })
        .collect()
}

fn rules(
    file: &Document<'_>,
    sheet: &Sheet,
    policy: &kernel::Policy,
    read: &dyn Fn(&Word) -> Option<String>,
) -> Result<CedarRules, Vec<Finding>> {
    let texts: Vec<(String, String)> = sheet
        .rule_files
        .iter()
        .filter_map(|word| read(word).map(|text| (word.text.clone(), text)))
        .collect();
    let mut all: Vec<RuleText<'_>> = sheet
        .rules
        .iter()
        .map(|rule| {
            // The text as it stands in the file, so that places in it can be shown; a text with
            // escapes is shown as a whole.
            let raw = file.text.get(rule.cedar.span.clone()).unwrap_or_default();
            let (start, text) = match raw.find(&rule.cedar.text) {
                Some(at) => (rule.cedar.span.start + at, file.text),
                None => (0, rule.cedar.text.as_str()),
            };
            RuleText {
                file: file.file,
                text,
                start,
                cedar: &rule.cedar.text,
                named: Some((&rule.name.text, rule.says.as_deref())),
            }
        })
        .collect();
    all.extend(texts.iter().map(|(name, text)| RuleText {
        file: name,
        text,
        start: 0,
        cedar: text,
        named: None,
    }));
    CedarRules::compile(&all, policy)
}

fn read_policy(path: &Path) -> Result<String, PolicyErrors> {
    read_text(path).map_err(|why| {
        PolicyErrors(vec![Finding::whole(
            path,
            format!("the policy cannot be read: {why}"),
            "`kairos init` writes one; without `--policy` the built-in default is in force",
        )])
    })
}

/// A file as text; refuses what is too long to be a policy.
pub(crate) fn read_text(path: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    // Opened without waiting for a writer, should it be a pipe.
    let kind = fs::metadata(path).map_err(|error| said(&error))?;
    if !kind.is_file() {
        return Err("it is not a file".to_string());
    }
    let file = fs::File::open(path).map_err(|error| said(&error))?;
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| said(&error))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        return Err(format!("it is longer than {} MiB", FILE_BYTES_MAX >> 20));
    }
    String::from_utf8(bytes).map_err(|_| "it is not UTF-8 text".to_string())
}

fn said(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => "there is no such file".to_string(),
        std::io::ErrorKind::PermissionDenied => "you may not read it".to_string(),
        _ => error.to_string(),
    }
}

/// State directories of known agents that a home has.
fn present(home: &Path) -> Vec<String> {
    let shipped = Document::new("", DEFAULT);
    let default = Sheet::read(&shipped, true);
    default
        .known
        .iter()
        .flat_map(|known| &known.state)
        .filter(|word| expand(&word.text, home).is_dir())
        .map(|word| word.text.clone())
        .collect()
}
