//! The form in which an answer is read.
//!
//! Shape: one struct with the fields of every outcome, for the reason of a watch's stored part.

use std::sync::Arc;

use serde::Deserialize;

use super::{Answered, Checks, Failure, Head, Outcome, Pr, Remark};

#[derive(Deserialize)]
pub(super) struct StoredAnswer {
    follow: Arc<str>,
    call: u32,
    outcome: Kind,
    message: Option<String>,
    is_certain: Option<bool>,
    wait_seconds: Option<u64>,
    #[serde(default)]
    repo: String,
    url: Option<String>,
    #[serde(default)]
    passed: u32,
    #[serde(default)]
    failed: u32,
    #[serde(default)]
    pending: u32,
    #[serde(default)]
    skipped: u32,
    #[serde(default)]
    failures: Vec<Failure>,
    #[serde(default)]
    head: Head,
    pr: Option<Pr>,
    #[serde(default)]
    remarks: Vec<Remark>,
}

#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Checks,
    Unknown,
    Limited,
    Unauthorised,
    NoProgram,
    NotOfGithub,
    Failed,
}

/// An answer lacks a field that its outcome has.
#[derive(Debug, thiserror::Error)]
#[error("an answer lacks a field of its outcome")]
pub(super) struct Incomplete;

impl TryFrom<StoredAnswer> for Answered {
    type Error = Incomplete;

    fn try_from(mut answer: StoredAnswer) -> Result<Self, Incomplete> {
        let (follow, call) = (std::mem::take(&mut answer.follow), answer.call);
        let outcome = answer.outcome().ok_or(Incomplete)?;
        Ok(Self { follow, call, outcome })
    }
}

impl StoredAnswer {
    fn outcome(self) -> Option<Outcome> {
        Some(match self.outcome {
            Kind::Checks => Outcome::Checks(Checks {
                repo: self.repo,
                url: self.url,
                passed: self.passed,
                failed: self.failed,
                pending: self.pending,
                skipped: self.skipped,
                failures: self.failures,
                head: self.head,
                pr: self.pr,
                remarks: self.remarks,
                wait_seconds: self.wait_seconds,
            }),
            Kind::Unknown => Outcome::Unknown,
            Kind::Limited => {
                Outcome::Limited { wait_seconds: self.wait_seconds, is_certain: self.is_certain? }
            }
            Kind::Unauthorised => Outcome::Unauthorised { message: self.message? },
            Kind::NoProgram => Outcome::NoProgram,
            Kind::NotOfGithub => Outcome::NotOfGithub,
            Kind::Failed => Outcome::Failed { message: self.message? },
        })
    }
}
