//! Finds the program to run, as execvp(3) would, and whether the dynamic linker will load a library into it
//! (ld.so(8)).

use std::ffi::OsStr;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// Interpreters of interpreters that execve(2) follows.
const SCRIPTS_MAX: usize = 5;
/// Bytes at the beginning of a file that determine its kind (execve(2): BINPRM_BUF_SIZE).
const HEAD_BYTES: usize = 256;
const PT_INTERP: u32 = 3;

/// A file that can be executed.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
}

/// Looks for a program, by PATH if the name has no slash.
pub fn find(name: &OsStr) -> Result<Program, Failure> {
    let shown = name.to_string_lossy();
    if name.as_bytes().contains(&b'/') {
        return match std::fs::metadata(name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(Failure::NotFound(format!("cannot run {shown}: there is no such file")))
            }
            Err(error) => Err(Failure::NotExecutable(format!("cannot run {shown}: {error}"))),
            Ok(metadata) if !is_executable(&metadata) => {
                Err(Failure::NotExecutable(format!("cannot run {shown}: it is no executable file")))
            }
            Ok(_) => Ok(Program { path: PathBuf::from(name) }),
        };
    }
    let list = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut unusable = None;
    for directory in std::env::split_paths(&list) {
        let path = directory.join(name);
        match std::fs::metadata(&path) {
            Ok(metadata) if is_executable(&metadata) => return Ok(Program { path }),
            Ok(metadata) if metadata.is_file() => unusable = Some(path),
            _ => {}
        }
    }
    Err(match unusable {
        Some(path) => {
            Failure::NotExecutable(format!("cannot run {}: it is not executable", path.display()))
        }
        None => Failure::NotFound(format!("cannot run {shown}: it is not in PATH")),
    })
}

fn is_executable(metadata: &Metadata) -> bool {
    metadata.is_file() && metadata.mode() & 0o111 != 0
}

impl Program {
    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Why no library can be preloaded into the program; `None` if one can.
    pub fn ignores_preload(&self) -> Option<&'static str> {
        let mut path = self.path.clone();
        for _ in 0..SCRIPTS_MAX {
            let file = File::open(&path).ok()?;
            let mut head = Vec::with_capacity(HEAD_BYTES);
            (&file).take(HEAD_BYTES as u64).read_to_end(&mut head).ok()?;
            let Some(interpreter) = interpreter(&head) else {
                return privileged(&file, &path).or_else(|| without_linker(&file, &head));
            };
            // execve(2) ignores a script's own privileges.
            path = interpreter;
        }
        None
    }
}

/// The interpreter of a script.
fn interpreter(head: &[u8]) -> Option<PathBuf> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let word = line.split(|byte| matches!(byte, b' ' | b'\t')).find(|word| !word.is_empty())?;
    Some(PathBuf::from(OsStr::from_bytes(word)))
}

fn privileged(file: &File, path: &Path) -> Option<&'static str> {
    let metadata = file.metadata().ok()?;
    let root = rustix::process::geteuid().is_root();
    let changes_user =
        metadata.mode() & 0o4000 != 0 && metadata.uid() != rustix::process::getuid().as_raw();
    let changes_group =
        metadata.mode() & 0o2010 == 0o2010 && metadata.gid() != rustix::process::getgid().as_raw();
    if changes_user || changes_group {
        return Some("set-user-ID or set-group-ID");
    }
    let has_capabilities =
        rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64]).is_ok();
    (has_capabilities && !root).then_some("given capabilities")
}

/// Whether an ELF file (elf(5)) names no dynamic linker. `None` for anything but a 64-bit ELF file.
fn without_linker(file: &File, head: &[u8]) -> Option<&'static str> {
    let head = head.get(..64)?;
    let (magic, class, order) = (&head[..4], head[4], head[5]);
    if magic != b"\x7fELF" || class != 2 || order != 1 {
        return None;
    }
    let short = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let table = u64::from_le_bytes(head[32..40].try_into().ok()?);
    let (entry_bytes, entries) = (u64::from(short(54)), u64::from(short(56)));
    for entry in 0..entries {
        let mut kind = [0; 4];
        let at = table.checked_add(entry * entry_bytes)?;
        file.read_exact_at(&mut kind, at).ok()?;
        if u32::from_le_bytes(kind) == PT_INTERP {
            return None;
        }
    }
    Some("statically linked")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn scripts_name_their_interpreters() {
        assert_eq!(interpreter(b"#! /bin/sh -e\n"), Some(PathBuf::from("/bin/sh")));
        assert_eq!(interpreter(b"#!/usr/bin/env python3"), Some(PathBuf::from("/usr/bin/env")));
        assert_eq!(interpreter(b"#!\n"), None);
        assert_eq!(interpreter(b"\x7fELF"), None);
    }

    #[test]
    fn programs_without_a_linker_are_told_from_others() {
        // The tests themselves are linked dynamically.
        let own = std::env::current_exe().unwrap();
        let directory = std::env::temp_dir().join(format!("weir-program-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let script = directory.join("script");
        std::fs::write(&script, format!("#!{}\n", own.display())).unwrap();
        std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
        for path in [&own, &script] {
            assert_eq!(find(path.as_os_str()).unwrap().ignores_preload(), None);
        }
        // An ELF file whose table of segments is empty.
        let mut image = vec![0; 64];
        File::open(&own).unwrap().read_exact(&mut image).unwrap();
        image[56..58].copy_from_slice(&[0, 0]);
        let fixed = directory.join("static");
        std::fs::write(&fixed, &image).unwrap();
        std::fs::set_permissions(&fixed, PermissionsExt::from_mode(0o755)).unwrap();
        let found = find(fixed.as_os_str()).unwrap();
        assert_eq!(found.ignores_preload(), Some("statically linked"));
        std::fs::set_permissions(&fixed, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(matches!(find(fixed.as_os_str()), Err(Failure::NotExecutable(_))));
        assert!(matches!(find("weir-no-such-program".as_ref()), Err(Failure::NotFound(_))));
        assert!(matches!(find("/weir/no/such".as_ref()), Err(Failure::NotFound(_))));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
