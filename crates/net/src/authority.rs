//! The session's certificate authority. It lives in memory only, is trusted nowhere but inside
//! the boundary, and ends with the session.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose, SanType, SerialNumber,
};
use rustls::ServerConfig;
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use time::{Duration, OffsetDateTime};

/// Names whose leaf is kept ready.
const LEAVES_MAX: usize = 4096;

/// Why the authority could not be made or asked.
#[derive(Debug, thiserror::Error)]
pub enum AuthorityError {
    /// The certificate library refused.
    #[error("cannot make a certificate for `{0}`: {1}")]
    Certificate(String, rcgen::Error),
    /// The TLS library refused.
    #[error("cannot set up TLS for `{0}`: {1}")]
    Tls(String, rustls::Error),
}

/// A certificate authority for one session.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    leaf_key: KeyPair,
    provider: Arc<CryptoProvider>,
    leaves: Mutex<HashMap<String, Arc<ServerConfig>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The keys do not belong in a log.
        f.write_str("Authority")
    }
}

impl Authority {
    /// Makes a new one, valid from yesterday for a month.
    ///
    /// # Errors
    /// When no key or certificate can be made.
    pub fn new() -> Result<Self, AuthorityError> {
        let wrong = |error| AuthorityError::Certificate("the session's authority".into(), error);
        let key = KeyPair::generate().map_err(wrong)?;
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(DnType::CommonName, "Kairos session authority");
        params
            .distinguished_name
            .push(DnType::OrganizationName, "Kairos");
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::CrlSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        valid(&mut params);
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(wrong)?;
        let leaf_key = KeyPair::generate().map_err(wrong)?;
        Ok(Self {
            issuer,
            leaf_key,
            provider: Arc::new(aws_lc_rs::default_provider()),
            leaves: Mutex::default(),
        })
    }

    /// The authority's certificate, to be trusted inside the boundary.
    pub fn pem(&self) -> String {
        self.issuer.pem()
    }

    /// TLS settings with a leaf for a canonical host or address.
    ///
    /// # Errors
    /// When no leaf can be made for it.
    pub fn server_config(&self, host: &str) -> Result<Arc<ServerConfig>, AuthorityError> {
        let mut leaves = self.leaves.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(ready) = leaves.get(host) {
            return Ok(Arc::clone(ready));
        }
        if leaves.len() >= LEAVES_MAX {
            leaves.clear();
        }
        let made = Arc::new(self.make(host)?);
        leaves.insert(host.to_string(), Arc::clone(&made));
        Ok(made)
    }

    fn make(&self, host: &str) -> Result<ServerConfig, AuthorityError> {
        let wrong = |error| AuthorityError::Certificate(host.to_string(), error);
        let tls = |error| AuthorityError::Tls(host.to_string(), error);
        let mut params = CertificateParams::default();
        // A common name has 64 characters at most; clients look at the alternative names.
        let common: String = host.chars().take(64).collect();
        params.distinguished_name.push(DnType::CommonName, common);
        params.subject_alt_names = vec![match host.parse::<IpAddr>() {
            Ok(address) => SanType::IpAddress(address),
            Err(_) => SanType::DnsName(host.try_into().map_err(wrong)?),
        }];
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.use_authority_key_identifier_extension = true;
        valid(&mut params);
        // Of its own: leaves share their key, which the library would make the number from, and NSS
        // takes no two certificates of one issuer with one number.
        params.serial_number = Some(self.number().map_err(tls)?);
        let leaf = params
            .signed_by(&self.leaf_key, &self.issuer)
            .map_err(wrong)?;
        let chain: Vec<CertificateDer<'static>> =
            vec![leaf.der().clone(), self.issuer.der().clone()];
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(self.leaf_key.serialize_der()));
        let mut config = ServerConfig::builder_with_provider(Arc::clone(&self.provider))
            .with_safe_default_protocol_versions()
            .map_err(tls)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(tls)?;
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(config)
    }

    /// The number of a certificate: positive, and met by chance nowhere else.
    fn number(&self) -> Result<SerialNumber, rustls::Error> {
        let mut bytes = [0; 16];
        self.provider
            .secure_random
            .fill(&mut bytes)
            .map_err(|_| rustls::Error::FailedToGetRandomBytes)?;
        let [first, ..] = &mut bytes;
        *first = (*first & 0x7f) | 0x40;
        Ok(SerialNumber::from_slice(&bytes))
    }
}

/// From yesterday, so that a clock that runs behind does not matter, for a month.
fn valid(params: &mut CertificateParams) {
    let now = OffsetDateTime::now_utc();
    params.not_before = now - Duration::days(1);
    params.not_after = now + Duration::days(30);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leaf_per_name_is_kept() {
        let authority = Authority::new().unwrap();
        assert!(authority.pem().starts_with("-----BEGIN CERTIFICATE-----"));
        let one = authority.server_config("a.example").unwrap();
        let same = authority.server_config("a.example").unwrap();
        assert!(Arc::ptr_eq(&one, &same));
        assert!(authority.server_config("192.0.2.1").is_ok());
        assert!(authority.server_config("2001:db8::1").is_ok());
        let long = format!(
            "{}.{}.{}.example",
            "a".repeat(63),
            "b".repeat(63),
            "c".repeat(63)
        );
        assert!(authority.server_config(&long).is_ok());
    }
}
