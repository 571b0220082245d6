//! The view on screens of several sizes.

use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::KeyCode;
use ratatui::style::Color;

use super::*;
use crate::command::top::asking::{Answer, Key, Told};
use crate::command::top::model::tests::{model, press};
use crate::command::top::sample::tests::{sample, slow};
use crate::command::top::watched::tests::mount;
use crate::control::protocol::{
    BucketCacheReport, BucketFilesReport, BucketReport, NamesReport, SessionReport, SlowFileReport,
    Status, WaitingReport,
};

const PLAIN: Theme = Theme { has_colours: false };

fn buffer(model: &mut Model, columns: u16, rows: u16, theme: Theme) -> Buffer {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| draw(frame, model, theme, Instant::now())).unwrap();
    terminal.backend().buffer().clone()
}

fn lines(buffer: &Buffer) -> Vec<String> {
    let row = |y| -> String {
        let cells = (0..buffer.area.width).map(|x| buffer[(x, y)].symbol());
        cells.collect::<String>().trim_end().to_owned()
    };
    (0..buffer.area.height).map(row).collect()
}

fn screen(model: &mut Model, columns: u16, rows: u16) -> String {
    lines(&buffer(model, columns, rows, PLAIN)).join("\n")
}

/// A mount under load: everything that can be shown of one is there.
fn loaded(status: &mut Status) {
    let second = status.uptime_ms / 1000;
    let stats = &mut status.stats;
    (stats.writes, stats.write_bytes) = (1500 * second, (6 << 20) * second);
    (stats.dirty_memory_pages, stats.watermark_low_pages) = (1024 * second, 1000);
    (stats.watermark_high_pages, stats.dirty_bound_pages) = (3000, 8000);
    (stats.log_capacity_bytes, stats.log_used_bytes) = (64 << 20, 16 << 20);
    stats.writers_waiting = 2;
    status.names = Some(NamesReport { pending: 12, refused: 1, ..NamesReport::default() });
    status.waiting =
        Some(WaitingReport { writes: 2, oldest_ns: 1_500_000_000, ..WaitingReport::default() });
    status.sessions =
        vec![SessionReport { supervisor: 4711, promises: 9, ..SessionReport::default() }];
    let counts = [("requests", 30 * second), ("bytes_up", (2 << 20) * second)];
    let counts = counts.map(|(name, count)| (name.to_owned(), count));
    let files =
        BucketFilesReport { pending_nodes: 3, pending_bytes: 5 << 20, ..Default::default() };
    let cache = BucketCacheReport { hits: 90, misses: 10, bytes: 7 << 20, ..Default::default() };
    status.bucket = Some(BucketReport { store: counts.into(), files, cache: Some(cache) });
    status.slow_files = vec![
        slow(5, "mail/new\n\u{1b}[31mbox", second, second * 40_000_000),
        SlowFileReport { waiting: 2, oldest_ns: 1_500_000_000, ..slow(6, "", 1, 10_000_000) },
    ];
}

fn loaded_model() -> Model {
    let mut model = Model::new(Duration::from_secs(1), false);
    let all = [mount("/mnt/data", 0), mount("/mnt/\u{1b}[2Jx", 1)];
    model.take(Told::Mounts(all.to_vec()));
    for second in 1..=60 {
        for mount in &all {
            let answer = Answer::Status(sample(second * 1000, loaded).status);
            model.take(Told::Answer(Key::of(mount), Instant::now(), answer));
        }
    }
    press(&mut model, &[KeyCode::Down]);
    model
}

#[test]
fn a_small_screen_has_the_mounts_and_the_keys() {
    let shown = screen(&mut loaded_model(), 40, 12);
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines[0], "weir top  2 mounts, by mount po every 1s");
    assert_eq!(lines[1], "MOUNT         WRITE/s READ/s DIRTY  WAIT");
    assert_eq!(lines[2], "…t/\\u{1b}[2Jx    6.0M      0  240M     2", "{shown}");
    assert_eq!(lines[3], "/mnt/data        6.0M      0  240M     2", "{shown}");
    assert!(
        lines[4].starts_with("SESSIONS") && lines[5].contains("process 4711: 9 syncs"),
        "{shown}"
    );
    assert!(lines[11].contains("F1Help") && lines[11].contains("qQuit"), "{shown}");
}

#[test]
fn a_large_screen_has_the_view_of_the_chosen_mount_below_the_list() {
    let shown = screen(&mut loaded_model(), 140, 45);
    for wanted in [
        "DIRTY MEMORY 240M  written home above 12M, down to 3.9M",
        "1s ago",
        "now       2 writes, 0 reads, 0 syncs, 0 others, the oldest 1.5s",
        "memory    2 writers now",
        "names    12 not home, 1 refused by SOURCE",
        "log      [|||       ] 25 % of 64M",
        "bucket       30    2.0M    1.8k   120M",
        "uploads  3 files, 5.0M",
        "cache    7.0M on disk, 90 % found",
        "40ms      1    2.4s   2.4s      mail/new\\n\\u{1b}[31mbox",
        "node 6",
        "process 4711: 9 syncs; 0 waits",
    ] {
        assert!(shown.contains(wanted), "{wanted}:\n{shown}");
    }
}

