//! Loads of this suite alone. What is found in the bucket afterwards is compared by content: a client of buckets keeps neither modes nor links.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::content::{Random, fill_page, first_difference};
use crate::error::{Doing, Error, Result};
use crate::mount::{require_program, run};
use crate::page::{PAGE, PAGE_BYTES};
use crate::workload::tree::clear;
use crate::workload::{Class, Job, Outcome, git, small_content, verify_git};

const SEED: u64 = 0x6275_636b;
/// Calls that move much have this many bytes.
const CALL_BYTES: usize = 1 << 20;
/// The one file of most loads.
const FILE: &str = "object";

/// Makes the file whose content is known page by page.
fn make_file(path: &Path, bytes: u64) -> Result<()> {
    let file = File::create(path).doing("create", path)?;
    write_pages(&file, bytes).doing("write", path)
}

fn write_pages(file: &File, bytes: u64) -> std::io::Result<()> {
    let mut call = vec![0; CALL_BYTES];
    for offset in (0..bytes).step_by(CALL_BYTES) {
        let mut page_bytes = [0; PAGE_BYTES];
        for (index, page) in call.chunks_exact_mut(PAGE_BYTES).enumerate() {
            fill_page(SEED, offset / PAGE + index as u64, &mut page_bytes);
            page.copy_from_slice(&page_bytes);
        }
        file.write_all_at(&call, offset)?;
    }
    Ok(())
}

/// [`Error::Different`] unless both files have the same content.
fn same(wanted: &Path, found: &Path) -> Result<()> {
    let open = |path: &Path| File::open(path).doing("open", path);
    match first_difference(&mut open(wanted)?, &mut open(found)?).doing("read", found)? {
        None => Ok(()),
        Some(byte) => Err(Error::Different(format!("{} at byte {byte}", found.display()))),
    }
}

/// Small writes all over a large object.
pub struct Patch {
    /// Of the object; whole calls of 1 MiB.
    pub bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Where what is expected is made.
    pub scratch: PathBuf,
}

impl Patch {
    /// Of each write.
    const WRITE_BYTES: u64 = 100;

    fn writes(&self) -> impl Iterator<Item = (u64, Vec<u8>)> {
        let mut random = Random::of(SEED, 1);
        let places = self.bytes - Self::WRITE_BYTES;
        (0..self.writes).map(move |number| {
            let mut bytes = small_content(SEED, number, Self::WRITE_BYTES);
            bytes.resize(Self::WRITE_BYTES as usize, number as u8);
            (random.next() % places, bytes)
        })
    }

    fn patch(&self, path: &Path) -> Result<()> {
        let file = OpenOptions::new().write(true).open(path).doing("open", path)?;
        for (offset, bytes) in self.writes() {
            file.write_all_at(&bytes, offset).doing("write", path)?;
        }
        file.sync_all().doing("sync", path)
    }

    fn expected(&self) -> PathBuf {
        self.scratch.join("patched")
    }
}

impl Job for Patch {
    fn file_bytes(&self) -> u64 {
        2 * self.bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)?;
        make_file(&home.join(FILE), self.bytes)?;
        fs::copy(home.join(FILE), self.expected()).doing("write", &self.expected())?;
        self.patch(&self.expected())
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        Outcome::of_job(|| self.patch(&directory.join(FILE)))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        same(&self.expected(), &home.join(FILE))
    }
}

/// A file that grows by little, synced each time.
pub struct Append {
    /// How often.
    pub times: u64,
}

impl Append {
    /// What is added each time.
    const RECORD_BYTES: u64 = 1 << 10;

    fn record(number: u64) -> Vec<u8> {
        let mut record = small_content(SEED, number, Self::RECORD_BYTES);
        record.resize(Self::RECORD_BYTES as usize, number as u8);
        record
    }
}

