//! Parts of answers.

use serde_json::{Value, json};

use crate::engine::{Ended, Finish, TokenLogprob};

/// Returns the reason why an answer ended.
pub fn finish_reason(finish: &Finish) -> &'static str {
    match finish {
        Finish::Turn | Finish::StopString(_) => "stop",
        Finish::TokenLimit | Finish::ContextEnd => "length",
        Finish::Calls => "tool_calls",
    }
}

/// Counts the tokens of all answers to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Tokens of the prompts; answers to the same prompt share it.
    pub prompt: usize,
    /// Tokens of the prompts that were in the cache.
    pub cached: usize,
    /// Generated tokens.
    pub completion: usize,
    /// Generated tokens of reasoning.
    pub reasoning: usize,
}

impl Usage {
    /// Adds an answer to a prompt that no earlier answer has.
    pub fn add(&mut self, ended: &Ended) {
        self.prompt += ended.summary.prompt_tokens;
        self.cached += ended.summary.cached_tokens;
        self.add_answer(ended);
    }

    /// Adds another answer to the same prompt.
    pub fn add_answer(&mut self, ended: &Ended) {
        self.completion += ended.summary.generated_tokens;
        self.reasoning += ended.reasoning_tokens;
    }

    /// Returns the counts as the chat and the completions API have them.
    pub fn chat(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt,
            "completion_tokens": self.completion,
            "total_tokens": self.prompt + self.completion,
            "prompt_tokens_details": {"cached_tokens": self.cached},
            "completion_tokens_details": {"reasoning_tokens": self.reasoning},
        })
    }

    /// Returns the counts as the responses API has them.
    pub fn responses(&self) -> Value {
        json!({
            "input_tokens": self.prompt,
            "input_tokens_details": {"cached_tokens": self.cached, "cache_write_tokens": 0},
            "output_tokens": self.completion,
            "output_tokens_details": {"reasoning_tokens": self.reasoning},
            "total_tokens": self.prompt + self.completion,
        })
    }
}

/// Returns the log-probabilities of tokens as the chat API has them.
pub fn logprobs(tokens: &[TokenLogprob]) -> Vec<Value> {
    let of = |token: &TokenLogprob| {
        let text = String::from_utf8_lossy(&token.bytes);
        json!({"token": text, "logprob": token.logprob, "bytes": token.bytes})
    };
    let with_top = |token: &TokenLogprob| {
        let mut value = of(token);
        value["top_logprobs"] = token.top.iter().map(of).collect();
        value
    };
    tokens.iter().map(with_top).collect()
}
