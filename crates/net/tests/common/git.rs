//! A git server: the real `git http-backend` behind a small HTTP server.

use std::convert::Infallible;
use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;

/// One bare repository, `r.git`, that anybody may push to.
pub struct Served {
    folder: tempfile::TempDir,
    address: SocketAddr,
    _runtime: tokio::runtime::Runtime,
}

impl Served {
    pub fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let bare = folder.path().join("r.git");
        for arguments in [
            &["init", "-q", "--bare", "-b", "main", bare.to_str().unwrap()][..],
            &[
                "-C",
                bare.to_str().unwrap(),
                "config",
                "http.receivepack",
                "true",
            ],
        ] {
            assert!(
                Command::new("git")
                    .args(arguments)
                    .status()
                    .unwrap()
                    .success()
            );
        }
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        let root = folder.path().to_path_buf();
        runtime.spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let root = root.clone();
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        let root = root.clone();
                        async move { Ok::<_, Infallible>(backend(root, request).await) }
                    });
                    let io = hyper_util::rt::TokioIo::new(stream);
                    let _ = hyper::server::conn::http1::Builder::new()
                        .serve_connection(io, service)
                        .await;
                });
            }
        });
        Self {
            folder,
            address,
            _runtime: runtime,
        }
    }

    pub fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// First line of the last commit on `main`.
    pub fn subject(&self) -> String {
        let output = Command::new("git")
            .arg("-C")
            .arg(self.folder.path().join("r.git"))
            .args(["log", "-1", "--format=%s", "main"])
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap().trim().to_string()
    }
}

async fn backend(root: PathBuf, request: Request<Incoming>) -> Response<Full<bytes::Bytes>> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| {
        parts
            .headers
            .get(name)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_string()
    };
    let mut child = Command::new("git")
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root)
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("PATH_INFO", parts.uri.path())
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("CONTENT_TYPE", header("content-type"))
        .env("CONTENT_LENGTH", body.len().to_string())
        .env("HTTP_CONTENT_ENCODING", header("content-encoding"))
        .env("GIT_PROTOCOL", header("git-protocol"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let writer = std::thread::spawn(move || stdin.write_all(&body));
    let output = tokio::task::block_in_place(|| child.wait_with_output().unwrap());
    writer.join().unwrap().unwrap();
    let end = output
        .stdout
        .windows(4)
        .position(|w| w == b"\r\n\r\n")
        .unwrap();
    let mut response = Response::new(Full::new(output.stdout[end + 4..].to_vec().into()));
    for line in std::str::from_utf8(&output.stdout[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            *response.status_mut() = value[..3].parse().unwrap();
        } else {
            let name: http::HeaderName = name.parse().unwrap();
            response.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    response
}
