//! What holds for every mount of this machine and this user: FUSE, the kernel, io_uring, limits, and what `weir run` needs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{Resource, geteuid, getrlimit};
use weir_fuse::KernelSetting;

use super::finding::Findings;
use crate::command::run::library;
use crate::fuse_access::{self, FuseAccessError};
use crate::quantity::Size;
use crate::settings::Settings;
use crate::shell_word::word;

/// Kernels before this one were not tried.
const KERNEL_TRIED: (u32, u32) = (5, 15);
/// io_uring's memory counts as locked memory before this one.
const KERNEL_WITHOUT_LOCKED_RINGS: (u32, u32) = (5, 12);
/// Descriptors that a mount with many open files uses.
const DESCRIPTORS: u64 = 65536;
/// The file that turns FUSE over io_uring on until the next boot.
const SETTING: &str = "/sys/module/fuse/parameters/enable_uring";
/// The bit of CAP_SYS_ADMIN, capabilities(7).
const CAP_SYS_ADMIN: u32 = 21;

/// Looks at the machine.
pub fn check(settings: &Settings, findings: &mut Findings) {
    let version = kernel(findings);
    fuse(findings);
    if geteuid().is_root() {
        as_root(findings);
    } else {
        as_ordinary_user(findings);
    }
    sharing(settings.allow_other, findings);
    fuse_over_io_uring(findings);
    io_uring(findings);
    limits(version, findings);
    findings.ok("memory", format!("a mount may use {}", Size(settings.engine.memory_bytes_max)));
    match library() {
        Ok(path) => findings.ok("weir-run", format!("its library is {}", path.display())),
        Err(error) => {
            let mend = "install Weir as a whole: the package, or 'make install'";
            findings.note("weir-run", error.to_string(), Some(mend.to_owned()));
        }
    }
    sessions(findings);
    mount_helper(findings);
}

fn kernel(findings: &mut Findings) -> (u32, u32) {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    let version = version(release);
    match version >= KERNEL_TRIED {
        true => findings.ok("kernel", format!("Linux {release}")),
        false => findings.note(
            "kernel",
            format!("Linux {release}; Weir was not tried with kernels before 5.15"),
            Some("install a newer kernel".to_owned()),
        ),
    }
    version
}

/// `6.14.2-arch1` is 6.14.
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release.split(|letter: char| !letter.is_ascii_digit());
    let mut next = || numbers.next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    (next(), next())
}

fn fuse(findings: &mut Findings) {
    const CHECK: &str = "fuse";
    if let Err(error) = fuse_access::check_access() {
        let mend = match &error {
            FuseAccessError::NoDevice(path) | FuseAccessError::NotDevice(path) => {
                format!("modprobe fuse (in a container: start it with --device {})", path.display())
            }
            _ => "chmod 666 /dev/fuse".to_owned(),
        };
        return findings.problem(CHECK, error.to_string(), Some(mend));
    }
    // The mode says nothing of what a container may open, nor of a driver that is not there.
    match File::options().read(true).write(true).open("/dev/fuse") {
        Ok(_) => findings.ok(CHECK, "/dev/fuse can be opened"),
        Err(error) => findings.problem(
            CHECK,
            format!("cannot open /dev/fuse: {error}"),
            Some("modprobe fuse (in a container: start it with --device /dev/fuse)".to_owned()),
        ),
    }
}

fn as_root(findings: &mut Findings) {
    const CHECK: &str = "fusermount3";
    if !has_capability(CAP_SYS_ADMIN) {
        findings.problem(
            "privileges",
            "root lacks CAP_SYS_ADMIN here, which mounting needs",
            Some("start the container with --cap-add SYS_ADMIN".to_owned()),
        );
    }
    match fuse_access::helper() {
        Some(path) => findings.ok(CHECK, format!("{} lets ordinary users mount", path.display())),
        None => findings.note(
            CHECK,
            "fusermount3 is missing: only root can mount",
            Some("apt-get install fuse3".to_owned()),
        ),
    }
}

