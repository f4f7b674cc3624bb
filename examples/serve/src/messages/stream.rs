//! The stream of Anthropic's API.

use serde_json::{Value, json};

use super::{Head, start, stop_reason, usage};
use crate::{
    engine::{Ended, Event, Piece},
    sse::{Encoder, Message},
};

/// Writes the events of a stream.
pub struct MessageStream {
    head: Head,
    /// Number of blocks that have ended.
    blocks: usize,
    /// The block that goes on.
    open: Option<Block>,
}

#[derive(Clone, Copy, PartialEq)]
enum Block {
    Thinking,
    Text,
}

impl MessageStream {
    /// Returns a writer of an answer.
    pub fn new(head: Head) -> Self {
        Self { head, blocks: 0, open: None }
    }

    /// Begins a block, after the end of another one.
    fn begin(&mut self, block: Block, events: &mut Vec<Value>) {
        if self.open == Some(block) {
            return;
        }
        self.end(events);
        let content = match block {
            Block::Thinking => json!({"type": "thinking", "thinking": "", "signature": ""}),
            Block::Text => json!({"type": "text", "text": ""}),
        };
        events.push(json!({"type": "content_block_start", "index": self.blocks, "content_block": content}));
        self.open = Some(block);
    }

    fn end(&mut self, events: &mut Vec<Value>) {
        let Some(block) = self.open.take() else { return };
        if block == Block::Thinking {
            events.push(self.delta(json!({"type": "signature_delta", "signature": ""})));
        }
        events.push(json!({"type": "content_block_stop", "index": self.blocks}));
        self.blocks += 1;
    }

    fn delta(&self, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": self.blocks, "delta": delta})
    }

    fn add(&mut self, piece: Piece, events: &mut Vec<Value>) {
        match piece {
            Piece::Reasoning(_) if self.head.omits_thinking => {}
            Piece::Reasoning(text) => {
                self.begin(Block::Thinking, events);
                events.push(self.delta(json!({"type": "thinking_delta", "thinking": text})));
            }
            Piece::Text(text) => {
                self.begin(Block::Text, events);
                events.push(self.delta(json!({"type": "text_delta", "text": text})));
            }
            Piece::Call(call) => {
                self.end(events);
                let content = json!({"type": "tool_use", "id": call.id, "name": call.name, "input": {}});
                events.push(json!({"type": "content_block_start", "index": self.blocks, "content_block": content}));
                let arguments = call.arguments.to_string();
                events.push(self.delta(json!({"type": "input_json_delta", "partial_json": arguments})));
                events.push(json!({"type": "content_block_stop", "index": self.blocks}));
                self.blocks += 1;
            }
        }
    }

    fn complete(&mut self, ended: &Ended, events: &mut Vec<Value>) {
        self.end(events);
        let (reason, stop) = stop_reason(&ended.finish);
        let delta = json!({"stop_reason": reason, "stop_sequence": stop});
        events.push(json!({"type": "message_delta", "delta": delta, "usage": usage(ended)}));
        events.push(json!({"type": "message_stop"}));
    }
}

impl Encoder for MessageStream {
    fn encode(&mut self, _: usize, event: Event) -> Vec<Message> {
        let mut events = vec![];
        match event {
            Event::Started(tokens) => {
                let mut message = start(&self.head);
                // How many of them are in the cache is known after the prompt was computed.
                message["usage"] = json!({"input_tokens": tokens, "output_tokens": 0});
                events.push(json!({"type": "message_start", "message": message}));
            }
            Event::Piece(piece, _) => self.add(piece, &mut events),
            Event::Ended(ended) => self.complete(&ended, &mut events),
            Event::Failed(error) => events.push(error.anthropic()),
        }
        events.into_iter().map(Message::Named).collect()
    }

    fn finish(&mut self) -> Vec<Message> {
        vec![]
    }

    fn keep_alive(&self) -> Option<Value> {
        Some(json!({"type": "ping"}))
    }
}
