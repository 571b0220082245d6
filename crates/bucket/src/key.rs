//! Keys of objects and names of files.
//!
//! A key is the prefix and, for each directory on the way, a *segment* and a slash. A segment is the file's name, unless
//! that is impossible: then the file is shown under an *escaped name*, `weir%…`, and never hidden. A node keeps its
//! segment beside its name, so an escaped name is never read back; names that begin like one cannot be given here.
//!
//! | segment | shown as |
//! |---|---|
//! | empty (`a//b`), `.`, `..` | `weir%`, `weir%.`, `weir%..` |
//! | of an object where there also is a directory of that name | `weir%=NAME` |
//! | empty, of an object (`a/` with content, inside `a`) | `weir%=` |
//! | begins with `weir%`, or has a byte 0 | `weir%` and the segment with `%`, `=`, `~` and control characters as `%XX` |
//! | more than 255 bytes | `weir%~`, 16 hexadecimal digits, `~`, and its beginning |

/// What an escaped name begins with.
pub const ESCAPE: &str = "weir%";
/// What Weir keeps for itself in a prefix begins so; files of these names are not shown in its root.
pub const OWN: &str = ".weir-";
/// The longest name, bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// The longest key, bytes.
pub const KEY_BYTES_MAX: usize = 1024;

/// The name under which a segment is shown. `shadowed`: it is an object's, and a directory has the same.
pub fn name_of(segment: &str, shadowed: bool) -> String {
    let impossible = segment.is_empty()
        || segment == "."
        || segment == ".."
        || segment.contains('\0')
        || segment.len() > NAME_BYTES_MAX
        || segment.starts_with(ESCAPE);
    if !impossible && !shadowed {
        return segment.to_owned();
    }
    let mut name = String::from(ESCAPE);
    if shadowed {
        name.push('=');
    }
    for character in segment.chars() {
        match character {
            '%' | '=' | '~' | '\0'..='\x1f' | '\x7f' => {
                name.push_str(&format!("%{:02X}", u32::from(character)));
            }
            _ => name.push(character),
        }
    }
    if name.len() <= NAME_BYTES_MAX {
        return name;
    }
    let backwards: Vec<u8> = name.bytes().rev().collect();
    let (one, two) = (crc32c::crc32c(name.as_bytes()), crc32c::crc32c(&backwards));
    let mut beginning = &name[ESCAPE.len()..];
    while beginning.len() > 200 {
        let mut at = beginning.len() - 1;
        while !beginning.is_char_boundary(at) {
            at -= 1;
        }
        beginning = &beginning[..at];
    }
    format!("{ESCAPE}~{one:08x}{two:08x}~{beginning}")
}

/// Whether a file may be given that name here.
pub fn may_be_made(name: &str, in_root: bool) -> bool {
    !(name.starts_with(ESCAPE) || in_root && name.starts_with(OWN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_that_are_possible_are_themselves() {
        for name in ["a", ".git", "ä b", "100%", "=", "...", "~x"] {
            assert_eq!(name_of(name, false), name);
        }
        assert_eq!(name_of("a", true), "weir%=a");
        assert_eq!(name_of("", true), "weir%=");
        assert_eq!(name_of("", false), "weir%");
        assert_eq!(name_of("..", false), "weir%..");
        assert_eq!(name_of("weir%x", false), "weir%weir%25x");
        assert!(!may_be_made(".weir-lease", true) && may_be_made(".weir-lease", false));
    }

    fn segment() -> impl Strategy<Value = String> {
        prop_oneof!["[a.%=~\0\u{e4}]{0,4}", "weir%[a=~%2]{0,3}", "[a\u{20ac}]{80,300}",]
    }

    proptest! {
        #[test]
        fn each_segment_has_a_name_of_its_own(a in segment(), b in segment(), x: bool, y: bool) {
            for (segment, shadowed) in [(&a, x), (&b, y)] {
                let name = name_of(segment, shadowed);
                prop_assert!(!name.is_empty() && name != "." && name != ".." && name.len() <= NAME_BYTES_MAX);
                prop_assert!(!name.contains('\0') && !name.contains('/'));
            }
            prop_assert_eq!(name_of(&a, x) == name_of(&b, y), a == b && x == y);
        }
    }
}
