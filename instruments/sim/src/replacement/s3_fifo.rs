//! S3-FIFO (SOSP'23, section 4): a small queue that most pages pass once, a main queue for pages used in the small one
//! or known from before, and the names of pages evicted from the small one.
//!
//! Where the paper says nothing: a dirty page is in no queue; when it has gone home, it enters its queue again as the
//! newest page. The small queue has a tenth of the pages in the queues, so that it follows the memory that dirty pages
//! leave.

use std::collections::{HashMap, VecDeque};

use super::Replacement;

/// The pages divided by this are in the small queue.
const SMALL_SHARE: usize = 10;
/// Uses are counted up to this.
const USES_MAX: u8 = 3;
/// Uses from which a page moves to the main queue.
const USES_TO_STAY: u8 = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Which {
    Small,
    Main,
}

#[derive(Clone, Copy, Debug)]
struct Page {
    queue: Which,
    uses: u8,
    /// The number of its place, while it is in the queue.
    place: Option<u64>,
}

/// Pages and their places, oldest first. Places that were left stay until they are met.
#[derive(Debug, Default)]
struct Queue {
    places: VecDeque<(u64, u64)>,
    /// Places not left.
    len: usize,
}

/// A cache of this many pages.
#[derive(Debug)]
pub struct S3Fifo {
    pages: HashMap<u64, Page>,
    small: Queue,
    main: Queue,
    /// Names, oldest first, each with the number it is known by.
    ghosts: VecDeque<(u64, u64)>,
    ghost_numbers: HashMap<u64, u64>,
    ghosts_max: usize,
    /// Places and ghosts so far.
    numbers: u64,
}

impl S3Fifo {
    /// Empty.
    pub fn new(cache_pages: usize) -> S3Fifo {
        S3Fifo {
            pages: HashMap::new(),
            small: Queue::default(),
            main: Queue::default(),
            ghosts: VecDeque::new(),
            ghost_numbers: HashMap::new(),
            ghosts_max: cache_pages - cache_pages / SMALL_SHARE,
            numbers: 0,
        }
    }

    fn queue(&mut self, which: Which) -> &mut Queue {
        match which {
            Which::Small => &mut self.small,
            Which::Main => &mut self.main,
        }
    }

    fn page(&mut self, page: u64) -> &mut Page {
        self.pages.get_mut(&page).expect("a page in memory")
    }

    fn push(&mut self, number: u64, which: Which) {
        self.numbers += 1;
        let place = self.numbers;
        let page = self.page(number);
        (page.queue, page.place) = (which, Some(place));
        let queue = self.queue(which);
        queue.places.push_back((number, place));
        queue.len += 1;
        if queue.places.len() > 2 * queue.len + 64 {
            let mut places = std::mem::take(&mut queue.places);
            places.retain(|(number, place)| self.stands_at(*number, *place));
            self.queue(which).places = places;
        }
    }

    fn stands_at(&self, page: u64, place: u64) -> bool {
        self.pages.get(&page).is_some_and(|page| page.place == Some(place))
    }

    /// Takes out the oldest.
    fn pop(&mut self, which: Which) -> Option<u64> {
        while let Some((number, place)) = self.queue(which).places.pop_front() {
            if self.stands_at(number, place) {
                self.leave(number);
                return Some(number);
            }
        }
        None
    }

    fn leave(&mut self, number: u64) {
        let page = self.page(number);
        let which = page.queue;
        page.place.take().expect("it stands in a queue");
        self.queue(which).len -= 1;
    }

    fn remember(&mut self, page: u64) {
        self.numbers += 1;
        self.ghosts.push_back((page, self.numbers));
        self.ghost_numbers.insert(page, self.numbers);
        while self.ghosts.len() > self.ghosts_max {
            let Some((oldest, number)) = self.ghosts.pop_front() else { break };
            if self.ghost_numbers.get(&oldest) == Some(&number) {
                self.ghost_numbers.remove(&oldest);
            }
        }
    }
}

