//! Paths in commands that messages propose: as a shell reads them, so that a name with a space or a semicolon is one word.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use weir_advise::verdict::quoted;

/// A path as one word of a command. With control characters, or bytes that are not UTF-8, in the form `$'...'`, which a terminal shows
/// as it is.
pub fn word(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    // It would be an option.
    let before = if bytes.starts_with(b"-") { "./" } else { "" };
    match path.to_str() {
        Some(text) if !text.chars().any(char::is_control) => quoted(&format!("{before}{text}")),
        _ => format!("$'{before}{}'", escaped(bytes)),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let escape = |byte: &u8| match byte {
        b'\\' | b'\'' => format!("\\{}", char::from(*byte)),
        b' '..=b'~' => char::from(*byte).to_string(),
        // Three digits: what follows cannot be taken for another one.
        _ => format!("\\{byte:03o}"),
    };
    bytes.iter().map(escape).collect()
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::process::Command;

    use super::*;

    #[test]
    fn a_shell_reads_the_path_again() {
        for bytes in [
            &b"/srv/data"[..],
            b"/srv/my data",
            b"/srv/a;reboot",
            b"/srv/it's $HOME `x` \"y\" \\",
            b"/srv/\x1b]0;taken\x07\nb1",
            b"/srv/\xff\xfe7",
            "/srv/\u{9b}2J é".as_bytes(),
            b"",
            b"/~",
        ] {
            let path = Path::new(OsStr::from_bytes(bytes));
            let word = word(path);
            assert!(!word.chars().any(char::is_control), "{word:?}");
            let script = format!("printf %s {word}");
            let said = Command::new("bash").args(["-c", &script]).output().unwrap();
            assert_eq!(said.stdout, bytes, "{word}");
        }
        assert_eq!(word(Path::new("/srv/data")), "/srv/data");
        assert_eq!(word(Path::new("-rf")), "./-rf");
    }
}
