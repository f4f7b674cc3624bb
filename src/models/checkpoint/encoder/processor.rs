//! Reads the settings of a checkpoint's image processor.

use std::path::Path;

use serde_json::{Map as Object, Value as Json};

use super::super::{KeyValues, Settings};
use crate::{
    Error, Result,
    gguf::{Array, Value},
    safetensors::Directory,
};

/// The file of all processors, as transformers 5 writes it, and the object within it.
const PROCESSORS: &str = "processor_config.json";
const IMAGES: &str = "image_processor";

/// The file of the image processor alone.
const IMAGE_PROCESSOR: &str = "preprocessor_config.json";

/// The settings of the means and deviations, which are GGUF keys of the same names.
pub(super) const NORMALIZATION: [&str; 2] = ["image_mean", "image_std"];

/// Reads the file with the settings of the image processor. As in transformers, the file of all
/// processors takes precedence.
pub(super) fn read(path: &Path) -> Result<(&'static str, Object<String, Json>)> {
    if let Some(all) = Directory::object(path, PROCESSORS)?
        && all.get(IMAGES).is_some_and(Json::is_object)
    {
        return Ok((PROCESSORS, all));
    }
    match Directory::object(path, IMAGE_PROCESSOR)? {
        Some(object) => Ok((IMAGE_PROCESSOR, object)),
        None => {
            let what = "is missing: save the processor with transformers' `save_pretrained`";
            Err(Error::InvalidFile { path: path.join(IMAGE_PROCESSOR), what: what.into() })
        }
    }
}

/// Returns the settings of the image processor in the object of a file.
pub(super) fn settings<'a>(path: &Path, file: &str, object: &'a Object<String, Json>) -> Result<Settings<'a>> {
    let settings = Settings::of_object(path.join(file), object);
    let nested = settings.nested(IMAGES)?.filter(|_| file == PROCESSORS);
    Ok(nested.unwrap_or(settings))
}

impl Settings<'_> {
    /// Returns the keys for the mean and the deviation of each channel. `by_default` says whether
    /// pixels are normalized if no setting says so.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] for a setting that is missing or not supported.
    pub(super) fn normalization(&self, by_default: bool) -> Result<KeyValues> {
        const SCALE: &str = "rescale_factor";
        if let Some(scale) = self.float(SCALE)?.filter(|scale| (scale * 255.0 - 1.0).abs() > 1e-6) {
            return Err(self.error(SCALE, format!("is {scale}, but only 1/255 is supported")));
        }
        let normalizes = self.bool("do_normalize")?.unwrap_or(by_default);
        let key = |(name, plain): (&'static str, f32)| {
            let channels = if normalizes { self.channels(name)? } else { vec![plain; 3] };
            Ok((name, Value::Array(Array::F32(channels))))
        };
        NORMALIZATION.into_iter().zip([0.0, 1.0]).map(key).collect()
    }

    /// Returns a number for each channel.
    fn channels(&self, name: &str) -> Result<Vec<f32>> {
        let value = self.get(name).ok_or_else(|| self.error(name, "is missing"))?;
        let number = |number: &Json| Some(number.as_f64()? as f32);
        let channels = value.as_array().and_then(|all| all.iter().map(number).collect());
        channels.ok_or_else(|| self.type_error(name, value, "a list of a number for each of three channels"))
    }
}