impl Replacement for S3Fifo {
    fn holds(&self, page: u64) -> bool {
        self.pages.contains_key(&page)
    }

    fn admit(&mut self, page: u64) {
        let known = self.ghost_numbers.remove(&page).is_some();
        let queue = if known { Which::Main } else { Which::Small };
        self.pages.insert(page, Page { queue, uses: 0, place: None });
    }

    fn touch(&mut self, page: u64) {
        let page = self.page(page);
        page.uses = (page.uses + 1).min(USES_MAX);
    }

    fn insert(&mut self, page: u64) {
        let queue = self.page(page).queue;
        self.push(page, queue);
    }

    fn remove(&mut self, page: u64) {
        self.leave(page);
    }

    fn evict(&mut self) -> Option<u64> {
        loop {
            let share = (self.small.len + self.main.len) / SMALL_SHARE;
            if self.main.len == 0 || self.small.len > 0 && self.small.len >= share {
                let page = self.pop(Which::Small)?;
                if self.page(page).uses < USES_TO_STAY {
                    self.pages.remove(&page);
                    self.remember(page);
                    return Some(page);
                }
                self.page(page).uses = 0;
                self.push(page, Which::Main);
            } else {
                let page = self.pop(Which::Main)?;
                let Some(uses) = self.page(page).uses.checked_sub(1) else {
                    self.pages.remove(&page);
                    return Some(page);
                };
                self.page(page).uses = uses;
                self.push(page, Which::Main);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn come(cache: &mut S3Fifo, page: u64) {
        cache.admit(page);
        cache.insert(page);
    }

    #[test]
    fn pages_go_in_the_order_they_came_unless_they_were_used_twice() {
        let mut cache = S3Fifo::new(20);
        (0..5).for_each(|page| come(&mut cache, page));
        for page in [0, 0, 1] {
            cache.touch(page);
        }
        assert_eq!([cache.evict(), cache.evict()], [Some(1), Some(2)], "once is not twice");
        assert!(cache.holds(0) && cache.main.len == 1);
    }

    #[test]
    fn what_went_and_comes_back_stays_longer() {
        let mut cache = S3Fifo::new(20);
        (0..3).for_each(|page| come(&mut cache, page));
        assert_eq!(cache.evict(), Some(0));
        come(&mut cache, 0);
        assert_eq!([cache.evict(), cache.evict()], [Some(1), Some(2)]);
        assert_eq!((cache.evict(), cache.evict()), (Some(0), None), "it was in the main queue");
        assert!(cache.ghosts.len() <= 18);
        // The main queue's are not remembered.
        cache.admit(0);
        assert_eq!(cache.pages[&0].queue, Which::Small);
    }

    #[test]
    fn uses_keep_a_page_in_the_main_queue_for_as_many_rounds() {
        let mut cache = S3Fifo::new(100);
        (0..2).for_each(|page| come(&mut cache, page));
        assert_eq!([cache.evict(), cache.evict()], [Some(0), Some(1)]);
        (0..2).for_each(|page| come(&mut cache, page));
        cache.touch(0);
        assert_eq!([cache.evict(), cache.evict()], [Some(1), Some(0)]);
    }

    #[test]
    fn a_dirty_page_does_not_go_and_comes_back_as_the_newest() {
        let mut cache = S3Fifo::new(20);
        (0..3).for_each(|page| come(&mut cache, page));
        cache.remove(0);
        assert_eq!(cache.evict(), Some(1));
        cache.insert(0);
        assert_eq!([cache.evict(), cache.evict(), cache.evict()], [Some(2), Some(0), None]);
    }

    #[test]
    fn places_that_were_left_take_no_memory_for_long() {
        let mut cache = S3Fifo::new(20);
        come(&mut cache, 0);
        for _ in 0..1000 {
            cache.remove(0);
            cache.insert(0);
        }
        assert!(cache.small.places.len() < 100 && cache.small.len == 1);
    }
}
