//! Compares what encoders see with llama.cpp, in the cases of the shared folder.

use std::{
    fs,
    path::{Path, PathBuf},
};

use inkstone::{
    Image,
    image::Alpha,
    internals::image::{Convention, Filter, Grid, Size, gemma4_size, idefics3_sizes, internvl_grid, smart_resize},
};
use serde_json::Value;

use super::usize_of;

const LIKE: Convention = Convention::LlamaCpp;

fn shared() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../shared/vision")
}

fn read(path: PathBuf) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn open(path: PathBuf) -> Image {
    Image::options().alpha(Alpha::Drop).open(path).unwrap()
}

fn size(image: &Image) -> Size {
    Size { width: image.width(), height: image.height() }
}

/// Cuts a canvas into a grid, row by row.
fn tiles(canvas: &Image, grid: Grid) -> impl Iterator<Item = Image> {
    let (width, height) = (canvas.width() / grid.columns, canvas.height() / grid.rows);
    (0..grid.columns * grid.rows)
        .map(move |tile| canvas.crop(tile % grid.columns * width, tile / grid.columns * height, width, height))
}

/// Returns what the encoder of `config` sees of an image, run by run.
fn runs(image: &Image, config: &Value) -> Vec<Image> {
    let number = |key: &str| usize_of(&config[key]);
    let tile = number("image_size");
    let letterbox = |size: Size, filter| image.letterbox(size.width, size.height, filter);
    match config["projector"].as_str().unwrap() {
        "gemma3" => vec![image.letterbox(tile, tile, Filter::Bilinear)],
        "gemma4v" => vec![letterbox(gemma4_size(size(image), number("patch"), 3, 280, LIKE).unwrap(), Filter::Bicubic)],
        "idefics3" => {
            let sizes = idefics3_sizes(size(image), number("preproc_image_size"), tile, LIKE);
            let stretch =
                |image: &Image, size: Size| image.resize_width_first(size.width, size.height, Filter::Lanczos);
            let canvas = stretch(&stretch(image, sizes.scaled), sizes.canvas);
            let overview = stretch(&canvas, Size { width: tile, height: tile });
            tiles(&canvas, sizes.grid.unwrap()).chain([overview]).collect()
        }
        "internvl" => {
            let grid = internvl_grid(size(image), tile, number("min_tiles"), number("max_tiles"), LIKE);
            let canvas = |grid: Grid| image.letterbox(grid.columns * tile, grid.rows * tile, Filter::Bicubic);
            let overview = image.resize_width_first(tile, tile, Filter::Bicubic);
            grid.into_iter().flat_map(|grid| tiles(&canvas(grid), grid).collect::<Vec<_>>()).chain([overview]).collect()
        }
        _ => {
            let factor = 2 * number("patch");
            let pixels = 8 * factor * factor..=4096 * factor * factor;
            vec![letterbox(smart_resize(size(image), factor, pixels, LIKE).unwrap(), Filter::Bicubic)]
        }
    }
}

#[test]
#[ignore = "the oracle's pictures are not in the repository"]
fn encoders_see_what_llama_cpp_shows_them() {
    let (mut cases, mut pictures) = (0, 0);
    for entry in fs::read_dir(shared().join("expected")).unwrap() {
        let case = entry.unwrap().path();
        if !case.is_dir() {
            continue;
        }
        let info = read(case.join("info.json"));
        let config = read(shared().join("configs").join(info["config"].as_str().unwrap()).with_extension("json"));
        let images = info["images"].as_array().unwrap().iter();
        let images = images.map(|name| open(shared().join("images").join(name.as_str().unwrap())));
        let seen: Vec<_> = images.flat_map(|image| runs(&image, &config)).collect();
        for (index, picture) in seen.iter().enumerate() {
            let expected = open(case.join(format!("run.{index}.png")));
            assert!(*picture == expected, "{}: run {index}: {picture:?} is not {expected:?}", case.display());
        }
        assert!(!case.join(format!("run.{}.png", seen.len())).exists());
        cases += 1;
        pictures += seen.len();
    }
    assert!(cases >= 24 && pictures > cases, "{pictures} pictures of {cases} cases");
}
