//! The lane: a client in this process, beside programs that use files by the kernel.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, connect, recvmsg, send, socket_with,
};
use weir_lane::board::View;
use weir_lane::client::{Attached, Client, Miss, Ring, To};
use weir_lane::region::Region;
use weir_lane::wire::{ATTACH, Attach, Attachment, FIND, Found, LEAVE, Leave, Message, Welcome};

use crate::Test;
use crate::fixture::{Fixture, open};

pub const TESTS: &[Test] = &[
    ("lane_posts_are_seen_by_the_kernel", posts_are_seen_by_the_kernel),
    ("lane_reads_come_from_frames", reads_come_from_frames),
    ("lane_appends_grow_the_file", appends_grow_the_file),
    ("lane_an_open_by_others_revokes_the_lease", an_open_by_others_revokes_the_lease),
    ("lane_a_second_client_shares", a_second_client_shares),
    ("lane_mapping_leaves_for_good", mapping_leaves_for_good),
    ("lane_revoked_descriptions_rejoin", revoked_descriptions_rejoin),
    ("lane_posts_of_a_client_that_ended_stay", posts_of_a_client_that_ended_stay),
    ("lane_the_kernel_keeps_no_outdated_pages", the_kernel_keeps_no_outdated_pages),
    ("lane_unauthorized_programs_are_refused", unauthorized_programs_are_refused),
    (
        "lane_garbage_harms_only_the_client_that_writes_it",
        garbage_harms_only_the_client_that_writes_it,
    ),
    ("lane_truncation_and_posts_keep_their_order", truncation_and_posts_keep_their_order),
];

/// A client, with its socket and one ring.
struct Program {
    client: Client,
    socket: OwnedFd,
    ring: Ring,
    token: u64,
}

