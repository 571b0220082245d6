//! Classes of calls that cost about the same, directly and through Weir: what a sample's costs are applied to the rest by.
//!
//! What tells classes apart is what costs depend on: how much is transferred, whether a page is used for the first time,
//! whether a name is made or found, and how much a sync has to write.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::call::{Event, Group, What, flags};
use crate::files::{FileId, Seen, Survey};
use crate::footprint::PAGE;

macro_rules! classes {
    ($($name:ident $group:ident $requests:literal,)*) => {
        /// A class of calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case")]
        #[allow(missing_docs, reason = "each name says what it is")]
        pub enum Class {
            $($name,)*
        }

        impl Class {
            /// Its group.
            pub fn group(self) -> Group {
                match self {
                    $(Class::$name => Group::$group,)*
                }
            }

            /// As it is shown.
            pub fn name(self) -> String {
                let name = match self {
                    $(Class::$name => stringify!($name),)*
                };
                let mut words = String::new();
                for letter in name.chars() {
                    if letter.is_uppercase() && !words.is_empty() {
                        words.push(' ');
                    }
                    words.push(letter.to_ascii_lowercase());
                }
                words
            }

            /// FUSE requests that such a call makes on a mount, about: what it costs is estimated by where it could not be
            /// measured.
            pub fn requests(self) -> f64 {
                match self {
                    $(Class::$name => $requests,)*
                }
            }
        }
    };
}

classes! {
    ReadFirstSmall Reads 1.0,
    ReadFirstLarge Reads 1.0,
    ReadAgainSmall Reads 0.0,
    ReadAgainLarge Reads 0.0,
    ReadNothing Reads 0.0,
    WritePartialFirst Writes 1.0,
    WritePartialAgain Writes 1.0,
    WriteWhole Writes 1.0,
    WriteNewSmall Writes 1.1,
    WriteNewMiddle Writes 1.1,
    WriteNewLarge Writes 1.0,
    WriteLarge Writes 1.0,
    Allocate Writes 1.0,
    SyncNothing Syncs 1.0,
    SyncSmall Syncs 1.0,
    SyncMiddle Syncs 1.0,
    SyncLarge Syncs 1.0,
    SyncDirectory Syncs 1.0,
    SyncAll Syncs 1.0,
    OpenNew Names 2.0,
    Truncate Names 1.0,
    Attributes Names 1.0,
    MakeDirectory Names 2.0,
    RemoveDirectory Names 1.0,
    Unlink Names 1.0,
    Rename Names 1.0,
    Link Names 1.0,
    SymbolicLink Names 1.0,
    OpenFound Looks 1.0,
    OpenMissing Looks 0.5,
    Close Looks 1.0,
    StatName Looks 0.2,
    StatMissing Looks 0.5,
    StatOpen Looks 0.2,
    ReadAttribute Looks 1.0,
    List Looks 1.0,
    ReadLink Looks 0.2,
    Lock Looks 1.0,
    Map Looks 0.0,
    Start Other 0.0,
    Output Other 0.0,
}

/// Follows what classes depend on along a trace.
#[derive(Clone, Debug, Default)]
pub struct Classifier {
    /// Pages that were used.
    used: HashMap<FileId, Vec<u64>>,
    /// Bytes written since the last sync, by file.
    unsynced: HashMap<FileId, u64>,
}

impl Classifier {
    /// The class of the next call. `seen`: what the walk says of it. `None`: it has none.
    pub fn of(&mut self, event: &Event, seen: Option<Seen>, survey: &Survey) -> Option<Class> {
        if event.failed {
            return match event.what {
                What::Open => Some(Class::OpenMissing),
                What::Stat | What::ReadAttribute | What::ReadLink => Some(Class::StatMissing),
                _ => None,
            };
        }
        Some(match event.what {
            What::Read => self.read(event, seen?, survey),
            What::Write => self.write(event, seen?, survey),
            What::Open
                if event.is(flags::CREATE) && seen.is_none_or(|seen| self.is_new(seen, survey)) =>
            {
                Class::OpenNew
            }
            What::Open if event.is(flags::TRUNCATE) && event.is(flags::WRITE) => Class::OpenNew,
            What::Open => Class::OpenFound,
            What::Sync => self.sync(seen?, survey),
            What::SyncAll => {
                self.unsynced.clear();
                Class::SyncAll
            }
            What::Close => Class::Close,
            What::Truncate => Class::Truncate,
            What::Allocate => Class::Allocate,
            What::Stat if event.description.is_some() => Class::StatOpen,
            What::Stat => Class::StatName,
            What::Attributes => Class::Attributes,
            What::ReadAttribute => Class::ReadAttribute,
            What::List => Class::List,
            What::ReadLink => Class::ReadLink,
            What::MakeDirectory => Class::MakeDirectory,
            What::RemoveDirectory => Class::RemoveDirectory,
            What::Unlink => Class::Unlink,
            What::Rename => Class::Rename,
            What::Link => Class::Link,
            What::SymbolicLink => Class::SymbolicLink,
            What::Lock => Class::Lock,
            What::Map => Class::Map,
            What::Start => Class::Start,
            What::Output => Class::Output,
            What::Unseen => return None,
        })
    }

