//! A prediction as a sentence, and the command to try it.

use std::fmt;

use serde::Serialize;

use crate::call::Group;
use crate::prediction::{Prediction, Way};

/// Faster by less than this, or slower by less, is no difference: the same program differs as much from run to run.
const SAME: f64 = 1.1;

/// Whether to do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It makes the program faster.
    Yes,
    /// It makes hardly a difference.
    Same,
    /// It makes it slower.
    No,
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Answer::Yes => "yes",
            Answer::Same => "no gain",
            Answer::No => "no",
        })
    }
}

/// What is said of one way.
#[derive(Clone, Debug, Serialize)]
pub struct Verdict {
    /// The prediction.
    #[serde(flatten)]
    pub prediction: Prediction,
    /// In a word.
    pub answer: Answer,
    /// In a sentence.
    pub sentence: String,
    /// How to try it, line by line.
    pub commands: Vec<String>,
}

/// The ratio in words.
pub fn times(ratio: f64) -> String {
    match ratio {
        ratio if ratio >= SAME => format!("{} times faster", short(ratio)),
        ratio if ratio <= 1.0 / SAME => format!("{} times slower", short(1.0 / ratio)),
        _ => "as fast as now".to_owned(),
    }
}

fn short(value: f64) -> String {
    if value < 9.95 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// Microseconds for people.
pub fn duration(us: f64) -> String {
    match us {
        us if us >= 99.5e6 => format!("{:.0} s", us / 1e6),
        us if us >= 1e6 => format!("{:.2} s", us / 1e6),
        us if us >= 99.5e3 => format!("{:.0} ms", us / 1e3),
        us if us >= 1e3 => format!("{:.1} ms", us / 1e3),
        us if us >= 99.5 => format!("{us:.0} µs"),
        us => format!("{us:.1} µs"),
    }
}

impl Verdict {
    /// Of a prediction. `source`, `command`: as they are typed in a shell.
    pub fn new(prediction: Prediction, source: &str, command: &str) -> Verdict {
        let answer = match prediction.ratio {
            ratio if ratio >= SAME => Answer::Yes,
            ratio if ratio <= 1.0 / SAME => Answer::No,
            _ => Answer::Same,
        };
        let sentence = sentence(&prediction, answer);
        let commands = commands(prediction.way, source, command);
        Verdict { prediction, answer, sentence, commands }
    }
}

fn sentence(prediction: &Prediction, answer: Answer) -> String {
    let way = match prediction.way {
        Way::Mount => "On a mount",
        Way::Run => "On a mount, under 'weir run',",
        Way::Session => "Under 'weir run --sync external', on a mount with --order all,",
    };
    // The greatest gain and the greatest loss.
    let changes = prediction.groups.iter().map(|(group, (direct, weir))| (*group, direct - weir));
    let (mut gain, mut loss) = ((Group::Other, 0.0), (Group::Other, 0.0));
    for (group, change) in changes {
        if change > gain.1 {
            gain = (group, change);
        }
        if change < loss.1 {
            loss = (group, change);
        }
    }
    let worth = prediction.direct_us.max(prediction.weir_us) / 50.0;
    let gained =
        (gain.1 > worth).then(|| format!("it waits {} less in {}", duration(gain.1), gain.0));
    let lost = (-loss.1 > worth).then(|| format!("{} take {} longer", loss.0, duration(-loss.1)));
    let between = prediction.weir_us
        - prediction.direct_us
        - prediction.groups.values().map(|(direct, weir)| weir - direct).sum::<f64>();
    let started =
        (between > worth).then(|| format!("starting programs takes {} longer", duration(between)));
    let why: Vec<String> = match answer {
        Answer::Yes => gained.into_iter().chain(lost).collect(),
        _ => lost.into_iter().chain(started).chain(gained).collect(),
    };
    let why = if why.is_empty() {
        "little of its time is spent in these files".to_owned()
    } else {
        why.join(", ")
    };
    let (word, times) = match answer {
        Answer::Yes => ("Yes", times(prediction.ratio)),
        Answer::Same => ("No", times(prediction.ratio)),
        Answer::No => ("No", times(prediction.ratio)),
    };
    format!("{word}. {way} it would be {times}: {why}.")
}

fn commands(way: Way, source: &str, command: &str) -> Vec<String> {
    let mount = |options: &str| format!("weir mount {options}{source} MOUNTPOINT");
    let run = match way {
        Way::Mount => command.to_owned(),
        Way::Run => format!("weir run -- {command}"),
        Way::Session => format!("weir run --sync external -- {command}"),
    };
    let first = if way == Way::Session { mount("--order all ") } else { mount("") };
    vec![first, run, "weir umount MOUNTPOINT".to_owned()]
}

/// A word of a command as a shell reads it.
pub fn quoted(word: &str) -> String {
    let plain = |letter: char| letter.is_ascii_alphanumeric() || "_-./=:,+@%".contains(letter);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::prediction::Confidence;

    fn prediction(direct_us: f64, weir_us: f64, groups: &[(Group, (f64, f64))]) -> Prediction {
        Prediction {
            way: Way::Mount,
            ratio: direct_us / weir_us,
            direct_us,
            weir_us,
            groups: BTreeMap::from_iter(groups.iter().copied()),
            confidence: Confidence::High,
            doubts: Vec::new(),
        }
    }

    #[test]
    fn a_sentence_says_yes_no_and_why() {
        let yes =
            prediction(2e6, 5e5, &[(Group::Writes, (1.7e6, 1e5)), (Group::Looks, (0.0, 1e5))]);
        let verdict = Verdict::new(yes, "/srv/d", "app");
        assert_eq!(
            verdict.sentence,
            "Yes. On a mount it would be 4.0 times faster: it waits 1.60 s less in writes, looks take 100 ms longer."
        );
        assert_eq!(verdict.commands[0], "weir mount /srv/d MOUNTPOINT");
        let no = prediction(1e5, 3e5, &[(Group::Names, (5e4, 2.5e5))]);
        let verdict = Verdict::new(no, "/srv/d", "app");
        assert_eq!(verdict.answer, Answer::No);
        assert_eq!(
            verdict.sentence,
            "No. On a mount it would be 3.0 times slower: names take 200 ms longer."
        );
        let same = Verdict::new(prediction(1e5, 1.02e5, &[]), "/srv/d", "app");
        assert_eq!(same.answer, Answer::Same);
    }

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("a b'c"), "'a b'\\''c'");
        assert_eq!(quoted("--x=/a.b"), "--x=/a.b");
        assert_eq!(quoted(""), "''");
    }
}
