//! Who may use a file in the lane, and how.
//!
//! Open descriptions of a file are of four kinds. Those of the *kernel*: their programs may use the kernel's page cache.
//! *Attached* ones: a client uses them, and has told the kernel to bypass its page cache (O_DIRECT). *Direct* ones: opened by
//! a client's thread while the file was in the lane and not by the kernel alone, and told by us to bypass it. And those that
//! were attached and *gave way* to somebody of the kernel's: they use its page cache, too, and their process attaches them
//! again sooner or later. From the counts follows the mode:
//!
//! | attached by | kernel, may write | kernel, read only | mode |
//! |---|---|---|---|
//! | nobody, and nobody has been | | | not in the lane |
//! | nobody any more | | | by the kernel alone |
//! | one client | only some of its own that gave way | | joining: by the kernel until they are attached again |
//! | | others | | by the kernel alone |
//! | | none | some | shared: frames are read, writes go by the kernel |
//! | several clients | none | none | shared |
//! | one client | none | none | exclusive: that one posts |
//!
//! Before a client may post, the kernel has forgotten the file's attributes, and from then on it is told that they
//! hold for no time: sizes change without it. After a client may no longer post, and everything it posted is
//! applied, the kernel drops what it has of the file's pages; whoever opens the file before that is done does not
//! keep them either.
//!
//! A client that finds a file by the kernel alone gives way: it takes its description out of the lane, so that it uses the
//! kernel's page cache as the others do: they may have the file mapped, and a page they store to is written back whole. It
//! need not for one of its own that gave way: of that we would be told before it is mapped, and it would be the kernel's for
//! good. So workers of a server, which open a file one after the other, come together in the lane.
//!
//! One process only may attach again what gave way, the one that had it do so. If another one has the same description give
//! way meanwhile, it is the kernel's for good: between telling us and telling the kernel (O_DIRECT) each would undo what the
//! other did.
//!
//! Changes are made step by step, each under the inode's lock, from what holds by then ([`FileSystem::reconsider`]): steps of
//! several changes at once may mingle.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smallvec::SmallVec;
use weir_lane::board::Mode;
use weir_lane::wire::Leave;

use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::{FileSystem, OpenFile};
use crate::inode::{DataNode, Inode};
use crate::lane::clients::{Client, ClientId};
use crate::reclaimer::Pages;

/// A file's standing in the lane.
#[derive(Debug, Default)]
pub(crate) struct InodeLane {
    /// Who has, or had, the right to post, and may have posted what is not applied; 0: nobody.
    poster: AtomicU32,
    /// The place on the board, plus 1; 0: none.
    slot: AtomicU32,
    /// What the kernel is told of the file's attributes holds for no time.
    volatile: AtomicBool,
    /// The kernel may hold pages that are not what they were.
    stale: AtomicBool,
    /// A client had the right to post: where the file ends the kernel does not always know since.
    was_posted_to: AtomicBool,
    standing: Mutex<Standing>,
}

#[derive(Default)]
struct Standing {
    kernel_readers: u32,
    kernel_writers: u32,
    /// Of the writers, those that gave way, all of one client.
    gave_way: (ClientId, u32),
    /// Descriptions that left the lane or gave way, and are not closed: clients may still go by the file's place on the board.
    left: u32,
    /// Clients, and how many descriptions each has attached.
    attached: SmallVec<[(ClientId, u32); 2]>,
    /// As on the board.
    mode: Option<(Mode, ClientId)>,
    /// Counts the times the kernel was asked to forget the attributes.
    asked: u64,
    /// It forgot them, and was told none since that hold.
    forgotten: bool,
    /// Counts the times the right to post was taken away.
    withdrawals: u64,
    /// Of these, how many are not done: something posted may not be applied, or the kernel hold something old.
    under_way: u32,
    /// To be run when none is.
    waiting: Vec<Box<dyn FnOnce() + Send>>,
}

impl fmt::Debug for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Standing({:?}, {:?})", self.mode, self.attached)
    }
}

/// How an open description stands.
#[derive(Debug, Default)]
pub(crate) struct OfDescription {
    kind: Mutex<Kind>,
}

