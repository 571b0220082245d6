//! The number of pages that became dirty, and of pages that went home, since the start.

use crate::cache::page::{Page, PageIo};

/// Counts of pages; they only grow. Write-back samples them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turnover {
    /// Pages that became dirty by being written.
    pub(crate) dirtied: u64,
    /// Pages that went home.
    pub(crate) cleaned: u64,
}

/// The state of a page that the turnover counts, before and after a change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted {
    dirty: bool,
    destaging: bool,
    returned: bool,
    between: bool,
}

impl Counted {
    pub(crate) fn of(page: &Page) -> Counted {
        Counted {
            dirty: page.dirty_seq != 0,
            destaging: is_destaging(page),
            returned: page.returned,
            between: page.is_between(),
        }
    }
}

fn is_destaging(page: &Page) -> bool {
    matches!(page.io, PageIo::Destage | PageIo::DestagePatches)
}

impl Turnover {
    /// Counts a change of a page: it was written, it went home, or neither. A page whose transfer failed, or that came
    /// back from the log, was dirty before and is not counted again. A clean page that is written home together with its
    /// neighbours is not counted.
    pub(crate) fn changed(&mut self, before: Counted, page: &mut Page) {
        let is_dirty = page.dirty_seq != 0;
        let returned = page.returned && !before.returned;
        let between = before.between || page.is_between();
        let dirtied = !before.dirty && is_dirty && !page.retrying && !returned;
        // A program may have written to it during the transfer.
        let dirtied = dirtied && (before.between || !between);
        let ended = before.destaging && page.io == PageIo::None && !page.retrying;
        let cleaned = ended && !between;
        if ended || !page.is_unclean() {
            page.set_between(false);
        }
        self.dirtied += u64::from(dirtied);
        self.cleaned += u64::from(cleaned);
    }
}
