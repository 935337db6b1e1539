//! What is trusted and resolved inside: the session's authority in every store that programs
//! look at, a resolver that is us, an environment cut down to an allow-list.

/// What makes browsers trust the authority.
mod browsers;
/// The store that Java programs trust.
mod java;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;

use sandbox::SyntheticFile;

/// Bundles that distributions keep; the first that exists is what ours is made from.
const BUNDLES: [&str; 5] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Where the bundle is always put, whatever the distribution.
pub(crate) const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Variables that programs read the path of a bundle from. Programs that read none of them find
/// the bundle at its usual places.
const BUNDLE_VARIABLES: [&str; 13] = [
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "CARGO_HTTP_CAINFO",
    "AWS_CA_BUNDLE",
    "DENO_CERT",
    "CODEX_CA_CERTIFICATE",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "HTTPLIB2_CA_CERTS",
    "NIX_SSL_CERT_FILE",
];

/// Any address would do: every one of them is answered by us.
const RESOLVER: &str = "10.0.2.3";

/// Files that the agent sees in place of the host's. `known_hosts` are SSH servers with their keys.
pub(crate) fn files(authority_pem: &str, hostname: &str, known_hosts: &str) -> Vec<SyntheticFile> {
    let mut bundle = host_bundle();
    if !bundle.is_empty() && !bundle.ends_with(b"\n") {
        bundle.push(b'\n');
    }
    bundle.extend_from_slice(authority_pem.as_bytes());
    let mut places: Vec<PathBuf> = vec![BUNDLE.into()];
    places.extend(
        BUNDLES
            .iter()
            .map(PathBuf::from)
            .filter(|path| path.exists()),
    );
    // A link into a place that is on the list already must not be written twice.
    let mut real: Vec<PathBuf> = places
        .into_iter()
        .map(|path| path.canonicalize().unwrap_or(path))
        .collect();
    real.sort();
    real.dedup();
    let mut files: Vec<SyntheticFile> = real
        .into_iter()
        .map(|path| SyntheticFile::read_only(path, bundle.clone()))
        .collect();
    let authority = format!("/etc/ssl/certs/{AUTHORITY_SUBJECT_HASH}.0");
    files.push(SyntheticFile::read_only(&authority, authority_pem));
    files.extend(java::stores(&bundle));
    files.extend(browsers::policies(authority_pem, &authority));
    if !known_hosts.is_empty() {
        files.push(SyntheticFile::read_only(
            "/etc/ssh/ssh_known_hosts",
            known_hosts,
        ));
    }
    files.push(SyntheticFile::read_only(
        "/etc/resolv.conf",
        format!("nameserver {RESOLVER}\noptions timeout:5 attempts:2\n"),
    ));
    files.push(SyntheticFile::read_only(
        "/etc/hosts",
        format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n"),
    ));
    files.push(SyntheticFile::read_only("/etc/nsswitch.conf", NSSWITCH));
    files
}

/// What OpenSSL calls a certificate of this subject in a certificate directory.
const AUTHORITY_SUBJECT_HASH: &str = "edb3a611";

/// Names are looked up in files and by DNS only: other modules talk to sockets of the host.
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\n\
                        networks: files\nprotocols: files\nservices: files\nethers: files\nrpc: files\n";

/// Variables that are set inside, whatever the host has.
pub(crate) fn variables() -> BTreeMap<OsString, OsString> {
    let mut set: BTreeMap<OsString, OsString> = BUNDLE_VARIABLES
        .iter()
        .map(|name| ((*name).into(), BUNDLE.into()))
        .collect();
    set.insert("SSL_CERT_DIR".into(), "/etc/ssl/certs".into());
    set.insert("NODE_USE_SYSTEM_CA".into(), "1".into());
    set.insert("KAIROS".into(), "1".into());
    set
}

fn host_bundle() -> Vec<u8> {
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    named
        .into_iter()
        .chain(BUNDLES.iter().map(PathBuf::from))
        .find_map(|path| std::fs::read(path).ok().filter(|bytes| !bytes.is_empty()))
        .unwrap_or_default()
}
