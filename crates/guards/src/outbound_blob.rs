//! A long piece of base64 or hexadecimal text is about to leave. After the agent read something
//! sensitive that may be it in other clothes; before, it is only worth a look.

use crate::finding::{Code, Finding, Severity, Stops};
use crate::sensitive_egress::{facts, is_expected};
use crate::trace::Trace;

/// Shorter pieces are ordinary: digests, ids, keys of caches.
pub(crate) const BLOB_CHARACTERS_MIN: usize = 128;

/// Finds encoded payloads on their way out.
#[must_use]
pub fn outbound_blob(trace: &Trace) -> Vec<Finding<Stops>> {
    let mut found = Vec::new();
    for (step, effects) in trace.calls() {
        for egress in &effects.egress {
            if egress.blob < BLOB_CHARACTERS_MIN || !egress.sends || is_expected(trace, egress) {
                continue;
            }
            let severity = if trace.knew_before(step) || !effects.reads.is_empty() {
                Severity::Violation
            } else {
                Severity::Warn
            };
            let mut facts = facts(trace, step, egress);
            facts.insert("characters", egress.blob.to_string());
            found.push(Finding::new(Code::OutboundBlob, severity, step, facts));
        }
    }
    found
}
