//! A runner for async code: it works on a thread of its own, and what it makes comes as streams.
//!
//! A step of a model keeps its thread busy for milliseconds, which no executor should have to bear; so requests go to the
//! runner's thread through a channel, and streams are the ends of channels that come back.

#[cfg(feature = "chat")]
mod answer;
mod reply;
mod stream;

use std::{
    fmt,
    sync::{Arc, mpsc},
    thread,
};

use futures_channel::oneshot;
#[cfg(feature = "constrained")]
use {schemars::JsonSchema, serde::de::DeserializeOwned};

#[cfg(feature = "chat")]
pub use self::answer::{AnswerEventStream, AnswerStream};
pub use self::reply::Reply;
pub use self::stream::GenerationStream;
use self::stream::{UpdateSender, Updates};
use super::Runner;
#[cfg(feature = "chat")]
use crate::chat::{ChatOptions, Message};
use crate::{
    Error, Result,
    generate::{Completion, GenerateOptions, GenerateRequest, Prompt, StopHandle, Summary},
};

/// What a runner's thread is asked to do.
type Request = Box<dyn FnOnce(&mut Runner) + Send>;

/// A runner on a thread of its own, for async code on any executor.
///
/// Requests are taken up at once and in turn: a stream need not be polled for its text to be made. Dropping a stream or a future
/// ends its request. Clones ask the same runner; [`another`](Self::another) has a sequence of its own. The thread ends
/// after the last of them is dropped.
///
/// ```no_run
/// use futures::StreamExt;
/// use inkstone::{AsyncRunner, GenerateOptions, Message, Runner};
///
/// # async fn run() -> inkstone::Result<()> {
/// let runner = AsyncRunner::load(|| Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")).await?;
/// let mut messages = vec![Message::user("Why is the sky blue?")];
/// let mut answer = runner.chat(&messages, &GenerateOptions::default());
/// while let Some(piece) = answer.next().await {
///     print!("{}", piece?);
/// }
/// messages.push(answer.message());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncRunner {
    model: Arc<Runner>,
    requests: mpsc::Sender<Request>,
}

impl AsyncRunner {
    /// Gives a runner a thread.
    ///
    /// # Errors
    /// [`Error::Thread`] where the system has none left.
    pub fn new(runner: Runner) -> Result<Self> {
        let model = Arc::new(runner.clone());
        let (requests, todo) = mpsc::channel::<Request>();
        let mut runner = runner;
        spawn(move || todo.into_iter().for_each(|request| request(&mut runner)))?;
        Ok(Self { model, requests })
    }

    /// Loads a model, on another thread than the caller's.
    ///
    /// # Errors
    /// As `load`; [`Error::Thread`] where the system has no thread left, or `load` panicked.
    pub async fn load(load: impl FnOnce() -> Result<Runner> + Send + 'static) -> Result<Self> {
        let (done, loaded) = oneshot::channel();
        spawn(move || _ = done.send(load().and_then(Self::new)))?;
        loaded.await.unwrap_or_else(|_| Err(ended()))
    }

