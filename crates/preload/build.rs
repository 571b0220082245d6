//! The unwinder is linked into the library: as a library of its own (libgcc_s) it would take longer to load than
//! this one, in every program that is run.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-link-lib=static:-bundle=gcc_eh");
}
