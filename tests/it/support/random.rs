//! Random cases: of a property, and of a test that draws its cases by itself.

use std::env;

use proptest::{prelude::ProptestConfig, test_runner::RngSeed};

/// `cases` cases, which are the same in every run by `seed`, unless `PROPTEST_CASES` or
/// `PROPTEST_RNG_SEED` is set. A failing case is not kept: it becomes a scenario.
pub(crate) fn fixed_cases(cases: u32, seed: u64) -> ProptestConfig {
    let mut config = ProptestConfig { failure_persistence: None, ..ProptestConfig::default() };
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = cases;
    }
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(seed);
    }
    config
}

/// A random generator with a seed.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5bd1)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).expect("small")]
    }

    /// True in so many of 100 cases.
    pub(crate) fn percent(&mut self, share: u64) -> bool {
        self.below(100) < share
    }
}

/// The number in the variable `name` of the environment, if it is set.
///
/// # Panics
/// If it is no number.
pub(crate) fn number(name: &str) -> Option<u64> {
    env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is no number: {text}")))
}

/// Runs `check` for each seed: `VARIABLE_SEED` alone, or as many as `VARIABLE_SEEDS` says, else `default`.
///
/// # Panics
/// If one fails, with the command that runs it again.
pub(crate) fn each_seed(variable: &str, default: u64, mut check: impl FnMut(u64) -> Result<(), String>) {
    let one = format!("{variable}_SEED");
    let seeds = match number(&one) {
        Some(seed) => seed..seed + 1,
        None => 0..number(&format!("{variable}_SEEDS")).unwrap_or(default),
    };
    for seed in seeds {
        if let Err(what) = check(seed) {
            panic!("seed {seed}: {what}\nagain with: {one}={seed}");
        }
    }
}
