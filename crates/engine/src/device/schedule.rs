//! The request scheduler: which waiting request the device gets next (AWOL, section 4).
//!
//! Requests wait in two sets, each in the order of their places on the device: *sync* requests, which a program or a
//! sync waits for, and *async* requests, which nothing waits for. Sync requests go first. The third set of the paper,
//! the *opportunistic* one, is every other dirty page: it is not kept here, but asked for (`opportunity`) when a
//! request is about to be dispatched.
//!
//! The order within a set is that of a one-way elevator (C-SCAN): on from the request dispatched last, and back to the
//! lowest place after the highest. No request starves: one past its deadline goes before the others of its set, and an
//! async one past its deadline goes after at most [`PASSED_OVER_MAX`] sync ones.
//!
//! Adjacent requests are joined while they wait. Knows no device and no file: what a request is, and whether two can
//! be joined, is decided by [`Join`].
//!
//! Invariants:
//! - the requests of each set in flight do not exceed the depth at the time of the last choice; a request dispatched
//!   out of its turn, together with another one, does not count;
//! - a request is in one set, under its place and under its age.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use smallvec::{SmallVec, smallvec};

use crate::command::IoId;
use crate::time::Time;

/// A sync request that has waited this long goes before the others.
const SYNC_DEADLINE: Duration = Duration::from_millis(100);

/// The same for an async request. As in the kernel's deadline scheduler, a write may wait ten times as long as a read.
const ASYNC_DEADLINE: Duration = Duration::from_secs(1);

/// Most sync requests dispatched before an async one that is past its deadline.
const PASSED_OVER_MAX: u32 = 4;

/// Where a request is on its device, in pages: the order the device is passed over in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct DeviceBlock(pub(crate) u64);

/// Whether a program or a sync waits for the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rank {
    Sync,
    Async,
}

/// The payload of a request.
pub(crate) trait Join {
    /// Whether `next`, which follows this on the device, also follows it in the file.
    fn goes_on_with(&self, next: &Self) -> bool;

    /// Appends `next` to this.
    fn join(&mut self, next: Self);
}

/// Requests that were joined, each with its number of pages, in the order of their places. The joined request has the
/// identifier of the first.
pub(crate) type Members = SmallVec<[(IoId, usize); 1]>;

/// A request that waits, or several that were joined.
#[derive(Debug)]
pub(crate) struct Request<T> {
    pub(crate) members: Members,
    pub(crate) place: DeviceBlock,
    pub(crate) pages: u64,
    pub(crate) payload: T,
    /// When the oldest member was submitted.
    since: Time,
}

#[derive(Debug)]
struct Set<T> {
    by_place: BTreeMap<(DeviceBlock, IoId), Request<T>>,
    by_age: BTreeMap<(Time, IoId), DeviceBlock>,
    deadline: Duration,
    under_way: usize,
}

impl<T: Join> Set<T> {
    fn new(deadline: Duration) -> Set<T> {
        let (by_place, by_age) = (BTreeMap::new(), BTreeMap::new());
        Set { by_place, by_age, deadline, under_way: 0 }
    }

    fn insert(&mut self, mut request: Request<T>, pages_max: u64) {
        let before = self.by_place.range(..(request.place, IoId(0))).next_back();
        if let Some((&key, before)) = before
            && before.may_join(&request, pages_max)
        {
            let mut whole = self.remove(key);
            whole.join(request);
            request = whole;
        }
        let after = (DeviceBlock(request.place.0 + request.pages), IoId(0));
        if let Some((&key, after)) = self.by_place.range(after..).next()
            && request.may_join(after, pages_max)
        {
            let after = self.remove(key);
            request.join(after);
        }
        self.put(request);
    }

    fn put(&mut self, request: Request<T>) {
        let (id, _) = request.members[0];
        self.by_age.insert((request.since, id), request.place);
        self.by_place.insert((request.place, id), request);
    }

    fn remove(&mut self, key: (DeviceBlock, IoId)) -> Request<T> {
        let request = self.by_place.remove(&key).expect("the request waits");
        let age = self.by_age.remove(&(request.since, key.1));
        assert!(age.is_some(), "a request waits under its age, too");
        request
    }

