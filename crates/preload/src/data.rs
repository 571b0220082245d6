//! Reading and writing by the lane.
//!
//! The position of a description is the kernel's. A call reserves its range of the file by moving the position, which is
//! atomic. So the position is right for every process that shares the description by dup(2), fork(2) or exec(2), with or
//! without the lane.
//!
//! - A read that does not reach the end of the file moves the position, and then copies its range. Near the end it
//!   first asks for the position, and leaves the call to read(2). If the range cannot be copied after the position was
//!   moved, pread(2) reads it, and the position moves back over what pread(2) did not read.
//! - A write moves the position, and then posts to its range. If the range cannot be posted, pwrite(2) writes it, and
//!   the position moves back over what pwrite(2) did not write.
//! - An append is posted as an append ([`crate::position`]). As on Linux, pwrite(2) appends if the description does.

use std::ffi::c_int;
use std::time::{Duration, Instant};

use libc::iovec;
use weir_lane::client::{Attached, Client, Ring, To};
use weir_lane::ring::PAYLOAD_BYTES_MAX;
use weir_lane::tally::{Count, Fallback};

use crate::description::{APPENDS, Description, READS, Route, SYNCHRONOUS, WRITES};
use crate::held::hold;
use crate::outcome::{Outcome, fallback_for};
use crate::pieces::Pieces;
use crate::session::posts::{self, Poster};
use crate::{
    attach, connection, device, home, leave, limit, position, report, session, sys, table, thread,
};

/// The kernel sends an append that touches no more memory than this, by pages, as one request. It sends a longer one as several requests at once,
/// and each is applied at the end that the file has when the request arrives.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Back-pressure, when the thread's ring is full: yield up to `FULL_YIELDS` times, then poll with sleeps of `FULL_SLEEP_NS`
/// for up to `FULL_PATIENCE`, then make the system call, which waits until everything posted is applied.
const FULL_YIELDS: u32 = 20;
const FULL_SLEEP_NS: i64 = 30_000;
const FULL_PATIENCE: Duration = Duration::from_millis(20);

/// A description in the lane, and the descriptor by which it is used.
#[derive(Clone, Copy)]
struct Open {
    fd: c_int,
    description: &'static Description,
    client: &'static Client,
    index: usize,
    file: Attached,
    flags: u32,
}

/// read(2) or readv(2), or at an offset pread(2) or preadv(2), of a descriptor that may be in the lane.
///
/// # Safety
/// As for [`Pieces::new`]; the pieces are valid for writes.
#[inline(never)]
pub(crate) unsafe extern "C" fn read(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    offset: Option<&i64>,
) -> Outcome {
    let open = match open(fd, false) {
        Ok(open) => open,
        Err(outcome) => return outcome,
    };
    // SAFETY: by this function's contract.
    let Some(pieces) = (unsafe { Pieces::new(pieces, count) }) else {
        return Outcome::kernel(Fallback::Special);
    };
    if open.flags & READS == 0 {
        return Outcome::kernel(Fallback::Special);
    }
    match offset {
        None => open.read(pieces),
        Some(offset) => open.read_at(pieces, *offset),
    }
}

/// write(2) or writev(2), or at an offset pwrite(2) or pwritev(2), of a descriptor that may be in the lane.
///
/// # Safety
/// As for [`Pieces::new`]; the pieces are valid for reads.
#[inline(never)]
pub(crate) unsafe extern "C" fn write(
    fd: c_int,
    pieces: *const iovec,
    count: usize,
    offset: Option<&i64>,
) -> Outcome {
    let open = match open(fd, true) {
        Ok(open) => open,
        Err(outcome) => return outcome,
    };
    let is_append = open.flags & APPENDS != 0;
    // SAFETY: by this function's contract.
    let Some(pieces) = (unsafe { Pieces::new(pieces, count) }) else {
        return Outcome::kernel(Fallback::Special);
    };
    if open.flags & WRITES == 0 {
        return Outcome::kernel(Fallback::Special);
    }
    // Also for an append by the kernel, which does not know the file's end either.
    if is_append && offset.is_none() && !position::note(open.index, open.file) {
        return Outcome::kernel(Fallback::Special);
    }
    let outcome = open.write_pieces(pieces, is_append, offset);
    if outcome.fallback().is_some() {
        // A call that the kernel fails for a bad address before it has sent anything would cut the file to the size that the kernel knows.
        pieces.touch();
    }
    outcome
}

