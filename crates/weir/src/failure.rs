//! How a command fails: one line on stderr and an exit status, decided here alone.

use std::fmt::Write as _;
use std::process::ExitCode;

use crate::config_file::ConfigFileError;
use crate::control::ControlError;
use crate::daemon::DaemonError;
use crate::daemonize::StartFailure;
use crate::http::ListenError;
use crate::options::OptionError;
use crate::settings::SettingsError;

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line does not make sense.
    #[error("{0}")]
    Usage(String),
    /// An `-o` list does not make sense.
    #[error(transparent)]
    Options(#[from] OptionError),
    /// Bounds contradict each other.
    #[error(transparent)]
    Settings(#[from] SettingsError),
    /// A configuration file cannot be used.
    #[error(transparent)]
    ConfigFile(#[from] ConfigFileError),
    /// The daemon could not start, or ended with an error.
    #[error(transparent)]
    Daemon(#[from] DaemonError),
    /// The daemon in the background could not start.
    #[error(transparent)]
    Start(#[from] StartFailure),
    /// The daemon could not be asked.
    #[error(transparent)]
    Control(#[from] ControlError),
    /// Nothing can be served at an address.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The daemon or the system refused.
    #[error("{0}")]
    Refused(String),
    /// What a session promised is not durable, and the session was killed.
    #[error("{0}")]
    Broken(String),
    /// A signal to end arrived before there was an answer.
    #[error("interrupted: there is no advice")]
    Interrupted(i32),
    /// There is no such program.
    #[error("{0}")]
    NotFound(String),
    /// The program cannot be executed.
    #[error("{0}")]
    NotExecutable(String),
}

impl Failure {
    /// 2 if the request makes no sense, 1 if it could not be carried out; for a program to run, as a shell does.
    pub fn exit_status(&self) -> u8 {
        match self {
            Failure::Usage(_) | Failure::Options(_) | Failure::Settings(_) => 2,
            Failure::ConfigFile(ConfigFileError::Invalid { .. }) => 2,
            Failure::ConfigFile(ConfigFileError::Unreadable { .. }) => 1,
            Failure::Start(start) => start.exit_status(),
            // EX_IOERR of sysexits.h.
            Failure::Broken(_) => 74,
            // As a shell says it of a command that the signal has killed.
            Failure::Interrupted(signal) => 128 + *signal as u8,
            Failure::NotFound(_) => 127,
            Failure::NotExecutable(_) => 126,
            Failure::Daemon(_) | Failure::Control(_) | Failure::Listen(_) | Failure::Refused(_) => {
                1
            }
        }
    }

    /// Prints the line and returns the exit status.
    pub fn report(&self) -> ExitCode {
        eprintln!("weir: {}", one_line(&without_errno(&self.to_string())));
        ExitCode::from(self.exit_status())
    }
}

/// The text without the error numbers that the standard library appends.
pub fn without_errno(text: &str) -> String {
    let mut rest = text;
    let mut plain = String::with_capacity(text.len());
    while let Some((before, after)) = rest.split_once(" (os error ") {
        plain.push_str(before);
        let digits = after.bytes().take_while(u8::is_ascii_digit).count();
        rest = after[digits..].strip_prefix(')').unwrap_or(after);
    }
    plain + rest
}

/// The text on one line: control characters, which a path may hold, are shown escaped.
pub fn one_line(text: &str) -> String {
    let mut line = String::with_capacity(text.len());
    for letter in text.trim_end().chars() {
        if letter.is_control() {
            let _ = write!(line, "{}", letter.escape_default());
        } else {
            line.push(letter);
        }
    }
    line
}

/// A value as JSON for people and programs. JSON escapes only some of the control characters, and a terminal obeys the others, too.
pub fn pretty_json(value: &impl serde::Serialize) -> String {
    let text =
        serde_json::to_string_pretty(value).expect("plain structures of strings and numbers");
    let mut shown = String::with_capacity(text.len() + 1);
    for letter in text.chars() {
        if letter.is_control() && letter != '\n' {
            // Outside of strings there are none, and Unicode has none above this.
            let _ = write!(shown, "\\u{:04x}", u32::from(letter));
        } else {
            shown.push(letter);
        }
    }
    shown + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stays_on_its_line() {
        assert_eq!(one_line("a\nb\tc\u{1b}[0m\n"), "a\\nb\\tc\\u{1b}[0m");
        assert_eq!(one_line("über 'x'"), "über 'x'");
    }

    #[test]
    fn json_has_no_control_characters_but_its_own_lines() {
        let text = "a\u{1b}[0m\u{7f}\u{9b}2J\n";
        let json = pretty_json(&[text]);
        assert!(json.chars().all(|letter| letter == '\n' || !letter.is_control()), "{json:?}");
        let read: Vec<String> = serde_json::from_str(&json).unwrap();
        assert_eq!(read, [text]);
    }

    #[test]
    fn error_numbers_are_left_out() {
        let error = std::io::Error::from_raw_os_error(2);
        let text = format!("/x: {error}: do something");
        assert_eq!(without_errno(&text), "/x: No such file or directory: do something");
        assert_eq!(without_errno("a (os error"), "a (os error");
    }

    #[test]
    fn statuses_tell_usage_from_the_rest() {
        assert_eq!(Failure::Usage(String::new()).exit_status(), 2);
        assert_eq!(Failure::Options(OptionError::Unknown("x".into())).exit_status(), 2);
        assert_eq!(Failure::Refused(String::new()).exit_status(), 1);
    }
}
