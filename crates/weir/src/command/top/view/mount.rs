//! The view of one mount: the course of its dirty memory between the watermarks, and below it, in one column or two, what it does
//! each second, its memory, latencies, who waits for what, the slowest files, and sessions.

use std::time::{Duration, Instant};

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::symbols::Marker;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Axis, Chart, Dataset, GraphType, Paragraph};

use super::theme::Theme;
use crate::command::top::figures::{self, bytes, count, time};
use crate::command::top::sample::{FileWaits, Rates, page_bytes};
use crate::command::top::watched::{Point, Watched};
use crate::control::protocol::{BucketReport, PercentilesReport, SessionReport, Status};

/// Rows that the chart needs, and has at most.
const CHART_ROWS_MIN: u16 = 7;
const CHART_ROWS_MAX: u16 = 14;

/// Columns from which the lines are in two columns.
const TWO_COLUMNS: usize = 100;

/// A line of text in one style.
type Row = (String, Style);

/// Draws the view from line `scroll` on, or from the last line that fills the area. Returns that line.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    of: &Watched,
    scroll: usize,
    theme: Theme,
    now: Instant,
) -> usize {
    let Some(status) = of.status() else {
        let state = of.state(now).unwrap_or_default();
        frame.render_widget(Paragraph::new(Line::styled(state, theme.trouble())), area);
        return 0;
    };
    let has_chart = area.height >= 2 * CHART_ROWS_MIN;
    let chart_rows = match has_chart {
        true => (area.height / 3).clamp(CHART_ROWS_MIN, CHART_ROWS_MAX),
        false => 0,
    };
    let [above, below] =
        Layout::vertical([Constraint::Length(chart_rows), Constraint::Min(0)]).areas(area);
    if has_chart {
        draw_course(frame, above, of, theme);
    }
    let lines = lines(of, status, below.width.into(), has_chart, theme, now);
    let last = lines.len().saturating_sub(below.height.into());
    let scroll = scroll.min(last);
    let shown: Vec<Line<'_>> = lines.into_iter().skip(scroll).collect();
    frame.render_widget(Paragraph::new(shown), below);
    scroll
}

fn lines(
    of: &Watched,
    status: &Status,
    width: usize,
    has_chart: bool,
    theme: Theme,
    now: Instant,
) -> Vec<Line<'static>> {
    let is_wide = width >= TWO_COLUMNS;
    let columns = if is_wide { (width - 2) / 2 } else { width };
    let mut doing = Vec::new();
    if let Some(state) = of.state(now) {
        doing.push((state, theme.trouble()));
    }
    if !has_chart {
        doing.push((course(of, columns), theme.dirty()));
    }
    doing.extend(rates(of.rates.as_ref(), status, theme));
    doing.extend(memory(status, theme));
    let mut waiting = waits(of.rates.as_ref(), status, theme);
    waiting.extend(latencies(status, theme));
    let mut last = files(&of.files, columns, theme);
    last.extend(sessions(status, theme));
    let cut = |rows: Vec<Row>| -> Vec<Row> {
        rows.into_iter().map(|(text, style)| (figures::cut(&text, columns), style)).collect()
    };
    match is_wide {
        true => {
            let mut left = doing;
            left.extend(latencies_after(&mut waiting));
            waiting.extend(last);
            beside(cut(left), cut(waiting), columns)
        }
        false => {
            waiting.extend(last);
            doing.extend(waiting);
            cut(doing).into_iter().map(|(text, style)| Line::styled(text, style)).collect()
        }
    }
}

/// Takes the latencies, the last four lines, from the waits.
fn latencies_after(waits: &mut Vec<Row>) -> Vec<Row> {
    waits.split_off(waits.len().saturating_sub(LATENCY_ROWS))
}

fn beside(left: Vec<Row>, right: Vec<Row>, columns: usize) -> Vec<Line<'static>> {
    let rows = left.len().max(right.len());
    let mut left = left.into_iter();
    let mut right = right.into_iter();
    let mut line = || {
        let (text, style) = left.next().unwrap_or_default();
        let (other, other_style) = right.next().unwrap_or_default();
        let gap = " ".repeat(columns + 2 - figures::width(&text));
        Line::from(vec![
            Span::styled(text, style),
            Span::raw(gap),
            Span::styled(other, other_style),
        ])
    };
    (0..rows).map(|_| line()).collect()
}

fn plain(text: String) -> Row {
    (text, Style::new())
}