/// Call before ftruncate(2): the daemon is to tell it from what the kernel does after a write that failed.
pub(crate) fn before_truncate(fd: c_int) {
    if let Some(description) = table::known(fd)
        && description.attached().is_some()
    {
        let _ = sys::served_size(fd);
    }
}

/// Call before lseek(2). Changes `offset` and `whence` to what the kernel must be called with: the kernel moves the
/// position, but may not know the file's end.
pub(crate) extern "C" fn before_seek(fd: c_int, offset: &mut i64, whence: &mut c_int) {
    if *whence == libc::SEEK_END && connection::is_client() {
        attach_writer(fd);
    }
    let Some(description) = table::known(fd) else { return };
    let Some((index, file)) = description.attached() else { return };
    position::set_if_noted(fd, index, file);
    if *whence != libc::SEEK_END {
        return;
    }
    // The kernel may have cached the size from before the posted writes.
    let size = connection::client(index).and_then(|client| client.size(file.slot));
    let end = size.and_then(|size| i64::try_from(size).ok()?.checked_add(*offset));
    match end.filter(|end| *end >= 0) {
        Some(end) => (*offset, *whence) = (end, libc::SEEK_SET),
        None => {
            let _ = sys::served_size(fd);
        }
    }
}

/// Counts a seek to the end as a use, if the descriptor can be written: some programs only seek, and while this descriptor
/// is used by the kernel no other can use the file by the lane.
fn attach_writer(fd: c_int) {
    let Some(description) = table::find(fd) else { return };
    let writes = || {
        let flags = sys::fcntl(fd, libc::F_GETFL, 0);
        flags.is_ok_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
    };
    if description.is_settled() || !writes() {
        return;
    }
    match description.route(true) {
        Route::Attach => attach::attach(fd, description),
        Route::Inherited => leave::disown(fd, description),
        Route::Lane(..) | Route::Kernel(_) => {}
    }
}

/// Call after lseek(2), with its result.
#[inline]
pub(crate) fn after_seek(fd: c_int, result: i64) -> i64 {
    if let (Some(description), Ok(position)) = (table::known(fd), u64::try_from(result)) {
        description.moved_to(position);
    }
    result
}

/// The descriptor's description, if it is in the lane, or is attached now.
fn open(fd: c_int, is_write: bool) -> Result<Open, Outcome> {
    let mut description = table::find(fd).ok_or(Outcome::NOT_OURS)?;
    let mut route = description.route(is_write);
    if route == Route::Attach {
        attach::attach(fd, description);
        description = table::find(fd).ok_or(Outcome::NOT_OURS)?;
        route = description.route(is_write);
    }
    let (index, file, flags) = match route {
        Route::Lane(index, file, flags) => (index, file, flags),
        Route::Kernel(fallback) => return Err(Outcome::kernel(fallback)),
        Route::Attach if description.is_revoked() => return Err(Outcome::kernel(Fallback::Mode)),
        Route::Attach => return Err(Outcome::kernel(Fallback::Early)),
        Route::Inherited => {
            leave::disown(fd, description);
            return Err(Outcome::kernel(Fallback::Passed));
        }
    };
    if home::is_guest() {
        return Err(Outcome::kernel(Fallback::Nested));
    }
    let client = connection::client(index).ok_or(Outcome::kernel(Fallback::Gone))?;
    if client.view.is_by_kernel(file.slot) {
        let must_revoke = !client.view.is_rejoining(file.slot) || description.waited_too_long();
        if must_revoke && client.view.is_alive() {
            leave::revoke(fd, description);
            return Err(Outcome::kernel(Fallback::Mode));
        }
    }
    Ok(Open { fd, description, client, index, file, flags })
}

