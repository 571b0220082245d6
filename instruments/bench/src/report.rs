//! What a benchmark run says: figures, and goals they are held against, as a table and as JSON.

use std::borrow::Cow;
use std::fs;
use std::path::Path;

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::error::Result;

/// A goal and whether it was reached.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    /// What is measured.
    pub name: Cow<'static, str>,
    /// What was measured.
    pub measured: f64,
    /// What it should be.
    pub goal: f64,
    /// Unit of both.
    pub unit: &'static str,
    /// Whether more is better.
    pub at_least: bool,
    /// Whether it was reached.
    pub reached: bool,
}

impl Goal {
    /// `measured` should be at most `goal`.
    pub fn at_most(
        name: impl Into<Cow<'static, str>>,
        measured: f64,
        goal: f64,
        unit: &'static str,
    ) -> Goal {
        let name = name.into();
        Goal { name, measured, goal, unit, at_least: false, reached: measured <= goal }
    }

    /// `measured` should be at least `goal`.
    pub fn at_least(
        name: impl Into<Cow<'static, str>>,
        measured: f64,
        goal: f64,
        unit: &'static str,
    ) -> Goal {
        let name = name.into();
        Goal { name, measured, goal, unit, at_least: true, reached: measured >= goal }
    }
}

/// Everything one run found.
#[derive(Default)]
pub struct Report {
    goals: Vec<Goal>,
    figures: Map<String, Value>,
}

impl Report {
    /// Adds a goal and prints it.
    fn goal(&mut self, goal: Goal) {
        println!("  {}", line(&goal));
        self.goals.push(goal);
    }

    /// Adds, and prints, that `measured` should be at most `goal`.
    pub fn at_most(&mut self, name: &'static str, measured: f64, goal: f64, unit: &'static str) {
        self.goal(Goal::at_most(name, measured, goal, unit));
    }

    /// Adds, and prints, that `measured` should be at least `goal`.
    pub fn at_least(&mut self, name: &'static str, measured: f64, goal: f64, unit: &'static str) {
        self.goal(Goal::at_least(name, measured, goal, unit));
    }

    /// Adds figures under a name.
    pub fn figures(&mut self, name: &str, figures: impl Serialize) {
        let value = serde_json::to_value(figures).unwrap_or(Value::Null);
        self.figures.insert(name.to_owned(), value);
    }

    /// Prints all goals again, together.
    pub fn print_goals(&self) {
        println!("\nGoals");
        for goal in &self.goals {
            println!("  {}", line(goal));
        }
    }

    /// Writes everything as JSON.
    pub fn save(&self, path: &Path) -> Result<()> {
        let report = json!({
            "machine": machine(),
            "goals": self.goals,
            "figures": self.figures,
        });
        crate::json::save(path, &report)
    }
}

/// A goal in one line.
pub fn line(goal: &Goal) -> String {
    format!(
        "{:<9} {:<58} {:>9} {} (goal: at {} {})",
        if goal.reached { "reached" } else { "MISSED" },
        goal.name,
        number(goal.measured),
        goal.unit,
        if goal.at_least { "least" } else { "most" },
        number(goal.goal),
    )
}

/// A figure with as many digits as mean something.
pub fn number(value: f64) -> String {
    match value.abs() {
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// What it ran on, as far as it matters to the figures.
pub fn machine() -> Value {
    let first_after = |path: &str, key: &str| {
        fs::read_to_string(path).ok().and_then(|text| {
            let line = text.lines().find(|line| line.starts_with(key))?;
            Some(line.split_once(':')?.1.trim().to_owned())
        })
    };
    json!({
        "kernel": fs::read_to_string("/proc/sys/kernel/osrelease").ok().map(|s| s.trim().to_owned()),
        "cpu": first_after("/proc/cpuinfo", "model name"),
        "cpus": std::thread::available_parallelism().map_or(0, usize::from),
        "memory": first_after("/proc/meminfo", "MemTotal"),
    })
}
