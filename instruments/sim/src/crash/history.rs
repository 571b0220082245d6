//! What programs did to a file, what they were promised, and therefore the permitted contents after a crash.
//!
//! The content must not be older than what was synced, nor than what home had (after a power cut: than what
//! home had durable). It may contain any part of later changes, and nothing else.

use super::broken::{Broken, Crash};
use super::edit::{Edit, Image, Version, Versions};

/// One change to a file.
#[derive(Clone, Debug)]
struct Done {
    edit: Edit,
    /// It was promised to be durable by itself, whatever becomes of those before it.
    promised: bool,
}

/// One file's history since the content that is known to be durable.
#[derive(Clone, Debug)]
pub(crate) struct History {
    durable: Image,
    since: Vec<Done>,
    /// Number of forgotten changes, so that positions stay valid. This many changes are in `durable`.
    forgotten: usize,
}

impl History {
    pub(crate) fn new(content: &[u8]) -> History {
        History { durable: Image::new(content), since: Vec::new(), forgotten: 0 }
    }

    /// Records a change that may be found from now on. Returns its number.
    pub(crate) fn did(&mut self, edit: Edit) -> Version {
        self.since.push(Done { edit, promised: false });
        self.version_of(self.since.len() - 1)
    }

    /// The last change was refused.
    pub(crate) fn withdraw(&mut self) {
        self.since.pop().expect("the refused change was recorded last");
    }

    fn version_of(&self, nth: usize) -> Version {
        Version::try_from(self.forgotten + nth + 1).expect("lives are short")
    }

    fn changes(&self) -> impl Iterator<Item = (Version, &Done)> {
        self.since.iter().enumerate().map(|(nth, done)| (self.version_of(nth), done))
    }

    /// As programs see it.
    pub(crate) fn content(&self) -> Vec<u8> {
        let mut image = self.durable.clone();
        for (version, done) in self.changes() {
            image.apply(&done.edit, &Versions::All(version));
        }
        image.content().to_vec()
    }

    /// Where a sync that begins now stands.
    pub(crate) fn position(&self) -> usize {
        self.forgotten + self.since.len()
    }

    /// A sync that began at `position` was acknowledged.
    pub(crate) fn synced(&mut self, position: usize) {
        let count = position.saturating_sub(self.forgotten);
        for done in self.since.drain(..count) {
            self.forgotten += 1;
            let version = Version::try_from(self.forgotten).expect("lives are short");
            self.durable.apply(&done.edit, &Versions::All(version));
        }
    }

    /// The durable write that was the last change before `position` was acknowledged.
    pub(crate) fn wrote_durably(&mut self, position: usize) {
        if let Some(last) = position.checked_sub(self.forgotten + 1) {
            self.since[last].promised = true;
        }
    }

    /// The versions of bytes that are written to home while it has the content `home`: for each byte the
    /// oldest possible one.
    pub(crate) fn versions_of(&self, offset: usize, bytes: &[u8], home: &Image) -> Versions {
        let before = |at| home.version(at);
        let mut versions: Vec<Option<Version>> = (offset..)
            .zip(bytes)
            .map(|(at, &byte)| {
                let durable = self.durable.content().get(at).copied().unwrap_or(0);
                let version = self.durable.version(at);
                (durable == byte && version >= before(at)).then_some(version)
            })
            .collect();
        for (version, done) in self.changes() {
            let mut look = |from: usize, to: usize, byte_at: &dyn Fn(usize) -> u8| {
                for at in from.max(offset)..to.min(offset + bytes.len()) {
                    let known = &mut versions[at - offset];
                    if known.is_none() && bytes[at - offset] == byte_at(at) && version >= before(at)
                    {
                        *known = Some(version);
                    }
                }
            };
            match &done.edit {
                Edit::Write { offset, bytes } => {
                    look(*offset, offset + bytes.len(), &|at| bytes[at - offset]);
                }
                Edit::Size(size) => look(*size, usize::MAX, &|_| 0),
                Edit::Zero { from, to } => look(*from, *to, &|_| 0),
                Edit::Grow(_) => {}
            }
        }
        // A byte that matches no change is older than what was synced, and comes from the log.
        Versions::Each(versions.into_iter().map(Option::unwrap_or_default).collect())
    }

