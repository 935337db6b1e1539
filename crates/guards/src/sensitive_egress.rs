//! A workspace secret is about to leave the machine: by a command that reads it on its way out, by
//! one that holds it, or by an effect that the boundary saw carry it.

use crate::egress::Egress;
use crate::finding::{Code, Facts, Finding, Severity, Stops};
use crate::trace::{Step, Trace};

/// Finds secrets on their way out.
#[must_use]
pub fn sensitive_egress(trace: &Trace) -> Vec<Finding<Stops>> {
    let mut found = Vec::new();
    for (step, effects) in trace.calls() {
        for egress in &effects.egress {
            let holds = trace.holds_secret(&egress.text);
            if egress.carries.is_empty() && !holds {
                continue;
            }
            if is_expected(trace, egress) {
                continue;
            }
            let mut facts = facts(trace, step, egress);
            let file = egress.carries.iter().next().cloned();
            if let Some(file) = file {
                facts.insert("path", file);
            }
            found.push(Finding::new(
                Code::SensitiveEgress,
                Severity::Violation,
                step,
                facts,
            ));
        }
    }
    for (step, effect) in trace.steps().iter().enumerate() {
        if let Step::Effect {
            host: Some(host),
            carries: true,
            ..
        } = effect
        {
            let known = trace
                .belongs(step)
                .is_some_and(|call| found.iter().any(|other| other.step == call));
            let provider = trace.settings().providers.iter().any(|other| other == host);
            if known || provider || trace.named_by_principal(host) {
                continue;
            }
            let mut facts = Facts::from([("host", host.clone()), ("channel", "http".to_owned())]);
            if let Some(source) = trace.source_of(host, step) {
                facts.insert("source", source);
            }
            found.push(Finding::new(
                Code::SensitiveEgress,
                Severity::Violation,
                step,
                facts,
            ));
        }
    }
    found
}

/// Whether it goes only where it is meant to: to hosts that the principal named, or to the model's
/// provider.
pub(crate) fn is_expected(trace: &Trace, egress: &Egress) -> bool {
    goes_only_to(egress, |host| trace.named_by_principal(host)) || is_provider(trace, egress)
}

pub(crate) fn is_provider(trace: &Trace, egress: &Egress) -> bool {
    goes_only_to(egress, |host| trace.settings().providers.contains(host))
}

fn goes_only_to(egress: &Egress, wanted: impl Fn(&String) -> bool) -> bool {
    !egress.hosts.is_empty() && egress.hosts.iter().all(wanted)
}

/// Where something goes, how, and which file said so.
pub(crate) fn facts(trace: &Trace, step: usize, egress: &Egress) -> Facts {
    let mut facts = Facts::from([
        ("channel", egress.channel.name().to_owned()),
        ("program", egress.program.clone()),
    ]);
    if let Some(host) = egress.hosts.first() {
        facts.insert("host", host.clone());
        if let Some(source) = trace.source_of(host, step) {
            facts.insert("source", source);
        }
    }
    facts
}
