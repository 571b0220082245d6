//! Thread-local state: the thread's rings, one for each daemon, and whether it is posting.
//!
//! Initialized by a constant and without destructors, so that using it registers nothing and allocates nothing. Rings
//! are released by the destructor of a key that is made when the library is loaded (pthread_key_create(3)).

use std::cell::{Cell, UnsafeCell};
use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering, compiler_fence};

use weir_lane::client::{Client, Ring};
use weir_lane::owner::Owner;
use weir_lane::tally::Fallback;

use crate::connection::{self, CLIENTS};
use crate::{held, home, own_close, session, sys};

struct Thread {
    /// Read and written by the thread alone, and not by a signal handler while `is_posting`.
    rings: [UnsafeCell<Option<Ring>>; CLIENTS],
    /// The process that took the rings ([`home::generation`]).
    generation: Cell<u32>,
    is_posting: Cell<bool>,
}

impl Thread {
    /// Forgets rings that belong to the process from which this one was forked.
    #[inline]
    fn forget_if_forked(&self) {
        let generation = home::generation();
        if self.generation.replace(generation) != generation {
            for ring in &self.rings {
                // SAFETY: the thread's own, and nothing of it is borrowed here.
                unsafe { *ring.get() = None };
            }
        }
    }
}

thread_local! {
    static THREAD: Thread = const {
        Thread {
            rings: [const { UnsafeCell::new(None) }; CLIENTS],
            generation: Cell::new(0),
            is_posting: Cell::new(false),
        }
    };
}

/// The key whose destructor releases a thread's rings, plus one; 0 if there is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Posts with the thread's ring. `Err` if there is no ring for it, or if it is posting already and this call is in a signal
/// handler.
#[inline]
pub(crate) fn with_ring<T>(
    index: usize,
    client: &Client,
    post: impl FnOnce(&Ring) -> T,
) -> Result<T, Fallback> {
    home::adopt_if_forked();
    THREAD.with(|thread| {
        if thread.is_posting.replace(true) {
            return Err(Fallback::Nested);
        }
        // A signal handler that runs from here on sees `is_posting`.
        compiler_fence(Ordering::SeqCst);
        // Not adopted: this is a signal handler that interrupted the adoption, or a child that a signal handler forked
        // after it.
        if home::is_fresh() {
            thread.is_posting.set(false);
            return Err(Fallback::Nested);
        }
        thread.forget_if_forked();
        // SAFETY: the thread's own, and `is_posting` keeps handlers out.
        let ring = unsafe { &mut *thread.rings[index].get() };
        if ring.is_none() {
            *ring = take(client);
        }
        let posted = ring.as_ref().map(post).ok_or(Fallback::NoRing);
        compiler_fence(Ordering::SeqCst);
        thread.is_posting.set(false);
        posted
    })
}

#[cold]
fn take(client: &Client) -> Option<Ring> {
    let ring = client.take_ring(Owner::new(home::namespace(), sys::gettid()), sys::is_alive)?;
    let key = KEY.load(Ordering::Relaxed);
    if key != 0 {
        // The value must not be null, or the destructor is not called.
        // SAFETY: the key was made; its destructor does not use the value.
        unsafe { libc::pthread_setspecific(key - 1, ptr::dangling::<u8>().cast()) };
    }
    Some(ring)
}

/// In the GNU C library, values of keys below this are in the thread's own memory; a thread's first value of
/// a key above it is allocated.
const KEYS_WITHOUT_ALLOCATION: libc::pthread_key_t = 32;

/// Runs when the library is loaded.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static BEGIN: extern "C" fn() = begin;

extern "C" fn begin() {
    home::begin();
    let begun = session::begin();
    if begun != session::Begun::WithoutSession {
        held::begin();
    }
    match begun {
        session::Begun::WithoutSession => {}
        // What it posted would have no place in the session's order.
        session::Begun::WithoutDoor => connection::set_departed(),
        session::Begun::Member => own_close::take_over(),
    }
    make_key();
}

/// Makes the key if a low one is free. Without a key, other threads take a thread's rings over when they find that the
/// thread has ended.
fn make_key() {
    let mut made = 0;
    // SAFETY: `made` is written; the destructor gets the value that `take` sets.
    if unsafe { libc::pthread_key_create(&raw mut made, Some(give_back)) } != 0 {
        return;
    }
    if made < KEYS_WITHOUT_ALLOCATION {
        KEY.store(made + 1, Ordering::Relaxed);
    } else {
        // SAFETY: made just now and not published.
        unsafe { libc::pthread_key_delete(made) };
    }
}

/// The thread ends. What is posted in its rings is still taken out.
extern "C" fn give_back(_: *mut c_void) {
    give_rings_back();
}

/// Releases the thread's rings: it ends, or executes another program, and then is no thread of the client's.
pub(crate) fn give_rings_back() {
    if home::is_fresh() {
        // The rings are the parent's.
        return;
    }
    THREAD.with(|thread| {
        if thread.is_posting.get() {
            return;
        }
        thread.forget_if_forked();
        for (index, ring) in thread.rings.iter().enumerate() {
            // SAFETY: the thread's own.
            let ring = unsafe { (*ring.get()).take() };
            if let (Some(ring), Some(client)) = (ring, connection::client(index)) {
                client.release_ring(&ring);
            }
        }
    });
}

/// Forgets the rings, as if the process had been forked.
#[cfg(test)]
pub(crate) fn forget_rings() {
    THREAD.with(|thread| {
        thread.generation.set(thread.generation.get().wrapping_sub(1));
        thread.forget_if_forked();
    });
}
