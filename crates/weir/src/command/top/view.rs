//! What is drawn: a title, the list of mounts or the view of one, and a line that names the keys.
//!
//! Draws a [`Model`] and changes nothing of it but the scroll position, which it keeps within the lines there are.
//!
//! Invariant: every text that comes from a mount has gone through [`figures::name`]: no control character reaches the terminal.

mod list;
mod mount;
mod theme;

use std::time::Instant;

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph};

pub(super) use self::theme::Theme;
use super::columns::Column;
use super::figures;
use super::model::{Mode, Model};

/// Rows below which there is nothing but the list.
const ROWS_FOR_A_PANEL: u16 = 22;

/// Draws everything.
pub(super) fn draw(frame: &mut Frame<'_>, model: &mut Model, theme: Theme, now: Instant) {
    let [title, middle, keys] =
        Layout::vertical([Constraint::Length(1), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    frame.render_widget(Paragraph::new(title_line(model, theme, now, title.width)), title);
    if model.mode == Mode::Help {
        frame.render_widget(Paragraph::new(help(theme, middle.height)), middle);
    } else if let Some(of) = model.open() {
        let scroll = mount::draw(frame, middle, of, model.scroll, theme, now);
        model.scroll = scroll;
    } else {
        draw_list(frame, middle, model, theme, now);
    }
    if let Mode::Sort(index) = model.mode {
        draw_choice_of_order(frame, middle, index, theme);
    }
    frame.render_widget(Paragraph::new(keys_line(model, theme)), keys);
}

fn draw_list(frame: &mut Frame<'_>, area: Rect, model: &Model, theme: Theme, now: Instant) {
    let shown = model.shown();
    if shown.is_empty() {
        let text = figures::cut(&nothing(model), area.width.into());
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let sessions = list::sessions(&shown, theme);
    let has_panel = area.height + 2 >= ROWS_FOR_A_PANEL;
    let wanted = shown.len() + 1 + sessions.len();
    let most = if has_panel { area.height / 2 } else { area.height };
    let rows = u16::try_from(wanted).unwrap_or(u16::MAX).clamp(2, most.max(2));
    let [above, below] =
        Layout::vertical([Constraint::Length(rows), Constraint::Min(0)]).areas(area);
    list::draw(frame, above, model, &shown, sessions, theme, now);
    if has_panel && let Some(of) = model.chosen() {
        let [line, panel] =
            Layout::vertical([Constraint::Length(1), Constraint::Min(0)]).areas(below);
        let name = format!(" {} ", of.name());
        let text = format!("──{name:─<width$}", width = usize::from(line.width));
        frame.render_widget(Paragraph::new(Line::styled(text, theme.faint())), line);
        mount::draw(frame, panel, of, 0, theme, now);
    }
}

/// Why the list is empty.
fn nothing(model: &Model) -> String {
    if let Some(fault) = &model.fault {
        return fault.clone();
    }
    match (model.is_told, model.filter.is_empty(), model.denied()) {
        (false, ..) => "asking the daemons".to_owned(),
        (_, false, _) => format!("no mount has '{}' in its path or SOURCE", model.filter),
        (..) if model.is_for_one => "the mount has ended".to_owned(),
        (.., 0) => "no weir mounts".to_owned(),
        (.., 1) => "no weir mounts of this user, and 1 of another".to_owned(),
        (.., denied) => format!("no weir mounts of this user, and {denied} of others"),
    }
}

fn title_line(model: &Model, theme: Theme, now: Instant, width: u16) -> Line<'static> {
    let mut text = match model.open() {
        Some(of) => {
            let state = of.state(now).map_or(String::new(), |state| format!(", {state}"));
            let source = figures::name(&of.source);
            format!("weir top  {} of {source}{state}", of.name())
        }
        None => {
            let count = model.shown().len();
            let mounts = if count == 1 { "mount" } else { "mounts" };
            let order = if model.is_reversed { ", reversed" } else { "" };
            let filter = match model.filter.is_empty() || matches!(model.mode, Mode::Filter(_)) {
                true => String::new(),
                false => format!(", with '{}'", figures::name(&model.filter)),
            };
            format!("weir top  {count} {mounts}{filter}, by {}{order}", model.sort.meaning())
        }
    };
    let interval = figures::interval(model.interval);
    let right = if model.is_paused { "PAUSED".to_owned() } else { format!("every {interval}") };
    let room = usize::from(width).saturating_sub(right.len() + 1);
    text = figures::cut(&text, room);
    let gap = " ".repeat(usize::from(width).saturating_sub(figures::width(&text) + right.len()));
    let style = if model.is_paused { theme.trouble() } else { Style::new() };
    Line::from(vec![bold(text), Span::raw(gap), Span::styled(right, style)])
}

fn bold(text: String) -> Span<'static> {
    Span::styled(text, Style::new().add_modifier(Modifier::BOLD))
}

/// The keys that mean something now.
fn keys_line(model: &Model, theme: Theme) -> Line<'static> {
    let keys: &[(&str, &str)] = match &model.mode {
        Mode::Filter(_) => {
            let typed = figures::name(&model.filter);
            let text = format!("Filter: {typed}▏");
            return Line::from(vec![bold(text), Span::raw("  Enter keeps it, Esc takes it back")]);
        }
        Mode::Sort(_) => &[("Enter", "Sort"), ("Esc", "Back"), ("F10", "Quit")],
        Mode::Help => &[("any key", "Back"), ("F10", "Quit")],
        Mode::Browse if model.is_open && model.is_for_one => {
            &[("F1", "Help"), ("↑↓", "Scroll"), ("p", "Pause"), ("+-", "Interval"), ("q", "Quit")]
        }
        Mode::Browse if model.is_open => {
            &[("F1", "Help"), ("←", "Back"), ("↑↓", "Scroll"), ("p", "Pause"), ("q", "Quit")]
        }
        Mode::Browse => &[
            ("F1", "Help"),
            ("/", "Filter"),
            ("F6", "Sort"),
            ("→", "Open"),
            ("q", "Quit"),
            ("p", "Pause"),
            ("+-", "Interval"),
        ],
    };
    let mut spans = Vec::new();
    for (key, meaning) in keys {
        spans.push(bold((*key).to_owned()));
        spans.push(Span::styled(format!("{meaning} "), theme.head()));
    }
    Line::from(spans)
}

