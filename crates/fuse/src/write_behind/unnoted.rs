//! What is to be noted after the log has failed ([`super::failed`]).

use weir_backend::Noted;

/// Lines that are not in the note yet. The note begins with all that is known at that moment; after that it gets what is added.
#[derive(Debug, Default)]
pub(super) struct Unnoted(Option<Vec<Noted>>);

impl Unnoted {
    /// Is to be noted.
    pub(super) fn add(&mut self, line: Noted) {
        // Otherwise it is among what the note begins with.
        if let Some(lines) = &mut self.0 {
            lines.push(line);
        }
    }

    /// What is to be noted now; `None` if the note is to begin with all that is known.
    pub(super) fn take(&mut self) -> Option<Vec<Noted>> {
        self.0.as_mut().map(std::mem::take)
    }

    /// The note has all that is known now.
    pub(super) fn begin(&mut self) {
        self.0 = Some(Vec::new());
    }

    /// Something could not be noted.
    pub(super) fn begin_anew(&mut self) {
        self.0 = None;
    }
}
