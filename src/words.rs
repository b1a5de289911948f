//! The words of enums, which `strum` derives from the names of their values.

/// Gives enums that derive `strum::IntoStaticStr` the method `as_str`.
///
/// One rule makes their words for files, records and the API, next to the one of serde. `strum` can
/// derive such a method too, but without documentation.
macro_rules! impl_as_str {
    ($($words:ident),+) => {
        $(impl $words {
            /// Its word in files, in records and in the API.
            pub fn as_str(self) -> &'static str {
                self.into()
            }
        })+
    };
}
