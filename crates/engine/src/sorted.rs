//! Ordered collections in one vector, for few entries.
//!
//! Shape: as [`BTreeMap`](std::collections::BTreeMap) and [`BTreeSet`](std::collections::BTreeSet),
//! with the same order and the same encoding. A lookup is a binary search. An insertion at the end is
//! immediate; elsewhere it moves the entries behind it, so a collection of thousands that changes
//! with every event is a tree instead. Each type of a tree is compiled again, with ten times the
//! code.

mod map;
mod set;

pub use self::{map::SortedMap, set::SortedSet};

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_sorted_map_equals_a_tree(steps in prop::collection::vec((0..5_u8, 0..12_u8, any::<u8>()), 0..60)) {
            let (mut map, mut tree) = (SortedMap::new(), BTreeMap::new());
            for (step, key, value) in steps {
                match step {
                    0 => prop_assert_eq!(map.insert(key, value), tree.insert(key, value)),
                    1 => prop_assert_eq!(map.remove(&key), tree.remove(&key)),
                    2 => prop_assert_eq!(&*map.get_or_default(key), &*tree.entry(key).or_default()),
                    3 => {
                        let least = tree.iter().min_by_key(|(_, value)| **value).map(|(key, _)| *key);
                        let least = least.and_then(|key| tree.remove_entry(&key));
                        prop_assert_eq!(map.pop_least(|value| *value), least);
                    }
                    _ => prop_assert_eq!(map.pop_first(), tree.pop_first()),
                }
                prop_assert_eq!(map.get(&key), tree.get(&key));
                prop_assert_eq!(map.last().map(|(key, _)| key), tree.keys().next_back());
                prop_assert!(map.range_from(&key).iter().map(|(key, _)| key).eq(tree.range(key..).map(|(key, _)| key)));
            }
            prop_assert_eq!(format!("{map:?}"), format!("{tree:?}"));
        }

        #[test]
        fn a_sorted_set_equals_a_tree(steps in prop::collection::vec((any::<bool>(), 0..12_u8), 0..60)) {
            let (mut set, mut tree) = (SortedSet::new(), BTreeSet::new());
            for (inserts, member) in steps {
                if inserts {
                    prop_assert_eq!(set.insert(member), tree.insert(member));
                } else {
                    prop_assert_eq!(set.remove(&member), tree.remove(&member));
                }
                prop_assert_eq!(set.contains(&member), tree.contains(&member));
                prop_assert!(set.after(&member).iter().eq(tree.range(member + 1..)));
            }
            prop_assert_eq!(format!("{set:?}"), format!("{tree:?}"));
        }
    }
}
