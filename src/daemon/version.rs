//! Which program this is: its version, and its build.

/// The version of the package.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A hash of the sources, so that two programs of one version differ; 8 hexadecimal digits.
///
/// Source: `build.rs`.
pub const BUILD: &str = env!("ASIDE_BUILD");

/// Both, as semantic versioning writes build metadata: `0.1.0+1a2b3c4d`.
pub const FULL_VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+", env!("ASIDE_BUILD"));
