//! The tree as programs see it, and as home has it.
//!
//! A change ([`Change`]) is applied in memory at once and has a place in the log's order. What differs from home is
//! *dirty*, and is brought home in the background like dirty pages ([`Tree::next_command`]): not change by change, but
//! entry by entry, from whatever home has to what is wanted. So what was made and removed meanwhile never reaches
//! home, and the same procedure recovers a tree after a crash.
//!
//! Owns: nodes, entries, which of them are dirty, the commands for home that are under way, and from where on the log
//! is needed. Does not own: the log and its records, file data and sizes, system calls, clocks.
//!
//! Invariants ([`Tree::check_invariants`]):
//! - home is given nothing of a change before the change's record is durable (write ahead);
//! - an entry that is dirty is queued, or waits for a node, for a commit or for a new attempt, or has a command under way;
//! - at most one command under way concerns an entry, and at most one a node;
//! - a node's places are the entries that lead to it, those home has leading to it, and those that were not looked at
//!   since they led to it, each with its role;
//! - the log is needed from the first change on that home does not have, or has and was not synced since
//!   ([`Tree::needed_from`]).

mod change;
mod command;
mod command_id;
mod conflict;
mod entry;
mod found;
mod given_up;
mod logged;
mod lost_answers;
mod needed;
mod node;
mod part;
mod places;
mod plan;
mod queue;
mod recover;
mod reports;
mod settle;
mod standing;
mod state;
mod step;
mod told;
mod tried;
mod until;
mod view;
mod write_back;

#[cfg(test)]
mod tests;

pub use change::{Change, LINKS_MAX, NAME_BYTES_MAX, Refused};
pub use command::{Answer, Command, HomeError};
pub use command_id::CommandId;
pub use entry::{AtHome, Positions};
pub use found::{Adoption, Conflict, ReplayError};
pub use logged::{Contradiction, LoggedNames, NotLogged, file_type, kind_at_home, node_record};
pub use node::{Attributes, Kind, Moment, Xattrs};
pub use part::Part;
pub use reports::RefusalCursor;
pub use standing::Standing;
pub use state::Tree;
pub use step::Step;
pub use until::Until;
pub use view::Links;