    fn is_new(&self, seen: Seen, survey: &Survey) -> bool {
        let existed =
            survey.initial.get(seen.file.0 as usize).is_some_and(|initial| initial.existed);
        !existed && !self.used.contains_key(&seen.file)
    }

    /// Whether some page of the transfer was not used before; it is from now on.
    fn uses(&mut self, seen: Seen, length: u64) -> bool {
        let used = self.used.entry(seen.file).or_default();
        let last = seen.offset.saturating_add(length - 1) / PAGE;
        let mut first_use = false;
        // A bit each page, of what is bounded; further pages count as new.
        for page in (seen.offset / PAGE)..=last.min(seen.offset / PAGE + (1 << 20)) {
            let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
            if word >= 1 << 20 {
                return true;
            }
            if used.len() <= word {
                used.resize(word + 1, 0);
            }
            first_use |= used[word] & bit == 0;
            used[word] |= bit;
        }
        first_use
    }

    fn read(&mut self, event: &Event, seen: Seen, survey: &Survey) -> Class {
        if event.length == 0 {
            return Class::ReadNothing;
        }
        let there = survey.initial.get(seen.file.0 as usize).is_some_and(|initial| initial.existed);
        let first = self.uses(seen, event.length) && there;
        match (first, event.length > 4 * PAGE) {
            (true, false) => Class::ReadFirstSmall,
            (true, true) => Class::ReadFirstLarge,
            (false, false) => Class::ReadAgainSmall,
            (false, true) => Class::ReadAgainLarge,
        }
    }

    fn write(&mut self, event: &Event, seen: Seen, survey: &Survey) -> Class {
        let unsynced = self.unsynced.entry(seen.file).or_default();
        *unsynced = unsynced.saturating_add(event.length);
        if event.length == 0 {
            return Class::WritePartialAgain;
        }
        let there = survey.initial.get(seen.file.0 as usize).map_or(0, |initial| initial.size);
        let first = self.uses(seen, event.length) && seen.offset < there;
        let new = seen.offset.saturating_add(event.length) > seen.size_before;
        let whole = seen.offset.is_multiple_of(PAGE) && event.length.is_multiple_of(PAGE);
        match event.length {
            length if new && length <= PAGE => Class::WriteNewSmall,
            length if new && length <= 16 * PAGE => Class::WriteNewMiddle,
            _ if new => Class::WriteNewLarge,
            length if length > 4 * PAGE => Class::WriteLarge,
            _ if whole => Class::WriteWhole,
            _ if first => Class::WritePartialFirst,
            _ => Class::WritePartialAgain,
        }
    }

    fn sync(&mut self, seen: Seen, survey: &Survey) -> Class {
        if survey.initial.get(seen.file.0 as usize).is_some_and(|initial| initial.directory) {
            return Class::SyncDirectory;
        }
        match self.unsynced.remove(&seen.file).unwrap_or(0) {
            0 => Class::SyncNothing,
            bytes if bytes <= 8 * PAGE => Class::SyncSmall,
            bytes if bytes <= 256 * PAGE => Class::SyncMiddle,
            _ => Class::SyncLarge,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::call::Paths;
    use crate::files::{Before, Walk};

    #[test]
    fn classes_follow_use_and_size() {
        let mut paths = Paths::default();
        let path = paths.intern(b"/f");
        let on = |what, offset, length| Event {
            path: Some(path),
            offset,
            length,
            ..Event::new(0, 1, what)
        };
        let events = [
            on(What::Stat, 0, 8 * PAGE),
            on(What::Write, 100, 10),
            on(What::Write, 200, 10),
            on(What::Sync, 0, 0),
            on(What::Sync, 0, 0),
            on(What::Read, PAGE, 10),
            on(What::Read, PAGE, 10),
            on(What::Write, 8 * PAGE, 10),
        ];
        let survey = Survey::new(&events, &paths, &|_| Before::Unknown);
        let (mut walk, mut classifier) = (Walk::new(&survey), Classifier::default());
        let classes: Vec<Class> = events
            .iter()
            .map(|event| {
                let seen = walk.step(event);
                classifier.of(event, seen, &survey).unwrap()
            })
            .collect();
        let wanted = [
            Class::StatName,
            Class::WritePartialFirst,
            Class::WritePartialAgain,
            Class::SyncSmall,
            Class::SyncNothing,
            Class::ReadFirstSmall,
            Class::ReadAgainSmall,
            Class::WriteNewSmall,
        ];
        assert_eq!(classes, wanted);
        assert_eq!(Class::WriteNewSmall.name(), "write new small");
        assert_eq!(serde_json::to_string(&Class::WriteNewSmall).unwrap(), "\"write-new-small\"");
    }
}
