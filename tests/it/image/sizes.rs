//! Compares sizes of images with transformers and llama.cpp.

use inkstone::internals::image::{
    Convention, Grid, Idefics3Sizes, Size, gemma4_size, idefics3_sizes, internvl_grid, smart_resize,
};
use serde_json::Value;

use super::{json, usize_of};

const BOTH: [Convention; 2] = [Convention::Transformers, Convention::LlamaCpp];

/// Calls `check` with the numbers of each case of a function, each implementation, and its result.
fn each_case(function: &str, check: impl Fn(&[usize], Convention, Option<Vec<usize>>)) {
    let cases = json("sizes.json");
    let cases = cases[function].as_array().unwrap();
    assert!(cases.len() > 200, "{function}");
    for case in cases {
        let case = case.as_array().unwrap();
        let (arguments, results) = case.split_at(case.len() - 2);
        let arguments: Vec<_> = arguments.iter().map(usize_of).collect();
        for (like, result) in BOTH.into_iter().zip(results) {
            let numbers = |result: &Value| result.as_array().map(|numbers| numbers.iter().map(usize_of).collect());
            check(&arguments, like, numbers(result));
        }
    }
}

fn size(numbers: &[usize]) -> Size {
    Size { width: numbers[0], height: numbers[1] }
}

/// Returns a grid, or `None` for the 0 x 0 of a fixture.
fn grid(numbers: &[usize]) -> Option<Grid> {
    (numbers[0] > 0).then_some(Grid { columns: numbers[0], rows: numbers[1] })
}

#[test]
fn smart_resize_gives_the_sizes_of_both() {
    each_case("smart_resize", |arguments, like, expected| {
        let result = smart_resize(size(arguments), arguments[2], arguments[3]..=arguments[4], like);
        assert_eq!(result.ok(), expected.as_deref().map(size), "{arguments:?} {like:?}");
    });
    let narrow = smart_resize(Size { width: 201, height: 1 }, 28, 1..=10_000, Convention::Transformers);
    let message = "image: is 201 x 1 pixels: one side is more than 200 times as long as the other: crop the image";
    assert_eq!(narrow.unwrap_err().to_string(), message);
    for like in BOTH {
        let tiny = smart_resize(Size { width: 1, height: 1 }, 32, 0..=10_000, like);
        assert_eq!(tiny.unwrap(), Size { width: 32, height: 32 });
    }
}

#[test]
fn gemma_4_has_the_sizes_of_both() {
    each_case("gemma4", |arguments, like, expected| {
        let result = gemma4_size(size(arguments), arguments[2], arguments[3], arguments[4], like);
        assert_eq!(result.ok(), expected.as_deref().map(size), "{arguments:?} {like:?}");
    });
}

#[test]
fn internvl_has_the_grids_of_both() {
    each_case("internvl", |arguments, like, expected| {
        let result = internvl_grid(size(arguments), arguments[2], arguments[3], arguments[4], like);
        assert_eq!(result, expected.and_then(|numbers| grid(&numbers)), "{arguments:?} {like:?}");
    });
}

#[test]
fn idefics_3_has_the_sizes_of_both() {
    each_case("idefics3", |arguments, like, expected| {
        let expected = expected.unwrap();
        let expected =
            Idefics3Sizes { scaled: size(&expected), canvas: size(&expected[2..]), grid: grid(&expected[4..]) };
        assert_eq!(
            idefics3_sizes(size(arguments), arguments[2], arguments[3], like),
            expected,
            "{arguments:?} {like:?}"
        );
    });
}
