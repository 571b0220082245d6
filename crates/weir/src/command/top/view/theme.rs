//! The styles of the view, with and without colours.

use ratatui::style::{Color, Modifier, Style};

/// How things are set off from each other: by colours where there are any, and by the letters' weight.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct Theme {
    pub(super) has_colours: bool,
}

impl Theme {
    /// Without colours where NO_COLOR is set, or the terminal is a dumb one.
    pub(in super::super) fn of_environment() -> Theme {
        let has = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let is_dumb = has("TERM").is_none_or(|term| term == "dumb");
        Theme { has_colours: has("NO_COLOR").is_none() && !is_dumb }
    }

    fn coloured(self, colour: Color) -> Style {
        if self.has_colours { Style::new().fg(colour) } else { Style::new() }
    }

    /// A line of titles.
    pub(super) fn head(self) -> Style {
        match self.has_colours {
            true => Style::new().fg(Color::Black).bg(Color::Green),
            false => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    /// The chosen line.
    pub(super) fn chosen(self) -> Style {
        match self.has_colours {
            true => Style::new().fg(Color::Black).bg(Color::Cyan),
            false => Style::new().add_modifier(Modifier::REVERSED),
        }
    }

    pub(super) fn title(self) -> Style {
        self.coloured(Color::Cyan).add_modifier(Modifier::BOLD)
    }

    pub(super) fn dirty(self) -> Style {
        self.coloured(Color::Yellow)
    }

    pub(super) fn low(self) -> Style {
        self.coloured(Color::Green)
    }

    pub(super) fn high(self) -> Style {
        self.coloured(Color::Red)
    }

    /// What somebody should look at.
    pub(super) fn trouble(self) -> Style {
        self.coloured(Color::Red).add_modifier(Modifier::BOLD)
    }

    /// What is not of this moment.
    pub(super) fn faint(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }
}
