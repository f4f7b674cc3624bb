//! The marks around reasoning, by model family.

/// The marks that a model writes around its reasoning.
#[derive(Debug)]
pub(super) struct ReasoningMarks {
    /// Texts that mark the chat templates of models with these marks: a template contains one of
    /// them.
    template_marks: &'static [&'static str],
    pub open: &'static str,
    pub close: &'static str,
    /// Whether reasoning may begin anywhere in an answer, and not only at its start. This holds for
    /// opening marks that are special tokens, because text cannot quote them.
    pub anywhere: bool,
}

/// The marks of gpt-oss: reasoning ends where a message for the user begins.
pub(super) const HARMONY: ReasoningMarks = ReasoningMarks {
    template_marks: &["<|channel|>analysis"],
    open: "<|channel|>analysis<|message|>",
    close: "<|start|>assistant<|channel|>final<|message|>",
    anywhere: true,
};

const MARKS: &[ReasoningMarks] = &[
    HARMONY,
    ReasoningMarks { template_marks: &["<|channel>"], open: "<|channel>thought", close: "<channel|>", anywhere: true },
    ReasoningMarks {
        template_marks: &["<|START_THINKING|>"],
        open: "<|START_THINKING|>",
        close: "<|END_THINKING|>",
        anywhere: true,
    },
    ReasoningMarks { template_marks: &["[THINK]"], open: "[THINK]", close: "[/THINK]", anywhere: true },
    ReasoningMarks { template_marks: &["<think>", "</think>"], open: "<think>", close: "</think>", anywhere: false },
];

impl ReasoningMarks {
    /// Returns the marks that a chat template shows; `None` for models without reasoning.
    pub fn shown_by(template: &str) -> Option<&'static Self> {
        MARKS.iter().find(|marks| marks.template_marks.iter().any(|mark| template.contains(mark)))
    }
}