fn control(file: &File, command: u32, message: &mut Message) -> io::Result<()> {
    // SAFETY: the message is as long as the command's number says.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), u64::from(command), message.as_mut_ptr()) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

impl Program {
    fn start(file: &File) -> Program {
        let mut message = [0; 64];
        control(file, FIND, &mut message).unwrap();
        let found = Found::decode(&message).unwrap();
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        let address = SocketAddrUnix::new_abstract_name(found.socket.as_bytes()).unwrap();
        connect(&socket, &address).unwrap();
        let mut bytes = [0; 32];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let mut slices = [IoSliceMut::new(&mut bytes)];
        recvmsg(&socket, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        let mut fds: Vec<OwnedFd> = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(sent) = message {
                fds.extend(sent);
            }
        }
        let welcome = Welcome::decode(&bytes).unwrap();
        assert_eq!(welcome.proof, found.proof);
        let view = View::map(&fds[0], &fds[1]).unwrap();
        let region = Region::map(fds[2].as_fd(), welcome.frames).unwrap();
        let client = Client { id: welcome.client, view, region };
        let tid = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
        let ring = client.take_ring(weir_lane::owner::Owner::here(tid), |_| true).unwrap();
        Program { client, socket, ring, token: welcome.token }
    }

    fn attach(&self, file: &File) -> io::Result<Attached> {
        self.attach_by(file, 1)
    }

    /// By one of the client's processes.
    fn attach_by(&self, file: &File, process: u32) -> io::Result<Attached> {
        // SAFETY: a plain system call.
        unsafe {
            let flags = libc::fcntl(file.as_raw_fd(), libc::F_GETFL);
            libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags | libc::O_DIRECT);
        }
        let (client, token) = (self.client.id, self.token);
        let mut message = Attach { client, token, process, keeps_order: false }.encode();
        control(file, ATTACH, &mut message)?;
        let Attachment { slot, description, .. } = Attachment::decode(&message).unwrap();
        Ok(Attached { slot, description })
    }

    fn post(&self, file: Attached, to: To, data: &[u8]) -> Result<(), Miss> {
        // SAFETY: `data` is a slice, and the ring is this thread's.
        let wake = unsafe { self.client.post(&self.ring, file, to, data.as_ptr(), data.len()) }?;
        if wake {
            send(&self.socket, &[1], SendFlags::NOSIGNAL).unwrap();
        }
        Ok(())
    }

    /// Posts as soon as another client no longer holds the lease.
    fn post_in_turn(&self, file: Attached, to: To, data: &[u8]) {
        let started = Instant::now();
        while self.post(file, to, data) == Err(Miss::Mode) {
            assert!(
                started.elapsed() < Duration::from_secs(30),
                "the lease is not granted to the next client"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn read(&self, file: Attached, offset: u64, len: usize) -> Result<Vec<u8>, Miss> {
        let mut bytes = vec![0; len];
        // SAFETY: `bytes` is as long as that.
        unsafe { self.client.read(file.slot, offset, bytes.as_mut_ptr(), len) }?;
        Ok(bytes)
    }

    /// Waits until what was posted is taken out, without a request on the file.
    fn await_taken(&self, file: Attached, offset: u64, len: usize) {
        let started = Instant::now();
        while self.read(file, offset, len) == Err(Miss::Pending) {
            assert!(started.elapsed() < Duration::from_secs(30), "posts are left in the ring");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

fn prepared(fixture: &Fixture, name: &str, content: &[u8]) -> File {
    fs::write(fixture.home(name), content).unwrap();
    open(&fixture.at(name))
}

fn leave(file: &File, process: u32) {
    control(file, LEAVE, &mut Leave { process }.encode()).unwrap();
}

fn posts_are_seen_by_the_kernel() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'.'; 10_000]);
    let program = Program::start(&file);
    let lane = program.attach(&file).unwrap();
    for round in 0..2000u64 {
        let (offset, byte) = (round * 37 % 9990, (round % 251) as u8);
        program.post(lane, To::Offset(offset), &[byte; 10]).unwrap();
        if round % 7 == 0 {
            let mut bytes = [0; 10];
            file.read_exact_at(&mut bytes, offset).unwrap();
            assert_eq!(bytes, [byte; 10], "round {round}");
        }
    }
    let status = file.metadata().unwrap();
    assert_eq!(status.size(), 10_000);
}

fn reads_come_from_frames() {
    let fixture = Fixture::new();
    let content: Vec<u8> = (0..40_000u32).map(|at| (at / 7) as u8).collect();
    let file = prepared(&fixture, "file", &content);
    let program = Program::start(&file);
    let lane = program.attach(&file).unwrap();
    assert_eq!(program.read(lane, 100, 5000), Err(Miss::Absent), "nothing is in memory");
    let mut all = vec![0; 40_000];
    file.read_exact_at(&mut all, 0).unwrap();
    assert_eq!(all, content);
    assert_eq!(program.read(lane, 100, 5000).unwrap(), content[100..5100]);
    assert_eq!(program.read(lane, 39_999, 2), Err(Miss::Absent), "past the end");
    program.post(lane, To::Offset(4090), b"twelve bytes").unwrap();
    // Still pending, or applied: never the bytes from before.
    let read = program.read(lane, 4096, 4);
    assert!(matches!(&read, Err(Miss::Pending)) || read.as_deref() == Ok(b" byt"), "{read:?}");
    program.await_taken(lane, 4090, 12);
    assert_eq!(program.read(lane, 4090, 12).unwrap(), b"twelve bytes");
}

fn appends_grow_the_file() {
    let fixture = Fixture::new();
    fs::write(fixture.home("log"), vec![b'.'; 1 << 20]).unwrap();
    let mut file = OpenOptions::new().read(true).append(true).open(fixture.at("log")).unwrap();
    let program = Program::start(&file);
    let lane = program.attach(&file).unwrap();
    let (mut posted, mut written) = (0, 0);
    for line in 0..20_000 {
        let text = format!("line {line:010}\n");
        match program.post(lane, To::End, text.as_bytes()) {
            Ok(()) => posted += 1,
            Err(Miss::Size | Miss::Full) => {
                file.write_all(text.as_bytes()).unwrap();
                written += 1;
            }
            Err(miss) => panic!("{miss:?}"),
        }
    }
    assert!(posted > 10 * written, "{posted} posted, {written} written");
    assert_eq!(fs::metadata(fixture.at("log")).unwrap().len(), (1 << 20) + 20_000 * 16);
    let mut text = String::new();
    File::open(fixture.at("log")).unwrap().read_to_string(&mut text).unwrap();
    for (number, line) in text[1 << 20..].lines().enumerate() {
        assert_eq!(line, format!("line {number:010}"));
    }
}

fn an_open_by_others_revokes_the_lease() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'.'; 8192]);
    let program = Program::start(&file);
    let lane = program.attach(&file).unwrap();
    program.post(lane, To::Offset(0), b"posted").unwrap();
    // By another thread: the daemon takes this one for the client's.
    let path = fixture.at("file");
    let reader = std::thread::spawn(move || {
        let reader = File::open(&path).unwrap();
        // More than was posted, so that the page is read.
        let mut bytes = [0; 60];
        reader.read_exact_at(&mut bytes, 0).unwrap();
        assert_eq!(&bytes[..6], b"posted");
        reader
    });
    let reader = reader.join().unwrap();
    assert_eq!(program.post(lane, To::Offset(0), b"again!"), Err(Miss::Mode));
    assert_eq!(program.read(lane, 0, 6).unwrap(), b"posted", "frames may be read beside readers");
    file.write_all_at(b"kernel", 0).unwrap();
    let mut bytes = [0; 6];
    reader.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"kernel");
    assert_eq!(program.read(lane, 0, 6).unwrap(), b"kernel");
    drop(reader);
    let started = Instant::now();
    while program.post(lane, To::Offset(0), b"again!") == Err(Miss::Mode) {
        assert!(started.elapsed() < Duration::from_secs(30), "the lease is not granted again");
        std::thread::sleep(Duration::from_millis(1));
    }
    let path = fixture.at("file");
    let read = std::thread::spawn(move || fs::read(path).unwrap()).join().unwrap();
    assert_eq!(&read[..6], b"again!");
}

