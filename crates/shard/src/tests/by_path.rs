//! Files that recovery finds by their paths.

use weir_backend::{LogFile, LogPlace, Naming, RedoLog};
use weir_engine::PAGE_BYTES;
use weir_log::NODE_FIRST;

use super::*;
use crate::shard::Renamed;

const SOURCE: [u8; 16] = [7; 16];
const FILE: FileId = FileId(1);
const PAGES: u64 = 8192;

#[test]
fn what_left_memory_for_the_log_is_home_before_the_files_only_name_is_removed() {
    let place = tempfile::tempdir().unwrap();
    let log = tempfile::tempdir().unwrap();
    let source = File::open(place.path()).unwrap();
    let at = LogPlace::at(&log.path().join("log")).unwrap();
    let (file, _) = LogFile::create(&at, 16 << 20, SOURCE).unwrap();
    let redo_log = RedoLog::open(file, SOURCE, source.as_fd(), NODE_FIRST).unwrap();
    let config = Config {
        dirty_expire: Duration::from_secs(3600),
        fetch_policy: FetchPolicy::Lazy,
        ..small_config()
    };
    let mut shard = Shard::start_with(config, source.as_fd(), Some(redo_log), false).unwrap();
    let alone = Arc::get_mut(&mut shard).expect("nobody else has it");
    alone.naming = Naming::ByPath(place.path().to_owned());
    let bench = Bench { shard, place };
    let home = bench.attach(FILE, "file", &vec![1; PAGES as usize * PAGE_BYTES]);
    let data = home.data_fd().unwrap();
    let offset = |number| number * PAGE_BYTES as u64 + 1000;
    for number in 0..PAGES {
        bench.write(FILE, offset(number), &[7; 100]).unwrap();
    }
    assert!(bench.shard.stats().spilled_pages > 0, "nothing left memory");
    let removed = Renamed::Removed(FILE);
    let name = bench.path("file");
    bench.shard.change_names(removed, || fs::remove_file(&name)).unwrap().unwrap();
    assert_eq!(bench.shard.stats().spilled_pages, 0);
    for number in 0..PAGES {
        let mut bytes = [0; 100];
        rustix::io::pread(&data, &mut bytes, offset(number)).unwrap();
        assert_eq!(bytes, [7; 100], "page {number}");
    }
}
