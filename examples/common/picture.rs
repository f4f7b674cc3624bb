//! Measures the encoding of a picture and the prefill of its rows.

use std::{io::Write, str::FromStr, time::Instant};

use inkstone::{Image, Runner};

use crate::{common::Failure, median};

/// The width and the height of a picture in pixels, as in `896x896`.
#[derive(Clone, Copy)]
pub struct PictureSize {
    width: usize,
    height: usize,
}

impl FromStr for PictureSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parsed = text.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
        let (width, height) = parsed.ok_or_else(|| format!("must be WIDTHxHEIGHT, such as 896x896, and not {text}"))?;
        Ok(Self { width, height })
    }
}

/// Encodes `reps` pictures after a first one, prefills their rows, and prints the medians.
pub fn measure(runner: &mut Runner, size: PictureSize, reps: usize) -> Result<(), Failure> {
    let width = runner.config().hidden * (1 + runner.config().deepstack);
    let (mut encode, mut prefill, mut rows) = (vec![], vec![], 0);
    for rep in 0..=reps {
        // A runner keeps the rows of the last pictures, so each must be another one.
        let images = [picture(size, rep)?];
        let start = Instant::now();
        rows = runner.image_embeddings(&images)?.len() / width;
        let encoded = start.elapsed().as_secs_f64();
        runner.reset();
        let start = Instant::now();
        runner.prefill_images("<__media__>", &images)?;
        let prefilled = start.elapsed().as_secs_f64();
        if rep > 0 {
            encode.push(1e3 * encoded);
            prefill.push(rows as f64 / prefilled);
        }
    }
    let mut out = std::io::stdout();
    writeln!(out, "encode   {:.1} ms ({}x{} pixels, {rows} rows)", median(&encode), size.width, size.height)?;
    writeln!(out, "prefill  {:.2} rows/s", median(&prefill))?;
    Ok(())
}

fn picture(size: PictureSize, seed: usize) -> Result<Image, Failure> {
    let byte = |i: usize| ((i + 977 * seed) as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0];
    let bytes: Vec<u8> = (0..3 * size.width * size.height).map(byte).collect();
    Ok(Image::from_rgb(bytes, size.width, size.height)?)
}
