//! Programs that read files in the lane: all pages on the board must at any time equal the model.
//!
//! After every step each file in the lane is read at a few random places through the board. A missing page is correct;
//! wrong bytes and a wrong size are violations.

use weir_engine::{FileId, PAGE_BYTES};

use crate::violation::Violation;
use crate::world::{Phase, World};

const PAGE: u64 = PAGE_BYTES as u64;

/// Places read in each file after each step.
const LOOKS: u32 = 4;

impl World {
    /// Whether the file is in the lane.
    pub fn is_shared(&self, file: FileId) -> bool {
        self.files.get(&file).is_some_and(|state| state.slot.is_some())
    }

    /// Pages that programs found in the lane.
    pub fn lane_hits(&self) -> u64 {
        self.lane.hits
    }

    pub(crate) fn share(&mut self, file: FileId) -> bool {
        if !self.usable(file) || self.is_shared(file) {
            return false;
        }
        let Some(slot) = self.lane.take() else { return false };
        assert!(self.engine.share(file, slot, self.now), "a usable file is attached");
        self.files.get_mut(&file).expect("usable").slot = Some(slot);
        self.trace.line(format_args!("share {file:?} {slot}"));
        true
    }

    pub(crate) fn unshare(&mut self, file: FileId) -> bool {
        let Some(slot) = self.files.get_mut(&file).and_then(|state| state.slot.take()) else {
            return false;
        };
        self.engine.unshare(file, slot);
        self.lane.free(slot);
        self.trace.line(format_args!("unshare {file:?} {slot}"));
        true
    }

    pub(crate) fn look_in_lane(&mut self) -> Result<(), Violation> {
        let moment = self.moment;
        for (&file, state) in &mut self.files {
            let Some(slot) = state.slot.filter(|_| state.phase == Phase::Attached) else {
                continue;
            };
            let lane = &mut self.lane;
            let (shown, expected) = (lane.view.size(slot), state.model.size());
            if shown != expected {
                return Err(Violation::Size { file, shown, expected });
            }
            for _ in 0..LOOKS.min(shown.div_ceil(PAGE) as u32) {
                let page = lane.rng.below(shown.div_ceil(PAGE));
                let inside = (shown - page * PAGE).min(PAGE);
                let start = lane.rng.below(inside);
                let len = 1 + lane.rng.below(inside - start);
                let mut found = vec![0; len as usize];
                let Some(frame) = lane.view.read_into(slot, page, start as usize, &mut found)
                else {
                    continue;
                };
                lane.hits += 1;
                if lane.rng.chance(500) {
                    lane.region.set_referenced(frame);
                }
                let offset = page * PAGE + start;
                state.model.observe(moment, offset, &found).map_err(|mismatch| {
                    Violation::Content { what: format!("page {page} in the lane"), file, mismatch }
                })?;
            }
        }
        Ok(())
    }
}
