//! How requests come: what each transport must do by itself, and how a mount ends over it.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::thread;

use rustix::mount::{UnmountFlags, unmount};
use weir_fuse::{KernelSetting, Transport};

use crate::Test;
use crate::fixture::{Fixture, open};

pub const TESTS: &[Test] = &[
    ("the_best_transport_is_taken_by_itself", the_best_transport_is_taken_by_itself),
    ("large_requests_come_whole", large_requests_come_whole),
    ("more_requests_than_entries_are_served", more_requests_than_entries_are_served),
    ("a_lazy_unmount_ends_with_the_last_user", a_lazy_unmount_ends_with_the_last_user),
    ("an_aborted_connection_ends", an_aborted_connection_ends),
    ("mounts_come_and_go", mounts_come_and_go),
];

const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";

static CHOSEN: Mutex<Transport> = Mutex::new(Transport::Device);

/// Those this kernel has.
pub fn all() -> Vec<Transport> {
    match KernelSetting::read() {
        KernelSetting::Missing => vec![Transport::Device],
        _ => vec![Transport::Device, Transport::IoUring],
    }
}

/// The one to mount with.
pub fn chosen() -> Transport {
    *CHOSEN.lock().unwrap()
}

/// Turned off when it is dropped, if it was before.
pub struct TurnedOn(bool);

/// Has tests mount with `transport`.
pub fn choose(transport: Transport) -> TurnedOn {
    *CHOSEN.lock().unwrap() = transport;
    let turn_on = transport == Transport::IoUring && KernelSetting::read() == KernelSetting::Off;
    if turn_on {
        fs::write(SETTING, "1").unwrap();
    }
    TurnedOn(turn_on)
}

impl Drop for TurnedOn {
    fn drop(&mut self) {
        if self.0 {
            let _ = fs::write(SETTING, "0");
        }
    }
}

fn the_best_transport_is_taken_by_itself() {
    let fixture = Fixture::with(|_| {}, |options| options.transport = None);
    let best = match KernelSetting::read() {
        KernelSetting::On => Transport::IoUring,
        _ => Transport::Device,
    };
    assert_eq!(fixture.session().transport(), best);
}

fn large_requests_come_whole() {
    const LEN: usize = (3 << 20) + 17;
    let mut fixture = Fixture::new();
    let bytes: Vec<u8> = (0..LEN as u32).map(|number| (number / 7) as u8).collect();
    open(&fixture.at("file")).write_all_at(&bytes, 0).unwrap();
    assert!(fs::read(fixture.at("file")).unwrap() == bytes);
    // One after the other, so that buffers are given back and used again.
    for turn in 0..20 {
        let (at, len) = (turn * 100_003, 1 << 20);
        open(&fixture.at("file")).write_all_at(&bytes[at..at + len], at as u64).unwrap();
    }
    fixture.unmount();
    assert!(fs::read(fixture.home("file")).unwrap() == bytes);
}

fn more_requests_than_entries_are_served() {
    const THREADS: usize = 400;
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    thread::scope(|scope| {
        for number in 0..THREADS {
            let file = &file;
            scope.spawn(move || {
                let at = (number * 8192) as u64;
                file.write_all_at(&[number as u8; 4096], at).unwrap();
                file.sync_all().unwrap();
            });
        }
    });
    for number in 0..THREADS {
        let mut page = [0; 4096];
        file.read_exact_at(&mut page, (number * 8192) as u64).unwrap();
        assert!(page.iter().all(|&byte| byte == number as u8));
    }
}

fn a_lazy_unmount_ends_with_the_last_user() {
    let mut fixture = Fixture::new();
    let mut file = open(&fixture.at("file"));
    fixture.session().unmount(true).unwrap();
    file.write_all(b"still").unwrap();
    assert!(!fixture.session().is_over());
    drop(file);
    fixture.wait();
    assert_eq!(fs::read(fixture.home("file")).unwrap(), b"still");
}

fn an_aborted_connection_ends() {
    let mut fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.write_all_at(b"before", 0).unwrap();
    let number = fixture.session().device_number().unwrap();
    // The number of a connection is that of its device, which has no major one.
    let connections = "/sys/fs/fuse/connections";
    let mounted = fs::exists(format!("{connections}/{}", number.minor)).unwrap();
    if mounted {
        fs::write(format!("{connections}/{}/abort", number.minor), "1").unwrap();
    } else {
        unmount(&fixture.mount, UnmountFlags::FORCE | UnmountFlags::DETACH).unwrap();
    }
    let error = file.write_all_at(b"after", 0).unwrap_err();
    assert!(matches!(error.raw_os_error(), Some(libc::ENOTCONN | libc::ECONNABORTED)), "{error}");
    drop(file);
    if mounted {
        unmount(&fixture.mount, UnmountFlags::DETACH).unwrap();
    }
    fixture.wait();
    assert_eq!(fs::read(fixture.home("file")).unwrap(), b"before");
}

fn mounts_come_and_go() {
    for turn in 0..5 {
        let mut fixture = Fixture::new();
        fs::write(fixture.at("file"), [turn]).unwrap();
        let mut read = Vec::new();
        File::open(fixture.at("file")).unwrap().read_to_end(&mut read).unwrap();
        assert_eq!(read, [turn]);
        fixture.unmount();
    }
}
