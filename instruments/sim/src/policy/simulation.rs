//! The programs, their turns on the processors, and virtual time.
//!
//! One thing happens at a time: a program's turn, or an event of the machine. Things that are due at the same
//! moment happen in the order in which they were scheduled, those of the machine first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use hdrhistogram::Histogram;
use weir_drive::parameters::{Ns, SECOND};
use weir_engine::{Engine, FileId, RequestId, Stats};

use super::machine::Machine;
use super::outcome::{Class, Outcome, Sample, hit_rate};
use super::program::{Next, Program};
use super::setup::{PROCESSORS, Setup, SetupError, TRIP};
use crate::side_by_side::{Client, Side, SideBySide};

/// A program's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Turn {
    /// To choose its next operation.
    Look,
    /// To execute the operation on a processor.
    Act { page: u64 },
}

/// The request of the sync of everything, which belongs to no program.
const SYNC_ALL: RequestId = RequestId(u64::MAX);

/// Reads of observers, which belong to no program either.
const PROBE: RequestId = RequestId(u64::MAX - 1);

/// A run under way.
pub struct Simulation {
    load: SideBySide,
    machine: Machine,
    programs: Vec<Program>,
    /// Future turns: time, order of scheduling, program, kind.
    turns: BinaryHeap<Reverse<(Ns, u64, usize, Turn)>>,
    turns_put: u64,
    /// When each processor is free.
    processors: [Ns; PROCESSORS],
    now: Ns,
    /// Programs that have not ended.
    running: usize,
    /// The load ended early.
    over: bool,
    synced: bool,
    sampled: Stats,
    samples: Vec<Sample>,
}

impl Simulation {
    /// A simulation at its beginning.
    ///
    /// # Errors
    /// Those of the setup.
    pub fn new(setup: &Setup) -> Result<Simulation, SetupError> {
        let clients = setup.load.clients()?;
        let pages = clients.iter().flat_map(|client| [client.pages; 2]);
        let machine = Machine::new(setup, pages)?;
        let programs = programs(&setup.load, &clients);
        let mut simulation = Simulation {
            load: setup.load.clone(),
            sampled: machine.stats(),
            machine,
            running: programs.len(),
            turns: BinaryHeap::new(),
            turns_put: 0,
            processors: [0; PROCESSORS],
            now: 0,
            over: false,
            synced: false,
            samples: Vec::new(),
            programs,
        };
        for program in 0..simulation.programs.len() {
            simulation.put(0, program, Turn::Look);
        }
        Ok(simulation)
    }

    /// The engine, for reading.
    pub fn engine(&self) -> &Engine {
        self.machine.engine()
    }

    /// The engine's statistics.
    pub fn stats(&self) -> Stats {
        self.machine.stats()
    }

    /// The samples so far, second by second.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Operations of this side that were answered so far.
    pub fn answered(&self, side: Side) -> u64 {
        let its = self.programs.iter().filter(|program| program.side == side);
        its.map(|program| program.latencies.len()).sum()
    }

    /// Whether a read of this page now, besides those of the programs, is answered at once. If not, there must not
    /// be another such read until it is answered.
    pub fn reads_at_once(&mut self, file: FileId, page: u64) -> bool {
        self.machine.read(PROBE, file, page)
    }

    /// Pages whose last write is not home.
    pub fn pages_not_home(&self) -> usize {
        self.machine.pages_not_home()
    }

    /// Advances virtual time to this much since the beginning.
    pub fn run_until(&mut self, at: Ns) {
        while self.next_event().is_some_and(|next| next <= at) {
            self.step();
        }
        self.now = self.now.max(at);
    }

    /// Lets every program end, with all its operations answered.
    pub fn finish(mut self) -> Outcome {
        self.let_programs_end();
        self.outcome()
    }

    /// The same; then everything goes home.
    pub fn bring_home(&mut self) {
        self.let_programs_end();
        self.synced = self.machine.sync_all(SYNC_ALL);
        while !self.synced {
            self.step();
        }
    }

    fn let_programs_end(&mut self) {
        while self.running > 0 {
            self.step();
        }
    }

