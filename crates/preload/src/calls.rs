//! The C library's names that this library interposes, by what they do.
//!
//! Each has the types of the C declaration, except that variable arguments are a fixed number of arguments here: in
//! x86-64's convention (System V ABI, 3.2.3) they are in the same registers.

mod credentials;
mod data;
mod descriptors;
mod files;
mod held;
mod memory;
mod programs;
mod sendfile;
mod session;

/// Defines C functions. In the body the name after `as` calls the next definition. No value with a destructor may be
/// alive during that call: a thread may be cancelled in it, and `C-unwind` lets the cancellation unwind.
macro_rules! interpose {
    ($(
        fn $name:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty as $next:ident $body:block
    )*) => {$(
        #[unsafe(no_mangle)]
        pub(super) unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            static NEXT: $crate::next::Next =
                $crate::next::Next::new(match ::std::ffi::CStr::from_bytes_with_nul(
                    concat!(stringify!($name), "\0").as_bytes(),
                ) {
                    Ok(name) => name,
                    Err(_) => unreachable!(),
                });
            $crate::next::find_at_load!(NEXT);
            #[allow(unused)] // closefrom calls close_range instead.
            let $next = |$($argument: $type),*| -> $result {
                // SAFETY: the next definition of this name has the type of this one, and is called as the program
                // called this one.
                unsafe {
                    ::std::mem::transmute::<
                        *mut ::std::ffi::c_void,
                        unsafe extern "C-unwind" fn($($type),*) -> $result,
                    >(NEXT.get())($($argument),*)
                }
            };
            $body
        }
    )*};
}
use interpose;
