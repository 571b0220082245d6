//! The lane between processes: this test program is the daemon, and starts itself again as a client.
//!
//! A child gets its role by [`PART`] and runs the test `child` alone; memories are inherited as descriptors.

#![allow(unsafe_code)] // Shared memory cannot be used without it.
#![allow(clippy::unwrap_used)] // What is missing fails the test.

use std::env;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use weir_lane::PAGE_BYTES;
use weir_lane::board::{Board, Mode, View};
use weir_lane::client::{Attached, Client, Miss, To};
use weir_lane::memory::{self, Access, Memory};
use weir_lane::owner::Owner;
use weir_lane::region::Region;
use weir_lane::server::{Cut, Inbox, Life};

const PART: &str = "WEIR_LANE_PART";
const DESCRIPTORS: &str = "WEIR_LANE_DESCRIPTORS";
const HELD: &str = "weir-lane-held";
const FRAMES: u32 = 4;
const CLIENT: u32 = 9;
const FILE: Attached = Attached { slot: 5, description: 2 };
const LONGEST: Duration = Duration::from_secs(30);

struct Daemon {
    board: Arc<Board>,
    frames: OwnedFd,
    content: Memory,
    region: OwnedFd,
    inbox: Inbox,
}

impl Daemon {
    fn new() -> Daemon {
        let board = Arc::new(Board::new(FRAMES).unwrap());
        let frames = memory::create("frames", FRAMES as usize * PAGE_BYTES).unwrap();
        let content =
            Memory::map(&frames, FRAMES as usize * PAGE_BYTES, Access::ReadWrite).unwrap();
        memory::seal_writes(frames.as_fd()).unwrap();
        let (region, fd) = Region::create(FRAMES).unwrap();
        let inbox = Inbox::new(Arc::new(region));
        board.set_grant(FILE.slot, u64::MAX);
        board.set_size(FILE.slot, PAGE_BYTES as u64);
        board.set_mode(FILE.slot, Mode::Exclusive, CLIENT);
        Daemon { board, frames, content, region: fd, inbox }
    }

    /// Starts a client.
    fn start(&self, part: &str) -> KillOnDrop {
        // Duplicates without close-on-exec.
        let inherited = [
            rustix::io::dup(memory::read_only(self.board.fd()).unwrap()).unwrap(),
            rustix::io::dup(memory::read_only(self.frames.as_fd()).unwrap()).unwrap(),
            rustix::io::dup(&self.region).unwrap(),
        ];
        let numbers: Vec<_> = inherited.iter().map(|fd| fd.as_raw_fd().to_string()).collect();
        start(part, &numbers.join(","), Stdio::null())
    }
}

/// A child process that is killed when this is dropped.
struct KillOnDrop(Child);

impl KillOnDrop {
    fn kill(&mut self) {
        kill_process(Pid::from_child(&self.0), Signal::KILL).unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(part: &str, descriptors: &str, output: Stdio) -> KillOnDrop {
    let child = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(PART, part)
        .env(DESCRIPTORS, descriptors)
        .stdout(output)
        .spawn();
    KillOnDrop(child.unwrap())
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONGEST, "{what} did not happen");
        thread::sleep(Duration::from_millis(1));
    }
}

/// The bytes of the write of this number.
fn bytes_of(number: u64) -> Vec<u8> {
    let len = 8 + (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54) as usize;
    (0..len as u64).map(|at| (number + at * 3) as u8).collect()
}

#[test]
fn child() {
    let Ok(part) = env::var(PART) else { return };
    let numbers = env::var(DESCRIPTORS).unwrap();
    let fds: Vec<_> = (numbers.split(',').filter(|number| !number.is_empty()))
        // SAFETY: inherited, and never closed.
        .map(|number| unsafe { BorrowedFd::borrow_raw(number.parse().unwrap()) })
        .collect();
    match part.as_str() {
        "writer" => post_for_ever(&client(&fds)),
        "tamperer" => tamper(&fds),
        "daemon" => hold_a_life(),
        _ => unreachable!("{part}"),
    }
}

