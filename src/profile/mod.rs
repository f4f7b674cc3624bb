//! Choices that change the speed of a model on a device: a typed form, and a TOML file of it.

mod toml;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::{Error, Result, kv_cache::CacheType, optimize::PASSES};

/// The largest number of CPU threads.
pub const MAX_THREADS: usize = 1024;
/// The largest prefill chunk. Longer chunks are not faster, and need too much scratch memory.
pub const MAX_CHUNK: usize = 1 << 14;
/// The largest number of rows of a step that GPUs compute with kernels for few rows.
pub const FEW_ROWS: usize = 16;
/// The largest number of cached positions that a workgroup attends to for a token.
pub const MAX_UNSPLIT: usize = 1024;
/// The largest number of rows at which the tiles of a GPU's products change.
const MAX_TILE_ROWS: usize = 4096;

/// Choices that change the speed of a model on a device. A field that is `None` or empty leaves the
/// choice to inkstone.
///
/// The example `tune` measures which choices are the fastest on a machine, and writes them to
/// `NAME.inkstone.toml` beside the model's file `NAME.gguf`, or to `model.inkstone.toml` in a
/// directory of safetensors. A [`RunnerBuilder`](crate::RunnerBuilder) reads that file, unless the
/// program gives it another profile; its own settings precede both.
///
/// Results are those of the same model without a profile: on a CPU bit for bit, on a GPU except for
/// rounding. The exception is [`cache_type`](Self::cache_type), whose formats round differently.
///
/// ```
/// use inkstone::{Profile, Runner};
///
/// let mut profile = Profile::default();
/// profile.threads = Some(2);
/// profile.prefill_chunk = Some(128);
/// let runner = Runner::builder().profile(profile).from_gguf("tests/data/storyteller/storyteller.gguf")?;
/// println!("{}", runner.profile().to_toml()?);
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct Profile {
    /// Number of CPU threads, from 1 to 1024.
    #[serde(deserialize_with = "toml::threads", skip_serializing_if = "Option::is_none")]
    pub threads: Option<usize>,
    /// Number of CPU threads in steps of up to 16 tokens, such as decoding, if
    /// [`threads`](Self::threads) is larger; from 1 to 1024.
    #[serde(deserialize_with = "toml::threads", skip_serializing_if = "Option::is_none")]
    pub decode_threads: Option<usize>,
    /// The largest number of prompt tokens in one step, from 1 to 16,384.
    #[serde(deserialize_with = "toml::chunk", skip_serializing_if = "Option::is_none")]
    pub prefill_chunk: Option<usize>,
    /// The format of cached keys and values.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_type: Option<CacheType>,
    /// The names of optimizer passes that do not run, of [`Profile::passes`].
    #[serde(deserialize_with = "toml::passes", skip_serializing_if = "Vec::is_empty")]
    pub without_passes: Vec<String>,
    /// The choices for a GPU.
    #[serde(skip_serializing_if = "GpuProfile::is_default")]
    pub gpu: GpuProfile,
    /// The device and the model that the choices were measured with; `None` fits all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub made_for: Option<MadeFor>,
}

/// The choices of a [`Profile`] for a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[non_exhaustive]
pub struct GpuProfile {
    /// The largest number of rows of each kernel for products of up to 16 rows: up to five
    /// increasing numbers, the last of which is 16. Default: 1, 2, 4, 8, 16.
    #[serde(deserialize_with = "toml::row_counts", skip_serializing_if = "Vec::is_empty")]
    pub row_counts: Vec<usize>,
    /// The largest number of rows of each tile of matrix units, but for the largest tile: three
    /// increasing numbers from 17 to 4,096. Default: 32, 64, 256.
    #[serde(deserialize_with = "toml::tile_rows", skip_serializing_if = "Vec::is_empty")]
    pub tile_rows: Vec<usize>,
    /// The largest number of cached positions that one workgroup attends to for a token, from 64 to
    /// 1024. Several workgroups share a longer sequence. Default: 1024, or as many as the adapter
    /// has room for.
    #[serde(deserialize_with = "toml::unsplit_positions", skip_serializing_if = "Option::is_none")]
    pub unsplit_positions: Option<usize>,
}

impl GpuProfile {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// The device and the model that a [`Profile`] was measured with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeFor {
    /// The name of a GPU; for a CPU, the instruction set and the number of logical processors.
    pub device: String,
    /// The model's architecture, such as `qwen3`.
    pub architecture: String,
    /// The size of the model's tensors in bytes.
    pub weight_bytes: u64,
}

/// The file of a [`Profile`] that was found beside a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileFile {
    /// The file.
    pub path: PathBuf,
    /// The reason why the file is not used: it was made for another device or model.
    pub unused: Option<String>,
}

