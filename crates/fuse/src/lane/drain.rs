//! Takes posted writes out of rings and applies them.
//!
//! A client's posts are applied in the order in which they were made, by the thread that needs them applied: one that serves
//! a request on a file that the client may post to, or the lane's thread. If the engine makes a write wait (memory is full,
//! space must be reserved), the write is *stuck*: the client's later writes wait behind it, and so do callbacks that need
//! them applied.
//!
//! Invariant: while a write is stuck, nothing of its client is taken out; the engine's answer to it resumes the drain.

use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use weir_engine::{Error, ErrorKind, FileId, PAGE_BYTES};
use weir_lane::server::{Cut, Damage, Posted};
use weir_shard::Poster;

use crate::attr;
use crate::file_system::FileSystem;
use crate::inode::{DataNode, Inode};
use crate::lane::clients::{Client, Drain, Stuck};
use crate::open_file::OpenFile;

/// Most writes applied under one hold of the shard's lock, and most bytes of them. After each batch the client is told, so
/// that a thread that waits for room in its ring can post again.
const BATCH: usize = 64;
const BATCH_BYTES: usize = 64 << 10;
/// Longest wait of a request that must block its thread. Posts that are stuck for longer are not in its answer.
const WAIT_MAX: Duration = Duration::from_secs(1);
/// Longest wait for a client's inbox that another thread has, by a thread for which that may be waiting; and how often it looks.
const INBOX_WAIT_MAX: Duration = Duration::from_millis(100);
const INBOX_WAIT: Duration = Duration::from_micros(20);

/// Why a batch ended.
enum End {
    /// Everything before the cut is applied.
    Done,
    /// There may be more writes.
    More,
    /// A write is stuck.
    Stuck,
    /// The file about to be written, that target of the cursor, may have privileges that a write must remove first.
    Privileges(usize),
    /// The region holds what no correct client writes.
    Damaged(Damage),
}

/// State of a drain that is mostly the same from one write to the next.
#[derive(Default)]
struct Cursor {
    /// Recent targets: the threads of a program take turns.
    targets: Vec<Target>,
    /// The description and the last page of the write that was announced last.
    expected: Option<(u32, u64)>,
    failed: Vec<(FileId, ErrorKind)>,
}

/// An open description that posted writes go to.
struct Target {
    /// Its number, by the client's word.
    description: u32,
    open: Arc<OpenFile>,
    slot: u32,
    /// The file's privileges were removed, as far as this opener's writes remove them.
    privileges_dropped: bool,
}

/// Most targets in a cursor; when there are more, all are dropped.
const TARGETS_MAX: usize = 16;

impl FileSystem {
    /// Runs `then` when what was posted to a file before this is applied; at once if nothing was.
    pub(crate) fn settled(self: &Arc<Self>, inode: &Inode, then: impl FnOnce() + Send + 'static) {
        match self.poster(inode) {
            None => then(),
            Some(client) => self.drained(&client, then),
        }
    }

    /// As [`FileSystem::settled`], before a sync of a file. With everything in one order it makes everything durable: what was
    /// posted to other files before this is applied, too.
    pub(crate) fn settled_to_sync(
        self: &Arc<Self>,
        inode: &Inode,
        then: impl FnOnce() + Send + 'static,
    ) {
        match self.shard.is_ordered() {
            true => self.all_drained(then),
            false => self.settled(inode, then),
        }
    }

    /// Applies what was posted to a file. False if a write is stuck: see [`FileSystem::settled`].
    pub(crate) fn try_settle(self: &Arc<Self>, inode: &Inode) -> bool {
        self.poster(inode).is_none_or(|client| self.drain(&client))
    }

    /// Applies what was posted to a file, and waits for it if need be.
    pub(crate) fn settle(self: &Arc<Self>, inode: &Inode) {
        let Some(client) = self.poster(inode) else { return };
        let (sender, receiver) = mpsc::channel();
        self.drained(&client, move || {
            // Fails if the receiver has stopped waiting.
            let _ = sender.send(());
        });
        let _ = receiver.recv_timeout(WAIT_MAX);
    }

    /// The client that may have posted to a file.
    fn poster(&self, inode: &Inode) -> Option<Arc<Client>> {
        let client = inode.lane.poster()?;
        self.lane.as_ref()?.clients.get(client)
    }

