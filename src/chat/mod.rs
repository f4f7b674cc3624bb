//! Messages in, the prompt out, in the words that the model was trained with; and its answer apart again.
//!
//! The words are in the model file: `tokenizer.chat_template`, a Jinja template written for Hugging Face's `apply_chat_template`.
//! It is rendered by minijinja set up as transformers sets up jinja2: blocks trimmed, Python's methods on strings and
//! dicts, `raise_exception`, `strftime_now`, its `tojson`, `{% break %}` and `{% continue %}`.
//!
//! The template comes from an untrusted file: it can reach nothing but its arguments; its steps are bounded, and so are the
//! sizes that it names, what it writes and all the texts and lists that it makes on the way (320 MB).
//! The conversation comes from untrusted people: special tokens that it spells are text ([`ChatTemplate::prompt`]).

mod answer;
mod choice;
mod message;
mod options;
mod schema;
mod template;

pub use answer::{AnswerEvent, AnswerParser, CallForm};
pub use choice::ToolChoice;
pub use message::{Content, Document, Message, Part, Tool};
pub use options::ChatOptions;
pub use template::{ChatTemplate, RenderedPrompt};

pub use crate::tool_call::ToolCall;
