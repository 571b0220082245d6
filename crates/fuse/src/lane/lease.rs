//! A file's lease: the right of one client to post writes to it. A table of states and steps, without locks or I/O.
//!
//! [`Lease::step`] returns the next step towards the mode in [`Wanted`]; the caller ([`super::grants`]) executes the step and
//! reports when it is done:
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
//! Before a client may post, the kernel drops the file's attributes, and while the lease lasts the daemon tells the kernel that
//! they are valid for no time: sizes change without the kernel. When the lease is revoked and everything posted is applied, the
//! kernel drops the file's pages; an open of the file before that is done does not keep the cached pages either.
//!
//! Invariants, which the test of all reachable states checks:
//! - one client at a time may post to a file, and only while all others that have it open bypass the kernel's page cache;
//! - the lease is granted only to a client that asked for it, and only after everything posted before was applied;
//! - when nothing is under way any more, the mode is the wanted one.

use weir_lane::board::Mode;

use crate::lane::opens::{ClientId, Wanted};

/// The file's attributes in the kernel's cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum Attributes {
    /// They are valid.
    #[default]
    Valid,
    /// The kernel was asked to drop them, by the request of this number, and is told that they are valid for no time.
    Dropping(u64),
    /// The kernel has dropped them, and is told that they are valid for no time.
    Dropped,
}

/// The state of a file's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lease {
    /// As on the board; `None` for a file that is not in the lane.
    mode: Option<Mode>,
    /// The client that may post, or may have posted writes that are not applied yet.
    holder: Option<ClientId>,
    attributes: Attributes,
    /// The kernel may hold outdated pages.
    is_stale: bool,
    /// Counts the requests to the kernel to drop the attributes.
    drops: u64,
    /// Counts the revocations.
    revocations: u64,
    /// Revocations after which the kernel has not dropped its pages yet.
    under_way: u32,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    /// The mode is the wanted one, or a step that is under way leads to it.
    Nothing,
    /// The client may post from now on.
    Grant(ClientId),
    /// The client may no longer post: apply what it posted. With the revocation's number.
    Revoke(ClientId, u64),
    /// Ask the kernel to drop the attributes. With the request's number.
    DropAttributes(u64),
    /// Show this mode on the board; no client holds the lease.
    Show(Mode),
    /// The file is no longer in the lane.
    Leave,
}

impl Lease {
    /// The mode as on the board; `None` if the file is not in the lane.
    pub(crate) fn mode(&self) -> Option<Mode> {
        self.mode
    }

    /// The client that may post, or may have posted writes that are not applied.
    pub(crate) fn holder(&self) -> Option<ClientId> {
        self.holder
    }

    /// Whether the file's attributes may change without the kernel's knowledge.
    pub(crate) fn is_volatile(&self) -> bool {
        self.attributes != Attributes::Valid
    }

    /// Whether the kernel may hold outdated pages.
    pub(crate) fn is_stale(&self) -> bool {
        self.is_stale
    }

    /// Whether a revocation is under way: posted writes may not be applied, or the kernel may hold outdated pages.
    pub(crate) fn is_being_revoked(&self) -> bool {
        self.under_way > 0
    }

    /// The file has a place on the board now.
    pub(crate) fn enter(&mut self) {
        debug_assert!(self.mode.is_none());
        self.mode = Some(Mode::Changing);
    }

    /// The next step towards `wanted`.
    pub(crate) fn step(&mut self, wanted: Wanted) -> Step {
        let Some(mode) = self.mode else { return Step::Nothing };
        if let (Mode::Exclusive, Some(holder)) = (mode, self.holder) {
            if wanted == Wanted::Lease(holder) {
                return Step::Nothing;
            }
            // Others may read frames only after the posted writes are in them.
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

    /// The kernel has dropped the attributes, as the request of number `drop` asked. A step must follow.
    pub(crate) fn attributes_dropped(&mut self, drop: u64) {
        if self.attributes == Attributes::Dropping(drop) {
            self.attributes = Attributes::Dropped;
        }
    }

    /// Everything posted before the revocation is applied.
    pub(crate) fn posts_applied(&mut self) {
        // The lease was not granted since: it still had a holder.
        self.holder = None;
    }

    /// The kernel has dropped its pages after a revocation. A step must follow.
    pub(crate) fn pages_dropped(&mut self, revocation: u64) {
        if self.revocations == revocation && self.holder.is_none() {
            self.is_stale = false;
        }
        self.under_way -= 1;
    }
}

#[cfg(test)]
mod states;
