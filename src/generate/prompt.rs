//! The prompt of a generation: text, token ids and images.

use std::borrow::Cow;

#[cfg(feature = "chat")]
use crate::chat::RenderedPrompt;
use crate::{
    Error, Result,
    image::Image,
    tokenizer::{SpecialTokens, Tokenizer},
};

/// The prompt of a generation: text, token ids, or a list of texts, ids and images.
///
/// Strings, ids, lists of parts and rendered chat templates convert into it:
///
/// ```
/// use inkstone::{GenerateOptions, Runner};
///
/// let mut runner = Runner::from_gguf("tests/data/storyteller/storyteller.gguf")?;
/// let options = GenerateOptions { max_tokens: Some(8), ..Default::default() };
/// let ids = runner.tokenizer().encode_prompt("Once upon a time")?;
/// runner.generate("Once upon a time", &options)?;
/// runner.generate(&ids, &options)?;
/// runner.generate(&[1, 2, 3], &options)?;
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Prompt<'a> {
    /// A text, which [`Tokenizer::encode_prompt`] encodes: the text of special tokens becomes these
    /// tokens, and the begin-of-sequence token is added if the model uses one.
    Text(Cow<'a, str>),
    /// Token ids, to which no token is added.
    Ids(Cow<'a, [u32]>),
    /// Texts, ids and images, one after the other.
    Parts(Vec<PromptPart<'a>>),
}

/// A part of a prompt.
///
/// The text that a model expects around an image, such as `<|vision_start|>` and `<|vision_end|>`,
/// is added unless the parts beside the image have it.
///
/// ```no_run
/// use inkstone::{GenerateOptions, Image, PromptPart, Runner};
///
/// let mut runner = Runner::from_gguf("Qwen3-VL-2B-Instruct-Q4_K_M.gguf")?;
/// let prompt: [PromptPart; 2] = [Image::open("cat.jpg")?.into(), "A photo of".into()];
/// println!("{}", runner.generate(prompt, &GenerateOptions::default())?.into_text()?);
/// # Ok::<(), inkstone::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PromptPart<'a> {
    /// A text, in which the text of special tokens becomes these tokens. If it is the first part,
    /// the begin-of-sequence token is added as for [`Prompt::Text`].
    Text(Cow<'a, str>),
    /// Token ids.
    Ids(Cow<'a, [u32]>),
    /// An image, for models with a vision encoder.
    Image(Image),
}

/// A part of a prompt whose texts are token ids.
#[derive(Debug)]
pub enum EncodedPart {
    Ids(Vec<u32>),
    Image(Image),
}

impl<'a> Prompt<'a> {
    /// Returns a prompt with owned data.
    pub fn into_owned(self) -> Prompt<'static> {
        match self {
            Self::Text(text) => Prompt::Text(Cow::Owned(text.into_owned())),
            Self::Ids(ids) => Prompt::Ids(Cow::Owned(ids.into_owned())),
            Self::Parts(parts) => Prompt::Parts(parts.into_iter().map(PromptPart::into_owned).collect()),
        }
    }

    /// Returns the token ids.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty text or an image, which has no ids; else as
    /// [`Tokenizer::encode_prompt`].
    pub fn into_ids(self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let mut all = vec![];
        for part in self.into_encoded_parts(tokenizer)? {
            match part {
                EncodedPart::Ids(ids) if all.is_empty() => all = ids,
                EncodedPart::Ids(ids) => all.extend(ids),
                EncodedPart::Image(_) => {
                    return Err(Error::argument("prompt", "must not have images here: they have no token ids"));
                }
            }
        }
        Ok(all)
    }

    pub(crate) fn has_images(&self) -> bool {
        matches!(self, Self::Parts(parts) if parts.iter().any(|part| matches!(part, PromptPart::Image(_))))
    }

    /// Returns the parts with the token ids of their texts.
    ///
    /// # Errors
    /// As [`into_ids`](Self::into_ids), except for images.
    pub(crate) fn into_encoded_parts(self, tokenizer: &Tokenizer) -> Result<Vec<EncodedPart>> {
        let parts = match self {
            Self::Text(text) => vec![PromptPart::Text(text)],
            Self::Ids(ids) => vec![PromptPart::Ids(ids)],
            Self::Parts(parts) => parts,
        };
        if parts.iter().all(|part| matches!(part, PromptPart::Text(text) if text.is_empty())) {
            return Err(Error::argument("prompt", "must not be empty"));
        }
        let mut encoded = Vec::with_capacity(parts.len());
        if let Some(PromptPart::Image(_)) = parts.first() {
            encoded.push(EncodedPart::Ids(tokenizer.encode_prompt("")?));
        }
        for part in parts {
            encoded.push(match part {
                PromptPart::Text(text) if encoded.is_empty() => EncodedPart::Ids(tokenizer.encode_prompt(&text)?),
                PromptPart::Text(text) => EncodedPart::Ids(tokenizer.encode(&text, SpecialTokens::Parse)?),
                PromptPart::Ids(ids) => EncodedPart::Ids(ids.into_owned()),
                PromptPart::Image(image) => EncodedPart::Image(image),
            });
        }
        Ok(encoded)
    }
}

impl PromptPart<'_> {
    /// Returns a part with owned data.
    pub fn into_owned(self) -> PromptPart<'static> {
        match self {
            Self::Text(text) => PromptPart::Text(Cow::Owned(text.into_owned())),
            Self::Ids(ids) => PromptPart::Ids(Cow::Owned(ids.into_owned())),
            Self::Image(image) => PromptPart::Image(image),
        }
    }
}