    /// The oldest, if it is past its deadline.
    fn overdue(&self, now: Time) -> Option<(DeviceBlock, IoId)> {
        let (&(since, id), &place) = self.by_age.first_key_value()?;
        (since + self.deadline <= now).then_some((place, id))
    }

    /// The next in the elevator's order.
    fn next(&self, head: DeviceBlock) -> Option<(DeviceBlock, IoId)> {
        let ahead = self.by_place.range((head, IoId(0))..).next();
        ahead.or_else(|| self.by_place.first_key_value()).map(|(&key, _)| key)
    }
}

impl<T: Join> Request<T> {
    fn may_join(&self, next: &Request<T>, pages_max: u64) -> bool {
        self.place.0 + self.pages == next.place.0
            && self.pages + next.pages <= pages_max
            && self.payload.goes_on_with(&next.payload)
    }

    fn join(&mut self, next: Request<T>) {
        self.members.extend(next.members);
        self.pages += next.pages;
        self.payload.join(next.payload);
        self.since = self.since.min(next.since);
    }
}

/// The requests of one device that wait, and how many are under way.
#[derive(Debug)]
pub(crate) struct Scheduler<T> {
    sync: Set<T>,
    later: Set<T>,
    /// Behind the request that was dispatched last.
    head: DeviceBlock,
    /// Sync requests dispatched since an async one was.
    passed_over: u32,
    under_way: HashMap<IoId, (Rank, Members)>,
    /// Most pages that joined requests have.
    pages_max: u64,
}

/// Requests that may be under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) sync: usize,
    pub(crate) later: usize,
}

/// A request that is about to be dispatched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Chosen {
    pub(crate) rank: Rank,
    pub(crate) place: DeviceBlock,
    id: IoId,
}

impl<T: Join> Scheduler<T> {
    /// A scheduler that joins requests up to `pages_max` pages.
    pub(crate) fn new(pages_max: u64) -> Scheduler<T> {
        Scheduler {
            sync: Set::new(SYNC_DEADLINE),
            later: Set::new(ASYNC_DEADLINE),
            head: DeviceBlock(0),
            passed_over: 0,
            under_way: HashMap::new(),
            pages_max,
        }
    }

    fn set(&mut self, rank: Rank) -> &mut Set<T> {
        match rank {
            Rank::Sync => &mut self.sync,
            Rank::Async => &mut self.later,
        }
    }

    /// The number of requests that wait.
    pub(crate) fn waiting(&self, rank: Rank) -> usize {
        match rank {
            Rank::Sync => self.sync.by_place.len(),
            Rank::Async => self.later.by_place.len(),
        }
    }

    /// The number of requests in flight, joined ones counted as one.
    pub(crate) fn under_way(&self) -> usize {
        self.under_way.len()
    }

    /// Adds a request.
    pub(crate) fn submit(
        &mut self,
        rank: Rank,
        id: IoId,
        place: DeviceBlock,
        pages: usize,
        payload: T,
        now: Time,
    ) {
        let members = smallvec![(id, pages)];
        let request = Request { members, place, pages: pages as u64, payload, since: now };
        let pages_max = self.pages_max;
        self.set(rank).insert(request, pages_max);
    }

    /// Makes the async requests sync for which `wanted` is true.
    pub(crate) fn promote(&mut self, wanted: impl Fn(&T) -> bool) {
        let of_later = |(key, request): (&(DeviceBlock, IoId), &Request<T>)| {
            wanted(&request.payload).then_some(*key)
        };
        let keys: Vec<_> = self.later.by_place.iter().filter_map(of_later).collect();
        for key in keys {
            let request = self.later.remove(key);
            self.sync.insert(request, self.pages_max);
        }
    }

    /// Removes and returns the waiting requests for which `wanted` is true.
    pub(crate) fn cancel(&mut self, wanted: impl Fn(&T) -> bool) -> Vec<Request<T>> {
        let mut cancelled = Vec::new();
        for set in [&mut self.sync, &mut self.later] {
            let waiting = set.by_place.iter();
            let keys: Vec<_> =
                waiting.filter(|(_, of)| wanted(&of.payload)).map(|(&key, _)| key).collect();
            cancelled.extend(keys.into_iter().map(|key| set.remove(key)));
        }
        cancelled
    }

