//! Users besides the daemon's own whose programs may use the lane.

use std::str::FromStr;

use nix::unistd::User;

/// The users' numbers, ascending, each once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneUsers(pub Vec<u32>);

/// Why a list of users is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaneUsersError {
    /// Neither a user's name nor a number.
    #[error(
        "there is no user '{0}': give names or numbers of users, separated by commas or colons"
    )]
    Unknown(String),
    /// The system's list of users cannot be asked.
    #[error("cannot look up the user '{name}': {why}")]
    LookUp {
        /// The user.
        name: String,
        /// The error of getpwnam_r(3).
        why: nix::Error,
    },
}

impl FromStr for LaneUsers {
    type Err = LaneUsersError;

    /// Names or numbers, separated by commas or colons (a comma ends a mount option). An empty list is allowed.
    fn from_str(text: &str) -> Result<LaneUsers, LaneUsersError> {
        if text.is_empty() {
            return Ok(LaneUsers::default());
        }
        let mut users = text
            .split([',', ':'])
            .map(|name| look_up(name.trim()))
            .collect::<Result<Vec<_>, _>>()?;
        users.sort_unstable();
        users.dedup();
        Ok(LaneUsers(users))
    }
}

/// As chown(1): an existing name counts as a name, even if it consists of digits.
fn look_up(name: &str) -> Result<u32, LaneUsersError> {
    // The last number, (uid_t) -1, is no user: chown(2).
    let number = name.parse().ok().filter(|&uid| uid != u32::MAX);
    match (User::from_name(name), number) {
        (Ok(Some(user)), _) => Ok(user.uid.as_raw()),
        (_, Some(uid)) => Ok(uid),
        (Ok(None), None) => Err(LaneUsersError::Unknown(name.to_owned())),
        (Err(why), None) => Err(LaneUsersError::LookUp { name: name.to_owned(), why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_names_or_numbers() {
        assert_eq!("root".parse(), Ok(LaneUsers(vec![0])));
        assert_eq!("4711, root:0:12".parse(), Ok(LaneUsers(vec![0, 12, 4711])));
        assert_eq!("".parse(), Ok(LaneUsers::default()));
        for (text, name) in [
            (",", ""),
            ("root,", ""),
            ("no such user", "no such user"),
            ("4294967295", "4294967295"),
        ] {
            let unknown = LaneUsersError::Unknown(name.to_owned());
            assert_eq!(text.parse::<LaneUsers>(), Err(unknown), "{text:?}");
        }
    }
}
