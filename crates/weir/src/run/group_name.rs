//! The name that `weir run --group` gives to a group.

use std::fmt;
use std::str::FromStr;

/// Longest name, in bytes.
const NAME_BYTES_MAX: usize = 64;

/// The name of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name(String);

impl FromStr for Name {
    type Err = String;

    fn from_str(name: &str) -> Result<Name, String> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(is_plain) {
            return Err(format!(
                "a name has 1 to {NAME_BYTES_MAX} letters, digits, dots, underscores and hyphens"
            ));
        }
        Ok(Name(name.to_owned()))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_plain_words() {
        let longest = "a".repeat(NAME_BYTES_MAX);
        for name in ["g", "Build-7_x.y", &longest] {
            assert_eq!(name.parse::<Name>().unwrap().to_string(), name);
        }
        let longer = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["", "a b", "a/b", "ä", "a\0", &longer] {
            assert!(name.parse::<Name>().is_err(), "{name:?}");
        }
    }
}
