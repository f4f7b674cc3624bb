//! Loads a model from its files onto a device.
//!
//! The stages, in order: file, weights and config, graph, optimized graph, cache and executable.

use std::{collections::BTreeSet, path::Path, sync::Arc, thread};

use super::{
    MemoryPlan, Runner, RunnerBuilder,
    draft::PreparedDraft,
    memory::CacheLimits,
    vision::{Vision, largest_whole_image, plan_encoder},
    vision_file::{self, NoVision, VisionFile},
};
#[cfg(feature = "chat")]
use crate::chat::ChatTemplate;
use crate::{
    Error, Result,
    backend::{Adapter, Backend, Device, DeviceInfo, Fallback, LoadProgress},
    generate::{Decoder, Limits, MtpHead},
    gguf::{Fingerprint, Gguf, Origin},
    graph::{Graph, Source},
    kv_cache::{CacheLayout, KvCache},
    models::{
        self, Config, FileContent, Model,
        vision::{ImageInputs, VisionModel},
    },
    optimize::{PASSES, Target, optimize_with},
    profile::{Profile, ProfileFile},
    tokenizer::Tokenizer,
    vision::EncoderPlan,
    weights::Weights,
};

/// Whether this build has a backend for GPUs.
const LOOKS_FOR_GPUS: bool = cfg!(any(feature = "wgpu", feature = "metal"));

impl Runner {
    /// Loads a model from a GGUF file with the default settings. For a split model, pass the first
    /// file.
    ///
    /// The file is mapped into memory while it loads. On a CPU, some tensors are read from the
    /// mapping for as long as the model is loaded ([`MemoryPlan::mapped`] is their size). If the
    /// file is shortened during that time, the system ends the process. To replace a model, rename
    /// a new file over it, or avoid the mapping with [`RunnerBuilder::copy_weights`].
    ///
    /// # Errors
    /// As [`RunnerBuilder::from_gguf`].
    pub fn from_gguf(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().from_gguf(path)
    }

    /// Loads a model from a directory of safetensors with the default settings. Its files are
    /// mapped, as described at [`from_gguf`](Self::from_gguf).
    ///
    /// # Errors
    /// As [`RunnerBuilder::from_safetensors`].
    #[cfg(feature = "safetensors")]
    pub fn from_safetensors(directory: impl AsRef<Path>) -> Result<Self> {
        Self::builder().from_safetensors(directory)
    }

    /// Loads a model from a GGUF file or a directory of safetensors, with the default settings.
    ///
    /// # Errors
    /// As [`RunnerBuilder::from_path`].
    pub fn from_path(path: impl AsRef<Path>) -> Result<Self> {
        Self::builder().from_path(path)
    }

    /// Returns the settings for loading a model, which can be changed.
    pub fn builder() -> RunnerBuilder {
        RunnerBuilder::default()
    }
}

/// A model before memory is allocated for it.
pub(super) struct PreparedModel {
    gguf: Gguf,
    weights: Weights,
    config: Config,
    backend: Box<dyn Backend>,
    /// The tensors that the model reads, which differ by context length in models with LongRoPE.
    tensors: Vec<Arc<str>>,
    graph: Graph,
    layout: CacheLayout,
    mtp: Option<PreparedHead>,
    limits: Limits,
    vision: Result<EncoderPlan, NoVision>,
    profile: Profile,
    profile_file: Option<ProfileFile>,
    pub(super) memory: MemoryPlan,
    /// The device for a model that runs in turn with another one.
    turns: Option<Box<dyn Backend>>,
}

/// The model's head for multi-token prediction.
struct PreparedHead {
    graph: Graph,
    layout: CacheLayout,
    /// The layout of pages with the layers of the model and of the head.
    pages: CacheLayout,
}

impl PreparedHead {
    /// Prepares the head for a model whose cache has the layout `model`. Returns `None` if the
    /// model's pages have no room for the head's layers.
    fn new(graph: Graph, model: &CacheLayout) -> Result<Option<Self>> {
        let layout = CacheLayout::new(&graph, model.cache_type)?;
        Ok(model.with_pages_of(&layout).map(|pages| Self { graph, layout, pages }))
    }
}

