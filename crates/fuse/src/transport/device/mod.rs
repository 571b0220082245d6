//! The transport over /dev/fuse: a thread reads a request with read(2), executes it, and answers with writev(2). A late
//! answer is written by the thread that completes the request.
//!
//! Each thread has a clone of the device ([`channel`]): a request is answered on the channel that it was read from.

mod channel;

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};
use std::time::Duration;

use self::channel::{Channel, Received};
use crate::dispatch::dispatch;
use crate::errno::Errno;
use crate::file_system::FileSystem;
use crate::kernel_cache::KernelCache;
use crate::reply::{Answers, Reply};
use crate::transport::uring::Queues;
use crate::transport::wire::greeting::{Greeting, Version, Wishes, capability};
use crate::transport::wire::request::{HEADER_BYTES, Request};
use crate::transport::wire::{Malformed, opcode};
use crate::transport::{BACKGROUND_MAX, Transport, WRITE_BYTES_MAX};

/// Pause between reads of the device if only requests without an answer arrive by it.
const REST: Duration = Duration::from_millis(2);

/// The capabilities that are asked of the kernel. Those that it does not have are not used.
///
/// Not asked for: FUSE_WRITEBACK_CACHE, because Weir needs each write at once and with exactly its bytes;
/// FUSE_AUTO_INVAL_DATA, because then the kernel would drop its cached pages after each of its own writes;
/// FUSE_POSIX_LOCKS and FUSE_FLOCK_LOCKS, because the kernel keeps locks itself; FUSE_ATOMIC_O_TRUNC, because the file
/// of a running program must not be truncated (see `FileSystem::open`).
const CAPABILITIES: u64 = capability::ASYNC_READ
    | capability::BIG_WRITES
    // Weir has the kernel drop stale pages after such a write: see `kernel_pages`.
    | capability::ASYNC_DIO
    | capability::PARALLEL_DIROPS
    | capability::DO_READDIRPLUS
    // OPENDIR is answered with ENOSYS: see `listings`.
    | capability::NO_OPENDIR_SUPPORT
    | capability::HANDLE_KILLPRIV_V2
    | capability::POSIX_ACL
    // A default ACL, which only home knows, replaces the umask.
    | capability::DONT_MASK
    | capability::CACHE_SYMLINKS
    | capability::DIRECT_IO_ALLOW_MMAP
    // Handles made from node numbers would outlive their inodes.
    | capability::NO_EXPORT_SUPPORT;

/// A connection after its FUSE_INIT.
pub(crate) struct Connection {
    fs: Arc<FileSystem>,
    kernel: Arc<KernelCache>,
    channel: Arc<Channel>,
    threads: usize,
    /// The queues by which requests arrive after FUSE_INIT.
    queues: Option<Queues>,
    transport: Transport,
}

impl Connection {
    /// Answers FUSE_INIT on `device`, the descriptor that a mount was made with, and registers `queues` with the kernel if
    /// it takes any. `threads` serve the device.
    ///
    /// # Errors
    /// The kernel's protocol is not known, or the mount has already ended.
    pub(crate) fn new(
        fs: Arc<FileSystem>,
        device: OwnedFd,
        threads: usize,
        queues: Option<Queues>,
    ) -> std::io::Result<Connection> {
        let channel = Arc::new(Channel::new(device));
        let capabilities = greet(&channel, queues.is_some())?;
        fs.listings.set_stateless(capabilities & capability::NO_OPENDIR_SUPPORT != 0);
        let kernel = KernelCache::new(channel.device()?.into(), Arc::clone(&fs.requests));
        let kernel = Arc::new(kernel);
        fs.kernel.get_or_init(|| Arc::downgrade(&kernel));
        let queues = queues.filter(|_| capabilities & capability::OVER_IO_URING != 0);
        let transport = match queues.as_ref().map(Queues::register) {
            Some(Ok(())) => Transport::IoUring,
            Some(Err(error)) => {
                tracing::warn!("FUSE over io_uring was refused, serving the device: {error}");
                Transport::Device
            }
            None => Transport::Device,
        };
        Ok(Connection { fs, kernel, channel, threads, queues, transport })
    }

    /// The transport in use.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// The kernel's caches behind this connection.
    pub(crate) fn kernel_cache(&self) -> Arc<KernelCache> {
        Arc::clone(&self.kernel)
    }

