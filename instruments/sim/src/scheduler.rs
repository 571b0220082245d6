//! Chooses, from a seed, what kind of run it is and what happens next in it.
//!
//! Every seed draws its own [`Profile`]: bounds, policy, files, device, and how often each action
//! happens; some not at all (swarm testing, ISSTA'12). Small bounds and few hot pages make rare
//! states common.

use std::time::Duration;

use weir_engine::{
    Config, Durability, ErrorKind, FetchPolicy, FileId, Order, PAGE_BYTES, Undone, WriteBackPolicy,
};

use crate::action::{Action, FrozenAction};
use crate::device::{DeviceConfig, Fault, Faults, Latency};
use crate::home::Home;
use crate::rng::Rng;
use crate::world::{World, WorldConfig};

const PAGE: u64 = PAGE_BYTES as u64;

/// Largest offset most runs use, so that comparing files is quick.
const OFFSET_MAX: u64 = 1 << 20;

/// Largest offset of the few runs whose files do not fit memory.
const OFFSET_MAX_LARGE: u64 = 12 << 20;

/// What kind of run a seed is.
#[derive(Clone, Debug)]
pub struct Profile {
    /// The world.
    pub world: WorldConfig,
    /// Files at the start.
    pub files: u64,
    /// Operations before the liveness phase, time passing not counted.
    pub operations: u32,
    /// How often each kind of action happens, in the order of [`KINDS`].
    weights: [u32; KINDS],
    /// Largest offset, bytes.
    offset_max: u64,
    /// Largest request, bytes.
    request_bytes_max: u64,
    /// Requests under way beyond which time passes instead.
    waiting_max: usize,
    /// Share of accesses that go to hot pages, of a thousand.
    hot_per_mille: u32,
    /// Share of synchronous writes, of a thousand.
    synchronous_per_mille: u32,
}

/// Kinds of action.
const KINDS: usize = 18;

/// Usual weights: writes and reads above all, time passing often, the rest now and then.
const USUAL: [u32; KINDS] = [40, 16, 4, 1, 4, 3, 2, 2, 1, 1, 1, 1, 1, 1, 15, 2, 1, 1];

impl Profile {
    /// The profile of a seed.
    pub fn draw(rng: &mut Rng) -> Profile {
        let engine = draw_config(rng);
        let device = draw_device(rng, &engine);
        let mut weights = USUAL;
        for weight in &mut weights {
            *weight *= *rng.pick(&[0, 1, 1, 1, 1, 2, 4]);
        }
        // Without writes, or without time, nothing much happens.
        weights[0] = weights[0].max(10);
        weights[14] = weights[14].max(5);
        let large = rng.chance(10);
        let requests: &[u64] =
            if large { &[64 * PAGE, 256 * PAGE] } else { &[100, PAGE, 3 * PAGE, 16 * PAGE] };
        Profile {
            world: WorldConfig {
                engine,
                device,
                check_every: if large { 8 } else { 1 },
                reads_held_max: *rng.pick(&[0, 0, 1, 4]),
                inode_lock: rng.chance(700),
                frames_spare: *rng.pick(&[0, 1024]),
                ages: rng.chance(500),
                print: false,
            },
            files: if large { 3 } else { rng.between(1, 4) },
            operations: if large { 120 } else { rng.between(150, 350) as u32 },
            weights,
            offset_max: if large { OFFSET_MAX_LARGE } else { OFFSET_MAX },
            request_bytes_max: *rng.pick(requests),
            waiting_max: *rng.pick(&[1, 4, 16, 64]),
            hot_per_mille: *rng.pick(&[0, 300, 700, 950]),
            synchronous_per_mille: *rng.pick(&[0, 0, 50, 300]),
        }
    }

    /// A file as it is found at the start of a run.
    pub fn draw_home(&self, rng: &mut Rng) -> Home {
        let size = match rng.below(6) {
            _ if self.offset_max == OFFSET_MAX_LARGE => {
                rng.between(self.offset_max / 2, self.offset_max)
            }
            0 => 0,
            1 => rng.between(1, PAGE),
            2 => rng.between(1, 8) * PAGE,
            3 => rng.between(1, 64 * PAGE),
            _ => rng.between(1, OFFSET_MAX / 2),
        };
        let mut bytes = rng.bytes(size as usize);
        let mut holes = Vec::new();
        if rng.chance(400) {
            let share = *rng.pick(&[100, 500, 1000]);
            for page in 0..size.div_ceil(PAGE) {
                if rng.chance(share) {
                    let from = (page * PAGE) as usize;
                    bytes[from..(size as usize).min(from + PAGE_BYTES)].fill(0);
                    holes.push(page);
                }
            }
        }
        let write_unit = *rng.pick(&[512, 512, 1024, 4096]);
        // A bucket takes bytes.
        let write_unit = if self.world.engine.keeps_unsynced { 1 } else { write_unit };
        Home::new(bytes, &holes, write_unit, !rng.chance(80))
    }
}

