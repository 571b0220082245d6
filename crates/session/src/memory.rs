//! The memory of a process whose call is stopped.
//!
//! A page of a file that is not there is fetched from the file's file system when it is touched. If that is served by a member, its answer is stopped,
//! and waits for the thread that touches the page. So once a member may serve a file system, pages are touched only if they are there, or of no
//! file, or of a file system that no process serves.

#![allow(unsafe_code, reason = "memory of other processes has no safe form")]

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;

/// A device number, as `st_dev` has it.
pub(crate) type Device = (u32, u32);

const PAGE_BYTES: u64 = 4096;
/// Bytes of an entry of /proc/PID/pagemap, and bits of it (admin-guide/mm/pagemap.rst): the page is there; it is of a file or shared.
const ENTRY_BYTES: u64 = 8;
const IS_THERE: u64 = 1 << 63;
const IS_OF_FILE: u64 = 1 << 61;

/// File systems that no process serves, each with its name: those that were mounted when a member could serve one first. Later ones may be on top of a member's, as an
/// overlay or by a loop device. None: no member serves one. This process has one session.
static LOCAL: OnceLock<HashMap<Device, String>> = OnceLock::new();

/// A member may serve a file system from now on. To be called before it is mounted.
pub(crate) fn members_serve() {
    LOCAL.get_or_init(|| {
        // Without the table none is known.
        let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
        plain_of(&String::from_utf8_lossy(&table))
    });
}

/// What is to be done with memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
}

/// Reads memory; returns how much of the buffer was filled.
///
/// # Errors
/// `WouldBlock` if a file system might have to be asked.
pub(crate) fn read(process: u32, address: u64, buffer: &mut [u8]) -> io::Result<usize> {
    if !may_touch(process, address, buffer.len(), Access::Read)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: buffer.len() };
    // SAFETY: the local vector is the buffer; the other process's memory is checked by the kernel.
    let read = unsafe {
        libc::process_vm_readv(process as i32, &raw const local, 1, &raw const remote, 1, 0)
    };
    if read < 0 { Err(io::Error::last_os_error()) } else { Ok(read as usize) }
}

