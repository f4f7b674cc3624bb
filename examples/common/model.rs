//! Parses the options for loading a model.

use inkstone::{CacheType, Runner, RunnerBuilder};

use crate::common::{Args, Failure};

/// Usage of the options that [`builder`] parses.
pub const MODEL_OPTIONS: &str =
    "  --context N        maximum number of tokens in the cache (4096, or the model's trained context)
  --cache TYPE       format of cached keys and values: f32, f16 or q8_0 (f16)
  --device NAME      auto, cpu, gpu, or a part of a GPU's name (auto)
  --threads N        CPU threads (one per core)";

/// Parses the options for loading.
pub fn builder(args: &mut Args) -> Result<RunnerBuilder, Failure> {
    let mut builder = Runner::builder();
    if let Some(tokens) = args.value("--context")? {
        builder = builder.context_length(tokens);
    }
    if let Some(name) = args.value::<String>("--cache")? {
        builder = builder.cache_type(match name.as_str() {
            "f32" => CacheType::F32,
            "f16" => CacheType::F16,
            "q8_0" => CacheType::Q8_0,
            _ => return Err(format!("--cache {name}: expected f32, f16 or q8_0").into()),
        });
    }
    if let Some(device) = args.value("--device")? {
        builder = builder.device(device);
    }
    if let Some(threads) = args.value("--threads")? {
        builder = builder.threads(threads);
    }
    Ok(builder)
}
