//! The formats of tool calls, one file for each family of formats.

mod gemma;
mod harmony;
mod invocations;
mod json;
mod mistral;
mod pairs;
mod parameters;
mod pythonic;
mod sections;

use super::{call_form::CallForm, call_format::CallFormat};

/// Every format, in the order in which templates are searched for them: formats with marks that no
/// other format has come first.
const SEARCH_ORDER: &[CallForm] = &[
    CallForm::Harmony,
    CallForm::Gemma4,
    CallForm::FunctionGemma,
    CallForm::Mistral,
    CallForm::DeepSeek,
    CallForm::KimiK2,
    CallForm::MiniMax,
    CallForm::Cohere,
    CallForm::Lfm2,
    CallForm::Granite,
    CallForm::Glm,
    CallForm::Parameters,
    CallForm::TaggedJson,
    CallForm::ToolCode,
    CallForm::Pythonic,
    CallForm::Json,
];

impl CallForm {
    /// Returns the format that a chat template shows.
    pub(super) fn shown_by(template: &str) -> Option<Self> {
        let template = template.replace("\\\"", "\"");
        let has_all = |marks: &&[&str]| marks.iter().all(|mark| template.contains(mark));
        let shown = |form: &CallForm| form.format().template_marks.iter().any(has_all);
        SEARCH_ORDER.iter().copied().find(shown)
    }

    pub(super) fn format(self) -> &'static CallFormat {
        match self {
            Self::TaggedJson => &json::TAGGED,
            Self::Parameters => &parameters::FORMAT,
            Self::Json => &json::UNMARKED,
            Self::Pythonic => &pythonic::UNMARKED,
            Self::ToolCode => &pythonic::TOOL_CODE,
            Self::Gemma4 => &gemma::GEMMA_4,
            Self::FunctionGemma => &gemma::FUNCTION_GEMMA,
            Self::Mistral => &mistral::FORMAT,
            Self::Harmony => &harmony::FORMAT,
            Self::Glm => &pairs::FORMAT,
            Self::MiniMax => &invocations::FORMAT,
            Self::DeepSeek => &sections::DEEP_SEEK,
            Self::KimiK2 => &sections::KIMI_K2,
            Self::Cohere => &json::ACTIONS,
            Self::Granite => &json::LIST,
            Self::Lfm2 => &pythonic::MARKED,
        }
    }
}