    /// A runner of the same model, with a thread and a sequence of its own; see [`Runner`]'s `Clone`.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn another(&self) -> Result<Self> {
        let model = self.model.clone();
        Self::load(move || Ok(Runner::clone(&model))).await
    }

    /// What was loaded, for its tokenizer, its template, its grammars and the like. The sequence of this runner is not the
    /// one that requests go on with, and stays empty.
    pub fn model(&self) -> &Runner {
        &self.model
    }

    /// As [`Runner::generate`]; an error of that is the stream's first item.
    pub fn generate<'p>(&self, prompt: impl Into<Prompt<'p>>, options: &GenerateOptions) -> GenerationStream {
        let (prompt, options) = (prompt.into().into_owned(), options.clone());
        GenerationStream::new(self.stream(move |runner, updates, stop| {
            let mut generation = runner.generate(prompt, &options)?.with_stop_handle(stop);
            generation.by_ref().for_each(|piece| updates.send(piece));
            Ok(generation.summary().clone())
        }))
    }

    /// As [`Runner::generate_many`], with `on_piece` called on the runner's thread. Dropping the
    /// future ends all texts.
    ///
    /// # Errors
    /// As that; [`Error::Thread`] where an earlier request panicked.
    pub fn generate_many<'p>(
        &self,
        requests: impl IntoIterator<Item: Into<GenerateRequest<'p>>>,
        on_piece: impl FnMut(usize, &str) -> bool + Send + 'static,
    ) -> Reply<Vec<Completion>> {
        let requests: Vec<_> = requests.into_iter().map(|request| request.into().into_owned()).collect();
        self.call_until(move |runner, stop| {
            let requests = requests.into_iter().map(|request| request.with_stop_handle(stop.clone()));
            runner.generate_many(requests, on_piece)
        })
    }

    /// As [`Runner::chat`]; an error of that is the stream's first item.
    #[cfg(feature = "chat")]
    pub fn chat(&self, messages: &[Message], options: &GenerateOptions) -> AnswerStream {
        self.chat_with(messages, &ChatOptions::default(), options)
    }

    /// As [`Runner::chat_with`]; an error of that is the stream's first item.
    #[cfg(feature = "chat")]
    pub fn chat_with(&self, messages: &[Message], chat: &ChatOptions, options: &GenerateOptions) -> AnswerStream {
        let (messages, chat, options) = (messages.to_vec(), chat.clone(), options.clone());
        AnswerStream::new(self.stream(move |runner, updates, stop| {
            let mut answer = runner.chat_with(&messages, &chat, &options)?.with_stop_handle(stop);
            answer.events().for_each(|event| updates.send(event));
            Ok(answer.summary().clone())
        }))
    }

    /// As [`Runner::generate_as`]. Dropping the future ends the generation.
    ///
    /// # Errors
    /// As that; [`Error::Thread`] where an earlier request panicked.
    #[cfg(feature = "constrained")]
    pub fn generate_as<'p, T: DeserializeOwned + JsonSchema + Send + 'static>(
        &self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Reply<T> {
        let (prompt, options) = (prompt.into().into_owned(), options.clone());
        self.call_until(move |runner, stop| runner.generate_as_until(prompt, &options, stop))
    }

    /// As [`Runner::chat_as`]. Dropping the future ends the answer.
    ///
    /// # Errors
    /// As that; [`Error::Thread`] where an earlier request panicked.
    #[cfg(feature = "constrained")]
    pub fn chat_as<T: DeserializeOwned + JsonSchema + Send + 'static>(
        &self,
        messages: &[Message],
        chat: &ChatOptions,
        options: &GenerateOptions,
    ) -> Reply<T> {
        let (messages, chat, options) = (messages.to_vec(), chat.clone(), options.clone());
        self.call_until(move |runner, stop| runner.chat_as_until(&messages, &chat, &options, stop))
    }

    /// Has the runner do anything else, such as [`score`](Runner::score), and returns what came of it. Dropping the future
    /// leaves it undone only if its turn had not come.
    ///
    /// ```no_run
    /// # async fn run(runner: inkstone::AsyncRunner) -> inkstone::Result<()> {
    /// let tokens = runner.call(|runner| runner.score("The capital of France is", " Paris", 0)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `act`; [`Error::Thread`] where this or an earlier request panicked.
    pub fn call<T, F>(&self, act: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Runner) -> Result<T> + Send + 'static,
    {
        self.call_until(|runner, _| act(runner))
    }

    /// Gives `act` a handle that stops it when the future is dropped.
    fn call_until<T, F>(&self, act: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Runner, StopHandle) -> Result<T> + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        let reply = Reply::new(result);
        let stop = reply.stop_handle();
        self.ask(move |runner| {
            if !stop.is_stopped() {
                _ = done.send(act(runner, stop));
            }
        });
        reply
    }

    /// Gives `make` a handle that stops it when the stream is dropped.
    fn stream<T: Send + 'static>(
        &self,
        make: impl FnOnce(&mut Runner, &UpdateSender<T>, StopHandle) -> Result<Summary> + Send + 'static,
    ) -> Updates<T> {
        let (sender, updates) = stream::channel();
        let stop = updates.stop_handle();
        self.ask(move |runner| sender.end(make(runner, &sender, stop)));
        updates
    }

    fn ask(&self, request: impl FnOnce(&mut Runner) + Send + 'static) {
        // Where the thread has ended the request is dropped, and with it the end of the channel that it was to answer by.
        _ = self.requests.send(Box::new(request));
    }
}

/// Stops a request whose result is dropped.
#[derive(Default)]
struct StopOnDrop(StopHandle);

impl StopOnDrop {
    fn handle(&self) -> StopHandle {
        self.0.clone()
    }
}

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

fn spawn(act: impl FnOnce() + Send + 'static) -> Result<()> {
    let thread = thread::Builder::new().name("inkstone-async".into()).spawn(act);
    thread.map(drop).map_err(|e| Error::Thread(format!("could not be started: {e}")))
}

fn ended() -> Error {
    Error::Thread("has ended, as a request panicked: load the model again".into())
}

impl fmt::Debug for AsyncRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncRunner").field("model", &self.model).finish_non_exhaustive()
    }
}
