//! Streams events to clients.

use std::{collections::VecDeque, convert::Infallible};

use axum::response::{
    IntoResponse, Response, Sse,
    sse::{Event as Frame, KeepAlive},
};
use futures_util::stream;
use serde_json::Value;

use crate::{
    engine::{Event, Reply},
    limits,
};

/// An event of a stream.
#[derive(Clone, Debug, PartialEq)]
pub enum Message {
    /// An event without a name.
    Data(Value),
    /// An event whose name is its field `type`.
    Named(Value),
    /// The end of a stream of OpenAI's API.
    Done,
}

/// Translates the events of a job into those of an API.
pub trait Encoder: Send + 'static {
    /// Returns the events for an event of the answer `choice`.
    fn encode(&mut self, choice: usize, event: Event) -> Vec<Message>;

    /// Returns the events after the last one.
    fn finish(&mut self) -> Vec<Message>;

    /// Returns the event that keeps a connection open while there is nothing to say; `None` for a
    /// comment.
    fn keep_alive(&self) -> Option<Value> {
        None
    }
}

struct State<E> {
    reply: Reply,
    encoder: E,
    ready: VecDeque<Message>,
    ended: bool,
}

/// Returns the response that streams the events of a reply. Dropping it stops the reply's job.
pub fn respond(first: (usize, Event), reply: Reply, mut encoder: impl Encoder) -> Response {
    let keep_alive = KeepAlive::new().interval(limits::KEEP_ALIVE);
    let keep_alive = match encoder.keep_alive() {
        Some(event) => keep_alive.event(frame(Message::Named(event))),
        None => keep_alive,
    };
    let ready = encoder.encode(first.0, first.1).into();
    let state = State { reply, encoder, ready, ended: false };
    let frames = stream::unfold(state, |mut state| async {
        let message = state.next().await?;
        Some((Ok::<_, Infallible>(frame(message)), state))
    });
    Sse::new(frames).keep_alive(keep_alive).into_response()
}

impl<E: Encoder> State<E> {
    async fn next(&mut self) -> Option<Message> {
        while self.ready.is_empty() && !self.ended {
            match self.reply.next().await {
                Some((choice, event)) => self.ready.extend(self.encoder.encode(choice, event)),
                None => {
                    self.ended = true;
                    self.ready.extend(self.encoder.finish());
                }
            }
        }
        self.ready.pop_front()
    }
}

fn frame(message: Message) -> Frame {
    match message {
        Message::Data(value) => Frame::default().data(value.to_string()),
        Message::Named(value) => {
            let name = value["type"].as_str().unwrap_or_default().to_owned();
            Frame::default().event(name).data(value.to_string())
        }
        Message::Done => Frame::default().data("[DONE]"),
    }
}