impl Open {
    fn read(&self, pieces: Pieces<'_>) -> Outcome {
        if self.flags & APPENDS != 0 {
            position::set_if_noted(self.fd, self.index, self.file);
        }
        let len = pieces.len();
        let guess = self.description.guess_position();
        if self.holds(guess, len) {
            return self.read_next(pieces);
        }
        let Ok(position) = sys::lseek(self.fd, 0, libc::SEEK_CUR) else {
            return Outcome::kernel(Fallback::Special);
        };
        self.description.moved_to(position);
        if self.holds(position, len) {
            self.read_next(pieces)
        } else {
            Outcome::kernel(Fallback::End)
        }
    }

    /// Reads at the position, which most likely is not too near the end.
    fn read_next(&self, pieces: Pieces<'_>) -> Outcome {
        let len = pieces.len();
        let Ok(end) = sys::lseek(self.fd, len as i64, libc::SEEK_CUR) else {
            return Outcome::kernel(Fallback::Special);
        };
        let begin = end.wrapping_sub(len as u64);
        if !self.holds(begin, len) {
            // Another thread or process had moved the position.
            let _ = sys::lseek(self.fd, -(len as i64), libc::SEEK_CUR);
            return Outcome::kernel(Fallback::End);
        }
        self.description.moved_to(end);
        match self.copy_out(pieces, begin) {
            Ok(()) => Outcome::done(len),
            Err(fallback) => self.finish_read(pieces, begin, fallback),
        }
    }

    /// Whether the file is known to reach that far.
    #[inline]
    fn holds(&self, begin: u64, len: usize) -> bool {
        let size = self.client.view.size(self.file.slot);
        begin.checked_add(len as u64).is_some_and(|end| end <= size)
    }

    fn read_at(&self, pieces: Pieces<'_>, offset: i64) -> Outcome {
        let Ok(offset) = u64::try_from(offset) else { return Outcome::kernel(Fallback::Special) };
        match self.copy_out(pieces, offset) {
            Ok(()) => Outcome::done(pieces.len()),
            Err(fallback) => Outcome::kernel(fallback),
        }
    }

    /// Copies from frames, all or nothing. After an error the pieces may hold anything.
    fn copy_out(&self, pieces: Pieces<'_>, offset: u64) -> Result<(), Fallback> {
        if !self.holds(offset, pieces.len()) {
            return Err(Fallback::End);
        }
        let mut at = offset;
        for piece in pieces.as_slice() {
            let out = piece.iov_base.cast();
            // SAFETY: by the contract of `read`.
            let read = unsafe { self.client.read(self.file.slot, at, out, piece.iov_len) };
            read.map_err(fallback_for)?;
            at += piece.iov_len as u64;
        }
        report::add(Count::LaneReads, 1);
        report::add(Count::LaneReadBytes, pieces.len() as u64);
        Ok(())
    }

    /// Reads by the kernel at `begin`, after the position was moved, and moves it back over what was not read.
    #[cold]
    fn finish_read(&self, pieces: Pieces<'_>, begin: u64, fallback: Fallback) -> Outcome {
        // SAFETY: by the contract of `read`.
        let read = unsafe { sys::preadv(self.fd, pieces.as_slice(), begin) };
        let read = self.give_back(pieces, read);
        report::kernel_read(Some(fallback), read.returned().unwrap_or(0));
        read
    }

