//! Measures the time to resize a photo of 12 megapixels: `cargo bench --bench resize`.

use std::{hint::black_box, time::Instant};

use inkstone::{Image, internals::image::Filter};

/// Runs of each measurement, of which the fastest counts.
const RUNS: usize = 10;

fn main() -> inkstone::Result<()> {
    let (width, height) = (4000, 3000);
    let bytes: Vec<u8> =
        (0..width * height * 3).map(|i| (i as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0]).collect();
    let photo = Image::from_rgb(bytes, width, height)?;
    for (to_width, to_height) in [(1344, 1008), (896, 896), (448, 448)] {
        for filter in [Filter::Bilinear, Filter::Bicubic, Filter::Lanczos] {
            let run = || {
                let start = Instant::now();
                black_box(black_box(&photo).resize(to_width, to_height, filter));
                start.elapsed()
            };
            let time = (0..RUNS).map(|_| run()).min().unwrap_or_default();
            println!("{width}x{height} to {to_width}x{to_height}, {filter:?}: {:.1} ms", time.as_secs_f64() * 1e3);
        }
    }
    Ok(())
}
