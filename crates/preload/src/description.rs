//! Open descriptions of files on FUSE mounts: the state of each, and the route of its calls.
//!
//! Descriptions are never freed. A place is used again after its last descriptor was closed, and only after all other
//! free places: a thread that still works on a description that another thread has just closed must not find another
//! file in its place.

use std::ffi::c_int;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use weir_lane::client::Attached;
use weir_lane::tally::Fallback;

use crate::{device, history, home, sys};

/// Most descriptions at once; further ones are left to the kernel.
const PLACES: usize = 16 << 10;
/// Reads and writes by the kernel before a description is put into the lane: fewer would not pay for attaching it.
const LANE_AFTER: u32 = 8;
/// How many uses a write counts as, in a process that is connected to a lane: a description that is open for writing and
/// not in the lane keeps all others of its file out of it.
const WRITE_COUNTS: u32 = LANE_AFTER;
/// The same of a file that was empty when it was first used: it is put there before its first write. Its writes by the kernel
/// cost most, since all go past its end, and [`history`] says if such files are written in a few calls and closed. Where space must be
/// reserved for what a new file grows by, the kernel writes that ([`device::reserves`]), and a write counts once.
const FIRST_WRITE_COUNTS: u32 = LANE_AFTER + 1;

/// Most uses by the kernel before a revoked description rejoins. Each revocation doubles the number, unless the description
/// had been in the lane for at least `LONG_MS`.
const LANE_AFTER_MAX: u32 = 8 << 10;
const LONG_MS: u64 = 1000;
/// Most calls by the kernel while the program's revoked descriptions are waited for ([`weir_lane::board::Mode::Rejoining`]).
const REJOIN_PATIENCE: u32 = 64;

/// It is in the lane.
pub(crate) const ATTACHED: u32 = 1;
/// It is opened for reading.
pub(crate) const READS: u32 = 1 << 1;
/// It is opened for writing.
pub(crate) const WRITES: u32 = 1 << 2;
/// O_APPEND.
pub(crate) const APPENDS: u32 = 1 << 3;
/// O_SYNC or O_DSYNC.
pub(crate) const SYNCHRONOUS: u32 = 1 << 4;
/// O_DIRECT was set here, and is not the program's.
pub(crate) const BYPASSES: u32 = 1 << 5;
/// The program set O_DIRECT itself.
pub(crate) const DIRECT: u32 = 1 << 6;
/// It was left to the kernel because the file is mapped.
pub(crate) const MAPPED: u32 = 1 << 7;
/// It was left to the kernel because another program has it.
pub(crate) const PASSED: u32 = 1 << 8;
/// The daemon does not take it.
pub(crate) const REFUSED: u32 = 1 << 9;

/// O_DIRECT as the program set it last, if it is set here.
pub(crate) const SHOWS_DIRECT: u32 = 1 << 10;

/// It was left to the kernel because of splice(2) or a similar call.
pub(crate) const SPLICED: u32 = 1 << 11;

/// Revoked because other programs use the file by the kernel: it is used by the kernel until it rejoins.
pub(crate) const REVOKED: u32 = 1 << 12;

/// The file was empty when the description was first used.
const EMPTY: u32 = 1 << 13;

/// The kernel's for good, for any reason.
const KERNEL: u32 = DIRECT | MAPPED | PASSED | REFUSED | SPLICED;

/// An open description.
#[derive(Debug)]
pub(crate) struct Description {
    /// Descriptors of this process; 0: the place is free.
    references: AtomicU32,
    flags: AtomicU32,
    uses: AtomicU32,
    /// Uses by the kernel before it is put into the lane, or put there again.
    patience: AtomicU32,
    /// Uses in the lane, wrapping.
    lane_uses: AtomicU32,
    /// The file's place in [`crate::history`].
    history: AtomicU32,
    /// When it was put into the lane, milliseconds ([`sys::milliseconds`]).
    since: AtomicU64,
    /// The process that revoked it ([`home::generation`]).
    generation: AtomicU32,
    /// The device's index in [`crate::device`].
    device: AtomicU32,
    /// The client's index in [`crate::connection`].
    client: AtomicU32,
    /// `slot << 32 | description`, if it is attached: one word, so that it is always of one file.
    file: AtomicU64,
    /// The position as this process moved it last: a guess.
    position: AtomicU64,
}

