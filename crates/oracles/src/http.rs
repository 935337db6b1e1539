//! One request to an endpoint, blocking, with a deadline; TLS by the host's own roots. Nothing is
//! followed, nothing is kept.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use url::Url;

/// Longer answers are not read.
const ANSWER_BYTES_MAX: usize = 4 << 20;

/// What an endpoint answered.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// Seconds after which to try again, if it says so.
    pub(crate) retry_after: Option<u64>,
    pub(crate) body: Vec<u8>,
}

/// What went wrong on the way.
#[derive(Debug)]
pub(crate) enum HttpError {
    /// Not within the deadline.
    Late,
    /// No connection, no TLS, no HTTP. Worth another try.
    Broken(String),
    /// The address cannot be used at all.
    Address(String),
}

/// Posts JSON.
pub(crate) fn post(
    url: &Url,
    headers: &[(&str, &str)],
    body: Vec<u8>,
    deadline: Duration,
) -> Result<Answer, HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| HttpError::Broken(format!("no runtime: {e}")))?;
    runtime.block_on(async {
        match tokio::time::timeout(deadline, exchange(url, headers, body)).await {
            Ok(result) => result,
            Err(_) => Err(HttpError::Late),
        }
    })
}

async fn exchange(url: &Url, headers: &[(&str, &str)], body: Vec<u8>) -> Result<Answer, HttpError> {
    let address = |what: &str| HttpError::Address(format!("`{url}` {what}"));
    let host = url.host_str().ok_or_else(|| address("has no host"))?;
    let port = url
        .port_or_known_default()
        .ok_or_else(|| address("has no port"))?;
    let bare = host.trim_matches(['[', ']']);
    let stream = TcpStream::connect((bare, port))
        .await
        .map_err(|e| HttpError::Broken(format!("cannot connect to {host}:{port}: {e}")))?;
    match url.scheme() {
        "http" => speak(stream, url, host, headers, body).await,
        "https" => {
            let name = ServerName::try_from(bare.to_string())
                .map_err(|_| address("has a host that no certificate can name"))?;
            let connector = tokio_rustls::TlsConnector::from(Arc::new(tls()?));
            let stream = connector
                .connect(name, stream)
                .await
                .map_err(|e| HttpError::Broken(format!("no TLS with {host}: {e}")))?;
            speak(stream, url, host, headers, body).await
        }
        _ => Err(address("is neither http nor https")),
    }
}

async fn speak<S>(
    stream: S,
    url: &Url,
    host: &str,
    headers: &[(&str, &str)],
    body: Vec<u8>,
) -> Result<Answer, HttpError>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let broken = |what: &str, e: &dyn std::fmt::Display| HttpError::Broken(format!("{what}: {e}"));
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| broken("no HTTP", &e))?;
    let driver = tokio::spawn(connection);
    let target = match url.query() {
        Some(query) => format!("{}?{query}", url.path()),
        None => url.path().to_string(),
    };
    let authority = match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_string(),
    };
    let mut request = Request::post(target)
        .header("host", authority)
        .header("content-type", "application/json")
        .header("accept", "application/json")
        .header("user-agent", concat!("kairos/", env!("CARGO_PKG_VERSION")));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request
        .body(Full::new(Bytes::from(body)))
        .map_err(|e| HttpError::Address(format!("the request cannot be written: {e}")))?;
    let response = sender
        .send_request(request)
        .await
        .map_err(|e| broken("no answer", &e))?;
    let status = response.status().as_u16();
    let retry_after = response
        .headers()
        .get("retry-after")
        .and_then(|value| value.to_str().ok()?.parse().ok());
    let body = Limited::new(response.into_body(), ANSWER_BYTES_MAX)
        .collect()
        .await
        .map_err(|e| HttpError::Broken(format!("the answer cannot be read: {e}")))?
        .to_bytes()
        .to_vec();
    driver.abort();
    Ok(Answer {
        status,
        retry_after,
        body,
    })
}

fn tls() -> Result<rustls::ClientConfig, HttpError> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in rustls_native_certs::load_native_certs().certs {
        // One that cannot be used vouches for nobody.
        let _ = roots.add(certificate);
    }
    if roots.is_empty() {
        return Err(HttpError::Address(
            "the host has no root certificates; set SSL_CERT_FILE".to_string(),
        ));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|e| HttpError::Broken(format!("no TLS: {e}")))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(config)
}
