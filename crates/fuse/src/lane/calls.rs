//! The ioctls: by which programs find the lane, and put open descriptions into it and out of it, and by which they recognise a
//! mount with one order, and commit it ([`weir_lane::wire`]).

use std::sync::Arc;

use weir_lane::wire::{
    ATTACH, Attach, Attachment, COMMIT, FIND, Found, LEAVE, Leave, MESSAGE_BYTES, Message, ORDER,
    Order, TAKE,
};

use crate::credentials::Caller;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::lane::Lane;
use crate::lane::clients::Client;
use crate::lane::grants::Teller;
use crate::open_file::OpenFile;

impl FileSystem {
    /// ioctl(2) on a regular file or, without a handle, on a directory: [`ORDER`] and [`COMMIT`] on both, those of the lane on files, ENOTTY
    /// for all others.
    pub(crate) fn control(
        self: &Arc<Self>,
        caller: &Caller,
        handle: Option<u64>,
        command: u32,
        message: &[u8],
        done: impl FnOnce(Result<Message, Errno>) + Send + 'static,
    ) {
        match command {
            ORDER => return done(self.order()),
            COMMIT if self.shard.is_ordered() => {
                return self.commit(|committed| done(committed.map(|()| [0; MESSAGE_BYTES])));
            }
            _ => {}
        }
        let (Some(lane), Some(handle)) = (&self.lane, handle) else {
            return done(Err(Errno::ENOTTY));
        };
        if ![FIND, ATTACH, LEAVE, TAKE].contains(&command) {
            return done(Err(Errno::ENOTTY));
        }
        let asked = Attach::decode(message);
        let keeps_order = command == FIND || asked.is_some_and(|asked| asked.keeps_order);
        if command != LEAVE && !self.sessions.may_use_lane(caller.pid, keeps_order) {
            return done(Err(Errno::EPERM));
        }
        let open = match self.open_file(handle) {
            Ok(open) => open,
            Err(errno) => return done(Err(errno)),
        };
        match command {
            FIND => done(lane.find(caller)),
            ATTACH => self.attach(&open, asked, done),
            TAKE => self.make_poster(caller, asked, done),
            _ => {
                let answer = move || done(Ok([0; MESSAGE_BYTES]));
                self.description_left(&open, Leave::decode(message), answer);
            }
        }
    }

    fn order(&self) -> Result<Message, Errno> {
        if !self.shard.is_ordered() {
            return Err(Errno::EOPNOTSUPP);
        }
        Ok(Order { mount: self.number }.encode())
    }

    fn attach(
        self: &Arc<Self>,
        open: &Arc<OpenFile>,
        asked: Option<Attach>,
        done: impl FnOnce(Result<Message, Errno>) + Send + 'static,
    ) {
        let client = self.client_that_asks(asked);
        let (Some(client), Some(Attach { process, .. })) = (client, asked) else {
            return done(Err(Errno::EPERM));
        };
        let attached = self.attach_description(open, &client, process);
        let (fs, of) = (Arc::clone(self), Arc::clone(open));
        // Also if it failed: a refusal may have made a revoked description the kernel's for good.
        let answer = move || match (attached, of.inode.lane.slot()) {
            (Err(errno), _) => done(Err(errno)),
            (Ok((description, was_attached)), Some(slot)) => {
                done(Ok(Attachment { slot, description, was_attached }.encode()));
            }
            (Ok(_), None) => {
                fs.description_left(&of, Leave::FOR_GOOD, || done(Err(Errno::ENFILE)));
            }
        };
        self.reconsider_by(&open.inode, Teller::This, answer);
    }
}

impl FileSystem {
    fn client_that_asks(&self, asked: Option<Attach>) -> Option<Arc<Client>> {
        let asked = asked?;
        let client = self.lane.as_ref()?.clients.get(asked.client)?;
        (client.token == asked.token).then_some(client)
    }

    /// A client becomes the poster of its session. Everything posted before is applied when `done` is called, unless with EPERM.
    fn make_poster(
        self: &Arc<Self>,
        caller: &Caller,
        asked: Option<Attach>,
        done: impl FnOnce(Result<Message, Errno>) + Send + 'static,
    ) {
        let session = self.sessions.of_member(caller.pid);
        let (Some(client), Some(session)) = (self.client_that_asks(asked), session) else {
            return done(Err(Errno::EPERM));
        };
        client.posts_for(Arc::clone(&session));
        let vacancy = session.posts().vacate();
        self.all_drained(move || match session.posts().appoint(client.id, vacancy) {
            true => done(Ok([0; MESSAGE_BYTES])),
            false => done(Err(Errno::EAGAIN)),
        });
    }
}

impl Lane {
    fn find(&self, caller: &Caller) -> Result<Message, Errno> {
        if !self.is_for(caller.uid) {
            return Err(Errno::EPERM);
        }
        Ok(Found { socket: self.socket.clone(), proof: self.proof }.encode())
    }
}