static PLACES_ALL: [Description; PLACES] = [const {
    Description {
        references: AtomicU32::new(0),
        flags: AtomicU32::new(0),
        uses: AtomicU32::new(0),
        patience: AtomicU32::new(0),
        lane_uses: AtomicU32::new(0),
        history: AtomicU32::new(0),
        since: AtomicU64::new(0),
        generation: AtomicU32::new(0),
        device: AtomicU32::new(0),
        client: AtomicU32::new(0),
        file: AtomicU64::new(0),
        position: AtomicU64::new(0),
    }
}; PLACES];
/// Where the search for a free place begins.
static NEXT: AtomicU32 = AtomicU32::new(0);
/// Every place that was ever used is below it.
static USED: AtomicU32 = AtomicU32::new(0);
/// Descriptions put into the lane so far.
static ATTACHED_EVER: AtomicU32 = AtomicU32::new(0);

/// How a call on a description is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// By the lane: the client, the file, and the flags.
    Lane(usize, Attached, u32),
    /// By the kernel, this time or for good.
    Kernel(Fallback),
    /// By the kernel, unless the description can be attached now.
    Attach,
    /// By the kernel: the process from which this one was forked revoked the description, and may attach it again at any
    /// time. It must leave for good.
    Inherited,
}

/// Takes a place for a new description, with one descriptor, of the file `inode`. `None` if all places are taken.
pub(crate) fn take(device: u32, inode: u64, is_empty: bool) -> Option<u32> {
    let history = history::place(inode);
    let patience = LANE_AFTER << history::level(history);
    for _ in 0..PLACES {
        let place = NEXT.fetch_add(1, Ordering::Relaxed) % PLACES as u32;
        let description = &PLACES_ALL[place as usize];
        let taken =
            description.references.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed);
        if taken.is_ok() {
            description.flags.store(if is_empty { EMPTY } else { 0 }, Ordering::Relaxed);
            description.uses.store(0, Ordering::Relaxed);
            description.patience.store(patience, Ordering::Relaxed);
            description.history.store(history, Ordering::Relaxed);
            description.device.store(device, Ordering::Relaxed);
            USED.fetch_max(place + 1, Ordering::AcqRel);
            return Some(place);
        }
    }
    None
}

/// The description at a place.
#[inline]
pub(crate) fn at(place: u32) -> &'static Description {
    &PLACES_ALL[place as usize]
}

/// Whether any description was put into the lane.
pub(crate) fn any_attached() -> bool {
    ATTACHED_EVER.load(Ordering::Relaxed) != 0
}

/// The place of the description that is in the lane as `file`, if any.
pub(crate) fn find(client: usize, file: Attached) -> Option<u32> {
    let used = USED.load(Ordering::Acquire).min(PLACES as u32);
    (0..used).find(|place| {
        let description = at(*place);
        description.references.load(Ordering::Acquire) != 0
            && description.attached() == Some((client, file))
    })
}

impl Description {
    /// One more descriptor.
    pub(crate) fn share(&self) {
        self.references.fetch_add(1, Ordering::Relaxed);
    }

