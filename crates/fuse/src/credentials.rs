//! The program that made a request: its user and group, and privileges that the kernel has not checked.

use weir_names::command::Creator;

/// The program a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller {
    /// File-system user.
    pub(crate) uid: u32,
    /// File-system group.
    pub(crate) gid: u32,
    /// Process; 0 if the daemon's PID namespace does not contain it.
    pub(crate) pid: u32,
}

/// CAP_FSETID, linux/capability.h.
const CAP_FSETID: u32 = 4;

impl Caller {
    /// The program as the creator of an inode, with `umask`.
    pub(crate) fn creator(&self, umask: u32) -> Creator {
        Creator { uid: self.uid, gid: self.gid, umask }
    }

    /// Whether setuid and setgid files keep these bits when the program writes to them (CAP_FSETID). Capabilities of another user
    /// namespace than the daemon's do not count: everybody can make one, and has all there.
    pub(crate) fn keeps_privileges(&self) -> bool {
        if self.uid == 0 {
            return true;
        }
        let effective = self.status("CapEff:");
        let effective = effective.and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
        effective.is_some_and(|effective| effective & 1 << CAP_FSETID != 0)
            && self.is_in_our_user_namespace()
    }

    fn is_in_our_user_namespace(&self) -> bool {
        let of = |process: &str| std::fs::read_link(format!("/proc/{process}/ns/user")).ok();
        let ours = of("self");
        ours.is_some() && of(&self.pid.to_string()) == ours
    }

    /// Whether the program belongs to a group.
    pub(crate) fn is_in_group(&self, gid: u32) -> bool {
        if self.gid == gid {
            return true;
        }
        let Some(groups) = self.status("Groups:") else {
            return false;
        };
        groups.split_ascii_whitespace().any(|group| group.parse() == Ok(gid))
    }

    /// A line of /proc/PID/status, without its key. `None` also if the process cannot be seen.
    fn status(&self, key: &str) -> Option<String> {
        if self.pid == 0 {
            return None;
        }
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()?;
        status.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller { uid: 4321, gid: 8765, pid: std::process::id() }
    }

    #[test]
    fn groups_and_capabilities_come_from_the_process() {
        assert!(caller().is_in_group(8765));
        assert!(!caller().is_in_group(999_999));
        let effective = caller().status("CapEff:").unwrap();
        let effective = u64::from_str_radix(effective.trim(), 16).unwrap();
        assert_eq!(caller().keeps_privileges(), effective & 1 << CAP_FSETID != 0);
        assert!(!Caller { pid: 0, ..caller() }.keeps_privileges());
        assert!(Caller { uid: 0, gid: 0, pid: 0 }.keeps_privileges());
    }
}
