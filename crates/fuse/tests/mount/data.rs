//! Reading and writing.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};

use rustix::fs::{AtFlags, CWD, FlockOperation, OFlags, fcntl_getfl, fcntl_setfl, flock};
use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};

use crate::Test;
use crate::fixture::{Fixture, errno, open, pattern, read_at};

pub const TESTS: &[Test] = &[
    ("a_running_program_is_not_truncated", a_running_program_is_not_truncated),
    ("writes_are_read_and_go_home", writes_are_read_and_go_home),
    ("open_flags_do_what_they_say", open_flags_do_what_they_say),
    ("cold_pages_are_patched_without_a_fetch", cold_pages_are_patched_without_a_fetch),
    ("sizes_inside_and_past_cached_data", sizes_inside_and_past_cached_data),
    ("a_shared_mapping_and_write_see_each_other", a_shared_mapping_and_write_see_each_other),
    ("direct_and_cached_opens_agree", direct_and_cached_opens_agree),
    ("synchronous_writes_are_home", synchronous_writes_are_home),
    ("asynchronous_synchronous_writes_are_home", asynchronous_synchronous_writes_are_home),
    ("changes_underneath_are_seen_at_the_next_open", changes_underneath_are_seen_at_the_next_open),
    ("changes_underneath_before_the_close_are_seen", changes_underneath_before_the_close_are_seen),
    (
        "attributes_set_do_not_hide_changes_underneath",
        attributes_set_do_not_hide_changes_underneath,
    ),
    ("locks_exclude", locks_exclude),
    ("a_mount_that_bypasses_the_cache_works", a_mount_that_bypasses_the_cache_works),
    ("a_file_without_read_permission_is_written", a_file_without_read_permission_is_written),
    ("what_was_written_survives_remounting", what_was_written_survives_remounting),
];

fn writes_are_read_and_go_home() {
    let mut fixture = Fixture::new();
    let content = pattern(3_000_001, 1);
    fs::write(fixture.at("file"), &content).unwrap();
    assert!(fs::read(fixture.at("file")).unwrap() == content);
    let file = open(&fixture.at("file"));
    let mut expected = content;
    for step in 0..500_u64 {
        let offset = step * 7919 * 31 % 2_900_000;
        let piece = pattern((step as usize * 37) % 9_000 + 1, step);
        file.write_all_at(&piece, offset).unwrap();
        expected[offset as usize..offset as usize + piece.len()].copy_from_slice(&piece);
    }
    assert!(read_at(&file, 0, 4_000_000) == expected);
    file.sync_data().unwrap();
    assert!(fs::read(fixture.home("file")).unwrap() == expected);
    drop(file);
    fixture.unmount();
    assert!(fs::read(fixture.home("file")).unwrap() == expected);
}

fn open_flags_do_what_they_say() {
    let fixture = Fixture::new();
    let path = fixture.at("file");
    let new = |path| OpenOptions::new().write(true).create_new(true).open(path);
    new(&path).unwrap().write_all(b"first").unwrap();
    assert_eq!(errno(new(&path)), libc::EEXIST);
    OpenOptions::new().append(true).open(&path).unwrap().write_all(b" second").unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"first second");
    let truncated = OpenOptions::new().write(true).create(true).truncate(true).open(&path).unwrap();
    assert_eq!(truncated.metadata().unwrap().len(), 0);
    truncated.write_all_at(b"third", 0).unwrap();
    assert_eq!(fs::read(&path).unwrap(), b"third");
    // Created underneath, so that the kernel sends a creation for a file that exists.
    fs::write(fixture.home("there"), b"old content").unwrap();
    File::create(fixture.at("there")).unwrap().write_all(b"new").unwrap();
    assert_eq!(fs::read(fixture.at("there")).unwrap(), b"new");
    // Two descriptions that append do not overwrite each other.
    let append = || OpenOptions::new().append(true).create(true).open(fixture.at("log")).unwrap();
    let (mut one, mut two) = (append(), append());
    for _ in 0..100 {
        one.write_all(b"1").unwrap();
        two.write_all(b"2").unwrap();
    }
    assert_eq!(fs::read(fixture.at("log")).unwrap(), b"12".repeat(100));
}

