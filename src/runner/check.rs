//! Says whether a file can be used, and what keeps it from that, from its header alone.

use std::{collections::HashSet, path::Path};

use super::{
    RunnerBuilder,
    load::tensors_of,
    verdict::{Obstacle, ObstacleKind, Verdict},
    vision_file::NoVision,
};
#[cfg(feature = "chat")]
use crate::chat::ChatTemplate;
use crate::{
    Error, Result,
    gguf::{FaultKind, Gguf, Origin, TensorInfo},
    kv_cache::CacheLayout,
    models::{self, Family, FileContent, Model, vision::VisionModel},
    tokenizer::Tokenizer,
    weights::Weights,
};

impl RunnerBuilder {
    /// Says whether a file, or a directory of safetensors, can be used, and what is missing if not:
    /// all that is known, where loading ends at the first error. Reads only the headers of its
    /// files and needs no device, also for files whose data is missing.
    ///
    /// The verdict is that of loading as far as files and the settings for text and images are
    /// concerned; devices, memory, profiles and a draft model are not looked at.
    ///
    /// ```
    /// let verdict = inkstone::Runner::builder().check("tests/data/storyteller/storyteller.gguf");
    /// assert!(verdict.is_usable(), "{verdict}");
    /// ```
    pub fn check(&self, path: impl AsRef<Path>) -> Verdict {
        let path = path.as_ref();
        let opened =
            if path.is_dir() { models::open(path).map(|gguf| (gguf, vec![])) } else { Gguf::open_header(path) };
        let mut verdict = Verdict { content: None, obstacles: vec![], limits: vec![] };
        let examined = opened.and_then(|(gguf, faults)| {
            let is_whole = faults.iter().all(|fault| fault.kind != FaultKind::File);
            let is_sound = faults.is_empty();
            verdict.add_faults(faults);
            let content = match FileContent::of(&gguf) {
                // Another shard may say what the file has.
                Err(_) if !is_whole => return Ok(()),
                content => verdict.content.insert(content?).clone(),
            };
            let mut examination = Examination { builder: self, gguf: &gguf, is_sound, verdict: &mut verdict };
            match content {
                FileContent::VisionEncoder { .. } => examination.encoder(),
                FileContent::Model { .. } if is_whole => {
                    examination.model()?;
                    examination.text();
                    Ok(())
                }
                FileContent::Model { .. } | FileContent::MtpHead { .. } => Family::of(&gguf).map(|_| ()),
                other => {
                    let refused =
                        other.refuse_unless_model(&gguf).map_err(|error| Obstacle::new(ObstacleKind::Content, error));
                    refused.unwrap_or_else(|obstacle| verdict.add(obstacle));
                    Ok(())
                }
            }
        });
        if let Err(error) = examined {
            verdict.add(error.into());
        }
        verdict
    }
}

/// A file whose header could be read, and what is known of it.
struct Examination<'a> {
    builder: &'a RunnerBuilder,
    gguf: &'a Gguf,
    /// Whether the file has no faults so far.
    is_sound: bool,
    verdict: &'a mut Verdict,
}