fn a_second_client_shares() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'.'; 8192]);
    let first = Program::start(&file);
    let of_first = first.attach(&file).unwrap();
    first.post(of_first, To::Offset(10), b"first").unwrap();
    let path = fixture.at("file");
    let other = std::thread::spawn(move || open(&path)).join().unwrap();
    let second = Program::start(&other);
    let of_second = second.attach(&other).unwrap();
    assert_eq!(of_first.slot, of_second.slot);
    let mut bytes = [0; 100];
    other.read_exact_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes[10..15], b"first");
    assert_eq!(second.read(of_second, 10, 5).unwrap(), b"first");
    assert_eq!(first.post(of_first, To::Offset(0), b"x"), Err(Miss::Mode));
    assert_eq!(second.post(of_second, To::Offset(0), b"x"), Err(Miss::Mode));
    other.write_all_at(b"second", 10).unwrap();
    assert_eq!(first.read(of_first, 10, 6).unwrap(), b"second");
}

fn mapping_leaves_for_good() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'.'; 8192]);
    let program = Program::start(&file);
    let lane = program.attach(&file).unwrap();
    program.post(lane, To::Offset(5), b"posted").unwrap();
    control(&file, LEAVE, &mut [0; 64]).unwrap();
    assert_eq!(program.post(lane, To::Offset(5), b"x"), Err(Miss::Mode));
    assert_eq!(program.read(lane, 5, 6), Err(Miss::Mode));
    let mut bytes = [0; 6];
    file.read_exact_at(&mut bytes, 5).unwrap();
    assert_eq!(&bytes, b"posted");
    assert!(program.attach(&file).is_err());
}

/// Two workers open a file before one of them uses it: each must revoke its description, and both rejoin.
fn revoked_descriptions_rejoin() {
    let fixture = Fixture::new();
    let [first, second] = [prepared(&fixture, "file", b"start..."), open(&fixture.at("file"))];
    let program = Program::start(&first);
    let view = &program.client.view;
    let kernel = |at: Attached| view.is_by_kernel(at.slot) && !view.is_rejoining(at.slot);
    let of_first = program.attach_by(&first, 1).unwrap();
    assert!(kernel(of_first), "the second may use the page cache");
    leave(&first, 1);
    let of_second = program.attach_by(&second, 2).unwrap();
    assert!(program.client.view.is_rejoining(of_second.slot));
    assert_eq!(program.post(of_second, To::Offset(0), b"x"), Err(Miss::Mode));
    // The process that revoked the description attaches it again, under the same number.
    assert_eq!(program.attach_by(&first, 1).unwrap(), of_first);
    program.post_in_turn(of_second, To::Offset(0), b"S");
    program.post(of_first, To::Offset(1), b"T").unwrap();
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"STart...");

    leave(&first, 1);
    assert!(!kernel(of_second), "a revoked description leaves before it is mapped");
    assert_eq!(program.attach_by(&first, 9).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert!(kernel(of_second), "another process may have it mapped");
    drop(first);
    let first = open(&fixture.at("file"));
    program.attach_by(&first, 1).unwrap();

    // A description is the kernel's for good if two processes revoked it, or if another process attaches it.
    leave(&first, 1);
    leave(&first, 2);
    assert_eq!(program.attach_by(&first, 1).unwrap_err().raw_os_error(), Some(libc::EPERM));
    leave(&second, 2);
    assert_eq!(program.attach_by(&second, 1).unwrap_err().raw_os_error(), Some(libc::EPERM));
    assert_eq!(program.attach_by(&second, 2).unwrap_err().raw_os_error(), Some(libc::EPERM));
    let third = open(&fixture.at("file"));
    let of_third = program.attach(&third).unwrap();
    assert!(kernel(of_third));
    drop((first, second));
    // No description is left that uses the kernel's page cache.
    let started = Instant::now();
    while program.post(of_third, To::Offset(2), b"A") == Err(Miss::Mode) {
        assert!(started.elapsed() < Duration::from_secs(30), "the file stays by the kernel");
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"STArt...");
}

