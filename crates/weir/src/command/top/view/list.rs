//! The list of mounts, and the sessions of programs on them.

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::mount::session_line;
use super::theme::Theme;
use crate::command::top::columns::{Column, MOUNT_COLUMNS_MIN};
use crate::command::top::figures;
use crate::command::top::model::Model;
use crate::command::top::watched::Watched;

/// Draws the mounts around the chosen one, then the sessions.
pub(super) fn draw(
    frame: &mut Frame<'_>,
    area: Rect,
    model: &Model,
    shown: &[&Watched],
    sessions: Vec<Line<'static>>,
    theme: Theme,
    now: Instant,
) {
    let width = usize::from(area.width);
    let longest = shown.iter().map(|of| figures::width(&of.name())).max().unwrap_or(0);
    // Long names take a third of the screen, and what the other columns leave.
    let for_name = longest.clamp(MOUNT_COLUMNS_MIN, (width / 3).max(MOUNT_COLUMNS_MIN));
    let columns = Column::that_fit(width, for_name);
    let taken: usize = columns.iter().skip(1).map(|column| column.columns() + 1).sum();
    let for_name = longest.clamp(for_name, width.saturating_sub(taken).max(for_name));
    let mut lines = vec![titles(&columns, for_name, model, theme, width)];
    let chosen = model.chosen().map(|of| &of.key);
    let rows = usize::from(area.height).saturating_sub(1);
    let at = shown.iter().position(|of| Some(&of.key) == chosen).unwrap_or(0);
    // The chosen one is always among those that fit.
    let first = (at + 1).saturating_sub(rows);
    for of in shown.iter().skip(first).take(rows) {
        let is_chosen = Some(&of.key) == chosen;
        lines.push(row(of, &columns, for_name, is_chosen, theme, width, now));
    }
    lines.extend(sessions);
    lines.truncate(area.height.into());
    frame.render_widget(Paragraph::new(lines), area);
}

fn titles(
    columns: &[Column],
    for_name: usize,
    model: &Model,
    theme: Theme,
    width: usize,
) -> Line<'static> {
    let mut spans = Vec::new();
    let mut taken = 0;
    for &column in columns {
        let text = match column {
            Column::Mount => figures::left(column.title(), for_name),
            _ => format!(" {}", figures::right(column.title(), column.columns())),
        };
        taken += figures::width(&text);
        let style = if column == model.sort { theme.chosen() } else { theme.head() };
        spans.push(Span::styled(text, style));
    }
    spans.push(Span::styled(" ".repeat(width.saturating_sub(taken)), theme.head()));
    Line::from(spans)
}

fn row(
    of: &Watched,
    columns: &[Column],
    for_name: usize,
    is_chosen: bool,
    theme: Theme,
    width: usize,
    now: Instant,
) -> Line<'static> {
    let name = figures::left(&of.name(), for_name);
    let mut style = Style::new();
    let mut text = name;
    if let Some(state) =
        of.state(now).filter(|_| of.trouble(now).is_some() || of.status().is_none())
    {
        // The last figures are not of this moment: they are not shown.
        style = if of.trouble(now).is_some() { theme.trouble() } else { theme.faint() };
        text = format!("{text} {}", figures::name(&state));
    } else {
        for column in columns.iter().skip(1) {
            text = format!("{text} {}", figures::right(&column.text(of), column.columns()));
        }
        if let Some(state) = of.state(now) {
            text = format!("{text} {state}");
        }
    }
    let text = figures::cut(&text, width);
    let text = match is_chosen {
        true => format!("{text}{}", " ".repeat(width.saturating_sub(figures::width(&text)))),
        false => text,
    };
    Line::styled(text, if is_chosen { style.patch(theme.chosen()) } else { style })
}

/// The sessions of all mounts that are shown.
pub(super) fn sessions(shown: &[&Watched], theme: Theme) -> Vec<Line<'static>> {
    let of_mount = |of: &&Watched| {
        let name = of.name();
        let sessions = of.status().map_or(&[][..], |status| &status.sessions);
        sessions
            .iter()
            .map(|session| format!("{name}: {}", session_line(session)))
            .collect::<Vec<_>>()
    };
    let mut lines: Vec<Line<'static>> = shown.iter().flat_map(of_mount).map(Line::raw).collect();
    if !lines.is_empty() {
        lines.insert(0, Line::styled("SESSIONS", theme.title()));
    }
    lines
}
