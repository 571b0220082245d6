//! Access control lists in the form that they have as extended attributes (linux/posix_acl_xattr.h).

/// The version of the form; the first four bytes.
const VERSION: u32 = 2;

/// Bytes of an entry: a tag and permissions of two bytes each, and an identity of four.
const ENTRY_LEN: usize = 8;

/// The tags of the owner, the group and all others, in the order that the kernel keeps.
const OF_A_MODE: [u16; 3] = [0x01, 0x04, 0x20];

/// The permissions, 0 to 0o777, of an ACL which says no more than a mode: owner, group and all others.
pub(crate) fn permissions(acl: &[u8]) -> Option<u32> {
    let (version, entries) = acl.split_first_chunk()?;
    if u32::from_le_bytes(*version) != VERSION || entries.len() != OF_A_MODE.len() * ENTRY_LEN {
        return None;
    }
    entries.chunks_exact(ENTRY_LEN).zip(OF_A_MODE).try_fold(0, |mode, (entry, expected)| {
        let tag = u16::from_le_bytes([entry[0], entry[1]]);
        let permissions = u16::from_le_bytes([entry[2], entry[3]]);
        (tag == expected && permissions <= 0o7).then(|| mode << 3 | u32::from(permissions))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(entries: &[(u16, u16)]) -> Vec<u8> {
        let mut acl = VERSION.to_le_bytes().to_vec();
        for (tag, permissions) in entries {
            acl.extend(tag.to_le_bytes());
            acl.extend(permissions.to_le_bytes());
            acl.extend(u32::MAX.to_le_bytes());
        }
        acl
    }

    #[test]
    fn an_acl_of_three_entries_is_a_mode() {
        assert_eq!(permissions(&acl(&[(1, 6), (4, 4), (0x20, 0)])), Some(0o640));
        assert_eq!(permissions(&acl(&[(1, 7), (4, 7), (0x20, 7)])), Some(0o777));
    }

    #[test]
    fn what_says_more_or_is_damaged_is_none() {
        let mode = [(1, 6), (4, 4), (0x20, 0)];
        let with_user_and_mask = [(1, 6), (2, 7), (4, 4), (0x10, 7), (0x20, 0)];
        assert_eq!(permissions(&acl(&with_user_and_mask)), None);
        assert_eq!(permissions(&acl(&mode[..2])), None);
        assert_eq!(permissions(&acl(&[(1, 6), (0x20, 4), (4, 0)])), None, "another order");
        assert_eq!(permissions(&acl(&[(1, 8), (4, 4), (0x20, 0)])), None);
        let whole = acl(&mode);
        for len in 0..whole.len() {
            assert_eq!(permissions(&whole[..len]), None, "{len} bytes");
        }
        let mut other_version = whole;
        other_version[0] = 1;
        assert_eq!(permissions(&other_version), None);
    }
}
