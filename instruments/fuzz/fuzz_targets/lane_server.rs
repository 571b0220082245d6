//! The server's side of a region whose client follows no rules: heads, tails, sequence numbers and entries are
//! anything, and change between any two of the server's looks at them.
//!
//! What the server does is compared with a model that reads the same memory at the same moments. The server takes
//! the entries in the order of sequence numbers, or reports damage. It reads inside a ring, takes no more than a
//! ring holds, and a scan ends.

#![no_main]

use std::sync::Arc;
use std::sync::atomic::Ordering;

use arbitrary::Arbitrary;
use libfuzzer_sys::fuzz_target;
use weir_lane::fuzzing::Hostile;
use weir_lane::region::{EXTENDS, EntryHead, Kind, RINGS, Region};
use weir_lane::ring::{
    ENTRY_ALIGN, HEAD_BYTES, PAYLOAD_BYTES_MAX, RING_BYTES, advance, distance, entry_bytes,
};
use weir_lane::server::{Cut, Damage, Inbox, Posted};

const FRAMES: u32 = 4;
const STEPS_MAX: usize = 200;

#[derive(Arbitrary, Debug)]
enum Step {
    /// The client writes a word anywhere before the rings' bytes, or in the first of these.
    Word {
        at: u32,
        value: Number,
    },
    NextSequence(Number),
    /// The client puts entries where the server looks next, and publishes them.
    Post {
        ring: u8,
        entries: Vec<Entry>,
        tail: Tail,
    },
    /// A ring is used correctly until `left` units are left before its end.
    NearEnd {
        ring: u8,
        left: u8,
    },
    /// The client changes an entry that the server may have read.
    Change {
        ring: u8,
        entry: Entry,
    },
    Begin {
        all: bool,
    },
    LookAhead {
        corrupts: Option<(u8, Number)>,
    },
    Next,
    /// What was taken out last is applied.
    Take {
        slot: Option<u16>,
    },
    Flush,
    Settle {
        slot: Option<u16>,
    },
    Revoke,
    StartPolling,
    StopPolling,
}

/// A number at which programs fail, or any other.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Number {
    Small(u16),
    Any(u64),
    Power { of_two: u8, more: i8 },
}

