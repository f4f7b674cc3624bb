//! Describes and chooses the device that a model runs on.

use std::{convert::Infallible, str::FromStr};

use crate::{
    Error, Result,
    profile::{MAX_THREADS, ProfileFile},
};

/// A description of the device that a model runs on.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The device's name.
    pub name: String,
    /// The instruction set of a CPU, or the adapter and driver of a GPU.
    pub details: String,
    /// Number of CPU threads that work on a step.
    pub threads: usize,
    /// Bytes of a GPU's dedicated memory, if its driver reports them.
    pub memory: Option<u64>,
    /// The reason why the model runs on the CPU although a GPU was looked for.
    pub fallback: Option<String>,
    /// The file of the profile that was found beside the model.
    pub profile: Option<ProfileFile>,
}

/// The device that a model is to run on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// The best GPU, in builds with the feature `wgpu` or `metal`. If there is none or the model
    /// does not run on it, the CPU; [`DeviceInfo::fallback`] then gives the reason.
    #[default]
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU. If the model does not run on it, loading fails.
    Gpu(Adapter),
}

/// The choice among a machine's GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Adapter {
    /// The fastest kind of GPU: a discrete one before an integrated one. Software renderers are
    /// never chosen.
    #[default]
    Best,
    /// The first adapter whose name contains this text, in upper or lower case; software renderers
    /// count.
    Named(String),
}

impl Device {
    /// Checks a number of CPU threads.
    pub(crate) fn check_threads(threads: usize) -> Result<()> {
        match threads {
            1..=MAX_THREADS => Ok(()),
            _ => Err(Error::argument("threads", format!("must be from 1 to {MAX_THREADS}, not {threads}"))),
        }
    }
}

/// Parses `auto`, `cpu`, `gpu`, or a part of a GPU's name.
impl FromStr for Device {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<Self, Infallible> {
        Ok(match text {
            "auto" => Self::Auto,
            "cpu" => Self::Cpu,
            "gpu" => Self::Gpu(Adapter::Best),
            name => Self::Gpu(Adapter::Named(name.into())),
        })
    }
}
