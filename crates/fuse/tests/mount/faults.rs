//! When home refuses, and when there is too little of something.

use std::fs::{self, File};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use crate::Test;
use crate::fixture::{Fixture, errno, mount_memory, open, pattern, read_at, unmount_memory};

pub const TESTS: &[Test] = &[
    ("a_full_disk_is_told_to_the_writer", a_full_disk_is_told_to_the_writer),
    ("write_back_errors_are_told_once", write_back_errors_are_told_once),
    ("idle_inodes_are_forgotten", idle_inodes_are_forgotten),
    ("closed_dirty_files_do_not_use_up_descriptors", closed_dirty_files_do_not_use_up_descriptors),
];

fn a_full_disk_is_told_to_the_writer() {
    let place = std::env::temp_dir().join(format!("weir-full-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    mount_memory(&place, 1 << 20);
    let fixture =
        Fixture::with(|_| {}, |options| options.source = File::open(&place).unwrap().into());
    let file = open(&fixture.at("file"));
    let chunk = vec![1_u8; 64 << 10];
    let mut written = 0_u64;
    let error = loop {
        match file.write_all_at(&chunk, written) {
            Ok(()) => written += chunk.len() as u64,
            Err(error) => break error,
        }
        assert!(written < 2 << 20, "more was taken than there is room for");
    };
    assert_eq!(error.raw_os_error(), Some(libc::ENOSPC));
    file.sync_all().unwrap();
    assert!(written > 512 << 10);
    assert!(read_at(&file, 0, written as usize).iter().all(|&byte| byte == 1));
    drop(file);
    drop(fixture);
    unmount_memory(&place);
    fs::remove_dir(&place).unwrap();
}

/// Has home refuse writes to a file that is open already; says whether it can be made to.
pub fn set_immutable(path: &Path, immutable: bool) -> bool {
    let flag = if immutable { "+i" } else { "-i" };
    Command::new("chattr").arg(flag).arg(path).status().is_ok_and(|status| status.success())
}

fn close(file: File) -> i32 {
    // SAFETY: the descriptor is nobody else's any more.
    errno(match unsafe { libc::close(file.into_raw_fd()) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    })
}

fn write_back_errors_are_told_once() {
    let fixture = Fixture::new();
    let content = pattern(50_000, 1);
    let path = fixture.at("file");
    let [one, two, three] = [0; 3].map(|_| open(&path));
    one.write_all_at(&content, 0).unwrap();
    if !set_immutable(&fixture.home("file"), true) {
        println!("    (not checked: the file system underneath knows no immutable files)");
        return;
    }
    let refused = errno(one.sync_all());
    // Each description that was open is told, by sync or by close, whichever comes first.
    let told = (errno(two.sync_all()), close(three));
    assert!(set_immutable(&fixture.home("file"), false));
    assert_eq!(refused, libc::EACCES);
    assert_eq!(told, (libc::EACCES, libc::EACCES));
    // What could not be written is kept, read, and written in the end.
    assert!(fs::read(&path).unwrap() == content);
    let deadline = Instant::now() + Duration::from_secs(60);
    while errno(one.sync_all()) != 0 {
        assert!(Instant::now() < deadline, "still refused");
    }
    assert_eq!((close(one), close(two)), (0, 0));
    assert!(fs::read(fixture.home("file")).unwrap() == content);
}

/// Set for the process that has few descriptors.
const FEW: &str = "WEIR_TEST_FEW_DESCRIPTORS";

/// Runs a test in a process of its own with few descriptors; true in that process.
fn with_few_descriptors(test: &str) -> bool {
    if std::env::var_os(FEW).is_some() {
        return true;
    }
    // Without CAP_SYS_RESOURCE root may not raise the limit again.
    let child = Command::new("setpriv")
        .args(["--bounding-set=-sys_resource", "sh", "-c"])
        .arg("ulimit -n 1000 && exec \"$0\" \"$1\"")
        .arg(std::env::current_exe().unwrap())
        .arg(test)
        .env(FEW, "1")
        .output()
        .unwrap();
    // Its result is not counted with this one's.
    let said = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    false
}

fn descriptors_held() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

fn idle_inodes_are_forgotten() {
    if !with_few_descriptors("idle_inodes_are_forgotten") {
        return;
    }
    const FILES: usize = 4_000;
    let name = |number: usize| format!("dir-{}/file-{number}", number % 10);
    let fixture = Fixture::with(
        |source| {
            (0..10)
                .for_each(|number| fs::create_dir(source.join(format!("dir-{number}"))).unwrap());
            (0..FILES)
                .for_each(|number| fs::write(source.join(name(number)), name(number)).unwrap());
        },
        |_| {},
    );
    let kept = open(&fixture.at(&name(0)));
    for number in 0..FILES {
        fs::metadata(fixture.at(&name(number))).unwrap();
        assert!(descriptors_held() < 990);
    }
    for number in (0..FILES).step_by(7) {
        assert_eq!(fs::read(fixture.at(&name(number))).unwrap(), name(number).as_bytes());
    }
    fs::write(fixture.at(&name(FILES)), b"new").unwrap();
    assert_eq!(read_at(&kept, 0, 100), name(0).as_bytes());
}

fn closed_dirty_files_do_not_use_up_descriptors() {
    if !with_few_descriptors("closed_dirty_files_do_not_use_up_descriptors") {
        return;
    }
    const FILES: usize = 3_000;
    let mut fixture = Fixture::new();
    for number in 0..FILES {
        let path = fixture.at(&format!("file-{number}"));
        fs::write(path, format!("content {number}")).unwrap();
        assert!(descriptors_held() < 990);
    }
    for number in (0..FILES).rev() {
        let content = fs::read(fixture.at(&format!("file-{number}"))).unwrap();
        assert_eq!(content, format!("content {number}").as_bytes());
    }
    fixture.unmount();
    for number in 0..FILES {
        let content = fs::read(fixture.home(&format!("file-{number}"))).unwrap();
        assert_eq!(content, format!("content {number}").as_bytes());
    }
}
