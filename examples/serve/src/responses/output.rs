//! The response of the responses API, and its stream.

use std::mem;

use serde_json::{Map, Value, json};

use super::{Settings, input::seal};
use crate::{
    engine::{Ended, Event, Finish, Piece, TokenLogprob},
    error::ApiError,
    id,
    openai::output::{Usage, logprobs},
    sse::{Encoder, Message},
};

/// Writes a response, and the events of its stream.
pub struct ResponseWriter {
    id: String,
    created: u64,
    model: String,
    settings: Settings,
    status: &'static str,
    /// Items that are complete.
    output: Vec<Value>,
    open: Option<OpenItem>,
    usage: Option<Usage>,
    incomplete: Value,
    error: Value,
    /// Events that were not sent.
    events: Vec<Value>,
    /// Number of events so far.
    said: usize,
}

/// The item that goes on.
struct OpenItem {
    id: String,
    is_reasoning: bool,
    text: String,
    tokens: Vec<TokenLogprob>,
}

impl OpenItem {
    /// Returns the names of its events and of its part.
    fn names(&self) -> [&'static str; 3] {
        if self.is_reasoning {
            ["response.reasoning_text.delta", "response.reasoning_text.done", "reasoning_text"]
        } else {
            ["response.output_text.delta", "response.output_text.done", "output_text"]
        }
    }

    /// Returns the part with a text.
    fn part(&self, text: &str) -> Value {
        let [_, _, kind] = self.names();
        if self.is_reasoning {
            return json!({"type": kind, "text": text});
        }
        json!({"type": kind, "text": text, "annotations": [], "logprobs": logprobs(&self.tokens)})
    }

    /// Returns the item with its parts.
    fn item(&self, content: Vec<Value>, status: &str, settings: &Settings) -> Value {
        let id = &self.id;
        if !self.is_reasoning {
            return json!({"id": id, "type": "message", "status": status, "role": "assistant", "content": content});
        }
        let mut item = json!({"id": id, "type": "reasoning", "status": status, "summary": [], "content": content});
        if settings.encrypted_reasoning && !self.text.is_empty() {
            item["encrypted_content"] = seal(&self.text).into();
        }
        item
    }
}

impl ResponseWriter {
    /// Returns a writer of a new response of a model.
    pub fn new(model: String, settings: Settings) -> Self {
        Self {
            id: id::unique("resp_"),
            created: id::now(),
            model,
            settings,
            status: "in_progress",
            output: vec![],
            open: None,
            usage: None,
            incomplete: Value::Null,
            error: Value::Null,
            events: vec![],
            said: 0,
        }
    }

    /// Adds an event of the engine.
    ///
    /// # Errors
    /// The error of the answer.
    pub fn add(&mut self, event: Event) -> Result<(), ApiError> {
        match event {
            Event::Started(_) => {
                for kind in ["response.created", "response.in_progress"] {
                    let response = self.response();
                    self.say(kind, json!({"response": response}));
                }
            }
            Event::Piece(Piece::Reasoning(text), _) => self.add_text(true, &text, vec![]),
            Event::Piece(Piece::Text(text), tokens) => self.add_text(false, &text, tokens),
            Event::Piece(Piece::Call(call), _) => {
                self.end_item("completed");
                self.add_call(call.id.unwrap_or_default(), &call.name, &call.arguments);
            }
            Event::Ended(ended) => self.complete(&ended),
            Event::Failed(error) => return Err(error),
        }
        Ok(())
    }

    /// Returns the response so far.
    pub fn response(&self) -> Value {
        let mut response = Map::from_iter([
            ("id".to_owned(), json!(self.id)),
            ("object".to_owned(), json!("response")),
            ("created_at".to_owned(), json!(self.created)),
            ("status".to_owned(), json!(self.status)),
            ("background".to_owned(), json!(false)),
            ("error".to_owned(), self.error.clone()),
            ("incomplete_details".to_owned(), self.incomplete.clone()),
            ("model".to_owned(), json!(self.model)),
            ("output".to_owned(), json!(self.output)),
            ("previous_response_id".to_owned(), Value::Null),
            ("store".to_owned(), json!(false)),
            ("truncation".to_owned(), json!("disabled")),
            ("usage".to_owned(), self.usage.as_ref().map(Usage::responses).into()),
        ]);
        response.extend(self.settings.fields.clone());
        Value::Object(response)
    }