    /// The request to dispatch next, if the depth allows one.
    pub(crate) fn choose(&self, depth: Depth, now: Time) -> Option<Chosen> {
        let may = |set: &Set<T>, depth| set.under_way < depth && !set.by_place.is_empty();
        let (sync, later) = (may(&self.sync, depth.sync), may(&self.later, depth.later));
        let turn = !sync || self.passed_over >= PASSED_OVER_MAX;
        let overdue = self.later.overdue(now).filter(|_| later && turn);
        let (rank, (place, id)) = match (overdue, sync) {
            (Some(key), _) => (Rank::Async, key),
            (None, true) => {
                (Rank::Sync, self.sync.overdue(now).or_else(|| self.sync.next(self.head))?)
            }
            (None, false) if later => (Rank::Async, self.later.next(self.head)?),
            _ => return None,
        };
        Some(Chosen { rank, place, id })
    }

    /// The places that the disk arm is about to pass: those between the request dispatched last and `chosen`.
    pub(crate) fn opportunity(&self, chosen: Chosen) -> std::ops::Range<u64> {
        self.head.0.min(chosen.place.0)..self.head.0.max(chosen.place.0)
    }

    /// Chooses a waiting async request out of its turn.
    pub(crate) fn find(&self, id: IoId) -> Option<Chosen> {
        let has = |request: &Request<T>| request.members.iter().any(|(member, _)| *member == id);
        let (&(place, id), _) = self.later.by_place.iter().find(|(_, request)| has(request))?;
        Some(Chosen { rank: Rank::Async, place, id })
    }

    /// Removes the chosen request, which the caller gives to the device now.
    pub(crate) fn dispatch(&mut self, chosen: Chosen) -> Request<T> {
        let request = self.set(chosen.rank).remove((chosen.place, chosen.id));
        self.passed_over = match chosen.rank {
            Rank::Sync => self.passed_over.saturating_add(1),
            Rank::Async => 0,
        };
        self.head = DeviceBlock(request.place.0 + request.pages);
        self.set(chosen.rank).under_way += 1;
        self.under_way.insert(request.members[0].0, (chosen.rank, request.members.clone()));
        request
    }

    /// Notes that a dispatched request ended. Returns its members, or `None` if the scheduler did not dispatch it.
    pub(crate) fn ended(&mut self, id: IoId) -> Option<Members> {
        let (rank, members) = self.under_way.remove(&id)?;
        self.set(rank).under_way -= 1;
        Some(members)
    }

