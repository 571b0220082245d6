//! Requests that wait for their answer, by their engine's number.

use weir_engine::{Error, FileId, FreezeEnd, ReadData, RequestId, Time};

/// A continuation without an argument.
pub(crate) type Answer = Box<dyn FnOnce() + Send>;

/// Run while a file is frozen; returns the continuation of the freeze. See [`crate::Shard::freeze`].
pub(crate) type FrozenAction = Box<dyn FnOnce(Result<(), Error>) -> (FreezeEnd, Answer) + Send>;

/// Takes a late answer.
pub(crate) enum Continuation {
    Write(Box<dyn FnOnce(Result<(), Error>) + Send>),
    /// A write whose program does not wait for it.
    Posted(Box<dyn FnOnce(Result<(), Error>) + Send>),
    Read(Box<dyn FnOnce(Result<ReadData, Error>) + Send>),
    Sync(Box<dyn FnOnce(Result<(), Error>) + Send>),
    Freeze(FileId, FrozenAction),
}

/// A request that waits.
pub(crate) struct Waiting {
    /// When the request was made.
    pub(crate) since: Time,
    /// The file that it is on, if it is on one.
    pub(crate) file: Option<FileId>,
    pub(crate) continuation: Continuation,
}

/// The waiting requests. The number of an answered request is reused.
#[derive(Default)]
pub(crate) struct Pending {
    slots: Vec<Option<Waiting>>,
    free: Vec<u64>,
}

impl Pending {
    /// The number that [`Pending::insert`] gives to the next request.
    pub(crate) fn next_id(&self) -> RequestId {
        RequestId(self.free.last().copied().unwrap_or(self.slots.len() as u64))
    }

    /// Keeps a request under [`Pending::next_id`].
    pub(crate) fn insert(&mut self, waiting: Waiting) {
        match self.free.pop() {
            Some(index) => self.slots[index as usize] = Some(waiting),
            None => self.slots.push(Some(waiting)),
        }
    }

    /// The requests that wait, in no order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Waiting> {
        self.slots.iter().flatten()
    }

    /// Removes a request: the engine answers each exactly once.
    pub(crate) fn remove(&mut self, request: RequestId) -> Waiting {
        let slot = self.slots.get_mut(request.0 as usize).and_then(Option::take);
        self.free.push(request.0);
        slot.expect("the engine answers a request that waits, and once")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting() -> Waiting {
        let continuation = Continuation::Write(Box::new(|_| {}));
        Waiting { since: Time::ZERO, file: None, continuation }
    }

    #[test]
    fn numbers_are_unique_among_those_that_wait() {
        let mut pending = Pending::default();
        let mut ids = Vec::new();
        for _ in 0..3 {
            ids.push(pending.next_id());
            pending.insert(waiting());
        }
        assert_eq!(ids, [RequestId(0), RequestId(1), RequestId(2)]);
        pending.remove(RequestId(1));
        assert_eq!(pending.next_id(), RequestId(1));
        pending.insert(waiting());
        assert_eq!(pending.next_id(), RequestId(3));
    }
}
