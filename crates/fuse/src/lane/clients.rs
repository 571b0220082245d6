//! The clients of a mount, and the open descriptions each has in the lane.

use std::collections::HashMap;
use std::fmt;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, TryLockError};

use weir_engine::FileId;
use weir_lane::owner::{self, Owner};
use weir_lane::region::Region;
use weir_lane::server::{Inbox, Posted};

use crate::lane::opens::ClientId;
use crate::open_file::OpenFile;
use crate::sessions::Session;

/// Most clients: the used part of each client's region is resident.
pub(crate) const CLIENTS_MAX: usize = 512;
/// Open descriptions one client may have in the lane.
const DESCRIPTIONS_MAX: usize = 16 << 10;

/// A program, and the processes it forked.
pub(crate) struct Client {
    pub(crate) id: ClientId,
    /// The user that connected.
    uid: u32,
    pub(crate) token: u64,
    pub(crate) socket: OwnedFd,
    pub(crate) region: Arc<Region>,
    inbox: Mutex<Drain>,
    descriptions: RwLock<Descriptions>,
    /// The session that it posts for.
    session: Mutex<Option<Arc<Session>>>,
}

/// Open descriptions by their numbers. Numbers are not reused: an entry by a description that was closed meanwhile is never
/// applied to another file.
#[derive(Debug, Default)]
struct Descriptions {
    known: HashMap<u32, Arc<OpenFile>>,
    next: u32,
    /// The client has ended: no description is added any more.
    retired: bool,
}

/// The state of draining a client's posts.
pub(crate) struct Drain {
    pub(crate) inbox: Inbox,
    /// A write that waits for the engine; the writes after it wait for it.
    pub(crate) stuck: Option<Stuck>,
    /// Callbacks to run when everything posted so far is applied.
    pub(crate) waiting: Vec<Box<dyn FnOnce() + Send>>,
    /// Nothing is taken out any more.
    pub(crate) closed: bool,
}

/// A posted write the engine has not answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stuck {
    pub(crate) posted: Posted,
    pub(crate) slot: u32,
    pub(crate) file: FileId,
}

impl Client {
    pub(crate) fn new(
        id: ClientId,
        uid: u32,
        token: u64,
        socket: OwnedFd,
        region: Arc<Region>,
    ) -> Client {
        let inbox = Inbox::new(Arc::clone(&region));
        let drain = Drain { inbox, stuck: None, waiting: Vec::new(), closed: false };
        let (inbox, descriptions) = (Mutex::new(drain), RwLock::default());
        let session = Mutex::default();
        Client { id, uid, token, socket, region, inbox, descriptions, session }
    }

    /// It is about to be the poster of a session.
    pub(crate) fn posts_for(&self, session: Arc<Session>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = Some(session);
    }

    /// Something that it had posted could not be applied. To be called before anybody is told that its posts are.
    pub(crate) fn has_lost(&self) {
        let session = self.session.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = &*session {
            session.lose();
        }
    }

    pub(crate) fn inbox(&self) -> MutexGuard<'_, Drain> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless another thread has it.
    pub(crate) fn try_inbox(&self) -> Option<MutexGuard<'_, Drain>> {
        match self.inbox.try_lock() {
            Ok(inbox) => Some(inbox),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Gives an open description a number in this client's entries; `None` if it has too many.
    pub(crate) fn add(&self, open: &Arc<OpenFile>) -> Option<u32> {
        let mut descriptions = self.descriptions.write().unwrap_or_else(PoisonError::into_inner);
        if descriptions.retired || descriptions.known.len() >= DESCRIPTIONS_MAX {
            return None;
        }
        let number = descriptions.next;
        descriptions.next = number.checked_add(1)?;
        descriptions.known.insert(number, Arc::clone(open));
        Some(number)
    }

    /// Removes a description's number.
    pub(crate) fn remove(&self, number: u32) {
        let removed = {
            let mut descriptions =
                self.descriptions.write().unwrap_or_else(PoisonError::into_inner);
            descriptions.known.remove(&number)
        };
        drop(removed);
    }

    /// The description of a number.
    pub(crate) fn description(&self, number: u32) -> Option<Arc<OpenFile>> {
        let descriptions = self.descriptions.read().unwrap_or_else(PoisonError::into_inner);
        descriptions.known.get(&number).cloned()
    }

    /// Whether it has a description by that number, and is not retired.
    pub(crate) fn has(&self, number: u32) -> bool {
        let descriptions = self.descriptions.read().unwrap_or_else(PoisonError::into_inner);
        !descriptions.retired && descriptions.known.contains_key(&number)
    }

    /// Adds no description any more. Returns all it has.
    pub(crate) fn retire(&self) -> Vec<Arc<OpenFile>> {
        let mut descriptions = self.descriptions.write().unwrap_or_else(PoisonError::into_inner);
        descriptions.retired = true;
        descriptions.known.values().cloned().collect()
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Client({})", self.id)
    }
}

/// The clients of a mount.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    known: RwLock<HashMap<ClientId, Arc<Client>>>,
    last: AtomicU32,
    /// The daemon's PID namespace.
    namespace: OnceLock<u32>,
}

impl Clients {
    pub(crate) fn next_id(&self) -> ClientId {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Whether another client of user `uid` may connect, if at most `most` clients may in all. A user other than
    /// `owner`, the daemon's own, may have at most half of them.
    pub(crate) fn have_room_for(&self, uid: u32, owner: u32, most: usize) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        let of_user = || known.values().filter(|client| client.uid == uid).count();
        known.len() < most && (uid == owner || of_user() < most / 2)
    }

    /// False if there are too many.
    pub(crate) fn add(&self, client: Arc<Client>) -> bool {
        let mut known = self.known.write().unwrap_or_else(PoisonError::into_inner);
        known.len() < CLIENTS_MAX && known.insert(client.id, client).is_none()
    }

    pub(crate) fn remove(&self, id: ClientId) -> Option<Arc<Client>> {
        self.known.write().unwrap_or_else(PoisonError::into_inner).remove(&id)
    }

    pub(crate) fn get(&self, id: ClientId) -> Option<Arc<Client>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.known.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.known.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether a thread of user `uid` owns a ring of that user's client. Clients report their threads themselves, so only the
    /// clients of the same user are asked.
    pub(crate) fn have_thread(&self, tid: u32, uid: u32) -> bool {
        let known = self.known.read().unwrap_or_else(PoisonError::into_inner);
        // The kernel reports process numbers in the daemon's own namespace.
        let namespace = *self.namespace.get_or_init(owner::namespace);
        let thread = Owner::new(namespace, tid);
        known.values().any(|client| client.uid == uid && client.region.has_thread(thread))
    }
}
