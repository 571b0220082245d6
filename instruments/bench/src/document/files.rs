//! The files of a report: what they are called, and how they are replaced.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::markers;
use crate::error::{Doing, Error, Result};
use crate::plot::Figure;

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
fn updated(document: &Path, (name, heading): (&str, &str), section: &str) -> Result<String> {
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

/// Writes a suite's document, and into the folder of its name what goes with it: plots, and copies of results by their
/// names. Nothing is written before all of it can be told. Returns what was.
pub fn publish(
    out: &Path,
    (suite, heading, section): (&str, &str, &str),
    figures: Vec<(&'static str, Figure)>,
    copies: &[(&Path, String)],
) -> Result<Vec<PathBuf>> {
    let document = out.join(document_of(suite));
    let text = updated(&document, (suite, heading), section)?;
    let folder = out.join(suite);
    fs::create_dir_all(&folder).doing("create", &folder)?;
    let mut written = Vec::new();
    let mut put = |path: PathBuf, bytes: &[u8]| -> Result<()> {
        write(&path, bytes)?;
        written.push(path);
        Ok(())
    };
    for (name, figure) in figures {
        put(folder.join(name), figure.svg().as_bytes())?;
    }
    for (file, name) in copies {
        let copy = folder.join(name);
        if !same_file(file, &copy) {
            put(copy, &fs::read(file).doing("read", file)?)?;
        }
    }
    put(document, text.as_bytes())?;
    Ok(written)
}

/// Whether both names lead to one file.
fn same_file(one: &Path, other: &Path) -> bool {
    match (fs::canonicalize(one), fs::canonicalize(other)) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

/// Replaces a file as a whole: a crash leaves the old or the new.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut new = path.as_os_str().to_owned();
    new.push(".new");
    let new = PathBuf::from(new);
    fs::write(&new, bytes).doing("write", &new)?;
    fs::rename(&new, path).doing("replace", path)
}
