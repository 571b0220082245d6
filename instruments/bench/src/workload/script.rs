//! A shell script that changes settings as careful administrators' scripts do: sed(1) in place, sync(1), a copy, sync(1),
//! mv(1) over the old copy, and a sync of the directory.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::workload::job::Job;
use crate::workload::outcome::{Class, Outcome};
use crate::workload::tree::{remove, sync};

/// Files that are changed in turn.
const FILES: u64 = 20;
/// What one takes, with its copy, bytes.
const FILE_BYTES: u64 = 8 << 10;
const SCRIPT: &str = r#"
sed -i "s/^value=.*/value=$1/" "$2"
sync "$2"
cp "$2" "$2.new"
sync "$2.new"
mv "$2.new" "$2.kept"
sync "$(dirname "$2")"
"#;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Script {
    /// Changes.
    pub changes: u64,
}

/// Fails, saying what to do, where there is no sed.
pub fn require() -> Result<()> {
    require_program("sed", "sed")
}

impl Script {
    /// What a file holds after a change, or before all.
    fn content(change: Option<u64>) -> String {
        let value = change.map_or("none".to_owned(), |number| number.to_string());
        format!("# Settings\nvalue={value}\nend=1\n")
    }
}

impl Job for Script {
    fn file_bytes(&self) -> u64 {
        FILES * FILE_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        let settings = settings(home);
        remove(&settings)?;
        fs::create_dir(&settings).doing("create", &settings)?;
        for number in 0..FILES {
            let path = file(home, number);
            fs::write(&path, Script::content(None)).doing("write", &path)?;
        }
        sync(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        Outcome::of_each(Class::Transaction, self.changes, |number| {
            let mut shell = Command::new("sh");
            shell.args(["-e", "-c", SCRIPT, "sh", &number.to_string()]);
            run(shell.arg(file(directory, number))).map(drop)
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        for number in self.changes.saturating_sub(FILES)..self.changes {
            let changed = file(home, number);
            for path in [changed.with_extension("conf.kept"), changed] {
                let found = fs::read_to_string(&path).doing("read", &path)?;
                if found != Script::content(Some(number)) {
                    let path = path.display();
                    return Err(Error::Different(format!(
                        "{path} is not as change {number} left it"
                    )));
                }
            }
        }
        Ok(())
    }

    fn reset(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        self.prepare(home)
    }
}

fn settings(directory: &Path) -> PathBuf {
    directory.join("settings")
}

fn file(directory: &Path, change: u64) -> PathBuf {
    settings(directory).join(format!("part-{}.conf", change % FILES))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};

    #[test]
    fn a_file_that_is_not_as_changed_is_found() {
        if require().is_err() {
            return;
        }
        let workload = Workload::Script(Script { changes: 23 });
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        workload.verify(&home, &outcome).unwrap();
        fs::write(file(&home, 22), Script::content(Some(2))).unwrap();
        assert_different(workload.verify(&home, &outcome), "is not as change 22 left it");
    }
}
