//! One oracle after the other: the next is asked about what the one before keeps. A failure ends
//! the chain, and what was still open is refused.

use std::sync::Arc;

use kernel::{HoldId, Verdict};
use monitor::{Answer, Judgement, Oracle, View};

/// Oracles in order.
pub struct Chain {
    steps: Vec<Arc<dyn Oracle>>,
}

impl Chain {
    /// A chain of these.
    pub fn new(steps: Vec<Box<dyn Oracle>>) -> Self {
        Self {
            steps: steps.into_iter().map(Arc::from).collect(),
        }
    }
}

impl Oracle for Chain {
    fn name(&self) -> String {
        let names: Vec<String> = self.steps.iter().map(|step| step.name()).collect();
        names.join(" then ")
    }

    fn judge(&self, view: &View) -> Judgement {
        let mut answers: Vec<Answer> = Vec::new();
        let mut open = view.clone();
        let mut kept = "there is no oracle in the chain".to_string();
        for step in &self.steps {
            match step.judge(&open) {
                Judgement::Keep(why) => kept = why,
                Judgement::Failed(why) => {
                    let why = format!("{} failed: {why}", step.name());
                    if answers.is_empty() {
                        return Judgement::Failed(why);
                    }
                    // What was decided stands; the rest is refused.
                    answers.extend(open.holds.iter().map(|hold| Answer {
                        hold: hold.hold,
                        manifest: hold.manifest,
                        verdict: Some(Verdict::Refuse),
                        reason: why.clone(),
                    }));
                    return Judgement::Answers(answers);
                }
                Judgement::Answers(given) => {
                    let decided: Vec<Answer> = given
                        .into_iter()
                        .map(|mut answer| {
                            answer.reason = format!("{}: {}", step.name(), answer.reason);
                            answer
                        })
                        .collect();
                    // Only what is explicitly kept goes on; what is not mentioned is refused.
                    let goes_on: Vec<HoldId> = decided
                        .iter()
                        .filter(|answer| answer.verdict.is_none())
                        .map(|answer| answer.hold)
                        .collect();
                    let is_decided = |hold: HoldId| {
                        decided
                            .iter()
                            .any(|answer| answer.hold == hold && answer.verdict.is_some())
                    };
                    open.holds
                        .retain(|hold| goes_on.contains(&hold.hold) && !is_decided(hold.hold));
                    answers.extend(
                        decided
                            .into_iter()
                            .filter(|answer| answer.verdict.is_some()),
                    );
                    kept = "every oracle of the chain kept it".to_string();
                }
            }
            if open.holds.is_empty() {
                break;
            }
        }
        if answers.is_empty() {
            return Judgement::Keep(kept);
        }
        answers.extend(open.holds.iter().map(|hold| Answer {
            hold: hold.hold,
            manifest: hold.manifest,
            verdict: None,
            reason: kept.clone(),
        }));
        Judgement::Answers(answers)
    }
}
