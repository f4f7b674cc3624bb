//! Messages in, the prompt out, in the words that the model was trained with; and its answer apart again.
//!
//! The words are in the model file: `tokenizer.chat_template`, a Jinja template written for Hugging Face's `apply_chat_template`.
//! It is rendered by minijinja set up as transformers sets up jinja2: blocks trimmed, Python's methods on strings and
//! dicts, `raise_exception`, `strftime_now`, its `tojson`, `{% break %}` and `{% continue %}`.
//!
//! The template comes from an untrusted file: it can reach nothing but its arguments; its steps are bounded, and so are the
//! sizes that it names or multiplies and what it writes. Strings that it doubles step by step and never writes are not:
//! minijinja adds them up itself and has no bound, nor has jinja2.
//! The conversation comes from untrusted people: special tokens that it spells are text ([`ChatTemplate::prompt`]).

mod answer;
mod limits;
mod message;
mod methods;
mod options;
mod provenance;
mod python;
mod source;
mod template;

pub use answer::{AnswerEvent, AnswerParser, CallForm};
pub use message::{Content, Document, Message, Part, Tool, ToolCall};
pub use options::ChatOptions;
pub use template::{ChatTemplate, Prompt};
