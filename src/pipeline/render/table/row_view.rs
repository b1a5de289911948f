//! One of `rows`, and what is left of `rows` when they were sorted, selected or sliced.

use std::sync::Arc;

use minijinja::value::{Enumerator, Object, Value as Printed, ValueKind};

use super::rows::Rows;

/// One of `rows`, as a template sees it: a map of its columns, which also answers to `@type` and the like.
#[derive(Debug)]
pub(in crate::pipeline::render) struct RowView {
    pub(in crate::pipeline::render) rows: Arc<Rows>,
    pub(in crate::pipeline::render) at: usize,
}

impl RowView {
    /// The rows that `value` is or lists, with their places among all, if it has no others.
    pub(in crate::pipeline::render) fn selection(value: &Printed) -> Option<(Arc<Rows>, Vec<usize>)> {
        if let Some(rows) = value.downcast_object::<Rows>() {
            let places = (0..rows.len()).collect();
            return Some((rows, places));
        }
        if value.kind() != ValueKind::Seq {
            return None;
        }
        let mut all: Option<Arc<Rows>> = None;
        let mut places = Vec::new();
        for item in value.try_iter().ok()? {
            let row = item.downcast_object_ref::<Self>()?;
            let rows = all.get_or_insert_with(|| Arc::clone(&row.rows));
            if !Arc::ptr_eq(rows, &row.rows) {
                return None;
            }
            places.push(row.at);
        }
        all.map(|rows| (rows, places))
    }
}

impl Object for RowView {
    fn get_value(self: &Arc<Self>, key: &Printed) -> Option<Printed> {
        self.get_value_by_str(key.as_str()?)
    }

    fn get_value_by_str(self: &Arc<Self>, key: &str) -> Option<Printed> {
        self.rows.value(self.at, key)
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.rows.columns().iter().map(|name| Printed::from(name.as_str())).collect())
    }
}
