//! The state of the view: the mounts that are watched, what is shown of them, and what keys do to that.
//!
//! Owns everything that the view draws. Does not own the terminal, and asks nobody: it is told.
//!
//! Invariants:
//! - the chosen mount and the one whose view is open are mounts that are there, or none;
//! - while it is paused nothing changes but by keys.

use std::time::{Duration, Instant};

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::asking::{Key, Told};
use super::columns::Column;
use super::watched::Watched;

/// The intervals that the keys + and - go through.
const INTERVALS_MS: [u64; 13] = [
    100, 200, 500, 1000, 2000, 5000, 10_000, 30_000, 60_000, 300_000, 600_000, 1_800_000, 3_600_000,
];

/// Longest text of the filter.
const FILTER_CHARACTERS_MAX: usize = 100;

/// Lines that a page key moves by.
const PAGE: usize = 10;

/// What keys are for at the moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// To move about.
    Browse,
    /// To type the filter; with the former one.
    Filter(String),
    /// To choose a column to sort by, of [`Column::ALL`].
    Sort(usize),
    /// To leave the help.
    Help,
}

/// What is to be done after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// The view is drawn again.
    Draw,
    /// The whole screen is.
    DrawAnew,
    Quit,
    Suspend,
    SetInterval(Duration),
}

/// The view's state.
pub(super) struct Model {
    /// In the order of the mount table.
    mounts: Vec<Watched>,
    /// The mount that was asked for, if one was.
    pub(super) is_for_one: bool,
    chosen: Option<Key>,
    /// Whether the view of the chosen mount is shown instead of the list.
    pub(super) is_open: bool,
    /// The first line shown of that. The view keeps it within bounds.
    pub(super) scroll: usize,
    pub(super) sort: Column,
    pub(super) is_reversed: bool,
    pub(super) filter: String,
    pub(super) mode: Mode,
    pub(super) is_paused: bool,
    pub(super) interval: Duration,
    /// Why there is no list of mounts.
    pub(super) fault: Option<String>,
    /// Whether the mount table was read.
    pub(super) is_told: bool,
}

impl Model {
    /// Of all mounts, or of one, whose view is then open.
    pub(super) fn new(interval: Duration, is_for_one: bool) -> Model {
        Model {
            mounts: Vec::new(),
            is_for_one,
            chosen: None,
            is_open: is_for_one,
            scroll: 0,
            sort: Column::Mount,
            is_reversed: false,
            filter: String::new(),
            mode: Mode::Browse,
            is_paused: false,
            interval,
            fault: None,
            is_told: false,
        }
    }

    /// Takes what the asking threads tell.
    pub(super) fn take(&mut self, told: Told) {
        if self.is_paused {
            return;
        }
        match told {
            Told::NoTable(reason) => {
                self.fault = Some(format!("the mount table cannot be read: {reason}"));
            }
            Told::Mounts(mounts) => {
                (self.fault, self.is_told) = (None, true);
                self.mounts.retain(|of| mounts.iter().any(|mount| Key::of(mount) == of.key));
                for mount in &mounts {
                    if !self.mounts.iter().any(|of| of.key == Key::of(mount)) {
                        self.mounts.push(Watched::new(mount));
                    }
                }
            }
            Told::Answer(key, at, answer) => {
                if let Some(of) = self.mounts.iter_mut().find(|of| of.key == key) {
                    of.take(at, answer);
                }
            }
        }
        self.choose_one();
    }

    /// The mounts that are shown, in the order in which they are.
    pub(super) fn shown(&self) -> Vec<&Watched> {
        let filter = self.filter.to_lowercase();
        let is_shown = |of: &&Watched| {
            let texts = [of.name(), of.source.clone()];
            !of.is_denied && texts.iter().any(|text| text.to_lowercase().contains(&filter))
        };
        let mut shown: Vec<&Watched> = self.mounts.iter().filter(is_shown).collect();
        shown.sort_by(|one, other| self.sort.compare(one, other));
        if self.is_reversed {
            shown.reverse();
        }
        shown
    }

    /// Mounts of other users, which are not shown.
    pub(super) fn denied(&self) -> usize {
        self.mounts.iter().filter(|of| of.is_denied).count()
    }

    /// The chosen mount.
    pub(super) fn chosen(&self) -> Option<&Watched> {
        self.shown().into_iter().find(|of| Some(&of.key) == self.chosen.as_ref())
    }

    /// The mount whose view is open.
    pub(super) fn open(&self) -> Option<&Watched> {
        self.chosen().filter(|_| self.is_open)
    }

