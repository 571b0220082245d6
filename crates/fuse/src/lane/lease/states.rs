//! Visits and checks all states of a file that up to three clients and a program that uses the kernel can reach.
//!
//! Jobs under way are part of a state, and may finish at any later time: steps, draining a client's posts, the kernel's
//! dropping of attributes and pages.

use std::collections::{HashSet, VecDeque};

use super::*;
use crate::lane::opens::{Kind, Opens};

/// A job under way. Drops and revocations are numbered by how many came after them, so that there are finitely many states.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Job {
    /// A thread is about to reconsider the file.
    Reconsider,
    /// A client's posts are being applied.
    Apply(u64),
    DropPages(u64),
    DropAttributes(u64),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct File {
    opens: Opens,
    lease: Lease,
    /// One of each client, numbered from 1, then one of the program that uses the kernel; and whether it is open for writing.
    descriptions: Vec<(Kind, bool)>,
    jobs: Vec<Job>,
    /// The clients that asked for the lease, as the test itself notes it.
    asked: [bool; 4],
    /// A client holds or held the lease, and its posts may not be applied.
    unapplied: bool,
}

impl File {
    fn new(descriptions: usize) -> File {
        File {
            opens: Opens::default(),
            lease: Lease::default(),
            descriptions: vec![(Kind::New, false); descriptions],
            jobs: Vec::new(),
            asked: [false; 4],
            unapplied: false,
        }
    }

    fn reconsider(&mut self) {
        let step = self.lease.step(self.opens.wanted());
        match step {
            Step::Grant(client) => {
                assert!(!self.unapplied, "granted before what was posted is applied: {self:?}");
                assert!(
                    self.asked[client as usize],
                    "granted to a client that did not ask: {self:?}"
                );
                assert!(self.opens.allows_posts_by(client), "granted beside others: {self:?}");
                assert!(self.lease.is_volatile(), "granted while attributes are valid: {self:?}");
                self.unapplied = true;
            }
            Step::Revoke(_, number) => self.jobs.push(Job::Apply(number)),
            Step::DropAttributes(number) => self.jobs.push(Job::DropAttributes(number)),
            Step::Nothing | Step::Show(_) => {}
            Step::Leave => assert!(!self.unapplied, "left with posts: {self:?}"),
        }
    }

    fn run(&mut self, job: Job) {
        match job {
            Job::Reconsider => self.reconsider(),
            Job::Apply(number) => {
                assert!(self.unapplied);
                self.unapplied = false;
                self.lease.posts_applied();
                self.jobs.push(Job::DropPages(number));
            }
            Job::DropPages(number) => {
                self.lease.pages_dropped(number);
                self.reconsider();
            }
            Job::DropAttributes(number) => {
                self.lease.attributes_dropped(number);
                self.reconsider();
            }
        }
    }

    /// Renumbers jobs by their age.
    fn normal(mut self) -> File {
        let (drops, revocations) = (self.lease.drops, self.lease.revocations);
        // Only whether a job is the last of its kind makes a difference.
        let age = |now: u64, number: u64| 10 - (now - number).min(9);
        for job in &mut self.jobs {
            match job {
                Job::Reconsider => {}
                Job::Apply(number) | Job::DropPages(number) => *number = age(revocations, *number),
                Job::DropAttributes(number) => *number = age(drops, *number),
            }
        }
        if let Attributes::Dropping(number) = &mut self.lease.attributes {
            *number = age(drops, *number);
        }
        (self.lease.drops, self.lease.revocations) = (10, 10);
        self.jobs.sort_unstable();
        self
    }

    /// The states to which the jobs under way lead.
    fn after_jobs(&self) -> impl Iterator<Item = File> {
        let distinct: HashSet<Job> = self.jobs.iter().copied().collect();
        distinct.into_iter().map(|job| {
            let mut next = self.clone();
            next.jobs.swap_remove(self.jobs.iter().position(|known| *known == job).unwrap());
            next.run(job);
            next
        })
    }

