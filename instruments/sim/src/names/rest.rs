//! A rest: no program does anything, and all goes home.

use std::time::Duration;

use weir_names::NodeId;
use weir_names::tree::Kind;

use super::broken::Broken;
use super::life::Life;
use super::tally::Tally;
use crate::rng::Rng;

/// Rounds until everything must be home.
const ROUNDS: u32 = 400;

impl Life {
    /// Home refuses and loses nothing for a while, and takes all. Then it is what programs see.
    pub(super) fn rest(&mut self, rng: &mut Rng, tally: &mut Tally) -> Result<(), Broken> {
        self.tell(|| "a rest".to_owned());
        let (failing, refusing) = (self.failing, self.refusing);
        (self.failing, self.refusing) = (0, 0);
        (self.home.refusal, self.home.inodes_max) = (None, usize::MAX);
        self.tree.retry();
        for _ in 0..ROUNDS {
            for _ in 0..200 {
                if self.flight.is_empty() {
                    break;
                }
                self.end_one(rng, tally)?;
            }
            if !self.flight.is_empty() {
                // A command that is done waits for room in the log, which the engine makes as time passes.
                self.now = self.now + Duration::from_millis(100);
                self.engine.tick(self.now);
            }
            self.begin_command(rng, tally)?;
            self.drain(tally)?;
            if self.flight.is_empty() && self.tree.under_way() == self.made.len() {
                if self.is_home() {
                    break;
                }
                self.now = self.now + Duration::from_millis(rng.below(1500));
                self.engine.tick(self.now);
                self.drain(tally)?;
                if self.uncommitted.is_some() {
                    self.commit(tally)?;
                    self.drain(tally)?;
                }
                self.tree.retry();
                // Data may wait for room in the log.
                self.begin_settling();
            }
        }
        (self.failing, self.refusing) = (failing, refusing);
        if !self.is_home() {
            let refused: Vec<String> =
                self.tree.refused().map(|(part, why)| format!("{part:?}: {why}")).collect();
            let what = format!(
                "not all is home after a rest: {} parts are dirty, {} commands under way, {:?} \
                 wait, refused are {refused:?}",
                self.tree.dirty(),
                self.tree.under_way(),
                self.waiting.values().collect::<Vec<_>>(),
            );
            return Err(Broken::Answer { what, told: self.told() });
        }
        tally.rests += 1;
        self.compare_home()
    }

    fn is_home(&self) -> bool {
        let is_dirty = |&node: &NodeId| self.engine.has_dirty(super::life::file_id(node));
        self.tree.dirty() == 0
            && self.tree.under_way() == 0
            && self.waiting.is_empty()
            && !self.seen.now().inodes().any(|node| is_dirty(&node))
    }

    fn compare_home(&self) -> Result<(), Broken> {
        let wrong = |what: String| Broken::Answer { what, told: self.told() };
        let (wanted, found) = (self.seen.now(), &self.home.seen);
        if wanted.picture() != found.picture() {
            let (wanted, found) = (wanted.picture(), found.picture());
            return Err(wrong(format!("after a rest home has {found:?} instead of {wanted:?}")));
        }
        for (path, inode) in found.paths() {
            let node = self.inodes.node(inode).expect("all inodes are numbered");
            if found.inode(inode).is_some_and(|inode| inode.kind == Kind::File)
                && self.home.files[&inode].content() != self.seen.histories[&node].content()
            {
                let path = String::from_utf8_lossy(&path).into_owned();
                return Err(wrong(format!("after a rest home has other bytes in {path}")));
            }
        }
        Ok(())
    }
}