fn draw_choice_of_order(frame: &mut Frame<'_>, area: Rect, index: usize, theme: Theme) {
    let rows = u16::try_from(Column::ALL.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let place = Rect { height: rows, width: area.width.min(24), ..area };
    let inside = usize::from(rows.saturating_sub(2));
    let first = (index + 1).saturating_sub(inside);
    let lines: Vec<Line<'_>> = Column::ALL
        .iter()
        .enumerate()
        .skip(first)
        .take(inside)
        .map(|(at, column)| {
            let text = format!(" {:<21}", column.meaning());
            Line::styled(text, if at == index { theme.chosen() } else { Style::new() })
        })
        .collect();
    frame.render_widget(Clear, place);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title("Sort by")), place);
}

const HELP: [(&str, &str); 16] = [
    ("↑ ↓ k j", "choose a mount, scroll its view"),
    ("Enter →", "open the mount's view"),
    ("Enter ← Esc", "back to the list"),
    ("Home End", "first, last; also PgUp, PgDn"),
    ("/ F4", "filter by path and SOURCE"),
    ("s F6", "choose the column to sort by"),
    ("I", "reverse the order"),
    ("p", "pause, go on"),
    ("+ -", "longer, shorter interval"),
    ("Ctrl-L", "draw the screen anew"),
    ("Ctrl-Z", "stop; 'fg' goes on"),
    ("q F10 Ctrl-C", "quit"),
    ("", ""),
    ("WAIT", "requests that wait now"),
    ("HOME/s", "bytes written to SOURCE"),
    ("..99", "99 % were answered within, since the mount"),
];

fn help(theme: Theme, rows: u16) -> Vec<Line<'static>> {
    let line = |(key, meaning): &(&'static str, &'static str)| {
        Line::from(vec![Span::styled(format!(" {key:<14}"), theme.title()), Span::raw(*meaning)])
    };
    // The keys come first: of a small screen the rest is left out.
    HELP.iter().take(rows.into()).map(line).collect()
}

#[cfg(test)]
mod tests;
