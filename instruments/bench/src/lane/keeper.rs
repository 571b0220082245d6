//! A run under way: each case is kept in a file as it comes, so that a run that is stopped leaves what it found.

use std::path::Path;
use std::time::Instant;

use super::results::{Case, Results};
use crate::error::{Error, Result};
use crate::nbw::run::{command_line, identity};
use crate::report::{Goal, line, machine};

/// The results so far, and where they go.
pub struct Keeper<'a> {
    /// They.
    pub results: Results,
    json: Option<&'a Path>,
    start: Instant,
}

impl<'a> Keeper<'a> {
    /// Nothing measured yet. Fails if the file cannot be written: now, and not after the first minutes.
    pub fn begin(
        suite: &str,
        profile: &str,
        transport: &str,
        weir: &Path,
        passed_over: Vec<String>,
        json: Option<&'a Path>,
    ) -> Result<Keeper<'a>> {
        let results = Results {
            suite: suite.into(),
            command: command_line(),
            machine: machine(),
            profile: profile.into(),
            transport: transport.into(),
            weir: identity(weir)?,
            passed_over,
            ..Results::default()
        };
        let mut keeper = Keeper { results, json, start: Instant::now() };
        keeper.save()?;
        Ok(keeper)
    }

    /// Keeps one more.
    pub fn add(&mut self, case: Case) -> Result<()> {
        self.results.cases.push(case);
        self.save()
    }

    /// Ends a run: says what was left out, and which goals were reached. All there is was asked for if it is `whole`.
    pub fn end(mut self, whole: bool, goals: impl Fn(&Results) -> Vec<Goal>) -> Result<()> {
        for why in &self.results.passed_over {
            println!("left out: {why}");
        }
        if self.results.cases.is_empty() {
            return Err(Error::Missing {
                what: "nothing could be measured".into(),
                remedy: "see the lines above, or ask for another case or home".into(),
            });
        }
        self.results.complete = whole && self.results.passed_over.is_empty();
        self.save()?;
        println!("\nGoals ({:.0} s in all)", self.results.took_seconds);
        for goal in goals(&self.results) {
            println!("  {}", line(&goal));
        }
        Ok(())
    }

    /// Writes the file.
    pub fn save(&mut self) -> Result<()> {
        self.results.took_seconds = self.start.elapsed().as_secs_f64();
        self.json.map_or(Ok(()), |path| self.results.save(path))
    }
}
