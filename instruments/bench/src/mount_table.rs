//! What is mounted where, and which loop devices hold which files, as the kernel says.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// One line of /proc/self/mountinfo (proc(5)).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mounted {
    /// Where.
    pub mountpoint: PathBuf,
    /// The file system's type, `fuse.weir` for instance.
    pub kind: String,
    /// What is mounted: a device, or the name a FUSE file system gave itself.
    pub source: PathBuf,
}

/// Everything mounted at `directory` or below it, the innermost and latest first.
pub fn mounts_at_or_below(directory: &Path) -> Vec<Mounted> {
    let table = fs::read("/proc/self/mountinfo").unwrap_or_default();
    let mut found = parse(&table);
    found.retain(|mounted| mounted.mountpoint.starts_with(directory));
    found.reverse();
    found
}

/// What is mounted on `mountpoint` itself, the uppermost if there are several.
pub fn mount_at(mountpoint: &Path) -> Option<Mounted> {
    mounts_at_or_below(mountpoint).into_iter().find(|mounted| mounted.mountpoint == mountpoint)
}

fn parse(table: &[u8]) -> Vec<Mounted> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

fn parse_line(line: &[u8]) -> Option<Mounted> {
    let fields: Vec<_> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    Some(Mounted {
        mountpoint: unescape(fields.get(4)?),
        kind: String::from_utf8_lossy(fields.get(dash + 1)?).into_owned(),
        source: unescape(fields.get(dash + 2)?),
    })
}

/// Spaces, tabs, newlines and backslashes stand there as `\` and three octal digits.
fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&byte, after)) = rest.split_first() {
        let octal = after.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(escaped) if byte == b'\\' => {
                bytes.push(escaped);
                rest = &after[3..];
            }
            _ => {
                bytes.push(byte);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes).into()
}

/// The loop devices whose backing file is in `directory`.
pub fn loop_devices_in(directory: &Path) -> Vec<PathBuf> {
    loop_devices()
        .filter(|(_, file)| file.starts_with(directory))
        .map(|(device, _)| device)
        .collect()
}

/// All loop devices that have a backing file, and this.
pub fn loop_devices() -> impl Iterator<Item = (PathBuf, PathBuf)> {
    fs::read_dir("/sys/block").into_iter().flatten().flatten().filter_map(|entry| {
        let mut file = fs::read(entry.path().join("loop/backing_file")).ok()?;
        file.pop_if(|byte| *byte == b'\n');
        Some((Path::new("/dev").join(entry.file_name()), OsString::from_vec(file).into()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_are_read_with_their_names_and_optional_fields() {
        let table =
            b"36 35 7:3 / /a\\040b\\134 rw,noatime master:1 shared:2 - ext4 /dev/loop3 rw\n\
            40 36 0:61 / /mnt rw - fuse.weir /source rw,user_id=0\nnonsense\n";
        let mounted = |mountpoint: &str, kind: &str, source: &str| Mounted {
            mountpoint: mountpoint.into(),
            kind: kind.into(),
            source: source.into(),
        };
        assert_eq!(
            parse(table),
            [mounted("/a b\\", "ext4", "/dev/loop3"), mounted("/mnt", "fuse.weir", "/source")]
        );
        assert!(mount_at(Path::new("/proc")).is_some_and(|found| found.kind == "proc"));
        assert!(mount_at(Path::new("/proc/sys/nowhere")).is_none());
    }
}