    /// Checks that `found` is permitted after a crash. `home` is what home had for good before it; `None` if
    /// home may go back.
    pub(crate) fn check(
        &self,
        file: usize,
        found: &[u8],
        home: Option<&Image>,
        crash: Crash,
    ) -> Result<(), Broken> {
        self.check_size(file, found.len(), home, crash)?;
        let wrong = |floor| self.are_allowed(found, floor).iter().position(|&allowed| !allowed);
        let Some(taken_back) = wrong(home) else { return Ok(()) };
        let (at, floor) = wrong(None).map_or((taken_back, home), |at| (at, None));
        let with = |byte| {
            let mut found = found.to_vec();
            found[at] = byte;
            self.are_allowed(&found, floor)[at]
        };
        let (found, allowed) = (found[at], (0..=255).filter(|&byte| with(byte)).collect());
        Err(match floor {
            None => Broken::Byte { file, at, found, allowed, crash },
            Some(home) => {
                let home = home.version(at);
                Broken::ByteTakenBack { file, at, found, home, allowed, crash }
            }
        })
    }

    fn check_size(
        &self,
        file: usize,
        found: usize,
        home: Option<&Image>,
        crash: Crash,
    ) -> Result<(), Broken> {
        let mut sizes = vec![self.durable.size()];
        let mut size = self.durable.size();
        for done in &self.since {
            match &done.edit {
                Edit::Write { offset, bytes } => {
                    let end = offset + bytes.len();
                    size = size.max(end);
                    if done.promised {
                        sizes.iter_mut().for_each(|size| *size = end.max(*size));
                    }
                }
                Edit::Size(to) => size = *to,
                Edit::Grow(to) => size = size.max(*to),
                Edit::Zero { .. } => {}
            }
            sizes.push(size);
        }
        let least = *sizes.iter().min().expect("there is one");
        let most = *sizes.iter().max().expect("there is one");
        if !(least..=most).contains(&found) {
            return Err(Broken::Size { file, found, least, most, crash });
        }
        let Some(home) = home else { return Ok(()) };
        // Home's size is a bound unless a later change of the size is forgotten here.
        let resized = home.resized();
        if resized < self.durable.resized() {
            return Ok(());
        }
        let home = home.size();
        let (mut least, mut most) = (home, home);
        if (resized as usize) <= self.forgotten {
            most = most.max(self.durable.size());
        }
        for (_, done) in self.changes().filter(|&(version, _)| version > resized) {
            match &done.edit {
                Edit::Write { offset, bytes } => most = most.max(offset + bytes.len()),
                Edit::Size(to) => (least, most) = (least.min(*to), most.max(*to)),
                Edit::Grow(to) => most = most.max(*to),
                Edit::Zero { .. } => {}
            }
        }
        if !(least..=most).contains(&found) {
            return Err(Broken::SizeTakenBack { file, found, home, least, most, crash });
        }
        Ok(())
    }

    /// Which of the bytes are permitted: those that were synced or written later, and none older than home's.
    fn are_allowed(&self, found: &[u8], home: Option<&Image>) -> Vec<bool> {
        let durable = self.durable.content().iter().chain(std::iter::repeat(&0));
        let mut allowed: Vec<bool> = found.iter().zip(durable).map(|(a, b)| a == b).collect();
        for (version, done) in self.changes() {
            let mut sets = |at: usize, byte: u8| {
                // A promised change, or one that is at home, excludes everything older.
                let replaces =
                    done.promised || home.is_some_and(|home| home.version(at) >= version);
                allowed[at] = found[at] == byte || (allowed[at] && !replaces);
            };
            match &done.edit {
                Edit::Write { offset, bytes } => {
                    (*offset..found.len()).zip(bytes).for_each(|(at, &byte)| sets(at, byte));
                }
                Edit::Size(size) => (*size..found.len()).for_each(|at| sets(at, 0)),
                Edit::Zero { from, to } => {
                    (*from..(*to).min(found.len())).for_each(|at| sets(at, 0))
                }
                Edit::Grow(_) => {}
            }
        }
        allowed
    }
}
