//! Executes the steps of a file's lease ([`super::lease`]), after each change of the open descriptions ([`super::opens`]).
//!
//! A client that finds a file in the mode [`Mode::Kernel`] revokes its own description: it takes it out of the lane, so that
//! it uses the kernel's page cache as the others do. The others may have the file mapped, and the kernel writes back whole
//! pages that they store to. The client need not revoke its description when only its own revoked descriptions use the file
//! by the kernel ([`Mode::Rejoining`]): before such a description is mapped, the daemon is told, and the description becomes
//! the kernel's for good. So the workers of a server, which open a file one after the other, rejoin the lane together.
//!
//! Changes are made step by step, each under the inode's lock, from the state at that moment ([`FileSystem::reconsider`]):
//! steps of concurrent changes may interleave.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use weir_lane::board::Mode;
use weir_lane::wire::Leave;

use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};
use crate::lane::clients::Client;
use crate::lane::lane_state::LaneState;
use crate::lane::lease::Step;
use crate::lane::opens::{ClientId, Refusal};
use crate::open_file::OpenFile;
use crate::reclaimer::Pages;

/// The thread that tells the kernel to drop a file's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Teller {
    /// The reclaimer's thread, later.
    Reclaimer,
    /// This thread, now: it serves a call on an open description of the file, so that the kernel is not letting go of the inode.
    /// For that it might wait until a write is answered.
    This,
}

impl FileSystem {
    /// Whether a description that is about to be opened by a thread must be a direct one. Not if the file is used by the
    /// kernel: then no client posts that a description could disturb.
    pub(crate) fn opens_direct(&self, inode: &Inode, opener: &Caller) -> bool {
        let Some(lane) = &self.lane else { return false };
        let is_used = inode.lane.slot().is_some()
            && !matches!(inode.lane.state().lease.mode(), Some(Mode::Kernel | Mode::Rejoining));
        is_used && lane.clients.have_thread(opener.pid, opener.uid)
    }

    /// Counts a new open description, and runs `then` when no client can post to the file that may no longer do so.
    pub(crate) fn description_made(
        self: &Arc<Self>,
        open: &OpenFile,
        direct: bool,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.lane.is_none() {
            return then();
        }
        let in_lane = {
            let mut kind = open.lane.kind();
            let mut state = open.inode.lane.state();
            state.opens.open(&mut kind, open.writes, direct);
            !direct && state.lease.mode().is_some()
        };
        if in_lane { self.reconsider(&open.inode, then) } else { then() }
    }

    /// Discounts a closed description; all posts by it are applied.
    pub(crate) fn description_closed(self: &Arc<Self>, open: &OpenFile) {
        let Some(lane) = &self.lane else { return };
        let in_lane = {
            let mut kind = open.lane.kind();
            let mut state = open.inode.lane.state();
            for (client, number) in state.opens.close(&mut kind, open.writes) {
                if let Some(client) = lane.clients.get(client) {
                    client.remove(number);
                }
            }
            state.lease.mode().is_some()
        };
        if in_lane {
            self.reconsider(&open.inode, || {});
        }
    }

    /// One of a client's processes attaches an open description; [`FileSystem::reconsider`] must follow, also after an error.
    /// If all places on the board are taken, the file has none after that, and the description must leave. Returns the
    /// description's number for the client, and whether the client had attached it already.
    ///
    /// # Errors
    /// EPERM: the description is closed, or the kernel's for good. ENFILE: the client has the most descriptions that it may
    /// have, or has ended.
    pub(crate) fn attach_description(
        &self,
        open: &Arc<OpenFile>,
        client: &Client,
        process: u32,
    ) -> Result<(u32, bool), Errno> {
        let mut kind = open.lane.kind();
        let mut state = open.inode.lane.state();
        let attached = state.opens.attach(
            &mut kind,
            open.writes,
            (client.id, process),
            || client.add(open),
            |number| client.has(number),
        );
        let attached = attached.map_err(|refusal| match refusal {
            Refusal::Kernels => Errno::EPERM,
            Refusal::TooMany => Errno::ENFILE,
        })?;
        self.take_place(&open.inode, &mut state);
        Ok(attached)
    }

    /// A description is the kernel's from now on, for good or until its process attaches it again. Runs `then` when everything
    /// posted is applied and the kernel holds no outdated pages.
    pub(crate) fn description_left(
        self: &Arc<Self>,
        open: &OpenFile,
        leave: Leave,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.lane.is_none() {
            return then();
        }
        let process = (leave != Leave::FOR_GOOD).then_some(leave.process);
        {
            let mut kind = open.lane.kind();
            let mut state = open.inode.lane.state();
            state.opens.revoke(&mut kind, open.writes, process);
        }
        // Also if it had left before: that may be under way.
        self.reconsider(&open.inode, then);
    }

    /// A client has ended: a description that it had, and that other programs may still have, is the kernel's.
    pub(crate) fn client_left(self: &Arc<Self>, open: &OpenFile, client: ClientId) {
        let had_it = {
            let mut kind = open.lane.kind();
            open.inode.lane.state().opens.end_client(&mut kind, open.writes, client)
        };
        if had_it {
            self.reconsider(&open.inode, || {});
        }
    }