    /// Runs `then` when what a client posted before this is applied.
    pub(crate) fn drained(
        self: &Arc<Self>,
        client: &Arc<Client>,
        then: impl FnOnce() + Send + 'static,
    ) {
        if self.drain(client) {
            return then();
        }
        let then = {
            let mut drain = client.inbox();
            if drain.stuck.is_some() {
                drain.waiting.push(Box::new(then));
                return;
            }
            // The stuck write was answered in between.
            then
        };
        self.drained(client, then);
    }

    /// Runs `then` when what all clients posted before this is applied.
    pub(crate) fn all_drained(self: &Arc<Self>, then: impl FnOnce() + Send + 'static) {
        let clients = self.lane.as_ref().map(|lane| lane.clients.all()).unwrap_or_default();
        // `then` runs when the last of these callbacks has run.
        let last = Last(Some(Box::new(then)));
        let last = Arc::new(Mutex::new(last));
        for client in clients {
            let last = Arc::clone(&last);
            self.drained(&client, move || drop(last));
        }
    }

    /// Applies what all clients posted before this. False if a write is stuck: see [`FileSystem::all_drained`].
    pub(crate) fn drain_all(self: &Arc<Self>) -> bool {
        let clients = self.lane.as_ref().map(|lane| lane.clients.all()).unwrap_or_default();
        let stuck = clients.iter().filter(|client| !self.drain(client)).count();
        stuck == 0
    }

    /// Applies what a client posted before this. False if a write is stuck.
    pub(crate) fn drain(self: &Arc<Self>, client: &Arc<Client>) -> bool {
        let mut drain = client.inbox();
        if drain.stuck.is_some() {
            return false;
        }
        if drain.closed {
            return true;
        }
        let drained = self.drain_locked(client, &mut drain, true);
        drained.unwrap_or_else(|damage| {
            cut_off(client, &mut drain, damage);
            true
        })
    }

    /// Applies what was posted to a file that is about to be at home, as far as that needs no long wait, on a thread that brings names there:
    /// a thread that has the client's inbox, and takes a file's privileges, may wait for such a thread.
    pub(crate) fn settle_before_home(self: &Arc<Self>, inode: &Inode) {
        let Some(client) = self.poster(inode) else { return };
        // Posts that have begun fail, and are made by the kernel.
        client.region.revoke();
        let end = Instant::now() + INBOX_WAIT_MAX;
        let mut inbox = client.try_inbox();
        while inbox.is_none() && Instant::now() < end {
            thread::sleep(INBOX_WAIT);
            inbox = client.try_inbox();
        }
        let Some(mut drain) = inbox.filter(|drain| drain.stuck.is_none() && !drain.closed) else {
            return;
        };
        if let Err(damage) = self.drain_locked(&client, &mut drain, false) {
            cut_off(&client, &mut drain, damage);
        }
    }

    /// False if something is not applied: a write is stuck, or it takes privileges and `takes_privileges` is false.
    fn drain_locked(
        self: &Arc<Self>,
        client: &Arc<Client>,
        drain: &mut Drain,
        takes_privileges: bool,
    ) -> Result<bool, Damage> {
        let cut = drain.inbox.begin()?;
        let mut cursor = Cursor::default();
        let ended = loop {
            let end = self.shard.post(|poster| self.apply(poster, client, drain, cut, &mut cursor));
            drain.inbox.flush();
            if let Some(lane) = &self.lane {
                lane.bound_resident();
            }
            match end {
                End::Done => break Ok(true),
                End::Stuck => break Ok(false),
                End::Damaged(damage) => break Err(damage),
                End::More => {}
                End::Privileges(_) if !takes_privileges => break Ok(false),
                // Not under the shard's lock: these are system calls.
                End::Privileges(at) => {
                    let target = &mut cursor.targets[at];
                    self.drop_privileges_for(&target.open.inode, &target.open.opener);
                    target.privileges_dropped = true;
                }
            }
        };
        if !cursor.failed.is_empty() {
            client.has_lost();
        }
        for (file, kind) in cursor.failed {
            self.shard.note_error(file, kind);
        }
        ended
    }

