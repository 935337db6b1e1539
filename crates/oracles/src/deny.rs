//! Refuses everything that policy deferred: the strict monitor.

use kernel::Verdict;
use monitor::{Answer, Judgement, Oracle, View};

/// The oracle `deny`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Deny;

impl Oracle for Deny {
    fn name(&self) -> String {
        "deny".to_string()
    }

    fn judge(&self, view: &View) -> Judgement {
        let refuse = |hold: &monitor::ViewHold| Answer {
            hold: hold.hold,
            manifest: hold.manifest,
            verdict: Some(Verdict::Refuse),
            reason: "nobody is asked; only what the policy vouches for happens".to_string(),
        };
        Judgement::Answers(view.holds.iter().map(refuse).collect())
    }
}
