//! Who a request is really for. The address it went to, the name in the TLS handshake, the
//! `CONNECT` target, the request target and `Host` have to agree, on every request of a
//! connection; what contradicts itself is refused and reaches nobody.

use http::header::{self, HeaderMap};
use http::{Method, Uri, Version};

use crate::accept::{Endpoint, Place};
use crate::canonical::{self, Ambiguous};

/// The one target of a request, in canonical form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// `http` or `https`.
    pub scheme: &'static str,
    /// Canonical host.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Canonical path with query.
    pub path: String,
}

impl Target {
    /// Host and port as in `Host:`; the port only where it is not the scheme's own.
    pub fn authority(&self) -> String {
        authority(self.scheme, &self.host, self.port)
    }

    /// The whole URL.
    pub fn url(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority(), self.path)
    }
}

/// Host and port as in `Host:`; the port only where it is not the scheme's own.
pub(crate) fn authority(scheme: &str, host: &str, port: u16) -> String {
    let usual = matches!((scheme, port), ("http" | "ws", 80) | ("https" | "wss", 443));
    match (host.contains(':'), usual) {
        (false, true) => host.to_string(),
        (false, false) => format!("{host}:{port}"),
        (true, true) => format!("[{host}]"),
        (true, false) => format!("[{host}]:{port}"),
    }
}

/// Finds the target of a request, or says what contradicts itself.
pub(crate) fn of(
    place: &Place,
    method: &Method,
    uri: &Uri,
    version: Version,
    headers: &HeaderMap,
) -> Result<Target, Ambiguous> {
    let named = host_header(headers)?;
    let stated = match uri.authority() {
        Some(authority) => {
            if authority.as_str().contains('@') {
                return no("the request target has a user name in it");
            }
            Some(canonical::authority(authority.as_str())?)
        }
        None => None,
    };
    if named.is_none() && stated.is_none() && version != Version::HTTP_10 {
        return no("there is no `Host` header");
    }
    let scheme = match (&place.secured, &place.target, uri.scheme_str()) {
        (Some(_), Some(_), _) => "https",
        (None, Some(_), None | Some("http")) => "http",
        (None, Some(_), Some(other)) => {
            return no(format!(
                "the request target says `{other}` on a connection in the clear"
            ));
        }
        // Our own proxy port: the request target says it all.
        (_, None, Some("http")) => "http",
        (_, None, Some("https")) => "https",
        (_, None, other) => {
            return no(match other {
                None => "this is a proxy: it takes `CONNECT` and absolute request targets \
                         (`GET http://host/path`)"
                    .to_string(),
                Some(other) => format!("the proxy does not speak `{other}`"),
            });
        }
    };
    let default_port = if scheme == "https" { 443 } else { 80 };
    let endpoint = match &place.target {
        Some(target) => target.clone(),
        None => match &stated {
            Some((host, port)) => Endpoint {
                host: host.clone(),
                port: port.unwrap_or(default_port),
            },
            None => return no("the request target names no host"),
        },
    };
    if let Some(sni) = place.secured.as_ref().and_then(|s| s.sni.as_ref())
        && place.target.is_some()
        && *sni != endpoint.host
    {
        return no(format!(
            "the TLS handshake names `{}`, but the connection leads to `{}`",
            canonical::shown(sni),
            endpoint.host
        ));
    }
    for (where_, claim) in [
        ("the request target", &stated),
        ("the `Host` header", &named),
    ] {
        let Some((host, port)) = claim else { continue };
        if *host != endpoint.host {
            return no(format!(
                "{where_} names `{}`, but the connection leads to `{}`",
                canonical::shown(host),
                endpoint.host
            ));
        }
        if port.is_some_and(|port| port != endpoint.port) {
            return no(format!(
                "{where_} names port {}, but the connection leads to port {}",
                port.unwrap_or_default(),
                endpoint.port
            ));
        }
    }
    let raw = uri.path_and_query().map_or("/", |pq| pq.as_str());
    if raw == "*" && *method == Method::OPTIONS {
        return no("`OPTIONS *` asks about a whole server; ask about a path instead");
    }
    let path = canonical::path(raw)?;
    Ok(Target {
        scheme,
        host: endpoint.host,
        port: endpoint.port,
        path,
    })
}

