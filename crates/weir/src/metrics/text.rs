//! Prometheus' text format: families of samples, with their HELP and TYPE lines.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Only grows, from the mount's start.
    Counter,
    /// Is as of now.
    Gauge,
    /// Quantiles, a sum and a count.
    Summary,
}

/// A sample's value.
#[derive(Clone, Copy, Debug)]
pub enum Value {
    /// Written with all its digits.
    Whole(u64),
    /// Such as seconds.
    Real(f64),
}

impl From<u64> for Value {
    fn from(whole: u64) -> Value {
        Value::Whole(whole)
    }
}

impl From<f64> for Value {
    fn from(real: f64) -> Value {
        Value::Real(real)
    }
}

impl From<bool> for Value {
    fn from(is: bool) -> Value {
        Value::Whole(is.into())
    }
}

/// The samples of one family. One with the name and the labels of an earlier one is left out, and told of: it would make a server
/// refuse the whole text.
pub struct Samples {
    name: &'static str,
    text: String,
    mount: String,
    /// What each sample is called.
    seen: BTreeSet<String>,
    warnings: String,
}

impl Samples {
    /// None yet.
    pub fn new(name: &'static str) -> Samples {
        Samples {
            name,
            text: String::new(),
            mount: String::new(),
            seen: BTreeSet::new(),
            warnings: String::new(),
        }
    }

    /// What follows is of the mount with these labels.
    pub fn of_mount(&mut self, labels: &str) -> &mut Samples {
        labels.clone_into(&mut self.mount);
        self
    }

    /// Adds a sample with further labels.
    pub fn add(&mut self, labels: &[(&str, &str)], value: impl Into<Value>) {
        self.add_part("", labels, value);
    }

    /// Adds a sample whose name has a suffix: `_sum` or `_count` of a summary.
    pub fn add_part(&mut self, suffix: &str, more: &[(&str, &str)], value: impl Into<Value>) {
        let (name, mount) = (self.name, &self.mount);
        let comma = if more.is_empty() { "" } else { "," };
        let more = labels(more);
        let sample = format!("{name}{suffix}{{{mount}{comma}{more}}}");
        if self.seen.contains(&sample) {
            warn("left out: it is there already", &sample, &mut self.warnings);
            return;
        }
        // Writing to a String cannot fail.
        let _ = write!(self.text, "{sample} ");
        self.seen.insert(sample);
        let _ = match value.into() {
            Value::Whole(whole) => writeln!(self.text, "{whole}"),
            Value::Real(real) => writeln!(self.text, "{real}"),
        };
    }

    /// Appends the family, unless it is empty.
    pub fn write(&self, kind: Kind, help: &str, out: &mut String) {
        if self.text.is_empty() {
            return;
        }
        let name = self.name;
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Summary => "summary",
        };
        let _ = write!(out, "# HELP {name} {help}\n# TYPE {name} {kind}\n{}", self.text);
        out.push_str(&self.warnings);
    }
}

/// Appends a comment, which servers pass over. What it is about is escaped already.
pub fn warn(what: &str, about: &str, out: &mut String) {
    let _ = writeln!(out, "# weir: {what}: {about}");
}

/// `a="1",b="2"`, with the values escaped. The format has escapes for three characters; other control characters are replaced by what
/// Rust writes for them, such as `\u{1b}`, as in texts for people.
pub fn labels(labels: &[(&str, &str)]) -> String {
    let mut text = String::new();
    for (name, value) in labels {
        let comma = if text.is_empty() { "" } else { "," };
        let _ = write!(text, "{comma}{name}=\"");
        for letter in value.chars() {
            match letter {
                '\\' => text.push_str("\\\\"),
                '"' => text.push_str("\\\""),
                '\n' => text.push_str("\\n"),
                _ if letter.is_control() => {
                    text.push_str(&letter.escape_default().to_string().replace('\\', "\\\\"));
                }
                _ => text.push(letter),
            }
        }
        text.push('"');
    }
    text
}
