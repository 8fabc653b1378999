//! Requests to simulated replicas, and waiting for them.

use std::time::Duration;

use tokio::time::Instant;
use tulip_proto::v1::*;

use crate::fleet::Fleet;

/// A complete sequence whose first token is `id`.
pub(crate) fn sequence(id: u32, tokens: usize) -> Input {
    let mut packed = vec![0; 4 * tokens];
    packed[..4].copy_from_slice(&id.to_le_bytes());
    Input {
        content: Some(input::Content::TokenIds(packed.into())),
        form: TokenIdsForm::Sequence.into(),
        second_segment_start: 0,
    }
}

/// Documents with the ids 1, 2, 3 ….
pub(crate) fn score_request(documents: u32, tokens: usize) -> ScoreRequest {
    ScoreRequest {
        documents: (1..=documents).map(|id| sequence(id, tokens)).collect(),
        ..ScoreRequest::default()
    }
}

/// Waits until `count` replicas are in use.
pub(crate) async fn until_ready(fleet: &Fleet, count: usize) {
    use crate::backend::{Backend as _, ReplicaState};
    let ready = |fleet: &Fleet| {
        let load = fleet.load().into_iter();
        load.filter(|replica| replica.state == ReplicaState::Ready)
            .count()
    };
    let mut changed = fleet.registry.subscribe();
    while ready(fleet) != count {
        changed.changed().await.unwrap();
    }
}

/// Far enough that it never comes.
pub(crate) fn late() -> Instant {
    Instant::now() + Duration::from_secs(3600)
}
