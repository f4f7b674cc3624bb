//! Keeps the tokens and images of a sequence.

use std::{ops::Range, sync::Arc};

use super::{images::PlacedImage, ticket::Ticket};
use crate::{Error, Result, backend::InputRows};

/// The tokens and images of a sequence. Images have tokens too, whose ids do not matter.
#[derive(Clone, Debug, Default)]
pub(super) struct SequenceTokens {
    pub ids: Vec<u32>,
    /// The images, by place.
    pub images: Vec<PlacedImage>,
    /// Number of tokens at the end that were only drafted.
    pub drafted: usize,
    /// Whether the next pipelined step is the last one for now.
    pub ends_pipeline: bool,
    /// Separates the tokens from those of other sequences, unless these have the same salt.
    pub salt: Option<Arc<str>>,
    /// Whether keys, values or states come from outside, and may not be those of the tokens.
    pub is_restored: bool,
    /// The place of the request for the last tokens.
    pub ticket: Option<Arc<Ticket>>,
}

/// The rotary positions and spans of a run of a sequence with images.
#[derive(Debug, Default)]
pub(super) struct RunImages {
    /// The rotary positions of the run's tokens; empty if they are their positions.
    pub rotary: Vec<[u32; 3]>,
    /// The tokens of the run that see each other.
    pub spans: Vec<Range<usize>>,
}

impl SequenceTokens {
    /// Returns the number of tokens at the start that `ids` and `images` share.
    pub fn shared(&self, ids: &[u32], images: &[PlacedImage]) -> usize {
        shared_tokens((&self.ids, &self.images), (ids, images))
    }

    /// Returns the tokens but the drafted ones, and these.
    pub fn text_and_drafted(&self) -> (&[u32], &[u32]) {
        self.ids.split_at(self.ids.len() - self.drafted)
    }

    /// Removes the tokens from `len` on, and the whole image that `len` cuts.
    pub fn truncate(&mut self, len: usize) {
        let len = start_of_image(&self.images, len);
        self.drafted = self.drafted.saturating_sub(self.ids.len().saturating_sub(len));
        self.ids.truncate(len);
        self.images.retain(|image| image.start < len);
        self.is_restored &= len > 0;
    }
}

/// Returns the number of tokens at the start that two lists of ids and images share. An image is
/// shared as a whole.
pub(in crate::generate) fn shared_tokens(
    (ids, images): (&[u32], &[PlacedImage]),
    (other_ids, other_images): (&[u32], &[PlacedImage]),
) -> usize {
    let tokens = ids.iter().zip(other_ids).take_while(|(id, other)| id == other).count();
    let same = images.iter().zip(other_images).take_while(|(image, other)| image.is(other)).count();
    let next = [images.get(same), other_images.get(same)].into_iter().flatten().map(|image| image.start);
    start_of_image(images, next.fold(tokens, usize::min))
}

/// Returns `len`, or the start of the image that it would cut.
pub(super) fn start_of_image(images: &[PlacedImage], len: usize) -> usize {
    let cut = images.iter().find(|image| image.start < len && len < image.range().end);
    cut.map_or(len, |image| image.start)
}

/// Returns the end of a step that computes the tokens of a sequence up to `end`: before an image
/// that the step would cut although its rows see each other.
pub(super) fn whole_images(images: &[PlacedImage], end: usize) -> usize {
    let cut = images.iter().find(|image| image.rows.whole && image.start < end && end < image.range().end);
    cut.map_or(end, |image| image.start)
}

/// Returns each image that has rows among the tokens `run`, with these tokens.
fn images_in<'a>(
    images: &'a [PlacedImage],
    run: &Range<usize>,
) -> impl Iterator<Item = (&'a PlacedImage, Range<usize>)> {
    let run = run.clone();
    let part = move |image: &PlacedImage| image.start.max(run.start)..image.range().end.min(run.end);
    images.iter().map(move |image| (image, part(image))).filter(|(_, part)| !part.is_empty())
}

impl RunImages {
    /// Returns the positions and spans of the tokens `run` of a sequence with these images.
    pub fn new(images: &[PlacedImage], run: Range<usize>) -> Self {
        let whole = images_in(images, &run).filter(|(image, _)| image.rows.whole);
        let spans = whole.map(|(_, part)| part.start - run.start..part.end - run.start).collect();
        let rotated = images.iter().any(|image| image.rows.grid.is_some() && image.start < run.end);
        Self { spans, rotary: if rotated { rotary(images, run) } else { vec![] } }
    }
}

/// Returns the rotary positions of the tokens `run`: a token's position is one more than that of
/// the token before it, and an image takes as many positions as its longer side has rows.
fn rotary(images: &[PlacedImage], run: Range<usize>) -> Vec<[u32; 3]> {
    let (mut index, mut position) = (0, 0);
    let mut positions = Vec::with_capacity(run.len());
    let push_text = |index: &mut usize, position: &mut usize, end: usize, positions: &mut Vec<_>| {
        let text = run.start.max(*index)..run.end.min(end);
        positions.extend(text.map(|token| [(*position + token - *index) as u32; 3]));
        *position += end.saturating_sub(*index);
        *index = end;
    };
    for image in images.iter().filter(|image| image.start < run.end) {
        push_text(&mut index, &mut position, image.start, &mut positions);
        let [rows, columns] = image.rows.grid.unwrap_or([1, image.rows.count]);
        let own = image.range();
        for token in own.start.max(run.start)..own.end.min(run.end) {
            let (row, column) = ((token - own.start) / columns, (token - own.start) % columns);
            positions.push([position, position + row, position + column].map(|position| position as u32));
        }
        position += rows.max(columns);
        index = own.end;
    }
    push_text(&mut index, &mut position, run.end, &mut positions);
    positions
}