/// What it does each second.
fn rates(rates: Option<&Rates>, status: &Status, theme: Theme) -> Vec<Row> {
    let stats = &status.stats;
    let row = |name: &str, values: [String; 4]| {
        let [rate, bytes, all, all_bytes] = values;
        plain(format!("{name:<9}{rate:>6}{bytes:>8}{all:>8}{all_bytes:>7}"))
    };
    let titles = format!("{:<9}{:>6}{:>8}{:>8}{:>7}", "WORK", "/s", "bytes/s", "all", "bytes");
    let rate = |rate: fn(&Rates) -> f64| rates.map_or("-".to_owned(), |of| count(rate(of)));
    let speed = |rate: fn(&Rates) -> f64| rates.map_or("-".to_owned(), |of| bytes(rate(of)));
    let all = |value: u64| count(value as f64);
    let size = |value: u64| bytes(value as f64);
    let none = String::new;
    let mut rows = vec![
        (titles, theme.title()),
        row(
            "writes",
            [
                rate(|of| of.writes),
                speed(|of| of.write_bytes),
                all(stats.writes),
                size(stats.write_bytes),
            ],
        ),
        row(
            "reads",
            [
                rate(|of| of.reads),
                speed(|of| of.read_bytes),
                all(stats.reads),
                size(stats.read_bytes),
            ],
        ),
        row("syncs", [rate(|of| of.syncs), none(), all(status.latency.sync.count), none()]),
        row(
            "requests",
            [rate(|of| of.requests), none(), all(status.requests.values().sum()), none()],
        ),
        row(
            "fetched",
            [
                rate(|of| of.fetched_pages),
                speed(|of| of.fetched_pages * page_bytes(1) as f64),
                all(stats.fetched_pages),
                size(page_bytes(stats.fetched_pages)),
            ],
        ),
        row("avoided", [rate(|of| of.fetches_avoided), none(), all(stats.fetches_avoided), none()]),
        row(
            "home",
            [
                rate(|of| of.home_requests),
                speed(|of| of.home_bytes),
                all(stats.destage_commands),
                size(stats.destage_bytes),
            ],
        ),
    ];
    if stats.log_capacity_bytes > 0 {
        rows.push(row(
            "log",
            [
                rate(|of| of.log_groups),
                speed(|of| of.log_bytes),
                all(stats.log_groups),
                size(stats.log_bytes),
            ],
        ));
    }
    if let Some(lane) = status.lane.filter(|lane| lane.posted_writes > 0) {
        rows.push(row(
            "lane",
            [rate(|of| of.lane_writes), none(), all(lane.posted_writes), size(lane.posted_bytes)],
        ));
    }
    if let Some(bucket) = &status.bucket {
        rows.push(row(
            "bucket",
            [
                rate(|of| of.bucket_requests),
                speed(|of| of.bucket_bytes),
                all(bucket.count("requests")),
                size(bucket.bytes()),
            ],
        ));
    }
    rows
}

/// What is in memory, in the log, and not home.
fn memory(status: &Status, theme: Theme) -> Vec<Row> {
    let stats = &status.stats;
    let size = |value: u64| bytes(value as f64);
    let pages = |value: u64| bytes(page_bytes(value) as f64);
    let oldest = figures::time(stats.oldest_dirty_ms.saturating_mul(1_000_000));
    let oldest = if stats.dirty_pages > 0 { format!(", oldest {oldest}") } else { String::new() };
    let mut rows = vec![
        ("MEMORY".to_owned(), theme.title()),
        plain(format!("dirty    {}{oldest}", pages(stats.dirty_memory_pages))),
        plain(format!(
            "marks    {} to {}, writers wait at {}",
            pages(stats.watermark_low_pages),
            pages(stats.watermark_high_pages),
            pages(stats.dirty_bound_pages)
        )),
        plain(format!("patches  {} of {}", size(stats.patch_bytes), size(stats.patch_bytes_max))),
        plain(format!(
            "memory   {} of {}, resident {}",
            size(stats.memory_bytes),
            size(stats.memory_bytes_max),
            size(status.resident_bytes)
        )),
    ];
    match figures::percent(stats.log_used_bytes, stats.log_capacity_bytes) {
        None => rows.push(plain("log      none".to_owned())),
        Some(percent) => rows.push(plain(format!(
            "log      {} {percent:.0} % of {}",
            bar(percent),
            size(stats.log_capacity_bytes)
        ))),
    }
    if let Some(names) = &status.names {
        let style = if names.refused > 0 { theme.trouble() } else { Style::new() };
        let refused = match names.refused {
            0 => String::new(),
            refused => format!(", {refused} refused by SOURCE"),
        };
        rows.push((format!("names    {} not home{refused}", names.pending), style));
    }
    if let Some(bucket) = &status.bucket {
        rows.extend(of_bucket(bucket, theme));
    }
    rows
}

