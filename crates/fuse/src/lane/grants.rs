//! Executes what a file's lease says ([`super::lease`]), after each change of who has the file open ([`super::opens`]).
//!
//! A client that finds a file in the mode [`Mode::Kernel`] revokes its own description: it takes it out of the lane, so that
//! it uses the kernel's page cache as the others do. They may have the file mapped, and a page they store to is written back
//! whole. It need not for a revoked description of its own client: of that the daemon would be told before it is mapped, and
//! it would be the kernel's for good. So workers of a server, which open a file one after the other, come together in the
//! lane.
//!
//! Changes are made step by step, each under the inode's lock, from what holds by then ([`FileSystem::reconsider`]): steps of
//! several changes at once may mingle.

use std::sync::Arc;
use std::sync::atomic::Ordering;

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

impl FileSystem {
    /// Whether a description that is about to be made for a thread is to be a direct one: if the file is used by the kernel
    /// alone there is no lane that it could keep open.
    pub(crate) fn opens_direct(&self, inode: &Inode, opener: &Caller) -> bool {
        let Some(lane) = &self.lane else { return false };
        let is_used = inode.lane.slot().is_some()
            && !matches!(inode.lane.state().lease.mode(), Some(Mode::Kernel | Mode::Rejoining));
        is_used && lane.clients.have_thread(opener.pid, opener.uid)
    }

    /// Counts a new open description, and runs `then` when nobody posts to the file who may not any more.
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

    /// Discounts an open description that is closed, all its posts applied.
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

    /// One of a client's processes attaches an open description; [`FileSystem::reconsider`] is to
    /// follow, also after an error. If all places on the board are taken the file then has none, and the description must be
    /// made to leave. The number the client goes by, and whether it had attached the description already.
    ///
    /// # Errors
    /// EPERM: it is the kernel's for good, now if not before, or closed. ENFILE: the client has as many as it may, or is gone.
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

    /// A description is the kernel's from now on, for good or until its process attaches it again; runs `then` when everything
    /// posted is applied and the kernel holds nothing old.
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
        let revoked = {
            let mut kind = open.lane.kind();
            let mut state = open.inode.lane.state();
            state.opens.revoke(&mut kind, open.writes, process)
        };
        if revoked { self.reconsider(&open.inode, then) } else { then() }
    }

    /// A client is gone, all it posted is applied: its descriptions, if others still have them, are the kernel's.
    pub(crate) fn client_left(self: &Arc<Self>, open: &OpenFile, client: ClientId) {
        let had_it = {
            let mut kind = open.lane.kind();
            open.inode.lane.state().opens.end_client(&mut kind, open.writes, client)
        };
        if had_it {
            self.reconsider(&open.inode, || {});
        }
    }

    /// A client closed its socket: takes its rights away, applies all it posted, and forgets it.
    pub(crate) fn client_gone(self: &Arc<Self>, client: &Arc<Client>) {
        let descriptions = client.retire();
        // Before its places on the board are others'.
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

    /// Gives a file a place on the board, unless it has one or there is none.
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

    /// Brings the lease to what follows from who has the file open, and runs `then` when no revocation is under way.
    pub(crate) fn reconsider(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
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
                let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
                let node = inode.node();
                self.reclaimer.forget_attributes(node, move || {
                    inode.lane.state().lease.attributes_dropped(drop);
                    fs.reconsider(&inode, then);
                });
            }
        }
    }

    /// Takes one step under the lock, as far as that is done at once.
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

    /// Everything is applied that was posted before the revocation.
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
