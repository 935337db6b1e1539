//! What lies over HTTP: gRPC calls and streams, git, GraphQL.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a helper that fails fails its test"
)]

mod common;

use std::path::Path;
use std::process::Command;

use bytes::Bytes;
use common::{ENV_SECRET, Origin, World, git, policy};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper_util::rt::{TokioExecutor, TokioIo};
use kernel::Verdict;
use kernel::policy::HostPattern;
use net::UpstreamRule;
use tokio::sync::mpsc;

/// A gRPC call that stays open.
struct Call {
    messages: mpsc::Sender<Result<Frame<Bytes>, std::convert::Infallible>>,
    answer: tokio::task::JoinHandle<http::Response<hyper::body::Incoming>>,
}

impl Call {
    async fn open(world: &World, path: &str) -> Self {
        let to = world.direct("good.example", 80);
        let stream = tokio::net::TcpStream::connect(to).await.unwrap();
        let (mut sender, connection) =
            hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                .await
                .unwrap();
        tokio::spawn(connection);
        let (messages, queued) = mpsc::channel(4);
        let body = futures_util::stream::unfold(queued, |mut queued| async {
            queued.recv().await.map(|piece| (piece, queued))
        });
        let request = http::Request::post(format!("http://good.example{path}"))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(StreamBody::new(Box::pin(body)))
            .unwrap();
        let answer = tokio::spawn(async move { sender.send_request(request).await.unwrap() });
        Self { messages, answer }
    }

    async fn say(&self, text: &str) {
        let frame = Ok(Frame::data(message(text)));
        self.messages.send(frame).await.unwrap();
    }
}

/// With the prefix that gRPC puts before each.
fn message(text: &str) -> Bytes {
    let mut out = vec![0];
    out.extend(u32::try_from(text.len()).unwrap().to_be_bytes());
    out.extend(text.as_bytes());
    out.into()
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn a_grpc_call_in_one_go_is_one_effect() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    runtime().block_on(async {
        let mut call = Call::open(&world, "/trailers").await;
        call.say("one and only").await;
        drop(call.messages);
        let answer = (&mut call.answer).await.unwrap();
        let whole = answer.into_body().collect().await.unwrap();
        assert_eq!(whole.trailers().unwrap()["grpc-status"], "0");
        assert_eq!(whole.to_bytes(), "payload");
    });
    assert_eq!(origin.seen()[0].body, message("one and only"));
    assert_eq!(world.log().matches("\"decision\":\"release\"").count(), 1);
}

#[test]
fn messages_of_an_open_grpc_call_are_judged_one_by_one() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    runtime().block_on(async {
        let mut call = Call::open(&world, "/grpc.Echo/Chat").await;
        call.say("one").await;
        let mut answer = (&mut call.answer).await.unwrap().into_body();
        let one = answer.frame().await.unwrap().unwrap();
        assert_eq!(one.into_data().unwrap(), message("one"));
        // The second is sent only when the answer to the first is there.
        call.say("two").await;
        let two = answer.frame().await.unwrap().unwrap();
        assert_eq!(two.into_data().unwrap(), message("two"));
        drop(call.messages);
        let end = answer.frame().await.unwrap().unwrap();
        assert_eq!(end.into_trailers().unwrap()["grpc-status"], "0");
        assert!(answer.frame().await.is_none());
    });
    let told = world.log();
    assert_eq!(told.matches("\"frame\":\"grpc\"").count(), 2, "{told}");
    // A message with the secret waits; refused, it ends the stream with a status and the reason.
    runtime().block_on(async {
        let mut call = Call::open(&world, "/grpc.Echo/Chat").await;
        call.say("fine").await;
        let mut answer = (&mut call.answer).await.unwrap().into_body();
        assert!(answer.frame().await.unwrap().unwrap().is_data());
        call.say(ENV_SECRET).await;
        tokio::task::block_in_place(|| world.decide(Verdict::Refuse));
        let end = answer.frame().await.unwrap().unwrap();
        let trailers = end.into_trailers().unwrap();
        assert_eq!(trailers["grpc-status"], "7");
        let why = trailers["grpc-message"].to_str().unwrap();
        assert!(why.starts_with("[Kairos]"), "{why}");
    });
    let said: Vec<_> = origin
        .seen()
        .into_iter()
        .filter(|seen| seen.method == "MESSAGE" && !seen.body.is_empty())
        .map(|seen| seen.body)
        .collect();
    assert_eq!(said, [message("one"), message("two"), message("fine")]);
}