fn as_ordinary_user(findings: &mut Findings) {
    const CHECK: &str = "fusermount3";
    let Some(path) = fuse_access::helper() else {
        let mend = "apt-get install fuse3 (as root)".to_owned();
        return findings.problem(CHECK, FuseAccessError::NoHelper.to_string(), Some(mend));
    };
    let shown = path.display();
    let is_privileged =
        fs::metadata(&path).is_ok_and(|found| found.uid() == 0 && found.mode() & 0o4000 != 0);
    if !is_privileged {
        return findings.problem(
            CHECK,
            format!("{shown} is not set-user-ID root, and so cannot mount for an ordinary user"),
            Some(format!("chmod u+s {} (as root)", word(&path))),
        );
    }
    if status("NoNewPrivs:").is_some_and(|value| value == "1") {
        return findings.problem(
            CHECK,
            format!(
                "this process may gain no privileges (no_new_privs), so {shown} cannot mount for it"
            ),
            Some("mount outside that service or container, or as root".to_owned()),
        );
    }
    findings.ok(CHECK, format!("{shown} mounts for this user"));
}

fn sharing(is_asked_for: bool, findings: &mut Findings) {
    const CHECK: &str = "allow-other";
    let mend = || Some("echo user_allow_other >>/etc/fuse.conf (as root)".to_owned());
    match fuse_access::check_sharing() {
        Ok(()) => findings.ok(CHECK, "ordinary users may share their mounts (user_allow_other)"),
        Err(error) if is_asked_for && !geteuid().is_root() => {
            findings.problem(CHECK, error.to_string(), mend());
        }
        Err(_) => findings.note(
            CHECK,
            "ordinary users may not give --allow-other: /etc/fuse.conf has no line 'user_allow_other'",
            mend(),
        ),
    }
}

fn fuse_over_io_uring(findings: &mut Findings) {
    const CHECK: &str = "fuse-io-uring";
    let for_good = || match is_built_in() {
        // modprobe.d(5) concerns modules only.
        true => "add fuse.enable_uring=1 to the kernel's command line".to_owned(),
        false => "echo 'options fuse enable_uring=1' >/etc/modprobe.d/fuse.conf".to_owned(),
    };
    match KernelSetting::read() {
        KernelSetting::On if is_on_at_boot() => findings.ok(CHECK, "on, and on after a boot"),
        KernelSetting::On => findings.note(CHECK, "on until the next boot", Some(for_good())),
        KernelSetting::Off => findings.note(
            CHECK,
            "off: with it a small write takes about half the time",
            Some(format!("echo 1 >{SETTING}; and for good: {} (as root)", for_good())),
        ),
        missing => findings.note(CHECK, missing.advice().unwrap_or_default(), None),
    }
}

/// Whether the kernel has FUSE without a module.
fn is_built_in() -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let list = format!("/lib/modules/{}/modules.builtin", release.trim());
    match fs::read_to_string(list) {
        Ok(text) => text.lines().any(|line| line.ends_with("/fuse.ko")),
        Err(_) => {
            let modules = fs::read_to_string("/proc/modules").unwrap_or_default();
            !modules.lines().any(|line| line.starts_with("fuse "))
        }
    }
}

/// Whether the kernel's command line or a file of modprobe.d(5) turns FUSE over io_uring on.
fn is_on_at_boot() -> bool {
    let line = fs::read_to_string("/proc/cmdline").unwrap_or_default();
    let on = ["fuse.enable_uring=1", "fuse.enable_uring=Y", "fuse.enable_uring=y"];
    if line.split_whitespace().any(|word| on.contains(&word)) {
        return true;
    }
    let directories =
        ["/etc/modprobe.d", "/run/modprobe.d", "/usr/lib/modprobe.d", "/lib/modprobe.d"];
    let files = directories.iter().filter_map(|path| fs::read_dir(path).ok()).flatten().flatten();
    files.map(|entry| entry.path()).any(|path| {
        path.extension().is_some_and(|extension| extension == "conf")
            && fs::read_to_string(path).is_ok_and(|text| turns_on(&text))
    })
}

fn turns_on(modprobe: &str) -> bool {
    modprobe.lines().any(|line| {
        let mut words = line.split_whitespace();
        words.next() == Some("options")
            && words.next() == Some("fuse")
            && words
                .any(|word| matches!(word, "enable_uring=1" | "enable_uring=Y" | "enable_uring=y"))
    })
}

fn io_uring(findings: &mut Findings) {
    const CHECK: &str = "io-uring";
    let Err(error) = weir_backend::try_ring() else {
        return findings.ok(CHECK, "programs may use io_uring: data goes home by it");
    };
    let disabled = fs::read_to_string("/proc/sys/kernel/io_uring_disabled").unwrap_or_default();
    let mend = match (disabled.trim(), error.kind()) {
        ("1" | "2", _) => "sysctl -w kernel.io_uring_disabled=0 (as root)",
        (_, io::ErrorKind::PermissionDenied) => {
            "let the container use io_uring, by its seccomp profile"
        }
        (_, io::ErrorKind::OutOfMemory) => "raise the limit of locked memory, 'ulimit -l'",
        _ => "use a kernel that has io_uring",
    };
    findings.note(
        CHECK,
        format!(
            "io_uring cannot be used ({error}): threads transfer data instead, which costs more CPU"
        ),
        Some(mend.to_owned()),
    );
}

