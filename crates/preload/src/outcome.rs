//! What became of a call: done here, or left to the kernel, and why.

use weir_lane::client::Miss;
use weir_lane::tally::Why;

use crate::sys::Errno;

/// In one word, to be passed through C functions.
///
/// From 0: done, with this result. From -4095: failed, with this error number. Below: the kernel's, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Outcome(isize);

const KERNEL: isize = -4096;

impl Outcome {
    /// To be done by the kernel, and nothing to do with Weir.
    pub(crate) const NOT_OURS: Outcome = Outcome(isize::MIN);

    /// Done, with this result.
    #[inline]
    pub(crate) fn done(result: usize) -> Outcome {
        Outcome(result as isize)
    }

    /// Failed.
    pub(crate) fn failed(errno: Errno) -> Outcome {
        Outcome(-(errno.0 as isize))
    }

    /// To be done by the kernel.
    #[inline]
    pub(crate) fn kernel(why: Why) -> Outcome {
        Outcome(KERNEL - why as isize)
    }

    /// What the C function returns, if it was done; sets `errno` if it failed.
    #[inline]
    pub(crate) fn returned(self) -> Option<isize> {
        match self.0 {
            result @ 0.. => Some(result),
            negative @ -4095..=-1 => {
                // SAFETY: the thread's own.
                unsafe { *libc::__errno_location() = -negative as i32 };
                Some(-1)
            }
            _ => None,
        }
    }

    /// Why it is the kernel's, if it is.
    #[inline]
    pub(crate) fn why(self) -> Option<Why> {
        Why::ALL.get(usize::try_from(KERNEL.checked_sub(self.0)?).ok()?).copied()
    }
}

/// Why the lane could not.
pub(crate) fn why(miss: Miss) -> Why {
    match miss {
        Miss::Gone => Why::Gone,
        Miss::Mode => Why::Mode,
        Miss::Absent => Why::Absent,
        Miss::Pending => Why::Pending,
        Miss::Size => Why::Reserved,
        Miss::Full => Why::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_tells_results_errors_and_reasons_apart() {
        assert_eq!(Outcome::done(0).returned(), Some(0));
        assert_eq!(Outcome::done(5).returned(), Some(5));
        assert_eq!(Outcome::failed(Errno(libc::EIO)).returned(), Some(-1));
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        for why in Why::ALL {
            let outcome = Outcome::kernel(why);
            assert_eq!((outcome.returned(), outcome.why()), (None, Some(why)));
        }
        assert_eq!(Outcome::failed(Errno(4095)).why(), None);
        assert_eq!((Outcome::NOT_OURS.returned(), Outcome::NOT_OURS.why()), (None, None));
    }
}
