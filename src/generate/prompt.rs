//! The prompt of a generation, as text or as token ids.

use std::borrow::Cow;

#[cfg(feature = "chat")]
use crate::chat::RenderedPrompt;
use crate::{Error, Result, tokenizer::Tokenizer};

/// The prompt of a generation: text or token ids.
///
/// Strings, ids and rendered chat templates convert into it:
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
}

impl Prompt<'_> {
    /// Returns a prompt with owned data.
    pub fn into_owned(self) -> Prompt<'static> {
        match self {
            Self::Text(text) => Prompt::Text(Cow::Owned(text.into_owned())),
            Self::Ids(ids) => Prompt::Ids(Cow::Owned(ids.into_owned())),
        }
    }

    /// Returns the token ids.
    ///
    /// # Errors
    /// [`Error::Argument`] for an empty text; else as [`Tokenizer::encode_prompt`].
    pub fn into_ids(self, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        match self {
            Self::Text(text) if text.is_empty() => Err(Error::argument("prompt", "must not be empty")),
            Self::Text(text) => tokenizer.encode_prompt(&text),
            Self::Ids(ids) => Ok(ids.into_owned()),
        }
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
    fn from(prompt: RenderedPrompt) -> Self {
        Self::from(prompt.ids)
    }
}

#[cfg(feature = "chat")]
impl<'a> From<&'a RenderedPrompt> for Prompt<'a> {
    fn from(prompt: &'a RenderedPrompt) -> Self {
        Self::from(&prompt.ids)
    }
}
