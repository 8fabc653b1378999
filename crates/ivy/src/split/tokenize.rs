//! `Tokenize` is never cut: it costs a replica no step.

use std::ops::Range;

use tonic::Request;
use tulip_proto::v1::{TokenizeRequest, TokenizeResponse};

use super::weight::Weight;
use super::{Mismatch, Part, Report, Split};
use crate::replica::connection::{Answer, Connection};

impl Split for TokenizeRequest {
    type Answer = TokenizeResponse;
    const ITEMS: &'static str = "inputs";

    fn weights(&self, _max_sequence_tokens: usize) -> Vec<Weight> {
        vec![Weight::default(); self.inputs.len()]
    }

    fn is_divisible(&self) -> bool {
        false
    }

    fn part(&self, _items: Range<usize>, model: &str) -> Self {
        Self {
            model: model.into(),
            ..self.clone()
        }
    }

    fn send(connection: &dyn Connection, call: Request<Self>) -> Answer<TokenizeResponse> {
        connection.tokenize(call)
    }

    fn report(_answer: &TokenizeResponse) -> Report<'_> {
        Report::default()
    }

    fn merge(&self, parts: Vec<Part<TokenizeResponse>>) -> Result<TokenizeResponse, Mismatch> {
        let count = parts.len();
        let only = parts.into_iter().next().filter(|_| count == 1);
        let message = format!("Tokenize was answered in {count} parts");
        only.map(|part| part.answer).ok_or(Mismatch(message))
    }
}