    /// The states to which an event on one of the descriptions leads. Each client has one process, of the same number.
    fn after_events(&self, clients: u32) -> Vec<File> {
        let mut found = Vec::new();
        for at in 0..self.descriptions.len() {
            let mut event = |change: &dyn Fn(&mut File, &mut Kind, bool) -> bool| {
                let mut next = self.clone();
                let writes = next.descriptions[at].1;
                let mut kind = std::mem::take(&mut next.descriptions[at].0);
                if change(&mut next, &mut kind, writes) {
                    if matches!(kind, Kind::Closed) {
                        kind = Kind::New;
                    }
                    next.descriptions[at].0 = kind;
                    next.jobs.push(Job::Reconsider);
                    found.push(next);
                }
            };
            let is_new = self.descriptions[at].0 == Kind::New;
            let mode = self.lease.mode();
            let may_be_direct =
                mode.is_some() && !matches!(mode, Some(Mode::Kernel | Mode::Rejoining));
            if is_new {
                for (writes, direct) in [(false, false), (true, false), (true, true)] {
                    if direct && (!may_be_direct || at as u32 >= clients) {
                        continue;
                    }
                    event(&|file, kind, _| {
                        file.opens.open(kind, writes, direct);
                        file.descriptions[at].1 = writes;
                        true
                    });
                }
                continue;
            }
            event(&|file, kind, writes| {
                file.opens.close(kind, writes);
                file.descriptions[at].1 = false;
                *kind = Kind::Closed;
                true
            });
            // The program maps the description, or passes it on.
            event(&|file, kind, writes| file.opens.revoke(kind, writes, None));
            if at as u32 >= clients {
                continue;
            }
            let client = at as u32 + 1;
            event(&|file, kind, writes| {
                let by = (client, client);
                let attached = file.opens.attach(kind, writes, by, || Some(client), |_| true);
                if attached.is_ok() {
                    file.asked[client as usize] |= writes;
                    if file.lease.mode().is_none() {
                        file.lease.enter();
                    }
                }
                // A refusal changes the counts, too.
                attached != Ok((client, true))
            });
            event(&|file, kind, writes| {
                let is_attached = matches!(kind, Kind::Attached(_));
                is_attached && file.opens.revoke(kind, writes, Some(client))
            });
            event(&|file, kind, writes| file.opens.end_client(kind, writes, client));
        }
        found
    }

    fn check(&self) {
        let posts = self.lease.mode() == Some(Mode::Exclusive);
        let holder = self.lease.holder();
        assert_eq!(self.unapplied, holder.is_some(), "{self:?}");
        if posts {
            let holder = holder.expect("a client holds the lease");
            assert!(self.lease.is_stale() && self.lease.is_volatile(), "{self:?}");
            // An open is not answered before the file is reconsidered.
            let is_considered = !self.jobs.contains(&Job::Reconsider);
            assert!(!is_considered || self.opens.allows_posts_by(holder), "{self:?}");
        }
        // A revocation is under way exactly while it has a job.
        let revoking = self.jobs.iter().any(|job| matches!(job, Job::Apply(_) | Job::DropPages(_)));
        assert_eq!(self.lease.is_being_revoked(), revoking, "{self:?}");
        self.settles();
    }

    /// When all jobs are done, the mode is the wanted one.
    fn settles(&self) {
        let mut file = self.clone();
        for _ in 0..100 {
            match file.jobs.pop() {
                Some(job) => file.run(job),
                None => break,
            }
        }
        assert!(file.jobs.is_empty(), "{self:?} never settles");
        let shown = match file.lease.mode() {
            None => Wanted::OutOfLane,
            Some(Mode::Exclusive) => Wanted::Lease(file.lease.holder().unwrap()),
            Some(mode) => Wanted::Mode(mode),
        };
        if file.lease.mode().is_some() {
            assert_eq!(shown, file.opens.wanted(), "{self:?} settles as {file:?}");
        }
        assert!(shown != Wanted::Mode(Mode::Changing));
        assert!(file.lease.holder().is_some() || !file.lease.is_stale(), "{self:?}");
    }
}

/// Visits all states that can be reached with at most `jobs_max` jobs under way at once. Returns their number.
fn visit(clients: u32, descriptions: usize, jobs_max: usize) -> usize {
    let mut seen = HashSet::new();
    let mut next = VecDeque::from([File::new(descriptions).normal()]);
    while let Some(file) = next.pop_front() {
        file.check();
        let mut after: Vec<File> = file.after_jobs().collect();
        if file.jobs.len() < jobs_max {
            after.extend(file.after_events(clients));
        }
        for file in after {
            let file = file.normal();
            if seen.insert(file.clone()) {
                next.push_back(file);
            }
        }
    }
    seen.len()
}

#[test]
fn two_clients_and_a_program_by_the_kernel_reach_no_bad_state() {
    let states = visit(2, 3, 2);
    assert!(states > 10_000, "{states} states only");
}

#[test]
fn three_clients_and_a_program_by_the_kernel_reach_no_bad_state() {
    let states = visit(3, 4, 1);
    assert!(states > 10_000, "{states} states only");
}
