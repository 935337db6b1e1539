//! The agent does somebody else's work: what it is about to do is not what it was asked for, and its
//! destination comes from what it read. Uncertain by nature, so it steers or declines and never ends
//! anything.

use crate::finding::{Code, Corrects, Facts, Finding, Severity};
use crate::sensitive_egress::{facts, is_provider};
use crate::trace::Trace;

/// Words of a task that ask for something outside.
const OUTWARD: [&str; 26] = [
    "deploy",
    "upload",
    "publish",
    "push",
    "send",
    "post",
    "mail",
    "notify",
    "release",
    "register",
    "download",
    "fetch",
    "install",
    "clone",
    "webhook",
    "api",
    "http",
    "url",
    "server",
    "request",
    "share",
    "sync",
    "call",
    "submit",
    "report to",
    "pull",
];

/// Finds work that nobody asked for.
#[must_use]
pub fn semantic_intent(trace: &Trace) -> Vec<Finding<Corrects>> {
    let mut found = Vec::new();
    if trace.task().trim().is_empty() {
        return found;
    }
    let task = trace.task().to_lowercase();
    let outward = OUTWARD.iter().any(|word| task.contains(word));
    for (step, effects) in trace.calls() {
        for egress in effects.egress.iter().filter(|egress| egress.sends) {
            if is_provider(trace, egress) {
                continue;
            }
            for host in &egress.hosts {
                if trace.named_by_principal(host) || is_local(host) {
                    continue;
                }
                // The destination was met in what the agent read, or nothing outside was asked for.
                let source = trace.source_of(host, step);
                if source.is_none() && outward {
                    continue;
                }
                found.push(Finding::new(
                    Code::Drift,
                    Severity::Warn,
                    step,
                    facts(trace, step, egress),
                ));
                break;
            }
        }
        let asked = [
            "delete", "remove", "clean", "reset", "wipe", "drop", "purge", "prune",
        ];
        if effects.destroys && !asked.iter().any(|word| task.contains(word)) {
            let program = effects.programs.last().cloned().unwrap_or_default();
            found.push(Finding::new(
                Code::Drift,
                Severity::Note,
                step,
                Facts::from([("program", program), ("channel", "destroy".to_owned())]),
            ));
        }
    }
    found
}

fn is_local(host: &str) -> bool {
    host == "localhost"
        || host.ends_with(".localhost")
        || host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|address| address.is_loopback())
}
