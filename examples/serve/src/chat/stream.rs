//! The stream of the chat API.

use serde_json::{Value, json};

use super::Head;
use crate::{
    engine::{Event, Piece},
    openai::output::{Usage, finish_reason, logprobs},
    sse::{Encoder, Message},
};

/// Writes the chunks of a stream.
pub struct ChatStream {
    head: Head,
    include_usage: bool,
    usage: Usage,
    /// Number of answers that have ended.
    ended: usize,
    /// Number of calls of each answer.
    calls: Vec<usize>,
    failed: bool,
}

impl ChatStream {
    pub(super) fn new(head: Head, choices: usize, include_usage: bool) -> Self {
        Self { head, include_usage, usage: Usage::default(), ended: 0, calls: vec![0; choices], failed: false }
    }

    fn chunk(&self, choices: Value) -> Message {
        let Head { id, created, model, .. } = &self.head;
        let mut chunk = json!({
            "id": id, "object": "chat.completion.chunk", "created": created, "model": model, "choices": choices,
        });
        if self.include_usage {
            chunk["usage"] = Value::Null;
        }
        Message::Data(chunk)
    }

    fn delta(&self, choice: usize, delta: Value, logprobs: Value, finish: Option<&str>) -> Message {
        self.chunk(json!([{"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}]))
    }
}

impl Encoder for ChatStream {
    fn encode(&mut self, choice: usize, event: Event) -> Vec<Message> {
        match event {
            Event::Started(_) => {
                vec![self.delta(choice, json!({"role": "assistant", "content": ""}), Value::Null, None)]
            }
            Event::Piece(Piece::Reasoning(text), _) => {
                vec![self.delta(choice, json!({"reasoning_content": text}), Value::Null, None)]
            }
            Event::Piece(Piece::Text(text), tokens) => {
                let logprobs = self.head.logprobs.then(|| json!({"content": logprobs(&tokens), "refusal": null}));
                vec![self.delta(choice, json!({"content": text}), logprobs.into(), None)]
            }
            Event::Piece(Piece::Call(call), _) => {
                let index = self.calls[choice];
                self.calls[choice] += 1;
                let begin = json!({
                    "index": index, "id": call.id, "type": "function",
                    "function": {"name": call.name, "arguments": ""},
                });
                let arguments = json!({"index": index, "function": {"arguments": call.arguments.to_string()}});
                let delta = |call| self.delta(choice, json!({"tool_calls": [call]}), Value::Null, None);
                vec![delta(begin), delta(arguments)]
            }
            Event::Ended(ended) => {
                if self.ended == 0 {
                    self.usage.add(&ended)
                } else {
                    self.usage.add_answer(&ended)
                }
                self.ended += 1;
                vec![self.delta(choice, json!({}), Value::Null, Some(finish_reason(&ended.finish)))]
            }
            Event::Failed(error) => {
                self.failed = true;
                vec![Message::Data(error.openai())]
            }
        }
    }

    fn finish(&mut self) -> Vec<Message> {
        if self.failed {
            return vec![];
        }
        let usage = self.include_usage.then(|| {
            let Message::Data(mut chunk) = self.chunk(json!([])) else { return Message::Done };
            chunk["usage"] = self.usage.chat();
            Message::Data(chunk)
        });
        usage.into_iter().chain([Message::Done]).collect()
    }
}
