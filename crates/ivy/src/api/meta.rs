//! Parts of answers that the dialects of Cohere, Jina, Voyage, OpenAI and vLLM share.

use serde::Serialize;
use utoipa::ToSchema;

use super::report::Report;

/// Cohere's `meta`.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
pub(crate) struct Meta {
    api_version: ApiVersion,
    billed_units: BilledUnits,
    tokens: MetaTokens,
    /// One sentence for each text that was cut, and for each document without a result.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct ApiVersion {
    version: &'static str,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct BilledUnits {
    #[serde(skip_serializing_if = "Option::is_none")]
    search_units: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    input_tokens: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
struct MetaTokens {
    input_tokens: u64,
    output_tokens: u64,
}

/// Documents that Cohere counts as one search.
const DOCUMENTS_PER_SEARCH: usize = 100;

impl Meta {
    fn new(version: &'static str, report: &Report, item: &str, billed_units: BilledUnits) -> Self {
        Self {
            api_version: ApiVersion { version },
            billed_units,
            tokens: MetaTokens {
                input_tokens: report.usage.input_tokens,
                output_tokens: 0,
            },
            warnings: report.warnings(item),
        }
    }

    /// Of a rerank answer.
    pub(crate) fn of_rerank(version: &'static str, report: &Report) -> Self {
        let billed_units = BilledUnits {
            search_units: Some(report.items.div_ceil(DOCUMENTS_PER_SEARCH)),
            input_tokens: None,
        };
        Self::new(version, report, "documents", billed_units)
    }

    /// Of an embed answer.
    pub(crate) fn of_embed(version: &'static str, report: &Report, item: &str) -> Self {
        let billed_units = BilledUnits {
            search_units: None,
            input_tokens: Some(report.usage.input_tokens),
        };
        Self::new(version, report, item, billed_units)
    }
}

/// Tokens of a request; nothing is generated, so both are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
pub(crate) struct TokenUsage {
    prompt_tokens: u64,
    total_tokens: u64,
}

impl TokenUsage {
    pub(crate) fn of(report: &Report) -> Self {
        Self {
            prompt_tokens: report.usage.input_tokens,
            total_tokens: report.usage.input_tokens,
        }
    }
}
