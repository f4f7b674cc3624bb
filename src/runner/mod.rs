//! The whole path from a file to text: one stage after the other, and nothing else.
//!
//! In: the path of a GGUF file, or of a directory of safetensors. Out: a [`Runner`], which holds the model ready to run and one sequence of tokens.
//! Whatever a caller asks for (a text, an answer, ids, logits) goes through that sequence, and what the request shares
//! with it at the start is not computed again.

#[cfg(feature = "chat")]
mod answer;
#[cfg(feature = "async")]
mod asynchronous;
mod builder;
mod ids;
mod lm;
mod load;
mod memory;
mod score;
mod text;
#[cfg(feature = "chat")]
mod tool_choice;
#[cfg(feature = "constrained")]
mod typed;

use std::fmt;
#[cfg(feature = "constrained")]
use std::sync::{Arc, OnceLock};

#[cfg(feature = "chat")]
pub use self::answer::{Answer, AnswerEvents};
#[cfg(all(feature = "async", feature = "chat"))]
pub use self::asynchronous::{AnswerEventStream, AnswerStream};
#[cfg(feature = "async")]
pub use self::asynchronous::{AsyncRunner, GenerationStream, Reply};
pub use self::{builder::RunnerBuilder, lm::LmRunner, memory::MemoryPlan};
#[cfg(feature = "constrained")]
use crate::grammar::Grammars;
use crate::{backend::DeviceInfo, generate::Decoder, kv_cache::SequenceId, models::Config, tokenizer::Tokenizer};
#[cfg(feature = "chat")]
use crate::{
    chat::ChatTemplate,
    error::{Error, Result},
};

/// A model ready to run, and one sequence of tokens.
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
    tokenizer: Tokenizer,
    /// The builder's or else the file's, or why the latter cannot be used: a model without one
    /// still generates from plain prompts.
    #[cfg(feature = "chat")]
    template: Result<ChatTemplate, String>,
    decoder: Decoder,
    sequence: SequenceId,
    /// Made when first asked for, for all clones.
    #[cfg(feature = "constrained")]
    grammars: Arc<OnceLock<Grammars>>,
}

/// Another runner of the same model, with a sequence of its own: for another thread, or another conversation. The two share
/// the weights and the cache's memory, and so the memory limit; their steps take turns.
impl Clone for Runner {
    fn clone(&self) -> Self {
        let Self { config, memory, device, tokenizer, decoder, .. } = self;
        let mut decoder = decoder.clone();
        let sequence = decoder.open();
        Self {
            config: config.clone(),
            memory: *memory,
            device: device.clone(),
            tokenizer: tokenizer.clone(),
            #[cfg(feature = "chat")]
            template: self.template.clone(),
            decoder,
            sequence,
            #[cfg(feature = "constrained")]
            grammars: self.grammars.clone(),
        }
    }
}

impl Runner {
    /// The model's sizes and constants.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// What the model runs on.
    pub fn device(&self) -> &DeviceInfo {
        &self.device
    }

    /// The model's tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// The model's chat template.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] where the file has none, or one that does not parse.
    #[cfg(feature = "chat")]
    pub fn chat_template(&self) -> Result<&ChatTemplate> {
        self.template.as_ref().map_err(|what| Error::ChatTemplate(what.clone()))
    }

    /// The memory that it takes.
    pub fn memory(&self) -> &MemoryPlan {
        &self.memory
    }

    /// The most tokens that the sequence can hold.
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