impl Job for Append {
    fn file_bytes(&self) -> u64 {
        self.times * Self::RECORD_BYTES
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let path = directory.join(FILE);
        let mut options = OpenOptions::new();
        let mut file = options.append(true).create(true).open(&path).doing("create", &path)?;
        Outcome::of_each(Class::Transaction, self.times, |number| {
            file.write_all(&Self::record(number)).doing("write", &path)?;
            file.sync_all().doing("sync", &path)
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let path = home.join(FILE);
        let found = fs::read(&path).doing("read", &path)?;
        let wanted: Vec<u8> = (0..self.times).flat_map(Self::record).collect();
        if found == wanted {
            return Ok(());
        }
        Err(Error::Different(format!("{}, of {} bytes", path.display(), found.len())))
    }
}

/// A large object, from its beginning to its end.
pub struct Sequential {
    /// Whole calls of 1 MiB.
    pub bytes: u64,
    /// Otherwise it is read.
    pub is_write: bool,
    /// Where what is expected is made.
    pub scratch: PathBuf,
}

impl Sequential {
    fn expected(&self) -> PathBuf {
        self.scratch.join("sequential")
    }
}

impl Job for Sequential {
    fn file_bytes(&self) -> u64 {
        2 * self.bytes
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)?;
        make_file(&self.expected(), self.bytes)?;
        if !self.is_write {
            let path = home.join(FILE);
            fs::copy(self.expected(), &path).doing("write", &path)?;
        }
        Ok(())
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let path = directory.join(FILE);
        if self.is_write {
            return Outcome::of_job(|| {
                let file = File::create(&path).doing("create", &path)?;
                write_pages(&file, self.bytes).doing("write", &path)?;
                file.sync_all().doing("sync", &path)
            });
        }
        Outcome::of_job(|| {
            let mut file = File::open(&path).doing("open", &path)?;
            let mut call = vec![0; CALL_BYTES];
            let mut found = 0;
            loop {
                match file.read(&mut call).doing("read", &path)? {
                    0 if found == self.bytes => return Ok(()),
                    0 => return Err(Error::Different(format!("{found} bytes were read"))),
                    count => found += count as u64,
                }
            }
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        same(&self.expected(), &home.join(FILE))
    }
}

/// A tree of small files that is unpacked by tar. It has no links, which rclone refuses.
pub struct Untar {
    archive: PathBuf,
    tree: PathBuf,
    files: u64,
}

impl Untar {
    /// Of the largest file.
    const FILE_BYTES_MAX: u64 = 4 << 10;
    const FILES_A_DIRECTORY: u64 = 20;
    const TREE: &str = "tree";

    /// Of an archive of `files` files that is made in `scratch`.
    pub fn new(scratch: &Path, files: u64) -> Result<Untar> {
        let (archive, tree) = (scratch.join("tree.tar"), scratch.join(Self::TREE));
        for number in 0..files {
            let directory = tree.join(format!("directory-{}", number / Self::FILES_A_DIRECTORY));
            fs::create_dir_all(&directory).doing("create", &directory)?;
            let path = directory.join(format!("file-{number}"));
            let content = small_content(SEED, number, Self::FILE_BYTES_MAX);
            fs::write(&path, content).doing("write", &path)?;
        }
        run(Command::new("tar").arg("-cf").arg(&archive).arg("-C").arg(scratch).arg(Self::TREE))?;
        Ok(Untar { archive, tree, files })
    }
}

impl Job for Untar {
    fn file_bytes(&self) -> u64 {
        self.files * Self::FILE_BYTES_MAX
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        let mut command = Command::new("tar");
        command.arg("-xf").arg(&self.archive).arg("-C").arg(directory);
        Outcome::of_job(|| run(&mut command).map(drop))
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        same_files(&self.tree, &home.join(Self::TREE))
    }
}

/// Every regular file of a tree is in another one, with its content.
fn same_files(wanted: &Path, found: &Path) -> Result<()> {
    for entry in fs::read_dir(wanted).doing("read", wanted)? {
        let entry = entry.doing("read", wanted)?;
        let kind = entry.file_type().doing("look at", &entry.path())?;
        let beside = found.join(entry.file_name());
        if kind.is_dir() {
            same_files(&entry.path(), &beside)?;
        } else if kind.is_file() {
            same(&entry.path(), &beside)?;
        }
    }
    Ok(())
}

/// A small C project that is cloned and built.
pub struct CloneAndBuild {
    origin: PathBuf,
    /// Cloned and built on this machine's own disk.
    model: PathBuf,
}

/// Where it is cloned to.
const CLONE: &str = "clone";
/// Files in C, beside the one with main().
const UNITS: u32 = 30;

impl CloneAndBuild {
    /// Fails, saying what to do, where a program is missing.
    pub fn require() -> Result<()> {
        let needed = [("git", "git"), ("make", "make"), ("cc", "gcc"), ("ar", "binutils")];
        needed.into_iter().try_for_each(|(program, package)| require_program(program, package))
    }

    /// Makes the project in `scratch`.
    pub fn new(scratch: &Path) -> Result<CloneAndBuild> {
        let (origin, model) = (scratch.join("project"), scratch.join("built"));
        fs::create_dir(&origin).doing("create", &origin)?;
        let write = |name: &str, text: String| {
            let path = origin.join(name);
            fs::write(&path, text).doing("write", &path)
        };
        let mut calls = String::new();
        for unit in 0..UNITS {
            let text = format!(
                "#include <string.h>\nunsigned unit_{unit}(unsigned of) {{\n    char text[64];\n    memset(text, (int)of, sizeof text);\n    \
                 return of * {}u + (unsigned)text[{unit}];\n}}\n",
                unit + 3
            );
            write(&format!("unit_{unit}.c"), text)?;
            calls +=
                &format!("    extern unsigned unit_{unit}(unsigned); sum += unit_{unit}(sum);\n");
        }
        let main = format!(
            "#include <stdio.h>\nint main(void) {{\n    unsigned sum = 1;\n{calls}    printf(\"%u\\n\", sum);\n    return 0;\n}}\n"
        );
        write("main.c", main)?;
        write(
            "Makefile",
            "UNITS := $(patsubst %.c,%.o,$(wildcard unit_*.c))\nprogram: main.o units.a\n\tcc -o $@ main.o units.a\n\
             units.a: $(UNITS)\n\tar -rcD $@ $(UNITS)\n%.o: %.c\n\tcc -O0 -c -o $@ $<\n"
                .into(),
        )?;
        write(".gitignore", "*.o\n*.a\n/program\n".into())?;
        run(git(&origin).args(["init", "-q"]))?;
        run(git(&origin).args(["add", "."]))?;
        run(git(&origin).args(["commit", "-q", "-m", "a project"]))?;
        run(git(&origin).args(["gc", "-q"]))?;
        fs::create_dir(&model).doing("create", &model)?;
        let made = CloneAndBuild { origin, model };
        made.run(&made.model)?;
        Ok(made)
    }
}

impl Job for CloneAndBuild {
    fn file_bytes(&self) -> u64 {
        4 << 20
    }

    fn prepare(&self, home: &Path) -> Result<()> {
        clear(home)
    }

    fn run(&self, directory: &Path) -> Result<Outcome> {
        Outcome::of_job(|| {
            let mut clone = git(directory);
            run(clone.args(["clone", "-q", "--no-hardlinks"]).arg(&self.origin).arg(CLONE))?;
            run(Command::new("make").arg("-s").arg("-C").arg(directory.join(CLONE))).map(drop)
        })
    }

    fn verify(&self, home: &Path, _outcome: &Outcome) -> Result<()> {
        let clone = home.join(CLONE);
        for entry in fs::read_dir(self.model.join(CLONE)).doing("read", &self.model)? {
            let entry = entry.doing("read", &self.model)?;
            if entry.file_type().doing("look at", &entry.path())?.is_file() {
                same(&entry.path(), &clone.join(entry.file_name()))?;
            }
        }
        // Directories that are empty are no objects.
        let references = clone.join(".git/refs/heads");
        fs::create_dir_all(&references).doing("create", &references)?;
        verify_git(&clone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workload::scratch::assert_different;

    /// Runs a job on a directory, and says how it finds what `spoil` leaves.
    fn ran(job: &dyn Job, spoil: impl FnOnce(&Path)) -> Result<()> {
        let home = tempfile::tempdir().unwrap();
        job.prepare(home.path()).unwrap();
        let outcome = job.run(home.path()).unwrap();
        spoil(home.path());
        job.verify(home.path(), &outcome)
    }

    fn change_byte(path: &Path, at: u64) {
        let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }

    #[test]
    fn each_load_finds_its_own_bytes_and_a_changed_one() {
        let scratch = tempfile::tempdir().unwrap();
        let place = || scratch.path().to_owned();
        let untar = Untar::new(scratch.path(), 30).unwrap();
        ran(&untar, |_| {}).unwrap();
        let spoil = |home: &Path| change_byte(&home.join("tree/directory-1/file-25"), 0);
        assert_different(ran(&untar, spoil), "file-25");
        let jobs: [Box<dyn Job>; 4] = [
            Box::new(Patch { bytes: 2 << 20, writes: 20, scratch: place() }),
            Box::new(Append { times: 5 }),
            Box::new(Sequential { bytes: 2 << 20, is_write: true, scratch: place() }),
            Box::new(Sequential { bytes: 2 << 20, is_write: false, scratch: place() }),
        ];
        for job in jobs {
            ran(job.as_ref(), |_| {}).unwrap();
            assert_different(ran(job.as_ref(), |home| change_byte(&home.join(FILE), 4321)), FILE);
        }
    }

    #[test]
    fn the_project_is_built_and_compared() {
        if CloneAndBuild::require().is_err() {
            return;
        }
        let scratch = tempfile::tempdir().unwrap();
        let job = CloneAndBuild::new(scratch.path()).unwrap();
        ran(&job, |_| {}).unwrap();
        let spoil = |home: &Path| change_byte(&home.join(CLONE).join("unit_3.o"), 100);
        assert_different(ran(&job, spoil), "unit_3.o");
    }
}
