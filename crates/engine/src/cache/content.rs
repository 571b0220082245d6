//! The bytes of pages, for reads and for destages that write clean pages together with dirty ones.

use weir_frames::{Frame, PAGE_BYTES};

use crate::cache::Cache;
use crate::cache::page::PageIo;
use crate::command::{ReadData, Segment};
use crate::place::{FileIx, PageIx, Piece, pieces};

const PAGE: u64 = PAGE_BYTES as u64;

pub(crate) fn frame_segment(frame: &Frame, start: usize, len: usize) -> Option<Segment> {
    Some(Segment::Frame { frame: frame.clone(), start: start as u16, len: len as u16 })
}

impl Cache {
    /// The bytes if all are in memory, else the numbers of the pages that are not.
    pub(crate) fn gather(
        &mut self,
        file: FileIx,
        offset: u64,
        end: u64,
    ) -> Result<ReadData, Vec<u64>> {
        let mut data = ReadData::default();
        let mut misses = Vec::new();
        for Piece { number, start, len } in pieces(offset, end) {
            let found = self.pages.find(file, number);
            let segment = match found.map(|ix| &self.pages[ix]) {
                Some(page) => match &page.frame {
                    Some(frame) => frame_segment(frame.frame(), start, len),
                    None => {
                        page.patches.get(start, len).map(|bytes| Segment::Bytes(bytes.to_vec()))
                    }
                },
                None if number * PAGE >= self.files[file].home_size => {
                    frame_segment(&self.zeros, start, len)
                }
                None => None,
            };
            match segment {
                Some(segment) if misses.is_empty() => data.segments.push(segment),
                Some(_) => {}
                None => misses.push(number),
            }
            if let Some(ix) = found
                && self.pages[ix].frame.is_some()
            {
                self.replacement.touch(&mut self.pages, ix);
                self.publish_read(ix);
            }
        }
        if misses.is_empty() { Ok(data) } else { Err(misses) }
    }

    /// Whether a page is clean and in memory, and writing it would change nothing at home: it would neither fill a hole
    /// nor extend the file.
    pub(crate) fn may_write_clean(&self, ix: PageIx) -> bool {
        let page = &self.pages[ix];
        page.frame.is_some()
            && page.io == PageIo::None
            && page.dirty_seq == 0
            && !self.files[page.file].discarded
            && self.keeps_its_place(page.file, page.number)
    }

    /// The same for a page that is not in memory, if it were read.
    pub(crate) fn keeps_its_place(&self, file: FileIx, number: u64) -> bool {
        let of_file = &self.files[file];
        let (start, end) = (number * PAGE, (number + 1) * PAGE);
        end <= of_file.home_size && of_file.first_free(start, end).is_none()
    }

    pub(crate) fn has_unclean(&self, file: FileIx, from: u64, to: u64) -> bool {
        let spilled = self.spill.index.of(file, from / PAGE).next();
        self.files[file].is_unclean()
            && (spilled.is_some_and(|(number, _)| number * PAGE < to)
                || self.pages_of(file).into_iter().any(|ix| {
                    let page = &self.pages[ix];
                    page.is_unclean() && page.number * PAGE < to && (page.number + 1) * PAGE > from
                }))
    }
}