impl Profile {
    /// Reads a profile from a TOML file, such as `tune` writes.
    ///
    /// # Errors
    /// [`Error::Io`] if the file cannot be read; [`Error::InvalidFile`], with the line, for an
    /// unknown key or an impossible value.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| Error::Io { path: path.into(), source })?;
        toml::parse(&text).map_err(|what| Error::InvalidFile { path: path.into(), what })
    }

    /// Returns the profile as a TOML file. Choices that are left to inkstone are not in it.
    ///
    /// # Errors
    /// [`Error::Argument`] for an impossible value, with which the file could not be read.
    pub fn to_toml(&self) -> Result<String> {
        self.check()?;
        toml::write(self).map_err(Error::internal)
    }

    /// Returns the path of the profile that a builder reads for a model at `model`, a file or a
    /// directory.
    pub fn path_for(model: impl AsRef<Path>) -> PathBuf {
        let model = model.as_ref();
        if model.is_dir() {
            return model.join("model.inkstone.toml");
        }
        // The end of another name, such as `Qwen3-0.6B`, is not an extension.
        let is_gguf = model.extension().is_some_and(|extension| extension.eq_ignore_ascii_case("gguf"));
        let mut name = if is_gguf { model.with_extension("") } else { model.to_path_buf() }.into_os_string();
        name.push(".inkstone.toml");
        name.into()
    }

    /// Returns the names of the optimizer's passes, in the order in which they run.
    pub fn passes() -> impl Iterator<Item = &'static str> {
        PASSES.iter().map(|pass| pass.name())
    }

    /// Checks the values.
    ///
    /// # Errors
    /// [`Error::Argument`] for an impossible value.
    pub(crate) fn check(&self) -> Result<()> {
        let Self { threads, decode_threads, prefill_chunk, cache_type: _, without_passes, gpu, made_for: _ } = self;
        let GpuProfile { row_counts, tile_rows, unsplit_positions } = gpu;
        let optional = |value: &Option<usize>, check: fn(usize) -> Result<(), String>| value.map_or(Ok(()), check);
        let checks = [
            ("threads", optional(threads, check_threads)),
            ("decode_threads", optional(decode_threads, check_threads)),
            ("prefill_chunk", optional(prefill_chunk, check_chunk)),
            ("without_passes", check_passes(without_passes)),
            ("gpu.row_counts", check_row_counts(row_counts)),
            ("gpu.tile_rows", check_tile_rows(tile_rows)),
            ("gpu.unsplit_positions", optional(unsplit_positions, check_unsplit)),
        ];
        checks.into_iter().try_for_each(|(name, result)| {
            result.map_err(|what| Error::argument("profile", format!("has a `{name}` that {what}")))
        })
    }

    /// Returns why the profile does not fit a device and model; `None` if it does.
    pub(crate) fn misfit(&self, here: &MadeFor) -> Option<String> {
        let made_for = self.made_for.as_ref().filter(|made_for| *made_for != here)?;
        let name = |made_for: &MadeFor| {
            let MadeFor { device, architecture, weight_bytes } = made_for;
            format!("{device} and a model of {architecture} with {weight_bytes} bytes of weights")
        };
        Some(format!("was made for {}, and this is {}: run the example `tune` again", name(made_for), name(here)))
    }
}

fn check_threads(threads: usize) -> Result<(), String> {
    within(threads, 1, MAX_THREADS)
}

fn check_chunk(tokens: usize) -> Result<(), String> {
    within(tokens, 1, MAX_CHUNK)
}

fn check_unsplit(positions: usize) -> Result<(), String> {
    within(positions, 64, MAX_UNSPLIT)
}

fn within(value: usize, least: usize, most: usize) -> Result<(), String> {
    if (least..=most).contains(&value) {
        Ok(())
    } else {
        Err(format!("is {value}, but must be from {least} to {most}"))
    }
}

fn check_passes(passes: &[String]) -> Result<(), String> {
    let unknown = passes.iter().find(|name| !Profile::passes().any(|pass| pass == *name));
    unknown.map_or(Ok(()), |name| {
        let known: Vec<_> = Profile::passes().collect();
        Err(format!("names the unknown pass `{name}`; the passes are {}", known.join(", ")))
    })
}

fn check_row_counts(counts: &[usize]) -> Result<(), String> {
    let fits = counts.len() <= 5 && counts.iter().is_sorted_by(|a, b| a < b) && counts.first() != Some(&0);
    if counts.is_empty() || fits && counts.last() == Some(&FEW_ROWS) {
        return Ok(());
    }
    Err(format!("is {counts:?}, but must be up to five increasing numbers from 1 on, the last of them {FEW_ROWS}"))
}

fn check_tile_rows(rows: &[usize]) -> Result<(), String> {
    let fits = rows.len() == 3 && rows.iter().is_sorted_by(|a, b| a < b);
    if rows.is_empty() || fits && rows[0] > FEW_ROWS && rows[2] <= MAX_TILE_ROWS {
        return Ok(());
    }
    let least = FEW_ROWS + 1;
    Err(format!("is {rows:?}, but must be three increasing numbers from {least} to {MAX_TILE_ROWS}"))
}