impl Number {
    fn get(self) -> u64 {
        match self {
            Number::Small(small) => small.into(),
            Number::Any(any) => any,
            Number::Power { of_two, more } => {
                (1u64 << (of_two % 64)).wrapping_add_signed(more.into())
            }
        }
    }
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Tail {
    Right,
    /// This many bytes more than were put.
    Off(i16),
    Any(Number),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
struct Entry {
    sequence: u8,
    offset: u32,
    description: u32,
    len: Len,
    kind: u8,
    extends: bool,
    wrong: Option<(Field, Number)>,
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Len {
    Short(u8),
    Long(u32),
    /// The longest payload less this.
    Most(u8),
    /// The entry ends this many units past the ring's end; before it, if negative.
    ToEnd(i8),
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Field {
    Sequence,
    Offset,
    Len,
    Kind,
    Flags,
}

impl Entry {
    fn head(self, at: usize) -> EntryHead {
        let len = match self.len {
            Len::Short(len) => 1 + i64::from(len),
            Len::Long(len) => 1 + i64::from(len) % PAYLOAD_BYTES_MAX as i64,
            Len::Most(less) => (PAYLOAD_BYTES_MAX - usize::from(less)) as i64,
            Len::ToEnd(past) => {
                let past = i64::from(past) * ENTRY_ALIGN as i64;
                (RING_BYTES - at - HEAD_BYTES) as i64 + past
            }
        };
        let (kinds, flags) = ([1, 2, 1, 2, 0], if self.extends { EXTENDS } else { 0 });
        let mut head = EntryHead {
            sequence: self.sequence.into(),
            offset: self.offset.into(),
            description: self.description,
            len: len as u32,
            kind: kinds[usize::from(self.kind) % kinds.len()],
            flags,
        };
        if let Some((field, number)) = self.wrong {
            let number = number.get();
            match field {
                Field::Sequence => head.sequence = number,
                Field::Offset => head.offset = number,
                Field::Len => head.len = number as u32,
                Field::Kind => head.kind = number as u32,
                Field::Flags => head.flags = number as u32,
            }
        }
        head
    }
}

/// What a correct server knows.
struct Model {
    heads: [u64; RINGS],
    issued: u64,
    scan: Vec<Waiting>,
}

struct Waiting {
    ring: usize,
    tail: u64,
    next: EntryHead,
}

impl Model {
    fn at(&self, ring: usize) -> usize {
        self.heads[ring] as usize % RING_BYTES
    }

    fn damage(&self, ring: usize) -> Damage {
        Damage { ring, at: self.at(ring) }
    }

    fn begin(&mut self, region: &Hostile<'_>) -> Result<(), Damage> {
        self.issued = self.issued.max(region.next_sequence());
        self.scan.clear();
        for ring in (0..RINGS).filter(|ring| region.rings_used() >> ring & 1 != 0) {
            let tail = region.tail(ring);
            let posted = distance(self.heads[ring], tail);
            if posted > RING_BYTES as u64 || !posted.is_multiple_of(ENTRY_ALIGN as u64) {
                return Err(self.damage(ring));
            }
            if let Some(next) = self.peek(region, ring, tail)? {
                self.scan.push(Waiting { ring, tail, next });
            }
        }
        Ok(())
    }

    /// The next entry of a ring, past fillers.
    fn peek(
        &mut self,
        region: &Hostile<'_>,
        ring: usize,
        tail: u64,
    ) -> Result<Option<EntryHead>, Damage> {
        while self.heads[ring] != tail {
            let (at, left) = (self.at(ring), distance(self.heads[ring], tail) as usize);
            let entry = region.entry(ring, at);
            let is_filler = entry.kind == Kind::Filler as u32;
            let bytes = if is_filler { RING_BYTES - at } else { HEAD_BYTES + entry.len as usize };
            let bytes = bytes.next_multiple_of(ENTRY_ALIGN);
            let is_right = is_filler
                || [Kind::Write as u32, Kind::Append as u32].contains(&entry.kind)
                    && (1..=PAYLOAD_BYTES_MAX).contains(&(entry.len as usize))
                    && i128::from(entry.offset) + i128::from(entry.len) <= i128::from(i64::MAX)
                    && [0, EXTENDS].contains(&entry.flags);
            if !is_right || bytes > left || at + bytes > RING_BYTES {
                return Err(self.damage(ring));
            }
            if !is_filler {
                self.issued = match entry.sequence < self.issued {
                    true => self.issued,
                    false => self.issued.max(region.next_sequence()),
                };
                let was_issued = entry.sequence < self.issued;
                return if was_issued { Ok(Some(entry)) } else { Err(self.damage(ring)) };
            }
            self.heads[ring] = advance(self.heads[ring], bytes);
        }
        Ok(None)
    }

    /// Which ring's entry is next: of those with the least sequence number, the first in the scan.
    fn next(&self, below: u64) -> Option<usize> {
        let is_below = |nth: &usize| self.scan[*nth].next.sequence < below || below == u64::MAX;
        (0..self.scan.len()).filter(is_below).min_by_key(|nth| self.scan[*nth].next.sequence)
    }

    fn take(&mut self, region: &Hostile<'_>, ring: usize, len: usize) -> Result<(), Damage> {
        self.heads[ring] = advance(self.heads[ring], entry_bytes(len));
        let Some(nth) = self.scan.iter().position(|waiting| waiting.ring == ring) else {
            return Ok(());
        };
        match self.peek(region, ring, self.scan[nth].tail)? {
            Some(next) => self.scan[nth].next = next,
            None => drop(self.scan.swap_remove(nth)),
        }
        Ok(())
    }
}

struct Run {
    region: Arc<Region>,
    inbox: Inbox,
    model: Model,
    /// The scan under way, and the sequence number below which it takes.
    cut: Option<(Cut, u64)>,
    /// Taken out and not applied, from this ring.
    last: Option<(Posted, usize)>,
    /// Taken out, and not yet flushed.
    taken: Vec<usize>,
    /// Since the scan began.
    taken_bytes: usize,
}

impl Run {
    fn new() -> Run {
        let (region, _) = Region::create(FRAMES).expect("there is memory");
        let region = Arc::new(region);
        let model = Model { heads: [0; RINGS], issued: 0, scan: Vec::new() };
        let inbox = Inbox::new(Arc::clone(&region));
        Run { region, inbox, model, cut: None, last: None, taken: Vec::new(), taken_bytes: 0 }
    }

    /// Does a step. After damage the server drops the inbox.
    fn step(&mut self, step: &Step) -> Result<(), Damage> {
        let region = Arc::clone(&self.region);
        let region = Hostile(&region);
        match *step {
            Step::Word { at, value } => {
                let bytes = region.memory().len() - (RINGS - 1) * RING_BYTES;
                region.word(at as usize % bytes / 8 * 8).store(value.get(), Ordering::Relaxed);
            }
            Step::NextSequence(next) => region.set_next_sequence(next.get()),
            Step::Post { ring, ref entries, tail } => self.post(&region, ring, entries, tail),
            Step::NearEnd { ring, left } => self.go_near_end(&region, ring, left)?,
            Step::Change { ring, entry } => {
                let ring = usize::from(ring) % RINGS;
                let at = self.model.at(ring);
                region.put_entry(ring, at, entry.head(at));
            }
            Step::Begin { all } => self.begin(&region, all)?,
            Step::LookAhead { corrupts } => {
                self.inbox.look_ahead(|_, offset, len| {
                    assert!((1..=PAYLOAD_BYTES_MAX).contains(&len));
                    assert!(offset <= i64::MAX as u64 - len as u64);
                    if let Some((ring, tail)) = corrupts {
                        region.set_tail(usize::from(ring) % RINGS, tail.get());
                    }
                });
            }
            Step::Next => self.next(&region)?,
            Step::Take { slot } => {
                let Some((posted, ring)) = self.last.take() else { return Ok(()) };
                self.taken.push(ring);
                let took = self.inbox.take(posted, slot.map(u32::from));
                assert_eq!(took, self.model.take(&region, ring, posted.len));
                took?;
            }
            Step::Flush => self.flush(&region),
            Step::Settle { slot } => {
                let Some((posted, ring)) = self.last.take() else { return Ok(()) };
                self.taken.push(ring);
                let took = self.inbox.settle(posted, slot.map(u32::from));
                assert_eq!(took, self.model.take(&region, ring, posted.len));
                self.check_told(&region);
                took?;
            }
            Step::Revoke => self.inbox.revoke(),
            Step::StartPolling => self.inbox.start_polling(),
            Step::StopPolling => assert_eq!(self.inbox.stop_polling(), !self.inbox.has_posted()),
        }
        Ok(())
    }

    fn post(&self, region: &Hostile<'_>, ring: u8, entries: &[Entry], tail: Tail) {
        let ring = usize::from(ring) % RINGS;
        region.use_ring(ring, 1 + ring as u32);
        let mut end = self.model.heads[ring];
        for (nth, entry) in entries.iter().take(40).enumerate() {
            let at = end as usize % RING_BYTES / ENTRY_ALIGN * ENTRY_ALIGN;
            let head = entry.head(at);
            region.put_entry(ring, at, head);
            let inside = (head.len as usize).min(RING_BYTES - at - HEAD_BYTES);
            region.fill(ring, at + HEAD_BYTES, inside.min(512), nth as u8 + 1);
            let is_filler = head.kind == Kind::Filler as u32;
            let claimed = entry_bytes((head.len as usize).min(PAYLOAD_BYTES_MAX));
            end = advance(end, if is_filler { RING_BYTES - at } else { claimed });
        }
        let tail = match tail {
            Tail::Right => end,
            Tail::Off(bytes) => end.wrapping_add_signed(bytes.into()),
            Tail::Any(any) => any.get(),
        };
        region.set_tail(ring, tail);
    }

    fn go_near_end(&mut self, region: &Hostile<'_>, ring: u8, left: u8) -> Result<(), Damage> {
        let (ring, left) = (usize::from(ring) % RINGS, (1 + usize::from(left)) * ENTRY_ALIGN);
        region.use_ring(ring, 1);
        region.set_next_sequence(region.next_sequence().max(1));
        loop {
            let at = self.model.at(ring);
            let bytes = (RING_BYTES - at).saturating_sub(left).min(entry_bytes(PAYLOAD_BYTES_MAX));
            if bytes <= HEAD_BYTES {
                return Ok(());
            }
            let (len, kind) = ((bytes - HEAD_BYTES) as u32, Kind::Write as u32);
            let head = EntryHead { sequence: 0, offset: 0, description: 0, len, kind, flags: 0 };
            region.put_entry(ring, at, head);
            region.set_tail(ring, advance(self.model.heads[ring], bytes));
            self.drain()?;
        }
    }

    fn begin(&mut self, region: &Hostile<'_>, all: bool) -> Result<(), Damage> {
        // The server settles a write before the next scan.
        self.last = None;
        self.flush(region);
        let began = self.inbox.begin();
        assert_eq!(began.map(drop), self.model.begin(region));
        self.cut = Some(if all { (Cut::ALL, u64::MAX) } else { (began?, self.model.issued) });
        self.taken_bytes = 0;
        began.map(drop)
    }

    fn next(&mut self, region: &Hostile<'_>) -> Result<(), Damage> {
        let (Some((cut, below)), None) = (self.cut, self.last) else { return Ok(()) };
        let posted = self.inbox.next(cut)?;
        let expected = self.model.next(below).map(|nth| &self.model.scan[nth]);
        let (Some(posted), Some(Waiting { ring, next, .. })) = (posted, expected) else {
            assert!(posted.is_none() && expected.is_none());
            return Ok(());
        };
        let is_write = next.kind == Kind::Write as u32;
        let wanted = (next.description, is_write.then_some(next.offset), next.len as usize);
        assert_eq!((posted.description, posted.offset, posted.len), wanted);
        // Of a long payload, both ends: they show a wrong place.
        let (at, len) = (self.model.at(*ring) + HEAD_BYTES, posted.len);
        let (payload, part) = (self.inbox.payload(), len.min(256));
        assert!(payload.len() == len && payload[..part] == region.bytes(*ring, at, part));
        assert!(payload[len - part..] == region.bytes(*ring, at + len - part, part));
        self.taken_bytes += entry_bytes(posted.len);
        assert!(self.taken_bytes <= RINGS * RING_BYTES);
        self.last = Some((posted, *ring));
        Ok(())
    }

    fn flush(&mut self, region: &Hostile<'_>) {
        self.inbox.flush();
        self.check_told(region);
    }

    /// Takes out all that is there.
    fn drain(&mut self) -> Result<(), Damage> {
        self.step(&Step::Begin { all: true })?;
        loop {
            self.step(&Step::LookAhead { corrupts: None })?;
            self.step(&Step::Next)?;
            if self.last.is_none() {
                assert!(!self.inbox.has_posted());
                return Ok(());
            }
            self.step(&Step::Settle { slot: None })?;
        }
    }

    /// The client was told what was taken out.
    fn check_told(&mut self, region: &Hostile<'_>) {
        for ring in self.taken.drain(..) {
            assert_eq!(region.released(ring), self.model.heads[ring]);
        }
    }
}

fuzz_target!(|steps: Vec<Step>| {
    let mut run = Run::new();
    for step in steps.iter().take(STEPS_MAX) {
        if let Err(Damage { ring, at }) = run.step(step) {
            assert!(ring < RINGS && at < RING_BYTES);
            return;
        }
    }
    // Whatever the region holds, draining it ends.
    let _ = run.drain();
});