/// Writes memory.
///
/// # Errors
/// As of [`read`].
pub(crate) fn write(process: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    if !may_touch(process, address, bytes.len(), Access::Write)? {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    write_again(process, address, bytes)
}

/// Writes where [`write`] has just written, without another look.
pub(crate) fn write_again(process: u32, address: u64, bytes: &[u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes.len() };
    // SAFETY: the local vector is read only; the other process's memory is checked by the kernel.
    let written = unsafe {
        libc::process_vm_writev(process as i32, &raw const local, 1, &raw const remote, 1, 0)
    };
    match written {
        written if written == bytes.len() as isize => Ok(()),
        written if written < 0 => Err(io::Error::last_os_error()),
        _ => Err(io::Error::from_raw_os_error(libc::EFAULT)),
    }
}

/// Whether no process is asked when memory is touched.
fn may_touch(process: u32, address: u64, bytes: usize, access: Access) -> io::Result<bool> {
    let Some(local) = LOCAL.get().filter(|_| bytes > 0) else { return Ok(true) };
    let last = address.saturating_add(bytes as u64 - 1) / PAGE_BYTES;
    let pages = File::open(format!("/proc/{process}/pagemap"))?;
    for page in address / PAGE_BYTES..=last {
        let mut entry = [0; ENTRY_BYTES as usize];
        if pages.read_at(&mut entry, page * ENTRY_BYTES)? < entry.len() {
            // Nothing is there: the kernel says so at once.
            return Ok(true);
        }
        if !is_settled(u64::from_ne_bytes(entry), access) && !is_local(process, page, local)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a page is there, and is touched without more: a file's page that is to be written may be on its way to the file system.
fn is_settled(entry: u64, access: Access) -> bool {
    entry & IS_THERE != 0 && (access == Access::Read || entry & IS_OF_FILE == 0)
}

/// Whether a page is of no file, or of a file system that no process serves.
fn is_local(process: u32, page: u64, local: &HashMap<Device, String>) -> io::Result<bool> {
    let maps = fs::read(format!("/proc/{process}/maps"))?;
    Ok(match mapping_at(&String::from_utf8_lossy(&maps), page * PAGE_BYTES) {
        // The kernel says so at once.
        Mapping::None => true,
        Mapping::OfNoFile => true,
        Mapping::OfFile(device) => {
            let table = fs::read(format!("/proc/{process}/mountinfo"))?;
            is_still(local, &String::from_utf8_lossy(&table), device)
        }
        Mapping::Unknown => false,
    })
}

#[derive(Debug, PartialEq, Eq)]
enum Mapping {
    None,
    OfNoFile,
    /// The file system's device number.
    OfFile(Device),
    Unknown,
}

/// What is mapped at an address, by a table of mappings (proc_pid_maps(5)).
fn mapping_at(maps: &str, address: u64) -> Mapping {
    let of = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (begin, end) = fields.next()?.split_once('-')?;
        let number = |text| u64::from_str_radix(text, 16).ok();
        if !(number(begin)?..number(end)?).contains(&address) {
            return None;
        }
        // Permissions and the offset.
        let mut fields = fields.skip(2);
        let known = |device: &str, inode: &str| {
            let (major, minor) = device.split_once(':')?;
            let part = |text| u32::from_str_radix(text, 16).ok();
            let device = (part(major)?, part(minor)?);
            Some(if inode == "0" { Mapping::OfNoFile } else { Mapping::OfFile(device) })
        };
        let known = fields.next().zip(fields.next()).and_then(|(a, b)| known(a, b));
        Some(known.unwrap_or(Mapping::Unknown))
    };
    maps.lines().find_map(of).unwrap_or(Mapping::None)
}

/// Whether a device is still one of these: its number may be given again after an unmount.
fn is_still(local: &HashMap<Device, String>, table: &str, device: Device) -> bool {
    let mut mounted = mounts(table);
    let now = mounted.find(|(mounted, _)| *mounted == device);
    now.is_some_and(|(_, name)| local.get(&device).is_some_and(|known| known == name))
}

/// The file systems in a mount table that no process serves.
fn plain_of(table: &str) -> HashMap<Device, String> {
    mounts(table)
        .filter(|(_, name)| weir_lane::door::hides_ends_on(name))
        .map(|(device, name)| (device, name.to_owned()))
        .collect()
}

/// The device numbers of a mount table (proc_pid_mountinfo(5)), each with its file system's name.
fn mounts(table: &str) -> impl Iterator<Item = (Device, &str)> {
    table.lines().filter_map(|line| {
        let (major, minor) = line.split(' ').nth(2)?.split_once(':')?;
        let name = line.split_once(" - ")?.1.split(' ').next()?;
        Some(((major.parse().ok()?, minor.parse().ok()?), name))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: &str = "\
        7f00-9f00 r--p 00000000 00:2a 12   /mnt/a b\n\
        a000-b000 rw-p 00000000 00:00 0 \n\
        c000-d000 rw-p 00000000 00:00 0  [stack]\n\
        e000-f000 r--p\n";

    #[test]
    fn what_is_mapped_is_found_by_its_address() {
        assert_eq!(mapping_at(MAPS, 0x7f00), Mapping::OfFile((0, 42)));
        assert_eq!(mapping_at(MAPS, 0x9f00), Mapping::None);
        assert_eq!(mapping_at(MAPS, 0xa000), Mapping::OfNoFile);
        assert_eq!(mapping_at(MAPS, 0xcfff), Mapping::OfNoFile);
        assert_eq!(mapping_at(MAPS, 0xe000), Mapping::Unknown);
    }

    #[test]
    fn only_what_was_there_before_members_could_serve_is_of_no_process() {
        let before = "22 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n30 22 0:42 / /m rw - fuse.x x rw\n31 22 0:43 / /t rw - tmpfs t rw\n";
        let local = plain_of(before);
        assert!(is_still(&local, before, (8, 1)));
        assert!(!is_still(&local, before, (0, 42)));
        assert!(!is_still(&local, before, (0, 4)));
        // An overlay on a member's mount; also if it gets the number of what was unmounted.
        let later = "22 1 8:1 / / rw shared:1 - ext4 /dev/a rw\n32 22 0:43 / /o rw - overlay o rw\n33 22 0:44 / /p rw - overlay p rw\n";
        assert!(is_still(&local, later, (8, 1)));
        assert!(!is_still(&local, later, (0, 43)) && !is_still(&local, later, (0, 44)));
    }

    #[test]
    fn only_pages_that_are_there_and_change_no_file_are_touched_without_a_look() {
        assert!(is_settled(IS_THERE | IS_OF_FILE, Access::Read));
        assert!(is_settled(IS_THERE, Access::Write));
        assert!(!is_settled(IS_THERE | IS_OF_FILE, Access::Write));
        assert!(!is_settled(IS_OF_FILE, Access::Read) && !is_settled(0, Access::Write));
    }

    #[test]
    fn memory_of_no_file_is_touched_also_if_it_is_not_there_yet() {
        members_serve();
        let memory = vec![0_u8; 1 << 20];
        let (own, at) = (std::process::id(), memory.as_ptr() as u64 + (1 << 19));
        let mut read_here = [1; 8];
        assert_eq!(read(own, at, &mut read_here).unwrap(), 8);
        assert_eq!(read_here, [0; 8]);
        write(own, at, &[2; 8]).unwrap();
        assert_eq!(read(own, at, &mut read_here).unwrap(), 8);
        assert_eq!(read_here, [2; 8]);
        assert!(read(own, 8, &mut read_here).is_err());
    }
}
