//! Translates the vision encoder of a checkpoint into the keys and tensor names of an `mmproj`
//! file.
//!
//! An encoder has a table, an [`EncoderCheckpoint`], as a family of text models has. Its settings
//! are in three places: in the object `vision_config` of `config.json`, beside that object, and in
//! the settings of the image processor.

mod processor;
mod tensors;

use std::path::Path;

use super::{
    KeyValues, Meaning, Setting, Settings, TensorMapping,
    config::{CONFIG, VISION},
};
use crate::{
    Error, Result,
    gguf::{Array, Gguf, Value},
    models::vision,
    safetensors::Directory,
};

/// The GGUF key for whether each layer's result is projected for a layer of the text model.
const IS_DEEPSTACK: &str = "is_deepstack_layers";

/// The largest number of layers that [`IS_DEEPSTACK`] lists. A larger one is refused later.
const MAX_LAYERS: u64 = 1 << 12;

/// The format in which transformers stores vision encoders of one kind.
#[derive(Debug)]
pub(in crate::models) struct EncoderCheckpoint {
    /// The values of `model_type`, of the whole model, that have this encoder.
    pub model_types: &'static [&'static str],
    /// The projector's name in GGUF files.
    pub projector: &'static str,
    /// The setting for the function of the feed-forward networks, and its supported values, the
    /// default first.
    pub activation: (&'static str, &'static [&'static str]),
    /// The settings of `vision_config`.
    pub encoder: &'static [Setting],
    /// The settings beside `vision_config`.
    pub model: &'static [Setting],
    /// The settings of the image processor.
    pub processor: &'static [Setting],
    /// Whether the image processor normalizes pixels if it does not say so.
    pub normalizes: bool,
    /// The prefix of the encoder's tensors, for messages: other prefixes are understood too.
    pub prefix: &'static str,
    /// The prefix of a layer's tensors, which a number follows.
    pub layers: &'static str,
    /// The tensors. Names of the encoder's own tensors are without a prefix.
    pub tensors: &'static [&'static [TensorMapping]],
    /// Returns further GGUF keys, and checks the settings against each other.
    pub derived: fn(&EncoderSettings) -> Result<KeyValues>,
}

impl EncoderCheckpoint {
    /// The settings and tensors' prefixes that most encoders share.
    pub const ENCODER: Self = Self {
        model_types: &[],
        projector: "",
        activation: ("hidden_act", &["gelu_pytorch_tanh"]),
        encoder: &[],
        model: &[],
        processor: &[],
        normalizes: true,
        prefix: "",
        layers: "encoder.layers.",
        tensors: &[],
        derived: |_| Ok(vec![]),
    };
}

/// The settings of a checkpoint with a vision encoder.
pub(in crate::models) struct EncoderSettings<'a> {
    /// The settings of `vision_config`.
    pub encoder: Settings<'a>,
    /// The settings of the whole model.
    pub model: Settings<'a>,
    /// The settings of the image processor.
    pub processor: Settings<'a>,
    /// The GGUF keys of the settings that the table lists.
    keys: KeyValues,
}

/// Translates the vision encoder of the directory at `path`. Returns `None` for a checkpoint
/// without one.
///
/// # Errors
/// - [`Error::Architecture`] for an encoder that is not supported.
/// - [`Error::InvalidFile`] for a setting that is missing or not supported.
/// - [`Error::Tensor`] for a tensor in another shape than expected, or stored twice.
pub fn open_encoder(path: &Path) -> Result<Option<Gguf>> {
    let config = Directory::config(path)?;
    let model = Settings::of_object(path.join(CONFIG), &config);
    let Some(encoder) = model.nested(VISION)? else { return Ok(None) };
    let checkpoint = find(model.model_type()?)?;
    let (file, object) = processor::read(path)?;
    let processor = processor::settings(path, file, &object)?;
    let mut settings = EncoderSettings { encoder, model, processor, keys: vec![] };
    settings.keys = [
        settings.encoder.keys(checkpoint.encoder)?,
        settings.model.keys(checkpoint.model)?,
        settings.processor.keys(checkpoint.processor)?,
        settings.processor.normalization(checkpoint.normalizes)?,
    ]
    .concat();
    settings.keys.push(("projection_dim", settings.text_width(path, &config)?));
    let derived = (checkpoint.derived)(&settings)?;
    settings.keys.extend(derived);
    let layers = tensors::deepstack_layers(&settings)?;
    let is_deepstack =
        (0..settings.value("block_count").min(MAX_LAYERS)).map(|layer| layers.contains(&layer)).collect();
    settings.keys.push((IS_DEEPSTACK, Value::Array(Array::Bool(is_deepstack))));
    let tensors = tensors::translate(&Directory::tensors(path)?, checkpoint, &layers)?;
    let full_key = |(key, value): (&str, Value)| (format!("clip.vision.{key}"), value);
    let mut keys = vec![
        ("general.architecture".to_owned(), Value::String("clip".into())),
        ("clip.projector_type".into(), Value::String(checkpoint.projector.into())),
    ];
    keys.extend(checkpoint.activation_key(&settings.encoder)?);
    keys.extend(settings.keys.into_iter().map(full_key));
    Gguf::translated(path, keys, tensors).map(Some)
}

