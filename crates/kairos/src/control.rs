//! Another process speaks to a running session: one JSON object a line, one answer a line, over a
//! socket in the session's private directory, which the agent cannot see.

use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kernel::{HoldId, Verdict};
use monitor::Session;
use serde::{Deserialize, Serialize};
use store::SessionDir;

use crate::exit::{Failure, Outcome, at};

/// What can be asked of a running session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub(crate) enum Ask {
    /// Decide a hold.
    Verdict {
        /// Which.
        hold: String,
        /// `true` releases it.
        release: bool,
        /// Why.
        reason: String,
    },
}

/// The answer.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Answer {
    /// What went wrong.
    pub(crate) error: Option<String>,
}

/// Serves a running session until the process ends.
pub(crate) fn serve(session: &Arc<Session>) -> Outcome<()> {
    let dir = session.dir().clone();
    let (folder, path) = reach(&dir)?;
    let listener = UnixListener::bind(&path).map_err(at("listen on", &dir.control()))?;
    drop(folder);
    let session = Arc::clone(session);
    std::thread::Builder::new()
        .name("control".into())
        .spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that says nothing must not stop the next one.
                let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
                let _ = answer(&session, stream);
            }
        })
        .map(drop)
        .map_err(|e| Failure::new(format!("cannot start a thread: {e}")))
}

/// Asks a running session; `None` when there is none.
pub(crate) fn ask(dir: &SessionDir, question: &Ask) -> Outcome<Option<Answer>> {
    let (_folder, path) = reach(dir)?;
    let Ok(mut stream) = UnixStream::connect(&path) else {
        return Ok(None);
    };
    let mut line = serde_json::to_string(question).map_err(Failure::new)?;
    line.push('\n');
    stream
        .write_all(line.as_bytes())
        .map_err(at("speak to", &dir.control()))?;
    let mut text = String::new();
    BufReader::new(stream)
        .read_line(&mut text)
        .map_err(at("hear from", &dir.control()))?;
    let answer = serde_json::from_str(&text)
        .map_err(|e| Failure::new(format!("the running session answered badly: {e}")))?;
    Ok(Some(answer))
}

fn answer(session: &Session, stream: UnixStream) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new(stream.try_clone()?).read_line(&mut line)?;
    let error = match serde_json::from_str(&line) {
        Err(error) => Some(format!("that is no question: {error}")),
        Ok(Ask::Verdict {
            hold,
            release,
            reason,
        }) => verdict(session, &hold, release, &reason).err(),
    };
    let mut text = serde_json::to_string(&Answer { error })?;
    text.push('\n');
    (&stream).write_all(text.as_bytes())
}

/// Decides a hold by name, as it is now.
pub(crate) fn verdict(
    session: &Session,
    name: &str,
    release: bool,
    reason: &str,
) -> Result<(), String> {
    let hold: HoldId = name
        .parse()
        .map_err(|()| format!("`{name}` is no hold; holds are written `h7`"))?;
    let held = session
        .held()
        .into_iter()
        .find(|held| held.hold == hold)
        .ok_or_else(|| format!("{hold} is not held; `kairos review` lists what is"))?;
    let verdict = if release {
        Verdict::Release
    } else {
        Verdict::Refuse
    };
    session.verdict(hold, held.manifest, verdict, "ask", reason)
}

/// A short path to the socket, since the length of one is limited.
fn reach(dir: &SessionDir) -> Outcome<(std::fs::File, PathBuf)> {
    let folder = std::fs::File::open(dir.path()).map_err(at("open", dir.path()))?;
    let path = Path::new("/proc/self/fd")
        .join(folder.as_raw_fd().to_string())
        .join("control.sock");
    Ok((folder, path))
}
