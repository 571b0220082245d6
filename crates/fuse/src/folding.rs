//! Names that are equal where home ignores case.
//!
//! Making `name` in such a directory makes `NAME` exist as well. If the kernel had cached that `NAME` is missing, it
//! would continue to report that.

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
    fn names_that_may_be_equal_are_recognised() {
        for same in [".weir", ".WEIR", ".Weir", ".we\u{200d}ir", "\u{feff}.wEIr"] {
            assert!(may_equal(same.as_bytes(), ".weir"), "{same}");
        }
        for other in ["weir", ".weir2", ".wei", ".w\u{e9}ir", ""] {
            assert!(!may_equal(other.as_bytes(), ".weir"), "{other}");
        }
    }
}
