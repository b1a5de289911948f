//! The remaining steps of a template or a condition.
//!
//! minijinja counts its instructions, but one instruction can read or create any amount of data. So
//! each operation pays here before its work: one step for an item, and one for every
//! [`BYTES_A_STEP`] of text. An account serves one condition, or all attempts to render one
//! notification.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use minijinja::{
    Error, ErrorKind, State,
    value::{Object, ObjectRepr, Value},
};

/// Bytes of text that cost one step: they take about as long as one item of a list.
pub(in crate::pipeline) const BYTES_A_STEP: usize = 16;
/// Longest text that a template or a condition may create, in bytes; no notification is longer.
pub(in crate::pipeline) const TEXT_BYTES_MAX: usize = 64 * 1024;
/// Deepest nesting of a value that a template creates: deeper ones would cause deep recursion.
pub(in crate::pipeline) const NESTING_MAX: usize = 32;

/// The variable with a program's account. It is not a valid name in a source.
pub(in crate::pipeline) const ACCOUNT: &str = "@account";

/// How the message begins that a program has spent its steps.
pub(in crate::pipeline) const OVER_BUDGET: &str = "it exceeds its budget of";
/// How the message begins that a program has run for too long.
pub(in crate::pipeline) const ENDLESS: &str = "it ran for more than";

/// The number of remaining steps.
///
/// Shape: atomic, because values of templates are shared between threads; only one thread spends at
/// a time.
#[derive(Debug)]
pub(in crate::pipeline) struct Account {
    all: u64,
    left: AtomicU64,
}

impl Account {
    pub(in crate::pipeline) fn new(steps: u64) -> Arc<Self> {
        Arc::new(Self { all: steps, left: AtomicU64::new(steps) })
    }

    /// The number of spent steps.
    #[cfg(test)]
    pub(in crate::pipeline) fn spent(&self) -> u64 {
        self.all - self.left.load(Ordering::Relaxed)
    }

    /// Pays `steps`.
    ///
    /// Errors: fewer are left; then none remain.
    pub(in crate::pipeline) fn spend(&self, steps: u64) -> Result<(), Error> {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(steps), Ordering::Relaxed);
        if left < steps {
            let message = format!("{OVER_BUDGET} {} steps", self.all);
            return Err(Error::new(ErrorKind::OutOfFuel, message));
        }
        Ok(())
    }

    /// Pays for creating or reading `bytes` of text.
    pub(in crate::pipeline) fn spend_text(&self, bytes: usize) -> Result<(), Error> {
        self.spend(steps_of_text(bytes))
    }
}

impl Object for Account {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }
}

/// The price of a filter or a test, paid before its work.
#[derive(Clone, Copy)]
pub(in crate::pipeline::sandbox) enum Price {
    /// One step: it reads one value.
    One,
    /// One step per item of its first argument, or the length of its text.
    Items,
    /// All of its first argument.
    All,
    /// All of its first argument several times: each letter is looked up in tables.
    Letters,
    /// All of its first argument, for each comparison of the sort.
    Sorting,
}

/// The price of a text of `bytes`.
pub(in crate::pipeline) fn steps_of_text(bytes: usize) -> u64 {
    1 + (bytes / BYTES_A_STEP) as u64
}

/// The account of a running program.
///
/// Errors: the run has no account, which is a fault of this program.
pub(in crate::pipeline) fn account(state: &mut State<'_, '_>) -> Result<Arc<Account>, Error> {
    if let Some(account) = state.get_extension::<Arc<Account>>() {
        return Ok(Arc::clone(account));
    }
    let found = state.lookup(ACCOUNT).and_then(|value: Value| value.downcast_object::<Account>());
    let account = found.ok_or_else(|| Error::new(ErrorKind::InvalidOperation, "no step budget is set"))?;
    Ok(Arc::clone(state.get_or_insert_extension_with(|| account)))
}

/// Pays for creating or reading `bytes` of text, from the account of a running program.
pub(in crate::pipeline) fn spend_text(state: &mut State<'_, '_>, bytes: usize) -> Result<(), Error> {
    match state.get_extension::<Arc<Account>>() {
        Some(account) => account.spend_text(bytes),
        None => account(state)?.spend_text(bytes),
    }
}

/// Checks the length of a text that will be created, and pays for it.
pub(in crate::pipeline) fn admit_text(account: &Account, bytes: usize) -> Result<(), Error> {
    if bytes > TEXT_BYTES_MAX {
        let message = format!("a text of more than {TEXT_BYTES_MAX} bytes");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    account.spend_text(bytes)
}

/// Checks that a list or map is not too large for one text: its text has at least one byte per step
/// of its weight.
pub(in crate::pipeline) fn admit_as_text(account: &Account, value: &Value) -> Result<(), Error> {
    if value.as_str().is_none() && weigh(account, value)? > TEXT_BYTES_MAX as u64 {
        return admit_text(account, TEXT_BYTES_MAX + 1);
    }
    Ok(())
}

/// Pays for all of `value`, items and texts, and returns the price.
///
/// Errors: it is nested deeper than [`NESTING_MAX`], or too few steps are left.
pub(in crate::pipeline) fn weigh(account: &Account, value: &Value) -> Result<u64, Error> {
    weigh_below(account, value, 0)
}

fn weigh_below(account: &Account, value: &Value, depth: usize) -> Result<u64, Error> {
    if let Some(text) = value.as_str() {
        account.spend_text(text.len())?;
        return Ok(steps_of_text(text.len()));
    }
    account.spend(1)?;
    let Some(object) = value.as_object() else { return Ok(1) };
    if depth > NESTING_MAX {
        let message = format!("a value nested deeper than {NESTING_MAX} levels");
        return Err(Error::new(ErrorKind::InvalidOperation, message));
    }
    let mut steps = 1;
    if object.repr() == ObjectRepr::Map {
        for (key, value) in object.try_iter_pairs().into_iter().flatten() {
            steps += weigh_below(account, &key, depth + 1)? + weigh_below(account, &value, depth + 1)?;
        }
    } else {
        for item in object.try_iter().into_iter().flatten() {
            steps += weigh_below(account, &item, depth + 1)?;
        }
    }
    Ok(steps)
}
