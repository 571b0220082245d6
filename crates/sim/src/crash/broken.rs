//! Promises that were not kept.

/// A promise that was not kept.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Broken {
    /// A byte that is neither what was synced nor anything written later.
    #[error(
        "lost or invented: byte {at} of file {file} is {found:#x}; synced and later: {allowed:x?} \
         ({crash})"
    )]
    Byte {
        /// The file.
        file: usize,
        /// The byte.
        at: usize,
        /// What it is.
        found: u8,
        /// What it may be.
        allowed: Vec<u8>,
        /// Which crash.
        crash: Crash,
    },
    /// A byte is one that was written there, and home had a newer one.
    #[error(
        "taken back: byte {at} of file {file} is {found:#x}; home had change {home} of it, which \
         or later is: {allowed:x?} ({crash})"
    )]
    ByteTakenBack {
        /// The file.
        file: usize,
        /// The byte.
        at: usize,
        /// What it is.
        found: u8,
        /// The file's change that home had.
        home: u32,
        /// What it may be.
        allowed: Vec<u8>,
        /// Which crash.
        crash: Crash,
    },
    /// The file is shorter or longer than it ever was since it was synced.
    #[error(
        "lost or invented: file {file} has {found} bytes, and had between {least} and {most} \
         ({crash})"
    )]
    Size {
        /// The file.
        file: usize,
        /// Its size.
        found: usize,
        /// The smallest it may have.
        least: usize,
        /// The largest.
        most: usize,
        /// Which crash.
        crash: Crash,
    },
    /// The file is shorter or longer than it ever was since it had the size that home has.
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
        /// The smallest it may have.
        least: usize,
        /// The largest.
        most: usize,
        /// Which crash.
        crash: Crash,
    },
    /// The log could not be replayed.
    #[error("the log cannot be replayed: {error} ({crash})")]
    Log {
        /// Why.
        error: String,
        /// Which crash.
        crash: Crash,
    },
    /// A read or a sync answered wrongly, or never.
    #[error("{0}")]
    Answer(String),
}

impl Broken {
    /// Whether home went back.
    pub fn is_taken_back(&self) -> bool {
        matches!(self, Broken::ByteTakenBack { .. } | Broken::SizeTakenBack { .. })
    }

    /// Whether something that was synced is lost, or something is there that nobody wrote.
    pub fn is_lost(&self) -> bool {
        matches!(self, Broken::Byte { .. } | Broken::Size { .. })
    }
}

/// What happened to whom: counted from the beginning of a life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crash {
    /// Which.
    pub nth: u64,
    /// The power was cut; or else the daemon was killed, and home keeps all that it was given.
    pub power: bool,
    /// The files were looked at once more after a power cut that followed recovery at once.
    pub again: bool,
    /// Homes of this life fail to sync now and then.
    pub failing: bool,
    /// Everything rested before.
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