fn find(model_type: &str) -> Result<&'static EncoderCheckpoint> {
    let all = || vision::CHECKPOINTS.iter().copied();
    all().find(|checkpoint| checkpoint.model_types.contains(&model_type)).ok_or_else(|| {
        let supported: Vec<_> = all().flat_map(|checkpoint| checkpoint.model_types).copied().collect();
        Error::Architecture { name: model_type.into(), known: false, supported: supported.join(", ") }
    })
}

/// Returns an error about a translated encoder as an error about the directory at `path`: with
/// settings instead of GGUF keys, and the checkpoint's names of tensors.
pub(in crate::models) fn reword_encoder(gguf: &Gguf, error: Error) -> Error {
    let path = gguf.path();
    let projector = gguf.str("clip.projector_type").ok().flatten();
    let checkpoints = || vision::CHECKPOINTS.iter().filter(|checkpoint| Some(checkpoint.projector) == projector);
    match error {
        Error::Metadata { key, what } => {
            let setting = key
                .strip_prefix("clip.vision.")
                .and_then(|key| checkpoints().find_map(|checkpoint| checkpoint.setting_for(path, key)));
            match setting {
                Some((path, name)) => Error::InvalidFile { path, what: format!("`{name}` {what}") },
                None => Error::Metadata { key, what },
            }
        }
        Error::Tensor { tensor, what } => {
            let is_deepstack = match gguf.get(&format!("clip.vision.{IS_DEEPSTACK}")) {
                Some(Value::Array(Array::Bool(layers))) => layers.as_slice(),
                _ => &[],
            };
            let name = checkpoints().find_map(|checkpoint| checkpoint.name_of(&tensor, is_deepstack));
            Error::Tensor { tensor: name.unwrap_or(tensor), what }
        }
        other => other,
    }
}

impl EncoderCheckpoint {
    /// Returns the file and the name of the setting that a GGUF key is made from.
    fn setting_for(&self, path: &Path, key: &str) -> Option<(std::path::PathBuf, String)> {
        let find = |settings: &'static [Setting]| {
            settings.iter().find(|setting| setting.meaning.gguf_key() == Some(key)).map(|setting| setting.name)
        };
        if let Some(name) = find(self.encoder) {
            return Some((path.join(CONFIG), format!("{VISION}.{name}")));
        }
        if let Some(name) = find(self.model) {
            return Some((path.join(CONFIG), name.into()));
        }
        let name = processor::NORMALIZATION.into_iter().find(|name| *name == key).or_else(|| find(self.processor))?;
        let (file, _) = processor::read(path).ok()?;
        Some((path.join(file), name.into()))
    }

    /// Returns the GGUF key for the function of the feed-forward networks, if it has one.
    fn activation_key(&self, encoder: &Settings) -> Result<Option<(String, Value)>> {
        let (name, supported) = self.activation;
        let rows = [Setting { name, meaning: Meaning::OneOf(supported) }];
        encoder.keys(&rows)?;
        let function = encoder.get(name).and_then(|value| value.as_str()).or_else(|| supported.first().copied());
        let key = match function {
            Some("silu") => "clip.use_silu",
            Some("quick_gelu") => return Ok(None),
            _ => "clip.use_gelu",
        };
        Ok(Some((key.into(), Value::Bool(true))))
    }
}

impl EncoderSettings<'_> {
    /// Returns the value of a GGUF key that is an integer, or 0 if there is none.
    pub fn value(&self, key: &str) -> u64 {
        self.keys.iter().find(|(known, _)| *known == key).and_then(|(_, value)| value.to_u64()).unwrap_or(0)
    }

    /// Checks that a setting of the image processor is absent or equal to the encoder's.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] with both sizes.
    pub fn check_processor(&self, name: &str, key: &str) -> Result<()> {
        let expected = self.value(key);
        match self.processor.size(name)? {
            Some(size) if u64::from(size) != expected => {
                let what = format!("is {size}, but the encoder's is {expected}");
                Err(self.processor.error(name, what))
            }
            _ => Ok(()),
        }
    }

    /// Checks that the image processor's pictures are squares of the encoder's size.
    ///
    /// # Errors
    /// [`Error::InvalidFile`] with both sizes.
    pub fn check_side_of_pictures(&self) -> Result<()> {
        let expected = self.value("image_size");
        let Some(size) = self.processor.nested("size")? else { return Ok(()) };
        for name in ["height", "width"] {
            if let Some(side) = size.size(name)?.filter(|side| u64::from(*side) != expected) {
                return Err(size.error(name, format!("is {side}, but the encoder's is {expected}")));
            }
        }
        Ok(())
    }

    fn text_width(&self, path: &Path, config: &serde_json::Map<String, serde_json::Value>) -> Result<Value> {
        const NAME: &str = "hidden_size";
        let text = Settings::new(path, config)?;
        text.size(NAME)?.map(Value::U32).ok_or_else(|| text.error(NAME, "is missing"))
    }
}
