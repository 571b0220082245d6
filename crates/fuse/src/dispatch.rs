//! Dispatch: turns each request into a call of the file system, and the call's result into an answer. It is the same
//! for every transport. Each operation ends with its [`Reply`], at once or later.

use std::sync::Arc;

use crate::attr::Attributes;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::given::Thread;
use crate::inode::NodeId;
use crate::listings::{Position, Reader};
use crate::ops::data::DirectWrite;
use crate::ops::names::{Found, Place};
use crate::ops::open::Opened;
use crate::reply::{Answers, Reply};
use crate::sessions::{Kind, Pending, Shown, Verdict};
use crate::transport::WRITE_BYTES_MAX;
use crate::transport::wire::answer::{self, Body, Names, NamesAndAttributes, Valid};
use crate::transport::wire::request::{CopyAnswer, Operation, Request};

/// Executes `request`, and answers it with `reply`, now or later.
pub(crate) fn dispatch(fs: &Arc<FileSystem>, request: &Request<'_>, reply: Reply) {
    match request.operation() {
        Ok(operation) => in_session(fs, request, operation, reply),
        Err(malformed) => {
            tracing::error!("the kernel sent a request that makes no sense: {:?}", request.header);
            reply.send(Err(malformed.into()));
        }
    }
}

/// Executes an operation as sessions demand it ([`crate::sessions`]).
fn in_session(
    fs: &Arc<FileSystem>,
    request: &Request<'_>,
    mut operation: Operation<'_>,
    mut reply: Reply,
) {
    // A change comes after what members of sessions have posted before, to any file.
    if kind_of(&operation).is_change()
        && let Some(posted) = fs.sessions.unapplied()
    {
        if !fs.drain_all() {
            let (kept, of) = (request.keep(), Arc::clone(fs));
            return fs.all_drained(move || {
                posted.are_applied();
                dispatch(&of, &kept.request(), reply);
            });
        }
        posted.are_applied();
    }
    let (verdict, shown) = fs.sessions.judge(request.header.caller.pid, || kind_of(&operation));
    if let Some(shown) = shown {
        let fs = Arc::clone(fs);
        reply = reply.through(|to| Arc::new(AfterPromises { fs, shown, to }));
    }
    match verdict {
        Verdict::Nothing => {}
        Verdict::Promise(session) => {
            session.promise();
            return reply.send(Ok(Body::empty()));
        }
        Verdict::Counts { sessions, is_members } => {
            if let Operation::Write { mode, .. } = &mut operation
                && is_members
            {
                // O_SYNC has the bit of O_DSYNC (open(2)).
                mode.flags &= !libc::O_SYNC;
            }
            reply.before(move || sessions.iter().for_each(|session| session.promise()));
        }
        Verdict::Commits => {
            let fs = Arc::clone(fs);
            let caller = &request.header.caller;
            let write = match &operation {
                Operation::Write { handle, offset, data, mode } if mode.direct => {
                    Some(DirectWrite::new(caller, *handle, *offset, data, *mode))
                }
                _ => None,
            };
            reply = reply.through(|to| Arc::new(AfterCommit { fs, write, to }));
        }
    }
    Call { fs, request, reply }.run(operation);
}

/// Gives answers on when what they say is durable.
struct AfterCommit {
    fs: Arc<FileSystem>,
    write: Option<DirectWrite>,
    to: Arc<dyn Answers>,
}

impl Answers for AfterCommit {
    fn answer(&self, slot: u32, unique: u64, result: Result<Body, Errno>) {
        let to = Arc::clone(&self.to);
        if result.is_err() {
            return to.answer(slot, unique, result);
        }
        let (fs, write) = (Arc::clone(&self.fs), self.write);
        self.fs.commit(move |committed| {
            if let (Err(_), Some(write)) = (committed, write) {
                write.is_answered_by_an_error(&fs);
            }
            to.answer(slot, unique, committed.and(result));
        });
    }

    fn done(&self, slot: u32, unique: u64) {
        self.to.done(slot, unique);
    }
}

/// Gives a program outside a session its answer when what was promised in the session is durable. The promises are looked at when the answer is
/// ready, since it may show what was changed after them.
struct AfterPromises {
    fs: Arc<FileSystem>,
    shown: Shown,
    to: Arc<dyn Answers>,
}

impl Answers for AfterPromises {
    fn answer(&self, slot: u32, unique: u64, result: Result<Body, Errno>) {
        let pending = self.shown.pending();
        if pending.is_empty() {
            return self.to.answer(slot, unique, result);
        }
        let to = Arc::clone(&self.to);
        self.fs.commit(move |mut committed| {
            // All of them are told.
            let durable = |pending: &&Pending| pending.is_durable();
            if committed.is_ok() && pending.iter().filter(durable).count() < pending.len() {
                committed = Err(Errno::EIO);
            }
            // Until here nothing more was promised.
            drop(pending);
            to.answer(slot, unique, committed.and(result));
        });
    }

