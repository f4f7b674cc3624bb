//! Finds the profile of a model, and combines it with the builder's settings.

use std::thread;

use super::RunnerBuilder;
use crate::{
    Error, Result,
    backend::DeviceInfo,
    gguf::Gguf,
    profile::{MadeFor, Profile, ProfileFile},
};

impl RunnerBuilder {
    /// Returns the choices for a model on a device: the builder's settings, then its profile or
    /// else the file beside the model. Returns that file too.
    ///
    /// # Errors
    /// [`Error::Argument`] for a profile of the builder that has an impossible value or was made
    /// for another device or model; the errors of [`Profile::open`].
    pub(super) fn profile_for(&self, gguf: &Gguf, device: &DeviceInfo) -> Result<(Profile, Option<ProfileFile>)> {
        let here = made_for(gguf, device)?;
        let (profile, file) = match &self.profile {
            Some(profile) => {
                profile.check()?;
                if let Some(misfit) = profile.misfit(&here) {
                    return Err(Error::argument("profile", misfit));
                }
                (profile.clone(), None)
            }
            None => {
                let path = Profile::path_for(gguf.path());
                if path.is_file() {
                    let profile = Profile::open(&path)?;
                    let unused = profile.misfit(&here);
                    let used = if unused.is_none() { profile } else { Profile::default() };
                    (used, Some(ProfileFile { path, unused }))
                } else {
                    (Profile::default(), None)
                }
            }
        };
        let threads = self.threads.or(profile.threads);
        let profile = Profile {
            threads,
            // A number of threads that the program sets is the number in every step.
            decode_threads: profile.decode_threads.filter(|_| self.threads.is_none()),
            prefill_chunk: self.prefill_chunk.or(profile.prefill_chunk),
            cache_type: self.cache_type.or(profile.cache_type),
            made_for: Some(here),
            ..profile
        };
        Ok((profile, file))
    }
}

fn made_for(gguf: &Gguf, device: &DeviceInfo) -> Result<MadeFor> {
    let DeviceInfo { name, details, .. } = device;
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let device = if name == "CPU" { format!("CPU, {details}, {processors} processors") } else { name.clone() };
    Ok(MadeFor {
        device,
        architecture: gguf.architecture()?.into(),
        weight_bytes: gguf.tensors().iter().map(|tensor| tensor.byte_len() as u64).sum(),
    })
}
