//! How much may come at a time: requests in a stretch of time, of the session and of each party, and
//! connections.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use kernel::{Party, Policy};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::{Limits, PartyRule, Rate};

/// Counts requests and connections.
pub(crate) struct Limiter {
    session: Option<Bucket>,
    parties: Vec<Counted>,
}

struct Counted {
    said: PartyRule,
    requests: Option<Bucket>,
    connections: Option<(u32, Arc<Semaphore>)>,
}

/// More came than the policy allows.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Which limit.
    pub(crate) why: String,
    /// When the next one may come.
    pub(crate) after: Duration,
}

impl Limiter {
    pub(crate) fn new(limits: &Limits, parties: &[PartyRule]) -> Self {
        Self {
            session: limits.rate.map(Bucket::new),
            parties: parties
                .iter()
                .map(|said| Counted {
                    requests: said.rate.map(Bucket::new),
                    connections: said.connections.map(|most| {
                        let room = usize::try_from(most).unwrap_or(usize::MAX);
                        (
                            most,
                            Arc::new(Semaphore::new(room.min(Semaphore::MAX_PERMITS))),
                        )
                    }),
                    said: said.clone(),
                })
                .collect(),
        }
    }

    /// What the policy says of connections to a party.
    pub(crate) fn rule(&self, party: &Party) -> Option<&PartyRule> {
        self.counted(party).map(|counted| &counted.said)
    }

    /// Counts one request.
    pub(crate) fn request(&self, policy: &Policy, host: &str, port: u16) -> Result<(), Excess> {
        let now = Instant::now();
        if let Some(bucket) = &self.session {
            bucket.take(now, "this session")?;
        }
        let counted = policy
            .party(host, port)
            .and_then(|party| self.counted(party));
        match counted.and_then(|counted| Some((&counted.said, counted.requests.as_ref()?))) {
            Some((said, bucket)) => bucket.take(now, &format!("party `{}`", said.name)),
            None => Ok(()),
        }
    }

    /// Counts one connection, for as long as what is returned lives.
    pub(crate) fn connection(
        &self,
        policy: &Policy,
        host: &str,
        port: u16,
    ) -> Result<Option<OwnedSemaphorePermit>, String> {
        let counted = policy
            .party(host, port)
            .and_then(|party| self.counted(party));
        let Some((said, (most, room))) =
            counted.and_then(|counted| Some((&counted.said, counted.connections.as_ref()?)))
        else {
            return Ok(None);
        };
        Arc::clone(room).try_acquire_owned().map(Some).map_err(|_| {
            format!(
                "the policy allows {most} connections at a time to party `{}`",
                said.name
            )
        })
    }

    fn counted(&self, party: &Party) -> Option<&Counted> {
        self.parties
            .iter()
            .find(|counted| counted.said.hosts == party.hosts && counted.said.ports == party.ports)
    }
}

/// Fills with time; each request takes one drop.
struct Bucket {
    rate: Rate,
    state: Mutex<State>,
}

struct State {
    drops: f64,
    at: Instant,
}

impl Bucket {
    fn new(rate: Rate) -> Self {
        Self {
            rate,
            state: Mutex::new(State {
                drops: f64::from(rate.requests),
                at: Instant::now(),
            }),
        }
    }

    fn take(&self, now: Instant, of: &str) -> Result<(), Excess> {
        let most = f64::from(self.rate.requests);
        let seconds = self.rate.per.as_secs_f64().max(f64::MIN_POSITIVE);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(state.at).as_secs_f64();
        state.drops = (state.drops + since * most / seconds).min(most);
        state.at = now;
        if state.drops >= 1.0 {
            state.drops -= 1.0;
            return Ok(());
        }
        Err(Excess {
            why: format!(
                "the policy allows {of} {} requests in {} s",
                self.rate.requests,
                self.rate.per.as_secs()
            ),
            after: Duration::from_secs_f64((1.0 - state.drops) * seconds / most),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_over_any_stretch_of_time() {
        let bucket = Bucket::new(Rate {
            requests: 10,
            per: Duration::from_secs(1),
        });
        let start = Instant::now();
        let mut went = 0;
        for ms in 0..3000 {
            let now = start + Duration::from_millis(ms);
            match bucket.take(now, "it") {
                Ok(()) => went += 1,
                Err(excess) => {
                    assert!(excess.after <= Duration::from_millis(100), "{excess:?}");
                }
            }
        }
        // What was saved up, and ten a second.
        assert!((39..=40).contains(&went), "{went}");
    }
}