#[derive(Debug, Default)]
enum Kind {
    #[default]
    Kernel,
    Direct,
    /// By these clients, under these numbers.
    Attached(SmallVec<[(ClientId, u32); 1]>),
    /// The kernel's until this process of the client attaches it again, under this number.
    GaveWay {
        client: ClientId,
        number: u32,
        process: u32,
    },
    /// The kernel's for good: it is mapped, or passed on. It was attached under these numbers.
    Left(SmallVec<[(ClientId, u32); 1]>),
    Closed,
}

/// What a file's mode should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wanted {
    Out,
    Mode(Mode, ClientId),
}

/// What is to be done next towards it.
enum Step {
    /// It is as it should be, or somebody else's step leads there.
    Nothing,
    /// Take the right to post away, and apply what was posted; which time that is.
    Withdrawn(ClientId, u64),
    /// Have the kernel forget the attributes; which time it is asked.
    Forget(u64),
}

impl InodeLane {
    /// Of a file that is out of the lane; whether a client had the right to post to it before.
    pub(crate) fn resumed(posted: bool) -> InodeLane {
        InodeLane { was_posted_to: AtomicBool::new(posted), ..InodeLane::default() }
    }

    /// Whether the file is out of the lane, and nothing of it under way: then only whether it was posted to
    /// need be remembered of it.
    pub(crate) fn is_out(&self) -> bool {
        let standing = self.standing();
        let in_use = standing.mode.is_some()
            || standing.under_way > 0
            || standing.left > 0
            || standing.kernel_readers + standing.kernel_writers > 0
            || !standing.attached.is_empty();
        let left = self.poster().is_some() || self.slot().is_some();
        !in_use && !left && !self.is_volatile() && !self.is_stale()
    }

    /// Who may have posted to the file.
    pub(crate) fn poster(&self) -> Option<ClientId> {
        match self.poster.load(Ordering::Acquire) {
            0 => None,
            client => Some(client),
        }
    }

    /// The file's place on the board.
    pub(crate) fn slot(&self) -> Option<u32> {
        self.slot.load(Ordering::Acquire).checked_sub(1)
    }

    /// Whether the file's attributes change without the kernel.
    pub(crate) fn is_volatile(&self) -> bool {
        self.volatile.load(Ordering::Acquire)
    }

    /// Whether the kernel may hold pages that are not what they were.
    pub(crate) fn is_stale(&self) -> bool {
        self.stale.load(Ordering::Acquire)
    }

    /// Whether the kernel need not know where the file ends.
    pub(crate) fn was_posted_to(&self) -> bool {
        self.was_posted_to.load(Ordering::Acquire)
    }

    fn standing(&self) -> MutexGuard<'_, Standing> {
        self.standing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Standing {
    fn wanted(&self) -> Wanted {
        match self.attached[..] {
            [] if self.left == 0 => Wanted::Out,
            [] => Wanted::Mode(Mode::Kernel, 0),
            [(client, _)]
                if self.gave_way == (client, self.kernel_writers) && self.gave_way.1 > 0 =>
            {
                Wanted::Mode(Mode::Joining, 0)
            }
            _ if self.kernel_writers > 0 => Wanted::Mode(Mode::Kernel, 0),
            [(client, _)] if self.kernel_readers == 0 => Wanted::Mode(Mode::Exclusive, client),
            _ => Wanted::Mode(Mode::Shared, 0),
        }
    }

    fn count(&mut self, writes: bool) -> &mut u32 {
        if writes { &mut self.kernel_writers } else { &mut self.kernel_readers }
    }

    /// A description of a client gives way. False if there are others' that did.
    fn give_way(&mut self, client: ClientId, writes: bool) -> bool {
        match &mut self.gave_way {
            _ if !writes => {}
            (_, 0) => self.gave_way = (client, 1),
            (of, descriptions) if *of == client => *descriptions += 1,
            _ => return false,
        }
        true
    }

    /// It is not one that gave way any more.
    fn come_back(&mut self, writes: bool) {
        self.gave_way.1 -= u32::from(writes);
    }

    fn attach(&mut self, client: ClientId) {
        match self.attached.iter_mut().find(|(known, _)| *known == client) {
            Some((_, descriptions)) => *descriptions += 1,
            None => self.attached.push((client, 1)),
        }
    }

    fn detach(&mut self, client: ClientId) {
        let Some(at) = self.attached.iter().position(|(known, _)| *known == client) else { return };
        self.attached[at].1 -= 1;
        if self.attached[at].1 == 0 {
            self.attached.swap_remove(at);
        }
    }
}

impl OfDescription {
    fn kind(&self) -> MutexGuard<'_, Kind> {
        self.kind.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether programs may post to the file while this description is used by the kernel.
    pub(crate) fn is_direct(&self) -> bool {
        matches!(*self.kind(), Kind::Direct)
    }
}

impl FileSystem {
    /// Whether a description that is about to be made for a thread is to be a direct one: if the file is used by the kernel
    /// alone there is no lane that it could keep open.
    pub(crate) fn opens_direct(&self, inode: &Inode, opener: &Caller) -> bool {
        let Some(lane) = &self.lane else { return false };
        let is_used = inode.lane.slot().is_some()
            && !matches!(inode.lane.standing().mode, Some((Mode::Kernel | Mode::Joining, _)));
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
        if direct {
            *open.lane.kind() = Kind::Direct;
            return then();
        }
        let in_lane = {
            let mut standing = open.inode.lane.standing();
            *standing.count(open.writes) += 1;
            standing.mode.is_some()
        };
        if in_lane { self.reconsider(&open.inode, then) } else { then() }
    }

