//! Counts how the open descriptions of a file are used, and derives the mode from the counts. Without locks or I/O.
//!
//! A description is the *kernel's* at first: its program may use the kernel's page cache. It is *attached* when clients
//! use it through the lane; they have told the kernel to bypass its page cache (O_DIRECT). It is *direct* if a client's
//! thread opened it while the file was in the lane and not in the mode [`Mode::Kernel`]: the daemon told the kernel to
//! bypass the page cache. It is *revoked* if its process took it out of the lane because others use the file by the kernel;
//! it uses the page cache and may rejoin. It is the kernel's *for good* if it is mapped, or another program has it.
//!
//! | attached by | kernel, may write | kernel, read only | mode |
//! |---|---|---|---|
//! | no client, now or before | | | not in the lane |
//! | no client any more | | | Kernel |
//! | one client | only that client's revoked ones | | Rejoining: by the kernel until they are attached again |
//! | | others | | Kernel |
//! | | none | some | Shared: frames are read, writes go by the kernel |
//! | several clients, or one that asked for no lease | none | any | Shared |
//! | one client that asked for the lease | none | none | Exclusive: that client posts |
//!
//! Only the process that revoked a description may attach it again. If another process revokes the same description
//! meanwhile, it is the kernel's for good: each process tells first the daemon and then the kernel (O_DIRECT), and in
//! between each would undo what the other did.
//!
//! Invariant: each description is counted once, among the kernel's or as attached by at least one client; or it is direct.

use smallvec::{SmallVec, smallvec};
use weir_lane::board::Mode;

/// A client's number. Never 0, and never reused.
pub(crate) type ClientId = u32;

/// The numbers by which clients know a description.
pub(crate) type Numbers = SmallVec<[(ClientId, u32); 1]>;

/// How an open description is used.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Not counted yet.
    #[default]
    New,
    Kernel,
    Direct,
    /// Attached by these clients, under these numbers.
    Attached(Numbers),
    /// The kernel's, until this process of the client attaches it again under this number.
    Revoked {
        client: ClientId,
        number: u32,
        process: u32,
    },
    /// The kernel's for good. It was attached under these numbers.
    KernelForGood(Numbers),
    Closed,
}

/// Why a description cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// It is closed, or the kernel's for good; the refusal itself may have made it so.
    Kernels,
    /// The client has the most descriptions that it may have.
    TooMany,
}

/// The mode that follows from the open descriptions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    OutOfLane,
    /// The client holds the lease.
    Lease(ClientId),
    /// No client holds the lease.
    Mode(Mode),
}

/// A client that has descriptions attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct User {
    client: ClientId,
    descriptions: u32,
    /// It asked for the lease: it attached a description that is open for writing, and has had one attached ever since.
    asked: bool,
}

/// The open descriptions of a file, counted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Opens {
    kernel_readers: u32,
    kernel_writers: u32,
    /// The revoked ones among `kernel_writers`, all of one client.
    revoked: (ClientId, u32),
    /// Descriptions that were attached, are now the kernel's, and are not closed: clients may still use the file's place on the
    /// board.
    left: u32,
    attached: SmallVec<[User; 2]>,
}

impl Opens {
    /// The mode that follows from the counts.
    pub(crate) fn wanted(&self) -> Wanted {
        match self.attached[..] {
            [] if self.left == 0 => Wanted::OutOfLane,
            [] => Wanted::Mode(Mode::Kernel),
            [user] if self.revoked == (user.client, self.kernel_writers) && self.revoked.1 > 0 => {
                Wanted::Mode(Mode::Rejoining)
            }
            _ if self.kernel_writers > 0 => Wanted::Mode(Mode::Kernel),
            [user] if user.asked && self.kernel_readers == 0 => Wanted::Lease(user.client),
            _ => Wanted::Mode(Mode::Shared),
        }
    }

    /// Whether any description is counted.
    pub(crate) fn any(&self) -> bool {
        let by_kernel = self.kernel_readers + self.kernel_writers;
        by_kernel > 0 || self.left > 0 || !self.attached.is_empty()
    }

    /// Counts a new description.
    pub(crate) fn open(&mut self, kind: &mut Kind, writes: bool, direct: bool) {
        debug_assert_eq!(*kind, Kind::New);
        if direct {
            *kind = Kind::Direct;
        } else {
            *kind = Kind::Kernel;
            *self.kernels(writes) += 1;
        }
    }

    /// Discounts a closed description. Returns the numbers that it no longer has.
    pub(crate) fn close(&mut self, kind: &mut Kind, writes: bool) -> Numbers {
        match std::mem::replace(kind, Kind::Closed) {
            Kind::Kernel => {
                *self.kernels(writes) -= 1;
                Numbers::new()
            }
            Kind::KernelForGood(by) => {
                *self.kernels(writes) -= 1;
                self.left -= u32::from(!by.is_empty());
                by
            }
            Kind::Revoked { client, number, .. } => {
                *self.kernels(writes) -= 1;
                self.revoked.1 -= u32::from(writes);
                self.left -= 1;
                smallvec![(client, number)]
            }
            Kind::Attached(by) => {
                by.iter().for_each(|&(client, _)| self.detach(client));
                by
            }
            Kind::New | Kind::Direct | Kind::Closed => Numbers::new(),
        }
    }