#[test]
fn the_view_of_a_mount_scrolls_to_its_last_line_and_no_further() {
    let mut model = loaded_model();
    press(&mut model, &[KeyCode::Enter]);
    let first = screen(&mut model, 60, 12);
    assert!(first.starts_with("weir top  /mnt/data of /srv/mnt/data"), "{first}");
    assert!(
        first.contains("dirty ▁") && first.contains("WORK") && !first.contains("node 6"),
        "{first}"
    );
    press(&mut model, &[KeyCode::End]);
    let last = screen(&mut model, 60, 12);
    assert!(last.contains("node 6") && last.contains("process 4711"), "{last}");
    let lines: Vec<&str> = last.lines().collect();
    assert!(lines[10].starts_with("process 4711"), "the last line is full: {last}");
    // One key up shows another line at once.
    press(&mut model, &[KeyCode::Up]);
    assert_ne!(screen(&mut model, 60, 12), last);
}

#[test]
fn a_daemon_that_does_not_answer_is_shown_as_such() {
    let mut model = model(&[("/a", 5), ("/b", 6)]);
    let key = Key::of(&mount("/b", 1));
    let since = Instant::now().checked_sub(Duration::from_secs(7)).unwrap();
    model.take(Told::Answer(key, since, Answer::None("no answer".to_owned())));
    let shown = screen(&mut model, 80, 12);
    assert!(shown.contains("/b         no answer for 7s"), "{shown}");
    assert!(shown.contains("/a             5"), "the other goes on: {shown}");
    press(&mut model, &[KeyCode::Down, KeyCode::Enter]);
    let shown = screen(&mut model, 80, 12);
    assert!(shown.starts_with("weir top  /b of /srv/b, no answer for 7s"), "{shown}");
}

#[test]
fn an_empty_list_says_why() {
    let mut none = Model::new(Duration::from_secs(1), false);
    assert!(screen(&mut none, 60, 12).contains("asking the daemons"));
    none.take(Told::Mounts(Vec::new()));
    assert!(screen(&mut none, 60, 12).contains("no weir mounts"));
    let mut filtered = model(&[("/a", 5)]);
    press(&mut filtered, &[KeyCode::Char('/'), KeyCode::Char('x')]);
    let shown = screen(&mut filtered, 60, 12);
    assert!(shown.contains("no mount has 'x'") && shown.contains("Filter: x"), "{shown}");
    let key = Key::of(&mount("/a", 0));
    let mut others = model(&[("/a", 5)]);
    others.take(Told::Answer(key, Instant::now(), Answer::Denied));
    assert!(screen(&mut others, 60, 12).contains("no weir mounts of this user, and 1 of another"));
    none.take(Told::NoTable("x".to_owned()));
    assert!(screen(&mut none, 60, 12).contains("the mount table cannot be read: x"));
}

#[test]
fn help_order_and_pause_are_shown() {
    let mut model = loaded_model();
    press(&mut model, &[KeyCode::F(1)]);
    let shown = screen(&mut model, 40, 12);
    assert!(shown.contains("choose a mount") && shown.contains("Ctrl-L"), "{shown}");
    assert!(screen(&mut model, 80, 24).contains("q F10 Ctrl-C  quit"));
    press(&mut model, &[KeyCode::Esc, KeyCode::F(6)]);
    let shown = screen(&mut model, 80, 24);
    assert!(shown.contains("Sort by") && shown.contains("requests waiting"), "{shown}");
    press(&mut model, &[KeyCode::End]);
    assert!(screen(&mut model, 40, 12).contains("99 % of syncs"), "the choice scrolls");
    press(&mut model, &[KeyCode::Enter, KeyCode::Char('I'), KeyCode::Char('p')]);
    let shown = screen(&mut model, 80, 24);
    assert!(shown.starts_with("weir top  2 mounts, by 99 % of syncs, reversed"), "{shown}");
    assert!(shown.lines().next().unwrap().ends_with("PAUSED"), "{shown}");
}

#[test]
fn the_chosen_mount_is_always_on_the_screen() {
    let points: Vec<String> = (0..50).map(|number| format!("/mnt/{number:02}")).collect();
    let mounts: Vec<(&str, u64)> = points.iter().map(|point| (point.as_str(), 1)).collect();
    let mut model = model(&mounts);
    for point in &points {
        let shown = screen(&mut model, 60, 12);
        assert!(shown.contains(point), "{point}: {shown}");
        press(&mut model, &[KeyCode::Down]);
    }
}

#[test]
fn without_colours_there_are_none() {
    for (theme, wanted) in [(PLAIN, false), (Theme { has_colours: true }, true)] {
        for keys in [&[][..], &[KeyCode::Enter], &[KeyCode::Char('s')], &[KeyCode::Char('h')]] {
            let mut model = loaded_model();
            press(&mut model, keys);
            let buffer = buffer(&mut model, 120, 40, theme);
            let is_coloured = |cell: &ratatui::buffer::Cell| {
                [cell.fg, cell.bg].iter().any(|&colour| colour != Color::Reset)
            };
            assert_eq!(buffer.content.iter().any(is_coloured), wanted, "{keys:?}");
        }
    }
}

#[test]
fn every_size_can_be_drawn_and_no_control_character_is() {
    let mut model = loaded_model();
    for keys in [&[][..], &[KeyCode::Enter], &[KeyCode::Left, KeyCode::Char('s')]] {
        press(&mut model, keys);
        for (columns, rows) in
            [(1, 1), (1, 40), (40, 1), (3, 3), (20, 4), (40, 12), (99, 30), (300, 90)]
        {
            let buffer = buffer(&mut model, columns, rows, PLAIN);
            let is_control =
                |cell: &ratatui::buffer::Cell| cell.symbol().contains(char::is_control);
            assert!(!buffer.content.iter().any(is_control), "{columns} x {rows}");
        }
    }
}
