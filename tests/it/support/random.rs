//! The random cases of a property.

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
