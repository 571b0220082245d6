//! Property test: whatever is done to two small files, in whatever order, the engine agrees with
//! the model. The simulator finds rarer things; this one shrinks what it finds to a few actions.

use std::time::Duration;

use proptest::prelude::*;
use weir_engine::{
    Config, Durability, ErrorKind, FetchPolicy, FileId, PAGE_BYTES, WriteBackPolicy,
};
use weir_sim::{
    Action, DeviceConfig, Fault, Faults, FrozenAction, Home, Latency, Rng, Violation, World,
    WorldConfig,
};

const PAGE: u64 = PAGE_BYTES as u64;

fn file() -> impl Strategy<Value = FileId> {
    (1u64..3).prop_map(FileId)
}

/// A few pages, and often the edges of pages and write units.
fn range() -> impl Strategy<Value = (u64, usize)> {
    let offset = prop_oneof![0u64..10 * PAGE, (0u64..80).prop_map(|unit| unit * 512)];
    let len = prop_oneof![1usize..600, (1usize..8).prop_map(|units| units * 512), 1usize..20_000];
    (offset, len)
}

fn durability() -> impl Strategy<Value = Durability> {
    prop_oneof![Just(Durability::Data), Just(Durability::All)]
}

fn frozen_action() -> impl Strategy<Value = FrozenAction> {
    prop_oneof![
        (0u64..12 * PAGE).prop_map(|size| FrozenAction::Truncate { size }),
        range().prop_map(|(from, len)| FrozenAction::Punch { from, to: from + len as u64 }),
        range().prop_map(|(offset, len)| FrozenAction::Copy { offset, len }),
        (0u64..4, 1u64..3)
            .prop_map(|(from, len)| FrozenAction::Collapse { from: from * PAGE, len: len * PAGE }),
        Just(FrozenAction::Seek),
    ]
}

fn fault() -> impl Strategy<Value = Option<Fault>> {
    let fault = |kind, per_mille, sticky_ms| Fault {
        kind,
        per_mille,
        sticky: Duration::from_millis(sticky_ms),
    };
    prop_oneof![
        2 => Just(None),
        1 => Just(Some(fault(ErrorKind::Io, 1000, 0))),
        1 => Just(Some(fault(ErrorKind::NoSpace, 300, 20))),
    ]
}

fn faults() -> impl Strategy<Value = Faults> {
    (fault(), fault(), fault(), fault()).prop_map(|(fetch, write, sync, reserve)| Faults {
        fetch,
        write,
        sync,
        reserve,
    })
}

fn action() -> impl Strategy<Value = Action> {
    let write =
        (file(), range(), prop_oneof![9 => Just(Durability::None), 1 => durability()]).prop_map(
            |(file, (offset, len), durability)| Action::Write { file, offset, len, durability },
        );
    let read =
        (file(), range()).prop_map(|(file, (offset, len))| Action::Read { file, offset, len });
    let change_behind = (file(), range()).prop_map(|(file, (offset, len))| Action::ChangeBehind {
        file,
        offset,
        len,
    });
    prop_oneof![
        12 => write,
        6 => read,
        2 => (file(), durability()).prop_map(|(file, durability)| Action::Sync { file, durability }),
        1 => Just(Action::SyncAll),
        3 => (file(), frozen_action())
            .prop_map(|(file, action)| Action::Freeze { file, action }),
        3 => file().prop_map(|file| Action::Thaw { file }),
        1 => file().prop_map(|file| Action::Open { file }),
        1 => (file(), 0usize..3)
            .prop_map(|(file, description)| Action::TakeError { file, description }),
        1 => file().prop_map(|file| Action::Detach { file }),
        2 => file().prop_map(|file| Action::Attach { file }),
        1 => file().prop_map(|file| Action::Discard { file }),
        1 => change_behind,
        2 => file().prop_map(|file| Action::Share { file }),
        1 => file().prop_map(|file| Action::Unshare { file }),
        6 => (1u32..8).prop_map(|events| Action::Advance { events }),
        1 => (1u64..20_000).prop_map(|millis| Action::Sleep(Duration::from_millis(millis))),
        1 => faults().prop_map(Action::SetFaults),
        1 => prop_oneof![Just(None), (0u64..6).prop_map(Some)].prop_map(Action::SetFreePages),
    ]
}

fn config() -> impl Strategy<Value = WorldConfig> {
    (
        prop::sample::select(FetchPolicy::ALL.to_vec()),
        prop::sample::select(vec![0u64, 4 << 10, 64 << 10, 4 << 20]),
        prop::sample::select(vec![1u32, 3, 256]),
        prop::sample::select(vec![0u32, 4]),
        any::<bool>(),
        any::<bool>(),
        prop::sample::select(WriteBackPolicy::ALL.to_vec()),
    )
        .prop_map(
            |(fetch_policy, patch_bytes_max, transfer, readahead, reserve, lock, write_back)| {
                let engine = Config {
                    memory_bytes_max: Config::MEMORY_BYTES_MIN,
                    patch_bytes_max,
                    fetch_policy,
                    transfer_pages_max: transfer,
                    readahead_pages_max: readahead,
                    dirty_expire: Duration::from_secs(5),
                    write_back,
                    ..Config::default()
                };
                let device = DeviceConfig {
                    latency: Latency::Uniform(1_000, 1_000_000),
                    faults: Faults::default(),
                    free_pages: None,
                    can_reserve: reserve,
                    loses: true,
                    transfer_pages_max: transfer,
                    writes_in_flight_max: engine.destages_in_flight_max,
                };
                WorldConfig {
                    engine,
                    device,
                    check_every: 1,
                    reads_held_max: 2,
                    inode_lock: lock,
                    frames_spare: 0,
                    ages: lock,
                    print: false,
                }
            },
        )
}

fn check(config: WorldConfig, actions: &[Action]) -> Result<(), Violation> {
    let mut rng = Rng::new(1);
    let mut world = World::new(config, rng.fork()).expect("the bounds are valid");
    let mut sparse = rng.bytes(9 * PAGE_BYTES + 77);
    sparse[3 * PAGE_BYTES..5 * PAGE_BYTES].fill(0);
    world.create(FileId(1), Home::new(sparse, &[3, 4], 512, true));
    world.create(FileId(2), Home::new(rng.bytes(PAGE_BYTES / 2), &[], 4096, true));
    for action in actions {
        world.apply(action)?;
    }
    world.finish()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, ..ProptestConfig::default() })]

    #[test]
    fn the_engine_agrees_with_the_model(
        config in config(),
        actions in prop::collection::vec(action(), 1..120),
    ) {
        if let Err(violation) = check(config, &actions) {
            prop_assert!(false, "{violation}");
        }
    }
}