    fn done(&self, slot: u32, unique: u64) {
        self.to.done(slot, unique);
    }
}

/// A request, and its reply.
struct Call<'a> {
    fs: &'a Arc<FileSystem>,
    request: &'a Request<'a>,
    reply: Reply,
}

impl Call<'_> {
    fn run(mut self, operation: Operation<'_>) {
        let Call { fs, request, .. } = self;
        let (node, caller) = (request.header.node, &request.header.caller);
        let thread = Thread::of(caller.pid);
        let changes = changes_names_in(node, &operation);
        if changes[0].is_some() {
            changes.into_iter().flatten().for_each(|directory| fs.will_change_names(directory));
            let fs = Arc::clone(fs);
            self.reply.before(move || {
                changes
                    .into_iter()
                    .flatten()
                    .for_each(|directory| fs.changed_names(directory, thread));
            });
        }
        match operation {
            Operation::Read { .. }
            | Operation::Write { .. }
            | Operation::Sync { .. }
            | Operation::Flush { .. }
            | Operation::Allocate { .. }
            | Operation::Seek { .. }
            | Operation::CopyRange { .. } => self.run_on_data(operation),
            Operation::Open { .. }
            | Operation::Create { .. }
            | Operation::CreateUnnamed { .. }
            | Operation::Release { .. }
            | Operation::OpenDirectory
            | Operation::List { .. }
            | Operation::ReleaseDirectory { .. }
            | Operation::SyncDirectory => self.run_on_handles(operation),
            Operation::Lookup { name } => match fs.lookup(node, name, thread) {
                Ok(Found::Entry(attributes)) => self.entry(Ok(attributes)),
                Ok(Found::Nothing(timeout)) => self.reply.send(Ok(answer::no_entry(timeout))),
                Err(errno) => self.entry(Err(errno)),
            },
            Operation::Forget { lookups } => {
                fs.forget(node, lookups);
                self.reply.done();
            }
            Operation::ForgetMany(forgets) => {
                forgets.for_each(|(node, lookups)| fs.forget(node, lookups));
                self.reply.done();
            }
            Operation::GetAttributes => {
                fs.write_is_over(node, caller);
                let attributes = fs.get_attributes(node, thread);
                self.attributes()(attributes);
            }
            Operation::SetAttributes(set) => {
                fs.set_attributes(caller, node, set, self.attributes());
            }
            Operation::ReadLink => self.reply.send(fs.read_link(node).map(Body::from)),
            Operation::MakeSymlink { name, target } => {
                let made = fs.make_symlink(caller, Place { parent: node, name }, target);
                self.entry(made);
            }
            Operation::MakeNode { name, mode, umask, device } => {
                let new = Place { parent: node, name };
                let made = fs.make_node(caller, new, mode, umask, device);
                self.entry(made);
            }
            Operation::MakeDirectory { name, mode, umask } => {
                let new = Place { parent: node, name };
                let made = fs.make_directory(caller, new, mode, umask);
                self.entry(made);
            }
            Operation::Unlink { name } => self.end(fs.unlink(node, name)),
            Operation::RemoveDirectory { name } => self.end(fs.remove_directory(node, name)),
            Operation::Rename { name, new_parent, new_name, flags } => {
                let from = Place { parent: node, name };
                let to = Place { parent: new_parent, name: new_name };
                fs.rename(from, to, flags, self.nothing());
            }
            Operation::MakeLink { node: linked, name } => {
                let made = fs.make_link(linked, Place { parent: node, name });
                self.entry(made);
            }
            Operation::Statfs => {
                self.reply.send(fs.statfs(node).map(|home| answer::statfs(&home)));
            }
            Operation::SetXattr { name, value, flags } => {
                fs.set_xattr(caller, node, name, value, flags, self.nothing());
            }
            Operation::GetXattr { name, len_max } => {
                self.reply.send(fs.get_xattr(node, name, len_max).map(answer::value));
            }
            Operation::ListXattrs { len_max } => {
                self.reply.send(fs.list_xattrs(node, len_max).map(answer::value));
            }
            Operation::RemoveXattr { name } => self.end(fs.remove_xattr(node, name)),
            Operation::Ioctl { handle, command, data, len_max } => {
                self.ioctl(handle, command, data, len_max);
            }
            // After this answer the kernel does not send such requests again: for example access(2), which it checks
            // itself, and poll(2), for which it treats files as always ready.
            Operation::Unserved => self.reply.send(Err(Errno::ENOSYS)),
        }
    }

    fn run_on_data(self, operation: Operation<'_>) {
        let Call { fs, request, reply } = self;
        let caller = &request.header.caller;
        match operation {
            Operation::Read { handle, offset, len, direct } => {
                fs.read(handle, offset, len, direct, move |read| {
                    reply.send(read.map(Body::Data));
                });
            }
            Operation::Write { handle, offset, data, mode } => {
                // The data came in one request.
                let len = data.len() as u32;
                fs.write(caller, handle, offset, data, mode, move |written| {
                    reply.send(written.map(|()| answer::written(len)));
                });
            }
            Operation::Sync { handle, data_only } => {
                fs.sync(caller.pid, handle, data_only, move |synced| reply.send(empty(synced)));
            }
            Operation::Flush { handle } => reply.send(empty(fs.flush(caller.pid, handle))),
            Operation::Allocate { handle, offset, len, mode } => {
                fs.allocate(caller, handle, (offset, len), mode, move |allocated| {
                    reply.send(empty(allocated));
                });
            }
            Operation::Seek { handle, offset, whence } => {
                fs.seek(handle, offset, whence, move |found| {
                    reply.send(found.map(answer::number));
                });
            }
            Operation::CopyRange { from, to, len, answer } => {
                fs.copy_range(caller, from, to, len, move |copied| {
                    reply.send(copied.map(|bytes| match answer {
                        CopyAnswer::Narrow => answer::written(bytes),
                        CopyAnswer::Wide => answer::number(bytes.into()),
                    }));
                });
            }
            _ => unreachable!("`run` sends no other operation here"),
        }
    }

    fn run_on_handles(self, operation: Operation<'_>) {
        let Call { fs, request, reply } = self;
        let (node, caller) = (request.header.node, &request.header.caller);
        match operation {
            Operation::Open { flags } => fs.open(caller, node, flags, move |opened| {
                reply.send(opened.map(|opened| answer::opened(&opened)));
            }),
            Operation::Create { name, mode, umask, flags } => {
                let new = Place { parent: node, name };
                let done = created(fs, reply);
                fs.create(caller, new, mode, umask, flags, done);
            }
            Operation::CreateUnnamed { mode, umask, flags } => {
                fs.create_unnamed(caller, node, mode, umask, flags, created(fs, reply));
            }
            Operation::Release { handle } => {
                fs.close(handle);
                reply.send(Ok(Body::empty()));
            }
            Operation::OpenDirectory => {
                let opened = fs.open_directory();
                reply.send(opened.map(answer::directory_opened));
            }
            Operation::List { handle, position, len_max, with_attributes } => {
                let reader = Reader::of(handle, caller.pid);
                let from = Position { directory: node, reader, cookie: position };
                reply.send(list(fs, from, len_max, with_attributes));
            }
            Operation::ReleaseDirectory { handle } => {
                fs.listings.closed(node, handle);
                reply.send(Ok(Body::empty()));
            }
            Operation::SyncDirectory => {
                fs.sync_directory(node, move |synced| reply.send(empty(synced)));
            }
            _ => unreachable!("`run` sends no other operation here"),
        }
    }

    fn ioctl(self, handle: Option<u64>, command: u32, data: &[u8], len_max: usize) {
        let Call { fs, request, reply } = self;
        fs.control(&request.header.caller, handle, command, data, move |answer| {
            reply.send(answer.map(|message| answer::controlled(&message, len_max)));
        });
    }

    fn end(self, result: Result<(), Errno>) {
        self.reply.send(empty(result));
    }

    fn nothing(self) -> impl FnOnce(Result<(), Errno>) + Send + 'static {
        let reply = self.reply;
        move |result| reply.send(empty(result))
    }

    fn attributes(self) -> impl FnOnce(Result<Attributes, Errno>) + Send + 'static {
        let (fs, reply) = (Arc::clone(self.fs), self.reply);
        move |result| {
            reply.send(result.map(|attributes| {
                answer::attributes(&attributes, fs.options.attr_timeout_of(&attributes))
            }));
        }
    }

    fn entry(self, entry: Result<Attributes, Errno>) {
        let fs = self.fs;
        self.reply.send(entry.map(|found| answer::entry(&found, valid(fs, &found))));
    }
}