    pub(crate) fn check_invariants(&self) {
        for (set, rank) in [(&self.sync, Rank::Sync), (&self.later, Rank::Async)] {
            assert_eq!(set.by_place.len(), set.by_age.len());
            let under_way = self.under_way.values().filter(|(of, _)| *of == rank).count();
            assert_eq!(set.under_way, under_way);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Pages of a file.
    #[derive(Clone, Debug, PartialEq, Eq)]
    struct Piece {
        file: u8,
        from: u64,
        to: u64,
    }

    impl Join for Piece {
        fn goes_on_with(&self, next: &Piece) -> bool {
            self.file == next.file && self.to == next.from
        }

        fn join(&mut self, next: Piece) {
            self.to = next.to;
        }
    }

    fn scheduler() -> Scheduler<Piece> {
        Scheduler::new(8)
    }

    fn put(scheduler: &mut Scheduler<Piece>, rank: Rank, id: u64, place: u64, now: Time) {
        let payload = Piece { file: 0, from: place, to: place + 1 };
        scheduler.submit(rank, IoId(id), DeviceBlock(place), 1, payload, now);
    }

    const DEEP: Depth = Depth { sync: 100, later: 100 };

    fn places(scheduler: &mut Scheduler<Piece>, now: Time) -> Vec<u64> {
        std::iter::from_fn(|| {
            let chosen = scheduler.choose(DEEP, now)?;
            Some(scheduler.dispatch(chosen).place.0)
        })
        .collect()
    }

    #[test]
    fn each_set_is_a_one_way_elevator_and_sync_goes_first() {
        let mut scheduler = scheduler();
        put(&mut scheduler, Rank::Sync, 1, 50, Time::ZERO);
        assert_eq!(places(&mut scheduler, Time::ZERO), [50]);
        for (id, place) in (2..).zip([40, 90, 10, 60]) {
            put(&mut scheduler, Rank::Sync, id, place, Time::ZERO);
            put(&mut scheduler, Rank::Async, 10 + id, place + 5, Time::ZERO);
        }
        assert_eq!(places(&mut scheduler, Time::ZERO), [60, 90, 10, 40, 45, 65, 95, 15]);
        scheduler.check_invariants();
    }

    #[test]
    fn a_request_past_its_deadline_goes_before_the_others_of_its_set() {
        let mut scheduler = scheduler();
        put(&mut scheduler, Rank::Sync, 1, 90, Time::ZERO);
        put(&mut scheduler, Rank::Sync, 2, 10, Time::from_millis(50));
        assert_eq!(scheduler.choose(DEEP, Time::from_millis(99)).unwrap().place, DeviceBlock(10));
        assert_eq!(scheduler.choose(DEEP, Time::from_millis(100)).unwrap().place, DeviceBlock(90));
    }

    #[test]
    fn an_async_request_past_its_deadline_takes_its_turn_after_a_few_sync_ones() {
        let mut scheduler = scheduler();
        put(&mut scheduler, Rank::Async, 1, 500, Time::ZERO);
        put(&mut scheduler, Rank::Async, 2, 600, Time::ZERO);
        for id in 3..20 {
            put(&mut scheduler, Rank::Sync, id, 2 * id, Time::from_millis(1000));
        }
        let order = places(&mut scheduler, Time::from_millis(1000));
        assert_eq!(order.iter().position(|place| *place == 500), Some(4));
        assert_eq!(order.iter().position(|place| *place == 600), Some(9));
    }

    #[test]
    fn adjacent_requests_are_joined_while_they_wait() {
        let mut scheduler = scheduler();
        for (id, place) in (1..).zip([3, 1, 2, 7]) {
            put(&mut scheduler, Rank::Async, id, place, Time::from_millis(id));
        }
        let chosen = scheduler.choose(DEEP, Time::ZERO).unwrap();
        let request = scheduler.dispatch(chosen);
        assert_eq!(request.members[..], [(IoId(2), 1), (IoId(3), 1), (IoId(1), 1)]);
        assert_eq!(
            (request.place, request.pages, request.since),
            (DeviceBlock(1), 3, Time::from_millis(1))
        );
        assert_eq!(request.payload, Piece { file: 0, from: 1, to: 4 });
        assert_eq!(scheduler.waiting(Rank::Async), 1);
        assert_eq!(scheduler.ended(IoId(2)).unwrap().len(), 3);
        for (id, place) in (20..).zip(100..109) {
            put(&mut scheduler, Rank::Sync, id, place, Time::ZERO);
        }
        assert_eq!(places(&mut scheduler, Time::ZERO), [100, 108, 7], "at most eight pages");
        put(&mut scheduler, Rank::Async, 8, 7, Time::ZERO);
        let of_another = Piece { file: 1, from: 8, to: 9 };
        scheduler.submit(Rank::Async, IoId(9), DeviceBlock(8), 1, of_another, Time::ZERO);
        assert_eq!(scheduler.waiting(Rank::Async), 2, "of another file");
        scheduler.check_invariants();
    }

    #[test]
    fn promoted_requests_are_sync_and_cancelled_ones_are_not_dispatched() {
        let mut scheduler = scheduler();
        for id in 1..4 {
            put(&mut scheduler, Rank::Async, id, 10 * id, Time::ZERO);
        }
        scheduler.promote(|piece| piece.from == 20);
        assert_eq!((scheduler.waiting(Rank::Sync), scheduler.waiting(Rank::Async)), (1, 2));
        let cancelled = scheduler.cancel(|piece| piece.from == 10);
        assert_eq!(cancelled.len(), 1);
        assert_eq!(places(&mut scheduler, Time::ZERO), [20, 30]);
    }

    #[test]
    fn an_opportunity_lies_between_two_requests_dispatched_in_turn() {
        let mut scheduler = scheduler();
        put(&mut scheduler, Rank::Sync, 1, 50, Time::ZERO);
        assert_eq!(places(&mut scheduler, Time::ZERO), [50]);
        put(&mut scheduler, Rank::Sync, 2, 80, Time::ZERO);
        let chosen = scheduler.choose(DEEP, Time::ZERO).unwrap();
        assert_eq!(scheduler.opportunity(chosen), 51..80);
        scheduler.dispatch(chosen);
        put(&mut scheduler, Rank::Sync, 3, 20, Time::ZERO);
        let chosen = scheduler.choose(DEEP, Time::ZERO).unwrap();
        assert_eq!(scheduler.opportunity(chosen), 20..81, "backwards too");
    }

    #[derive(Clone, Debug)]
    enum Step {
        Submit { sync: bool, place: u64 },
        Dispatch,
        End { nth: usize },
        Wait { ms: u64 },
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (any::<bool>(), 0..200u64).prop_map(|(sync, place)| Step::Submit { sync, place }),
            4 => Just(Step::Dispatch),
            3 => (0..8usize).prop_map(|nth| Step::End { nth }),
            1 => (0..400u64).prop_map(|ms| Step::Wait { ms }),
        ];
        prop::collection::vec(step, 1..200)
    }

    proptest! {
        #[test]
        fn every_request_is_dispatched_once_within_its_depth_and_in_bounded_turns(
            steps in steps(),
            sync in 1..4usize,
            later in 1..4usize,
        ) {
            let depth = Depth { sync, later };
            let mut scheduler = scheduler();
            let mut now = Time::ZERO;
            let (mut next, mut gone) = (0, 0);
            let mut under_way: Vec<(IoId, Rank)> = Vec::new();
            // For each waiting request: its rank, its submission time, how many requests of its rank and at least
            // its age waited when its deadline passed, and how many were dispatched since.
            let mut waiting: BTreeMap<IoId, (Rank, Time, usize, usize)> = BTreeMap::new();
            let finish = (0..2000).map(|nth| match nth % 2 {
                0 => Step::Dispatch,
                _ => Step::End { nth: 0 },
            });
            for step in steps.into_iter().chain(finish) {
                match step {
                    Step::Submit { sync, place } => {
                        next += 1;
                        let rank = if sync { Rank::Sync } else { Rank::Async };
                        put(&mut scheduler, rank, next, place, now);
                        waiting.insert(IoId(next), (rank, now, 0, 0));
                    }
                    Step::Dispatch => {
                        let Some(chosen) = scheduler.choose(depth, now) else { continue };
                        let request = scheduler.dispatch(chosen);
                        for (member, _) in &request.members {
                            prop_assert!(waiting.remove(member).is_some(), "it went once");
                            gone += 1;
                        }
                        under_way.push((request.members[0].0, chosen.rank));
                        let count = |rank| under_way.iter().filter(|(_, of)| *of == rank).count();
                        prop_assert!(count(Rank::Sync) <= sync && count(Rank::Async) <= later);
                        let older = waiting.clone();
                        for (id, (rank, since, before, passed)) in &mut waiting {
                            let late = *since + deadline_of(*rank) <= now;
                            if !late || count(*rank) == depth_of(depth, *rank) {
                                continue;
                            }
                            let first = |(other, (of, at, ..)): &(&IoId, &(Rank, Time, _, _))| {
                                of == rank && at <= since && *other != id
                            };
                            *before = older.iter().filter(first).count().max(*before);
                            *passed += 1;
                            // The older ones, each with a few of the other set.
                            let bound = (*before + 2) * (PASSED_OVER_MAX as usize + 2);
                            prop_assert!(*passed <= bound, "{id:?} starves");
                        }
                    }
                    Step::End { nth } if !under_way.is_empty() => {
                        let (id, _) = under_way.swap_remove(nth % under_way.len());
                        prop_assert!(scheduler.ended(id).is_some());
                    }
                    Step::End { .. } => {}
                    Step::Wait { ms } => now = now + Duration::from_millis(ms),
                }
                scheduler.check_invariants();
            }
            prop_assert_eq!(gone, next, "nothing is left behind");
        }
    }

    fn deadline_of(rank: Rank) -> Duration {
        match rank {
            Rank::Sync => SYNC_DEADLINE,
            Rank::Async => ASYNC_DEADLINE,
        }
    }

    fn depth_of(depth: Depth, rank: Rank) -> usize {
        match rank {
            Rank::Sync => depth.sync,
            Rank::Async => depth.later,
        }
    }
}
