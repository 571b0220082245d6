//! The work of the reclaimer's thread: see [`crate::reclaimer`].

use std::sync::Arc;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

use crate::file_system::FileSystem;
use crate::kernel_cache::KernelCache;
use crate::reclaimer::{Job, Pages, ReclaimerQueue};

/// How often files that were dirty when they were closed are checked; see [`crate::closing`].
const CLOSE_INTERVAL: Duration = Duration::from_secs(1);

/// How often cached listings are checked.
const LISTINGS_INTERVAL: Duration = Duration::from_millis(500);

impl ReclaimerQueue {
    /// Executes jobs until [`Reclaimer::stop`].
    pub(crate) fn run(self, fs: &Arc<FileSystem>, kernel: &KernelCache) {
        let mut next_close: Option<Instant> = None;
        let mut next_listings: Option<Instant> = None;
        loop {
            let now = Instant::now();
            if next_close.is_some_and(|due| due <= now) {
                next_close = fs.close_clean().then(|| Instant::now() + CLOSE_INTERVAL);
            }
            if next_listings.is_some_and(|due| due <= now) {
                let due = fs.listings.due(now);
                due.iter().for_each(|directory| kernel.drop_pages(*directory));
                let is_watched = fs.listings.dropped(now, &due);
                next_listings = is_watched.then(|| Instant::now() + LISTINGS_INTERVAL);
            }
            let next = [next_close, next_listings].into_iter().flatten().min();
            let job = match next {
                None => self.0.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => self.0.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match job {
                Ok(Job::WatchClosing) => {
                    next_close.get_or_insert_with(|| Instant::now() + CLOSE_INTERVAL);
                }
                Ok(Job::WatchListings) => {
                    next_listings.get_or_insert_with(|| Instant::now() + LISTINGS_INTERVAL);
                }
                Ok(Job::DropAttributes(node)) => kernel.drop_attributes(node),
                Ok(Job::DropName(directory, name)) => kernel.drop_name(directory, &name),
                Ok(Job::Forget(node, pages, then)) => {
                    match pages {
                        Pages::None => kernel.drop_attributes(node),
                        Pages::Range(offset, len) => kernel.drop_range(node, offset, len),
                        Pages::All => kernel.drop_pages(node),
                    }
                    then();
                }
                Ok(Job::Reclaim) => reclaim(fs),
                Ok(Job::Stop) | Err(RecvTimeoutError::Disconnected) => return,
                // Something is due.
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }
}

/// Has the engine detach files that were not used for a while and that no program has open, until the inodes held are down
/// to two thirds of their bound. Each is checked at most twice: the first check clears its mark of use. The kernel still
/// knows these inodes.
fn reclaim(fs: &Arc<FileSystem>) {
    let target = fs.reclaimer.inodes_max / 3 * 2;
    fs.inodes.let_go_idle();
    let mut excess = fs.inodes.held().saturating_sub(target);
    for _ in 0..2 {
        fs.inodes.visit(|inode| {
            if excess == 0 {
                return false;
            }
            let idle =
                inode.is_attached() && !inode.swap_used(false) && inode.open().descriptions == 0;
            if idle {
                fs.release_idle(inode);
                excess -= 1;
            }
            true
        });
    }
    fs.inodes.let_go_idle();
    fs.reclaimer.reclaimed(fs.inodes.held());
}
