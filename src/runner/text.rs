//! Text: completions of prompts, and answers to conversations.

#[cfg(feature = "chat")]
use super::Answer;
use super::Runner;
#[cfg(all(feature = "chat", not(feature = "constrained")))]
use super::tool_choice::refuse_forced_calls;
#[cfg(feature = "constrained")]
use crate::grammar::AfterReasoning;
#[cfg(feature = "chat")]
use crate::{
    Error,
    chat::{ChatOptions, Message},
};
use crate::{
    Result,
    generate::{Completion, GenerateOptions, GenerateRequest, Generation, Prompt, generate_many},
};

impl Runner {
    /// Goes on from a prompt, which is text or token ids. The pieces of text come from the
    /// [`Generation`] as they are made.
    ///
    /// A text is encoded as the file says: special tokens that it spells out count as such, and
    /// those that begin a sequence are added. Ids are used as they are.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an empty prompt or an option out of its range, [`Error::Tokenizer`](crate::Error::Tokenizer) for a prompt that the
    /// vocabulary cannot express, [`Error::ContextFull`](crate::Error::ContextFull) for one that is longer than the context.
    pub fn generate<'p>(&mut self, prompt: impl Into<Prompt<'p>>, options: &GenerateOptions) -> Result<Generation<'_>> {
        let ids = prompt.into().into_ids(&self.tokenizer)?;
        self.generation(ids, options)
    }

    /// Generates a text for each of many prompts at once, and returns the texts in the prompts'
    /// order. Each request has options of its own. A step computes a token of up to 16 texts, which
    /// costs little more than a token of one; the common beginning of all prompts is computed once.
    ///
    /// `on_piece` gets the number of a prompt and the next piece of its text, and ends that text by
    /// returning false. A [`GenerateRequest`] has a text's own processors and stop handle; its
    /// prompt may be a rendered chat template.
    ///
    /// On a CPU each text is the one that [`generate`](Self::generate) makes alone, for logits are
    /// the same bit for bit in steps of any size. On a GPU steps of one token, of a few and of many
    /// run through different kernels, which round differently: a text may differ from the one alone
    /// where two tokens are almost equally probable.
    ///
    /// Of texts that a [`memory_limit`](super::RunnerBuilder::memory_limit) has no room for at once, some
    /// wait. The runner's sequence holds the common beginning afterwards, for the next call.
    ///
    /// ```
    /// use inkstone::{GenerateOptions, Runner};
    ///
    /// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
    /// let options = GenerateOptions { max_tokens: Some(8), ..Default::default() };
    /// let animals = ["fox", "hen", "owl"].map(|animal| format!("Once upon a time there was a little {animal}"));
    /// let requests = animals.iter().map(|prompt| (prompt, &options));
    /// let texts = runner.generate_many(requests, |index, piece| {
    ///     println!("{index}: {piece}");
    ///     true
    /// })?;
    /// assert_eq!(texts.len(), 3);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Request`](crate::Error::Request) with the number of a prompt and the error that
    /// [`generate`](Self::generate) gives for it, before anything is computed where it is in the
    /// prompt or the options. Whatever the device reports.
    pub fn generate_many<'p>(
        &mut self,
        requests: impl IntoIterator<Item: Into<GenerateRequest<'p>>>,
        on_piece: impl FnMut(usize, &str) -> bool,
    ) -> Result<Vec<Completion>> {
        generate_many(&mut self.decoder, self.sequence, &self.tokenizer, requests, on_piece)
    }

    /// Answers a conversation, by the model's chat template or the builder's. The pieces of the
    /// answer's text come from the [`Answer`] as they are made; what the model thinks before is
    /// among its [`events`](Answer::events). A conversation that goes on from the last one costs
    /// its new messages only. Special tokens that a message spells out are text.
    ///
    /// ```no_run
    /// use inkstone::{GenerateOptions, Message, Runner};
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let mut messages = vec![Message::system("Be brief."), Message::user("Why is the sky blue?")];
    /// let mut answer = runner.chat(&messages, &GenerateOptions::default())?;
    /// for piece in &mut answer {
    ///     print!("{}", piece?);
    /// }
    /// messages.push(answer.message());
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] where the file has no template or it refuses the messages; else as
    /// [`generate`](Self::generate).
    #[cfg(feature = "chat")]
    pub fn chat(&mut self, messages: &[Message], options: &GenerateOptions) -> Result<Answer<'_>> {
        self.chat_with(messages, &ChatOptions::default(), options)
    }

    /// As [`chat`](Self::chat), with tools, documents and whatever else the template reads, such as `enable_thinking`.
    ///
    /// ```no_run
    /// use inkstone::chat::{AnswerEvent, ChatOptions, Tool};
    /// use inkstone::{GenerateOptions, Message, Runner};
    /// use serde_json::json;
    ///
    /// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
    /// let schema = json!({"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]});
    /// let chat = ChatOptions::default().tools([Tool::new("weather", "The weather at a place", schema)]);
    /// let mut messages = vec![Message::user("How is the weather in Oslo?")];
    /// let mut answer = runner.chat_with(&messages, &chat, &GenerateOptions::default())?;
    /// let mut results = vec![];
    /// for event in answer.events() {
    ///     match event? {
    ///         AnswerEvent::Text(text) => print!("{text}"),
    ///         AnswerEvent::ToolCall(call) => results.push(Message::tool(call.name, "fair, 12 °C")),
    ///         _ => {}
    ///     }
    /// }
    /// messages.push(answer.message());
    /// messages.extend(results);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`chat`](Self::chat); [`Error::ChatTemplate`] also where the template never reads an
    /// option that is set, or shows no known form of calls; [`Error::Argument`] for a tool with a
    /// schema that calls cannot be checked by, for a choice of a tool that is not offered, for one
    /// that forces a call without the feature `constrained`, and for tools together with
    /// [`GenerateOptions::grammar`] unless the choice is
    /// [`ToolChoice::None`](crate::chat::ToolChoice::None); `Error::Grammar` for a choice of tools
    /// with a schema that no grammar can hold to.
    #[cfg(feature = "chat")]
    pub fn chat_with(
        &mut self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Answer<'_>> {
        if messages.is_empty() {
            return Err(Error::argument("messages", "are none, but there must be at least one"));
        }
        let template = self.chat_template()?;
        let prompt = template.prompt(messages, chat, &self.tokenizer)?;
        let parser = template.parser(chat, &prompt.text)?;
        #[cfg(feature = "constrained")]
        let (parser, form) = self.form_of_answer(parser, options)?;
        #[cfg(not(feature = "constrained"))]
        refuse_forced_calls(&parser)?;
        let marks: Vec<u32> =
            self.tokenizer.control_tokens().filter(|(_, text)| parser.reads(text)).map(|(id, _)| id).collect();
        #[cfg(feature = "constrained")]
        if let Some(form) = form {
            let constraint = form.constraint(self.config.vocab_size)?;
            let constraint = AfterReasoning::new(constraint, &parser, &prompt.text, &self.tokenizer)?;
            let free = GenerateOptions { grammar: None, ..options.clone() };
            let generation = self.generation(prompt.ids, &free)?.with_form(constraint);
            return Ok(Answer::new(generation.showing(marks), parser));
        }
        Ok(Answer::new(self.generation(prompt.ids, options)?.showing(marks), parser))
    }

    fn generation(&mut self, ids: Vec<u32>, options: &GenerateOptions) -> Result<Generation<'_>> {
        Generation::new(&mut self.decoder, self.sequence, ids, &self.tokenizer, options)
    }
}
