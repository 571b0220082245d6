//! One seed, from its profile to its end, and the report of a failure.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};

use weir_engine::{FileId, Stats};

use crate::action::Action;
use crate::rng::Rng;
use crate::scheduler::{Profile, Scheduler};
use crate::violation::Violation;
use crate::world::World;

/// Bounds a run in which few operations make sense.
const STEPS_PER_OPERATION_MAX: u32 = 10;

/// How often a file enters the lane, or leaves it.
const LANE_PER_MILLE: u32 = 30;

/// How to run a seed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// Print every line as it comes.
    pub print: bool,
    /// Operations before the liveness phase, instead of what the seed says.
    pub operations: Option<u32>,
}

/// A run without a failure.
#[derive(Clone, Copy, Debug)]
pub struct Summary {
    /// Stands for everything that happened.
    pub hash: u64,
    /// Operations done, time passing not counted.
    pub operations: u32,
    /// What the engine counted.
    pub stats: Stats,
    /// Pages that programs found in the lane.
    pub lane_hits: u64,
}

/// A run that failed.
#[derive(Debug)]
pub struct Failure {
    /// The seed.
    pub seed: u64,
    /// Steps done before.
    pub steps: u32,
    /// What went wrong.
    pub cause: String,
    /// The kind of run.
    pub profile: Box<Profile>,
    /// The last lines of its trace.
    pub recent: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.recent {
            writeln!(f, "    {line}")?;
        }
        writeln!(f, "profile: {:?}", self.profile)?;
        writeln!(f, "seed {} failed after {} steps: {}", self.seed, self.steps, self.cause)?;
        let seed = self.seed;
        write!(f, "replay: cargo run -p weir-sim --bin weir-sim -- --seed {seed} --trace")
    }
}

impl std::error::Error for Failure {}

/// Runs a seed.
///
/// # Errors
/// What the engine did wrong, a panic included.
pub fn run(seed: u64, options: Options) -> Result<Summary, Box<Failure>> {
    let mut rng = Rng::new(seed);
    let mut profile = Profile::draw(&mut rng);
    profile.world.print = options.print;
    if let Some(operations) = options.operations {
        profile.operations = operations;
    }
    let mut world = World::new(profile.world.clone(), rng.fork()).expect("drawn bounds are valid");
    let mut progress = Progress::default();
    // After a panic the world is only asked for its trace, which no panic leaves half-done.
    let outcome =
        catch_unwind(AssertUnwindSafe(|| drive(&mut world, &profile, &mut rng, &mut progress)));
    let cause = match outcome {
        Ok(Ok(())) => {
            let stats = world.engine().stats(world.now());
            return Ok(Summary {
                hash: world.trace().hash(),
                operations: progress.operations,
                stats,
                lane_hits: world.lane_hits(),
            });
        }
        Ok(Err(violation)) => violation.to_string(),
        Err(panic) => format!("panic: {}", panic_message(&*panic)),
    };
    let recent = world.trace().recent().map(str::to_owned).collect();
    // Dropping what a panic interrupted could panic again, and abort.
    std::mem::forget(world);
    Err(Box::new(Failure {
        seed,
        steps: progress.steps,
        cause,
        profile: Box::new(profile),
        recent,
    }))
}

#[derive(Default)]
struct Progress {
    steps: u32,
    operations: u32,
}

fn drive(
    world: &mut World,
    profile: &Profile,
    rng: &mut Rng,
    progress: &mut Progress,
) -> Result<(), Violation> {
    for number in 1..=profile.files {
        world.create(FileId(number), profile.draw_home(rng));
    }
    let mut lane = rng.clone();
    let mut scheduler = Scheduler::new(profile.clone(), rng.fork());
    // Where everything waits for a device that never works, only time passes.
    let steps_max = profile.operations.saturating_mul(STEPS_PER_OPERATION_MAX);
    while progress.operations < profile.operations && progress.steps < steps_max {
        let action = scheduler.next(world);
        progress.steps += 1;
        let done = world.apply(&action)?;
        if lane.chance(LANE_PER_MILLE) {
            let file = FileId(1 + lane.below(profile.files));
            let share = if world.is_shared(file) {
                Action::Unshare { file }
            } else {
                Action::Share { file }
            };
            world.apply(&share)?;
        }
        progress.operations += u32::from(done && !action.is_time());
    }
    world.finish()
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}
