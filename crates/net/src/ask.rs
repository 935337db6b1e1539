//! Asking the monitor about an effect that needs its real answer: released at once, or after
//! somebody decided, or not at all.

use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use kernel::{Effect, EventId, Incoming, Notice};
use monitor::{Held, Outcome};
use store::record::UNKNOWN;
use store::{Lease, Parked};

use crate::hold::{Ruling, Withdraw};
use crate::net::Shared;

/// The monitor's answer, once there is one.
pub(crate) enum Asked {
    /// Act now, once; the settlement takes what came of it.
    Go(Lease, Settle),
    /// It must not happen.
    No(Notice),
    /// There was no answer; it must not happen either.
    Undecided(&'static str),
}

/// Proposes a blocking effect and waits for the decision. `keep` makes its bytes outlive this
/// process when it is held.
pub(crate) async fn ask(
    shared: &Arc<Shared>,
    effect: Effect,
    parked: Parked,
    keep: impl Fn() -> std::io::Result<()>,
) -> Asked {
    let mut waiting = None;
    let payload = effect.payload.digest;
    let outcome = shared.session.propose(effect, parked, &mut |held: &Held| {
        if let Err(error) = keep() {
            tracing::warn!(%error, "a waiting request cannot be kept for a later review");
        }
        shared.holds.parked(held.hold, payload);
        waiting = Some(shared.holds.wait(held.hold));
    });
    match (outcome, waiting) {
        (Outcome::Released(lease), _) => {
            let settle = Settle::of(shared, lease.event());
            Asked::Go(lease, settle)
        }
        (Outcome::Refused { notice, .. }, _) => Asked::No(notice),
        (Outcome::Held(held), Some(waiting)) => match wait(shared, &held, waiting).await {
            Some(Ruling::Go { lease, report }) if lease.manifest() == held.manifest => {
                Asked::Go(lease, Settle::new(shared, To::Commit(report)))
            }
            Some(Ruling::Go { report, .. }) => {
                let why = "the leave is for another action; nothing was sent";
                // The monitor may have stopped listening.
                let _ = report.send(Err(why.into()));
                Asked::Undecided(why)
            }
            Some(Ruling::No(notice)) => Asked::No(notice),
            None => Asked::Undecided("it could not be decided in time"),
        },
        (Outcome::Held(_), None) => Asked::Undecided("it was held by somebody else"),
    }
}

/// Waits for the verdict on a hold; a hold that nobody decides in time expires.
async fn wait(
    shared: &Arc<Shared>,
    held: &Held,
    mut waiting: tokio::sync::oneshot::Receiver<Ruling>,
) -> Option<Ruling> {
    let withdraw = Withdraw::new(&shared.session, &shared.holds, held);
    let ruling = match tokio::time::timeout(shared.config.blocking_deadline, &mut waiting).await {
        Ok(ruling) => ruling.ok(),
        Err(_) => {
            let session = Arc::clone(&shared.session);
            let hold = held.hold;
            drop(tokio::task::spawn_blocking(move || session.expire(hold)));
            tokio::time::timeout(Duration::from_secs(10), waiting)
                .await
                .ok()
                .and_then(Result::ok)
        }
    };
    if ruling.is_some() {
        withdraw.disarm();
    }
    ruling
}

/// Takes what came of a released effect, once, whatever happens to who waits for it.
pub(crate) struct Settle {
    shared: Arc<Shared>,
    to: To,
    /// When it was let go.
    begun: Instant,
    /// How long the other side took to begin its answer.
    answered: Option<Duration>,
}

enum To {
    /// Recorded by this channel.
    Event(EventId),
    /// Returned to the monitor, which is committing.
    Commit(mpsc::Sender<Result<String, String>>),
    /// Told already.
    Nobody,
}

impl Settle {
    /// The outcome of an effect that was released at once.
    pub(crate) fn of(shared: &Arc<Shared>, event: EventId) -> Self {
        Self::new(shared, To::Event(event))
    }

    fn new(shared: &Arc<Shared>, to: To) -> Self {
        Self {
            shared: Arc::clone(shared),
            to,
            begun: Instant::now(),
            answered: None,
        }
    }

    /// What is known as soon as the other side has answered; the rest of the answer follows.
    pub(crate) fn answered(&mut self, what: &str) {
        self.answered.get_or_insert_with(|| self.begun.elapsed());
        if matches!(self.to, To::Commit(_)) {
            self.tell(Ok(what.to_string()));
        }
    }

    /// The whole outcome; only the first word counts.
    pub(crate) fn tell(&mut self, result: Result<String, String>) {
        self.tell_with(None, result);
    }

    /// The whole outcome, and what is left to tell of the answer, which comes first.
    pub(crate) fn tell_with(&mut self, rest: Option<Incoming>, result: Result<String, String>) {
        let session = &self.shared.session;
        match (std::mem::replace(&mut self.to, To::Nobody), rest) {
            (To::Event(event), rest) => {
                let timed = result.map(|what| format!("{what}{}", self.times()));
                match rest {
                    Some(rest) => session.answered(rest, event, timed),
                    None => session.done(event, timed),
                }
            }
            (to, rest) => {
                if let Some(rest) = rest {
                    session.incoming(rest);
                }
                if let To::Commit(report) = to {
                    // The monitor may have stopped listening.
                    let _ = report.send(result);
                }
            }
        }
    }

    /// How long it took: until the answer began, and in all.
    fn times(&self) -> String {
        let ms = |time: Duration| format!("{:.1} ms", time.as_secs_f64() * 1000.0);
        match self.answered {
            Some(first) => format!(
                ", answered after {}, ended after {}",
                ms(first),
                ms(self.begun.elapsed())
            ),
            None => String::new(),
        }
    }
}

impl Drop for Settle {
    fn drop(&mut self) {
        self.tell(Err(format!(
            "{UNKNOWN}the agent hung up before the answer came; whether it took effect is not known"
        )));
    }
}
