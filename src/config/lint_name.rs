//! The names of the lints.

use strum::{EnumString, IntoStaticStr, VariantArray};

engine::words::impl_as_str!(LintName);

/// The name of a lint: in messages, in an allowance and on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr, EnumString, VariantArray)]
#[strum(serialize_all = "kebab-case")]
#[expect(missing_docs, reason = "the table of lints describes them")]
pub enum LintName {
    ConstantWhere,
    EndsEarly,
    EventField,
    LiteralCount,
    LostKey,
    MissingSomewhere,
    NarrowerCore,
    NeverPasses,
    NoEffect,
    NoEqual,
    PlainText,
    ResolvesItself,
    SameEvents,
    UnknownField,
    UnknownSubscriber,
    UnknownType,
    Untested,
    UnusedAllow,
    UnusedFile,
}
