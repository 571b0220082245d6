//! A plain FUSE passthrough of a directory: the baseline Weir's sequential figures are held against.
//!
//! It does what the simplest good passthrough does and nothing else: one thread per CPU on cloned
//! device descriptors, the kernel's page cache on, the largest requests the kernel makes, and each
//! read and write carried out at once by pread(2) and pwrite(2) on an ordinary descriptor at home.
//!
//! Does not own: links, extended attributes, permissions of other users. The benchmarks need files
//! in one directory, so that is what it serves.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::InitFlags;

use crate::fuse_server::{
    self, Errno, FileAttr, FileHandle, FileType, FopenFlags, INodeNo, Limits, OpenFlags, ReplyData,
    ReplyEmpty, ReplyWrite, Served, answer,
};

/// The bounds Weir asks the kernel for, so that both are sent the same requests.
const WRITE_BYTES_MAX: u32 = 1 << 20;
const BACKGROUND_MAX: u16 = 64;

const TTL: Duration = Duration::from_secs(1);

thread_local! {
    static READ_BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Serves `source` on `mountpoint` until it is unmounted.
pub fn serve(source: &Path, mountpoint: &Path) -> io::Result<()> {
    let source = source.canonicalize()?;
    let name = source.display().to_string();
    let threads = std::thread::available_parallelism()?.get();
    let served = Passthrough::new(source, threads);
    fuse_server::serve(served, mountpoint, &name, "weir-bench-passthrough")
}

#[derive(Default)]
struct Names {
    paths: HashMap<u64, PathBuf>,
}

struct Passthrough {
    source: PathBuf,
    threads: usize,
    names: RwLock<Names>,
    handles: RwLock<Handles>,
}

#[derive(Default)]
struct Handles {
    open: Vec<Option<Arc<File>>>,
    free: Vec<usize>,
}

impl Passthrough {
    fn new(source: PathBuf, threads: usize) -> Passthrough {
        let names = Names { paths: HashMap::from([(INodeNo::ROOT.0, source.clone())]) };
        Passthrough {
            source,
            threads,
            names: RwLock::new(names),
            handles: RwLock::new(Handles::default()),
        }
    }

    fn path(&self, ino: INodeNo) -> io::Result<PathBuf> {
        let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
        names.paths.get(&ino.0).cloned().ok_or_else(|| io::Error::from_raw_os_error(libc::ESTALE))
    }

    fn child(&self, parent: INodeNo, name: &OsStr) -> io::Result<PathBuf> {
        Ok(self.path(parent)?.join(name))
    }

    fn remember(&self, path: PathBuf, metadata: &Metadata) -> FileAttr {
        let attr = attributes_of(metadata);
        if path != self.source {
            let mut names = self.names.write().unwrap_or_else(PoisonError::into_inner);
            names.paths.insert(attr.ino.0, path);
        }
        attr
    }

    fn keep(&self, file: File) -> FileHandle {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let slot = handles.free.pop().unwrap_or_else(|| {
            handles.open.push(None);
            handles.open.len() - 1
        });
        handles.open[slot] = Some(Arc::new(file));
        FileHandle(slot as u64)
    }

    fn file(&self, handle: FileHandle) -> io::Result<Arc<File>> {
        let handles = self.handles.read().unwrap_or_else(PoisonError::into_inner);
        handles
            .open
            .get(handle.0 as usize)
            .and_then(Clone::clone)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))
    }
}

fn attributes_of(metadata: &Metadata) -> FileAttr {
    let time = |seconds: i64, nanos: i64| -> SystemTime {
        UNIX_EPOCH + Duration::new(seconds.max(0) as u64, nanos as u32)
    };
    FileAttr {
        ino: INodeNo(metadata.ino()),
        size: metadata.len(),
        blocks: metadata.blocks(),
        atime: time(metadata.atime(), metadata.atime_nsec()),
        mtime: time(metadata.mtime(), metadata.mtime_nsec()),
        ctime: time(metadata.ctime(), metadata.ctime_nsec()),
        crtime: UNIX_EPOCH,
        kind: FileType::from_std(metadata.file_type()).unwrap_or(FileType::RegularFile),
        perm: (metadata.mode() & 0o7777) as u16,
        nlink: metadata.nlink() as u32,
        uid: metadata.uid(),
        gid: metadata.gid(),
        rdev: metadata.rdev() as u32,
        blksize: metadata.blksize() as u32,
        flags: 0,
    }
}