fn draw_config(rng: &mut Rng) -> Config {
    let (background, hard) = *rng.pick(&[(1, 2), (1, 5), (5, 10), (20, 50)]);
    let patch_bytes_max = *rng.pick(&[0, 4 << 10, 64 << 10, 1 << 20, 8 << 20]);
    let fetch_policy = *rng.pick(&FetchPolicy::ALL);
    let expire_ms = *rng.pick(&[1, 100, 5_000, 30_000]);
    // No draws of their own: seeds that found something once have the bounds they had.
    let write_back = match expire_ms {
        1 | 5_000 => WriteBackPolicy::Static,
        _ => WriteBackPolicy::Adaptive,
    };
    let interval_ms = if patch_bytes_max <= 4 << 10 { 10 } else { 1_000 };
    let transfer_pages_max = *rng.pick(&[1, 2, 8, 256]);
    Config {
        order: Order::Sync,
        commit_age: Duration::from_secs(5),
        undone: Undone::default(),
        memory_bytes_max: Config::MEMORY_BYTES_MIN,
        patch_bytes_max,
        fetch_policy,
        dirty_expire: Duration::from_millis(expire_ms),
        write_back,
        write_back_interval: Duration::from_millis(interval_ms),
        dirty_max_percent: (hard * 4 / 5).max(1),
        dirty_background_percent: background,
        dirty_hard_percent: hard,
        transfer_pages_max,
        destages_in_flight_max: *rng.pick(&[1, 2, 16]),
        readahead_pages_max: *rng.pick(&[0, 1, 8, 256]),
        retry_delay: Duration::from_millis(*rng.pick(&[100, 1_000])),
        // No draws of their own either.
        rotational: hard == 5,
        keeps_unsynced: transfer_pages_max == 2,
        opportunistic: hard == 5,
        requests_in_flight_max: if transfer_pages_max < 8 { 2 } else { 1024 },
    }
}

fn draw_device(rng: &mut Rng, engine: &Config) -> DeviceConfig {
    let latency = match rng.below(6) {
        0 => Latency::Fixed(0),
        1 => Latency::Fixed(80_000),
        2 => Latency::Uniform(10_000, 1_000_000),
        3 => Latency::Uniform(0, 200_000_000),
        4 => Latency::OneArm(10_000_000, 40_000),
        _ => Latency::Bimodal(100_000, 400_000_000),
    };
    DeviceConfig {
        latency,
        faults: if rng.chance(500) { Faults::default() } else { draw_faults(rng) },
        free_pages: rng.chance(250).then(|| rng.between(0, 200)),
        can_reserve: !rng.chance(200),
        loses: !engine.keeps_unsynced,
        transfer_pages_max: engine.transfer_pages_max,
        writes_in_flight_max: engine.destages_in_flight_max,
    }
}

fn draw_faults(rng: &mut Rng) -> Faults {
    Faults {
        fetch: draw_fault(rng, &[ErrorKind::Io, ErrorKind::Stale]),
        write: draw_fault(rng, &[ErrorKind::Io, ErrorKind::NoSpace, ErrorKind::QuotaExceeded]),
        sync: draw_fault(rng, &[ErrorKind::Io]),
        reserve: draw_fault(rng, &[ErrorKind::NoSpace, ErrorKind::Io]),
    }
}

fn draw_fault(rng: &mut Rng, kinds: &[ErrorKind]) -> Option<Fault> {
    rng.chance(400).then(|| Fault {
        kind: *rng.pick(kinds),
        per_mille: *rng.pick(&[20, 200, 1000]),
        sticky: Duration::from_millis(*rng.pick(&[0, 0, 50, 5_000])),
    })
}

/// Chooses actions.
pub struct Scheduler {
    profile: Profile,
    rng: Rng,
    /// Where the next sequential access to each file goes.
    cursors: Vec<u64>,
}

impl Scheduler {
    /// A scheduler of runs of this kind.
    pub fn new(profile: Profile, rng: Rng) -> Scheduler {
        let cursors = vec![0; profile.files as usize];
        Scheduler { profile, rng, cursors }
    }

    /// The next action.
    pub fn next(&mut self, world: &World) -> Action {
        if world.requests_waiting() >= self.profile.waiting_max && self.rng.chance(800) {
            return match world.frozen_files().next() {
                Some(file) if self.rng.chance(500) => Action::Thaw { file },
                _ => Action::Advance { events: 1 },
            };
        }
        if let Some(file) = world.frozen_files().next().filter(|_| self.rng.chance(250)) {
            return Action::Thaw { file };
        }
        let file = FileId(1 + self.rng.below(self.profile.files));
        let kind = self.rng.weighted(&self.profile.weights).expect("some weight is not zero");
        self.action(world, kind, file)
    }

