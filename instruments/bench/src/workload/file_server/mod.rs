//! A file server's load after SPECsfs2008, as in the paper's section 6.2, at a fixed rate.
//!
//! `set` is the files, `stream` the operations, `contents` the model of what the files hold, `load`
//! doing it. Here: preparing, comparing and putting back.
//!
//! It is an open loop: each operation has its time, and latency counts from then, so an operation
//! that waits for the one before it is as slow as its user would find it.

mod contents;
mod load;
mod server;
mod set;
mod stream;

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use crate::error::{Doing, Error, Result};
use crate::workload::job::Job;
use crate::workload::outcome::Outcome;
use crate::workload::prepared::{Prepared, first_difference};
use crate::workload::tree::{remove, sync};
use contents::Contents;
use set::{LINK, LINK_TO, MODE, ROOT, Share};
use stream::Extent;

pub use server::FileServer;
pub use stream::Mix;

impl FileServer {
    /// Each thread's share, and what it holds after a run with this outcome.
    fn after(&self, outcome: &Outcome) -> Result<Vec<(Share, Contents)>> {
        self.check()?;
        if outcome.done.len() != self.threads as usize {
            return Err(Error::answer("the load", "it does not say how far each thread got"));
        }
        Ok((0..self.threads)
            .zip(&outcome.done)
            .map(|(thread, done)| {
                let share = self.share(thread);
                let contents = Contents::new(self.seed, thread);
                let contents = contents.after(self.stream(&share, thread), *done);
                (share, contents)
            })
            .collect())
    }
}

impl Job for FileServer {
    fn file_bytes(&self) -> u64 {
        self.file_set_bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        self.check()?;
        let root = home.join(ROOT);
        remove(&root)?;
        fs::create_dir(&root).doing("create", &root)?;
        for share in (0..self.threads).map(|thread| self.share(thread)) {
            for directory in 0..share.directories() {
                let path = share.directory(home, directory);
                fs::create_dir(&path).doing("create", &path)?;
                let link = path.join(LINK);
                symlink(LINK_TO, &link).doing("create", &link)?;
                for file in share.files_in(directory) {
                    make_file(&share, home, file)?;
                }
            }
        }
        sync(&root)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        self.check()?;
        load::run(self, directory)
    }

    fn verify(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (share, contents) in self.after(outcome)? {
            for file in 0..share.files() {
                verify_file(&share, &contents, home, file)?;
            }
            verify_names(&share, &contents, home)?;
        }
        Ok(())
    }

