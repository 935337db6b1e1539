//! The monitor: carries one effect through its whole life. Synchronous; adapters bring their own
//! threads or async runtime.
//!
//! Modules in reading order:

/// The traits that adapters implement.
pub mod ports;
/// One effect's whole life, top to bottom.
pub mod effect;
/// A session: the state, the log and the ports together.
pub mod session;
/// Asking oracles about what is held.
pub mod resolve;
/// Objects, reasons and origins as programs read them.
pub mod written;

pub use ports::{Answer, Chance, Channel, Clock, Happening, Judgement, Oracle, View, ViewHold};
pub use session::{Held, Outcome, Session};
