//! Links the program at a fixed address where it is linked dynamically with GNU's C library.
//!
//! Otherwise the linker leaves 33,000 addresses to be written at each start, of a hook too, into
//! pages that are then every process's own. The main image then has no random address; libraries,
//! heap and stacks keep theirs. With `crt-static` the flags of the compiler decide it.

use std::env;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // A list, separated by commas.
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
