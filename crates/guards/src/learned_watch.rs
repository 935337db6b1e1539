//! Somewhere this agent has been stopped before: the file that told it to, the host it went to, or
//! any host under one domain with two of those. It can only warn; a wrong lesson costs a warning.

use crate::finding::{Code, Facts, Finding, Severity, Warns};
use crate::trace::{Step, Trace};

/// Finds what earlier sessions taught to look for.
#[must_use]
pub fn learned_watch(trace: &Trace) -> Vec<Finding<Warns>> {
    let watch = &trace.settings().watch;
    let mut found: Vec<Finding<Warns>> = Vec::new();
    let mut add = |code: Code, step: usize, facts: Facts| {
        let known = found
            .iter()
            .any(|other| other.code == code && other.facts == facts);
        if !known {
            found.push(Finding::new(code, Severity::Warn, step, facts));
        }
    };
    for (step, item) in trace.steps().iter().enumerate() {
        match item {
            Step::Call { paths, .. } => {
                let effects = trace.effects(step);
                let named = effects.into_iter().flat_map(|effects| &effects.names);
                for path in paths.iter().chain(named) {
                    if let Some(source) = watch.source(path) {
                        add(
                            Code::WatchedSource,
                            step,
                            Facts::from([("source", source.to_owned())]),
                        );
                    }
                }
                for egress in effects.into_iter().flat_map(|effects| &effects.egress) {
                    for host in &egress.hosts {
                        host_watched(trace, host, step, &mut add);
                    }
                }
            }
            Step::Read { source, .. } => {
                if let Some(source) = watch.source(source) {
                    add(
                        Code::WatchedSource,
                        step,
                        Facts::from([("source", source.to_owned())]),
                    );
                }
            }
            Step::Effect {
                host: Some(host), ..
            } => host_watched(trace, host, step, &mut add),
            _ => {}
        }
    }
    found.sort_by_key(|finding| finding.step);
    found
}

fn host_watched(trace: &Trace, host: &str, step: usize, add: &mut impl FnMut(Code, usize, Facts)) {
    let watch = &trace.settings().watch;
    if trace.named_by_principal(host) {
        return;
    }
    if watch.hosts().contains(host) {
        add(
            Code::WatchedHost,
            step,
            Facts::from([("host", host.to_owned())]),
        );
    } else if let Some(family) = watch.family(host) {
        add(
            Code::WatchedFamily,
            step,
            Facts::from([("host", host.to_owned()), ("family", family)]),
        );
    }
}