impl Examination<'_> {
    fn encoder(&mut self) -> Result<()> {
        let weights = Weights::from_gguf(self.gguf);
        VisionModel::from_gguf(self.gguf, &weights, self.builder.convention).map(|_| ())
    }

    /// Examines the graph of a text model.
    ///
    /// # Errors
    /// The error of a setting that ends loading before the model is read.
    fn model(&mut self) -> Result<()> {
        #[cfg(feature = "chat")]
        if let Some(source) = &self.builder.chat_template {
            ChatTemplate::new(source, "", "")?;
        }
        let error = if self.is_sound { self.load().err() } else { None };
        if self.is_sound && error.is_none() {
            return Ok(());
        }
        if self.gguf.origin() == Origin::Directory {
            return error.map_or(Ok(()), Err);
        }
        self.explain(error);
        Ok(())
    }

    /// Builds the graphs as loading does.
    fn load(&mut self) -> Result<()> {
        let Self { builder, gguf, .. } = *self;
        let (model, vision) = builder.model(gguf, &Weights::from_gguf(gguf))?;
        builder.context_length_for(&model.config)?;
        CacheLayout::new(&model.graph, builder.cache_type.unwrap_or_default())?;
        if let Err(NoVision::Unusable { path, error }) = vision {
            self.verdict.limits.push(Error::VisionEncoder { path, error });
        }
        Ok(())
    }

    /// Adds the error of loading, and the obstacles that loading does not come to: formats without
    /// kernels, tensors without a use, and the first error that has nothing to do with formats.
    fn explain(&mut self, error: Option<Error>) {
        let (gguf, positions) = (self.gguf, self.builder.positions());
        let with_formats = Model::with_unused(gguf, &Weights::with_known_formats(gguf), positions);
        let (read, unused): (Option<HashSet<_>>, _) = match &with_formats {
            Ok((model, unused)) => {
                let graphs = [&model.graph].into_iter().chain(&model.mtp);
                (Some(graphs.flat_map(tensors_of).collect()), unused.clone())
            }
            Err(_) => (None, vec![]),
        };
        let is_read = |tensor: &TensorInfo| read.as_ref().is_none_or(|read| read.contains(tensor.name.as_str()));
        let is_listed = |tensor: &&TensorInfo| tensor.dtype.dtype().is_none() && is_read(tensor);
        let listed: Vec<_> = gguf.tensors().iter().filter(is_listed).collect();

        match (error, &with_formats) {
            // Not an error about formats.
            (Some(error), Err(other)) if error.to_string() == other.to_string() => self.verdict.add(error.into()),
            (Some(error), _) => self.verdict.add(self.obstacle(error, &listed, &unused)),
            (None, _) => {}
        }
        let weights = Weights::from_gguf(gguf);
        for tensor in &listed {
            if let Err(error) = weights.get(tensor.name.as_str(), &tensor.shape) {
                self.verdict.add(self.obstacle(error, &listed, &unused));
            }
        }
        match with_formats {
            Err(error) => self.verdict.add(error.into()),
            Ok(_) => models::refuse_unused(&unused)
                .unwrap_or_else(|error| self.verdict.add(self.obstacle(error, &listed, &unused))),
        }
    }

    /// Returns an error as an obstacle, with the other tensors that it concerns: the `listed`
    /// tensors in the same format, or all `unused` tensors.
    fn obstacle(&self, error: Error, listed: &[&TensorInfo], unused: &[String]) -> Obstacle {
        let Error::Tensor { tensor, .. } = &error else { return error.into() };
        if unused.contains(tensor) {
            return Obstacle { kind: ObstacleKind::UnusedTensors, tensors: unused.to_vec(), error };
        }
        let Some(of_format) = listed.iter().find(|listed| listed.name == *tensor) else { return error.into() };
        let of_format = listed.iter().filter(|listed| listed.dtype == of_format.dtype);
        Obstacle {
            kind: ObstacleKind::TensorType,
            tensors: of_format.map(|listed| listed.name.clone()).collect(),
            error,
        }
    }

    /// Examines the tokenizer and the chat template.
    fn text(&mut self) {
        let tokenizer = match Tokenizer::from_gguf(self.gguf) {
            Ok(tokenizer) => tokenizer,
            Err(error) => return self.verdict.add(Obstacle::new(ObstacleKind::Tokenizer, error)),
        };
        #[cfg(feature = "chat")]
        match &self.builder.chat_template {
            Some(source) => {
                let template =
                    ChatTemplate::new(source, "", "").and_then(|template| template.for_tokenizer(&tokenizer));
                let _ = template.map_err(|error| self.verdict.add(error.into()));
            }
            None => self.verdict.limits.extend(ChatTemplate::from_gguf(self.gguf, &tokenizer).err()),
        }
        #[cfg(not(feature = "chat"))]
        drop(tokenizer);
    }
}