/// What an operation is to sessions.
fn kind_of(operation: &Operation<'_>) -> Kind {
    match operation {
        Operation::Lookup { .. }
        | Operation::GetAttributes
        | Operation::ReadLink
        | Operation::Read { .. }
        | Operation::GetXattr { .. }
        | Operation::ListXattrs { .. }
        | Operation::List { .. }
        | Operation::Seek { .. }
        | Operation::Statfs => Kind::Look,
        Operation::Open { flags } if flags & libc::O_TRUNC != 0 => Kind::Change,
        Operation::Open { .. } => Kind::Look,
        Operation::SetAttributes(_)
        | Operation::MakeSymlink { .. }
        | Operation::MakeNode { .. }
        | Operation::MakeDirectory { .. }
        | Operation::Unlink { .. }
        | Operation::RemoveDirectory { .. }
        | Operation::Rename { .. }
        | Operation::MakeLink { .. }
        | Operation::Create { .. }
        | Operation::CreateUnnamed { .. }
        | Operation::SetXattr { .. }
        | Operation::RemoveXattr { .. }
        | Operation::Allocate { .. }
        | Operation::CopyRange { .. } => Kind::Change,
        Operation::Write { mode, .. } => Kind::Write {
            written_back: mode.written_back,
            syncs: mode.flags & libc::O_DSYNC != 0,
        },
        Operation::Sync { .. } => Kind::Sync,
        Operation::Forget { .. }
        | Operation::ForgetMany(_)
        | Operation::Release { .. }
        | Operation::Flush { .. }
        | Operation::OpenDirectory
        | Operation::ReleaseDirectory { .. }
        // That of the root is the supervisor's commit.
        | Operation::SyncDirectory
        | Operation::Ioctl { .. }
        | Operation::Unserved => Kind::Other,
    }
}

