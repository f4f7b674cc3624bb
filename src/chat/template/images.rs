//! Finds the places of images in a rendered conversation.
//!
//! Templates write a mark for an image, which transformers' processors replace by the image's
//! tokens. A mark that a message has as text is escaped, so that only the template's own count.

use std::ops::{Range, RangeInclusive};

use minijinja::{
    context,
    value::{Serde, Value, merge_maps},
};

use crate::{
    chat::{Content, Message, Part},
    error::{Error, Result},
    tokenizer::Tokenizer,
};

/// A template's text for an image.
struct Mark {
    text: &'static str,
    /// The text that transformers' processor adds on both sides.
    around: &'static str,
}

/// The marks of all families with vision encoders.
const MARKS: [Mark; 5] = [
    // Qwen2-VL and later.
    Mark { text: "<|image_pad|>", around: "" },
    // Gemma 3.
    Mark { text: "<start_of_image>", around: "\n\n" },
    // Gemma 4.
    Mark { text: "<|image|>", around: "" },
    // Idefics 3, SmolVLM.
    Mark { text: "<image>", around: "" },
    // InternVL.
    Mark { text: "<IMG_CONTEXT>", around: "" },
];

/// The characters that mark images in the content of messages: the Basic Multilingual Plane's
/// private use area.
const PRIVATE_USE: RangeInclusive<char> = '\u{e000}'..='\u{f8ff}';

/// A rendered conversation, with the places of its images.
pub(super) struct MarkedText {
    pub text: String,
    /// The byte ranges of the text that no special token may overlap.
    plain: Vec<Range<usize>>,
    /// The byte ranges of the marks.
    marks: Vec<Range<usize>>,
    around: &'static str,
}

/// Returns the texts of all marks.
pub(super) fn marks() -> [&'static str; 5] {
    MARKS.map(|mark| mark.text)
}

/// Returns a character that neither the template nor the messages have.
pub(super) fn unused_character(source: &str, messages: &[Message]) -> Result<char> {
    let texts = messages.iter().flat_map(|message| match &message.content {
        Content::Text(text) => vec![text.as_str()],
        Content::Parts(parts) => parts.iter().filter_map(Part::as_text).collect(),
    });
    let texts: Vec<_> = texts.chain([source]).collect();
    PRIVATE_USE.clone().find(|char| texts.iter().all(|text| !text.contains(*char))).ok_or_else(|| {
        let what = "the conversation uses all characters of private use (U+E000 to U+F8FF): remove some";
        Error::ChatTemplate(what.to_owned())
    })
}

/// Returns a message with its parts as one text, in which `mark` stands for an image.
pub(super) fn joined(message: &Message, mark: char) -> Message {
    let Content::Parts(parts) = &message.content else { return message.clone() };
    let texts = parts.iter().map(|part| part.as_text().map_or_else(|| mark.to_string(), str::to_owned));
    Message { content: texts.collect::<Vec<_>>().join("\n").into(), ..message.clone() }
}

/// Returns a message's variables, with `{"type": "image"}` in the place of an image.
pub(super) fn message_value(message: &Message) -> Value {
    let Content::Parts(parts) = &message.content else { return Value::from(Serde(message)) };
    let parts = parts.iter().map(|part| match part {
        Part::Text { .. } => Value::from(Serde(part)),
        Part::Image(_) => context! { type => "image" },
    });
    let others = Message { content: Content::default(), ..message.clone() };
    merge_maps([Value::from(Serde(others)), context! { content => parts.collect::<Vec<_>>() }])
}

impl MarkedText {
    /// Returns a text without images.
    pub fn without_images(text: String, plain: Vec<Range<usize>>) -> Self {
        Self { text, plain, marks: vec![], around: "" }
    }

    /// Returns a text with the marks that the template wrote, all of the same kind; `None` if there
    /// are none.
    pub fn with_marks(text: &str, plain: &[Range<usize>]) -> Option<Self> {
        MARKS.iter().find_map(|mark| {
            let ranges = text.match_indices(mark.text).map(|(start, mark)| start..start + mark.len());
            let of_message =
                |range: &Range<usize>| plain.iter().any(|text| text.start < range.end && range.start < text.end);
            let ranges: Vec<_> = ranges.filter(|range| !of_message(range)).collect();
            let marked = |marks| Self { text: text.into(), plain: plain.into(), marks, around: mark.around };
            (!ranges.is_empty()).then(|| marked(ranges))
        })
    }

    /// Returns a text in which `mark` stands for an image.
    pub fn with_mark(text: String, plain: Vec<Range<usize>>, mark: char) -> Self {
        let marks = text.match_indices(mark).map(|(start, mark)| start..start + mark.len()).collect();
        Self { text, plain, marks, around: "" }
    }

    /// Checks that the template wrote one mark for each image.
    ///
    /// # Errors
    /// [`Error::ChatTemplate`] with both numbers.
    pub fn check(&self, images: usize) -> Result<()> {
        let marks = self.marks.len();
        if marks == images {
            return Ok(());
        }
        let what = format!(
            "wrote {marks} of the conversation's {images} images: its messages of this role or order may not have images"
        );
        Err(Error::ChatTemplate(what))
    }

    /// Returns the ids of the text without the marks, and the number of ids before each mark.
    ///
    /// # Errors
    /// As [`Tokenizer::encode_mixed`].
    pub fn encode(&self, tokenizer: &Tokenizer) -> Result<(Vec<u32>, Vec<usize>)> {
        let (mut ids, mut places) = (vec![], vec![]);
        let mut start = 0;
        for mark in &self.marks {
            ids.extend(self.ids_of(start..mark.start, [start > 0, true], tokenizer)?);
            places.push(ids.len());
            start = mark.end;
        }
        ids.extend(self.ids_of(start..self.text.len(), [start > 0, false], tokenizer)?);
        Ok((ids, places))
    }

    /// Returns the ids of a range of the text. `images`: whether one is before it, and after it.
    fn ids_of(&self, range: Range<usize>, images: [bool; 2], tokenizer: &Tokenizer) -> Result<Vec<u32>> {
        let [first, last] = images.map(|image| if image { self.around } else { "" });
        let text = [first, &self.text[range.clone()], last].concat();
        let within = self.plain.iter().filter(|plain| range.start <= plain.start && plain.end <= range.end);
        let moved = |at: usize| at - range.start + first.len();
        let plain: Vec<_> = within.map(|plain| moved(plain.start)..moved(plain.end)).collect();
        tokenizer.encode_mixed(&text, &plain)
    }
}
