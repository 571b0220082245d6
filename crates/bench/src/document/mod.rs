//! `weir-bench report`: plots and the tables of docs/RESULTS.md from what `run nbw --json` wrote.
//!
//! Measures nothing and rounds only what it prints: the same file gives the same documents.

mod figures;
mod markdown;
mod markers;
mod paper;
mod section;
mod tables;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use crate::error::{Doing, Error, Result};
use crate::nbw::results::Results;

/// Where plots and results are, in the directory of the documents.
const FOLDER: &str = "nbw";
/// The document.
const DOCUMENT: &str = "RESULTS.md";

/// Writes the plots, a copy of the results, and the part of `RESULTS.md` between its markers, all
/// under `out`. What else is in the document stays. Returns what was written.
pub fn report(file: &Path, out: &Path) -> Result<Vec<PathBuf>> {
    let results = Results::load(file)?;
    let folder = out.join(FOLDER);
    let name = format!("{}.json", file_name(&results.profile.name, file)?);
    let document = out.join(DOCUMENT);
    let text = updated(&document, &results, &format!("{FOLDER}/{name}"))?;
    fs::create_dir_all(&folder).doing("create", &folder)?;
    let mut written = Vec::new();
    for (name, figure) in figures::all(&results) {
        let path = folder.join(name);
        write(&path, figure.svg().as_bytes())?;
        written.push(path);
    }
    let copy = folder.join(name);
    if !same_file(file, &copy) {
        write(&copy, &fs::read(file).doing("read", file)?)?;
        written.push(copy);
    }
    write(&document, text.as_bytes())?;
    written.push(document);
    Ok(written)
}

/// The profile's name, which comes from a file and becomes one's name.
fn file_name<'a>(profile: &'a str, file: &Path) -> Result<&'a str> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    if !profile.is_empty() && profile.bytes().all(plain) {
        return Ok(profile);
    }
    Err(Error::Missing {
        what: format!("{} names its profile '{profile}'", file.display()),
        remedy: "a profile's name has letters, digits, '-' and '_' only".into(),
    })
}

/// The document with the part about `results` in it.
fn updated(document: &Path, results: &Results, raw: &str) -> Result<String> {
    let text = match fs::read_to_string(document) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(error).doing("read", document),
    };
    let section = section::section(results, raw);
    markers::replace(&text, section::HEADING, &section).map_err(|why| Error::Missing {
        what: format!("cannot tell which part of {} is to be replaced: {why}", document.display()),
        remedy: format!("leave one '{}' and one '{}' after it", markers::BEGIN, markers::END),
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbw::sample;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path =
                std::env::temp_dir().join(format!("weir-report-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).expect("a temporary directory");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn writes_everything_and_again_the_same() {
        let folder = Folder::new("whole");
        let file = folder.0.join("out.json");
        sample::results().save(&file).expect("saved");
        let out = folder.0.join("docs");
        fs::create_dir_all(&out).expect("made");
        fs::write(out.join(DOCUMENT), "# Mine\n\nkept\n").expect("written");
        let written = report(&file, &out).expect("a report");
        assert_eq!(written.len(), 4 + 1 + 1);
        let read = |path: &PathBuf| fs::read(path).expect("written");
        let before: Vec<Vec<u8>> = written.iter().map(read).collect();
        let copy = out.join(FOLDER).join("quick.json");
        let again = report(&copy, &out).expect("a report of the copy");
        assert_eq!(again.len(), 4 + 1, "the copy is not copied onto itself");
        let after: Vec<Vec<u8>> = written.iter().map(read).collect();
        assert!(before == after);
        let document = fs::read_to_string(out.join(DOCUMENT)).expect("text");
        assert!(document.starts_with("# Mine\n\nkept\n\n## "), "{document}");
    }

    #[test]
    fn whatever_is_missing_or_absurd_is_a_gap() {
        let whole = sample::results();
        let check = |results: &Results| {
            let text = section::section(results, "nbw/quick.json");
            for (name, figure) in figures::all(results) {
                let svg = figure.svg();
                assert!(!svg.contains("NaN") && !svg.contains(">inf"), "{name}: {svg}");
            }
            assert!(!text.contains("NaN") && !text.contains("inf x"), "{text}");
            assert!(crate::nbw::table::table(results).starts_with("case"));
        };
        for who in ["ext4", "weir-async-bg", "weir-lazy", "weir-auto"] {
            let mut results = whole.clone();
            results.cases.retain(|case| case.contestant != who);
            check(&results);
            results = whole.clone();
            results.cases.retain(|case| case.contestant == who);
            check(&results);
        }
        for at in 0..whole.cases.len() {
            for ratio in [0.0, -1.0, 1e300, 5e-324] {
                let mut results = whole.clone();
                let case = &mut results.cases[at];
                case.ratio_to_blocking = ratio;
                case.ops_per_s = ratio;
                case.bound_ops_per_s = Some(ratio);
                case.classes.iter_mut().for_each(|class| class.ratio_to_blocking = ratio);
                case.rounds.clear();
                check(&results);
            }
        }
    }

    #[test]
    fn refuses_what_would_leave_the_directory_or_lose_text() {
        let folder = Folder::new("refused");
        let file = folder.0.join("out.json");
        let mut results = sample::results();
        results.profile.name = "../up".into();
        results.save(&file).expect("saved");
        assert!(report(&file, &folder.0).is_err());
        results.profile.name = "paper".into();
        results.save(&file).expect("saved");
        fs::write(folder.0.join(DOCUMENT), markers::BEGIN).expect("written");
        let error = report(&file, &folder.0).expect_err("an open marker");
        assert!(error.to_string().contains("nbw:end"), "{error}");
        assert!(!folder.0.join(FOLDER).exists(), "nothing is written before that is known");
        assert!(report(&folder.0.join("none.json"), &folder.0).is_err());
    }
}
