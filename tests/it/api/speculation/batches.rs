//! Tests of drafts of several texts in the same steps.

use inkstone::{Completion, GenerateOptions, GenerateRequest, Runner, SamplerOptions, Speculation};

use super::{Knowing, storyteller};
use crate::support::on_cpu;

/// A text has its own drafters, and a text without any has no drafts.
#[test]
fn texts_of_a_batch_have_their_own_drafters() {
    let mut runner = on_cpu().without_ngrams().from_gguf(storyteller()).unwrap();
    let prompts = ["Once upon a time", "The fox", "A lantern"];
    for temperature in [0.0, 0.9] {
        let options = |index: usize, speculation| GenerateOptions {
            sampler: SamplerOptions { temperature, seed: Some(index as u64), ..Default::default() },
            max_tokens: Some([30, 21, 25][index]),
            speculation,
            ..Default::default()
        };
        let texts = |runner: &mut Runner, requests: Vec<GenerateRequest<'static>>| -> Vec<Completion> {
            runner.generate_many(requests, |_, _| true).unwrap()
        };
        let request = |index: usize, speculation| GenerateRequest::new(prompts[index], options(index, speculation));
        let plain = texts(&mut runner, (0..3).map(|index| request(index, Speculation::Off)).collect());
        // The first draft of the second text is right, and then every other one.
        let drafter = |runner: &Runner, index: usize| Knowing {
            prompt: runner.tokenizer().encode_prompt(prompts[index]).unwrap().len(),
            text: plain[index].ids.clone(),
            right: [vec![9], vec![9, 0]][index].clone(),
            drafts: 0,
        };
        let drafted = |index| request(index, Speculation::Exactly(3)).with_drafter(drafter(&runner, index));
        let requests = vec![drafted(0), drafted(1).into_owned(), request(2, Speculation::Exactly(3))];
        assert!(format!("{:?}", requests[0]).contains("drafters: 1"));
        let drafted = texts(&mut runner, requests);
        for (text, plain) in drafted.iter().zip(&plain) {
            assert_eq!((&text.ids, &text.text), (&plain.ids, &plain.text));
            assert_eq!(text.summary.stop, plain.summary.stop);
        }
        let [first, second, third] = [0, 1, 2].map(|index| &drafted[index].summary.speculation);
        assert!(first.acceptance() == 1.0 && first.tokens_per_step() > 3.5, "{first:?}");
        assert!((0.3..0.7).contains(&second.acceptance()), "{second:?}");
        assert_eq!(third.drafted, 0);
    }
}