    fn say(&mut self, kind: &str, fields: Value) {
        let mut event = json!({"type": kind, "sequence_number": self.said});
        self.said += 1;
        if let (Value::Object(event), Value::Object(fields)) = (&mut event, fields) {
            event.extend(fields);
        }
        self.events.push(event);
    }

    fn add_text(&mut self, is_reasoning: bool, text: &str, tokens: Vec<TokenLogprob>) {
        if self.open.as_ref().is_none_or(|open| open.is_reasoning != is_reasoning) {
            self.end_item("completed");
            self.begin_item(is_reasoning);
        }
        let Some(open) = &mut self.open else { return };
        open.text += text;
        let [kind, ..] = open.names();
        let mut event = json!({
            "item_id": open.id, "output_index": self.output.len(), "content_index": 0, "delta": text,
        });
        if !is_reasoning {
            event["logprobs"] = logprobs(&tokens).into();
        }
        open.tokens.extend(tokens);
        self.say(kind, event);
    }

    fn begin_item(&mut self, is_reasoning: bool) {
        let id = id::unique(if is_reasoning { "rs_" } else { "msg_" });
        let open = OpenItem { id, is_reasoning, text: String::new(), tokens: vec![] };
        let index = self.output.len();
        let item = open.item(vec![], "in_progress", &self.settings);
        self.say("response.output_item.added", json!({"output_index": index, "item": item}));
        let part = json!({"item_id": open.id, "output_index": index, "content_index": 0, "part": open.part("")});
        self.say("response.content_part.added", part);
        self.open = Some(open);
    }

    fn end_item(&mut self, status: &str) {
        let Some(open) = self.open.take() else { return };
        let index = self.output.len();
        let [_, kind, _] = open.names();
        let at = json!({"item_id": open.id, "output_index": index, "content_index": 0});
        let with = |name: &str, value: Value| {
            let mut event = at.clone();
            event[name] = value;
            event
        };
        let mut text = with("text", open.text.as_str().into());
        if !open.is_reasoning {
            text["logprobs"] = logprobs(&open.tokens).into();
        }
        self.say(kind, text);
        let part = open.part(&open.text);
        self.say("response.content_part.done", with("part", part.clone()));
        let item = open.item(vec![part], status, &self.settings);
        self.say("response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn add_call(&mut self, call_id: String, name: &str, arguments: &Value) {
        let (id, index, arguments) = (id::unique("fc_"), self.output.len(), arguments.to_string());
        let namespace = self.settings.namespaces.get(name).cloned();
        let name = namespace.as_ref().map_or(name, |(_, name)| name);
        let item = |arguments: &str, status: &str| {
            let mut item = json!({
                "id": id, "type": "function_call", "status": status, "call_id": call_id, "name": name,
                "arguments": arguments,
            });
            if let Some((namespace, _)) = &namespace {
                item["namespace"] = namespace.as_str().into();
            }
            item
        };
        self.say("response.output_item.added", json!({"output_index": index, "item": item("", "in_progress")}));
        let delta = json!({"item_id": id, "output_index": index, "delta": arguments});
        self.say("response.function_call_arguments.delta", delta);
        let done = json!({"item_id": id, "output_index": index, "name": name, "arguments": arguments});
        self.say("response.function_call_arguments.done", done);
        let item = item(&arguments, "completed");
        self.say("response.output_item.done", json!({"output_index": index, "item": item}));
        self.output.push(item);
    }

    fn complete(&mut self, ended: &Ended) {
        let is_complete = !matches!(ended.finish, Finish::TokenLimit | Finish::ContextEnd);
        self.status = if is_complete { "completed" } else { "incomplete" };
        self.end_item(self.status);
        let mut usage = Usage::default();
        usage.add(ended);
        self.usage = Some(usage);
        if !is_complete {
            self.incomplete = json!({"reason": "max_output_tokens"});
        }
        let kind = format!("response.{}", self.status);
        let response = self.response();
        self.say(&kind, json!({"response": response}));
    }
}

impl Encoder for ResponseWriter {
    fn encode(&mut self, _: usize, event: Event) -> Vec<Message> {
        if let Err(error) = self.add(event) {
            self.status = "failed";
            self.error = error.of_response();
            let response = self.response();
            self.say("response.failed", json!({"response": response}));
        }
        mem::take(&mut self.events).into_iter().map(Message::Named).collect()
    }

    fn finish(&mut self) -> Vec<Message> {
        vec![]
    }
}