    /// Discounts an open description that is closed, all its posts applied.
    pub(crate) fn description_closed(self: &Arc<Self>, open: &OpenFile) {
        let Some(lane) = &self.lane else { return };
        let kind = std::mem::replace(&mut *open.lane.kind(), Kind::Closed);
        let in_lane = {
            let mut standing = open.inode.lane.standing();
            let numbers = match kind {
                Kind::Kernel => {
                    *standing.count(open.writes) -= 1;
                    SmallVec::new()
                }
                Kind::Left(by) => {
                    *standing.count(open.writes) -= 1;
                    standing.left -= u32::from(!by.is_empty());
                    by
                }
                Kind::GaveWay { client, number, .. } => {
                    *standing.count(open.writes) -= 1;
                    standing.come_back(open.writes);
                    standing.left -= 1;
                    smallvec::smallvec![(client, number)]
                }
                Kind::Attached(by) => {
                    by.iter().for_each(|&(client, _)| standing.detach(client));
                    by
                }
                Kind::Direct | Kind::Closed => SmallVec::new(),
            };
            for (client, number) in numbers {
                if let Some(client) = lane.clients.get(client) {
                    client.remove(number);
                }
            }
            standing.mode.is_some()
        };
        if in_lane {
            self.reconsider(&open.inode, || {});
        }
    }