fn limits(kernel: (u32, u32), findings: &mut Findings) {
    let shown =
        |limit: Option<u64>| limit.map_or("any number of".to_owned(), |most| most.to_string());
    // The daemon raises the limit to the most that it may have, and root may have more.
    let most = getrlimit(Resource::Nofile).maximum;
    let found = format!("a daemon of this user may have {} files open", shown(most));
    match most {
        Some(few) if few < DESCRIPTORS && !geteuid().is_root() => findings.note(
            "open-files",
            format!("{found}, which bounds how many files programs have open in a mount"),
            Some(format!(
                "echo '* hard nofile {DESCRIPTORS}' >/etc/security/limits.d/weir.conf (as root), and log in again"
            )),
        ),
        _ if geteuid().is_root() => findings.ok("open-files", "root's daemon takes what it needs"),
        _ => findings.ok("open-files", found),
    }
    let locked = getrlimit(Resource::Memlock).current;
    match (kernel < KERNEL_WITHOUT_LOCKED_RINGS && !geteuid().is_root(), locked) {
        (true, Some(few)) if few < 1 << 20 => findings.note(
            "locked-memory",
            format!("{} may be locked: before Linux 5.12 io_uring counts as that", Size(few)),
            Some("echo '* - memlock 8192' >/etc/security/limits.d/weir.conf (as root)".to_owned()),
        ),
        (_, Some(most)) => findings.ok(
            "locked-memory",
            format!("{} may be locked; Weir locks none on this kernel", Size(most)),
        ),
        (_, None) => findings.ok("locked-memory", "any amount may be locked"),
    }
}

fn sessions(findings: &mut Findings) {
    match weir_session::can_stop_calls() {
        Ok(()) => {
            findings.ok("sessions", "the kernel can stop calls: 'weir run --sync external' works")
        }
        Err(error) => findings.note(
            "sessions",
            format!(
                "the kernel cannot stop calls ({error}): 'weir run --sync external' does not work"
            ),
            Some(
                "Linux 5.19 or later; in a container, a seccomp profile that permits seccomp(2)"
                    .to_owned(),
            ),
        ),
    }
}

fn mount_helper(findings: &mut Findings) {
    const CHECK: &str = "mount-helper";
    let paths = ["/sbin/mount.fuse.weir", "/usr/sbin/mount.fuse.weir"];
    match paths.iter().find(|path| Path::new(path).exists()) {
        Some(path) => {
            findings.ok(CHECK, format!("{path}: mount(8) and /etc/fstab know 'fuse.weir'"))
        }
        None => {
            let own = std::env::current_exe().unwrap_or_else(|_| "weir".into());
            findings.note(
                CHECK,
                "mount(8) does not find /sbin/mount.fuse.weir: lines of /etc/fstab need it, or fuse3's mount.fuse",
                Some(format!("ln -s {} /sbin/mount.fuse.weir (as root)", word(&own))),
            );
        }
    }
}

/// A field of /proc/self/status.
fn status(name: &str) -> Option<String> {
    let text = fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().to_owned())
}

/// Whether this process has it in effect; true if that cannot be read.
fn has_capability(bit: u32) -> bool {
    let set = status("CapEff:").and_then(|set| u64::from_str_radix(&set, 16).ok());
    set.is_none_or(|set| set >> bit & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_compared_by_number() {
        assert_eq!(version("6.14.2-arch1"), (6, 14));
        assert_eq!(version("5.4"), (5, 4));
        assert_eq!(version(""), (0, 0));
        assert!(version("6.1.0-18-amd64") >= KERNEL_TRIED);
        assert!(version("5.9.0") < KERNEL_TRIED);
    }

    #[test]
    fn only_a_line_of_options_turns_it_on() {
        assert!(turns_on("# x\n options  fuse max_user_bgreq=1 enable_uring=1\n"));
        assert!(!turns_on("#options fuse enable_uring=1\n"));
        assert!(!turns_on("options fuse enable_uring=0\noptions fuse2 enable_uring=1\n"));
    }
}