fn posts_of_a_client_that_ended_stay() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'.'; 1 << 20]);
    for round in 0..50u8 {
        let program = Program::start(&file);
        let lane = program.attach(&file).unwrap();
        for at in 0..100u64 {
            program.post_in_turn(lane, To::Offset(at * 9973), &[round; 100]);
        }
        drop(program);
    }
    // Only the daemon learns that a client ended, by the socket: the kernel does not.
    let started = Instant::now();
    loop {
        let mut bytes = [0; 100];
        let all = (0..100u64).all(|at| {
            file.read_exact_at(&mut bytes, at * 9973).unwrap();
            bytes == [49; 100]
        });
        if all {
            break;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "posts are lost");
    }
}

fn the_kernel_keeps_no_outdated_pages() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'a'; 8192]);
    let path = fixture.at("file");
    let read = |path: &Path| {
        let path = path.to_owned();
        std::thread::spawn(move || fs::read(path).unwrap()).join().unwrap()
    };
    assert_eq!(read(&path), [b'a'; 8192]);
    {
        let program = Program::start(&file);
        let lane = program.attach(&file).unwrap();
        program.post(lane, To::Offset(0), &[b'b'; 8192]).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 8192);
        assert_eq!(read(&path), [b'b'; 8192], "while it is in the lane");
    }
    drop(file);
    assert_eq!(read(&path), [b'b'; 8192], "when it is in the lane no more");
}

fn unauthorized_programs_are_refused() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", b"content");
    let program = Program::start(&file);
    let mut forged = Attach {
        client: program.client.id,
        token: program.token ^ 1,
        process: 1,
        keeps_order: false,
    }
    .encode();
    let refused = control(&file, ATTACH, &mut forged).unwrap_err();
    assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
    let unknown = control(&file, 0xc040_5763, &mut [0; 64]).unwrap_err();
    assert_eq!(unknown.raw_os_error(), Some(libc::ENOTTY));
    fs::set_permissions(fixture.at("file"), std::os::unix::fs::PermissionsExt::from_mode(0o666))
        .unwrap();
    // Every set-up for the tests has python3.
    let find = "python3 -c 'import fcntl; fcntl.ioctl(open(\"file\"), 0xc0405701, bytes(64))'";
    assert!(!fixture.stranger(&format!("{find} 2>/dev/null")));
}

fn garbage_harms_only_the_client_that_writes_it() {
    let fixture = Fixture::new();
    let (own, others) =
        (prepared(&fixture, "own", &[b'.'; 8192]), prepared(&fixture, "others", &[b'o'; 8192]));
    let good = Program::start(&others);
    let of_good = good.attach(&others).unwrap();
    for seed in 0..20u64 {
        let bad = Program::start(&own);
        let of_bad = bad.attach(&own).unwrap();
        bad.post_in_turn(of_bad, To::Offset(0), b"well-formed");
        // Entries that name descriptions that the client does not have, or may not write to.
        for description in [1u32, 77, u32::MAX] {
            let forged = Attached { slot: of_bad.slot, description };
            let _ = bad.post(forged, To::Offset(seed * 100), &[seed as u8; 100]);
        }
        let forged = Attached { slot: of_bad.slot, description: of_good.description + 1 };
        let _ = bad.post(forged, To::Offset(0), b"not yours");
        good.post(of_good, To::Offset(seed * 8), &seed.to_ne_bytes()).unwrap();
    }
    let mut bytes = [0; 160];
    others.read_exact_at(&mut bytes, 0).unwrap();
    for (seed, part) in bytes.chunks(8).enumerate() {
        assert_eq!(part, (seed as u64).to_ne_bytes());
    }
}

fn truncation_and_posts_keep_their_order() {
    let fixture = Fixture::new();
    let file = prepared(&fixture, "file", &[b'.'; 100_000]);
    let program = Program::start(&file);
    let lane = program.attach(&file).unwrap();
    for round in 0..200u64 {
        program.post(lane, To::Offset(99_000), &[1; 1000]).unwrap();
        file.set_len(50_000 + round).unwrap();
        assert_eq!(file.metadata().unwrap().len(), 50_000 + round);
        file.set_len(100_000).unwrap();
        let mut bytes = [7; 1000];
        file.read_exact_at(&mut bytes, 99_000).unwrap();
        assert_eq!(bytes, [0; 1000], "round {round}: what was cut off came back");
        // The range past the old end is a hole now: a write by the kernel reserves its space.
        file.write_all_at(&[2; 50_000], 50_000).unwrap();
    }
    let custom =
        OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(fixture.at("file"));
    assert_eq!(custom.unwrap().metadata().unwrap().len(), 100_000);
}
