//! The files of a report: what they are called, and how they are replaced.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::markers;
use crate::error::{Doing, Error, Result};

/// The name of a suite's document.
pub fn document_of(suite: &str) -> String {
    format!("{suite}.md")
}

/// The profile's name, which comes from a file and becomes one's name.
pub fn file_name<'a>(profile: &'a str, file: &Path) -> Result<&'a str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !profile.is_empty() && profile.bytes().all(plain) {
        return Ok(profile);
    }
    Err(Error::Missing {
        what: format!("{} names its profile '{profile}'", file.display()),
        remedy: "a profile's name has letters, digits, '-' and '_' only".into(),
    })
}

/// The document with `section` as the part of that name, under the heading if it is new.
pub fn updated(document: &Path, (name, heading): (&str, &str), section: &str) -> Result<String> {
    let text = match fs::read_to_string(document) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).doing("read", document),
    };
    markers::replace(&text, name, heading, section).map_err(|why| Error::Missing {
        what: format!("cannot tell which part of {} is to be replaced: {why}", document.display()),
        remedy: format!(
            "leave one '{}' and one '{}' after it",
            markers::begin(name),
            markers::end(name)
        ),
    })
}

/// Whether both names lead to one file.
pub fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Replaces a file as a whole: a crash leaves the old or the new.
pub fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    fs::write(&new, bytes).doing("write", &new)?;
    fs::rename(&new, path).doing("replace", path)
}