fn cold_pages_are_patched_without_a_fetch() {
    let content = pattern(1 << 20, 9);
    let prepare = |source: &std::path::Path| fs::write(source.join("cold"), &content).unwrap();
    let fixture = Fixture::with(prepare, |_| {});
    let file = OpenOptions::new().write(true).open(fixture.at("cold")).unwrap();
    let before = fixture.shard.stats();
    let mut expected = content.clone();
    for page in 0..100 {
        let offset = page * 4096 + 100;
        file.write_all_at(b"patched!", offset as u64).unwrap();
        expected[offset..offset + 8].copy_from_slice(b"patched!");
    }
    let after = fixture.shard.stats();
    assert_eq!(after.patched_pages, 100);
    assert_eq!(after.fetches_in_flight, before.fetches_in_flight);
    assert!(fs::read(fixture.at("cold")).unwrap() == expected);
    file.sync_all().unwrap();
    assert!(fs::read(fixture.home("cold")).unwrap() == expected);
}

fn sizes_inside_and_past_cached_data() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.write_all_at(&[1; 10_000], 0).unwrap();
    file.set_len(5_000).unwrap();
    file.set_len(12_000).unwrap();
    let mut expected = vec![1; 5_000];
    expected.resize(12_000, 0);
    assert_eq!(read_at(&file, 0, 20_000), expected);
    file.write_all_at(&[2; 100], 30_000).unwrap();
    expected.resize(30_000, 0);
    expected.extend([2; 100]);
    assert_eq!(read_at(&file, 0, 40_000), expected);
    assert_eq!(file.metadata().unwrap().len(), 30_100);
    drop(file);
    // By name, with nobody having it open.
    let path = std::ffi::CString::new(fixture.at("file").to_str().unwrap()).unwrap();
    // SAFETY: a valid path.
    assert_eq!(unsafe { libc::truncate(path.as_ptr(), 4_000) }, 0);
    assert_eq!(fs::read(fixture.at("file")).unwrap(), [1; 4_000]);
    fixture.sync();
    assert_eq!(fs::read(fixture.home("file")).unwrap(), [1; 4_000]);
}

fn a_shared_mapping_and_write_see_each_other() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.write_all_at(&pattern(20_000, 4), 0).unwrap();
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let len = 20_000;
    // SAFETY: a new mapping at an address of the kernel's choice.
    let address =
        unsafe { mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, &file, 0) };
    let address = address.unwrap();
    // SAFETY: mapped above for so many bytes, and used by this thread alone.
    let mapped = unsafe { std::slice::from_raw_parts_mut(address.cast::<u8>(), len) };
    file.write_all_at(b"by write", 5_000).unwrap();
    assert_eq!(&mapped[5_000..5_008], b"by write");
    mapped[9_000..9_010].copy_from_slice(b"by mapping");
    assert_eq!(read_at(&file, 9_000, 10), b"by mapping");
    // SAFETY: the mapping's own range.
    unsafe { msync(address, len, MsyncFlags::SYNC) }.unwrap();
    let home = fs::read(fixture.home("file")).unwrap();
    assert_eq!((&home[5_000..5_008], &home[9_000..9_010]), (&b"by write"[..], &b"by mapping"[..]));
    // Written on after the descriptor is closed.
    drop(file);
    mapped[100..104].copy_from_slice(b"late");
    // SAFETY: as above; not used after this.
    unsafe { munmap(address, len) }.unwrap();
    assert_eq!(&fs::read(fixture.at("file")).unwrap()[100..104], b"late");
    fixture.sync();
}

fn direct_and_cached_opens_agree() {
    let fixture = Fixture::new();
    let cached = open(&fixture.at("file"));
    cached.write_all_at(&pattern(64 << 10, 5), 0).unwrap();
    assert_eq!(read_at(&cached, 0, 64 << 10).len(), 64 << 10);
    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_DIRECT)
        .open(fixture.at("file"))
        .unwrap();
    let mut memory = vec![0_u8; 16 << 10];
    let skew = memory.as_ptr().align_offset(4096);
    let aligned = &mut memory[skew..skew + 8192];
    aligned.fill(0xd1);
    direct.write_all_at(aligned, 8192).unwrap();
    assert_eq!(read_at(&cached, 8192, 8192), vec![0xd1; 8192]);
    cached.write_all_at(&[0xca; 8192], 16_384).unwrap();
    direct.read_exact_at(aligned, 16_384).unwrap();
    assert_eq!(aligned, [0xca; 8192]);
}

fn synchronous_writes_are_home() {
    let fixture = Fixture::new();
    for (name, flags) in [
        ("sync", libc::O_SYNC),
        ("dsync", libc::O_DSYNC),
        ("direct", libc::O_DSYNC | libc::O_DIRECT),
    ] {
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags)
            .open(fixture.at(name))
            .unwrap();
        let mut memory = vec![0x5c_u8; 8192 + 4096];
        let skew = memory.as_ptr().align_offset(4096);
        let aligned = &mut memory[skew..skew + 8192];
        file.write_all_at(aligned, 0).unwrap();
        assert_eq!(fs::read(fixture.home(name)).unwrap(), aligned, "{name}");
        assert_eq!(fixture.shard.stats().dirty_pages, 0, "{name}");
    }
}

