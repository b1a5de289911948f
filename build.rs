//! Links the program at a fixed address where it is linked dynamically with GNU's C library.
//!
//! Otherwise the linker leaves 33,000 addresses to be written at each start, of a hook too, into
//! pages that are then every process's own. What that gives up is that the address of the main
//! image is random; those of libraries, heap and stacks still are.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
