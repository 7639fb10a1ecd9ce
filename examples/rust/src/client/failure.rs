//! What a call or a part of it failed with, and whether another attempt may help.

use std::{collections::HashMap, error::Error, fmt, time::Duration};

use tokio::time::{Instant, sleep_until};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::v1::StreamlogError;

#[derive(Clone, Debug)]
pub struct Failure {
    /// The code of streamlog, or the status of gRPC where the error is not streamlog's.
    pub reason: String,
    pub message: String,
    /// A call that may be executed twice without harm is worth another attempt.
    pub may_repeat: bool,
    pub details: HashMap<String, String>,
}

impl Failure {
    pub fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into(), may_repeat: false, details: HashMap::new() }
    }

    /// There was no time left.
    pub fn late() -> Self {
        Status::deadline_exceeded("not done within the time that the program allows").into()
    }

    /// Why a transaction was aborted, where it says so.
    pub fn cause(&self) -> &str {
        self.details.get("cause_code").unwrap_or(&self.reason)
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        let details = status.get_error_details();
        let info = details.error_info().filter(|info| info.domain == "streamlog");
        // A connection broke: what the node did is unknown.
        let broken = matches!(
            status.code(),
            Code::Unavailable | Code::DeadlineExceeded | Code::Cancelled | Code::Unknown | Code::Internal
        );
        Self {
            reason: info.map_or_else(|| format!("{:?}", status.code()), |info| info.reason.clone()),
            message: status.message().into(),
            // Also of OUTCOME_UNKNOWN: without RetryInfo another attempt does not help, or does harm.
            may_repeat: if info.is_some() { details.retry_info().is_some() } else { broken },
            details: info.map(|info| info.metadata.clone()).unwrap_or_default(),
        }
    }
}

impl From<StreamlogError> for Failure {
    fn from(error: StreamlogError) -> Self {
        Self { reason: error.code, message: error.message, may_repeat: error.retriable, details: error.details }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.reason, self.message)
    }
}

impl Error for Failure {}

/// Attempts at one thing, with growing pauses.
pub struct Attempts {
    deadline: Instant,
    number: u32,
}

impl Attempts {
    pub fn until(deadline: Instant) -> Self {
        Self { deadline, number: 0 }
    }

    /// Waits before another attempt. False where there is no time left: then the error of the last attempt is the caller's.
    pub async fn again(&mut self) -> bool {
        let pause = Duration::from_millis(50 << self.number.min(5)).min(Duration::from_secs(1));
        self.number += 1;
        let next = Instant::now() + pause;
        sleep_until(next.min(self.deadline)).await;
        next < self.deadline
    }
}