    /// Why a write must go by the kernel, as far as that is known before posting.
    fn post_fallback(&self, pieces: &Pieces<'_>) -> Option<Fallback> {
        match self.flags {
            flags if flags & WRITES == 0 => Some(Fallback::Special),
            flags if flags & SYNCHRONOUS != 0 => Some(Fallback::Synchronous),
            _ if pieces.len() > PAYLOAD_BYTES_MAX => Some(Fallback::Large),
            _ if limit::is_limited() => Some(Fallback::Limited),
            _ if !self.client.view.is_alive() => Some(Fallback::Gone),
            _ => {
                let seen = self.client.view.seen(self.file.slot, self.client.id);
                match seen.writable {
                    true if posts::may_post(self.fd, self.poster()) => None,
                    true => Some(Fallback::Order),
                    false => Some(Fallback::Mode),
                }
            }
        }
    }

    #[inline]
    fn poster(&self) -> Poster {
        let mount = device::at(self.description.device()).mount();
        Poster { client: self.client.id, token: connection::token(self.index), mount }
    }

    fn write_pieces(&self, pieces: Pieces<'_>, is_append: bool, offset: Option<&i64>) -> Outcome {
        let outcome = match (self.post_fallback(&pieces), offset) {
            (Some(fallback), _) => Outcome::kernel(fallback),
            (None, _) if is_append => self.append(pieces, offset.is_none()),
            (None, None) => self.write(pieces),
            (None, Some(offset)) => match u64::try_from(*offset) {
                Ok(offset) => self.post_patiently(To::Offset(offset), pieces),
                Err(_) => Outcome::kernel(Fallback::Special),
            },
        };
        match outcome.fallback() {
            Some(fallback) if is_append && !is_one_request(&pieces) => {
                pieces.touch();
                let outcome = self.append_in_parts(pieces, fallback);
                // As after a post: another user of the description may have set the position meanwhile.
                if offset.is_none() && !position::note(self.index, self.file) {
                    position::set_to_end(self.fd);
                }
                outcome
            }
            _ => outcome,
        }
    }

    /// Appends by the kernel, in parts that it sends as one request each.
    #[cold]
    fn append_in_parts(&self, pieces: Pieces<'_>, fallback: Fallback) -> Outcome {
        let mut done = 0;
        for piece in pieces.as_slice() {
            let mut at = 0;
            while at < piece.iov_len {
                let from = piece.iov_base.cast::<u8>().wrapping_add(at);
                // Up to the end of a page.
                let most = REQUEST_BYTES_MAX - from.addr() % sys::page_bytes();
                let len = (piece.iov_len - at).min(most);
                let part = [iovec { iov_base: from.cast(), iov_len: len }];
                // The offset is ignored: the description appends.
                match pwritev(self.fd, &part, 0) {
                    Ok(written) => {
                        (at, done) = (at + written, done + written);
                        if written < len {
                            report::kernel_write(Some(fallback), done as isize);
                            return Outcome::done(done);
                        }
                    }
                    Err(_) if done > 0 => {
                        report::kernel_write(Some(fallback), done as isize);
                        return Outcome::done(done);
                    }
                    Err(error) => return Outcome::failed(error),
                }
            }
        }
        report::kernel_write(Some(fallback), done as isize);
        Outcome::done(done)
    }

    fn write(&self, pieces: Pieces<'_>) -> Outcome {
        // Before the position is moved: a process that is killed while it waits leaves no hole before the next write.
        self.await_room(pieces.len());
        let Ok(end) = sys::lseek(self.fd, pieces.len() as i64, libc::SEEK_CUR) else {
            // Past the largest offset: the kernel returns the error.
            return Outcome::kernel(Fallback::Special);
        };
        self.description.moved_to(end);
        let begin = end - pieces.len() as u64;
        let posted = self.post(To::Offset(begin), pieces);
        match posted.fallback() {
            None => posted,
            Some(fallback) => {
                let written = pwritev(self.fd, pieces.as_slice(), begin);
                let written = self.give_back(pieces, written);
                report::kernel_write(Some(fallback), written.returned().unwrap_or(0));
                written
            }
        }
    }

