//! What is done to a file's content: by programs, and at home.

/// A change of a file by its number in the file's history, from 1; 0 is what was there before.
pub(crate) type Version = u32;

/// One change.
#[derive(Clone, Debug)]
pub(crate) enum Edit {
    Write {
        offset: usize,
        bytes: Vec<u8>,
    },
    Size(usize),
    Zero {
        from: usize,
        to: usize,
    },
    /// The file is at least this long. Used for home only: what remains of a write whose bytes were lost.
    Grow(usize),
}

/// The versions of the bytes that an edit sets.
#[derive(Clone, Debug)]
pub(crate) enum Versions {
    All(Version),
    /// One for each byte of a write: one write to home may combine several writes of programs.
    Each(Vec<Version>),
}

impl Versions {
    fn of(&self, nth: usize) -> Version {
        match self {
            Versions::All(version) => *version,
            Versions::Each(versions) => versions[nth],
        }
    }

    /// The versions of a part of a write's bytes.
    pub(crate) fn part(&self, from: usize, to: usize) -> Versions {
        match self {
            Versions::All(version) => Versions::All(*version),
            Versions::Each(versions) => Versions::Each(versions[from..to].to_vec()),
        }
    }
}

/// A file's content, with the version of each byte.
#[derive(Clone, Debug, Default)]
pub(crate) struct Image {
    /// Bytes past the size are zero.
    bytes: Vec<u8>,
    /// Includes bytes past the size: the change that made them zero.
    versions: Vec<Version>,
    size: usize,
    /// The last change of the size alone: a truncation or an extension.
    resized: Version,
}

impl Image {
    pub(crate) fn new(content: &[u8]) -> Image {
        // Without versions: all are 0.
        Image { bytes: content.to_vec(), size: content.len(), ..Image::default() }
    }

    pub(crate) fn content(&self) -> &[u8] {
        &self.bytes[..self.size]
    }

    pub(crate) fn size(&self) -> usize {
        self.size
    }

    pub(crate) fn resized(&self) -> Version {
        self.resized
    }

    /// The version of a byte. A byte past all changed ones has that of the last change of size.
    pub(crate) fn version(&self, at: usize) -> Version {
        self.versions.get(at).copied().unwrap_or(self.resized)
    }

    fn reach(&mut self, end: usize) {
        if self.bytes.len() < end {
            self.bytes.resize(end, 0);
        }
    }

    fn set_versions(&mut self, from: usize, to: usize, versions: &Versions) {
        if self.resized == 0 && self.versions.is_empty() && matches!(versions, Versions::All(0)) {
            return;
        }
        if self.versions.len() < to {
            self.versions.resize(to, self.resized);
        }
        for (nth, version) in self.versions[from..to].iter_mut().enumerate() {
            *version = versions.of(nth);
        }
    }

    pub(crate) fn apply(&mut self, edit: &Edit, versions: &Versions) {
        match edit {
            Edit::Write { offset, bytes } => {
                let end = offset + bytes.len();
                self.reach(end);
                self.size = self.size.max(end);
                self.bytes[*offset..end].copy_from_slice(bytes);
                self.set_versions(*offset, end, versions);
            }
            Edit::Size(size) => {
                self.reach(*size);
                self.bytes[*size..].fill(0);
                self.set_versions(*size, self.bytes.len(), versions);
                (self.size, self.resized) = (*size, versions.of(0));
            }
            Edit::Zero { from, to } => {
                let to = (*to).min(self.size);
                let from = (*from).min(to);
                self.bytes[from..to].fill(0);
                self.set_versions(from, to, versions);
            }
            Edit::Grow(size) => {
                self.reach(*size);
                self.size = self.size.max(*size);
            }
        }
    }

    /// Sets all versions to 0.
    pub(crate) fn forget_versions(&mut self) {
        self.versions = Vec::new();
        self.resized = 0;
    }
}
