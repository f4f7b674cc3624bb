//! Generates text: continuations of prompts, and answers to conversations.

#[cfg(feature = "chat")]
use super::Answer;
use super::Runner;
#[cfg(all(feature = "chat", not(feature = "constrained")))]
use super::tool_choice::refuse_forced_calls;
#[cfg(feature = "chat")]
use crate::chat::{ChatOptions, Message};
#[cfg(feature = "constrained")]
use crate::grammar::AfterReasoning;
use crate::{
    Result,
    generate::{Completion, GenerateOptions, GenerateRequest, Generation, PlacedPrompt, Prompt, generate_many},
};

impl Runner {
    /// Continues a prompt, which is text or token ids. The returned [`Generation`] is an iterator
    /// over the pieces of text, which are generated as it is read.
    ///
    /// In a prompt of text, the text of special tokens becomes these tokens, and tokens that begin
    /// a sequence are added as the model's metadata says. Ids are used as they are.
    ///
    /// # Errors
    /// [`Error::Argument`](crate::Error::Argument) for an empty prompt or an option out of its
    /// range; [`Error::Tokenizer`](crate::Error::Tokenizer) for a prompt that the vocabulary cannot
    /// express, [`Error::ContextFull`](crate::Error::ContextFull) for one that is longer than the
    /// context.
    pub fn generate<'p>(&mut self, prompt: impl Into<Prompt<'p>>, options: &GenerateOptions) -> Result<Generation<'_>> {
        let prompt = self.place(prompt.into())?;
        self.generation(prompt, options)
    }

    /// Generates one text for each of several requests at once, and returns the texts in the order
    /// of the requests. Each step computes a token of up to 16 texts, which takes little more time
    /// than a token of one text. The common beginning of all prompts is computed once.
    ///
    /// `on_piece` is called with the index of a request and the next piece of its text, and ends
    /// that text by returning false. A [`GenerateRequest`] can have its own processors and stop
    /// handles, and its prompt can be a rendered chat template.
    ///
    /// On a CPU, each text equals the text of [`generate`](Self::generate), because logits are
    /// identical bit for bit in steps of any size. On a GPU, steps of up to 16 tokens and longer
    /// steps use different kernels, which round differently, so a text may differ if two tokens are
    /// almost equally probable.
    ///
    /// If a [`memory_limit`](super::RunnerBuilder::memory_limit) has no room for all texts at once,
    /// some of them wait. Afterwards the runner's sequence has the common beginning, for the next
    /// call.
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
    /// [`Error::Request`](crate::Error::Request) with the index of a request and its error, as of
    /// [`generate`](Self::generate); before any computation if it concerns the prompt or the
    /// options. Errors of the device.
    pub fn generate_many<'p>(
        &mut self,
        requests: impl IntoIterator<Item: Into<GenerateRequest<'p>>>,
        on_piece: impl FnMut(usize, &str) -> bool,
    ) -> Result<Vec<Completion>> {
        let placed = requests.into_iter().enumerate().map(|(index, request)| {
            request.into().place(|prompt| self.place(prompt)).map_err(|error| error.in_request(index))
        });
        let requests = placed.collect::<Result<Vec<_>>>()?;
        generate_many(&mut self.decoder, self.sequence, &self.tokenizer, requests, on_piece)
    }

    /// Answers a conversation. The returned [`Answer`] is an iterator over the pieces of the
    /// answer's text; its [`events`](Answer::events) also include the reasoning. A conversation
    /// that continues the last one only computes its new messages. Special tokens in messages are
    /// text.
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
    /// [`Error::ChatTemplate`](crate::Error::ChatTemplate) if there is no template, or if it
    /// rejects the messages; otherwise as [`generate`](Self::generate).
    #[cfg(feature = "chat")]
    pub fn chat(&mut self, messages: &[Message], options: &GenerateOptions) -> Result<Answer<'_>> {
        self.chat_with(messages, &ChatOptions::default(), options)
    }

    /// Answers a message of a user with the default options, and returns the text of the answer.
    /// The message is the whole conversation: earlier ones are forgotten.
    ///
    /// ```
    /// use inkstone::Runner;
    ///
    /// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
    /// println!("{}", runner.ask("Tell me a story about a fox and a lantern")?);
    /// # Ok::<(), inkstone::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`chat`](Self::chat) and its [`Answer`].
    #[cfg(feature = "chat")]
    pub fn ask(&mut self, message: &str) -> Result<String> {
        self.chat(&[Message::user(message)], &GenerateOptions::default())?.into_text()
    }

    /// Answers a conversation as [`chat`](Self::chat) does, with tools, documents and other
    /// variables of the template, such as `enable_thinking`.
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
    /// As [`chat`](Self::chat); [`Error::ChatTemplate`](crate::Error::ChatTemplate) also if the
    /// template never reads an option that is set, or shows no known format of tool calls;
    /// [`Error::Argument`](crate::Error::Argument) for a tool with a schema that calls cannot be
    /// checked against, for a choice of a tool that is not offered, for a choice that forces a call
    /// without the feature `constrained`, and for tools together with [`GenerateOptions::grammar`]
    /// unless the choice is [`ToolChoice::None`](crate::chat::ToolChoice::None); `Error::Grammar`
    /// for a tool choice with a schema that a grammar cannot express.
    #[cfg(feature = "chat")]
    pub fn chat_with(
        &mut self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Result<Answer<'_>> {
        if messages.is_empty() {
            return Err(crate::Error::argument("messages", "must not be empty: pass at least one message"));
        }
        let template = self.chat_template()?;
        let prompt = template.prompt(messages, chat, &self.tokenizer)?;
        let parser = template.parser(chat, &prompt.text)?;
        #[cfg(feature = "constrained")]
        let (parser, grammar) = self.answer_grammar(parser, options)?;
        #[cfg(not(feature = "constrained"))]
        refuse_forced_calls(&parser)?;
        let placed = self.place(Prompt::from(&prompt))?;
        let marks: Vec<u32> =
            self.tokenizer.control_tokens().filter(|(_, text)| parser.reads(text)).map(|(id, _)| id).collect();
        #[cfg(feature = "constrained")]
        if let Some(grammar) = grammar {
            let constraint = grammar.constraint(self.config.vocab_size)?;
            let constraint = AfterReasoning::new(constraint, &parser, &prompt.text, &self.tokenizer)?;
            let unconstrained = GenerateOptions { grammar: None, ..options.clone() };
            let generation = self.generation(placed, &unconstrained)?.with_constraint(constraint);
            return Ok(Answer::new(generation.showing(marks), parser));
        }
        Ok(Answer::new(self.generation(placed, options)?.showing(marks), parser))
    }

    fn generation(&mut self, prompt: PlacedPrompt, options: &GenerateOptions) -> Result<Generation<'_>> {
        Generation::with_images(&mut self.decoder, self.sequence, prompt, &self.tokenizer, options)
    }
}