/// Linux sends no fsync after a direct write by io_submit(2) that does not extend its file.
fn asynchronous_synchronous_writes_are_home() {
    const RWF_DSYNC: u32 = 2;
    let fixture = Fixture::new();
    for (name, flags, of_request) in [
        ("sync", libc::O_SYNC, 0),
        ("dsync", libc::O_DSYNC, 0),
        ("request", 0, RWF_DSYNC),
        ("direct", libc::O_DSYNC | libc::O_DIRECT, 0),
    ] {
        fs::write(fixture.at(name), [0; 8192]).unwrap();
        fixture.sync();
        let file =
            OpenOptions::new().write(true).custom_flags(flags).open(fixture.at(name)).unwrap();
        // Also of a description that was not opened with it.
        fcntl_setfl(&file, fcntl_getfl(&file).unwrap() | OFlags::DIRECT).unwrap();
        let mut memory = vec![0x5c_u8; 4096 + 4096];
        let skew = memory.as_ptr().align_offset(4096);
        let aligned = &mut memory[skew..skew + 4096];
        assert_eq!(submitted(&file, aligned, 4096, of_request), 4096, "{name}");
        assert!(&fs::read(fixture.home(name)).unwrap()[4096..] == aligned, "{name}");
        assert_eq!(fixture.shard.stats().dirty_pages, 0, "{name}");
    }
}

/// Writes by io_submit(2), and waits for the result.
fn submitted(file: &File, data: &[u8], offset: i64, flags: u32) -> i64 {
    /// `struct iocb` of linux/aio_abi.h, where bytes are in the order of most machines.
    #[repr(C)]
    struct Request {
        data: u64,
        key: u32,
        flags: u32,
        opcode: u16,
        priority: i16,
        fd: u32,
        memory: u64,
        len: u64,
        offset: i64,
        rest: [u64; 2],
    }
    const PWRITE: u16 = 1;
    let (mut context, mut event) = (0_u64, [0_i64; 4]);
    let request = Request {
        data: 0,
        key: 0,
        flags,
        opcode: PWRITE,
        priority: 0,
        fd: file.as_raw_fd().cast_unsigned(),
        memory: data.as_ptr().addr() as u64,
        len: data.len() as u64,
        offset,
        rest: [0; 2],
    };
    let list = [&raw const request];
    // SAFETY: the memory that is named outlives the request, which has ended at the end.
    unsafe {
        assert_eq!(libc::syscall(libc::SYS_io_setup, 1_u32, &raw mut context), 0);
        assert_eq!(libc::syscall(libc::SYS_io_submit, context, 1_i64, list.as_ptr()), 1);
        let none = std::ptr::null::<libc::timespec>();
        let ended =
            libc::syscall(libc::SYS_io_getevents, context, 1_i64, 1_i64, &raw mut event, none);
        assert_eq!(ended, 1);
        assert_eq!(libc::syscall(libc::SYS_io_destroy, context), 0);
    }
    event[2]
}

fn changes_underneath_are_seen_at_the_next_open() {
    let fixture = Fixture::new();
    fs::write(fixture.at("file"), b"through the mount").unwrap();
    fixture.sync();
    // Closed and clean by now, or a moment later.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"through the mount");
    fs::write(fixture.home("file"), b"changed underneath, and longer").unwrap();
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"changed underneath, and longer");
    let file = open(&fixture.at("file"));
    file.write_all_at(b"CHANGED", 0).unwrap();
    drop(file);
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"CHANGED underneath, and longer");
    fixture.sync();
    assert_eq!(fs::read(fixture.home("file")).unwrap(), b"CHANGED underneath, and longer");
}

fn changes_underneath_before_the_close_are_seen() {
    let fixture = Fixture::new();
    fs::write(fixture.at("file"), b"through the mount").unwrap();
    fixture.sync();
    // Closed and clean by now, or a moment later.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    for content in [b"changed while it was open".as_slice(), b"and once more"] {
        let reader = fs::File::open(fixture.at("file")).unwrap();
        fs::read(fixture.at("file")).unwrap();
        fs::write(fixture.home("file"), content).unwrap();
        drop(reader);
        // RELEASE comes after close(2) has returned.
        std::thread::sleep(std::time::Duration::from_millis(100));
        assert_eq!(fs::read(fixture.at("file")).unwrap(), content);
    }
}

