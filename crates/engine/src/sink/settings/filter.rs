//! The notices that a sink takes: keys of each table in `[sinks]`.

use crate::{
    notification::{Category, Level},
    settings::{Keys, settings},
    sink::Notice,
};

settings! {
    /// Which notices a sink takes.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Filter from impl Keys {
        /// The lowest level of a notice that this sink takes.
        level: Level = Level::Info, word();
        /// The categories that this sink takes; one without a category is none of them.
        categories: Vec<Category>, each_once(), like "[\"safety\", \"workflow\"]", else "it takes every notice";
    }
}

impl Filter {
    /// Whether the sink takes a notice.
    pub(crate) fn accepts(&self, notice: &Notice) -> bool {
        let has_category =
            |allowed: &Vec<Category>| notice.category.is_some_and(|own| allowed.contains(&own));
        notice.level >= self.level && self.categories.as_ref().is_none_or(has_category)
    }
}

#[cfg(test)]
mod tests {
    use journal::time::Timestamp;

    use super::*;

    #[test]
    fn level_and_category_select_notices() {
        let notice =
            |level, category| Notice { level, category, ..Notice::new("u1", "text", Timestamp::ZERO) };
        let filter = |level, categories| Filter { level, categories };
        let safety = || Some(vec![Category::Safety]);
        for (filter, level, category, expected) in [
            (Filter::default(), Level::Info, None, true),
            (filter(Level::Warn, None), Level::Info, None, false),
            (filter(Level::Warn, None), Level::Warn, Some(Category::Safety), true),
            (filter(Level::Info, safety()), Level::Info, Some(Category::Safety), true),
            (filter(Level::Info, safety()), Level::Error, Some(Category::Workflow), false),
            (filter(Level::Info, safety()), Level::Error, None, false),
            (filter(Level::Error, safety()), Level::Warn, Some(Category::Safety), false),
        ] {
            assert_eq!(
                filter.accepts(&notice(level, category)),
                expected,
                "{filter:?} {level:?} {category:?}"
            );
        }
    }
}