/// What a bucket lacks, and what of it is on this machine's disk.
fn of_bucket(bucket: &BucketReport, theme: Theme) -> Vec<Row> {
    let files = &bucket.files;
    let (lost, style) = match files.lease_lost {
        true => (": another machine has the prefix", theme.trouble()),
        false => ("", Style::new()),
    };
    let pending = bytes(files.pending_bytes as f64);
    let mut rows =
        vec![(format!("uploads  {} files, {pending}{lost}", files.pending_nodes), style)];
    if let Some(cache) = &bucket.cache {
        let kept = bytes(cache.bytes as f64);
        let found = figures::percent(cache.hits, cache.hits.saturating_add(cache.misses));
        let found = found.map_or(String::new(), |found| format!(", {found:.0} % found"));
        rows.push(plain(format!("cache    {kept} on disk{found}")));
    }
    rows
}

/// A share as a bar of ten.
fn bar(percent: f64) -> String {
    let full = (percent / 10.0).round().clamp(0.0, 10.0) as usize;
    format!("[{}{}]", "|".repeat(full), " ".repeat(10 - full))
}

/// Who waits for what.
fn waits(rates: Option<&Rates>, status: &Status, theme: Theme) -> Vec<Row> {
    let stats = &status.stats;
    let rate = |rate: fn(&Rates) -> f64| rates.map_or("-".to_owned(), |of| count(rate(of)));
    let mut rows = vec![("WHO WAITS".to_owned(), theme.title())];
    let mut row = |name: &str, text: String, is_much: bool| {
        let style = if is_much { theme.trouble() } else { Style::new() };
        rows.push((format!("{name:<10}{text}"), style));
    };
    if let Some(of) = &status.waiting {
        let oldest = Duration::from_nanos(of.oldest_ns);
        let text = match of.writes + of.reads + of.syncs + of.others {
            0 => "no request".to_owned(),
            _ => format!(
                "{} writes, {} reads, {} syncs, {} others, the oldest {}",
                of.writes,
                of.reads,
                of.syncs,
                of.others,
                time(of.oldest_ns)
            ),
        };
        row("now", text, oldest >= Duration::from_secs(1));
    }
    row(
        "memory",
        format!(
            "{} writers now, {}/s, {}/s paced",
            stats.writers_waiting,
            rate(|of| of.writers_throttled),
            rate(|of| of.writers_paced)
        ),
        stats.writers_waiting > 0,
    );
    row(
        "pages",
        format!(
            "{}/s fetches waited for, {}/s by writers",
            rate(|of| of.fetches_waited),
            rate(|of| of.writers_blocked_fetch)
        ),
        false,
    );
    row(
        "disk",
        format!(
            "{} waited for, {} others; {} in, {} out",
            stats.sync_requests_waiting,
            stats.async_requests_waiting,
            stats.fetches_in_flight,
            stats.destages_in_flight
        ),
        false,
    );
    if let Some(names) = &status.names {
        row("names", format!("{} changes for SOURCE", names.pending), names.refused > 0);
    }
    if !status.sessions.is_empty() {
        let pending = status.sessions.iter().filter(|of| of.pending).count();
        let text = format!("{}/s, {pending} not all durable", rate(|of| of.session_waits));
        row("sessions", text, false);
    }
    rows
}

/// Lines of [`latencies`].
const LATENCY_ROWS: usize = 4;

/// How long answers took since the mount was made.
fn latencies(status: &Status, theme: Theme) -> Vec<Row> {
    let row = |name: &str, of: &PercentilesReport| {
        let figures = match of.count {
            0 => ["-", "-", "-"].map(str::to_owned),
            _ => [of.p50_ns, of.p99_ns, of.max_ns].map(time),
        };
        let [p50, p99, max] = figures;
        plain(format!("{name:<9}{:>7}{p50:>7}{p99:>7}{max:>7}", count(of.count as f64)))
    };
    let titles = format!("{:<9}{:>7}{:>7}{:>7}{:>7}", "LATENCY", "all", "p50", "p99", "max");
    let latency = &status.latency;
    vec![
        (titles, theme.title()),
        row("write", &latency.write),
        row("read", &latency.read),
        row("sync", &latency.sync),
    ]
}

/// The slowest files.
fn files(files: &[FileWaits], columns: usize, theme: Theme) -> Vec<Row> {
    let is_narrow = columns < 50;
    let row = |values: [String; 5], name: &str| {
        let [waited, answers, longest, all, waiting] = values;
        let figures = match is_narrow {
            true => format!("{waited:>7}{longest:>8} "),
            false => format!("{waited:>7}{answers:>7}{longest:>8}{all:>7}{waiting:>5} "),
        };
        let room = columns.saturating_sub(figures::width(&figures));
        format!("{figures}{}", figures::left(name, room).trim_end())
    };
    let titles = ["WAIT/s", "late/s", "longest", "all", "now"].map(str::to_owned);
    let mut rows = vec![(row(titles, "SLOWEST FILES"), theme.title())];
    for file in files {
        let waited =
            if file.waited_ns > 0.0 { time(file.waited_ns as u64) } else { "-".to_owned() };
        let waiting = if file.waiting > 0 { file.waiting.to_string() } else { String::new() };
        let all = time(file.total_ns());
        let values = [waited, count(file.answers), time(file.max_ns()), all, waiting];
        let is_idle = file.waited_ns == 0.0 && file.waiting == 0;
        let style = if is_idle { theme.faint() } else { Style::new() };
        rows.push((row(values, &figures::name(&file.name)), style));
    }
    if files.is_empty() {
        rows.push(plain("no request has waited".to_owned()));
    }
    rows
}