impl PreparedModel {
    pub fn tokenizer(&self) -> Result<Tokenizer> {
        Tokenizer::from_gguf(&self.gguf)
    }

    /// Returns a fingerprint of the model, for its sessions.
    fn fingerprint(&self) -> Fingerprint {
        let mut fingerprint = self.gguf.fingerprint();
        self.tensors.iter().for_each(|name| fingerprint.add_text(name));
        fingerprint
    }

    /// Compiles the model, with an unlimited cache that keeps no earlier texts.
    pub fn compile(&self, progress: &LoadProgress<'_>) -> Result<Decoder> {
        self.compile_limited(None, progress)
    }

    fn compile_limited(&self, cache_limits: Option<CacheLimits>, progress: &LoadProgress<'_>) -> Result<Decoder> {
        let Self { weights, config, graph, layout, mtp, limits, vision, memory, .. } = self;
        let backend = self.turns.as_ref().unwrap_or(&self.backend);
        let pages = mtp.as_ref().map_or(layout, |head| &head.pages);
        let cache = KvCache::new(pages, memory.context_length);
        let cache = match cache_limits {
            Some(limits) => limits.limit(cache),
            None => cache,
        };
        let Limits { max_tokens, max_outputs, .. } = *limits;
        let executable = backend.compile_with_progress(graph, weights, layout, max_tokens, max_outputs, progress)?;
        let Some(PreparedHead { graph, layout, .. }) = mtp else {
            return Ok(Decoder::new(executable, cache, *limits).with_trained_context(config.context_length));
        };
        let head = executable.compile_beside(graph, weights, layout, max_tokens, 1, progress)?;
        let head = MtpHead::new(head, config.hidden, max_tokens).reading_images(vision.is_ok());
        let decoder = Decoder::new(executable, cache.rewriting_last(), *limits).with_mtp_head(head);
        Ok(decoder.with_trained_context(config.context_length))
    }
}

