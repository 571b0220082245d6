//! `weir-bench report`: the plots and tables of docs/results/*.md, from what `run nbw --json`,
//! `run awol --json` or `run lane --json` wrote.
//!
//! It measures nothing, and rounds only what it prints: the same file gives the same documents.

mod awol;
mod figures;
mod files;
mod lane;
mod markdown;
mod markers;
mod paper;
mod section;
mod tables;

use std::path::{Path, PathBuf};

use self::files::{file_name, publish};
use crate::error::{Error, Result};
use crate::nbw::results::{Case, Results, SUITE};
use crate::plot::Figure;

/// What is made of the results of one suite.
struct Part {
    /// The suite: also the name of its document and markers, and of the folder of its plots and results.
    suite: &'static str,
    heading: &'static str,
    section: fn(&Results, &str) -> String,
    figures: fn(&Results) -> Vec<(&'static str, Figure)>,
}

const PARTS: [Part; 2] = [
    Part {
        suite: SUITE,
        heading: section::HEADING,
        section: section::section,
        figures: figures::all,
    },
    Part {
        suite: crate::nbw::awol::SUITE,
        heading: awol::HEADING,
        section: awol::section,
        figures: awol::figures,
    },
];

/// Writes the plots, a copy of the results, and the part of the suite's document between its markers,
/// all under `out`, of a run and of those whose cases are added to it. The rest of the document stays.
/// Returns what was written.
pub fn report(file: &Path, added: &[PathBuf], out: &Path) -> Result<Vec<PathBuf>> {
    if lane::is_one(file)? {
        return lane::report(file, added, out);
    }
    let mut results = Results::load(file)?;
    let part = PARTS.iter().find(|part| part.suite == results.suite);
    let part = part.ok_or_else(|| Error::Missing {
        what: format!("{} is of the suite '{}'", file.display(), results.suite),
        remedy: "give the file that 'run nbw --json FILE' or 'run awol --json FILE' wrote".into(),
    })?;
    let mut copies = vec![(file, format!("{}.json", file_name(&results.profile.name, file)?))];
    let mut others = String::new();
    for path in added {
        let more = Results::load(path)?;
        let name = file_name(&more.profile.name, path)?;
        let taken = |name: &String| copies.iter().any(|(_, other)| other == name);
        let names = (2..).map(|nth| format!("{name}-{nth}.json"));
        let mut names = std::iter::once(format!("{name}.json")).chain(names);
        let name = names.find(|name| !taken(name)).expect("there are fewer copies than names");
        let raw = format!("{}/{name}", part.suite);
        others += &section::added(&more, &raw);
        copies.push((path, name));
        add(&mut results, more, path)?;
    }
    let section = (part.section)(&results, &format!("{}/{}", part.suite, copies[0].1)) + &others;
    let text = (part.suite, part.heading, section.as_str());
    publish(out, text, (part.figures)(&results), &copies)
}

/// Adds the cases of another run, none of which may be there.
fn add(results: &mut Results, more: Results, path: &Path) -> Result<()> {
    let same = |case: &&Case| results.find(&case.name, &case.contestant).is_some();
    let why = match more.cases.iter().find(same) {
        _ if more.suite != results.suite => Some(format!("is of the suite '{}'", more.suite)),
        Some(case) => Some(format!("has '{}' as well", case.name)),
        None => None,
    };
    if let Some(why) = why {
        return Err(Error::Missing {
            what: format!("{} {why}", path.display()),
            remedy: "add only runs of other cases of the same suite".into(),
        });
    }
    results.cases.extend(more.cases);
    results.complete &= more.complete;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::files::document_of;
    use super::*;
    use crate::nbw::sample;
    use std::fs;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary directory")
    }

