//! How many pages were written anew and how many came home, since the start.

use crate::cache::page::{Page, PageIo};

/// Counts of pages; they only grow. Write-back samples them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Turnover {
    /// Became dirty by being written.
    pub(crate) dirtied: u64,
    /// Came home.
    pub(crate) cleaned: u64,
}

/// What of a page the turnover counts, before and after a change.
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
    /// Notes what a change of a page was: written anew, come home, or neither. What failed and what came
    /// back from the log is dirty as it was before; what is written home once more, with those around it, is
    /// nothing that came home.
    pub(crate) fn changed(&mut self, before: Counted, page: &mut Page) {
        let is_dirty = page.dirty_seq != 0;
        let returned = page.returned && !before.returned;
        let between = before.between || page.is_between();
        let dirtied = !before.dirty && is_dirty && !page.retrying && !returned;
        // A program may have written to it on its way home.
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