/// The directories in which an operation on `node` changes names.
fn changes_names_in(node: NodeId, operation: &Operation<'_>) -> [Option<NodeId>; 2] {
    match operation {
        Operation::Create { .. }
        | Operation::MakeSymlink { .. }
        | Operation::MakeNode { .. }
        | Operation::MakeDirectory { .. }
        | Operation::MakeLink { .. }
        | Operation::Unlink { .. }
        | Operation::RemoveDirectory { .. } => [Some(node), None],
        Operation::Rename { new_parent, .. } => [Some(node), Some(*new_parent)],
        _ => [None, None],
    }
}

/// Answers a request that makes a file and opens it.
fn created(
    fs: &Arc<FileSystem>,
    reply: Reply,
) -> impl FnOnce(Result<(Attributes, Opened), Errno>) + Send + 'static {
    let fs = Arc::clone(fs);
    move |created| {
        reply.send(created.map(|(attributes, opened)| {
            answer::created(&attributes, valid(&fs, &attributes), &opened)
        }));
    }
}

fn empty(result: Result<(), Errno>) -> Result<Body, Errno> {
    result.map(|()| Body::empty())
}

fn valid(fs: &FileSystem, attributes: &Attributes) -> Valid {
    let options = &fs.options;
    Valid { entry: options.entry_timeout, attr: options.attr_timeout_of(attributes) }
}

/// What was listed before an error: it has been counted as looked up. The next request meets the error.
fn listed_until(result: Result<(), Errno>, names: Names) -> Result<Body, Errno> {
    let listed = names.into_body();
    match result {
        Err(errno) if listed.len() == 0 => Err(errno),
        _ => Ok(listed),
    }
}

fn list(
    fs: &Arc<FileSystem>,
    from: Position,
    len_max: usize,
    with_attributes: bool,
) -> Result<Body, Errno> {
    let len_max = len_max.min(WRITE_BYTES_MAX as usize);
    let mut names = Names::new(len_max);
    let listed = if with_attributes {
        let valid = |attributes: &Attributes| valid(fs, attributes);
        let mut listing = NamesAndAttributes { names, valid };
        let result = fs.list(from, &mut listing);
        listed_until(result, listing.names)?
    } else {
        let result = fs.list(from, &mut names);
        listed_until(result, names)?
    };
    if listed.len() == 0 {
        fs.listings.ended(&from);
    }
    Ok(listed)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use rustix::fs::FileType;

    use super::*;
    use crate::listings::{Listed, Listing};

    #[test]
    fn what_was_listed_before_an_error_is_answered_and_the_next_request_meets_the_error() {
        let len = |names| listed_until(Err(Errno::EIO), names).map(|listed| listed.len());
        let mut names = Names::new(4096);
        let name = OsStr::new("abc");
        let listed = Listed { node: NodeId(6), kind: FileType::RegularFile, next: 9, name };
        assert!(names.add(&listed));
        assert_eq!(len(names), Ok(32));
        assert_eq!(len(Names::new(4096)), Err(Errno::EIO));
    }
}