    /// A client closed its socket: revokes its leases, applies all it posted, and removes it.
    pub(crate) fn client_gone(self: &Arc<Self>, client: &Arc<Client>) {
        let descriptions = client.retire();
        // Before its places on the board are given to other files.
        client.region.close();
        client.inbox().inbox.revoke();
        for open in descriptions {
            self.client_left(&open, client.id);
        }
        let (fs, gone) = (Arc::clone(self), Arc::clone(client));
        self.drained(client, move || {
            if let Some(lane) = &fs.lane {
                lane.board.remove_client(&gone.region);
                lane.clients.remove(gone.id);
            }
        });
    }

    /// Gives a file a place on the board, unless it has one or all are taken.
    fn take_place(&self, inode: &Inode, state: &mut LaneState) {
        let is_out = state.lease.mode().is_none();
        let Some(lane) = self.lane.as_ref().filter(|_| is_out) else { return };
        let Some(slot) = lane.take_slot() else { return };
        lane.board.set_mode(slot, Mode::Changing, 0);
        self.shard.share(inode.node().file(), slot);
        inode.lane.set_slot(Some(slot));
        state.lease.enter();
        lane.counts.entered.fetch_add(1, Ordering::Relaxed);
    }

    /// Brings the lease to the mode that follows from the open descriptions, and runs `then` when no revocation is under way.
    pub(crate) fn reconsider(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        then: impl FnOnce() + Send + 'static,
    ) {
        self.reconsider_by(inode, Teller::Reclaimer, then);
    }

    /// As [`FileSystem::reconsider`]. `teller` is the thread that tells the kernel to drop attributes, if a step needs that.
    pub(crate) fn reconsider_by(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        teller: Teller,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some(lane) = &self.lane else { return then() };
        let step = {
            let mut state = inode.lane.state();
            let step = self.step(inode, &mut state);
            let is_done = !matches!(step, Step::Revoke(..) | Step::DropAttributes(_));
            if is_done && state.lease.is_being_revoked() {
                state.waiting.push(Box::new(then));
                return;
            }
            step
        };
        match step {
            Step::Nothing | Step::Grant(_) | Step::Show(_) | Step::Leave => then(),
            Step::Revoke(client, revocation) => {
                let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
                let applied = move || fs.posts_applied(&inode, revocation, then);
                match lane.clients.get(client) {
                    Some(client) => self.drained(&client, applied),
                    None => applied(),
                }
            }
            Step::DropAttributes(drop) => {
                let node = inode.node();
                if let (Teller::This, Some(kernel)) =
                    (teller, self.kernel.get().and_then(Weak::upgrade))
                {
                    kernel.drop_attributes(node);
                    inode.lane.state().lease.attributes_dropped(drop);
                    return self.reconsider_by(inode, teller, then);
                }
                let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
                self.reclaimer.forget_attributes(node, move || {
                    inode.lane.state().lease.attributes_dropped(drop);
                    fs.reconsider(&inode, then);
                });
            }
        }
    }

    /// Takes one step, under the lock, and executes the part of it that does not wait.
    fn step(&self, inode: &Inode, state: &mut LaneState) -> Step {
        let (Some(lane), Some(slot)) = (&self.lane, inode.lane.slot()) else {
            return Step::Nothing;
        };
        let step = state.lease.step(state.opens.wanted());
        match step {
            Step::Grant(client) => {
                inode.lane.publish(&state.lease);
                lane.board.set_mode(slot, Mode::Exclusive, client);
                lane.counts.granted.fetch_add(1, Ordering::Relaxed);
            }
            Step::Revoke(client, _) => {
                lane.board.set_mode(slot, Mode::Changing, 0);
                if let Some(client) = lane.clients.get(client) {
                    client.inbox().inbox.revoke();
                }
                lane.counts.revoked.fetch_add(1, Ordering::Relaxed);
            }
            Step::Show(mode) => lane.board.set_mode(slot, mode, 0),
            Step::Leave => {
                self.shard.unshare(inode.node().file(), slot);
                inode.lane.set_slot(None);
                lane.give_slot_back(slot);
            }
            Step::Nothing | Step::DropAttributes(_) => {}
        }
        inode.lane.publish(&state.lease);
        step
    }

    /// Everything posted before the revocation is applied.
    fn posts_applied(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        revocation: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        {
            let mut state = inode.lane.state();
            state.lease.posts_applied();
            inode.lane.publish(&state.lease);
        }
        let (fs, of) = (Arc::clone(self), Arc::clone(inode));
        self.reclaimer.forget_pages(inode.node(), Pages::All, move || {
            let waiting = {
                let mut state = of.lane.state();
                state.lease.pages_dropped(revocation);
                of.lane.publish(&state.lease);
                match state.lease.is_being_revoked() {
                    false => std::mem::take(&mut state.waiting),
                    true => Vec::new(),
                }
            };
            fs.reconsider(&of, then);
            for then in waiting {
                fs.reconsider(&of, then);
            }
        });
    }
}