impl Served for Passthrough {
    fn limits(&self) -> Limits {
        Limits {
            // Without it each write asks for security.capability first.
            capability: InitFlags::FUSE_HANDLE_KILLPRIV_V2,
            required: None,
            write_bytes_max: WRITE_BYTES_MAX,
            background_max: BACKGROUND_MAX,
            threads: self.threads,
            valid: TTL,
        }
    }

    fn lookup(&self, parent: INodeNo, name: &OsStr) -> io::Result<FileAttr> {
        let path = self.child(parent, name)?;
        let metadata = fs::symlink_metadata(&path)?;
        Ok(self.remember(path, &metadata))
    }

    fn attributes(&self, ino: INodeNo, size: Option<u64>) -> io::Result<FileAttr> {
        let path = self.path(ino)?;
        if let Some(size) = size {
            OpenOptions::new().write(true).open(&path)?.set_len(size)?;
        }
        Ok(attributes_of(&fs::symlink_metadata(&path)?))
    }

    fn create(
        &self,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> io::Result<(FileAttr, FileHandle, FopenFlags)> {
        let path = self.child(parent, name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(flags & libc::O_TRUNC != 0)
            .mode(mode)
            .open(&path)?;
        let attr = self.remember(path, &file.metadata()?);
        Ok((attr, self.keep(file), FopenFlags::FOPEN_KEEP_CACHE))
    }

    fn open(&self, ino: INodeNo, flags: OpenFlags) -> io::Result<(FileHandle, FopenFlags)> {
        let write = flags.0 & libc::O_ACCMODE != libc::O_RDONLY;
        let file = OpenOptions::new().read(true).write(write).open(self.path(ino)?)?;
        Ok((self.keep(file), FopenFlags::FOPEN_KEEP_CACHE))
    }

    fn entries(&self, ino: INodeNo) -> io::Result<Vec<(INodeNo, FileType, OsString)>> {
        let mut entries = Vec::new();
        for entry in fs::read_dir(self.path(ino)?)? {
            let entry = entry?;
            let kind = FileType::from_std(entry.file_type()?).unwrap_or(FileType::RegularFile);
            let ino = INodeNo(std::os::unix::fs::DirEntryExt::ino(&entry));
            entries.push((ino, kind, entry.file_name()));
        }
        Ok(entries)
    }

    fn unlink(&self, parent: INodeNo, name: &OsStr) -> io::Result<()> {
        self.child(parent, name).and_then(fs::remove_file)
    }

    fn read(&self, handle: FileHandle, offset: u64, size: u32, reply: ReplyData) {
        READ_BUFFER.with_borrow_mut(|buffer| {
            let size = size as usize;
            if buffer.len() < size {
                buffer.resize(size, 0);
            }
            match self.file(handle).and_then(|file| file.read_at(&mut buffer[..size], offset)) {
                Ok(count) => reply.data(&buffer[..count]),
                Err(error) => reply.error(Errno::from(error)),
            }
        });
    }

    fn write(&self, handle: FileHandle, offset: u64, data: &[u8], reply: ReplyWrite) {
        match self.file(handle).and_then(|file| file.write_all_at(data, offset)) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(Errno::from(error)),
        }
    }

    fn fsync(&self, handle: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let sync = |file: Arc<File>| if datasync { file.sync_data() } else { file.sync_all() };
        answer(self.file(handle).and_then(sync), reply);
    }

    fn release(&self, handle: FileHandle) {
        let mut handles = self.handles.write().unwrap_or_else(PoisonError::into_inner);
        let slot = handle.0 as usize;
        let file = handles.open.get_mut(slot).and_then(Option::take);
        if file.is_some() {
            handles.free.push(slot);
        }
        drop(handles);
        drop(file);
    }
}
