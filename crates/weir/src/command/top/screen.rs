//! The terminal while the view is shown: taken, given back at any end, and for as long as the program is stopped.
//!
//! Owns the terminal's mode, its second screen and its cursor. Does not own what is drawn.
//!
//! Invariant: what was taken is given back when the value is dropped, and before the message of a panic is printed.

use std::io::{self, Stdout};
use std::panic;
use std::thread;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::execute;
use ratatui::crossterm::style::ResetColor;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use rustix::process::Signal;

/// The terminal.
pub(super) struct Screen {
    terminal: Terminal<CrosstermBackend<Stdout>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Screen> {
        give_back_before_panics();
        let terminal = enter().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Screen { terminal }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    /// Draws, in the size that the terminal has now.
    pub(super) fn draw(&mut self, draw: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        self.terminal.draw(draw).map(|_| ())
    }

    /// The next drawing draws everything.
    pub(super) fn clear(&mut self) -> io::Result<()> {
        // Not by `Terminal::clear`, which asks the terminal where its cursor is, and waits for the answer.
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Stops the program, as Ctrl-Z does elsewhere, and takes the terminal again when it goes on.
    pub(super) fn stop(&mut self) -> io::Result<()> {
        leave();
        let own = rustix::process::getpid();
        rustix::process::kill_process(own, Signal::TSTP)?;
        enter()?;
        self.clear()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        leave();
    }
}

fn enter() -> io::Result<()> {
    enable_raw_mode()?;
    execute!(io::stdout(), EnterAlternateScreen)
}

/// Gives the terminal back. It may be gone.
fn leave() {
    let _ = execute!(io::stdout(), ResetColor, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// A panic of this thread ends the program: its message is to be seen, on the first screen.
fn give_back_before_panics() {
    let drawing = thread::current().id();
    let former = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        if thread::current().id() == drawing {
            leave();
        }
        former(info);
    }));
}
