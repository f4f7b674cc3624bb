//! Prompts with two images in chunks, from the cache and after truncation.

use inkstone::{Image, internals::image::Convention};

use super::{Case, MODELS, builder, nmse};

#[test]
fn prompts_are_computed_alike_in_chunks() {
    for case in MODELS.map(Case::new) {
        let logits = |chunk: usize| {
            let mut runner = builder().prefill_chunk(chunk).from_safetensors(&case.folder).unwrap();
            runner.prefill_images(case.prompt(), &case.images()).unwrap().to_vec()
        };
        let whole = logits(512);
        for chunk in [5, 64] {
            assert!(logits(chunk) == whole, "{} in chunks of {chunk}", case.folder.display());
        }
    }
}

/// A prefix that is cached ends before, within and after an image.
#[test]
fn cached_prompts_give_the_results_of_computed_ones() {
    for case in MODELS.map(Case::new) {
        let (images, prompt, name) = (case.images(), case.prompt(), case.folder.display());
        let mut runner = builder().from_safetensors(&case.folder).unwrap();
        let logits = runner.prefill_images(prompt, &images).unwrap().to_vec();
        let len = runner.tokens().len();
        assert!(runner.prefill_images(prompt, &images).unwrap() == logits, "{name}: again");
        for keep in [len - 3, len - 8, len / 2, 8, 1] {
            runner.truncate(keep).unwrap();
            assert!(runner.prefill_images(prompt, &images).unwrap() == logits, "{name}: after {keep} of {len}");
        }
        // Other images in the same places: only the text before them is the same.
        let swapped: Vec<Image> = images.iter().rev().cloned().collect();
        let others = runner.prefill_images(prompt, &swapped).unwrap().to_vec();
        assert!(nmse(&others, &logits) > 1e-3, "{name}: the images do not matter");
        let mut fresh = builder().from_safetensors(&case.folder).unwrap();
        assert!(fresh.prefill_images(prompt, &swapped).unwrap() == others, "{name}: other images");
        assert!(runner.prefill_images(prompt, &images).unwrap() == logits, "{name}: the first images");
    }
}

#[test]
fn decoded_ids_see_the_images_as_recomputed_prompts_do() {
    for convention in [Convention::Transformers, Convention::LlamaCpp] {
        for case in MODELS.map(Case::new) {
            let builder = builder().vision_convention(convention);
            let mut cached = builder.clone().from_safetensors(&case.folder).unwrap();
            let mut recomputed = builder.recompute(true).from_safetensors(&case.folder).unwrap();
            cached.prefill_images(case.prompt(), &case.images()).unwrap();
            recomputed.prefill_images(case.prompt(), &case.images()).unwrap();
            for id in case.greedy("transformers") {
                let logits = recomputed.decode(id).unwrap().to_vec();
                let error = nmse(cached.decode(id).unwrap(), &logits);
                assert!(error < 1e-10, "{}: off by {error:e}", case.folder.display());
            }
        }
    }
}