    /// Chooses a mount that is shown, if the chosen one is not any more.
    fn choose_one(&mut self) {
        if self.chosen().is_none() {
            // The view of a mount that has ended is closed.
            self.is_open = self.is_for_one;
            self.scroll = 0;
            self.chosen = self.shown().first().map(|of| of.key.clone());
        }
    }

    /// Chooses the mount that is `by` further down, or the last one that way.
    fn move_by(&mut self, by: isize) {
        let shown = self.shown();
        let Some(last) = shown.len().checked_sub(1) else { return };
        let now = shown.iter().position(|of| Some(&of.key) == self.chosen.as_ref()).unwrap_or(0);
        let next = now.saturating_add_signed(by).min(last);
        self.chosen = Some(shown[next].key.clone());
    }

    /// A key was pressed.
    pub(super) fn press(&mut self, key: KeyEvent) -> Reaction {
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            match key.code {
                KeyCode::Char('c') => return Reaction::Quit,
                KeyCode::Char('z') => return Reaction::Suspend,
                KeyCode::Char('l') => return Reaction::DrawAnew,
                _ => return Reaction::Draw,
            }
        }
        let reaction = match self.mode.clone() {
            Mode::Browse => self.press_browsing(key.code),
            Mode::Filter(former) => self.press_filtering(key.code, former),
            Mode::Sort(index) => self.press_sorting(key.code, index),
            Mode::Help => match key.code {
                KeyCode::F(10) => Reaction::Quit,
                _ => {
                    self.mode = Mode::Browse;
                    Reaction::Draw
                }
            },
        };
        self.choose_one();
        reaction
    }

    fn press_browsing(&mut self, code: KeyCode) -> Reaction {
        match code {
            KeyCode::Char('q') | KeyCode::F(10) => return Reaction::Quit,
            KeyCode::Char('h' | '?') | KeyCode::F(1) => self.mode = Mode::Help,
            KeyCode::Char('/') | KeyCode::F(4) if !self.is_open => {
                self.mode = Mode::Filter(self.filter.clone());
            }
            KeyCode::Char('s') | KeyCode::F(6) if !self.is_open => {
                let index = Column::ALL.iter().position(|&column| column == self.sort);
                self.mode = Mode::Sort(index.unwrap_or(0));
            }
            KeyCode::Char('I') if !self.is_open => self.is_reversed = !self.is_reversed,
            KeyCode::Char('p') => self.is_paused = !self.is_paused,
            KeyCode::Char('+' | '=') => return self.change_interval(true),
            KeyCode::Char('-') => return self.change_interval(false),
            KeyCode::Enter | KeyCode::Right if !self.is_open => {
                self.is_open = self.chosen().is_some();
                self.scroll = 0;
            }
            KeyCode::Enter | KeyCode::Left | KeyCode::Esc | KeyCode::Backspace
                if self.is_open && !self.is_for_one =>
            {
                self.is_open = false;
            }
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Up | KeyCode::Char('k') => self.go(-1),
            KeyCode::Down | KeyCode::Char('j') => self.go(1),
            KeyCode::PageUp => self.go(-(PAGE as isize)),
            KeyCode::PageDown => self.go(PAGE as isize),
            KeyCode::Home => self.go(isize::MIN),
            KeyCode::End => self.go(isize::MAX),
            _ => {}
        }
        Reaction::Draw
    }

    /// Moves in the list, or in the view of a mount.
    fn go(&mut self, by: isize) {
        if self.is_open {
            self.scroll = self.scroll.saturating_add_signed(by);
        } else {
            self.move_by(by);
        }
    }

    fn press_filtering(&mut self, code: KeyCode, former: String) -> Reaction {
        match code {
            KeyCode::Enter => self.mode = Mode::Browse,
            KeyCode::Esc => {
                self.filter = former;
                self.mode = Mode::Browse;
            }
            KeyCode::Backspace => drop(self.filter.pop()),
            KeyCode::Char(letter) if self.filter.chars().count() < FILTER_CHARACTERS_MAX => {
                self.filter.push(letter);
            }
            KeyCode::F(10) => return Reaction::Quit,
            KeyCode::Up => self.move_by(-1),
            KeyCode::Down => self.move_by(1),
            _ => {}
        }
        Reaction::Draw
    }

    fn press_sorting(&mut self, code: KeyCode, index: usize) -> Reaction {
        let last = Column::ALL.len() - 1;
        match code {
            KeyCode::Enter => {
                self.sort = Column::ALL[index];
                self.is_reversed = false;
                self.mode = Mode::Browse;
            }
            KeyCode::Esc | KeyCode::Char('q' | 's') | KeyCode::F(6) => self.mode = Mode::Browse,
            KeyCode::Up | KeyCode::Char('k') => self.mode = Mode::Sort(index.saturating_sub(1)),
            KeyCode::Down | KeyCode::Char('j') => self.mode = Mode::Sort((index + 1).min(last)),
            KeyCode::Home => self.mode = Mode::Sort(0),
            KeyCode::End => self.mode = Mode::Sort(last),
            KeyCode::F(10) => return Reaction::Quit,
            _ => {}
        }
        Reaction::Draw
    }

    fn change_interval(&mut self, is_longer: bool) -> Reaction {
        let now = u64::try_from(self.interval.as_millis()).unwrap_or(u64::MAX);
        let next = match is_longer {
            true => INTERVALS_MS.iter().find(|&&interval| interval > now),
            false => INTERVALS_MS.iter().rev().find(|&&interval| interval < now),
        };
        let Some(&next) = next else { return Reaction::Draw };
        self.interval = Duration::from_millis(next);
        Reaction::SetInterval(self.interval)
    }

    /// Whether what is shown changes as time passes, without an answer.
    pub(super) fn is_aging(&self, now: Instant) -> bool {
        !self.is_paused && self.mounts.iter().any(|of| of.trouble(now).is_some())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::command::top::asking::Answer;
    use crate::command::top::sample::tests::sample;
    use crate::command::top::watched::tests::mount;

    pub(in super::super) fn press(model: &mut Model, keys: &[KeyCode]) -> Reaction {
        keys.iter().fold(Reaction::Draw, |_, &key| model.press(KeyEvent::from(key)))
    }

    fn type_text(model: &mut Model, text: &str) {
        for letter in text.chars() {
            press(model, &[KeyCode::Char(letter)]);
        }
    }

    /// Mounts at these places, each with these writes each second.
    pub(in super::super) fn model(mounts: &[(&str, u64)]) -> Model {
        let mut model = Model::new(Duration::from_secs(1), false);
        let all: Vec<_> = mounts
            .iter()
            .enumerate()
            .map(|(index, (point, _))| mount(point, index as u32))
            .collect();
        model.take(Told::Mounts(all.clone()));
        for second in [1, 2] {
            for (mount, (_, writes)) in all.iter().zip(mounts) {
                let status = sample(second * 1000, |of| of.stats.writes = writes * second).status;
                model.take(Told::Answer(Key::of(mount), Instant::now(), Answer::Status(status)));
            }
        }
        model
    }

    fn names(model: &Model) -> String {
        let name = |of: &&Watched| match model.chosen().is_some_and(|chosen| chosen.key == of.key) {
            true => format!("[{}]", of.name()),
            false => of.name(),
        };
        model.shown().iter().map(name).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_mount_is_chosen_by_keys_and_stays_chosen_in_another_order() {
        let mut model = model(&[("/a", 1), ("/b", 9), ("/c", 5)]);
        assert_eq!(names(&model), "[/a] /b /c");
        press(&mut model, &[KeyCode::Up, KeyCode::Down]);
        assert_eq!(names(&model), "/a [/b] /c");
        press(&mut model, &[KeyCode::Char('s'), KeyCode::Down, KeyCode::Enter]);
        assert_eq!(model.sort, Column::Writes);
        assert_eq!(names(&model), "[/b] /c /a");
        press(&mut model, &[KeyCode::Char('j'), KeyCode::Char('j'), KeyCode::Char('j')]);
        assert_eq!(names(&model), "/b /c [/a]");
        press(&mut model, &[KeyCode::Char('I'), KeyCode::Char('k')]);
        assert_eq!(names(&model), "[/a] /c /b");
        press(&mut model, &[KeyCode::End]);
        assert_eq!(names(&model), "/a /c [/b]");
        press(&mut model, &[KeyCode::F(6), KeyCode::End, KeyCode::Esc]);
        assert_eq!((model.sort, model.mode.clone()), (Column::Writes, Mode::Browse));
    }

    #[test]
    fn the_filter_is_typed_and_taken_back() {
        let mut model = model(&[("/mnt/Mail", 1), ("/mnt/data", 2), ("/mnt/qp", 2)]);
        press(&mut model, &[KeyCode::Char('/')]);
        type_text(&mut model, "qp");
        assert_eq!(names(&model), "[/mnt/qp]", "its letters are no commands");
        press(&mut model, &[KeyCode::Backspace, KeyCode::Backspace]);
        type_text(&mut model, "mail");
        press(&mut model, &[KeyCode::Enter]);
        assert_eq!(names(&model), "[/mnt/Mail]");
        press(&mut model, &[KeyCode::Char('/')]);
        type_text(&mut model, "xx");
        assert_eq!((names(&model), model.chosen().is_none()), (String::new(), true));
        press(&mut model, &[KeyCode::Esc]);
        assert_eq!(names(&model), "[/mnt/Mail]");
        press(&mut model, &[KeyCode::Esc]);
        assert_eq!(model.shown().len(), 3);
        // SOURCE is looked at, too.
        press(&mut model, &[KeyCode::F(4)]);
        type_text(&mut model, "/SRV/mnt/d");
        assert_eq!(names(&model), "[/mnt/data]");
    }

    #[test]
    fn a_mount_that_ends_disappears_and_its_view_closes() {
        let mut model = model(&[("/a", 1), ("/b", 2)]);
        press(&mut model, &[KeyCode::Down, KeyCode::Enter, KeyCode::Down]);
        assert_eq!(model.open().map(Watched::name).as_deref(), Some("/b"));
        assert_eq!(model.scroll, 1);
        model.take(Told::Mounts(vec![mount("/a", 0)]));
        assert_eq!((names(&model).as_str(), model.is_open, model.scroll), ("[/a]", false, 0));
        // Another mount at the same place is another one.
        model.take(Told::Mounts(vec![mount("/a", 7)]));
        assert_eq!(names(&model), "[/a]");
        assert!(model.chosen().unwrap().status().is_none());
        model.take(Told::Mounts(Vec::new()));
        assert!(model.chosen().is_none());
        press(&mut model, &[KeyCode::Enter, KeyCode::Down, KeyCode::End]);
        assert!(!model.is_open);
    }

    #[test]
    fn the_view_of_a_mount_is_opened_and_left() {
        let mut of_all = model(&[("/a", 1)]);
        for (open, close) in [
            (KeyCode::Enter, KeyCode::Left),
            (KeyCode::Right, KeyCode::Enter),
            (KeyCode::Enter, KeyCode::Esc),
        ] {
            press(&mut of_all, &[open]);
            assert!(of_all.open().is_some());
            press(&mut of_all, &[close]);
            assert!(of_all.open().is_none());
        }
        let mut of_one = Model::new(Duration::from_secs(1), true);
        of_one.take(Told::Mounts(vec![mount("/a", 0)]));
        press(&mut of_one, &[KeyCode::Left, KeyCode::Esc]);
        assert!(of_one.open().is_some(), "there is nothing to go back to");
    }

    #[test]
    fn nothing_changes_while_it_is_paused() {
        let mut model = model(&[("/a", 1)]);
        press(&mut model, &[KeyCode::Char('p')]);
        model.take(Told::Mounts(Vec::new()));
        assert_eq!(names(&model), "[/a]");
        press(&mut model, &[KeyCode::Char('p')]);
        model.take(Told::Mounts(Vec::new()));
        assert_eq!(names(&model), "");
    }

    #[test]
    fn the_interval_goes_from_step_to_step() {
        let mut model = Model::new(Duration::from_millis(1500), false);
        let mut after = |key| press(&mut model, &[KeyCode::Char(key)]);
        let to = |ms| Reaction::SetInterval(Duration::from_millis(ms));
        assert_eq!((after('+'), after('+'), after('-')), (to(2000), to(5000), to(2000)));
        for _ in 0..20 {
            after('-');
        }
        assert_eq!((after('-'), after('+')), (Reaction::Draw, to(200)));
    }

    #[test]
    fn the_program_is_left_from_everywhere() {
        let control = |letter| KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL);
        for before in [KeyCode::Null, KeyCode::Char('/'), KeyCode::Char('s'), KeyCode::Char('h')] {
            let mut model = model(&[("/a", 1)]);
            press(&mut model, &[before]);
            assert_eq!(model.press(control('c')), Reaction::Quit);
            assert_eq!(model.press(control('z')), Reaction::Suspend);
            assert_eq!(press(&mut model, &[KeyCode::F(10)]), Reaction::Quit, "{before:?}");
        }
        let mut model = model(&[]);
        assert_eq!(press(&mut model, &[KeyCode::Char('q')]), Reaction::Quit);
        assert_eq!(press(&mut model, &[KeyCode::Char('?'), KeyCode::Char('q')]), Reaction::Draw);
        assert_eq!(model.mode, Mode::Browse);
    }

    #[test]
    fn other_users_mounts_are_counted_and_not_shown() {
        let mut model = model(&[("/a", 1), ("/b", 1)]);
        let key = Key::of(&mount("/a", 0));
        model.take(Told::Answer(key, Instant::now(), Answer::Denied));
        assert_eq!((names(&model).as_str(), model.denied()), ("[/b]", 1));
    }
}
