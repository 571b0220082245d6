//! How a program that was run ended, as `weir run` tells its own caller.

use std::ffi::OsStr;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use crate::failure::Failure;

/// The program's own status, or that of a shell whose command was killed.
pub fn status_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    // waitpid(2): both are eight bits.
    code as u8
}

/// Why there is no program.
pub fn cannot_run(name: &OsStr, error: io::Error) -> Failure {
    let message = format!("cannot run {}: {error}", name.to_string_lossy());
    match error.kind() {
        io::ErrorKind::NotFound => Failure::NotFound(message),
        _ => Failure::NotExecutable(message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_killed_program_ends_as_in_a_shell() {
        assert_eq!(status_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(status_code(ExitStatus::from_raw(3 << 8)), 3);
    }
}
