//! The engine's invariants, checked over every page. For tests.

use weir_frames::PAGE_BYTES;
use weir_journal::Counts;

use crate::cache::census::Census;
use crate::cache::file::File;
use crate::cache::page::{ListKind, Listed, Page};
use crate::device::transfer::Io;
use crate::engine::Engine;
use crate::place::FileIx;

impl Engine {
    /// Panics, saying which, if an invariant of the engine does not hold. For tests: it looks at
    /// every page.
    pub fn check_invariants(&self) {
        let mut census = Census::default();
        let mut dirty_idle = 0;
        let mut unlogged = 0;
        for (file_ix, file) in self.cache.files.iter() {
            let mut dirty = 0;
            for ix in self.cache.pages.on_list(ListKind::File, &file.pages) {
                let page = &self.cache.pages[ix];
                assert_eq!(page.file, file_ix);
                assert_eq!(self.cache.pages.find(file_ix, page.number), Some(ix));
                census.replace(Census::default(), Census::of(page));
                self.check_page(file, page);
                dirty += usize::from(page.dirty_seq != 0);
                dirty_idle += usize::from(page.listed != Listed::No);
                unlogged += usize::from(!page.unlogged.is_empty());
                assert!(page.unlogged.is_empty() || page.is_unclean());
                assert!(page.rec.is_none() || page.is_unclean());
                assert_eq!(page.awaited, self.waiters.of_pages.contains_key(&ix));
            }
            let dirty = dirty + file.spilled_pages;
            assert_eq!(file.dirty_pages, dirty, "dirty pages of {:?}", file.id);
            assert!(file.home_size <= file.size(), "home never grows past the file's size");
        }
        assert_eq!(self.cache.census, census);
        assert_eq!(self.cache.dirty.unlogged.len(), unlogged);
        self.check_log();
        self.cache.check_unlogged();
        if self.is_ordered() {
            let writer = self.journal.as_ref().expect("it is usable").shared.writer();
            let bytes = self.cache.unlogged.bytes;
            // If nothing is unlogged, the log may be full.
            assert!(bytes == 0 || writer.has_room(bytes), "a commit is one group");
        }
        self.cache.check_spill();
        self.cache.check_lane();
        assert_eq!(self.cache.dirty.len(), dirty_idle);
        self.device.scheduler.check_invariants();
        self.cache.dirty.patched.check_invariants();
        self.cache.dirty.resident.check_invariants();
        assert!(
            census.frames + self.cache.frames_in_flight <= self.cache.frames_max,
            "frames are bounded"
        );
        self.cache.replacement.check_invariants(&self.cache.pages);
    }

    pub(crate) fn check_page(&self, file: &File, page: &Page) {
        let start = page.number * PAGE_BYTES as u64;
        assert!(page.frame.is_none() || page.patches.is_empty(), "patches or a frame");
        if !page.patches.is_empty() {
            page.patches.check_invariants();
            assert!(page.is_unclean(), "patches are dirty or in transfer to home");
        }
        if let Some(frame) = &page.frame {
            let inside = file.size().saturating_sub(start).min(PAGE_BYTES as u64) as usize;
            assert!(
                frame.frame().bytes()[inside..].iter().all(|&byte| byte == 0),
                "zeros past the end"
            );
        }
        let listed = if file.is_unbound() { Listed::No } else { page.to_be_listed() };
        assert_eq!(page.listed, listed);
    }

    /// Panics if an invariant does not hold.
    pub(crate) fn check_log(&self) {
        let Some(log) = &self.journal else {
            assert!(self.cache.dirty.unlogged.is_empty(), "without a log nothing is to be logged");
            return;
        };
        for (ix, file) in self.cache.files.iter() {
            assert_eq!(
                file.logged.retention.away,
                self.contents_away(ix),
                "contents of {:?}",
                file.id
            );
        }
        let holders = self.cache.files.iter().map(|(ix, file)| (ix, &file.logged.retention));
        log.shared.check_invariants(holders);
    }

    /// The log retention of a file's page contents, including those in transfer and those in the log only.
    pub(crate) fn contents_away(&self, file: FileIx) -> Counts {
        let mut away = Counts::default();
        let pages = self.cache.pages_of(file).into_iter().filter_map(|ix| self.cache.pages[ix].rec);
        let of_patches =
            self.device.patch_destages.iter().filter(|&(&ix, _)| self.cache.pages[ix].file == file);
        let of_frames = self.device.ios.values().filter_map(|io| match io {
            Io::Destage { file: of, pages, .. } if *of == file => Some(pages),
            _ => None,
        });
        pages
            .chain(of_patches.filter_map(|(_, destage)| destage.content.rec))
            .chain(of_frames.flatten().filter_map(|content| content.rec))
            .chain(self.cache.spill.index.of(file, 0).map(|(_, page)| self.rec_of(page)))
            .chain(self.cache.files[file].logged.resizing.map(|resizing| resizing.segment))
            .for_each(|segment| away.add(segment));
        away
    }
}
