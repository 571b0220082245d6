//! Violated promises.

/// A violated promise.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Broken {
    /// A byte is neither what was synced nor anything written later.
    #[error(
        "lost or invented: byte {at} of file {file} is {found:#x}; synced and later: {allowed:x?} \
         ({crash})"
    )]
    Byte {
        /// The file.
        file: usize,
        /// The byte.
        at: usize,
        /// Its value.
        found: u8,
        /// Its permitted values.
        allowed: Vec<u8>,
        /// The crash.
        crash: Crash,
    },
    /// A byte has an old value, although home had a newer one.
    #[error(
        "taken back: byte {at} of file {file} is {found:#x}; home had change {home} of it, which \
         or later is: {allowed:x?} ({crash})"
    )]
    ByteTakenBack {
        /// The file.
        file: usize,
        /// The byte.
        at: usize,
        /// Its value.
        found: u8,
        /// Number of the change that home had.
        home: u32,
        /// Its permitted values.
        allowed: Vec<u8>,
        /// The crash.
        crash: Crash,
    },
    /// The file's size is outside the range of its sizes since it was synced.
    #[error(
        "lost or invented: file {file} has {found} bytes, and had between {least} and {most} \
         ({crash})"
    )]
    Size {
        /// The file.
        file: usize,
        /// Its size.
        found: usize,
        /// The smallest permitted size.
        least: usize,
        /// The largest permitted size.
        most: usize,
        /// The crash.
        crash: Crash,
    },
    /// The file's size is outside the range of its sizes since it had the size that home had.
    #[error(
        "taken back: file {file} has {found} bytes; since home had {home} it had between {least} \
         and {most} ({crash})"
    )]
    SizeTakenBack {
        /// The file.
        file: usize,
        /// Its size.
        found: usize,
        /// Its size at home before the crash.
        home: usize,
        /// The smallest permitted size.
        least: usize,
        /// The largest permitted size.
        most: usize,
        /// The crash.
        crash: Crash,
    },
    /// The log could not be replayed.
    #[error("the log cannot be replayed: {error} ({crash})")]
    Log {
        /// Why.
        error: String,
        /// The crash.
        crash: Crash,
    },
    /// A wrong or missing answer to a read or a sync.
    #[error("{0}")]
    Answer(String),
}

impl Broken {
    /// Whether home lost newer content to older content.
    pub fn is_taken_back(&self) -> bool {
        matches!(self, Broken::ByteTakenBack { .. } | Broken::SizeTakenBack { .. })
    }

    /// Whether synced content is lost, or there is content that no program wrote.
    pub fn is_lost(&self) -> bool {
        matches!(self, Broken::Byte { .. } | Broken::Size { .. })
    }
}

/// One crash and its circumstances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Its number, from the beginning of a life.
    pub nth: u64,
    /// The power was cut; otherwise the daemon was killed, and home keeps everything written to it.
    pub power: bool,
    /// This is the second check, after a power cut directly after recovery.
    pub again: bool,
    /// Syncs of home fail now and then in this life.
    pub failing: bool,
    /// The system was idle before.
    pub idle: bool,
}

impl std::fmt::Display for Crash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = if self.power { "power cut" } else { "kill" };
        write!(f, "{what} {}", self.nth)?;
        if self.again {
            write!(f, ", and a power cut after recovery")?;
        }
        if self.idle {
            write!(f, ", after a rest")?;
        }
        if self.failing {
            write!(f, ", homes fail")?;
        }
        Ok(())
    }
}
