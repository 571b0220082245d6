//! `weir top`: what mounts are doing, once or as a view in the terminal that follows them.
//!
//! [`asking`] asks the daemons, from threads; [`watched`] makes rates ([`sample`]) and a course of what a mount's daemon answers;
//! [`model`] is what the view shows and what keys do to it; [`view`] draws it; [`screen`] has the terminal. [`once`] prints one
//! sample without any of the last three. [`columns`] and [`figures`] serve both.
//!
//! Invariants: the mounts themselves are not used, so that a daemon that hangs cannot hang this. A signal that ends programs ends this
//! one, and so does a terminal that is gone, whatever the drawing thread waits for.

mod asking;
mod columns;
mod figures;
mod model;
mod once;
mod sample;
mod screen;
mod view;
mod watched;

use std::io::{self, IsTerminal, Write};
use std::process::{self, ExitCode};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::{self, Event, KeyEventKind};

use self::asking::{Asker, Told, Wanted};
use self::model::{Model, Reaction};
use self::screen::Screen;
use self::view::Theme;
use crate::cli::TopArguments;
use crate::control::client::{self, ControlError};
use crate::failure::Failure;
use crate::mounts::{Mount, MountTable};
use crate::signals;

/// How long keys are waited for before answers are looked at.
const TURN: Duration = Duration::from_millis(50);

/// How long the drawing thread may take to end after a signal; then the thread of signals ends the program.
const GRACE: Duration = Duration::from_millis(500);

/// How often the thread of signals looks whether the terminal is gone.
const LOOK: Duration = Duration::from_secs(1);

/// How often the ages of answers that are missing are drawn.
const AGING: Duration = Duration::from_secs(1);

/// Shows the mounts, or one.
pub fn run(arguments: &TopArguments) -> Result<ExitCode, Failure> {
    let one = arguments.mountpoint.as_deref().map(client::find).transpose()?;
    if arguments.once {
        return print_once(arguments, one);
    }
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        let message = "weir top needs a terminal for its view, and standard input or output is not one: use --once, which \
                       prints one sample; see 'weir top --help'";
        return Err(Failure::Usage(message.to_owned()));
    }
    show(arguments.interval, one)
}

fn print_once(arguments: &TopArguments, one: Option<Mount>) -> Result<ExitCode, Failure> {
    let is_for_one = one.is_some();
    let mounts = match one {
        Some(mount) => vec![mount],
        None => {
            let table = MountTable::read().map_err(ControlError::Table)?;
            let mut mounts: Vec<Mount> = table.weir().into_iter().cloned().collect();
            mounts.extend(client::unmounted(&table).into_iter().map(|(mount, _)| mount));
            mounts
        }
    };
    let outcome = once::run(&mounts, arguments.interval, arguments.json, is_for_one);
    match io::stdout().write_all(outcome.text.as_bytes()) {
        // A reader that closes the pipe early is no failure.
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            return Err(Failure::Refused(format!("cannot write to standard output: {error}")));
        }
        _ => {}
    }
    Ok(if outcome.all_answered { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// What the view is told.
enum News {
    Told(Told),
    /// The program is to end.
    Signal(&'static str),
    /// It is to stop.
    Stop,
    /// It was continued.
    Continued,
}

fn show(interval: Duration, one: Option<Mount>) -> Result<ExitCode, Failure> {
    let failed = |what: &str, error: io::Error| Failure::Refused(format!("cannot {what}: {error}"));
    let (sender, receiver) = channel();
    // Before any thread is started.
    let signals = signals::block_with_stops().map_err(|error| failed("block signals", error))?;
    listen(signals, sender.clone()).map_err(|error| failed("wait for signals", error))?;
    let mut model = Model::new(interval, one.is_some());
    let told = move |told| {
        // Nobody listens at the end.
        let _ = sender.send(News::Told(told));
    };
    let asker = Asker::start(wanted(one), interval, told)
        .map_err(|error| failed("start a thread to ask the daemons", error))?;
    let on_terminal = |error| failed("use the terminal", error);
    let mut screen = Screen::take().map_err(on_terminal)?;
    match follow(&mut model, &mut screen, &asker, &receiver) {
        // Nobody is there to be told of an error.
        Err(_) if screen::is_hung_up() => Ok(ended_by("SIGHUP").into()),
        outcome => outcome.map_err(on_terminal),
    }
}

/// Shows the mounts until a key or a signal ends that.
fn follow(
    model: &mut Model,
    screen: &mut Screen,
    asker: &Asker,
    receiver: &Receiver<News>,
) -> io::Result<ExitCode> {
    let theme = Theme::of_environment();
    let mut drawn: Option<Instant> = None;
    loop {
        let now = Instant::now();
        if drawn.is_none_or(|at| model.is_aging(now) && now.duration_since(at) >= AGING) {
            screen.draw(|frame| view::draw(frame, model, theme, now))?;
            drawn = Some(now);
        }
        if screen::wait(TURN)? {
            drawn = None;
            let reaction = match event::read()? {
                Event::Key(key) if key.kind != KeyEventKind::Release => model.press(key),
                // The terminal has another size, which drawing looks at.
                _ => Reaction::Draw,
            };
            match reaction {
                Reaction::Draw => {}
                Reaction::DrawAnew => screen.clear()?,
                Reaction::Quit => return Ok(ExitCode::SUCCESS),
                Reaction::Suspend => screen.stop()?,
                Reaction::SetInterval(interval) => asker.set_interval(interval),
            }
        }
        let all: Vec<News> = receiver.try_iter().collect();
        let continued = all.iter().rposition(|news| matches!(news, News::Continued));
        for (index, news) in all.into_iter().enumerate() {
            match news {
                // It was continued already: nobody would do it again.
                News::Stop if continued.is_some_and(|last| index < last) => {}
                News::Told(told) => model.take(told),
                News::Signal(name) => return Ok(ended_by(name).into()),
                News::Stop => screen.stop()?,
                News::Continued => screen.take_again()?,
            }
            drawn = None;
        }
    }
}

/// Which mounts are shown: all, or this one, wherever it is in the table.
fn wanted(one: Option<Mount>) -> Wanted {
    Arc::new(move |mount: &Mount| {
        one.as_ref().is_none_or(|one| {
            one.device == mount.device && one.former_of == mount.former_of
                || one.source == mount.source && mount.former_of.is_some()
        })
    })
}

fn listen(signals: signals::Blocked, sender: Sender<News>) -> io::Result<()> {
    let taken = move |name: &'static str| {
        let news = match name {
            "SIGTSTP" => News::Stop,
            "SIGCONT" => News::Continued,
            _ => News::Signal(name),
        };
        let is_end = matches!(news, News::Signal(_));
        // Nobody listens at the end.
        let _ = sender.send(news);
        if is_end {
            end_after_grace(name);
        }
    };
    signals.listen_and_look(LOOK, taken, || {
        if screen::is_hung_up() {
            end_after_grace("SIGHUP");
        }
    })
}

/// Ends the program if the drawing thread does not.
fn end_after_grace(name: &str) {
    thread::sleep(GRACE);
    screen::give_back_at_end();
    process::exit(ended_by(name).into());
}

/// As a shell says of a program that a signal ended.
fn ended_by(name: &str) -> u8 {
    let number = match name {
        "SIGHUP" => libc::SIGHUP,
        "SIGINT" => libc::SIGINT,
        _ => libc::SIGTERM,
    };
    128 + number as u8
}
