//! A head for multi-token prediction beside images: `tests/data/speculation/images.py` writes the
//! head and its logits.

use inkstone::{
    GenerateOptions, Image, LogitsFor, Prompt, PromptPart, Runner, RunnerBuilder, SamplerOptions, Speculation,
    internals::image::Convention,
};

use super::{Case, builder, nmse, tensors};
use crate::support::{data, drive, gguf_file::Folder};

/// Writes the directory of the model with the head.
fn with_head(folder: &Folder) -> Case {
    let case = Case::new("qwen3_5");
    let mut checkpoint = case.checkpoint();
    checkpoint.tensors.extend(tensors(&data("speculation/images.safetensors")));
    checkpoint.write(folder);
    case
}

/// Compares the head's logits after the tokens of text that follow an image.
fn assert_logits(case: &Case, runner: &mut Runner, tolerance: f64) {
    let (images, ids) = (case.images(), case.ids());
    let expected = Case { folder: data("speculation"), info: case.info.clone() }.floats("images.mtp.f32");
    let vocabulary = expected.len() / (ids.len() - 1);
    for (prompt, count, compared) in [("see <__media__>", 1, 6), ("see <__media__> and <__media__>", 2, 4)] {
        runner.prefill_images(prompt, &images[..count]).unwrap();
        let (start, sequence) = (runner.tokens().len(), runner.sequence());
        for token in start..start + compared {
            let decoder = runner.decoder_mut();
            let logits = decoder.mtp_logits(sequence, ids[token]).unwrap();
            let error = nmse(&logits, &expected[(token - 1) * vocabulary..token * vocabulary]);
            assert!(error < tolerance, "after token {token}: off by {error:e}");
            decoder.step(&[(sequence, &ids[token..=token], LogitsFor::None)]).unwrap();
        }
    }
}

#[test]
fn heads_see_images_as_the_reference_does() {
    let folder = Folder::new();
    let case = with_head(&folder);
    for chunk in [512, 23, 5] {
        let mut runner = builder().prefill_chunk(chunk).from_safetensors(folder.path()).unwrap();
        assert_logits(&case, &mut runner, 1e-10);
    }
    for gpu in drive::gpus() {
        let builder = builder().device(gpu.device().name.parse().unwrap());
        assert_logits(&case, &mut builder.from_safetensors(folder.path()).unwrap(), 1e-3);
    }
}

/// Prompts with images have the same text with drafts and without, also if they go on after others.
#[test]
fn texts_after_images_are_the_same_with_heads() {
    let folder = Folder::new();
    let case = with_head(&folder);
    let load = |builder: RunnerBuilder| {
        builder.vision_convention(Convention::LlamaCpp).without_ngrams().from_safetensors(folder.path()).unwrap()
    };
    let (mut plain, mut drafting) = (load(builder().without_mtp()), load(builder()));
    let [first, second] = <[Image; 2]>::try_from(case.images()).unwrap();
    let text = |text: &'static str| PromptPart::from(text);
    let prompts: [Vec<PromptPart>; 4] = [
        vec![text("see "), first.clone().into(), text(" and "), second.clone().into(), text(" now")],
        vec![text("see "), first.clone().into(), text(" and "), second.clone().into()],
        vec![text("see "), second.clone().into(), text(" and "), first.clone().into(), text(" again")],
        vec![first.clone().into(), first.into(), text("!")],
    ];
    for temperature in [0.0, 1.0] {
        for parts in &prompts {
            let written = |runner: &mut Runner, speculation| {
                let options = GenerateOptions {
                    sampler: SamplerOptions { temperature, seed: Some(3), ..Default::default() },
                    max_tokens: Some(40),
                    speculation,
                    ..Default::default()
                };
                let mut generation = runner.generate(Prompt::Parts(parts.clone()), &options).unwrap().past_the_end();
                generation.by_ref().for_each(|piece| drop(piece.unwrap()));
                (generation.ids().to_vec(), generation.summary().speculation.drafted)
            };
            let (expected, _) = written(&mut plain, Speculation::Off);
            for drafts in [1, 3, 8] {
                let (ids, drafted) = written(&mut drafting, Speculation::Exactly(drafts));
                assert!(ids == expected && drafted > 0, "{drafts} drafts: {drafted} drafted");
            }
        }
    }
}