    fn action(&mut self, world: &World, kind: usize, file: FileId) -> Action {
        let description = self.rng.below(8) as usize;
        match kind {
            0 if self.profile.offset_max == OFFSET_MAX_LARGE && self.rng.chance(100) => {
                let size = world.usable_size(file).unwrap_or(0).max(PAGE);
                let offset = self.rng.below(size / PAGE) * PAGE + self.rng.below(PAGE - 64);
                let pages = self
                    .rng
                    .between(200, 3000)
                    .min((self.profile.offset_max - offset.min(self.profile.offset_max)) / PAGE);
                Action::Scatter { file, offset, pages, len: self.rng.between(1, 64) as usize }
            }
            0 => {
                let (offset, len) = self.range(world, file);
                Action::Write { file, offset, len, durability: self.write_durability() }
            }
            1 => {
                let (offset, len) = self.range(world, file);
                Action::Read { file, offset, len }
            }
            2 => Action::Sync { file, durability: self.sync_durability() },
            3 => Action::SyncAll,
            4 => Action::Freeze { file, action: self.frozen_action(world, file) },
            5 => Action::Open { file },
            6 => Action::TakeError { file, description },
            7 => Action::Advance { events: self.rng.between(2, 20) as u32 },
            8 => Action::Close { file, description },
            9 => Action::Detach { file },
            10 => Action::Discard { file },
            11 => {
                let (offset, len) = self.range(world, file);
                Action::ChangeBehind { file, offset, len }
            }
            12 => Action::ReleaseReads,
            13 => self.change_device(),
            14 => Action::Advance { events: 1 },
            15 => Action::Sleep(self.duration()),
            16 => Action::Stall(self.duration()),
            // Detached files are attached again, so that the run always has files.
            _ => Action::Attach { file },
        }
    }

    fn change_device(&mut self) -> Action {
        match self.rng.below(4) {
            0 => Action::SetFaults(draw_faults(&mut self.rng)),
            1 => Action::SetFaults(Faults::default()),
            2 => Action::SetFreePages(Some(self.rng.between(0, 50))),
            _ => Action::SetFreePages(None),
        }
    }

    fn duration(&mut self) -> Duration {
        let low = *self.rng.pick(&[1, 1_000, 1_000_000, 100_000_000, 10_000_000_000]);
        Duration::from_nanos(self.rng.between(low, 4 * low))
    }

    fn write_durability(&mut self) -> Durability {
        if self.rng.chance(self.profile.synchronous_per_mille) {
            self.sync_durability()
        } else {
            Durability::None
        }
    }

    fn sync_durability(&mut self) -> Durability {
        *self.rng.pick(&[Durability::Data, Durability::All])
    }

    /// Where an access goes: hot pages, the end, on from the last one, or anywhere.
    fn range(&mut self, world: &World, file: FileId) -> (u64, usize) {
        let size = world.usable_size(file).unwrap_or(0);
        let mut len = self.rng.between(1, self.profile.request_bytes_max);
        if self.rng.chance(200) {
            len = len.next_multiple_of(*self.rng.pick(&[512, PAGE]));
        }
        let at = file.0 as usize - 1;
        let mut offset = match self.rng.below(10) {
            _ if self.rng.chance(self.profile.hot_per_mille) => {
                self.rng.below(3) * PAGE + self.rng.below(PAGE)
            }
            0 | 1 => size,
            2 | 3 => self.cursors[at],
            4 => size + self.rng.below(5 * PAGE),
            _ => self.rng.below(size.max(1)),
        };
        if self.rng.chance(200) {
            offset -= offset % *self.rng.pick(&[512, PAGE]);
        }
        if offset > self.profile.offset_max {
            offset = self.rng.below(self.profile.offset_max);
        }
        self.cursors[at] = offset + len;
        (offset, len as usize)
    }

    fn frozen_action(&mut self, world: &World, file: FileId) -> FrozenAction {
        let size = world.usable_size(file).unwrap_or(0);
        let (offset, len) = self.range(world, file);
        match self.rng.below(8) {
            0 => FrozenAction::Truncate { size: 0 },
            1 => FrozenAction::Truncate { size: self.rng.below(size + 1) },
            2 => FrozenAction::Truncate { size: size + self.rng.below(5 * PAGE) },
            3 | 4 => FrozenAction::Punch { from: offset, to: offset + len as u64 },
            5 => FrozenAction::Copy { offset, len },
            6 => {
                let from = self.rng.below(size / PAGE + 1) * PAGE;
                FrozenAction::Collapse { from, len: self.rng.between(1, 4) * PAGE }
            }
            _ => FrozenAction::Seek,
        }
    }
}
