//! A part of a listing that Weir puts together from what home has and what the tree knows.
//!
//! To put it together home lists the whole directory. So the names that follow are kept for the next requests of the same
//! listing, as many as a window has. What became of them meanwhile is asked of the tree when they are listed.

use rustix::fs::FileType;

use crate::inode::NodeId;

/// Most names of a window: a few megabytes.
pub(crate) const WINDOW_NAMES: usize = 1 << 15;

/// A name and what it leads to.
#[derive(Clone, Debug)]
pub(crate) struct Named {
    pub(crate) position: u64,
    pub(crate) name: Box<[u8]>,
    pub(crate) node: NodeId,
    pub(crate) kind: FileType,
}

/// The names of a directory from one position up to another, in the order of their positions.
#[derive(Debug)]
pub(crate) struct Window {
    from: u64,
    names: Vec<Named>,
    /// The directory has no names after these.
    is_last: bool,
}

impl Window {
    /// The first names from a position on; `names` has all of them, in order.
    pub(crate) fn new(from: u64, names: impl Iterator<Item = Named>) -> Window {
        let mut names = names.skip_while(|named| named.position < from);
        let window: Vec<Named> = names.by_ref().take(WINDOW_NAMES).collect();
        Window { from, names: window, is_last: names.next().is_none() }
    }

    /// The position after its last name; `None` if the directory ends there.
    pub(crate) fn end(&self) -> Option<u64> {
        self.names.last().map(|named| named.position + 1).filter(|_| !self.is_last)
    }

    /// The names from a position on up to the end of the window; `None` if those that come next are not in it.
    pub(crate) fn from(&self, position: u64) -> Option<&[Named]> {
        let first = self.names.partition_point(|named| named.position < position);
        let has_next = self.is_last || first < self.names.len();
        (position >= self.from && has_next).then(|| &self.names[first..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> impl Iterator<Item = Named> {
        (1..=count as u64).map(|number| Named {
            position: 10 * number,
            name: number.to_string().into_bytes().into(),
            node: NodeId(number),
            kind: FileType::RegularFile,
        })
    }

    #[test]
    fn a_window_has_the_names_of_its_positions() {
        let first = |window: &Window, at| {
            window.from(at).map(|names| (names.first().map(|named| named.position), names.len()))
        };
        let all = Window::new(15, names(5));
        assert_eq!(first(&all, 14), None, "there may be others before");
        assert_eq!(first(&all, 15), Some((Some(20), 4)));
        assert_eq!(first(&all, 41), Some((Some(50), 1)));
        assert_eq!(first(&all, 51), Some((None, 0)), "the directory ends");
        let part = Window::new(0, names(WINDOW_NAMES + 1));
        let last = 10 * WINDOW_NAMES as u64;
        assert_eq!(first(&part, 0), Some((Some(10), WINDOW_NAMES)));
        assert_eq!(first(&part, last), Some((Some(last), 1)));
        assert_eq!(first(&part, last + 1), None);
        assert_eq!(first(&Window::new(0, names(0)), 0), Some((None, 0)));
    }
}
