//! Data that is not home yet, in words: how much, and of which files.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use weir_engine::{FileId, PAGE_BYTES};
use weir_shard::Shard;

use crate::quantity::Size;

/// Files that are named; the others are counted.
const NAMED_MAX: usize = 5;

/// `8 KiB of written data, in a, b/c and 2 more files`, at this moment.
pub fn describe(shard: &Shard, source: &Path) -> String {
    let bytes = Size(shard.stats().dirty_pages.saturating_mul(PAGE_BYTES as u64));
    let files = dirty_files(shard, source);
    if files.is_empty() {
        return format!("{bytes} of written data");
    }
    let named: Vec<String> =
        files.iter().take(NAMED_MAX).map(|file| file.display().to_string()).collect();
    let more = match files.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        1 => " and 1 more file".to_owned(),
        count => format!(" and {count} more files"),
    };
    format!("{bytes} of written data, in {}{more}", named.join(", "))
}

/// The names, below SOURCE, of files that have something newer than home. A file is known to the
/// shard by its inode number, and every such file is open here: so the open descriptors name it.
/// A file without a name is omitted.
fn dirty_files(shard: &Shard, source: &Path) -> Vec<PathBuf> {
    let Ok(descriptors) = fs::read_dir("/proc/self/fd") else { return Vec::new() };
    let mut names: Vec<PathBuf> = descriptors
        .flatten()
        .filter_map(|descriptor| {
            let link = descriptor.path();
            let target = fs::read_link(&link).ok()?;
            let name = target.strip_prefix(source).ok()?.to_owned();
            let stat = rustix::fs::stat(&link).ok()?;
            let regular = FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile;
            (regular && shard.has_dirty(FileId(stat.st_ino))).then_some(name)
        })
        .collect();
    names.sort();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;
    use std::sync::{Arc, mpsc};

    use weir_backend::HomeFile;
    use weir_engine::{Config, Durability};

    use super::*;

    #[test]
    fn dirty_files_are_named_and_clean_ones_are_not() {
        let source = std::env::temp_dir().join(format!("weir-unwritten-{}", std::process::id()));
        fs::create_dir_all(&source).unwrap();
        let source = source.canonicalize().unwrap();
        let config =
            Config { memory_bytes_max: 32 << 20, patch_bytes_max: 8 << 20, ..Config::default() };
        let directory = fs::File::open(&source).unwrap();
        let shard = Shard::start(config, std::os::fd::AsFd::as_fd(&directory)).unwrap();
        for index in 0..8 {
            let path = source.join(format!("file {index}"));
            let data = fs::File::create_new(&path).unwrap();
            let id = FileId(data.metadata().unwrap().ino());
            let opened = rustix::fs::open(
                &path,
                rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC,
                rustix::fs::Mode::empty(),
            );
            let home = Arc::new(HomeFile::new(opened.unwrap()));
            home.open_data(true).unwrap();
            shard.attach(id, &home).unwrap();
            if index != 3 {
                let (done, result) = mpsc::sync_channel(1);
                shard.write(id, 0, b"new", Durability::None, move |outcome| {
                    done.send(outcome).unwrap();
                });
                result.recv().unwrap().unwrap();
            }
        }
        assert_eq!(
            describe(&shard, &source),
            "28 KiB of written data, in file 0, file 1, file 2, file 4, file 5 and 2 more files"
        );
        let (done, result) = mpsc::sync_channel(1);
        shard.sync_all(move |outcome| done.send(outcome).unwrap());
        result.recv().unwrap().unwrap();
        assert_eq!(describe(&shard, &source), "0 B of written data");
        shard.stop();
        fs::remove_dir_all(source).unwrap();
    }
}