    fn reset(&self, home: &Path, outcome: &Outcome) -> Result<()> {
        for (share, contents) in self.after(outcome)? {
            for (file, extents) in contents.written() {
                let path = share.file(home, file);
                let to = OpenOptions::new().write(true).open(&path).doing("open", &path)?;
                let mut prepared = Prepared::new(share.seed(file));
                for extent in extents {
                    prepared.write(&to, &path, extent.offset.into(), extent.length.into())?;
                }
            }
            for file in contents.moded() {
                let path = share.file(home, file);
                set_mode(&path, MODE)?;
            }
            for (directory, number) in contents.made() {
                let path = share.directory(home, directory).join(Share::new_name(number));
                fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        sync(&home.join(ROOT))
    }
}

fn make_file(share: &Share, home: &Path, file: u32) -> Result<()> {
    let path = share.file(home, file);
    let to = File::create_new(&path).doing("create", &path)?;
    Prepared::new(share.seed(file)).write(&to, &path, 0, share.bytes(file).into())?;
    set_mode(&path, MODE)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    fs::set_permissions(path, Permissions::from_mode(mode)).doing("set the mode of", path)
}

fn verify_file(share: &Share, contents: &Contents, home: &Path, file: u32) -> Result<()> {
    let path = share.file(home, file);
    let different = |what: String| Err(Error::Different(format!("{} {what}", path.display())));
    let found = fs::read(&path).doing("read", &path)?;
    let length = share.bytes(file);
    let wanted = contents.bytes(share, Extent { file, offset: 0, length });
    if found.len() != wanted.len() {
        return different(format!("has {} bytes instead of {length}", found.len()));
    }
    if found != wanted {
        let at = first_difference(&found, &wanted);
        return different(format!(
            "at byte {at}: {:#04x} instead of {:#04x}; {}",
            found[at],
            wanted[at],
            if Prepared::new(share.seed(file)).page(at as u64 / 4096)[at % 4096] == found[at] {
                "that is what was prepared"
            } else {
                "that is not what was prepared either"
            }
        ));
    }
    let mode = fs::metadata(&path).doing("look at", &path)?.permissions().mode() & 0o7777;
    let wanted = contents.mode(file);
    if mode != wanted {
        return different(format!("has the mode {mode:o} instead of {wanted:o}"));
    }
    Ok(())
}

/// Every directory has its files, its link and what the load made there, and nothing else; what
/// the load made is empty.
fn verify_names(share: &Share, contents: &Contents, home: &Path) -> Result<()> {
    for directory in 0..share.directories() {
        let path = share.directory(home, directory);
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(&path).doing("read", &path)? {
            found.insert(entry.doing("read", &path)?.file_name().to_string_lossy().into_owned());
        }
        let made: Vec<String> = contents
            .made()
            .filter(|made| made.0 == directory)
            .map(|made| Share::new_name(made.1))
            .collect();
        let mut wanted: BTreeSet<String> =
            share.files_in(directory).map(|file| share.name(file)).collect();
        wanted.insert(LINK.into());
        wanted.extend(made.iter().cloned());
        if let Some(name) = found.symmetric_difference(&wanted).next() {
            let state = if found.contains(name) { "should not be" } else { "is not" };
            return Err(Error::Different(format!("{} {state} there", path.join(name).display())));
        }
        for path in made.iter().map(|name| path.join(name)) {
            let bytes = fs::metadata(&path).doing("look at", &path)?.len();
            if bytes != 0 {
                return Err(Error::Different(format!(
                    "{} has {bytes} bytes instead of none",
                    path.display()
                )));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::Workload;
    use crate::workload::scratch::{Scratch, assert_different};
    use stream::Operation;

    fn server(mix: Mix) -> FileServer {
        let file_set_bytes = 8 << 20;
        FileServer { mix, offered_per_s: 5000.0, threads: 3, file_set_bytes, seconds: 0.2, seed: 5 }
    }

    /// A run and its files.
    fn ran() -> (Workload, Scratch, Outcome) {
        let workload = Workload::FileServer(server(Mix::MORE_WRITES));
        let home = Scratch::new(&workload);
        let outcome = workload.run(&home).unwrap();
        workload.verify(&home, &outcome).unwrap();
        (workload, home, outcome)
    }

    #[test]
    fn each_mix_leaves_what_it_must_and_can_be_put_back() {
        for mix in [Mix::STANDARD, Mix::NO_WRITES, Mix::NO_READS, Mix::MORE_WRITES] {
            let workload = Workload::FileServer(server(mix));
            let home = Scratch::new(&workload);
            let outcome = workload.run(&home).unwrap();
            workload.verify(&home, &outcome).unwrap();
            assert_eq!(outcome.done, [334, 333, 333]);
            assert_eq!(outcome.class("read").is_some(), mix.reads > 0);
            assert_eq!(outcome.class("write").is_some(), mix.writes > 0);
            assert_eq!(outcome.class("all").unwrap().ops, outcome.done.iter().sum::<u64>());
            workload.reset(&home, &outcome).unwrap();
            let nothing = Outcome { done: vec![0; 3], ..outcome };
            workload.verify(&home, &nothing).unwrap();
        }
    }

    #[test]
    fn a_run_that_got_further_or_less_far_is_different() {
        let (workload, home, outcome) = ran();
        let Workload::FileServer(server) = &workload else { unreachable!() };
        let share = server.share(1);
        let mut stream = server.stream(&share, 1);
        let done = outcome.done[1];
        let last =
            (0..done).filter(|_| matches!(stream.next(), Operation::Write(_))).last().unwrap();
        let mut less = outcome.clone();
        less.done[1] = last;
        assert_different(workload.verify(&home, &less), "instead of");
        let next = (done..).find(|_| matches!(stream.next(), Operation::Write(_))).unwrap();
        let mut more = outcome.clone();
        more.done[1] = next + 1;
        assert_different(workload.verify(&home, &more), "instead of");
    }

    #[test]
    fn faults_in_bytes_modes_and_names_are_found() {
        let (workload, home, outcome) = ran();
        let Workload::FileServer(server) = &workload else { unreachable!() };
        let share = server.share(2);
        let fails = |why: &str| assert_different(workload.verify(&home, &outcome), why);

        let path = share.file(&home, 7);
        let good = fs::read(&path).unwrap();
        let mut bytes = good.clone();
        bytes[good.len() / 2] ^= 0x80;
        fs::write(&path, &bytes).unwrap();
        fails("instead of");
        fs::write(&path, &good[1..]).unwrap();
        fails("bytes instead of");
        fs::write(&path, &good).unwrap();

        let mode = fs::metadata(&path).unwrap().permissions().mode();
        set_mode(&path, 0o444).unwrap();
        fails("has the mode 444");
        set_mode(&path, mode & 0o7777).unwrap();

        let stray = share.directory(&home, 0).join("stray");
        fs::write(&stray, "").unwrap();
        fails("should not be there");
        fs::remove_file(&stray).unwrap();
        fs::remove_file(share.directory(&home, 0).join(LINK)).unwrap();
        fails("is not there");
        symlink(LINK_TO, share.directory(&home, 0).join(LINK)).unwrap();
        workload.verify(&home, &outcome).unwrap();
    }

    #[test]
    fn a_load_that_reads_a_wrong_byte_says_so() {
        let workload = Workload::FileServer(server(Mix::NO_WRITES));
        let home = Scratch::new(&workload);
        let share = Share::new(0, (8 << 20) / 3);
        for file in 0..share.files() {
            let path = share.file(&home, file);
            let mut bytes = fs::read(&path).unwrap();
            bytes[0] ^= 1;
            fs::write(&path, bytes).unwrap();
        }
        assert_different(workload.run(&home), "saw something else");
    }
}