    /// Serves requests until the mount is gone.
    ///
    /// # Errors
    /// The device failed, or a thread panicked.
    pub(crate) fn serve(self) -> std::io::Result<()> {
        let Connection { fs, kernel: _kernel, channel, threads, queues, transport } = self;
        let failed = Arc::new(AtomicBool::new(false));
        let start = |number: usize| {
            let channel = if number == 0 { Arc::clone(&channel) } else { channel.cloned() };
            let server = Server {
                fs: Arc::clone(&fs),
                channel,
                rests: transport == Transport::IoUring,
                failed: Arc::clone(&failed),
            };
            Builder::new().name(format!("weir-device-{number}")).spawn(move || server.run())
        };
        let started: Vec<_> = (0..threads.max(1)).map(start).collect();
        let mut served = Ok(());
        for thread in started {
            let ended = thread.and_then(|thread| {
                let panicked =
                    |_| std::io::Error::other("a thread that serves the device panicked");
                thread.join().map_err(panicked)?
            });
            served = served.and(ended);
        }
        drop(channel);
        let stopped = queues.map_or(Ok(()), Queues::stop);
        fs.discard_nameless();
        served.and(stopped)
    }
}

/// Answers FUSE_INIT, and returns the capabilities that both sides have.
fn greet(channel: &Arc<Channel>, with_queues: bool) -> std::io::Result<u64> {
    let not_greeted = || std::io::Error::from(std::io::ErrorKind::NotConnected);
    let nonsense = |_: Malformed| std::io::Error::from(std::io::ErrorKind::InvalidData);
    let queues = if with_queues { capability::OVER_IO_URING } else { 0 };
    let wishes = Wishes {
        capabilities: CAPABILITIES | queues,
        write_bytes_max: WRITE_BYTES_MAX,
        background_max: BACKGROUND_MAX,
    };
    // FUSE_MIN_READ_BUFFER: the kernel refuses a smaller buffer.
    let mut buffer = vec![0; 8192];
    loop {
        let len = match channel.receive(&mut buffer)? {
            Received::Request(len) => len,
            Received::End => return Err(not_greeted()),
        };
        let bytes = &buffer[..len];
        let header = Request::parse(bytes).map_err(nonsense)?.header;
        if header.opcode != opcode::INIT {
            channel.answer(0, header.unique, Err(Errno::EIO));
            return Err(nonsense(Malformed));
        }
        let greeting = Greeting::parse(&bytes[HEADER_BYTES..]).map_err(nonsense)?;
        match greeting.version() {
            Version::Ours => {
                channel.answer(0, header.unique, Ok(greeting.answer(&wishes)));
                return Ok(greeting.capabilities & wishes.capabilities);
            }
            Version::Later => channel.answer(0, header.unique, Ok(Greeting::our_version())),
            Version::TooOld => {
                channel.answer(0, header.unique, Err(Errno::EPROTO));
                return Err(std::io::ErrorKind::Unsupported.into());
            }
        }
    }
}

/// A thread that serves the device.
struct Server {
    fs: Arc<FileSystem>,
    channel: Arc<Channel>,
    /// Requests with an answer arrive by queues, so that no program waits for the device.
    rests: bool,
    /// A thread has met an error of the device: the others end with their next request.
    failed: Arc<AtomicBool>,
}

impl Server {
    fn run(self) -> std::io::Result<()> {
        let mut buffer = vec![0; HEADER_BYTES + 4096 + WRITE_BYTES_MAX as usize];
        while !self.failed.load(Ordering::Relaxed) {
            match self.channel.receive(&mut buffer) {
                Ok(Received::Request(len)) => self.serve(&buffer[..len]),
                Ok(Received::End) => break,
                Err(error) => {
                    self.failed.store(true, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    fn serve(&self, bytes: &[u8]) {
        let Ok(request) = Request::parse(bytes) else {
            // There is no number to answer it with.
            tracing::error!("the kernel sent {} bytes that are no request", bytes.len());
            return;
        };
        let opcode = request.header.opcode;
        self.fs.requests.count(opcode);
        let to = Arc::clone(&self.channel) as Arc<dyn Answers>;
        dispatch(&self.fs, &request, Reply::new(to, 0, request.header.unique));
        if matches!(opcode, opcode::FORGET | opcode::BATCH_FORGET) {
            self.rest();
        }
    }

    /// With queues, no program waits for requests on the device. The thread sleeps between reads, so that a program that
    /// makes the kernel send a FORGET does not spend time to wake it, and then reads all of them at once.
    fn rest(&self) {
        if self.rests && !self.fs.is_short_of_descriptors() {
            thread::sleep(REST);
        }
    }
}
