//! Links the program at a fixed address where it is linked dynamically with GNU's C library, and
//! identifies the build.
//!
//! Without the fixed address the linker leaves 33,000 addresses to be written at each start, of a
//! hook too, into pages that are then every process's own. The main image then has no random
//! address; libraries, heap and stacks keep theirs. With `crt-static` the flags of the compiler
//! decide it.
//!
//! The build is a hash of all that is compiled or embedded (`src/daemon/version.rs`): a program that was
//! replaced by a newer one of the same version can then be noticed.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Everything that is compiled or embedded.
const SOURCES: [&str; 8] =
    ["src", "crates", "share", "config", "subscribers", "templates", "Cargo.toml", "Cargo.lock"];

fn main() -> io::Result<()> {
    println!("cargo:rerun-if-changed=build.rs");
    let is = |name: &str, value: &str| env::var(name).is_ok_and(|found| found == value);
    // A list, separated by commas.
    let features = env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    let is_static = features.split(',').any(|feature| feature == "crt-static");
    if is("CARGO_CFG_TARGET_OS", "linux") && is("CARGO_CFG_TARGET_ENV", "gnu") && !is_static {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
    let mut hash = Fnv(0xcbf2_9ce4_8422_2325);
    for source in SOURCES {
        println!("cargo:rerun-if-changed={source}");
        for file in files(Path::new(source))? {
            hash.add(file.to_string_lossy().as_bytes());
            hash.add(&fs::read(file)?);
        }
    }
    println!("cargo:rustc-env=ASIDE_BUILD={:08x}", hash.0 >> 32);
    Ok(())
}

/// The file, or all files below the folder, sorted.
fn files(path: &Path) -> io::Result<Vec<PathBuf>> {
    if !path.is_dir() {
        // A package may lack a file of the repository.
        return Ok(if path.exists() { vec![path.to_owned()] } else { Vec::new() });
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<_>>()?;
    entries.sort();
    entries.iter().map(|entry| files(entry)).collect::<io::Result<Vec<_>>>().map(|found| found.concat())
}

/// The 64-bit FNV-1a hash, each part with its length; it need not resist anybody.
struct Fnv(u64);

impl Fnv {
    fn add(&mut self, part: &[u8]) {
        for byte in part.len().to_le_bytes().iter().chain(part) {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}