    #[test]
    fn writes_everything_and_again_the_same() {
        let folder = folder();
        let file = folder.path().join("out.json");
        sample::results().save(&file).expect("saved");
        let out = folder.path().join("docs");
        fs::create_dir_all(&out).expect("made");
        fs::write(out.join(document_of(SUITE)), "# Mine\n\nkept\n").expect("written");
        let written = report(&file, &[], &out).expect("a report");
        assert_eq!(written.len(), 4 + 1 + 1);
        let read = |path: &PathBuf| fs::read(path).expect("written");
        let before: Vec<Vec<u8>> = written.iter().map(read).collect();
        let copy = out.join(SUITE).join("quick.json");
        let again = report(&copy, &[], &out).expect("a report of the copy");
        assert_eq!(again.len(), 4 + 1, "the copy is not copied onto itself");
        let after: Vec<Vec<u8>> = written.iter().map(read).collect();
        assert!(before == after);
        let document = fs::read_to_string(out.join(document_of(SUITE))).expect("text");
        assert!(document.starts_with("# Mine\n\nkept\n\n# "), "{document}");
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
    fn each_suite_has_its_own_document_and_others_have_none() {
        let folder = folder();
        let file = folder.path().join("out.json");
        let save = |suite: &str| {
            let mut results = sample::results();
            results.suite = suite.into();
            results.save(&file).expect("saved");
        };
        for (suite, heading) in [("nbw", section::HEADING), ("awol", awol::HEADING)] {
            save(suite);
            report(&file, &[], folder.path()).expect("a report");
            assert!(folder.path().join(suite).join("quick.json").exists());
            let document =
                fs::read_to_string(folder.path().join(document_of(suite))).expect("text");
            assert!(document.starts_with(heading), "{document}");
        }
        save("spill");
        assert!(report(&file, &[], folder.path()).is_err());
    }

    #[test]
    fn runs_of_other_cases_are_added() {
        let folder = folder();
        let [file, more] = ["out.json", "more.json"].map(|name| folder.path().join(name));
        let mut results = sample::results();
        results.save(&file).expect("saved");
        assert!(
            report(&file, std::slice::from_ref(&file), folder.path()).is_err(),
            "the same cases"
        );
        results.profile.name = "quick-interval".into();
        results.command = "weir-bench run --sweep".into();
        results.cases.truncate(1);
        results.cases[0].name = "hdd/interval/nrsw".into();
        results.save(&more).expect("saved");
        let written = report(&file, &[more], folder.path()).expect("a report of both");
        assert!(written.contains(&folder.path().join("nbw/quick-interval.json")));
        results.profile.name = "quick".into();
        results.save(&folder.path().join("more.json")).expect("saved");
        let again =
            report(&file, &[folder.path().join("more.json")], folder.path()).expect("a report");
        assert!(
            again.contains(&folder.path().join("nbw/quick-2.json")),
            "beside the other, not over it"
        );
        let document = fs::read_to_string(folder.path().join(document_of(SUITE))).expect("text");
        assert!(document.contains("    weir-bench run --sweep\n"), "{document}");
        results.suite = "awol".into();
        results.save(&folder.path().join("more.json")).expect("saved");
        assert!(report(&file, &[folder.path().join("more.json")], folder.path()).is_err());
    }

    #[test]
    fn refuses_what_would_leave_the_directory_or_lose_text() {
        let folder = folder();
        let file = folder.path().join("out.json");
        let mut results = sample::results();
        results.profile.name = "../up".into();
        results.save(&file).expect("saved");
        assert!(report(&file, &[], folder.path()).is_err());
        results.profile.name = "paper".into();
        results.save(&file).expect("saved");
        fs::write(folder.path().join(document_of(SUITE)), markers::begin(SUITE)).expect("written");
        let error = report(&file, &[], folder.path()).expect_err("an open marker");
        assert!(error.to_string().contains("nbw:end"), "{error}");
        assert!(!folder.path().join(SUITE).exists(), "nothing is written before that is known");
        assert!(report(&folder.path().join("none.json"), &[], folder.path()).is_err());
    }
}
