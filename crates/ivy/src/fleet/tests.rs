//! The fleet over simulated replicas, under a paused clock.

mod agreement;
mod failures;
mod hedging;
mod limits;
mod members;
mod merging;
mod sharing;
