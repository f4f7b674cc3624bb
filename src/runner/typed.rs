//! Answers that are values of a type.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::{Runner, closed_schema::closed_schema_of};
use crate::{
    Error, Result,
    chat::{AnswerEvent, ChatOptions, Message},
    generate::{GenerateOptions, Prompt, StopHandle, StopReason, Summary},
    grammar::{Grammar, Grammars},
};

impl Runner {
    /// Makes grammars over the model's vocabulary, for [`GenerateOptions::grammar`].
    ///
    /// ```no_run
    /// use inkstone::{GenerateOptions, Runner};
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let date = runner.grammars()?.regex("[0-9]{4}-[0-9]{2}-[0-9]{2}")?;
    /// let options = GenerateOptions { grammar: Some(date), ..Default::default() };
    /// let when: String = runner.generate("The Berlin Wall fell on ", &options)?.collect::<Result<_, _>>()?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Grammars::new`].
    pub fn grammars(&self) -> Result<&Grammars> {
        if let Some(grammars) = self.grammars.get() {
            return Ok(grammars);
        }
        let grammars = Grammars::new(&self.tokenizer)?;
        Ok(self.grammars.get_or_init(|| grammars))
    }

    /// Goes on from a prompt with JSON of the type's schema, and returns the value that it is. A grammar in `options` is
    /// replaced. Objects have the type's fields alone, also where `serde(flatten)` or a tag puts them together.
    ///
    /// ```no_run
    /// use inkstone::{GenerateOptions, Runner};
    ///
    /// #[derive(serde::Deserialize, schemars::JsonSchema)]
    /// struct City {
    ///     name: String,
    ///     population: u32,
    /// }
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let city: City = runner.generate_as("The capital of France as JSON: ", &GenerateOptions::default())?;
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Grammar`] for a type whose schema is not supported, and for a text that ended before it was complete; else as
    /// [`generate`](Self::generate).
    pub fn generate_as<'p, T: DeserializeOwned + JsonSchema>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Result<T> {
        self.generate_as_until(prompt, options, StopHandle::new())
    }

    pub(super) fn generate_as_until<'p, T: DeserializeOwned + JsonSchema>(
        &mut self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
        stop: StopHandle,
    ) -> Result<T> {
        let options = GenerateOptions { grammar: Some(self.grammar_of::<T>()?), ..options.clone() };
        let mut generation = self.generate(prompt, &options)?.with_stop_handle(stop);
        let text = generation.by_ref().collect::<Result<String>>()?;
        value(&text, generation.summary())
    }

    /// Answers a conversation with JSON of the type's schema, and returns the value that it is. A grammar in `options` is
    /// replaced. What the model thinks first is free, and left out.
    ///
    /// # Errors
    /// As [`generate_as`](Self::generate_as) and [`chat_with`](Self::chat_with).
    pub fn chat_as<T: DeserializeOwned + JsonSchema>(
        &mut self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<T> {
        self.chat_as_until(messages, chat, options, StopHandle::new())
    }

    pub(super) fn chat_as_until<T: DeserializeOwned + JsonSchema>(
        &mut self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
        stop: StopHandle,
    ) -> Result<T> {
        let options = GenerateOptions { grammar: Some(self.grammar_of::<T>()?), ..options.clone() };
        let mut answer = self.chat_with(messages, chat, &options)?.with_stop_handle(stop);
        let mut text = String::new();
        for event in answer.events() {
            match event? {
                AnswerEvent::Text(piece) => text += &piece,
                AnswerEvent::Reasoning(_) => {}
                AnswerEvent::ToolCall(_) => return Err(Error::Grammar(NO_ANSWER.into())),
            }
        }
        value(&text, answer.summary())
    }

    fn grammar_of<T: JsonSchema>(&self) -> Result<Grammar> {
        self.grammars()?.json_schema(&closed_schema_of::<T>())
    }
}

const NO_ANSWER: &str = "the text would be a call of a tool, not the answer: offer no tools";

fn value<T: DeserializeOwned>(text: &str, summary: &Summary) -> Result<T> {
    match &summary.stop {
        StopReason::EndOfGeneration(_) => {
            let value = serde_json::from_str(text).map(with_integer_zeros).and_then(serde_json::from_value);
            value.map_err(|e| Error::Grammar(format!("the text is not of the type: {e}: {text}")))
        }
        reason => {
            let what =
                format!("the text ended before it was complete ({reason:?}): allow more tokens or context: {text}");
            Err(Error::Grammar(what))
        }
    }
}

/// `-0` is an integer to JSON Schema and a floating-point number to serde: here it becomes 0.
fn with_integer_zeros(value: Value) -> Value {
    match value {
        Value::Number(number) if number.as_f64() == Some(0.0) => 0.into(),
        Value::Array(values) => values.into_iter().map(with_integer_zeros).collect(),
        Value::Object(fields) => fields.into_iter().map(|(key, value)| (key, with_integer_zeros(value))).collect(),
        value => value,
    }
}
