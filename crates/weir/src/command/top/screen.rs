//! The terminal while the view is shown: taken, given back at any end, and for as long as the program is stopped.
//!
//! Owns the terminal's mode, its second screen and its cursor. Does not own what is drawn.
//!
//! Invariants:
//! - what was taken is given back when the value is dropped, before the message of a panic is printed, while the program is stopped,
//!   and by the thread of signals if the drawing thread does not get to it;
//! - crossterm is not asked for events of a terminal that is gone: it would read its end for ever.

use std::io::{self, Stdout};
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::panic;
use std::thread;
use std::time::Duration;

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::style::ResetColor;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use ratatui::crossterm::{event, execute};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;

use crate::signals;

/// The terminal.
pub(super) struct Screen {
    /// Never dropped: it would show the cursor once more, and panic when it cannot say on a terminal that is gone that this failed.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
}

impl Screen {
    /// Takes the terminal.
    pub(super) fn take() -> io::Result<Screen> {
        give_back_before_panics();
        let terminal = enter().and_then(|()| Terminal::new(CrosstermBackend::new(io::stdout())));
        match terminal {
            Ok(terminal) => Ok(Screen { terminal: ManuallyDrop::new(terminal) }),
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
        signals::stop()?;
        enter()?;
        self.clear()
    }

    /// Takes the terminal again after the program was continued, by whatever it had been stopped: a shell may have changed the mode.
    pub(super) fn take_again(&mut self) -> io::Result<()> {
        // crossterm changes nothing if it thinks that the mode is raw.
        disable_raw_mode()?;
        enter()?;
        self.clear()
    }
}

/// Waits until something happened at the terminal, no longer than `turn`. It may have another size, too.
///
/// # Errors
/// The terminal is gone, or cannot be read.
pub(super) fn wait(turn: Duration) -> io::Result<bool> {
    for time in [Duration::ZERO, turn] {
        if is_hung_up_within(time) {
            return Err(io::Error::other("it is gone"));
        }
        if event::poll(Duration::ZERO)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the terminal that keys come from is gone.
pub(super) fn is_hung_up() -> bool {
    is_hung_up_within(Duration::ZERO)
}

/// As [`is_hung_up`], and waits for keys no longer than this.
fn is_hung_up_within(time: Duration) -> bool {
    let state = ready(rustix::stdio::stdin(), PollFlags::IN, time);
    state.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL)
}

fn ready(terminal: BorrowedFd<'_>, wanted: PollFlags, time: Duration) -> PollFlags {
    let time = Timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() };
    let mut asked = [PollFd::new(&terminal, wanted)];
    match rustix::event::poll(&mut asked, Some(&time)) {
        // A signal is an event, too, such as that of another size.
        Err(Errno::INTR) => PollFlags::empty(),
        Err(_) => PollFlags::NVAL,
        Ok(_) => asked[0].revents(),
    }
}

/// Gives the terminal back for a program that ends at once, while another thread may have the output locked, or wait for a
/// terminal that takes nothing.
pub(super) fn give_back_at_end() {
    let _ = disable_raw_mode();
    let output = rustix::stdio::stdout();
    if ready(output, PollFlags::OUT, Duration::from_millis(100)) == PollFlags::OUT {
        let mut text = Vec::new();
        // Writing to memory cannot fail.
        let _ = execute!(text, ResetColor, LeaveAlternateScreen, Show);
        let _ = rustix::io::write(output, &text);
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
