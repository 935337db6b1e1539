//! Several oracles about the same holds: one is released when so many agree, refused when that
//! cannot be reached any more because others refuse, and kept otherwise.

use std::collections::BTreeMap;
use std::sync::Arc;

use kernel::{HoldId, Verdict};
use monitor::{Answer, Judgement, Oracle, View};

/// Oracles of which so many have to agree.
pub struct Quorum {
    needed: usize,
    members: Vec<Arc<dyn Oracle>>,
}

#[derive(Default)]
struct Count {
    release: usize,
    refuse: usize,
    said: Vec<String>,
}

impl Quorum {
    /// `needed` of these have to say release.
    pub fn new(needed: usize, members: Vec<Box<dyn Oracle>>) -> Self {
        Self {
            // None at all would release everything.
            needed: needed.max(1),
            members: members.into_iter().map(Arc::from).collect(),
        }
    }
}

impl Oracle for Quorum {
    fn name(&self) -> String {
        let names: Vec<String> = self.members.iter().map(|member| member.name()).collect();
        format!("{} of {}", self.needed, names.join(" + "))
    }

    fn judge(&self, view: &View) -> Judgement {
        let mut counts: BTreeMap<HoldId, Count> = BTreeMap::new();
        let mut failures = Vec::new();
        for member in &self.members {
            let name = member.name();
            match member.judge(view) {
                Judgement::Keep(_) => {}
                Judgement::Failed(why) => {
                    // A failing oracle refuses.
                    failures.push(format!("{name} failed: {why}"));
                    for hold in &view.holds {
                        let count = counts.entry(hold.hold).or_default();
                        count.refuse += 1;
                        count.said.push(format!("{name} failed: {why}"));
                    }
                }
                Judgement::Answers(answers) => {
                    for hold in &view.holds {
                        let count = counts.entry(hold.hold).or_default();
                        // The first answer counts, bound to what was shown; none refuses.
                        let answer = answers.iter().find(|answer| answer.hold == hold.hold);
                        match answer {
                            Some(answer) if answer.manifest != hold.manifest => {
                                count.refuse += 1;
                                count
                                    .said
                                    .push(format!("{name}: the answer was for another action"));
                            }
                            Some(answer) => {
                                match answer.verdict {
                                    Some(Verdict::Release) => count.release += 1,
                                    Some(Verdict::Refuse) => count.refuse += 1,
                                    None => continue,
                                }
                                count.said.push(format!("{name}: {}", answer.reason));
                            }
                            None => {
                                count.refuse += 1;
                                count.said.push(format!("{name} did not answer"));
                            }
                        }
                    }
                }
            }
        }
        if failures.len() == self.members.len() {
            return Judgement::Failed(failures.join("; "));
        }
        let answers = view.holds.iter().map(|hold| {
            let count = counts.remove(&hold.hold).unwrap_or_default();
            let verdict = if count.release >= self.needed {
                Some(Verdict::Release)
            } else if self.members.len() - count.refuse.min(self.members.len()) < self.needed {
                Some(Verdict::Refuse)
            } else {
                None
            };
            Answer {
                hold: hold.hold,
                manifest: hold.manifest,
                verdict,
                reason: if count.said.is_empty() {
                    "nobody decided it".to_string()
                } else {
                    count.said.join("; ")
                },
            }
        });
        Judgement::Answers(answers.collect())
    }
}
