//! Calls that make processes, and that execute programs.

use std::arch::naked_asm;
use std::ffi::{c_char, c_int, c_void};

use libc::{FILE, pid_t, posix_spawn_file_actions_t, posix_spawnattr_t, termios, winsize};

use super::descriptors::standard_replaced;
use super::interpose;
use crate::attach::{after_fork, before_fork};
use crate::held::{hold, hold_to_the_end, may_have_interrupted, repeat};
use crate::leave::{before_program, before_spawn};
use crate::next::{Next, find_at_load};
use crate::sys;

type Words = *const *mut c_char;

interpose! {
    fn execve(path: *const c_char, arguments: Words, environment: Words) -> c_int as next {
        before_program();
        repeat(|| next(path, arguments, environment))
    }

    fn execv(path: *const c_char, arguments: Words) -> c_int as next {
        before_program();
        repeat(|| next(path, arguments))
    }

    fn execvp(path: *const c_char, arguments: Words) -> c_int as next {
        before_program();
        repeat(|| next(path, arguments))
    }

    fn execvpe(path: *const c_char, arguments: Words, environment: Words) -> c_int as next {
        before_program();
        repeat(|| next(path, arguments, environment))
    }

    fn fexecve(fd: c_int, arguments: Words, environment: Words) -> c_int as next {
        before_program();
        repeat(|| next(fd, arguments, environment))
    }

    fn execveat(
        at: c_int,
        path: *const c_char,
        arguments: Words,
        environment: Words,
        flags: c_int,
    ) -> c_int as next {
        before_program();
        repeat(|| next(at, path, arguments, environment, flags))
    }

    fn posix_spawn(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: Words,
        environment: Words,
    ) -> c_int as next {
        before_spawn(!actions.is_null());
        next(process, path, actions, attributes, arguments, environment)
    }

    fn posix_spawnp(
        process: *mut pid_t,
        path: *const c_char,
        actions: *const posix_spawn_file_actions_t,
        attributes: *const posix_spawnattr_t,
        arguments: Words,
        environment: Words,
    ) -> c_int as next {
        before_spawn(!actions.is_null());
        next(process, path, actions, attributes, arguments, environment)
    }

    fn system(command: *const c_char) -> c_int as next {
        before_program();
        next(command)
    }

    fn popen(command: *const c_char, kind: *const c_char) -> *mut FILE as next {
        before_program();
        loop {
            let stream = next(command, kind);
            if !stream.is_null() || sys::errno() != libc::EINTR || !may_have_interrupted() {
                return stream;
            }
        }
    }

    fn _exit(status: c_int) -> () as next {
        hold_to_the_end();
        next(status)
    }

    fn _Exit(status: c_int) -> () as next {
        hold_to_the_end();
        next(status)
    }

    fn fork() -> pid_t as next {
        let locked = before_fork();
        let result = next();
        after_fork(locked);
        result
    }

    fn _Fork() -> pid_t as next {
        let locked = before_fork();
        let result = next();
        after_fork(locked);
        result
    }

    fn daemon(stay: c_int, keep: c_int) -> c_int as next {
        let locked = before_fork();
        let result = hold(|| {
            let result = next(stay, keep);
            after_fork(locked);
            result
        });
        standard_replaced();
        result
    }

    fn login_tty(fd: c_int) -> c_int as next {
        let result = hold(|| next(fd));
        standard_replaced();
        result
    }

    fn forkpty(
        terminal: *mut c_int,
        name: *mut c_char,
        settings: *const termios,
        size: *const winsize,
    ) -> pid_t as next {
        let locked = before_fork();
        let result = next(terminal, name, settings, size);
        after_fork(locked);
        if result == 0 {
            standard_replaced();
        }
        result
    }
}

/// Calls whose arguments are a list of any length. After [`before_program`], the next definition finds registers and stack
/// as the program left them.
macro_rules! pass_on {
    ($($name:ident, $address:ident, $text:literal;)*) => {$(
        extern "C" fn $address() -> *mut c_void {
            static NEXT: Next = Next::new($text);
            find_at_load!(NEXT);
            before_program();
            NEXT.get()
        }

        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "call {address}",
                "mov r11, rax",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                address = sym $address,
            )
        }
    )*};
}

pass_on! {
    execl, execl_next, c"execl";
    execlp, execlp_next, c"execlp";
    execle, execle_next, c"execle";
}