    /// A client's process attaches a description, and asks for the lease if the description is open for writing. `number`
    /// makes a number for it, if the client may have one more; `has` says whether the client still has a number. Returns
    /// the number, and whether the client had attached the description already.
    pub(crate) fn attach(
        &mut self,
        kind: &mut Kind,
        writes: bool,
        (client, process): (ClientId, u32),
        number: impl FnOnce() -> Option<u32>,
        has: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, bool), Refusal> {
        let number = match kind {
            Kind::New | Kind::KernelForGood(_) | Kind::Closed => return Err(Refusal::Kernels),
            Kind::Attached(by) => {
                if let Some(&(_, number)) = by.iter().find(|(known, _)| *known == client) {
                    return Ok((number, true));
                }
                let number = number().ok_or(Refusal::TooMany)?;
                by.push((client, number));
                number
            }
            Kind::Revoked { client: of, number, process: its } => {
                let (of, number) = (*of, *number);
                let may_rejoin = (of, *its) == (client, process) && has(number);
                self.revoked.1 -= u32::from(writes);
                if !may_rejoin {
                    *kind = Kind::KernelForGood(smallvec![(of, number)]);
                    return Err(Refusal::Kernels);
                }
                *self.kernels(writes) -= 1;
                self.left -= 1;
                *kind = Kind::Attached(smallvec![(of, number)]);
                number
            }
            Kind::Kernel | Kind::Direct => {
                let number = number().ok_or(Refusal::TooMany)?;
                if *kind == Kind::Kernel {
                    *self.kernels(writes) -= 1;
                }
                *kind = Kind::Attached(smallvec![(client, number)]);
                number
            }
        };
        match self.attached.iter_mut().find(|user| user.client == client) {
            Some(user) => {
                user.descriptions += 1;
                user.asked |= writes;
            }
            None => self.attached.push(User { client, descriptions: 1, asked: writes }),
        }
        Ok((number, false))
    }

    /// Revokes a description: it is the kernel's from now on, until `process` attaches it again, or for good if that is
    /// `None`. False if nothing changed.
    pub(crate) fn revoke(&mut self, kind: &mut Kind, writes: bool, process: Option<u32>) -> bool {
        let (numbers, was_attached) = match kind {
            Kind::New | Kind::Closed | Kind::KernelForGood(_) => return false,
            Kind::Revoked { process: its, .. } if Some(*its) == process => return false,
            Kind::Revoked { client, number, .. } => {
                self.revoked.1 -= u32::from(writes);
                (smallvec![(*client, *number)], false)
            }
            Kind::Kernel => (Numbers::new(), false),
            Kind::Direct => {
                *self.kernels(writes) += 1;
                (Numbers::new(), false)
            }
            Kind::Attached(by) => {
                let by = std::mem::take(by);
                by.iter().for_each(|&(client, _)| self.detach(client));
                *self.kernels(writes) += 1;
                self.left += 1;
                (by, true)
            }
        };
        *kind = match (&numbers[..], process) {
            (&[(client, number)], Some(process))
                if was_attached && self.may_rejoin(client, writes) =>
            {
                Kind::Revoked { client, number, process }
            }
            _ => Kind::KernelForGood(numbers),
        };
        true
    }

    /// A client has ended. False if it had not attached the description.
    pub(crate) fn end_client(&mut self, kind: &mut Kind, writes: bool, client: ClientId) -> bool {
        let Kind::Attached(by) = kind else { return false };
        let before = by.len();
        by.retain(|(known, _)| *known != client);
        if by.len() == before {
            return false;
        }
        let is_kernels = by.is_empty();
        self.detach(client);
        if is_kernels {
            *kind = Kind::Kernel;
            *self.kernels(writes) += 1;
        }
        true
    }

    fn kernels(&mut self, writes: bool) -> &mut u32 {
        if writes { &mut self.kernel_writers } else { &mut self.kernel_readers }
    }

    /// Counts a revoked description. False if there are revoked ones of another client.
    fn may_rejoin(&mut self, client: ClientId, writes: bool) -> bool {
        match &mut self.revoked {
            _ if !writes => {}
            (_, 0) => self.revoked = (client, 1),
            (of, descriptions) if *of == client => *descriptions += 1,
            _ => return false,
        }
        true
    }

    fn detach(&mut self, client: ClientId) {
        let Some(at) = self.attached.iter().position(|user| user.client == client) else { return };
        self.attached[at].descriptions -= 1;
        if self.attached[at].descriptions == 0 {
            self.attached.swap_remove(at);
        }
    }

    /// For the test of all states: whether the client may post, because no description of others uses the page cache.
    #[cfg(test)]
    pub(super) fn allows_posts_by(&self, client: ClientId) -> bool {
        let is_alone = matches!(self.attached[..], [user] if user.client == client && user.asked);
        is_alone && self.kernel_readers == 0 && self.kernel_writers == 0
    }
}
