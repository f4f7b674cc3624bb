//! Loads a model and runs requests with it: text, answers, token ids and logits.
//!
//! A [`Runner`] has a model and one sequence of tokens, which all requests share: tokens at the
//! start of a request that the sequence already has are not computed again.

#[cfg(feature = "chat")]
mod answer;
#[cfg(feature = "async")]
mod asynchronous;
mod builder;
mod check;
mod draft;
mod ids;
mod lm;
mod load;
mod memory;
mod profile;
mod score;
mod session;
mod text;
#[cfg(feature = "chat")]
mod tool_choice;
#[cfg(feature = "constrained")]
mod typed;
mod verdict;
mod vision;
mod vision_file;

#[cfg(feature = "constrained")]
use std::sync::OnceLock;
use std::{fmt, sync::Arc};

#[cfg(feature = "chat")]
pub use self::answer::{Answer, AnswerEvents};
#[cfg(all(feature = "async", feature = "chat"))]
pub use self::asynchronous::{AnswerEventStream, AnswerStream};
#[cfg(feature = "async")]
pub use self::asynchronous::{AsyncRunner, GenerationStream, Reply};
pub use self::{
    builder::RunnerBuilder,
    lm::LmRunner,
    memory::MemoryPlan,
    verdict::{Obstacle, ObstacleKind, Verdict},
};
use self::{vision::Vision, vision_file::NoVision};
#[cfg(feature = "constrained")]
use crate::grammar::Grammars;
#[cfg(feature = "chat")]
use crate::{Error, Result, chat::ChatTemplate};
use crate::{
    backend::DeviceInfo, generate::Decoder, gguf::Fingerprint, kv_cache::SequenceId, models::Config, profile::Profile,
    tokenizer::Tokenizer,
};

/// A loaded model with one sequence of tokens.
///
/// ```no_run
/// use inkstone::{GenerateOptions, Runner};
///
/// let mut runner = Runner::from_gguf("Qwen3-4B-Q4_K_M.gguf")?;
/// for piece in runner.generate("Why is the sky blue?", &GenerateOptions::default())? {
///     print!("{}", piece?);
/// }
/// # Ok::<(), inkstone::Error>(())
/// ```
pub struct Runner {
    config: Config,
    memory: MemoryPlan,
    device: DeviceInfo,
    profile: Profile,
    /// Identifies the model of a session.
    fingerprint: Fingerprint,
    tokenizer: Tokenizer,
    /// The template of the builder or of the file, or the error of the latter: a model without a
    /// template can still generate from plain prompts.
    #[cfg(feature = "chat")]
    template: Result<ChatTemplate, String>,
    /// The encoder of images, or the reason why there is none.
    vision: Result<Arc<Vision>, NoVision>,
    decoder: Decoder,
    sequence: SequenceId,
    /// Built on first use, and shared by all clones.
    #[cfg(feature = "constrained")]
    grammars: Arc<OnceLock<Grammars>>,
}

/// Returns a runner of the same model with a separate, empty sequence: for another thread or
/// conversation. Both share the weights, the cache's memory and the memory limit. Steps that they
/// want at the same time are computed as one.
impl Clone for Runner {
    fn clone(&self) -> Self {
        let Self { config, memory, device, profile, fingerprint, tokenizer, decoder, .. } = self;
        let mut decoder = decoder.clone();
        let sequence = decoder.open();
        Self {
            config: config.clone(),
            memory: *memory,
            device: device.clone(),
            profile: profile.clone(),
            fingerprint: *fingerprint,
            tokenizer: tokenizer.clone(),
            #[cfg(feature = "chat")]
            template: self.template.clone(),
            vision: self.vision.clone(),
            decoder,
            sequence,
            #[cfg(feature = "constrained")]
            grammars: self.grammars.clone(),
        }
    }
}

impl Runner {
    /// Returns the model's sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the device that the model runs on.
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// Returns the choices of the builder and its profile, with the device and the model that they
    /// are now made for.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Returns the model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Returns the chat template of the builder or of the model.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] if the file has no template, or one that does not parse.
    #[cfg(feature = "chat")]
    pub fn chat_template(&self) -> Result<&ChatTemplate> {
        self.template.as_ref().map_err(|what| Error::ChatTemplate(what.clone()))
    }

    /// Returns the memory that the model takes.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// Returns the largest number of tokens in the sequence.
    pub fn context_length(&self) -> usize {
        self.memory.context_length
    }
}

impl fmt::Debug for Runner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { config, memory, device, decoder, .. } = self;
        f.debug_struct("Runner")
            .field("config", config)
            .field("memory", memory)
            .field("device", device)
            .field("decoder", decoder)
            .finish_non_exhaustive()
    }
}
