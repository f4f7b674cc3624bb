//! Runs the normalizer of a `tokenizer.json` step by step, and refuses a text that grows beyond a
//! limit.
//!
//! The `tokenizers` crate has no limit: forty steps that replace `a` with `aa` would make a
//! terabyte of `a`.

use tokenizers::{NormalizedString, Normalizer, NormalizerWrapper};

use super::failures::keep_error;

/// The maximum number of bytes that a normalizer may make of one byte of text. Llama 2's makes up
/// to 12: it inserts `▁` before the text and replaces each space with it.
const MAX_GROWTH: usize = 256;

/// The steps of a normalizer, in order.
#[derive(Clone)]
pub(super) struct NormalizerSteps(Vec<NormalizerStep>);

#[derive(Clone)]
struct NormalizerStep {
    normalizer: NormalizerWrapper,
    /// The maximum number of bytes that the step makes of one byte; 1 for steps that cannot make
    /// any number.
    growth: usize,
}

impl From<NormalizerWrapper> for NormalizerSteps {
    fn from(normalizer: NormalizerWrapper) -> Self {
        Self(steps(normalizer))
    }
}

fn steps(normalizer: NormalizerWrapper) -> Vec<NormalizerStep> {
    match normalizer {
        NormalizerWrapper::Sequence(steps) => steps.into_iter().flat_map(self::steps).collect(),
        normalizer => vec![NormalizerStep { growth: growth(&normalizer), normalizer }],
    }
}

fn growth(normalizer: &NormalizerWrapper) -> usize {
    match normalizer {
        NormalizerWrapper::Prepend(prepend) => 1 + prepend.prepend.len(),
        NormalizerWrapper::Replace(replace) => {
            let fields = serde_json::to_value(replace).unwrap_or_default();
            match fields["pattern"]["String"].as_str() {
                Some(pattern) if !pattern.is_empty() => replace.content.len().div_ceil(pattern.len()).max(1),
                // A regular expression can match between all bytes.
                _ => 1 + replace.content.len(),
            }
        }
        _ => 1,
    }
}

impl Normalizer for NormalizerSteps {
    fn normalize(&self, text: &mut NormalizedString) -> tokenizers::Result<()> {
        let max_len = MAX_GROWTH.saturating_mul(text.get_original().len());
        let result = self.0.iter().try_for_each(|step| {
            if text.get().len().saturating_mul(step.growth) > max_len {
                let step = "a `Replace` or `Prepend` of the normalizer";
                return Err(format!("{step} may make more than {MAX_GROWTH} bytes of a byte of text").into());
            }
            step.normalizer.normalize(text)
        });
        result.inspect_err(keep_error)
    }
}