fn sessions(status: &Status, theme: Theme) -> Vec<Row> {
    let mut rows = Vec::new();
    if !status.sessions.is_empty() {
        rows.push(("SESSIONS".to_owned(), theme.title()));
        rows.extend(status.sessions.iter().map(|of| plain(session_line(of))));
    }
    rows
}

/// A session of programs, in a line.
pub(super) fn session_line(of: &SessionReport) -> String {
    let what = if of.every_write { "changes" } else { "syncs" };
    let pending = if of.pending { ", not all durable" } else { "" };
    let micros = |micros: u64| time(micros.saturating_mul(1000));
    let waits = &of.waits;
    format!(
        "process {}: {} {what}{pending}; {} waits, p50 {}, p99 {}, max {}",
        of.supervisor,
        of.promises,
        waits.count,
        micros(waits.p50_us),
        micros(waits.p99_us),
        micros(waits.max_us)
    )
}

/// The course of dirty memory in a line, for small screens.
fn course(of: &Watched, columns: usize) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let shown = columns.saturating_sub(6);
    let points = || of.history.iter().skip(of.history.len().saturating_sub(shown));
    let most = points().map(|point| point.dirty.max(point.high)).max().unwrap_or(0).max(1);
    let bars = points().map(|point| match point.dirty {
        0 => ' ',
        dirty => BARS[((dirty as f64 / most as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1],
    });
    format!("dirty {}", bars.collect::<String>())
}

fn line(data: &[(f64, f64)], marker: Marker, style: Style) -> Dataset<'_> {
    Dataset::default().marker(marker).graph_type(GraphType::Line).style(style).data(data)
}

/// The course of dirty memory and of the watermarks.
fn draw_course(frame: &mut Frame<'_>, area: Rect, of: &Watched, theme: Theme) {
    // Two dots in a column, and some columns for the labels.
    let shown = usize::from(area.width).saturating_sub(10) * 2;
    let points: Vec<Point> =
        of.history.iter().skip(of.history.len().saturating_sub(shown)).copied().collect();
    let (Some(first), Some(last)) = (points.first(), points.last()) else { return };
    let ago = |point: &Point| -(last.at.saturating_duration_since(point.at).as_secs_f64());
    let span = last.at.saturating_duration_since(first.at).max(Duration::from_secs(1));
    let most = points.iter().map(|point| point.dirty.max(point.high)).max().unwrap_or(0);
    let most = (most as f64 * 1.1).max(1.0);
    let series = |value: fn(&Point) -> u64| -> Vec<(f64, f64)> {
        points.iter().map(|point| (ago(point), value(point) as f64)).collect()
    };
    let (dirty, low, high) =
        (series(|point| point.dirty), series(|point| point.low), series(|point| point.high));
    let datasets = vec![
        line(&low, Marker::Dot, theme.low()),
        line(&high, Marker::Dot, theme.high()),
        line(&dirty, Marker::Braille, theme.dirty()),
    ];
    let faint = theme.faint();
    let ago = format!("{} ago", figures::age(span));
    let chart = Chart::new(datasets)
        .legend_position(None)
        .x_axis(
            Axis::default()
                .bounds([-span.as_secs_f64(), 0.0])
                .labels(vec![Span::raw(ago), Span::raw("now")])
                .style(faint),
        )
        .y_axis(
            Axis::default()
                .bounds([0.0, most])
                .labels(vec![
                    Span::raw("0"),
                    Span::raw(figures::right(&bytes(most / 2.0), 5)),
                    Span::raw(figures::right(&bytes(most), 5)),
                ])
                .style(faint),
        );
    let [title, below] = Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(area);
    let bold = Modifier::BOLD;
    let legend = Line::from(vec![
        Span::styled("DIRTY MEMORY ", theme.title()),
        Span::styled(bytes(last.dirty as f64), theme.dirty().add_modifier(bold)),
        Span::raw("  written home above "),
        Span::styled(bytes(last.high as f64), theme.high()),
        Span::raw(", down to "),
        Span::styled(bytes(last.low as f64), theme.low()),
    ]);
    frame.render_widget(Paragraph::new(legend), title);
    frame.render_widget(chart, below);
}