    /// Waits a while for room in the thread's ring.
    #[inline]
    fn await_room(&self, len: usize) {
        let has_room = || {
            let room = |ring: &Ring| self.client.has_room(ring, len);
            thread::with_ring(self.index, self.client, room).unwrap_or(true)
        };
        if !has_room() {
            self.make_room(has_room);
        }
    }

    #[cold]
    fn make_room(&self, has_room: impl Fn() -> bool) {
        for _ in 0..FULL_YIELDS {
            sys::sched_yield();
            if has_room() {
                return;
            }
        }
        let until = Instant::now() + FULL_PATIENCE;
        let makes_room = || self.client.view.is_alive() && !self.client.region.is_closed();
        while !has_room() && makes_room() && Instant::now() < until {
            sys::sleep(FULL_SLEEP_NS);
        }
    }

    /// Posts, and waits a while for room if there is none.
    fn post_patiently(&self, to: To, pieces: Pieces<'_>) -> Outcome {
        let len = pieces.len();
        let posted = self.post(to, pieces);
        if posted.fallback() != Some(Fallback::Full) {
            return posted;
        }
        self.await_room(len);
        self.post(to, pieces)
    }

    /// Appends. If `moves`, the append moves the position, as was noted before; another process that shares the description
    /// may have set the position while this call waited for room.
    fn append(&self, pieces: Pieces<'_>, moves: bool) -> Outcome {
        let posted = self.post_patiently(To::End, pieces);
        if moves && posted.fallback().is_none() && !position::note(self.index, self.file) {
            position::set_to_end(self.fd);
        }
        posted
    }

    /// Posts, if there is room at once.
    fn post(&self, to: To, pieces: Pieces<'_>) -> Outcome {
        let len = pieces.len();
        let posted = thread::with_ring(self.index, self.client, |ring| {
            // SAFETY: the ring is this thread's, and `with_ring` lets no handler use it meanwhile; the pieces have `len`
            // bytes, and are valid by the contract of `write`.
            unsafe { self.client.post_with(ring, self.file, to, len, |out| pieces.copy_to(out)) }
        });
        match posted {
            Ok(Ok(wake)) => {
                if wake {
                    connection::ring_doorbell(self.index);
                }
                posts::has_posted(self.fd, self.poster());
                report::add(Count::LaneWrites, 1);
                report::add(Count::LaneWriteBytes, len as u64);
                if to == To::End {
                    report::add(Count::LaneAppends, 1);
                }
                Outcome::done(len)
            }
            Ok(Err(miss)) => Outcome::kernel(fallback_for(miss)),
            Err(fallback) => Outcome::kernel(fallback),
        }
    }

    /// Moves the position back over the bytes that were not transferred.
    fn give_back(&self, pieces: Pieces<'_>, transferred: sys::Result<usize>) -> Outcome {
        let left = pieces.len() - transferred.unwrap_or(0).min(pieces.len());
        if left != 0
            && let Ok(position) = sys::lseek(self.fd, -(left as i64), libc::SEEK_CUR)
        {
            self.description.moved_to(position);
        }
        transferred.map_or_else(Outcome::failed, Outcome::done)
    }
}

/// Whether the kernel sends a write of these pieces as one request.
fn is_one_request(pieces: &Pieces<'_>) -> bool {
    let page = sys::page_bytes();
    let touched = |piece: &iovec| (piece.iov_base.addr() % page + piece.iov_len).div_ceil(page);
    pieces.as_slice().iter().map(touched).sum::<usize>() * page <= REQUEST_BYTES_MAX
}

/// pwritev(2), in a session by its door if nobody outside can tell.
fn pwritev(fd: c_int, pieces: &[iovec], at: u64) -> sys::Result<usize> {
    session::pwritev(fd, pieces, at).unwrap_or_else(|| hold(|| sys::pwritev(fd, pieces, at)))
}

#[cfg(test)]
mod tests;
