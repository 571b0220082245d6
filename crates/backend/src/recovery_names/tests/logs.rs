//! Logs that are written record by record.

use weir_log::Stage;

use weir_names::tree::Step;

use super::model::Random;
use super::*;

/// As a log has it that failed somewhere and went on: there what home has, and does, may come before changes.
pub(super) fn gone_on(log: Vec<(Lsn, NameRecord)>, random: &mut Random) -> Vec<(Lsn, NameRecord)> {
    if random.one_in(2) {
        return log;
    }
    let failed_at = random.below(log.len() + 1);
    let (mut logged, gone_on) = (log[..failed_at].to_vec(), log[failed_at..].to_vec());
    let is_change = |(_, record): &(Lsn, NameRecord)| matches!(record, NameRecord::Change(_));
    let (changes, of_home): (Vec<_>, Vec<_>) = gone_on.into_iter().partition(is_change);
    logged.extend(of_home.into_iter().chain(changes));
    logged
}

/// A log as it is written.
#[derive(Clone, Default)]
pub(super) struct Log(pub(super) Vec<(Lsn, NameRecord)>);

impl Log {
    pub(super) fn push(&mut self, record: NameRecord) {
        self.0.push((Lsn(8 * (self.0.len() as u64 + 1)), record));
    }

    pub(super) fn change(mut self, change: Change) -> Log {
        self.push(NameRecord::Change(change));
        self
    }

    pub(super) fn known(mut self, node: u64, kind: Kind, identity: Vec<u8>) -> Log {
        self.push(NameRecord::Known { node: NodeId(node), kind, identity });
        self
    }

    pub(super) fn placed(mut self, node: u64, kind: Kind, at: Place) -> Log {
        self.push(NameRecord::Placed { node: NodeId(node), kind, at });
        self
    }

    pub(super) fn step(
        mut self,
        stage: Stage,
        node: u64,
        from: Option<Place>,
        to: Option<Place>,
    ) -> Log {
        self.push(NameRecord::Step { step: Step { node: NodeId(node), from, to }, stage });
        self
    }

    pub(super) fn remove(self, node: u64, at: Place) -> Log {
        self.change(Change::Remove { node: NodeId(node), at })
    }

    pub(super) fn make(self, node: u64, at: Place, kind: Kind) -> Log {
        let mode = if kind.is_directory() { 0o750 } else { 0o640 };
        self.make_with(node, at, kind, attributes(mode))
    }

    pub(super) fn make_with(self, node: u64, at: Place, kind: Kind, attributes: Attributes) -> Log {
        self.change(Change::Make { node: NodeId(node), at, kind, attributes })
    }

    pub(super) fn rename(self, node: u64, from: Place, to: Place, replaced: Option<u64>) -> Log {
        let replaced = replaced.map(NodeId);
        self.change(Change::Rename { node: NodeId(node), from, to, replaced })
    }

    pub(super) fn end(&self) -> Lsn {
        Lsn(8 * (self.0.len() as u64 + 1))
    }

    pub(super) fn recover(&self, source: &Source) -> RecoveredNames {
        let records = self.0.clone();
        recover_names(source.fd.as_fd(), &LOG, records, self.end()).unwrap()
    }

    pub(super) fn recover_by(&self, source: &Source, finding: Finding) -> RecoveredNames {
        let home = HomeNames::new(source.fd.as_fd()).unwrap();
        let (source, records, end) = (source.fd.as_fd(), self.0.clone(), self.end());
        let mut recovery = Recovery::new(source, &home, &LOG, records, end, Some(finding)).unwrap();
        recovery.run(usize::MAX).unwrap();
        recovery.finish().unwrap()
    }

    /// Recovers twice: the second time there is nothing to be made, removed or renamed. The result of the first time.
    pub(super) fn recover_all(&self, source: &Source) -> RecoveredNames {
        let recovered = self.recover(source);
        assert_eq!((&recovered.left, &recovered.conflicts), (&vec![], &vec![]));
        let again = self.recover(source);
        let Counts { made, removed, renamed, .. } = again.counts;
        assert_eq!((made, removed, renamed, again.left), (0, 0, 0, vec![]));
        recovered
    }
}

impl Source {
    pub(super) fn metadata(&self, name: &str) -> fs::Metadata {
        fs::symlink_metadata(self.path(name)).unwrap()
    }

    pub(super) fn names(&self, directory: &str) -> Vec<String> {
        let names = fs::read_dir(self.path(directory)).unwrap();
        let names = names.map(|name| name.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.filter(|name| name != ".weir").collect();
        names.sort();
        names
    }
}