impl<'a> From<&'a str> for PromptPart<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl From<String> for PromptPart<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl From<Vec<u32>> for PromptPart<'_> {
    fn from(ids: Vec<u32>) -> Self {
        Self::Ids(Cow::Owned(ids))
    }
}

impl From<Image> for PromptPart<'_> {
    fn from(image: Image) -> Self {
        Self::Image(image)
    }
}

impl<'a, const N: usize> From<[PromptPart<'a>; N]> for Prompt<'a> {
    fn from(parts: [PromptPart<'a>; N]) -> Self {
        Self::Parts(parts.into())
    }
}

impl<'a> From<&'a str> for Prompt<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Cow::Borrowed(text))
    }
}

impl<'a> From<&&'a str> for Prompt<'a> {
    fn from(text: &&'a str) -> Self {
        Self::from(*text)
    }
}

impl<'a> From<&'a String> for Prompt<'a> {
    fn from(text: &'a String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<String> for Prompt<'_> {
    fn from(text: String) -> Self {
        Self::Text(Cow::Owned(text))
    }
}

impl<'a> From<Cow<'a, str>> for Prompt<'a> {
    fn from(text: Cow<'a, str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a Cow<'_, str>> for Prompt<'a> {
    fn from(text: &'a Cow<'_, str>) -> Self {
        Self::from(&**text)
    }
}

impl<'a> From<&'a [u32]> for Prompt<'a> {
    fn from(ids: &'a [u32]) -> Self {
        Self::Ids(Cow::Borrowed(ids))
    }
}

impl<'a, const N: usize> From<&'a [u32; N]> for Prompt<'a> {
    fn from(ids: &'a [u32; N]) -> Self {
        Self::from(ids.as_slice())
    }
}

impl<'a> From<&'a Vec<u32>> for Prompt<'a> {
    fn from(ids: &'a Vec<u32>) -> Self {
        Self::from(ids.as_slice())
    }
}

impl From<Vec<u32>> for Prompt<'_> {
    fn from(ids: Vec<u32>) -> Self {
        Self::Ids(Cow::Owned(ids))
    }
}

#[cfg(feature = "chat")]
impl From<RenderedPrompt> for Prompt<'_> {
    fn from(RenderedPrompt { ids, images, .. }: RenderedPrompt) -> Self {
        let (mut parts, mut rest) = (vec![], ids);
        for (index, image) in images.into_iter().rev() {
            parts.extend([rest.split_off(index).into(), image.into()]);
        }
        if parts.is_empty() {
            return Self::from(rest);
        }
        parts.push(rest.into());
        parts.reverse();
        Self::Parts(parts)
    }
}

#[cfg(feature = "chat")]
impl From<&RenderedPrompt> for Prompt<'_> {
    fn from(prompt: &RenderedPrompt) -> Self {
        Self::from(prompt.clone())
    }
}
