//! The store that Java programs trust: each runtime has its own file, in a form of its own. Ours is
//! written in the older form (JKS), which every version reads, also where it expects PKCS #12.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sandbox::SyntheticFile;
use sha1::{Digest as _, Sha1};

/// Directories that hold one runtime each.
const HOMES: [&str; 6] = [
    "/usr/lib/jvm",
    "/usr/lib64/jvm",
    "/usr/java",
    "/opt",
    "/opt/java",
    "/usr/local",
];

/// Where a runtime keeps its store, newer and older.
const STORES: [&str; 2] = ["lib/security/cacerts", "jre/lib/security/cacerts"];

/// Stores that several runtimes share.
const SHARED: [&str; 2] = ["/etc/ssl/certs/java/cacerts", "/etc/pki/java/cacerts"];

/// What protects every such store against accidents; it is no secret.
const PASSWORD: &str = "changeit";

/// The bundle's certificates in place of the store of every runtime that is found.
pub(super) fn stores(bundle_pem: &[u8]) -> Vec<SyntheticFile> {
    let found = found(std::env::var_os("JAVA_HOME").map(PathBuf::from));
    if found.is_empty() {
        return Vec::new();
    }
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(bundle_pem)
        .filter_map(Result::ok)
        .collect();
    let store = written(&certificates);
    found
        .into_iter()
        .map(|path| SyntheticFile::read_only(path, store.clone()))
        .collect()
}

/// Every store below the directories that are shown inside as they are, links followed.
fn found(named: Option<PathBuf>) -> BTreeSet<PathBuf> {
    let runtimes = HOMES
        .iter()
        .filter_map(|home| std::fs::read_dir(home).ok())
        .flat_map(|entries| entries.filter_map(Result::ok))
        .map(|entry| entry.path())
        .chain(named);
    runtimes
        .flat_map(|runtime| STORES.map(|store| runtime.join(store)))
        .chain(SHARED.iter().map(PathBuf::from))
        .filter_map(|path| path.canonicalize().ok())
        .filter(|path| is_shown(path) && path.is_file())
        .collect()
}

/// Whether the agent sees this place of the host.
fn is_shown(path: &Path) -> bool {
    ["/usr", "/etc", "/opt"]
        .iter()
        .any(|shown| path.starts_with(shown))
}

/// A JKS file: numbers are big-endian, texts have their length before them, and a digest over the
/// password, a fixed phrase and everything before ends it.
fn written(certificates: &[CertificateDer<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend_from_slice(&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]);
    number(&mut out, certificates.len());
    for (index, certificate) in certificates.iter().enumerate() {
        // A trusted certificate, its alias, and when it was put in.
        out.extend_from_slice(&[0, 0, 0, 2]);
        text(&mut out, &format!("kairos-{index}"));
        out.extend_from_slice(&[0; 8]);
        text(&mut out, "X.509");
        number(&mut out, certificate.len());
        out.extend_from_slice(certificate);
    }
    let mut digest = Sha1::new();
    for unit in PASSWORD.encode_utf16() {
        digest.update(unit.to_be_bytes());
    }
    digest.update(b"Mighty Aphrodite");
    digest.update(&out);
    out.extend_from_slice(&digest.finalize());
    out
}

fn number(out: &mut Vec<u8>, number: usize) {
    out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
}

fn text(out: &mut Vec<u8>, text: &str) {
    let length = u16::try_from(text.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One certificate, as `keytool -importcert` of a JDK writes it but for alias and time; that
    /// runtimes accept it is what the end-to-end tests show.
    #[test]
    fn the_form_of_a_store() {
        let store = written(&[CertificateDer::from(vec![7, 7, 7])]);
        let (body, digest) = store.split_at(store.len() - 20);
        assert_eq!(
            body,
            [
                &[
                    0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 2, 0, 8
                ][..],
                b"kairos-0",
                &[0; 8],
                &[0, 5],
                b"X.509",
                &[0, 0, 0, 3, 7, 7, 7],
            ]
            .concat()
        );
        assert_ne!(digest, [0; 20]);
    }
}
