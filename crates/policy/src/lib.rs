//! Reads policies: `kairos.toml` and Cedar rules become what the kernel decides by.
//!
//! A policy is the built-in default ([`DEFAULT`], in the same format) and what a file adds to it.
//! Whatever is wrong is told with file, line and column, several mistakes at once; a policy with
//! a mistake is never in force.
//!
//! Modules in reading order:

/// A policy in force, and everything else the program needs of it.
mod loaded;
/// From files to a policy in force, and back from what a session recorded.
mod load;
/// Which policy is in force, and approving the workspace's.
mod discover;
/// Writes a commented policy that fits a repository.
mod init;
/// What is in force, in words and as data.
mod report;
/// What a policy file says, table by table.
mod sheet;
/// Amounts with units.
mod amount;
/// The tables that speak of parties.
mod party;
/// What they say of connections.
mod connection;
/// The tables that speak of tools.
mod tool;
/// Puts a file and the default together and writes the kernel's policy.
mod bind;
/// Rules that refuse, in Cedar.
mod rules;
/// Reads TOML tables field by field and keeps places.
mod read;
/// What is wrong with a policy.
mod error;

pub use connection::{HostKey, NetLimits, Rate, Upstream};
pub use discover::{Discovered, FILE_NAME, Places, PolicyOrigin, discover, distrust, trust};
pub use error::{Finding, PolicyErrors};
pub use init::init;
pub use load::{DEFAULT, amended, load, load_text, recorded, recorded_file};
pub use loaded::{
    AgentConfig, Credential, Files, Identity, Loaded, OracleConfig, PartyConnection, Root,
    StateTree, UpstreamRule,
};
pub use report::{
    CredentialReport, LevelReport, PartyReport, Report, SourceReport, ToolReport, TypedReport,
};
pub use rules::{CedarRules, SCHEMA};