impl RunnerBuilder {
    /// Calls `act` with the backend of the selected device. With [`Device::Auto`], calls it with
    /// the CPU if there is no GPU or `act` fails on it.
    pub(super) fn with_backend<T>(&self, act: impl Fn(Box<dyn Backend>) -> Result<T>) -> Result<T> {
        self.threads.map_or(Ok(()), Device::check_threads)?;
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

    pub(super) fn prepare(&self, gguf: Gguf, mut backend: Box<dyn Backend>) -> Result<PreparedModel> {
        FileContent::of(&gguf)?.refuse_unless_model(&gguf)?;
        let (profile, profile_file) = self.profile_for(&gguf, backend.device())?;
        backend.set_profile(&profile);
        let weights = if self.copy_weights { Weights::read_from_gguf(&gguf) } else { Weights::from_gguf(&gguf) };
        let (Model { config, graph, mtp }, vision) = self.model(&gguf, &weights)?;
        let tensors = tensors_of(&graph);
        let mtp = mtp.filter(|_| !self.without_mtp && !self.recompute);
        let graph = if mtp.is_some() { graph } else { graph.without_hidden() };
        let context_length = self.context_length_for(&config)?;
        let whole = vision.as_ref().map_or(0, |vision| largest_whole_image(&config, &vision.config));
        let limits = self.limits_for(&config, context_length, whole, profile.prefill_chunk, &*backend)?;
        let passes: Vec<_> =
            PASSES.into_iter().filter(|pass| !profile.without_passes.iter().any(|name| name == pass.name())).collect();
        let target = Target {
            supports: &|op| backend.supports(op),
            vector: &|slice, width| weights.vector(slice, width).ok().map(Arc::from),
        };
        let optimized = |graph: &Graph| Ok::<_, Error>(optimize_with(&passes, graph, &target)?.graph);
        let graph = optimized(&graph)?;
        let layout = CacheLayout::new(&graph, profile.cache_type.unwrap_or_default())?;
        let mtp = match mtp {
            Some(head) => PreparedHead::new(optimized(&head)?, &layout)?,
            None => None,
        };
        let pages = mtp.as_ref().map_or(&layout, |head| &head.pages);
        let head = mtp.as_ref().map(|head| &head.graph);
        let mut memory = MemoryPlan::new(&*backend, &graph, head, &weights, pages, context_length, limits)?;
        let vision = match vision {
            Ok(model) => Ok(plan_encoder(model, &*backend, context_length)?),
            Err(reason) => Err(reason),
        };
        if let Ok(encoder) = &vision {
            memory.add_encoder(&encoder.memory(&*backend)?);
        }
        Ok(PreparedModel {
            gguf,
            weights,
            config,
            backend,
            tensors,
            graph,
            layout,
            mtp,
            limits,
            vision,
            profile,
            profile_file,
            memory,
            turns: None,
        })
    }

    /// Returns the text model, and its vision encoder or the reason why it has none.
    pub(super) fn model(&self, gguf: &Gguf, weights: &Weights) -> Result<(Model, Result<VisionModel, NoVision>)> {
        let text = || Model::for_positions(gguf, weights, self.positions(), None);
        let (path, encoder) = match &self.vision {
            VisionFile::Without => return Ok((text()?, Err(NoVision::Unwanted))),
            VisionFile::At(path) => {
                let (model, vision) = self.model_with(gguf, weights, &Gguf::open(path)?)?;
                return Ok((model, Ok(vision)));
            }
            VisionFile::Beside => match vision_file::beside(gguf.path())? {
                Some(path) => (path.clone(), Gguf::open(path).map(Some)),
                None if gguf.origin() == Origin::Directory => (gguf.path().into(), models::open_encoder(gguf.path())),
                None => return Ok((text()?, Err(NoVision::Missing))),
            },
        };
        // Text does not need an encoder that was not asked for.
        match encoder.and_then(|encoder| encoder.map(|encoder| self.model_with(gguf, weights, &encoder)).transpose()) {
            Ok(Some((model, vision))) => Ok((model, Ok(vision))),
            Ok(None) => Ok((text()?, Err(NoVision::Missing))),
            Err(error) => Ok((text()?, Err(NoVision::Unusable { path, error: Arc::new(error) }))),
        }
    }

    /// Returns the text model with the vision encoder of a file or directory.
    fn model_with(&self, gguf: &Gguf, weights: &Weights, encoder: &Gguf) -> Result<(Model, VisionModel)> {
        let tensors = if self.copy_weights { Weights::read_from_gguf(encoder) } else { Weights::from_gguf(encoder) };
        let vision = VisionModel::from_gguf(encoder, &tensors, self.convention)?;
        let images = ImageInputs { row_width: vision.config.row_width, convention: self.convention };
        let model = Model::for_positions(gguf, weights, self.positions(), Some(images))?;
        Ok((model, vision))
    }

    pub(super) fn load(&self, mut gguf: Gguf) -> Result<Runner> {
        let draft = self.open_draft(&mut gguf)?;
        self.with_backend(|backend| self.load_on(gguf.clone(), draft.as_ref(), backend))
    }

    fn load_on(&self, gguf: Gguf, draft: Option<&Gguf>, backend: Box<dyn Backend>) -> Result<Runner> {
        // Parsed before the weights are loaded, so that an error in it is reported at once.
        #[cfg(feature = "chat")]
        let custom = self.chat_template.as_deref().map(|source| ChatTemplate::new(source, "", "")).transpose()?;
        let mut prepared = self.prepare(gguf, backend)?;
        let draft = self.prepare_draft(draft, &mut prepared)?;
        let memory = prepared.memory;
        let cache_limits = memory.cache_limits(self.memory_limit)?;
        let weights = memory.weights + draft.as_ref().map_or(0, |draft| draft.model.memory.weights);
        let progress = LoadProgress::new(weights, self.on_progress.as_ref().map(|callback| &*callback.0));
        progress.start()?;
        // Indexing a large vocabulary takes as long as preparing the weights.
        let (decoder, tokenizer) = thread::scope(|scope| {
            let tokenizer = scope.spawn(|| (prepared.tokenizer(), prepared.fingerprint()));
            (prepared.compile_limited(Some(cache_limits), &progress), tokenizer.join())
        });
        let (tokenizer, fingerprint) = tokenizer.map_err(|_| Error::internal("building the tokenizer panicked"))?;
        let tokenizer = tokenizer?;
        #[cfg(feature = "chat")]
        let template = match custom {
            Some(template) => Ok(template.for_tokenizer(&tokenizer)?),
            None => ChatTemplate::from_gguf(&prepared.gguf, &tokenizer).map_err(|error| match error {
                Error::ChatTemplate(what) => what,
                other => other.to_string(),
            }),
        };
        let mut decoder = decoder?.with_recompute(self.recompute);
        if let Some(requests) = self.max_waiting {
            decoder = decoder.with_max_waiting(requests);
        }
        if self.without_ngrams {
            decoder = decoder.without_ngrams();
        }
        if let Some(draft) = draft {
            draft.check(&tokenizer)?;
            decoder = decoder.with_draft_model(draft.compile(&progress)?);
        }
        let device = prepared.backend.device().clone();
        let PreparedModel { backend, config, vision, profile, profile_file, .. } = prepared;
        let vision = match vision {
            Ok(encoder) => Ok(Arc::new(Vision::new(encoder.compile(&*backend, &progress)?, &config))),
            Err(reason) => Err(reason),
        };
        progress.finish()?;
        let sequence = decoder.open();
        Ok(Runner {
            config,
            memory,
            device: DeviceInfo { profile: profile_file, ..device },
            profile,
            fingerprint,
            tokenizer,
            #[cfg(feature = "chat")]
            template,
            vision,
            decoder,
            sequence,
            #[cfg(feature = "constrained")]
            grammars: Default::default(),
        })
    }

    /// Prepares the draft model, if there is one, to run in turn with the model.
    pub(super) fn prepare_draft<'a>(
        &self,
        draft: Option<&'a Gguf>,
        model: &mut PreparedModel,
    ) -> Result<Option<PreparedDraft<'a>>> {
        let Some(draft) = draft else { return Ok(None) };
        model.turns = Some(model.backend.for_turns()?);
        let device = model.turns.as_deref().unwrap_or(&*model.backend);
        let draft = PreparedDraft::new(draft, self, &model.profile, model.memory.context_length, device)?;
        model.memory.draft = draft.model.memory.total();
        Ok(Some(draft))
    }

    #[cfg(feature = "cpu")]
    fn cpu(&self) -> Result<Box<dyn Backend>> {
        Ok(Box::new(crate::backend::cpu::Cpu::new(self.threads)?))
    }

    #[cfg(not(feature = "cpu"))]
    fn cpu(&self) -> Result<Box<dyn Backend>> {
        Err(Error::NoDevice(
            "this program was built without the CPU backend: enable the feature `cpu` of inkstone".into(),
        ))
    }

    #[cfg(any(feature = "wgpu", feature = "metal"))]
    fn gpu(&self, adapter: &Adapter) -> Result<Box<dyn Backend>> {
        Ok(Box::new(crate::backend::webgpu::Gpu::new(adapter)?))
    }

    #[cfg(not(any(feature = "wgpu", feature = "metal")))]
    fn gpu(&self, _: &Adapter) -> Result<Box<dyn Backend>> {
        Err(Error::NoDevice(
            "this program was built without the GPU backend: enable the feature `wgpu` of inkstone".into(),
        ))
    }
}

/// Returns the names of the tensors that a graph reads, without repetitions.
pub(super) fn tensors_of(graph: &Graph) -> Vec<Arc<str>> {
    let names = graph.values().iter().filter_map(|value| match &value.source {
        Source::Weight { slice, .. } => Some(slice.name.clone()),
        Source::Tokens | Source::Constant(_) | Source::Node { .. } => None,
    });
    names.collect::<BTreeSet<_>>().into_iter().collect()
}
