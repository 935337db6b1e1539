//! Browsers have stores of their own below the home, which starts empty inside. What an administrator
//! of the machine would write makes them trust the session's authority all the same, and keeps them from
//! errands of their own.

use base64::Engine as _;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use sandbox::SyntheticFile;

/// Where Chromium and its kin read the policies of a machine.
const CHROMIUM: [&str; 5] = [
    "/etc/chromium/policies/managed/kairos.json",
    "/etc/chromium-browser/policies/managed/kairos.json",
    "/etc/opt/chrome/policies/managed/kairos.json",
    "/etc/opt/edge/policies/managed/kairos.json",
    "/etc/brave/policies/managed/kairos.json",
];

/// Flags for Debian's Chromium, read by its start script: some components ask for updates whatever the
/// policy says, so where they ask is made to be nobody of the agent's own loopback.
const CHROMIUM_FLAGS: (&str, &str) = (
    "/etc/chromium.d/kairos",
    "export CHROMIUM_FLAGS=\"$CHROMIUM_FLAGS --component-updater=url-source=https://localhost:9/\"\n",
);

/// Where Firefox reads its own.
const FIREFOX: &str = "/etc/firefox/policies/policies.json";

/// Policies that name the authority; `file` is where its certificate lies inside.
pub(super) fn policies(authority_pem: &str, file: &str) -> Vec<SyntheticFile> {
    let mut files = Vec::new();
    if let Ok(certificate) = CertificateDer::from_pem_slice(authority_pem.as_bytes()) {
        let der = base64::engine::general_purpose::STANDARD.encode(certificate);
        let policy = serde_json::json!({
            "CACertificates": [der],
            // Look-ups stay with the system's resolver, which is us, whatever the browser prefers.
            "DnsOverHttpsMode": "off",
            "QuicAllowed": false,
            // Its own errands: held, they would keep everything waiting that comes after them.
            "BrowserNetworkTimeQueriesEnabled": false,
            "ComponentUpdatesEnabled": false,
            "MetricsReportingEnabled": false,
            "SafeBrowsingProtectionLevel": 0,
            "SearchSuggestEnabled": false,
            "SpellcheckEnabled": false,
            "TranslateEnabled": false,
        });
        files.push(SyntheticFile::read_only(CHROMIUM_FLAGS.0, CHROMIUM_FLAGS.1));
        files.extend(CHROMIUM.map(|path| SyntheticFile::read_only(path, policy.to_string())));
    }
    let policy = serde_json::json!({
        "policies": {
            "Certificates": { "Install": [file] },
            "DNSOverHTTPS": { "Enabled": false, "Locked": true },
            "CaptivePortal": false,
            "DisableAppUpdate": true,
            "DisableFirefoxStudies": true,
            "DisableTelemetry": true,
            "ExtensionUpdate": false,
            "NetworkPrediction": false,
            "SearchSuggestEnabled": false,
        }
    });
    files.push(SyntheticFile::read_only(FIREFOX, policy.to_string()));
    files
}