    fn next_event(&self) -> Option<Ns> {
        let turn = self.turns.peek().map(|Reverse((at, ..))| *at);
        let sample = (self.running > 0).then(|| self.next_sample());
        [self.machine.next_event(), turn, sample].into_iter().flatten().min()
    }

    fn next_sample(&self) -> Ns {
        (self.samples.len() as Ns + 1) * SECOND
    }

    /// The next event happens.
    fn step(&mut self) {
        self.now =
            self.next_event().expect("requests wait, and something is to happen").max(self.now);
        self.machine.pass(self.now);
        while let Some(request) = self.machine.take_answer() {
            match request {
                SYNC_ALL => self.synced = true,
                PROBE => {}
                RequestId(program) => self.answer(program as usize),
            }
        }
        if self.running > 0 && self.next_sample() <= self.now {
            let (now, at) = (self.machine.stats(), self.next_sample() as f64 / SECOND as f64);
            self.samples.push(Sample::of(at, &now, &self.sampled));
            self.sampled = now;
        }
        if let Some(Reverse((at, ..))) = self.turns.peek()
            && *at <= self.now
            && let Some(Reverse((_, _, program, turn))) = self.turns.pop()
        {
            self.take_turn(program, turn);
        }
    }

    fn put(&mut self, at: Ns, program: usize, turn: Turn) {
        self.turns_put += 1;
        self.turns.push(Reverse((at, self.turns_put, program, turn)));
    }

    fn take_turn(&mut self, program: usize, turn: Turn) {
        match turn {
            Turn::Look => match self.programs[program].next(self.now, self.over) {
                Next::Page(page) => {
                    let free = self.processors.iter_mut().min().expect("there is one");
                    let at = self.now.max(*free);
                    *free = at + TRIP;
                    self.put(at, program, Turn::Act { page });
                }
                Next::Wait(until) => self.put(until, program, Turn::Look),
                Next::End => {
                    self.running -= 1;
                    let reads = self.programs[program].side == Side::Reads;
                    self.over |= reads && self.load.ends_with_its_reader();
                }
            },
            Turn::Act { page } => {
                let (request, file) = (RequestId(program as u64), self.programs[program].file);
                let answered = match self.programs[program].side {
                    Side::Reads => self.machine.read(request, file, page),
                    Side::Writes => self.machine.write(request, file, page),
                };
                if answered {
                    self.answer(program);
                }
            }
        }
    }

    /// The operation in progress is answered: the program sees the answer one way back later.
    fn answer(&mut self, program: usize) {
        let at = self.now + TRIP;
        self.programs[program].note(at);
        self.put(at, program, Turn::Look);
    }

    fn outcome(self) -> Outcome {
        let least = if self.over { 0.0 } else { self.load.seconds };
        let seconds = (self.now as f64 / SECOND as f64).max(least);
        let class = |side| {
            let mut all = Histogram::new(3).expect("three digits are allowed");
            for program in self.programs.iter().filter(|program| program.side == side) {
                all.add(&program.latencies).expect("histograms that grow");
            }
            Class::of(&all, seconds)
        };
        let stats = self.machine.stats();
        Outcome {
            seconds,
            reads: class(Side::Reads),
            writes: class(Side::Writes),
            hit_rate: hit_rate(&stats, &Stats::default()),
            writers_paced: stats.writers_paced,
            writers_blocked: stats.writers_throttled,
            device: self.machine.counts(),
            samples: self.samples,
        }
    }
}

/// A writer for each client, and a reader if there are readers. Of a client's two files the first is written.
pub(crate) fn programs(load: &SideBySide, clients: &[Client]) -> Vec<Program> {
    let mut programs = Vec::new();
    for (client, nth) in clients.iter().zip(0..) {
        let mut add = |side, file| {
            programs.push(Program::new(client, side, file, load.most(client, side)));
        };
        add(Side::Writes, FileId(2 * nth));
        if load.reader.is_some() {
            add(Side::Reads, FileId(2 * nth + 1));
        }
    }
    programs
}
