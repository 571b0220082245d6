//! Reading and writing by the lane, against the server's half in the same process; a plain file takes the calls by the
//! kernel.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use weir_lane::PAGE_BYTES;
use weir_lane::board::{Board, Mode, View};
use weir_lane::memory::{self, Access, Memory};
use weir_lane::region::Region;
use weir_lane::server::{Inbox, Life};

use super::*;
use crate::description;
use crate::pieces::one;

const FRAMES: u32 = 8;
const SLOT: u32 = 5;
const CLIENT: u32 = 1;

/// A daemon with one file, and the description of a program that has it in the lane.
struct Daemon {
    board: Arc<Board>,
    _life: Life,
    frames: Memory,
    _frames_fd: OwnedFd,
    inbox: Inbox,
    file: File,
    open: Open,
}

impl Daemon {
    fn new(flags: c_int) -> Daemon {
        let board = Arc::new(Board::new(FRAMES).unwrap());
        let life = Life::hold(Arc::clone(&board)).unwrap();
        let len = FRAMES as usize * PAGE_BYTES;
        let frames_fd = memory::create("frames", len).unwrap();
        let frames = Memory::map(&frames_fd, len, Access::ReadWrite).unwrap();
        let (region, region_fd) = Region::create(FRAMES).unwrap();
        let view = View::map(board.fd(), frames_fd.as_fd()).unwrap();
        let own = Region::map(region_fd.as_fd(), FRAMES).unwrap();
        let client = Box::leak(Box::new(Client { id: CLIENT, view, region: own }));
        assert!(position::begin());
        // A thread may be tested with several daemons.
        thread::forget_rings();
        let file = tempfile::tempfile().unwrap();
        let description = description::at(description::take(0, 1, false).unwrap());
        let attached = Attached { slot: SLOT, description: 77 };
        description.attach(0, attached, flags);
        let open = Open {
            fd: file.as_raw_fd(),
            description,
            client,
            index: 0,
            file: attached,
            flags: description.flags(),
        };
        board.set_mode(SLOT, Mode::Exclusive, CLIENT);
        board.set_grant(SLOT, 1 << 20);
        let inbox = Inbox::new(Arc::new(region));
        Daemon { board, _life: life, frames, _frames_fd: frames_fd, inbox, file, open }
    }

    /// Applies what was posted.
    fn drain(&mut self) {
        let cut = self.inbox.begin().unwrap();
        while let Some(posted) = self.inbox.next(cut).unwrap() {
            assert_eq!(posted.description, 77);
            (0..FRAMES).for_each(|frame| self.board.retract(frame));
            let at = posted.offset.unwrap_or_else(|| self.file.metadata().unwrap().len());
            self.file.write_all_at(self.inbox.payload(), at).unwrap();
            self.board.set_size(SLOT, self.file.metadata().unwrap().len());
            self.inbox.settle(posted, Some(SLOT)).unwrap();
        }
    }

