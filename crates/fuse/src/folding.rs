//! Names that are equal where home takes upper and lower case for the same.
//!
//! Making `name` there makes `NAME` appear, of which the kernel would go on to say that it is missing, had it been let
//! remember that.

/// Whether some file system may treat `name` as equal to `ascii`, a name in lower case. Characters outside
/// ASCII are skipped: case folding by Unicode drops invisible marks such as U+200D.
pub(crate) fn may_equal(name: &[u8], ascii: &str) -> bool {
    let letters = name.iter().filter(|byte| byte.is_ascii()).map(u8::to_ascii_lowercase);
    letters.eq(ascii.bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_may_be_the_same_are_told_from_others() {
        for same in [".weir", ".WEIR", ".Weir", ".we\u{200d}ir", "\u{feff}.wEIr"] {
            assert!(may_equal(same.as_bytes(), ".weir"), "{same}");
        }
        for other in ["weir", ".weir2", ".wei", ".w\u{e9}ir", ""] {
            assert!(!may_equal(other.as_bytes(), ".weir"), "{other}");
        }
    }
}
