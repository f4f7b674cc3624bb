//! Generates values of Rust types.

use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use super::Runner;
use crate::{
    Error, Result,
    chat::{AnswerEvent, ChatOptions, Message},
    generate::{GenerateOptions, Prompt, StopHandle, StopReason},
    grammar::{Grammar, Grammars, closed_schema_of},
};

impl Runner {
    /// Returns the grammar compiler for the model's vocabulary, for [`GenerateOptions::grammar`].
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

    /// Continues a prompt with compact JSON of a type, and returns the value. The text is
    /// constrained to what serde reads: the limits of integers, finite floats, only the fields of
    /// the type. [`grammar`](crate::grammar#rust-types) lists the supported types. A grammar in
    /// `options` is replaced.
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
    /// [`Error::Grammar`] if the type's schema has an unsupported keyword; it names the type, the
    /// field and the keyword. [`Error::Incomplete`] if the text ended early, for example at the
    /// token limit, and [`Error::Form`] if serde rejects a complete text; both contain the text.
    /// Otherwise as [`generate`](Self::generate).
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
        value(text, &generation.summary().stop)
    }

    /// Answers a conversation with compact JSON of a type, and returns the value, as
    /// [`generate_as`](Self::generate_as) does. Reasoning before the answer is unconstrained and
    /// dropped. A grammar in `options` is replaced.
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
                AnswerEvent::ToolCall(call) => {
                    let what = format!("it is a call of the tool `{}`: do not offer tools", call.name);
                    return Err(Error::Form { form: type_name::<T>(), what, text: call.arguments.to_string() });
                }
            }
        }
        value(text, &answer.summary().stop)
    }

    fn grammar_of<T: JsonSchema>(&self) -> Result<Grammar> {
        self.grammars()?.json_of_type(&type_name::<T>(), &closed_schema_of::<T>())
    }
}

/// Parses a generated text. A text that was cut off counts as complete if it cannot continue.
fn value<T: DeserializeOwned>(text: String, stop: &StopReason) -> Result<T> {
    let form = type_name::<T>();
    let value = serde_json::from_str(&text);
    match (stop, value) {
        (StopReason::EndOfGeneration(_), Ok(value)) => Ok(value),
        // Only a number could continue, with more digits.
        (_, Ok(value)) if !text.ends_with(|last: char| last.is_ascii_digit()) => Ok(value),
        (StopReason::EndOfGeneration(_), Err(error)) => {
            let what =
                format!("{error}: express this rule in the type's schema by an attribute of schemars, or try again");
            Err(Error::Form { form, what, text })
        }
        (stop, _) => Err(Error::Incomplete { form, stop: format!("{stop:?}"), what: advice(stop), text }),
    }
}

/// Returns the advice for a text that was cut off.
fn advice(stop: &StopReason) -> String {
    match stop {
        StopReason::TokenLimit => "raise `max_tokens`, or limit the lengths in the schema of the type".into(),
        StopReason::ContextEnd => "shorten the prompt, or build the runner with a larger `context_length`".into(),
        StopReason::StopString(stop) => format!("remove the stop string {stop:?} from the options"),
        StopReason::Caller => "do not stop it before its end".into(),
        StopReason::EndOfGeneration(_) | StopReason::Error => "see the earlier error".into(),
    }
}

/// Returns the name of a type without the paths of modules, as in `Vec<City>`.
fn type_name<T>() -> String {
    let mut name = String::new();
    for part in std::any::type_name::<T>().split_inclusive(|c: char| !c.is_alphanumeric() && c != '_' && c != ':') {
        name += part.rsplit("::").next().unwrap_or(part);
    }
    name
}