/// The rows of the images of a step.
#[derive(Debug, Default)]
pub(super) struct StepRows {
    tokens: Vec<usize>,
    elements: Vec<f32>,
}

impl StepRows {
    /// Appends the rows of images among the tokens `run` of a sequence. The run's first token is
    /// number `first` of the step.
    pub fn push(&mut self, images: &[PlacedImage], run: Range<usize>, first: usize) -> Result<()> {
        for (image, part) in images_in(images, &run) {
            let rows = image.rows.elements().ok_or_else(|| Error::internal("a step has an image without rows"))?;
            let width = rows.len() / image.rows.count;
            self.elements
                .extend_from_slice(&rows[(part.start - image.start) * width..(part.end - image.start) * width]);
            self.tokens.extend(part.map(|token| first + token - run.start));
        }
        Ok(())
    }

    pub fn input(&self) -> InputRows<'_> {
        InputRows { tokens: &self.tokens, elements: &self.elements }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{generate::ImageRows, image::Image};

    fn image(start: usize, grid: [usize; 2], whole: bool) -> PlacedImage {
        let count = grid[0] * grid[1];
        let picture = Image::from_rgb(vec![0; 3], 1, 1).unwrap();
        let rows = ImageRows::new(picture, count, Some(grid), whole);
        rows.set((0..2 * count).map(|element| element as f32).collect());
        PlacedImage { start, rows: Arc::new(rows) }
    }

    /// The rotary positions of all tokens, image by image and token by token.
    fn expected(len: usize, images: &[PlacedImage]) -> Vec<[u32; 3]> {
        let (mut position, mut all) = (0, vec![]);
        while all.len() < len {
            match images.iter().find(|image| image.start == all.len()) {
                Some(PlacedImage { rows, .. }) => {
                    let [height, width] = rows.grid.unwrap();
                    for row in 0..height {
                        all.extend((0..width).map(|column| [position, position + row, position + column]));
                    }
                    position += height.max(width);
                }
                None => {
                    all.push([position; 3]);
                    position += 1;
                }
            }
        }
        all.into_iter().take(len).map(|positions| positions.map(|position| position as u32)).collect()
    }

    #[test]
    fn runs_have_the_positions_and_rows_of_their_part() {
        let images = [image(3, [2, 4], false), image(12, [3, 2], true)];
        let all = expected(22, &images);
        assert_eq!(all[11], [7; 3]);
        for start in 0..22 {
            for end in start + 1..=22 {
                let run = RunImages::new(&images, start..end);
                let expected = if end > 3 { &all[start..end] } else { &[] };
                assert_eq!(run.rotary, expected, "{start}..{end}");
                let tokens = (start..end).filter(|token| (3..11).contains(token) || (12..18).contains(token));
                let mut rows = StepRows::default();
                rows.push(&images, start..end, 100).unwrap();
                assert_eq!(rows.tokens, tokens.map(|token| 100 + token - start).collect::<Vec<_>>(), "{start}..{end}");
                assert_eq!(rows.tokens.len() * 2, rows.elements.len());
            }
        }
        let (run, mut rows) = (RunImages::new(&images, 4..14), StepRows::default());
        rows.push(&images, 4..14, 0).unwrap();
        assert_eq!(rows.elements[..2], [2.0, 3.0]);
        assert_eq!(rows.elements[14..], [0.0, 1.0, 2.0, 3.0]);
        assert!(run.spans == vec![Range { start: 8, end: 10 }]);
    }

    #[test]
    fn images_are_shared_truncated_and_computed_whole() {
        let images = vec![image(3, [2, 4], false), image(12, [3, 2], true)];
        let held = SequenceTokens { ids: vec![7; 20], images: images.clone(), ..SequenceTokens::default() };
        assert_eq!(held.shared(&[7; 25], &images), 20);
        assert_eq!(held.shared(&[7; 25], &images[..1]), 12);
        assert_eq!(held.shared(&[7; 25], &[]), 3);
        assert_eq!(held.shared(&[7; 25], &[images[0].clone(), image(12, [3, 2], true)]), 12);
        assert_eq!(held.shared(&[7; 14], &images), 12);
        for (len, kept, count) in [(2, 2, 0), (3, 3, 0), (5, 3, 0), (11, 11, 1), (13, 12, 1), (18, 18, 2), (30, 20, 2)]
        {
            let mut held = held.clone();
            held.truncate(len);
            assert_eq!((held.ids.len(), held.images.len()), (kept, count), "{len}");
        }
        assert_eq!([5, 12, 13, 17, 18].map(|end| whole_images(&images, end)), [5, 12, 12, 12, 18]);
    }
}
