//! Cross-encoders: each document is read together with the query.

use tokio::time::Instant;
use tulip_proto::v1::Input;

use super::ranking::Value;
use super::{METHOD, Options, Scored, encode_documents, missing_query, set_aside};
use crate::deadline::Deadline;
use crate::error::{Error, Result};
use crate::service::encode::Around;
use crate::service::item::is_sequence;
use crate::service::parts::Spent;
use crate::service::serving::{Account, Serving};

/// The scores of the documents by the model's logits.
pub(super) async fn by_pairs(
    serving: &Serving,
    query: Option<Input>,
    documents: Vec<Input>,
    options: &Options,
    deadline: &Deadline,
) -> Result<Scored> {
    let num_documents = documents.len();
    let tokenize = Instant::now();
    let mut encoded = match query {
        Some(query) => {
            if let Some(index) = documents.iter().position(is_sequence) {
                let message = "is SEQUENCE, a whole pair: query must then be absent";
                return Err(Error::invalid(format!("documents[{index}].form"), message));
            }
            let query = serving
                .encode_pair_query(query, &options.instruction, &options.truncation)
                .await?;
            let around = Around::Query(&query);
            encode_documents(serving, documents, around, options).await?
        }
        None => {
            if !documents.iter().all(is_sequence) {
                return Err(missing_query());
            }
            if !options.instruction.is_empty() {
                let message = "is given, but the documents are complete sequences";
                return Err(Error::invalid("instruction", message));
            }
            encode_documents(serving, documents, Around::Prompt(""), options).await?
        }
    };
    encoded.check_strict(options.strict)?;
    let account = Account {
        method: METHOD,
        items: num_documents,
        input_tokens: encoded.num_tokens(),
        sequences: encoded.sequences.len(),
        tokenize: tokenize.elapsed(),
    };
    let sequences = std::mem::take(&mut encoded.sequences);
    let output = serving
        .compute(sequences, options.priority, deadline)
        .await?;
    set_aside(&mut encoded, &output.not_finite);
    let mut spent = Spent::default();
    spent.add(&output);

    let mut rows = output.rows;
    let mut values = Vec::with_capacity(encoded.items.len());
    for row in rows.chunks_exact_mut(output.width) {
        values.push(if options.raw {
            Value::plain(row[options.label])
        } else {
            let activation = serving.info.activation;
            let order = activation.logit(row, options.label);
            activation.apply(row);
            let score = row[options.label];
            Value { score, order }
        });
    }
    let label_rows = if options.all_labels { rows } else { Vec::new() };
    Ok(Scored {
        num_documents,
        encoded,
        spent,
        account,
        values,
        label_rows,
    })
}
