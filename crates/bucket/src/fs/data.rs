//! Bytes and attributes of files, read and written.
//!
//! What is written goes into the file's spool, a sparse file in the state directory, at the same offsets.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

use super::fetch::joined;
use super::tree::{Node, Tree};
use super::{Error, FileSystem, ROOT, Result, Stat, now, say};
use crate::metadata::{Kind, Time};
use crate::plan::{Source, pieces};
use crate::store::StoreError;

/// Attributes to set.
#[derive(Clone, Copy, Debug, Default)]
#[allow(missing_docs)] // The names say it.
pub struct NewAttributes {
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub size: Option<u64>,
    pub mtime: Option<Time>,
}

/// The largest file.
const FILE_BYTES_MAX: u64 = 5 << 40;

impl FileSystem {
    /// Opens a file.
    pub fn open(&self, id: u64) -> Result<()> {
        self.check_again(id)?;
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        if node.is_directory() {
            return Err(Error::IsDirectory);
        }
        node.opens += 1;
        Ok(())
    }

    /// Closes a file. What nobody needs any more of it is removed.
    pub fn release(&self, id: u64) {
        let mut tree = self.tree();
        let Some(node) = tree.nodes.get_mut(&id) else { return };
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return;
        }
        self.drop_spool_if_clean(id, node);
        let elsewhere = node.elsewhere.clone().filter(|_| node.removed);
        tree.forget_if_unused(id);
        drop(tree);
        self.fetched.forget(id);
        if let Some(key) = elsewhere
            && let Err(error) = self.store_delete(&key)
        {
            say(&format!("a temporary object stays until the next start: {error}"));
        }
    }

    fn store_delete(&self, key: &str) -> Result<()> {
        Ok(self.store().delete(key)?)
    }

    fn spool_path(&self, id: u64) -> PathBuf {
        self.settings.state.join("spool").join(id.to_string())
    }

    /// A file's spool, made if it is not there.
    pub(super) fn spool(&self, tree: &mut Tree, id: u64) -> Result<Arc<File>> {
        let path = self.spool_path(id);
        let node = self.node(tree, id)?;
        if let Some(spool) = &node.content.spool {
            return Ok(spool.clone());
        }
        let mut options = OpenOptions::new();
        let spool =
            Arc::new(options.read(true).write(true).create(true).truncate(false).open(path)?);
        node.content.spool = Some(spool.clone());
        Ok(spool)
    }

    /// Removes the spool of a file that the bucket has and nobody has open.
    pub(super) fn drop_spool_if_clean(&self, id: u64, node: &mut Node) {
        let is_needed = node.is_dirty() || node.busy || node.opens > 0;
        if !is_needed && node.content.spool.take().is_some() {
            node.content.same = Default::default();
            // What stays is removed at the next start.
            let _ = std::fs::remove_file(self.spool_path(id));
        }
    }

    /// Reads up to `size` bytes.
    pub fn read(&self, id: u64, offset: u64, size: u32) -> Result<Bytes> {
        for _ in 0..8 {
            let mut tree = self.tree();
            let key = self.key(&tree, id);
            let node = self.node(&mut tree, id)?;
            let content = &node.content;
            let end = content.size.min(offset + u64::from(size));
            if offset >= end {
                return Ok(Bytes::new());
            }
            let parts = pieces(offset..end, content.base, &content.in_spool());
            let spool = content.spool.clone();
            let remote = node.remote.clone();
            drop(tree);
            let read = parts.into_iter().map(|(range, source)| match (source, &spool, &remote) {
                (Source::Spool, Some(spool), _) => {
                    let mut bytes = vec![0; (range.end - range.start) as usize];
                    read_spool(spool, &mut bytes, range.start)?;
                    Ok(bytes.into())
                }
                (Source::Base, _, Some(remote)) => {
                    Ok(self.fetched.read(&self.store, id, &key, remote, range)?)
                }
                _ => Ok(vec![0; (range.end - range.start) as usize].into()),
            });
            match (read.collect::<Result<Vec<Bytes>>>(), remote) {
                (Ok(pieces), _) => return Ok(joined(pieces)),
                (
                    Err(Error::Store(error @ (StoreError::Changed(_) | StoreError::NotFound(_)))),
                    Some(remote),
                ) => self.object_changed(id, &key, &remote.etag, error)?,
                (Err(error), _) => return Err(error),
            }
        }
        Err(Error::Stale)
    }

    /// A read found another object than the one with that ETag: takes the new one over, unless it was changed here.
    fn object_changed(&self, id: u64, key: &str, etag: &str, error: StoreError) -> Result<()> {
        let mut tree = self.tree();
        let moved = self.key(&tree, id) != key;
        let node = self.node(&mut tree, id)?;
        if moved || node.remote.as_ref().is_none_or(|remote| remote.etag != etag) || node.busy {
            // By an upload or a rename from here.
            drop(tree);
            std::thread::sleep(std::time::Duration::from_millis(20));
            return Ok(());
        }
        if node.doubt.is_some() {
            // An upload whose answer was lost may have made the new one.
            drop(tree);
            return self.settle_doubt(id);
        }
        if node.is_dirty() || node.removed {
            // The upload will keep both.
            return Err(error.into());
        }
        node.known = false;
        drop(tree);
        self.ensure_known(id)
    }

    /// Writes bytes.
    pub fn write(&self, id: u64, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset + bytes.len() as u64;
        if end > FILE_BYTES_MAX {
            return Err(Error::Local(std::io::Error::from_raw_os_error(libc::EFBIG)));
        }
        if self.store.is_fenced() {
            return Err(Error::Store(StoreError::Fenced));
        }
        let spool = self.spool(&mut self.tree(), id)?;
        spool.write_all_at(bytes, offset)?;
        let mut tree = self.tree();
        // It may have been dropped as clean meanwhile.
        let other = self.spool(&mut tree, id)?;
        if !Arc::ptr_eq(&spool, &other) {
            other.write_all_at(bytes, offset)?;
        }
        let node = self.node(&mut tree, id)?;
        node.content.dirty.insert(offset..end);
        node.content.size = node.content.size.max(end);
        node.content.changed = true;
        node.content.written_since.get_or_insert_with(Instant::now);
        node.attributes.mtime = now();
        tree.touch(id);
        Ok(())
    }

    /// Makes a file at least this long.
    pub fn allocate(&self, id: u64, end: u64) -> Result<()> {
        let size = self.tree().get(id).map_or(0, |node| node.content.size);
        if end > size {
            self.set_attributes(id, NewAttributes { size: Some(end), ..NewAttributes::default() })?;
        }
        Ok(())
    }

    /// Sets attributes. All but the size are durable in the state file when it returns.
    pub fn set_attributes(&self, id: u64, new: NewAttributes) -> Result<Stat> {
        self.ensure_known(id)?;
        if self.store.is_fenced() {
            return Err(Error::Store(StoreError::Fenced));
        }
        let mut tree = self.tree();
        let node = self.node(&mut tree, id)?;
        let is_file = node.attributes.kind == Kind::File;
        if let Some(size) = new.size {
            match (is_file, size > FILE_BYTES_MAX) {
                (false, _) => return Err(Error::Invalid),
                (_, true) => {
                    return Err(Error::Local(std::io::Error::from_raw_os_error(libc::EFBIG)));
                }
                _ => {}
            }
            if size != node.content.size {
                node.content.truncate(size);
                node.attributes.mtime = now();
            }
        }
        let mut wanted = node.attributes;
        wanted.mode = new.mode.map_or(wanted.mode, |mode| mode & 0o7777);
        wanted.uid = new.uid.unwrap_or(wanted.uid);
        wanted.gid = new.gid.unwrap_or(wanted.gid);
        wanted.mtime = new.mtime.unwrap_or(wanted.mtime);
        let told =
            new.mode.is_some() || new.uid.is_some() || new.gid.is_some() || new.mtime.is_some();
        let differs = wanted != node.attributes;
        node.attributes = wanted;
        // The root of a bucket has no object that could keep them.
        let is_bucket = id == ROOT && self.settings.prefix.is_empty();
        let kept = !is_bucket && !node.removed;
        let mut position = None;
        if told && differs && kept {
            node.attributes_dirty = true;
            tree.touch(id);
            position = Some(self.record(&mut tree, id)?);
        } else if new.size.is_some() && kept {
            tree.touch(id);
        }
        let stat = self.stat(&tree, id)?;
        drop(tree);
        if let Some(position) = position {
            self.state.durable(position)?;
        }
        Ok(stat)
    }

    /// Makes what the spool has of a file durable here, and notes it in the state file.
    pub(super) fn keep_content(&self, id: u64) -> Result<()> {
        loop {
            let mut tree = self.tree();
            let node = self.node(&mut tree, id)?;
            if node.removed || !node.content.changed {
                return Ok(());
            }
            let mut dirty = node.content.dirty.clone();
            dirty.extend(&node.content.uploading);
            dirty.extend(&node.content.streamed);
            let kept = crate::state_file::Content {
                version: node.version,
                size: node.content.size,
                base: node.content.base,
                dirty: dirty.iter().map(|range| (range.start, range.end)).collect(),
            };
            let (spool, sequence) = (node.content.spool.clone(), node.sequence);
            drop(tree);
            if let Some(spool) = spool {
                spool.sync_data()?;
                crate::state_file::sync_directory(&self.settings.state.join("spool"))?;
            }
            let mut tree = self.tree();
            let node = self.node(&mut tree, id)?;
            if node.removed || !node.content.changed {
                return Ok(());
            }
            if node.sequence != sequence {
                // The bucket has more of it by now.
                continue;
            }
            node.kept = Some(Box::new(kept));
            let position = self.record(&mut tree, id)?;
            drop(tree);
            return Ok(self.state.durable(position)?);
        }
    }
}

/// Reads from a spool; what it does not reach is zeros.
pub(super) fn read_spool(spool: &File, mut into: &mut [u8], mut at: u64) -> std::io::Result<()> {
    while !into.is_empty() {
        match spool.read_at(into, at)? {
            0 => {
                into.fill(0);
                return Ok(());
            }
            count => {
                into = &mut into[count..];
                at += count as u64;
            }
        }
    }
    Ok(())
}