fn attributes_set_do_not_hide_changes_underneath() {
    let fixture = Fixture::new();
    let times = |seconds| {
        let time = rustix::fs::Timespec { tv_sec: seconds, tv_nsec: 0 };
        let times = rustix::fs::Timestamps { last_access: time, last_modification: time };
        rustix::fs::utimensat(CWD, fixture.at("file"), &times, AtFlags::empty()).unwrap();
    };
    fs::write(fixture.at("file"), b"through the mount").unwrap();
    fixture.sync();
    // Closed and clean by now, or a moment later.
    std::thread::sleep(std::time::Duration::from_millis(1500));
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"through the mount");

    fs::write(fixture.home("file"), b"changed underneath").unwrap();
    fs::set_permissions(fixture.at("file"), fs::Permissions::from_mode(0o600)).unwrap();
    fixture.sync();
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"changed underneath");

    fs::write(fixture.home("file"), b"and once more").unwrap();
    times(1000);
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"and once more");
    fixture.sync();
    assert_eq!(fs::metadata(fixture.at("file")).unwrap().mtime(), 1000);
    assert_eq!(fs::metadata(fixture.home("file")).unwrap().mtime(), 1000);

    fs::write(fixture.home("file"), b"for the last time").unwrap();
    times(2000);
    fixture.sync();
    assert_eq!(fs::read(fixture.at("file")).unwrap(), b"for the last time");
    assert_eq!(fs::metadata(fixture.home("file")).unwrap().mtime(), 2000);
}

fn locks_exclude() {
    let fixture = Fixture::new();
    let (one, two) = (open(&fixture.at("file")), open(&fixture.at("file")));
    flock(&one, FlockOperation::LockExclusive).unwrap();
    let refused = flock(&two, FlockOperation::NonBlockingLockExclusive);
    assert_eq!(refused, Err(rustix::io::Errno::WOULDBLOCK));
    flock(&one, FlockOperation::Unlock).unwrap();
    flock(&two, FlockOperation::NonBlockingLockExclusive).unwrap();
}

fn a_mount_that_bypasses_the_cache_works() {
    let fixture = Fixture::with(|_| {}, |options| options.direct_io = true);
    let content = pattern(100_003, 6);
    fs::write(fixture.at("file"), &content).unwrap();
    assert!(fs::read(fixture.at("file")).unwrap() == content);
    let file = open(&fixture.at("file"));
    file.write_all_at(b"unaligned", 4_091).unwrap();
    assert_eq!(read_at(&file, 4_091, 9), b"unaligned");
}

fn a_file_without_read_permission_is_written() {
    let fixture = Fixture::new();
    let file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o200)
        .open(fixture.at("file"))
        .unwrap();
    file.write_all_at(b"written", 0).unwrap();
    file.sync_all().unwrap();
    assert_eq!(fs::read(fixture.home("file")).unwrap(), b"written");
    let read_only = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o444)
        .open(fixture.at("ro"));
    read_only.unwrap().write_all_at(b"once", 0).unwrap();
    assert_eq!(fs::read(fixture.at("ro")).unwrap(), b"once");
}

fn what_was_written_survives_remounting() {
    let mut fixture = Fixture::new();
    let content = pattern(500_000, 8);
    fs::write(fixture.at("file"), &content).unwrap();
    File::create(fixture.at("sparse")).unwrap().write_all_at(b"end", 1 << 30).unwrap();
    fixture.unmount();
    assert!(fs::read(fixture.home("file")).unwrap() == content);
    let sparse = File::open(fixture.home("sparse")).unwrap();
    let status = sparse.metadata().unwrap();
    assert_eq!(status.len(), (1 << 30) + 3);
    assert!(std::os::unix::fs::MetadataExt::blocks(&status) < 1_000, "the hole was filled");
}

fn a_running_program_is_not_truncated() {
    use rustix::fs::{CWD, Mode, OFlags, openat};

    let fixture = Fixture::new();
    let path = fixture.at("sleep");
    fs::copy("/bin/sleep", &path).unwrap();
    let len = fs::metadata(&path).unwrap().len();
    let mut running = std::process::Command::new(&path).arg("20").spawn().unwrap();
    for access in [OFlags::RDONLY, OFlags::WRONLY, OFlags::RDWR] {
        let opened = openat(CWD, &path, access | OFlags::TRUNC, Mode::empty());
        assert_eq!(opened.err(), Some(rustix::io::Errno::TXTBSY));
        assert_eq!(fs::metadata(&path).unwrap().len(), len);
    }
    assert_eq!(running.try_wait().unwrap(), None, "it still runs");
    running.kill().unwrap();
    running.wait().unwrap();
}