/// The one `Host` header in canonical form.
fn host_header(headers: &HeaderMap) -> Result<Option<(String, Option<u16>)>, Ambiguous> {
    let mut all = headers.get_all(header::HOST).iter();
    let Some(one) = all.next() else {
        return Ok(None);
    };
    if all.next().is_some() {
        return no("there are several `Host` headers");
    }
    let text = std::str::from_utf8(one.as_bytes())
        .map_err(|_| Ambiguous("the `Host` header is not text".into()))?;
    canonical::authority(text.trim()).map(Some)
}

fn no<T>(why: impl Into<String>) -> Result<T, Ambiguous> {
    Err(Ambiguous(why.into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::accept::Secured;

    fn place(host: Option<&str>, sni: Option<Option<&str>>) -> Place {
        Place {
            target: host.map(|h| Endpoint {
                host: h.into(),
                port: if sni.is_some() { 443 } else { 80 },
            }),
            secured: sni.map(|s| Secured {
                sni: s.map(str::to_string),
            }),
            depth: 0,
            crowded: None,
        }
    }

    fn check(place: &Place, uri: &str, host: &[&str]) -> Result<String, String> {
        let mut headers = HeaderMap::new();
        for h in host {
            headers.append(header::HOST, h.parse().unwrap());
        }
        let uri: Uri = uri.parse().unwrap();
        of(place, &Method::GET, &uri, Version::HTTP_11, &headers)
            .map(|t| t.url())
            .map_err(|e| e.0)
    }

    /// Every way in which the names of one request can disagree.
    #[test]
    fn names_have_to_agree() {
        let clear = place(Some("good.example"), None);
        let tls = place(Some("good.example"), Some(Some("good.example")));
        let bare = place(Some("good.example"), Some(None));
        let crossed = place(Some("good.example"), Some(Some("bad.example")));
        let proxy = place(None, None);
        let literal = place(Some("192.0.2.1"), Some(Some("good.example")));
        for (place, uri, host, expect) in [
            (
                &clear,
                "/x",
                &["good.example"][..],
                Some("http://good.example/x"),
            ),
            (
                &clear,
                "/x",
                &["GOOD.example.:80"],
                Some("http://good.example/x"),
            ),
            (&clear, "/x", &["bad.example"], None),
            (&clear, "/x", &["good.example", "good.example"], None),
            (&clear, "/x", &["good.example:81"], None),
            (&clear, "/x", &[], None),
            (
                &clear,
                "http://good.example/x",
                &["good.example"],
                Some("http://good.example/x"),
            ),
            (&clear, "http://bad.example/x", &["good.example"], None),
            (&clear, "http://good.example/x", &["bad.example"], None),
            (&clear, "https://good.example/x", &["good.example"], None),
            (&clear, "http://u@good.example/x", &["good.example"], None),
            (
                &tls,
                "/x",
                &["good.example"],
                Some("https://good.example/x"),
            ),
            (
                &tls,
                "https://good.example/x",
                &[],
                Some("https://good.example/x"),
            ),
            (&tls, "https://bad.example/x", &[], None),
            (&tls, "/x", &["bad.example"], None),
            (
                &bare,
                "/x",
                &["good.example"],
                Some("https://good.example/x"),
            ),
            (&bare, "/x", &["bad.example"], None),
            (&crossed, "/x", &["good.example"], None),
            (&crossed, "/x", &["bad.example"], None),
            (&literal, "/x", &["good.example"], None),
            (
                &proxy,
                "http://good.example/x",
                &["good.example"],
                Some("http://good.example/x"),
            ),
            (&proxy, "http://good.example/x", &["bad.example"], None),
            (
                &proxy,
                "http://0x7f.1:8080/x",
                &[],
                Some("http://127.0.0.1:8080/x"),
            ),
            (&proxy, "/x", &["good.example"], None),
        ] {
            let got = check(place, uri, host);
            assert_eq!(got.as_deref().ok(), expect, "{uri} {host:?}: {got:?}");
        }
    }
}
