//! Replaces the function by which the C library closes descriptors of its own.
//!
//! glibc closes the files that it has opened itself (locales, directories, name services, streams) by its internal function `__close_nocancel`, which
//! cannot be interposed. A program closes about fifteen such files when it starts and ends, and in a session each of these calls is stopped. In a member
//! the first bytes of that function are therefore replaced by a jump to [`close`], which makes the call by the door if nobody outside can notice it.
//!
//! Invariants:
//! - code is replaced only if all of its bytes are known, while the process has one thread, before its program runs;
//! - if the bytes are others, or the process may not change code (execmod of SELinux, `MemoryDenyWriteExecute=`), nothing is changed and the calls are
//!   stopped.

use std::ffi::c_int;
use std::ptr;

use crate::held::hold;
use crate::{session, sys};

/// The beginning of glibc's function: `mov $3, %eax; syscall; cmp $-4096, %rax; ja; ret`.
const NUMBER_AND_CALL: [u8; 7] = [0xb8, 3, 0, 0, 0, 0x0f, 0x05];
const COMPARISON: [u8; 2] = [0x48, 0x3d];
const NO_ERROR_UP_TO: [u8; 4] = [0x00, 0xf0, 0xff, 0xff];
const JUMP_IF_ABOVE: u8 = 0x77;
const RETURN: u8 = 0xc3;
/// Where indirect branches are tracked, code begins with `endbr64`, which stays.
const TRACKED: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// Bytes that are compared: the call, the comparison, the jump and the return.
const KNOWN_BYTES: usize = 16;
/// `jmp *0(%rip)`, and the address.
const JUMP: [u8; 6] = [0xff, 0x25, 0, 0, 0, 0];
const JUMP_BYTES: usize = JUMP.len() + size_of::<usize>();
const _: () = assert!(JUMP_BYTES <= KNOWN_BYTES);

/// Whether these are the bytes of `__close_nocancel`.
fn is_known(code: [u8; KNOWN_BYTES]) -> bool {
    let [number @ .., a, b, c, d, e, f, jump, _, ret] = code;
    number == NUMBER_AND_CALL
        && [a, b] == COMPARISON
        && [c, d, e, f] == NO_ERROR_UP_TO
        && jump == JUMP_IF_ABOVE
        && ret == RETURN
}

/// Replaces the function. To be called once in a member, before it has a second thread.
pub(crate) fn take_over() {
    // SAFETY: the name is terminated by a zero byte.
    let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"__close_nocancel".as_ptr()) };
    if function.is_null() {
        // SAFETY: takes no arguments. Clears the error so that the program does not see it.
        unsafe { libc::dlerror() };
        return;
    }
    let function = function.cast::<u8>();
    // SAFETY: functions are aligned to 16 bytes, so the 20 bytes after the function's first one are mapped code.
    let is_tracked = unsafe { ptr::read_unaligned(function.cast::<[u8; 4]>()) } == TRACKED;
    let begin = function.wrapping_add(if is_tracked { TRACKED.len() } else { 0 });
    // SAFETY: as above.
    if !is_known(unsafe { ptr::read_unaligned(begin.cast::<[u8; KNOWN_BYTES]>()) }) {
        return;
    }
    let mut jump = [0; JUMP_BYTES];
    jump[..JUMP.len()].copy_from_slice(&JUMP);
    jump[JUMP.len()..]
        .copy_from_slice(&(close as extern "C" fn(c_int) -> c_int as usize).to_ne_bytes());
    let _ = session::unobserved(|| {
        // SAFETY: nothing runs this code meanwhile: there is one thread, which is here, and signals are held back. The new function has the same type.
        unsafe { sys::replace_code(begin, &jump) }.ok()
    });
}

/// close(2): what `__close_nocancel` does afterwards.
extern "C" fn close(fd: c_int) -> c_int {
    session::close(fd).unwrap_or_else(|| hold(|| session::close_stopped(fd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_known_code_is_replaced() {
        let mut code = [0; KNOWN_BYTES];
        code[..7].copy_from_slice(&NUMBER_AND_CALL);
        code[7..9].copy_from_slice(&COMPARISON);
        code[9..13].copy_from_slice(&NO_ERROR_UP_TO);
        (code[13], code[14], code[15]) = (JUMP_IF_ABOVE, 0x12, RETURN);
        assert!(is_known(code));
        for at in (0..KNOWN_BYTES).filter(|at| *at != 14) {
            let mut other = code;
            other[at] ^= 0x40;
            assert!(!is_known(other), "byte {at}");
        }
    }
}
