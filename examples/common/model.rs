//! The options with which an example loads its model.

use inkstone::{CacheType, Runner, RunnerBuilder};

use crate::common::{Args, Failure};

/// The usage of what [`builder`] takes.
pub const MODEL_OPTIONS: &str =
    "  --context N        the most tokens in the cache (4096, or what the model was trained for)
  --cache TYPE       keys and values are kept as f32, f16 or q8_0 (f16)
  --device NAME      auto, cpu, gpu, or a part of a GPU's name (auto)
  --threads N        CPU threads (one for each core)";

/// Takes the options for loading.
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
            _ => return Err(format!("--cache {name}: f32, f16 and q8_0 are known").into()),
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
