//! Holes, allocation, and copies within home.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};

use rustix::fs::{FallocateFlags, SeekFrom, copy_file_range, fallocate, seek};

use crate::Test;
use crate::fixture::{Fixture, open, pattern, read_at};

pub const TESTS: &[Test] = &[
    ("allocating_extends_or_keeps_the_size", allocating_extends_or_keeps_the_size),
    ("punched_and_zeroed_ranges_read_as_zeros", punched_and_zeroed_ranges_read_as_zeros),
    ("holes_are_found_around_dirty_data", holes_are_found_around_dirty_data),
    ("ranges_are_copied_dirty_or_not", ranges_are_copied_dirty_or_not),
    ("a_copy_before_data_that_is_not_home_is_read", a_copy_before_data_that_is_not_home_is_read),
    ("copies_in_opposite_directions_end", copies_in_opposite_directions_end),
];

fn allocating_extends_or_keeps_the_size() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.write_all_at(b"start", 0).unwrap();
    fallocate(&file, FallocateFlags::KEEP_SIZE, 0, 1 << 20).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 5);
    fallocate(&file, FallocateFlags::empty(), 0, 100_000).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 100_000);
    assert!(file.metadata().unwrap().blocks() * 512 >= 100_000);
    let mut expected = b"start".to_vec();
    expected.resize(100_000, 0);
    assert_eq!(read_at(&file, 0, 200_000), expected);
    file.sync_all().unwrap();
    assert_eq!(fs::read(fixture.home("file")).unwrap(), expected);
}

fn punched_and_zeroed_ranges_read_as_zeros() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    let mut expected = pattern(100_000, 3);
    file.write_all_at(&expected, 0).unwrap();
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    fallocate(&file, punch, 1_000, 30_001).unwrap();
    expected[1_000..31_001].fill(0);
    assert!(read_at(&file, 0, 200_000) == expected);
    file.write_all_at(b"in the hole", 5_000).unwrap();
    expected[5_000..5_011].copy_from_slice(b"in the hole");
    fallocate(&file, FallocateFlags::ZERO_RANGE, 90_000, 20_000).unwrap();
    expected[90_000..].fill(0);
    expected.resize(110_000, 0);
    assert!(read_at(&file, 0, 200_000) == expected);
    file.sync_all().unwrap();
    assert!(fs::read(fixture.home("file")).unwrap() == expected);
}

fn holes_are_found_around_dirty_data() {
    let fixture = Fixture::new();
    let file = open(&fixture.at("file"));
    file.set_len(10 << 20).unwrap();
    file.write_all_at(&[1; 4096], 1 << 20).unwrap();
    assert_eq!(seek(&file, SeekFrom::Data(0)), Ok(1 << 20));
    let hole = seek(&file, SeekFrom::Hole(1 << 20)).unwrap();
    assert!(((1 << 20) + 4096..10 << 20).contains(&hole), "{hole}");
    assert_eq!(seek(&file, SeekFrom::Data(5 << 20)), Err(rustix::io::Errno::NXIO));
    assert_eq!(seek(&file, SeekFrom::Hole(10 << 20)), Err(rustix::io::Errno::NXIO));
}

fn copy(from: &File, from_offset: u64, to: &File, to_offset: u64, len: usize) {
    let (mut source, mut destination) = (from_offset, to_offset);
    let end = from_offset + len as u64;
    while source < end {
        let rest = (end - source) as usize;
        let copied =
            copy_file_range(from, Some(&mut source), to, Some(&mut destination), rest).unwrap();
        assert!(copied > 0);
    }
}

fn ranges_are_copied_dirty_or_not() {
    let fixture = Fixture::new();
    let (from, to) = (open(&fixture.at("from")), open(&fixture.at("to")));
    let content = pattern(300_000, 11);
    from.write_all_at(&content, 0).unwrap();
    let mut expected = pattern(200_000, 12);
    to.write_all_at(&expected, 0).unwrap();
    copy(&from, 1_234, &to, 99_999, 250_000);
    expected.resize(349_999, 0);
    expected[99_999..].copy_from_slice(&content[1_234..251_234]);
    assert!(read_at(&to, 0, 500_000) == expected);
    // Within one file.
    copy(&to, 0, &to, 400_000, 10_000);
    expected.resize(410_000, 0);
    let (source, destination) = expected.split_at_mut(400_000);
    destination.copy_from_slice(&source[..10_000]);
    assert!(read_at(&to, 0, 500_000) == expected);
    to.sync_all().unwrap();
    assert!(fs::read(fixture.home("to")).unwrap() == expected);
}

fn a_copy_before_data_that_is_not_home_is_read() {
    let fixture = Fixture::new();
    let (from, to) = (open(&fixture.at("from")), open(&fixture.at("to")));
    let content = pattern(40_000, 5);
    from.write_all_at(&content, 0).unwrap();
    from.write_all_at(b"far behind", 200_000).unwrap();
    // A hole that lies past the end of what is home.
    copy(&from, 100_000, &to, 0, 5_000);
    to.write_all_at(b"far behind", 300_000).unwrap();
    copy(&from, 0, &to, 23_837, 40_000);
    assert!(read_at(&to, 23_837, 40_000) == content);
    assert_eq!(read_at(&to, 300_000, 100), b"far behind");
}

fn copies_in_opposite_directions_end() {
    let fixture = Fixture::new();
    let (one, two) = (open(&fixture.at("one")), open(&fixture.at("two")));
    one.write_all_at(&pattern(1 << 20, 1), 0).unwrap();
    two.write_all_at(&pattern(1 << 20, 2), 0).unwrap();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20).for_each(|_| copy(&one, 0, &two, 0, 1 << 20)));
            scope.spawn(|| (0..20).for_each(|_| copy(&two, 0, &one, 0, 1 << 20)));
        }
    });
    assert_eq!(one.metadata().unwrap().len(), 1 << 20);
}
