//! The one integration binary: every file beside this one is a module of it.
#![cfg(test)]

mod tidy;
