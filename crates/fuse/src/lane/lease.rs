//! A file's lease: the right of one client to post writes to it. A table of states and steps, without locks or I/O.
//!
//! [`Lease::step`] says what to do next so that the lease becomes what [`Wanted`] says; whoever calls it does that
//! ([`super::grants`]) and reports when it is done:
//!
//! | holder | wanted | step | reported by |
//! |---|---|---|---|
//! | none | lease, kernel has attributes | [`Step::DropAttributes`] | [`Lease::attributes_dropped`] |
//! | none | lease, kernel has none | [`Step::Grant`] | |
//! | none | another mode | [`Step::Show`] | |
//! | none | out of the lane | [`Step::Leave`] | |
//! | a client | anything but its lease | [`Step::Revoke`], once | [`Lease::posts_applied`], then [`Lease::pages_dropped`] |
//! | a client, revoked | anything | none until its posts are applied | |
//!
//! Before a client may post, the kernel has dropped the file's attributes, and from then on it is told that they are valid for
//! no time: sizes change without it. After a client may no longer post, and everything it posted is applied, the kernel drops
//! the file's pages; whoever opens the file before that is done does not keep them either.
//!
//! Invariants, which the test of all reachable states checks:
//! - one client at a time may post to a file, and only while everybody else who has it open bypasses the kernel's page
//!   cache;
//! - the lease is granted only to a client that asked for it, and only after everything posted before was applied;
//! - when nothing is under way any more, the mode is the one that is wanted.

use weir_lane::board::Mode;

use crate::lane::opens::{ClientId, Wanted};

/// What the kernel knows of the file's attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Attributes {
    /// They are valid.
    #[default]
    Valid,
    /// It was asked to drop them, for this time, and is told that they are valid for no time.
    Dropping(u64),
    /// It has dropped them, and is told that they are valid for no time.
    Dropped,
}

/// How the lease of a file stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// As on the board; `None` for a file that is not in the lane.
    mode: Option<Mode>,
    /// Who may post, or may have posted what is not applied yet.
    holder: Option<ClientId>,
    attributes: Attributes,
    /// The kernel may hold pages that are not what they were.
    is_stale: bool,
    /// Counts the times the kernel was asked to drop the attributes.
    drops: u64,
    /// Counts the revocations.
    revocations: u64,
    /// Revocations after which the kernel has not dropped its pages yet.
    under_way: u32,
}

/// What is to be done next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The mode is as it should be, or another step that is under way leads there.
    Nothing,
    /// The client may post from now on.
    Grant(ClientId),
    /// The client may no longer post: apply what it posted. The revocation's number.
    Revoke(ClientId, u64),
    /// Have the kernel drop the attributes; which time that is.
    DropAttributes(u64),
    /// The mode is another one; nobody holds the lease.
    Show(Mode),
    /// The file is no longer in the lane.
    Leave,
}

impl Lease {
    /// The mode as on the board; `None` if the file is not in the lane.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// Who may have posted to the file what is not applied.
    pub(crate) fn holder(&self) -> Option<ClientId> {
        self.holder
    }

    /// Whether the file's attributes change without the kernel.
    pub(crate) fn is_volatile(&self) -> bool {
        self.attributes != Attributes::Valid
    }

    /// Whether the kernel may hold pages that are not what they were.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Whether a revocation is under way: something posted may not be applied, or the kernel hold something old.
    pub(crate) fn is_being_revoked(&self) -> bool {
        self.under_way > 0
    }

    /// The file has a place on the board now.
    pub(crate) fn enter(&mut self) {
        debug_assert!(self.mode.is_none());
        self.mode = Some(Mode::Changing);
    }

    /// The next step towards what is wanted.
    pub(crate) fn step(&mut self, wanted: Wanted) -> Step {
        let Some(mode) = self.mode else { return Step::Nothing };
        if let (Mode::Exclusive, Some(holder)) = (mode, self.holder) {
            if wanted == Wanted::Lease(holder) {
                return Step::Nothing;
            }
            // Others may read frames when what was posted is in them.
            self.mode = Some(Mode::Changing);
            self.revocations += 1;
            self.under_way += 1;
            return Step::Revoke(holder, self.revocations);
        }
        if self.holder.is_some() {
            return Step::Nothing;
        }
        match (wanted, self.attributes) {
            (Wanted::Lease(_), Attributes::Valid) => {
                self.drops += 1;
                self.attributes = Attributes::Dropping(self.drops);
                Step::DropAttributes(self.drops)
            }
            (Wanted::Lease(_), Attributes::Dropping(_)) => Step::Nothing,
            (Wanted::Lease(client), Attributes::Dropped) => {
                self.is_stale = true;
                self.holder = Some(client);
                self.mode = Some(Mode::Exclusive);
                Step::Grant(client)
            }
            (Wanted::Mode(wanted), _) => {
                self.attributes = Attributes::Valid;
                if wanted == mode {
                    return Step::Nothing;
                }
                self.mode = Some(wanted);
                Step::Show(wanted)
            }
            (Wanted::OutOfLane, _) => {
                self.attributes = Attributes::Valid;
                self.mode = None;
                Step::Leave
            }
        }
    }

    /// The kernel has dropped the attributes, as it was asked for that time. A step is to follow.
    pub(crate) fn attributes_dropped(&mut self, drop: u64) {
        if self.attributes == Attributes::Dropping(drop) {
            self.attributes = Attributes::Dropped;
        }
    }

    /// Everything is applied that was posted before the revocation.
    pub(crate) fn posts_applied(&mut self) {
        // Nobody was granted the lease since: there was a holder still.
        self.holder = None;
    }

    /// The kernel has dropped its pages after a revocation. A step is to follow.
    pub(crate) fn pages_dropped(&mut self, revocation: u64) {
        if self.revocations == revocation && self.holder.is_none() {
            self.is_stale = false;
        }
        self.under_way -= 1;
    }
}

#[cfg(test)]
mod states;
