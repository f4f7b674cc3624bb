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
mod lm;
mod memory;
mod requests;
mod score;
#[cfg(feature = "chat")]
mod tool_choice;
#[cfg(feature = "constrained")]
mod typed;

use std::{sync::Arc, thread};

use crate::{
    Error, Result,
    backend::{Adapter, Backend, Device, DeviceInfo, Fallback, LoadProgress},
    generate::{Decoder, Limits},
    gguf::Gguf,
    graph::Graph,
    kv_cache::{CacheLayout, KvCache, SequenceId},
    models::{Config, Model},
    optimize::{Target, optimize},
    tokenizer::Tokenizer,
    weights::Weights,
};

#[cfg(feature = "chat")]
pub use answer::{Answer, AnswerEvents};
#[cfg(all(feature = "async", feature = "chat"))]
pub use asynchronous::{AnswerEventStream, AnswerStream};
#[cfg(feature = "async")]
pub use asynchronous::{AsyncRunner, GenerationStream, Reply};
pub use builder::RunnerBuilder;
pub use lm::LmRunner;
pub use memory::MemoryPlan;

#[cfg(feature = "chat")]
use crate::chat::ChatTemplate;

/// Whether this build has a backend for GPUs.
const LOOKS_FOR_GPUS: bool = cfg!(any(feature = "wgpu", feature = "metal"));

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
    grammars: Arc<std::sync::OnceLock<crate::grammar::Grammars>>,
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

/// All that is known of a model before memory is spent on it.
struct Prepared {
    gguf: Gguf,
    weights: Weights,
    config: Config,
    backend: Box<dyn Backend>,
    graph: Graph,
    layout: CacheLayout,
    limits: Limits,
    memory: MemoryPlan,
}

impl RunnerBuilder {
    /// Does something with the backend that was asked for; where that was left open and no GPU can do it, with the CPU.
    fn with_backend<T>(&self, act: impl Fn(Box<dyn Backend>) -> Result<T>) -> Result<T> {
        let reason = match &self.device {
            Device::Cpu => return act(self.cpu()?),
            Device::Gpu(adapter) => return act(self.gpu(adapter)?),
            Device::Auto if !LOOKS_FOR_GPUS => return act(self.cpu()?),
            Device::Auto => match self.gpu(&Adapter::Best).and_then(&act) {
                Err(error @ (Error::NoDevice(_) | Error::Device { .. } | Error::DeviceMemory { .. })) => {
                    error.to_string()
                }
                other => return other,
            },
        };
        act(Box::new(Fallback::new(self.cpu()?, reason)))
    }

    fn prepare(&self, gguf: Gguf, backend: Box<dyn Backend>) -> Result<Prepared> {
        let weights = if self.copy_weights { Weights::read_from_gguf(&gguf) } else { Weights::from_gguf(&gguf) };
        let Model { config, graph } = Model::for_positions(&gguf, &weights, self.positions())?;
        let context_length = self.context_length_for(&config)?;
        let limits = self.limits_for(&config, context_length, &*backend)?;
        let graph = optimize(
            &graph,
            &Target {
                supports: &|op| backend.supports(op),
                vector: &|slice, width| weights.vector(slice, width).ok().map(Arc::from),
            },
        )?
        .graph;
        let layout = CacheLayout::new(&graph, self.cache_type)?;
        let memory = MemoryPlan::new(&*backend, &graph, &weights, &layout, context_length, limits)?;
        Ok(Prepared { gguf, weights, config, backend, graph, layout, limits, memory })
    }

    fn load(&self, gguf: Gguf) -> Result<Runner> {
        self.with_backend(|backend| self.load_on(gguf.clone(), backend))
    }

    fn load_on(&self, gguf: Gguf, backend: Box<dyn Backend>) -> Result<Runner> {
        // Parsed first: an error in it should not cost the time that the weights take.
        #[cfg(feature = "chat")]
        let own = self.chat_template.as_deref().map(|source| ChatTemplate::new(source, "", "")).transpose()?;
        let Prepared { gguf, weights, config, backend, graph, layout, limits, memory } = self.prepare(gguf, backend)?;
        let cache = KvCache::new(&layout, memory.context_length);
        let cache = match memory.cache_within(self.memory_limit)? {
            Some((bytes, states)) => cache.with_limits(bytes, states),
            None => cache,
        };
        let progress = LoadProgress::new(memory.weights, self.on_progress.as_ref().map(|callback| &*callback.0));
        progress.start()?;
        // Indexing a large vocabulary takes as long as making the weights ready.
        let (executable, tokenizer) = thread::scope(|scope| {
            let tokenizer = scope.spawn(|| Tokenizer::from_gguf(&gguf));
            let Limits { max_tokens, max_outputs, .. } = limits;
            let executable =
                backend.compile_with_progress(&graph, &weights, &layout, max_tokens, max_outputs, &progress);
            (executable, tokenizer.join())
        });
        let tokenizer = tokenizer.map_err(|_| Error::Tokenizer("the thread that built it failed".into()))??;
        #[cfg(feature = "chat")]
        let template = match own {
            Some(template) => Ok(template.for_tokenizer(&tokenizer)?),
            None => ChatTemplate::from_gguf(&gguf, &tokenizer).map_err(|error| match error {
                Error::ChatTemplate(what) => what,
                other => other.to_string(),
            }),
        };
        let executable = executable?;
        progress.finish()?;
        let mut decoder = Decoder::new(executable, cache, limits)
            .with_recompute(self.recompute)
            .with_trained_context(config.context_length);
        let sequence = decoder.open();
        Ok(Runner {
            config,
            memory,
            device: backend.device().clone(),
            tokenizer,
            #[cfg(feature = "chat")]
            template,
            decoder,
            sequence,
            #[cfg(feature = "constrained")]
            grammars: Default::default(),
        })
    }
}
