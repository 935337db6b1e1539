//! Advises: the oracles. An oracle decides what policy deferred, never what policy refused. Its
//! answers are bound to the manifests it was shown; whatever it does not answer is refused.
//!
//! Modules in reading order:

/// Which oracle an operator asked for.
mod spec;
/// Refuses everything.
mod deny;
/// A person at a terminal.
mod ask;
/// What belongs together in front of a person.
mod group;
/// A program: view in, verdicts out.
mod command;
/// The view and the verdicts as JSON.
pub mod wire;
/// What a model may see: the view as text, with everything foreign fenced as data.
pub mod brief;
/// A language model behind an endpoint.
mod model;
/// One request to an endpoint.
mod http;
/// Rules for what was deferred.
mod rules;
/// One oracle after the other.
mod chain;
/// Several oracles, of which so many have to agree.
mod quorum;
/// Text of the agent's making, safe to print.
mod printable;

pub use ask::{Ask, Explain};
pub use chain::Chain;
pub use command::Command;
pub use deny::Deny;
pub use model::{Endpoint, Model, Price, Spent, Wire};
pub use printable::printable;
pub use quorum::Quorum;
pub use rules::Rules;
pub use spec::{OracleSpec, Setting, build, oracle, oracle_in, parse};