    /// One of a client's processes attaches an open description; [`FileSystem::reconsider`] is to follow, also after an error. If
    /// all places on the board are taken the file then has none, and the description must be made to leave. The number the
    /// client goes by, and whether it had attached the description already.
    ///
    /// # Errors
    /// EPERM: it left the lane for good, or is closed, or gave way for another process and is the kernel's for good now. ENFILE:
    /// the client has as many as it may, or is gone.
    pub(crate) fn attach_description(
        &self,
        open: &Arc<OpenFile>,
        client: &Client,
        process: u32,
    ) -> Result<(u32, bool), Errno> {
        let mut kind = open.lane.kind();
        let mut standing = open.inode.lane.standing();
        let added = || client.add(open).ok_or(Errno::ENFILE);
        let number = match &mut *kind {
            Kind::Left(_) | Kind::Closed => return Err(Errno::EPERM),
            Kind::Attached(by) => {
                if let Some(&(_, number)) = by.iter().find(|(known, _)| *known == client.id) {
                    return Ok((number, true));
                }
                let number = added()?;
                by.push((client.id, number));
                number
            }
            Kind::GaveWay { client: of, number, process: its } => {
                let (of, number) = (*of, *number);
                let is_its = (of, *its) == (client.id, process) && client.has(number);
                standing.come_back(open.writes);
                if !is_its {
                    *kind = Kind::Left(smallvec::smallvec![(of, number)]);
                    return Err(Errno::EPERM);
                }
                *standing.count(open.writes) -= 1;
                standing.left -= 1;
                *kind = Kind::Attached(smallvec::smallvec![(of, number)]);
                number
            }
            Kind::Kernel | Kind::Direct => {
                let number = added()?;
                if matches!(*kind, Kind::Kernel) {
                    *standing.count(open.writes) -= 1;
                }
                *kind = Kind::Attached(smallvec::smallvec![(client.id, number)]);
                number
            }
        };
        standing.attach(client.id);
        self.take_place(&open.inode, &mut standing);
        Ok((number, false))
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
        {
            let mut kind = open.lane.kind();
            let mut standing = open.inode.lane.standing();
            let numbers = match &mut *kind {
                Kind::Closed | Kind::Left(_) => return then(),
                Kind::GaveWay { process, .. } if *process == leave.process => return then(),
                Kind::GaveWay { client, number, .. } => {
                    standing.come_back(open.writes);
                    smallvec::smallvec![(*client, *number)]
                }
                Kind::Kernel => SmallVec::new(),
                Kind::Direct => {
                    *standing.count(open.writes) += 1;
                    SmallVec::new()
                }
                Kind::Attached(by) => {
                    by.iter().for_each(|&(client, _)| standing.detach(client));
                    *standing.count(open.writes) += 1;
                    standing.left += 1;
                    std::mem::take(by)
                }
            };
            *kind = match numbers[..] {
                [(client, number)]
                    if matches!(*kind, Kind::Attached(_))
                        && leave != Leave::FOR_GOOD
                        && standing.give_way(client, open.writes) =>
                {
                    Kind::GaveWay { client, number, process: leave.process }
                }
                _ => Kind::Left(numbers),
            };
        }
        self.reconsider(&open.inode, then);
    }

    /// A client is gone, all it posted is applied: its descriptions, if others still have them, are the kernel's.
    pub(crate) fn client_left(self: &Arc<Self>, open: &OpenFile, client: ClientId) {
        {
            let mut kind = open.lane.kind();
            let mut standing = open.inode.lane.standing();
            let Kind::Attached(by) = &mut *kind else { return };
            let before = by.len();
            by.retain(|(known, _)| *known != client);
            if by.len() == before {
                return;
            }
            standing.detach(client);
            if by.is_empty() {
                *kind = Kind::Kernel;
                *standing.count(open.writes) += 1;
            }
        }
        self.reconsider(&open.inode, || {});
    }