#[test]
fn a_graphql_query_waits_and_a_mutation_gets_a_stub() {
    let origin = Origin::clear();
    let world = World::new(policy(), &origin);
    let post = |query: &str| {
        let body = serde_json::json!({ "query": query }).to_string();
        world.curl(&[
            "-H",
            "content-type: application/json",
            "-d",
            &body,
            "https://bad.example/api/graphql",
        ])
    };
    std::thread::scope(|scope| {
        let query = scope.spawn(|| post("query Who { viewer { login } }"));
        world.decide(Verdict::Release);
        let got = query.join().unwrap();
        assert_eq!((got.status, got.body.starts_with("you said")), (200, true));
    });
    let got = post("mutation Add { addComment(body: \"x\") { id } }");
    assert_eq!(got.status, 202, "{}", got.body);
    let held = world.session.held();
    assert!(
        held[0].effect.about.starts_with("GraphQL mutation Add;"),
        "{:?}",
        held[0].effect
    );
    assert_eq!(origin.seen().len(), 1);
}

/// git as its users call it, through the proxy port.
fn git_as(world: &World, folder: &Path, arguments: &[&str]) -> (bool, String) {
    let output = Command::new("git")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .env("HOME", folder)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_TERMINAL_PROMPT", "0")
        .current_dir(folder)
        .args([
            "-c",
            &format!("http.proxy=http://{}", world.proxy),
            "-c",
            &format!("http.sslCAInfo={}", world.ca.display()),
            "-c",
            "user.name=A",
            "-c",
            "user.email=a@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(arguments)
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.success(), told)
}

#[test]
fn git_fetches_and_its_push_is_held_with_what_it_would_do() {
    let served = git::Served::start();
    let world = World::with(policy(), |config| {
        config.upstreams.push(UpstreamRule {
            hosts: HostPattern("*".into()),
            ports: Vec::new(),
            base: served.base(),
        });
    });
    let home = tempfile::tempdir().unwrap();
    let run = |arguments: &[&str]| git_as(&world, home.path(), arguments);
    // A named party: cloned, changed and pushed without a question.
    for step in [
        &["clone", "-q", "https://good.example/r.git", "r"][..],
        &["-C", "r", "commit", "-q", "--allow-empty", "-m", "First"],
        &["-C", "r", "push", "-q", "origin", "HEAD:refs/heads/main"],
        &[
            "-C",
            "r",
            "commit",
            "-q",
            "--allow-empty",
            "-m",
            "Second thing",
        ],
        &[
            "-C",
            "r",
            "remote",
            "add",
            "other",
            "https://bad.example/r.git",
        ],
    ] {
        let (done, told) = run(step);
        assert!(done, "{step:?}: {told}");
    }
    assert_eq!(served.subject(), "First");
    // An unknown one: what is asked waits, and the push itself is held with its refs and commits.
    let push = || {
        std::thread::scope(|scope| {
            let push = scope.spawn(|| run(&["-C", "r", "push", "other", "HEAD:refs/heads/main"]));
            world.decide(Verdict::Release);
            push.join().unwrap()
        })
    };
    let (done, told) = push();
    assert!(done && told.contains("remote: [Kairos]"), "{told}");
    assert_eq!(served.subject(), "First", "nothing was sent");
    let held = world.session.held();
    let effect = &held[0].effect;
    assert!(
        effect.about.starts_with("git pushes refs/heads/main ("),
        "{}",
        effect.about
    );
    assert!(
        effect.fields["git commits"].ends_with(" Second thing"),
        "{:?}",
        effect.fields
    );
    world.decide(Verdict::Refuse);
    assert_eq!(served.subject(), "First");
    let (done, told) = push();
    assert!(done, "{told}");
    world.decide(Verdict::Release);
    assert_eq!(served.subject(), "Second thing");
}
