//! Runs a model on a separate thread for async code, and returns streams and futures.
//!
//! A step keeps its thread busy for milliseconds, which would block an executor. Therefore requests
//! are sent to the runner's thread through a channel, and results come back through one channel for
//! each request.

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
use self::stream::{UpdateSender, Updates};
pub use self::{reply::Reply, stream::GenerationStream};
use super::Runner;
#[cfg(feature = "chat")]
use crate::chat::{ChatOptions, Message};
use crate::{
    Error, Result,
    generate::{Completion, GenerateOptions, GenerateRequest, Prompt, StopHandle, Summary},
};

/// A request to the runner's thread.
type RunnerCall = Box<dyn FnOnce(&mut Runner) + Send>;

/// A runner on a separate thread, for async code on any executor.
///
/// Requests run at once, one after the other, even if their stream or future is not polled.
/// Dropping a stream or a future ends its request. Clones share one runner and its thread, which
/// ends after the last clone is dropped; [`another`](Self::another) has a separate sequence and
/// thread.
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
    requests: mpsc::Sender<RunnerCall>,
}

impl AsyncRunner {
    /// Moves a runner to a new thread.
    ///
    /// # Errors
    /// [`Error::Thread`] if the system cannot start a thread.
    pub fn new(runner: Runner) -> Result<Self> {
        let model = Arc::new(runner.clone());
        let (requests, received) = mpsc::channel::<RunnerCall>();
        let mut runner = runner;
        spawn(move || received.into_iter().for_each(|request| request(&mut runner)))?;
        Ok(Self { model, requests })
    }

    /// Loads a model on another thread.
    ///
    /// # Errors
    /// As `load`; [`Error::Thread`] if the system cannot start a thread, or if `load` panicked.
    pub async fn load(load: impl FnOnce() -> Result<Runner> + Send + 'static) -> Result<Self> {
        let (done, loaded) = oneshot::channel();
        spawn(move || _ = done.send(load().and_then(Self::new)))?;
        loaded.await.unwrap_or_else(|_| Err(ended()))
    }

    /// Returns a runner of the same model with a separate thread and sequence; see the `Clone` of
    /// [`Runner`].
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub async fn another(&self) -> Result<Self> {
        let model = self.model.clone();
        Self::load(move || Ok(Runner::clone(&model))).await
    }

    /// Returns a runner of the model, for its tokenizer, chat template and grammars. Its sequence
    /// is not the sequence of the requests, and stays empty.
    pub fn model(&self) -> &Runner {
        &self.model
    }

    /// Continues a prompt; see [`Runner::generate`], whose error would be the stream's first item.
    pub fn generate<'p>(&self, prompt: impl Into<Prompt<'p>>, options: &GenerateOptions) -> GenerationStream {
        let (prompt, options) = (prompt.into().into_owned(), options.clone());
        GenerationStream::new(self.stream(move |runner, updates, stop| {
            let mut generation = runner.generate(prompt, &options)?.with_stop_handle(stop);
            while let Some(piece) = generation.next() {
                updates.send(piece, generation.summary());
            }
            Ok(generation.summary().clone())
        }))
    }

    /// Generates several texts; see [`Runner::generate_many`]. `on_piece` is called on the runner's
    /// thread. Dropping the future ends all texts.
    ///
    /// # Errors
    /// As [`Runner::generate_many`]; [`Error::Thread`] if an earlier request panicked.
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

    /// Answers a conversation; see [`Runner::chat`], whose error would be the stream's first item.
    #[cfg(feature = "chat")]
    pub fn chat(&self, messages: &[Message], options: &GenerateOptions) -> AnswerStream {
        self.chat_with(messages, &ChatOptions::default(), options)
    }

    /// Answers a conversation with options; see [`Runner::chat_with`], whose error would be the
    /// stream's first item.
    #[cfg(feature = "chat")]
    pub fn chat_with(&self, messages: &[Message], chat: &ChatOptions, options: &GenerateOptions) -> AnswerStream {
        let (messages, chat, options) = (messages.to_vec(), chat.clone(), options.clone());
        AnswerStream::new(self.stream(move |runner, updates, stop| {
            let mut answer = runner.chat_with(&messages, &chat, &options)?.with_stop_handle(stop);
            while let Some(event) = answer.events().next() {
                updates.send(event, answer.summary());
            }
            Ok(answer.summary().clone())
        }))
    }

    /// Continues a prompt with a value of a type; see [`Runner::generate_as`]. Dropping the future
    /// ends the generation.
    ///
    /// # Errors
    /// As [`Runner::generate_as`]; [`Error::Thread`] if an earlier request panicked.
    #[cfg(feature = "constrained")]
    pub fn generate_as<'p, T: DeserializeOwned + JsonSchema + Send + 'static>(
        &self,
        prompt: impl Into<Prompt<'p>>,
        options: &GenerateOptions,
    ) -> Reply<T> {
        let (prompt, options) = (prompt.into().into_owned(), options.clone());
        self.call_until(move |runner, stop| runner.generate_as_until(prompt, &options, stop))
    }

    /// Answers a conversation with a value of a type; see [`Runner::chat_as`]. Dropping the future
    /// ends the answer.
    ///
    /// # Errors
    /// As [`Runner::chat_as`]; [`Error::Thread`] if an earlier request panicked.
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

    /// Calls `act` with the runner, for example to [`score`](Runner::score), and returns its
    /// result. Dropping the future cancels the call only if it has not started.
    ///
    /// ```no_run
    /// # async fn run(runner: inkstone::AsyncRunner) -> inkstone::Result<()> {
    /// let tokens = runner.call(|runner| runner.score("The capital of France is", " Paris", 0)).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As `act`; [`Error::Thread`] if this or an earlier request panicked.
    pub fn call<T, F>(&self, act: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Runner) -> Result<T> + Send + 'static,
    {
        self.call_until(|runner, _| act(runner))
    }

    /// Calls `act` with a handle that is stopped when the future is dropped.
    fn call_until<T, F>(&self, act: F) -> Reply<T>
    where
        T: Send + 'static,
        F: FnOnce(&mut Runner, StopHandle) -> Result<T> + Send + 'static,
    {
        let (done, result) = oneshot::channel();
        let reply = Reply::new(result);
        let stop = reply.stop_handle();
        self.send(move |runner| {
            if !stop.is_stopped() {
                _ = done.send(act(runner, stop));
            }
        });
        reply
    }

    /// Calls `make` with a handle that is stopped when the stream is dropped.
    fn stream<T: Send + 'static>(
        &self,
        make: impl FnOnce(&mut Runner, &UpdateSender<T>, StopHandle) -> Result<Summary> + Send + 'static,
    ) -> Updates<T> {
        let (sender, updates) = stream::channel();
        let stop = updates.stop_handle();
        self.send(move |runner| sender.end(make(runner, &sender, stop)));
        updates
    }

    fn send(&self, request: impl FnOnce(&mut Runner) + Send + 'static) {
        // If the thread has ended, dropping the request closes its result channel, which reports
        // the error.
        _ = self.requests.send(Box::new(request));
    }
}

/// Stops a request when its stream or future is dropped.
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
    Error::Thread("has ended because a request panicked: load the model again".into())
}

impl fmt::Debug for AsyncRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncRunner").field("model", &self.model).finish_non_exhaustive()
    }
}