    /// Applies some writes, under the shard's lock.
    fn apply(
        self: &Arc<Self>,
        poster: &mut Poster<'_>,
        client: &Arc<Client>,
        drain: &mut Drain,
        cut: Cut,
        cursor: &mut Cursor,
    ) -> End {
        let mut bytes = 0;
        for _ in 0..BATCH {
            if bytes >= BATCH_BYTES {
                break;
            }
            let Cursor { targets, expected, .. } = cursor;
            drain.inbox.look_ahead(|description, offset, len| {
                // Small writes that follow each other need the same page.
                let place = Some((description, (offset + len as u64) / PAGE_BYTES as u64));
                if place == *expected {
                    return;
                }
                *expected = place;
                if let Some(target) = targets.iter().find(|at| at.description == description) {
                    poster.expect(target.open.inode.node().file(), offset, len);
                }
            });
            let posted = match drain.inbox.next(cut) {
                Ok(Some(posted)) => posted,
                Ok(None) => return End::Done,
                Err(damage) => return End::Damaged(damage),
            };
            bytes += posted.len;
            let Some(at) = cursor.find(client, posted) else {
                // The client may not post there: it is not a correct client, or it closed the description meanwhile.
                if let Some(open) = client.description(posted.description) {
                    cursor.failed.push((open.inode.node().file(), ErrorKind::Io));
                }
                if let Err(damage) = drain.inbox.take(posted, None) {
                    return End::Damaged(damage);
                }
                continue;
            };
            let Target { open, slot, privileges_dropped, .. } = &cursor.targets[at];
            if !open.inode.is_unprivileged() && !privileges_dropped {
                return End::Privileges(at);
            }
            let (file, slot) = (open.inode.node().file(), *slot);
            let done = || {
                let (fs, client) = (Arc::clone(self), Arc::clone(client));
                move |result: Result<(), Error>| fs.unstuck(&client, result)
            };
            match poster.write(file, posted.offset, drain.inbox.payload(), done) {
                Some(result) => {
                    if let Err(error) = result {
                        cursor.failed.push((file, kind_of(error)));
                    }
                    if let Err(damage) = drain.inbox.take(posted, Some(slot)) {
                        return End::Damaged(damage);
                    }
                }
                None => {
                    drain.stuck = Some(Stuck { posted, slot, file });
                    return End::Stuck;
                }
            }
        }
        End::More
    }

    /// The engine answered the stuck write: applies the writes after it, on a worker, since this may be the thread that
    /// delivers all completions.
    fn unstuck(self: &Arc<Self>, client: &Arc<Client>, result: Result<(), Error>) {
        let (fs, client) = (Arc::clone(self), Arc::clone(client));
        self.shard.directory().defer(Box::new(move || fs.go_on(&client, result)));
    }

    fn go_on(self: &Arc<Self>, client: &Arc<Client>, result: Result<(), Error>) {
        let waiting = {
            let mut drain = client.inbox();
            let Some(stuck) = drain.stuck.take() else { return };
            if let Err(error) = result {
                // The writer was told that the write succeeded: the next sync or close of the file reports the error.
                self.shard.note_error(stuck.file, kind_of(error));
                client.has_lost();
            }
            if let Err(damage) = drain.inbox.settle(stuck.posted, Some(stuck.slot)) {
                cut_off(client, &mut drain, damage);
            }
            std::mem::take(&mut drain.waiting)
        };
        for then in waiting {
            self.drained(client, then);
        }
        self.drain(client);
    }
}

/// Runs what it holds when it is dropped.
struct Last(Option<Box<dyn FnOnce() + Send>>);

impl Drop for Last {
    fn drop(&mut self) {
        if let Some(then) = self.0.take() {
            then();
        }
    }
}

impl Cursor {
    /// The index of a write's target, which is added if it is new. `None` if its client may not post there.
    fn find(&mut self, client: &Client, posted: Posted) -> Option<usize> {
        let may_post = |open: &OpenFile| open.inode.lane.poster() == Some(client.id);
        let is_known = |target: &Target| target.description == posted.description;
        if let Some(at) = self.targets.iter().position(is_known) {
            return may_post(&self.targets[at].open).then_some(at);
        }
        let open = client.description(posted.description)?;
        let slot = open.inode.lane.slot()?;
        if !open.writes || !may_post(&open) {
            return None;
        }
        if let Some(home) = open.inode.file() {
            // Before the write, so that a destage that ends right after it does not restore the earlier time.
            home.times().note_write(attr::now());
        }
        if self.targets.len() == TARGETS_MAX {
            self.targets.clear();
        }
        let description = posted.description;
        self.targets.push(Target { description, open, slot, privileges_dropped: false });
        Some(self.targets.len() - 1)
    }
}

/// Takes nothing more from a client whose region is damaged.
fn cut_off(client: &Client, drain: &mut Drain, damage: Damage) {
    tracing::warn!(client = client.id, "{damage}: the client is cut off");
    client.has_lost();
    drain.closed = true;
    client.region.close();
}

fn kind_of(error: Error) -> ErrorKind {
    match error {
        Error::Home(kind) => kind,
        Error::NotAttached | Error::OutOfRange => ErrorKind::Io,
    }
}