    /// One descriptor less. True if it was the last.
    pub(crate) fn drop_one(&self) -> bool {
        self.references.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The device it is on.
    pub(crate) fn device(&self) -> u32 {
        self.device.load(Ordering::Relaxed)
    }

    /// The position as this process moved it last: another process may have moved it since.
    #[inline]
    pub(crate) fn guess_position(&self) -> u64 {
        self.position.load(Ordering::Relaxed)
    }

    /// The position was moved.
    #[inline]
    pub(crate) fn moved_to(&self, position: u64) {
        self.position.store(position, Ordering::Relaxed);
    }

    /// Its flags.
    pub(crate) fn flags(&self) -> u32 {
        self.flags.load(Ordering::Acquire)
    }

    /// Sets flags.
    pub(crate) fn set(&self, flags: u32) {
        self.flags.fetch_or(flags, Ordering::AcqRel);
    }

    /// Clears flags.
    pub(crate) fn clear(&self, flags: u32) {
        self.flags.fetch_and(!flags, Ordering::AcqRel);
    }

    /// Its client and file, if it is or was in the lane.
    #[inline]
    pub(crate) fn attached(&self) -> Option<(usize, Attached)> {
        (self.flags() & ATTACHED != 0).then(|| self.place())
    }

    #[inline]
    fn place(&self) -> (usize, Attached) {
        let file = self.file.load(Ordering::Relaxed);
        let file = Attached { slot: (file >> 32) as u32, description: file as u32 };
        (self.client.load(Ordering::Relaxed) as usize, file)
    }

    /// It is in the lane from now on; it was opened with `flags` of open(2).
    pub(crate) fn attach(&self, client: usize, file: Attached, flags: c_int) {
        let packed = u64::from(file.slot) << 32 | u64::from(file.description);
        self.client.store(client as u32, Ordering::Relaxed);
        self.uses.store(0, Ordering::Relaxed);
        self.since.store(sys::milliseconds(), Ordering::Relaxed);
        self.file.store(packed, Ordering::Relaxed);
        self.lane_uses.store(0, Ordering::Relaxed);
        history::attached(self.history.load(Ordering::Relaxed));
        ATTACHED_EVER.fetch_add(1, Ordering::Relaxed);
        self.set(ATTACHED | BYPASSES | of_open(flags));
    }

    /// Whether the file was empty when the description was first used.
    pub(crate) fn was_empty(&self) -> bool {
        self.flags() & EMPTY != 0
    }

    /// Whether it was revoked, and has not rejoined.
    pub(crate) fn is_revoked(&self) -> bool {
        self.flags() & REVOKED != 0
    }

    /// Revokes it: it is used by the kernel until it rejoins.
    pub(crate) fn revoke(&self) {
        let since = self.since.load(Ordering::Relaxed);
        let was_short = sys::milliseconds().saturating_sub(since) < LONG_MS;
        let before = if was_short { self.patience.load(Ordering::Relaxed) } else { LANE_AFTER };
        let patience = LANE_AFTER_MAX.min(2 * before);
        self.patience.store(patience, Ordering::Relaxed);
        self.generation.store(home::generation(), Ordering::Relaxed);
        self.uses.store(0, Ordering::Relaxed);
        self.set(REVOKED);
    }

    /// It is in the lane again, with these flags of open(2).
    pub(crate) fn rejoin(&self, flags: c_int) {
        self.uses.store(0, Ordering::Relaxed);
        self.since.store(sys::milliseconds(), Ordering::Relaxed);
        self.note_append(flags);
        self.set(BYPASSES);
        self.clear(REVOKED);
    }

    /// Notes whether it appends, by flags of open(2).
    pub(crate) fn note_append(&self, flags: c_int) {
        let now = of_open(flags) & APPENDS;
        self.clear(APPENDS & !now);
        self.set(now);
    }

    /// Counts a call by the kernel while the program's revoked descriptions are waited for. True if there were too many.
    #[cold]
    pub(crate) fn waited_too_long(&self) -> bool {
        self.uses.fetch_add(1, Ordering::Relaxed) >= REJOIN_PATIENCE
    }

    /// Notes other flags of open(2) (fcntl(2), F_SETFL).
    pub(crate) fn set_open_flags(&self, flags: c_int) {
        let direct = if flags & libc::O_DIRECT != 0 { DIRECT | SHOWS_DIRECT } else { 0 };
        let now = of_open(flags) & APPENDS | direct;
        self.clear((APPENDS | SHOWS_DIRECT) & !now);
        self.set(now);
    }

    /// Whether further uses do not change its route: it is in the lane, or the kernel's for good.
    pub(crate) fn is_settled(&self) -> bool {
        let flags = self.flags() & (KERNEL | REVOKED | ATTACHED);
        flags == ATTACHED || flags & KERNEL != 0
    }

    /// Whether it is the kernel's for good.
    pub(crate) fn is_kernels(&self) -> bool {
        self.flags() & KERNEL != 0
    }

    /// The route of a read or write now. Counts the call.
    #[inline]
    pub(crate) fn route(&self, is_write: bool) -> Route {
        let flags = self.flags();
        if flags & (KERNEL | REVOKED | ATTACHED) != ATTACHED {
            return self.route_by_kernel(is_write, flags);
        }
        // Need not be exact.
        let uses = self.lane_uses.load(Ordering::Relaxed).wrapping_add(1);
        self.lane_uses.store(uses, Ordering::Relaxed);
        if uses % history::AGAIN == history::LONG {
            history::used_long(self.history.load(Ordering::Relaxed), uses == history::LONG);
        }
        let (client, file) = self.place();
        Route::Lane(client, file, flags)
    }

    #[cold]
    fn route_by_kernel(&self, is_write: bool, flags: u32) -> Route {
        if flags & KERNEL != 0 {
            return Route::Kernel(fallback_of(flags));
        }
        let is_revoked = flags & REVOKED != 0;
        if is_revoked {
            home::adopt_if_forked();
            if self.generation.load(Ordering::Relaxed) != home::generation() {
                return Route::Inherited;
            }
        }
        let counts = match is_write && !is_revoked && device::is_connected(self.device()) {
            true if flags & EMPTY != 0 && device::reserves(self.device()) => 1,
            true if flags & EMPTY != 0 => FIRST_WRITE_COUNTS,
            // The program's other processes may have the file in the lane, or be about to attach it.
            true if home::was_forked() => LANE_AFTER + 1,
            true => WRITE_COUNTS,
            false => 1,
        };
        // Need not be exact.
        let uses = self.uses.load(Ordering::Relaxed) + counts;
        self.uses.store(uses, Ordering::Relaxed);
        if uses > self.patience.load(Ordering::Relaxed) {
            return Route::Attach;
        }
        Route::Kernel(if is_revoked { Fallback::Mode } else { Fallback::Early })
    }
}

/// Why a description with these flags is the kernel's.
fn fallback_of(flags: u32) -> Fallback {
    match flags {
        flags if flags & DIRECT != 0 => Fallback::Direct,
        flags if flags & MAPPED != 0 => Fallback::Mapped,
        flags if flags & PASSED != 0 => Fallback::Passed,
        flags if flags & SPLICED != 0 => Fallback::Mode,
        _ => Fallback::Refused,
    }
}

fn of_open(flags: c_int) -> u32 {
    let access = match flags & libc::O_ACCMODE {
        libc::O_RDONLY => READS,
        libc::O_WRONLY => WRITES,
        libc::O_RDWR => READS | WRITES,
        _ => 0,
    };
    let appends = if flags & libc::O_APPEND != 0 { APPENDS } else { 0 };
    // O_SYNC includes O_DSYNC.
    let synchronous = if flags & libc::O_DSYNC != 0 { SYNCHRONOUS } else { 0 };
    access | appends | synchronous
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_attached_after_enough_uses_and_leaves_for_good() {
        let description = at(take(3, 1, false).unwrap());
        assert_eq!(description.device(), 3);
        for _ in 0..LANE_AFTER {
            assert_eq!(description.route(true), Route::Kernel(Fallback::Early));
        }
        assert_eq!(description.route(false), Route::Attach);
        let file = Attached { slot: 7, description: u32::MAX };
        description.attach(1, file, libc::O_RDWR | libc::O_APPEND);
        let flags = ATTACHED | BYPASSES | READS | WRITES | APPENDS;
        assert_eq!(description.route(false), Route::Lane(1, file, flags));
        description.set_open_flags(libc::O_RDWR);
        assert_eq!(description.flags() & APPENDS, 0);
        description.share();
        assert!(!description.drop_one());
        description.set(MAPPED);
        assert_eq!(description.route(false), Route::Kernel(Fallback::Mapped));
        assert!(description.drop_one());
    }

    #[test]
    fn a_new_file_is_attached_before_its_first_write_in_a_process_that_is_connected() {
        let (device, unconnected) = (1, 2);
        device::at(device).set_client(0);
        let new = at(take(device, 1, true).unwrap());
        assert_eq!(new.route(false), Route::Kernel(Fallback::Early), "it is read by the kernel");
        assert_eq!(new.route(true), Route::Attach);
        device::at(device).set_reserves(true);
        let reserved = at(take(device, 2, true).unwrap());
        assert_eq!(reserved.route(true), Route::Kernel(Fallback::Early));
        device::at(device).set_reserves(false);
        let elsewhere = at(take(unconnected, 3, true).unwrap());
        for _ in 0..LANE_AFTER {
            assert_eq!(elsewhere.route(true), Route::Kernel(Fallback::Early));
        }
        assert_eq!(elsewhere.route(true), Route::Attach);
        device::at(device).disconnect();
        assert!([new, reserved, elsewhere].iter().all(|one| one.drop_one()));
    }

    #[test]
    fn a_revoked_description_rejoins_with_the_current_flags() {
        let description = at(take(0, 1, false).unwrap());
        let file = Attached { slot: 1, description: 2 };
        description.attach(0, file, libc::O_RDWR | libc::O_APPEND);
        let mut patience = LANE_AFTER;
        for flags in [libc::O_RDWR, libc::O_RDWR | libc::O_APPEND, libc::O_RDWR] {
            description.revoke();
            description.clear(BYPASSES);
            assert_eq!(description.attached(), Some((0, file)), "it keeps its place");
            patience *= 2;
            for _ in 0..patience {
                assert_eq!(description.route(true), Route::Kernel(Fallback::Mode));
            }
            assert_eq!(description.route(true), Route::Attach);
            description.rejoin(flags);
            let set = ATTACHED | BYPASSES | READS | WRITES | of_open(flags);
            assert_eq!(description.route(true), Route::Lane(0, file, set));
        }
        for _ in 0..20 {
            description.revoke();
        }
        assert_eq!(description.patience.load(Ordering::Relaxed), LANE_AFTER_MAX);
        description.since.store(sys::milliseconds() - LONG_MS, Ordering::Relaxed);
        description.revoke();
        assert_eq!(description.patience.load(Ordering::Relaxed), 2 * LANE_AFTER);
        description.set(PASSED);
        assert_eq!(description.route(true), Route::Kernel(Fallback::Passed));
        description.drop_one();
    }

    #[test]
    fn a_place_is_reused_after_all_other_places() {
        let first = take(0, 1, false).unwrap();
        at(first).drop_one();
        let second = take(0, 1, false).unwrap();
        assert_ne!(first, second);
        at(second).drop_one();
    }
}
