//! What may be sent again after a failure, and how often.

use parking_lot::Mutex;
use tonic::{Code, Status};

/// What a failed call says of its replica, and what becomes of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The connection broke, or there was none.
    Connection,
    /// The replica says that it does not serve: loading, draining or unhealthy.
    NotServing,
    /// The replica's queue is full.
    Full,
    /// The step of this request failed; the next may not.
    Step,
    /// It is the request's fault, or its deadline: any replica would say the same.
    Request,
}

impl Failure {
    /// Reads a status. Score, Embed and Tokenize have no side effects: what got no answer may be
    /// asked again.
    pub(crate) fn of(status: &Status) -> Self {
        let from_transport = std::error::Error::source(status).is_some();
        match status.code() {
            Code::DeadlineExceeded => Self::Request,
            _ if from_transport => Self::Connection,
            Code::Unavailable => Self::NotServing,
            Code::ResourceExhausted => Self::Full,
            Code::Internal => Self::Step,
            // A server never says these: the answer ended without a status, or was reset. Our own
            // cancellation is not seen, because then nobody waits for the call any more.
            Code::Unknown | Code::Cancelled => Self::Connection,
            _ => Self::Request,
        }
    }
}

/// Keeps retries a small share of all work: when everything fails, repeating it makes it worse.
#[derive(Debug)]
pub(crate) struct RetryBudget {
    ratio: f64,
    reserve: f64,
    balance: Mutex<f64>,
}

impl RetryBudget {
    /// `ratio` retries for each call, and `reserve` at once.
    pub(crate) fn new(ratio: f64, reserve: u32) -> Self {
        let reserve = f64::from(reserve);
        Self {
            ratio,
            reserve,
            balance: Mutex::new(reserve),
        }
    }

    /// A first call was made.
    pub(crate) fn deposit(&self) {
        let mut balance = self.balance.lock();
        *balance = (*balance + self.ratio).min(self.reserve);
    }

    /// Whether one more call may be made.
    pub(crate) fn withdraw(&self) -> bool {
        let mut balance = self.balance.lock();
        if *balance < 1.0 {
            return false;
        }
        *balance -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_status_says_whose_fault_it_is() {
        let cases = [
            (Status::unavailable("draining"), Failure::NotServing),
            (Status::resource_exhausted("queue full"), Failure::Full),
            (Status::internal("the step failed"), Failure::Step),
            (Status::unknown("no status"), Failure::Connection),
            (Status::invalid_argument("documents"), Failure::Request),
            (Status::deadline_exceeded("late"), Failure::Request),
            (Status::failed_precondition("task"), Failure::Request),
            (Status::not_found("model"), Failure::Request),
        ];
        for (status, failure) in cases {
            assert_eq!(Failure::of(&status), failure, "{status}");
        }
        let broken = std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let mut reset = Status::internal("h2 protocol error");
        reset.set_source(Arc::new(broken));
        assert_eq!(Failure::of(&reset), Failure::Connection);
    }

    #[test]
    fn the_budget_is_a_share_with_a_reserve() {
        let budget = RetryBudget::new(0.5, 2);
        assert!(budget.withdraw() && budget.withdraw());
        assert!(!budget.withdraw(), "the reserve is spent");
        budget.deposit();
        assert!(!budget.withdraw(), "half a retry is none");
        budget.deposit();
        assert!(budget.withdraw());
        (0..100).for_each(|_| budget.deposit());
        assert!(budget.withdraw() && budget.withdraw());
        assert!(!budget.withdraw(), "no more than the reserve is saved up");
    }
}
