//! The outcome of a call: done by the lane, or left to the kernel for a reason.

use weir_lane::client::Miss;
use weir_lane::tally::Fallback;

use crate::sys::Errno;

/// One word, so that C functions can return it.
///
/// 0 and above: done, with this result. -4095 to -1: failed, with this error number, negated. Below: left to the kernel;
/// the value encodes the [`Fallback`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(transparent)]
pub(crate) struct Outcome(isize);

const KERNEL: isize = -4096;

impl Outcome {
    /// Left to the kernel: the descriptor is not of a file that Weir knows.
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

    /// Left to the kernel.
    #[inline]
    pub(crate) fn kernel(fallback: Fallback) -> Outcome {
        Outcome(KERNEL - fallback as isize)
    }

    /// The C function's result, if the call is done or failed; sets `errno` if it failed.
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

    /// Why the call is left to the kernel, if it is.
    #[inline]
    pub(crate) fn fallback(self) -> Option<Fallback> {
        Fallback::ALL.get(usize::try_from(KERNEL.checked_sub(self.0)?).ok()?).copied()
    }
}

/// The fallback that a miss in the lane leads to.
pub(crate) fn fallback_for(miss: Miss) -> Fallback {
    match miss {
        Miss::Gone => Fallback::Gone,
        Miss::Mode => Fallback::Mode,
        Miss::Absent => Fallback::Absent,
        Miss::Pending => Fallback::Pending,
        Miss::Size => Fallback::Reserved,
        Miss::Full => Fallback::Full,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_errors_and_fallbacks_are_told_apart() {
        assert_eq!(Outcome::done(0).returned(), Some(0));
        assert_eq!(Outcome::done(5).returned(), Some(5));
        assert_eq!(Outcome::failed(Errno(libc::EIO)).returned(), Some(-1));
        assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::EIO));
        for fallback in Fallback::ALL {
            let outcome = Outcome::kernel(fallback);
            assert_eq!((outcome.returned(), outcome.fallback()), (None, Some(fallback)));
        }
        assert_eq!(Outcome::failed(Errno(4095)).fallback(), None);
        assert_eq!((Outcome::NOT_OURS.returned(), Outcome::NOT_OURS.fallback()), (None, None));
    }
}
