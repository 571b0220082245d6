//! What was found, and how it is shown: a line each, or JSON.

use std::fmt::Write as _;

use serde::Serialize;

use crate::failure::{one_line, without_errno};

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// A mount works; something is slower, or cannot be done.
    Note,
    /// A mount fails.
    Problem,
}

impl Level {
    fn name(self) -> &'static str {
        match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Problem => "problem",
        }
    }
}

/// One of them.
#[derive(Debug, Serialize)]
struct Finding {
    check: &'static str,
    level: Level,
    found: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    mend: Option<String>,
}

/// All of them, in order.
#[derive(Debug, Default)]
pub struct Findings(Vec<Finding>);

#[derive(Serialize)]
struct Report<'a> {
    weir_version: &'static str,
    source: Option<String>,
    mountpoint: Option<String>,
    ready: bool,
    findings: &'a [Finding],
}

impl Findings {
    /// Something is as it should be.
    pub fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.add(check, Level::Ok, found.into(), None);
    }

    /// A mount works without it.
    pub fn note(&mut self, check: &'static str, found: impl Into<String>, mend: Option<String>) {
        self.add(check, Level::Note, found.into(), mend);
    }

    /// A mount fails.
    pub fn problem(&mut self, check: &'static str, found: impl Into<String>, mend: Option<String>) {
        self.add(check, Level::Problem, found.into(), mend);
    }

    fn add(&mut self, check: &'static str, level: Level, found: String, mend: Option<String>) {
        let found = one_line(&without_errno(&found));
        let mend = mend.map(|mend| one_line(&mend));
        self.0.push(Finding { check, level, found, mend });
    }

    /// The checks that found something of this level, each once.
    pub fn of(&self, level: Level) -> Vec<&'static str> {
        let mut checks: Vec<&'static str> =
            self.0.iter().filter(|finding| finding.level == level).map(|one| one.check).collect();
        checks.dedup();
        checks
    }

    /// A line for each, and one below for what mends it.
    pub fn text(&self) -> String {
        let wide = self.0.iter().map(|finding| finding.check.len()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { check, level, found, mend } in &self.0 {
            let _ = writeln!(text, "{:<8} {check:<wide$}  {found}", level.name());
            if let Some(mend) = mend {
                let _ = writeln!(text, "{:<8} {:<wide$}  to mend: {mend}", "", "");
            }
        }
        text
    }

    /// The same as an object.
    pub fn json(&self, source: Option<String>, mountpoint: Option<String>) -> String {
        let report = Report {
            weir_version: env!("CARGO_PKG_VERSION"),
            source,
            mountpoint,
            ready: self.of(Level::Problem).is_empty(),
            findings: &self.0,
        };
        serde_json::to_string_pretty(&report).expect("plain structures of strings") + "\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn findings_are_lines_and_json() {
        let mut findings = Findings::default();
        findings.ok("kernel", "Linux 6.1");
        findings.note("weir-run", "no\nlibrary (os error 2)", Some("install it".to_owned()));
        assert_eq!(
            findings.text(),
            "ok       kernel    Linux 6.1\nnote     weir-run  no\\nlibrary\n                   to mend: install it\n"
        );
        assert!(findings.json(None, None).contains("\"ready\": true"));
        findings.problem("fuse", "missing", None);
        assert_eq!(findings.of(Level::Problem), ["fuse"]);
        let json: serde_json::Value =
            serde_json::from_str(&findings.json(Some("/s".into()), None)).unwrap();
        assert_eq!(json["ready"], false);
        assert_eq!(json["findings"][2]["level"], "problem");
        assert!(json["findings"][0].get("mend").is_none());
    }
}
