//! `weir-bench picture`: docs/results.svg, the picture of the README, from the tables of docs/RESULTS.md.
//!
//! A row of RESULTS is a bar if its figures are bold. Each of these figures must be one of the documents that the row names,
//! rounded: so neither the picture nor the bold rows can say what was not measured.
//!
//! Owns which rows are shown and where they come from. `results` reads the tables, `draw` makes the image. It measures nothing.
//!
//! Invariant: the same documents give the same bytes; a test of this crate compares them with the committed picture.

mod draw;
mod results;

use std::fs;
use std::path::{Path, PathBuf};

use self::results::Bar;
use crate::error::{Doing, Error, Result};

/// What `weir-bench picture` takes.
#[derive(clap::Args)]
pub struct Arguments {
    /// The document with the tables.
    #[arg(long, value_name = "FILE", default_value = "docs/RESULTS.md")]
    results: PathBuf,
    /// The picture.
    #[arg(long, value_name = "FILE", default_value = "docs/results.svg")]
    out: PathBuf,
    /// Write nothing, and fail if the picture is not what the tables give.
    #[arg(long)]
    check: bool,
}

impl Arguments {
    /// Writes or checks the picture.
    pub fn run(self) -> Result<()> {
        let drawn = picture(&self.results)?;
        if !self.check {
            fs::write(&self.out, drawn).doing("write", &self.out)?;
            println!("{}", self.out.display());
            return Ok(());
        }
        if fs::read_to_string(&self.out).doing("read", &self.out)? == drawn {
            return Ok(());
        }
        Err(Error::Different(format!(
            "{} is not what {} gives: run 'weir-bench picture'",
            self.out.display(),
            self.results.display()
        )))
    }
}

/// The picture of the tables in `document`.
fn picture(document: &Path) -> Result<String> {
    let text = fs::read_to_string(document).doing("read", document)?;
    let bars = results::bars(&text).map_err(|why| unusable(document, &why))?;
    for bar in &bars {
        measured(document, bar)?;
    }
    Ok(draw::svg(bars))
}

/// Fails if a figure of the row is in none of the documents that the row names.
fn measured(document: &Path, bar: &Bar) -> Result<()> {
    let folder = document.parent().unwrap_or(Path::new("."));
    let mut there = Vec::new();
    for page in &bar.pages {
        let page = folder.join(page);
        there.extend(results::figures_of(&fs::read_to_string(&page).doing("read", &page)?));
    }
    let lacking = bar.figures.iter().find(|figure| !there.iter().any(|one| figure.is(*one)));
    lacking.map_or(Ok(()), |figure| {
        let (figure, label, pages) = (&figure.text, &bar.label, bar.pages.join(" and "));
        Err(unusable(document, &format!("{figure}x of '{label}' is not in {pages}")))
    })
}

fn unusable(document: &Path, why: &str) -> Error {
    Error::Missing {
        what: format!("cannot draw the figures of {}: {why}", document.display()),
        remedy: "correct the row, or do not make its figures bold".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn docs() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs")
    }

    #[test]
    fn the_committed_picture_is_what_results_gives() {
        let drawn =
            picture(&docs().join("RESULTS.md")).expect("RESULTS has what the picture needs");
        let committed = fs::read_to_string(docs().join("results.svg")).expect("the picture");
        assert!(committed == drawn, "run 'weir-bench picture' and commit docs/results.svg");
        // It shows what is slower, too.
        assert!(drawn.contains(draw::SLOWER) && drawn.contains(draw::FASTER));
    }

    #[test]
    fn a_figure_that_no_document_has_is_refused() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let results = folder.path().join("RESULTS.md");
        fs::write(folder.path().join("page.md"), "| a | 100/s | 2.67x |\n").expect("written");
        let draws = |figure: &str| {
            let row = format!("| a load | **{figure}** | [page](page.md) |\n");
            fs::write(&results, row).expect("written");
            picture(&results)
        };
        assert!(draws("2.7x").is_ok() && draws("2.67x").is_ok());
        let message = draws("2.8x").expect_err("not measured").to_string();
        assert!(message.contains("2.8x of 'a load' is not in page.md"), "{message}");
        assert!(draws("many").is_err(), "no figure");
    }

    #[test]
    fn a_stale_picture_is_found() {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let (results, out) = (folder.path().join("RESULTS.md"), folder.path().join("results.svg"));
        fs::write(folder.path().join("page.md"), "| a | 2.67x | 0.5x |\n").expect("written");
        fs::write(&results, "| a load | **2.7x** | [page](page.md) |\n").expect("written");
        let run = |check| Arguments { results: results.clone(), out: out.clone(), check }.run();
        run(false).expect("drawn");
        run(true).expect("the same");
        fs::write(&results, "| a load | **0.5x** | [page](page.md) |\n").expect("written");
        assert!(run(true).is_err());
    }
}