    /// A client closed its socket: takes its rights away, applies all it posted, and forgets it.
    pub(crate) fn client_gone(self: &Arc<Self>, client: &Arc<Client>) {
        let descriptions = client.retire();
        // Before its places on the board are others'.
        client.region.close();
        client.inbox().inbox.withdraw();
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
    fn take_place(&self, inode: &Inode, standing: &mut Standing) {
        let Some(lane) = self.lane.as_ref().filter(|_| standing.mode.is_none()) else { return };
        let Some(slot) = lane.take_slot() else { return };
        lane.board.set_mode(slot, Mode::Changing, 0);
        self.shard.share(inode.node().file(), slot);
        inode.lane.slot.store(slot + 1, Ordering::Release);
        standing.mode = Some((Mode::Changing, 0));
        lane.counts.entered.fetch_add(1, Ordering::Relaxed);
    }

    /// Leads a file to the mode that follows from who has it open, and runs `then` when nobody has a right any more
    /// that is not his.
    pub(crate) fn reconsider(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let Some(lane) = &self.lane else { return then() };
        let step = {
            let mut standing = inode.lane.standing();
            let step = self.step(inode, &mut standing);
            if matches!(step, Step::Nothing) && standing.under_way > 0 {
                standing.waiting.push(Box::new(then));
                return;
            }
            step
        };
        match step {
            Step::Nothing => then(),
            Step::Withdrawn(client, which) => {
                lane.counts.withdrawn.fetch_add(1, Ordering::Relaxed);
                let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
                let applied = move || fs.posts_applied(&inode, which, then);
                match lane.clients.get(client) {
                    Some(client) => self.drained(&client, applied),
                    None => applied(),
                }
            }
            Step::Forget(asked) => {
                let (fs, inode) = (Arc::clone(self), Arc::clone(inode));
                let node = inode.node();
                self.reclaimer.forget_attributes(node, move || {
                    {
                        let mut standing = inode.lane.standing();
                        standing.forgotten |= standing.asked == asked;
                    }
                    fs.reconsider(&inode, then);
                });
            }
        }
    }

    /// One step, under the lock.
    fn step(&self, inode: &Inode, standing: &mut Standing) -> Step {
        let (Some(lane), Some(slot)) = (&self.lane, inode.lane.slot()) else {
            return Step::Nothing;
        };
        let Some((mode, owner)) = standing.mode else { return Step::Nothing };
        let wanted = standing.wanted();
        if mode == Mode::Exclusive && wanted != Wanted::Mode(mode, owner) {
            // Others may read frames when what was posted is in them.
            lane.board.set_mode(slot, Mode::Changing, 0);
            if let Some(client) = lane.clients.get(owner) {
                client.inbox().inbox.withdraw();
            }
            standing.mode = Some((Mode::Changing, 0));
            standing.withdrawals += 1;
            standing.under_way += 1;
            return Step::Withdrawn(owner, standing.withdrawals);
        }
        match wanted {
            Wanted::Mode(Mode::Exclusive, client) if mode != Mode::Exclusive => {
                match inode.lane.poster() {
                    Some(_) => Step::Nothing,
                    _ if !inode.lane.volatile.swap(true, Ordering::AcqRel) => {
                        standing.asked += 1;
                        standing.forgotten = false;
                        Step::Forget(standing.asked)
                    }
                    // Somebody else's step leads there.
                    _ if !standing.forgotten => Step::Nothing,
                    _ => {
                        inode.lane.stale.store(true, Ordering::Release);
                        inode.lane.was_posted_to.store(true, Ordering::Release);
                        inode.lane.poster.store(client, Ordering::Release);
                        lane.board.set_mode(slot, Mode::Exclusive, client);
                        standing.mode = Some((Mode::Exclusive, client));
                        Step::Nothing
                    }
                }
            }
            Wanted::Mode(Mode::Exclusive, _) => Step::Nothing,
            Wanted::Mode(other, _) => {
                if other != mode && inode.lane.poster().is_none() {
                    lane.board.set_mode(slot, other, 0);
                    standing.mode = Some((other, 0));
                }
                self.calm(inode);
                Step::Nothing
            }
            Wanted::Out => {
                self.calm(inode);
                if inode.lane.poster().is_none() {
                    self.shard.unshare(inode.node().file(), slot);
                    inode.lane.slot.store(0, Ordering::Release);
                    standing.mode = None;
                    lane.give_slot_back(slot);
                }
                Step::Nothing
            }
        }
    }

    /// Nobody posts to the file: what the kernel is told of its attributes holds again.
    fn calm(&self, inode: &Inode) {
        if inode.lane.poster().is_none() {
            inode.lane.volatile.store(false, Ordering::Release);
        }
    }

    /// Everything is applied that was posted before the right to was taken away for the time `which`.
    fn posts_applied(
        self: &Arc<Self>,
        inode: &Arc<Inode>,
        which: u64,
        then: impl FnOnce() + Send + 'static,
    ) {
        // Nobody was given the right since: there is a poster still.
        inode.lane.poster.store(0, Ordering::Release);
        let (fs, of) = (Arc::clone(self), Arc::clone(inode));
        self.reclaimer.forget_pages(inode.node(), Pages::All, move || {
            let waiting = {
                let mut standing = of.lane.standing();
                if standing.withdrawals == which && of.lane.poster().is_none() {
                    of.lane.stale.store(false, Ordering::Release);
                }
                standing.under_way -= 1;
                match standing.under_way {
                    0 => std::mem::take(&mut standing.waiting),
                    _ => Vec::new(),
                }
            };
            fs.reconsider(&of, then);
            for then in waiting {
                fs.reconsider(&of, then);
            }
        });
    }
}