fn client(fds: &[BorrowedFd<'_>]) -> Client {
    let view = View::map(fds[0], fds[1]).unwrap();
    Client { id: CLIENT, view, region: Region::map(fds[2], FRAMES).unwrap() }
}

fn post_for_ever(client: &Client) {
    let ring = client.take_ring(Owner::here(std::process::id()), |_| true).unwrap();
    // Frames can be read as soon as anything can be posted.
    let mut page = [0; PAGE_BYTES];
    // SAFETY: the buffer has that many bytes.
    unsafe { client.read(FILE.slot, 0, page.as_mut_ptr(), page.len()) }.unwrap();
    assert!(page.iter().all(|byte| *byte == 0xa5));
    let mut number = 0;
    loop {
        let bytes = bytes_of(number);
        // SAFETY: a slice's bytes.
        let posted =
            unsafe { client.post(&ring, FILE, To::Offset(number), bytes.as_ptr(), bytes.len()) };
        match posted {
            Ok(_) => number += 1,
            Err(Miss::Full) => thread::yield_now(),
            Err(miss) => panic!("{miss:?}"),
        }
    }
}

/// Tries to write the read-only memories; ends with success if every attempt fails.
fn tamper(fds: &[BorrowedFd<'_>]) {
    for fd in &fds[..2] {
        let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
        if let Ok(again) = File::options().read(true).write(true).open(path) {
            assert!(Memory::map(&again, PAGE_BYTES, Access::ReadWrite).is_err());
            assert!(rustix::io::pwrite(&again, b"x", 0).is_err());
        }
        assert!(Memory::map(fd, PAGE_BYTES, Access::ReadWrite).is_err());
        assert!(rustix::fs::ftruncate(fd, 0).is_err());
    }
    assert!(rustix::fs::ftruncate(fds[2], 0).is_err());
    std::process::exit(0);
}

/// Holds a board's life, prints the memories' descriptors, and waits to be killed.
fn hold_a_life() {
    let board = Arc::new(Board::new(FRAMES).unwrap());
    let frames = memory::create("frames", FRAMES as usize * PAGE_BYTES).unwrap();
    let life = Life::hold(Arc::clone(&board)).unwrap();
    println!("{HELD} {} {}", board.fd().as_raw_fd(), frames.as_raw_fd());
    thread::sleep(LONGEST * 2);
    drop(life);
}

#[test]
fn published_posts_of_a_killed_client_are_taken() {
    for round in 0..12 {
        let mut daemon = Daemon::new();
        let change = daemon.board.change(0);
        // SAFETY: the frames' own memory.
        unsafe { daemon.content.base().write_bytes(0xa5, PAGE_BYTES) };
        drop(change);
        daemon.board.publish(0, FILE.slot, 0);
        // The client needs a living daemon.
        let life = Life::hold(Arc::clone(&daemon.board)).unwrap();
        let mut child = daemon.start("writer");
        let mut next = 0;
        let mut take = |inbox: &mut Inbox, last: bool| {
            let cut = inbox.begin().unwrap();
            let cut = if last { Cut::ALL } else { cut };
            while let Some(posted) = inbox.next(cut).unwrap() {
                assert_eq!((posted.offset, posted.description), (Some(next), FILE.description));
                assert_eq!(inbox.payload(), bytes_of(next));
                inbox.settle(posted, Some(FILE.slot)).unwrap();
                next += 1;
            }
        };
        wait_until("a post", || daemon.inbox.has_posted());
        let until = Instant::now() + Duration::from_micros(700 * round);
        while Instant::now() < until {
            take(&mut daemon.inbox, false);
        }
        child.kill();
        take(&mut daemon.inbox, true);
        assert!(!daemon.inbox.has_posted() && next > 0);
        drop(life);
    }
}

#[test]
fn clients_cannot_write_read_only_memories() {
    let mut tamperer = Daemon::new().start("tamperer");
    assert!(tamperer.0.wait().unwrap().success());
}

#[test]
fn the_death_of_a_killed_daemon_is_seen() {
    let mut child = start("daemon", "", Stdio::piped());
    let said = BufReader::new(child.0.stdout.take().unwrap());
    let held = said.lines().map(Result::unwrap).find_map(|line| {
        let numbers = line.split_once(HELD)?.1.trim().split(' ').map(str::to_owned);
        Some(numbers.collect::<Vec<_>>())
    });
    // In place of the descriptors from the socket.
    let fds: Vec<_> = (held.unwrap().iter())
        .map(|number| File::open(format!("/proc/{}/fd/{number}", child.0.id())).unwrap())
        .collect();
    let view = View::map(&fds[0], &fds[1]).unwrap();
    assert!(view.is_alive());
    child.kill();
    assert!(!view.is_alive());
}

#[test]
fn a_life_is_held_once_and_ends_with_its_thread() {
    let daemon = Daemon::new();
    let view = View::map(daemon.board.fd(), &daemon.frames).unwrap();
    assert!(!view.is_alive());
    let life = Life::hold(Arc::clone(&daemon.board)).unwrap();
    assert!(view.is_alive());
    let again = Life::hold(Arc::clone(&daemon.board)).unwrap_err();
    assert_eq!(again.kind(), std::io::ErrorKind::AlreadyExists);
    drop(life);
    assert!(!view.is_alive());
    let board = Arc::clone(&daemon.board);
    thread::spawn(move || std::mem::forget(Life::hold(board).unwrap())).join().unwrap();
    wait_until("the kernel's note", || !view.is_alive());
}