    /// Brings a page into memory, where programs may read it.
    fn fetch(&mut self, page: u64) {
        let frame = page as u32 % FRAMES;
        self.board.retract(frame);
        let mut bytes = [0; PAGE_BYTES];
        let len = self.file.read_at(&mut bytes, page * PAGE_BYTES as u64).unwrap();
        // SAFETY: the frame is in the mapping, and not published yet.
        unsafe {
            let to = self.frames.base().add(frame as usize * PAGE_BYTES);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
        if len > 0 {
            self.board.publish(frame, SLOT, page);
        }
    }

    fn position(&self) -> u64 {
        sys::lseek(self.open.fd, 0, libc::SEEK_CUR).unwrap()
    }
}

fn with_pieces<T>(address: *mut u8, len: usize, call: impl FnOnce(Pieces<'_>) -> T) -> T {
    // Two of them, as readv(2) has.
    let half = len / 2;
    let pieces = [one(address.cast(), half), one(address.wrapping_add(half).cast(), len - half)];
    // SAFETY: the pieces live until the call is over.
    call(unsafe { Pieces::new(pieces.as_ptr(), 2) }.unwrap())
}

fn write(open: &Open, data: &[u8]) -> Outcome {
    with_pieces(data.as_ptr().cast_mut(), data.len(), |pieces| open.write(pieces))
}

fn read(open: &Open, out: &mut [u8]) -> Outcome {
    with_pieces(out.as_mut_ptr(), out.len(), |pieces| open.read(pieces))
}

#[test]
fn a_write_is_posted_where_the_position_is_and_moves_it() {
    let mut daemon = Daemon::new(libc::O_RDWR);
    sys::lseek(daemon.open.fd, 100, libc::SEEK_SET).unwrap();
    assert_eq!(write(&daemon.open, b"abcdef"), Outcome::done(6));
    assert_eq!((daemon.position(), daemon.file.metadata().unwrap().len()), (106, 0));
    daemon.drain();
    let mut bytes = [0; 6];
    daemon.file.read_exact_at(&mut bytes, 100).unwrap();
    assert_eq!(&bytes, b"abcdef");
}

#[test]
fn a_write_that_cannot_be_posted_is_written_by_the_kernel_at_its_offset() {
    let daemon = Daemon::new(libc::O_RDWR);
    daemon.board.set_grant(SLOT, 10);
    assert_eq!(write(&daemon.open, b"12345678"), Outcome::done(8));
    assert_eq!(write(&daemon.open, b"past it"), Outcome::done(7));
    assert_eq!(daemon.position(), 15);
    let mut bytes = [0; 7];
    daemon.file.read_exact_at(&mut bytes, 8).unwrap();
    assert_eq!(&bytes, b"past it");
}

#[test]
fn the_position_moves_back_over_a_write_that_the_kernel_refuses() {
    let mut daemon = Daemon::new(libc::O_RDWR);
    daemon.board.set_grant(SLOT, 0);
    let read_only = File::open(format!("/proc/self/fd/{}", daemon.open.fd)).unwrap();
    sys::lseek(read_only.as_raw_fd(), 50, libc::SEEK_SET).unwrap();
    daemon.open.fd = read_only.as_raw_fd();
    assert_eq!(write(&daemon.open, b"abc"), Outcome::failed(sys::Errno(libc::EBADF)));
    assert_eq!(daemon.position(), 50);
}

#[test]
fn reads_take_what_is_in_memory_and_leave_the_end_to_the_kernel() {
    let mut daemon = Daemon::new(libc::O_RDWR);
    daemon.file.write_all_at(&[7; 5000], 0).unwrap();
    daemon.board.set_size(SLOT, 5000);
    daemon.fetch(0);
    let mut out = [0; 4000];
    assert_eq!(read(&daemon.open, &mut out), Outcome::done(4000));
    assert!(out.iter().all(|byte| *byte == 7));
    // Page 1 is not in memory: the position was moved, and the rest is read there.
    assert_eq!(read(&daemon.open, &mut out[..500]), Outcome::done(500));
    assert_eq!(daemon.position(), 4500);
    assert_eq!(read(&daemon.open, &mut out), Outcome::kernel(Fallback::End));
    assert_eq!(daemon.position(), 4500);
    // The position is moved without the library, and the guess is wrong.
    sys::lseek(daemon.open.fd, 4990, libc::SEEK_SET).unwrap();
    assert_eq!(read(&daemon.open, &mut out[..400]), Outcome::kernel(Fallback::End));
    daemon.open.description.moved_to(0);
    assert_eq!(read(&daemon.open, &mut out[..400]), Outcome::kernel(Fallback::End));
    assert_eq!(daemon.position(), 4990);
}

#[test]
fn the_position_of_an_append_is_set_when_it_is_asked_for() {
    let mut daemon = Daemon::new(libc::O_RDWR | libc::O_APPEND);
    let data = b"appended";
    for _ in 0..3 {
        assert!(position::note(0, daemon.open.file));
        let posted = with_pieces(data.as_ptr().cast_mut(), data.len(), |pieces| {
            daemon.open.post(To::End, pieces)
        });
        assert_eq!(posted, Outcome::done(8));
    }
    assert_eq!(daemon.position(), 0);
    // On a mount, asking for the size makes the daemon drain first.
    daemon.drain();
    position::set_if_noted(daemon.open.fd, 0, daemon.open.file);
    assert_eq!(daemon.position(), 24);
    sys::lseek(daemon.open.fd, 3, libc::SEEK_SET).unwrap();
    position::set_if_noted(daemon.open.fd, 0, daemon.open.file);
    assert_eq!(daemon.position(), 3);
}

#[test]
fn a_write_inside_a_write_and_one_without_the_right_go_by_the_kernel() {
    let daemon = Daemon::new(libc::O_RDWR);
    let nested = thread::with_ring(0, daemon.open.client, |_| {
        with_pieces(b"xy".as_ptr().cast_mut(), 2, |pieces| daemon.open.post(To::Offset(0), pieces))
    });
    assert_eq!(nested, Ok(Outcome::kernel(Fallback::Nested)));
    daemon.board.set_mode(SLOT, Mode::Shared, 0);
    let fallback =
        with_pieces(b"xy".as_ptr().cast_mut(), 2, |pieces| daemon.open.post_fallback(&pieces));
    assert_eq!(fallback, Some(Fallback::Mode));
}

/// The program reads what it would read with the kernel alone, whenever the daemon drains and fetches.
#[test]
fn random_calls_do_what_the_kernel_does() {
    for seed in 1..40_u64 {
        let mut daemon = Daemon::new(libc::O_RDWR);
        let mut model = Vec::<u8>::new();
        let mut at = 0;
        let mut state = seed;
        let mut next = |below: u64| {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        for step in 0..400_u64 {
            match next(6) {
                0 | 1 => {
                    let data = vec![step as u8; next(3000) as usize + 2];
                    // On a mount, posted writes are applied before a write by the kernel.
                    if next(4) == 0 {
                        daemon.drain();
                        daemon.board.set_grant(SLOT, next(2) << 20);
                    }
                    if daemon.open.client.view.grant(SLOT) == 0 {
                        daemon.drain();
                        (0..FRAMES).for_each(|frame| daemon.board.retract(frame));
                    }
                    assert_eq!(write(&daemon.open, &data), Outcome::done(data.len()));
                    if daemon.open.client.view.grant(SLOT) == 0 {
                        daemon.board.set_size(SLOT, daemon.file.metadata().unwrap().len());
                    }
                    model.resize(model.len().max(at + data.len()), 0);
                    model[at..at + data.len()].copy_from_slice(&data);
                    at += data.len();
                }
                2 => {
                    at = next(model.len() as u64 + 1) as usize;
                    sys::lseek(daemon.open.fd, at as i64, libc::SEEK_SET).unwrap();
                }
                3 => {
                    daemon.drain();
                    (0..3).for_each(|_| daemon.fetch(next(12)));
                }
                _ => {
                    let mut out = vec![0; next(5000) as usize + 2];
                    let there = out.len().min(model.len().saturating_sub(at));
                    let is_posted = daemon.inbox.has_posted();
                    if is_posted && daemon.open.client.view.size(SLOT) >= (at + out.len()) as u64 {
                        // On a mount, the kernel's request makes the daemon drain.
                        daemon.drain();
                    }
                    let outcome = read(&daemon.open, &mut out);
                    if outcome.fallback().is_some() {
                        daemon.drain();
                        assert_eq!(daemon.position(), at as u64, "seed {seed}, step {step}");
                        let fd = daemon.open.fd;
                        let len = sys::read(fd, &mut out).unwrap();
                        assert_eq!(len, there);
                    } else {
                        assert_eq!(outcome, Outcome::done(there));
                    }
                    assert_eq!(out[..there], model[at..at + there], "seed {seed}, step {step}");
                    at += there;
                }
            }
            assert_eq!(daemon.position(), at as u64, "seed {seed}, step {step}");
        }
    }
}
