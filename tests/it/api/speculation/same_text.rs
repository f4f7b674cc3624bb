//! Tests that the text of a model with a head for multi-token prediction does not depend on its
//! drafts: with rules, after forks and truncation, and beside other texts.

use inkstone::{
    Completion, Decoder, GenerateOptions, GenerateRequest, Generation, LogitsFor, Runner, SamplerOptions, SequenceId,
    Speculation, StopReason, gguf::Gguf, sampler::Dry, tokenizer::Tokenizer,
};

use crate::support::{data, graphs::Random, on_cpu};

fn path() -> std::path::PathBuf {
    data("speculation/correlated-blurred.gguf")
}

/// Returns the model without its head, and with it.
fn runners() -> [Runner; 2] {
    let load = || on_cpu().without_ngrams();
    [load().without_mtp(), load()].map(|builder| builder.from_gguf(path()).unwrap())
}

/// What a text shows: its ids, its pieces, its log-probabilities and its end.
type Shown = (Vec<u32>, Vec<String>, String, StopReason);

/// Returns a text, with the numbers of drafted and of accepted tokens.
fn written(runner: &mut Runner, prompt: &str, options: &GenerateOptions) -> (Shown, [usize; 2]) {
    let mut generation = runner.generate(prompt, options).unwrap();
    let pieces = generation.by_ref().map(Result::unwrap).collect();
    let (ids, logprobs) = (generation.ids().to_vec(), format!("{:?}", generation.logprobs()));
    let summary = generation.summary();
    let drafts = [summary.speculation.drafted, summary.speculation.accepted];
    ((ids, pieces, logprobs, summary.stop.clone()), drafts)
}

fn sampled(index: usize) -> SamplerOptions {
    SamplerOptions { temperature: [0.0, 0.7, 1.0][index % 3], seed: Some(index as u64), ..Default::default() }
}

/// Checks that texts with these options are the same with drafts, and returns the share of drafts
/// that were accepted.
fn assert_same(options: impl Fn(usize) -> GenerateOptions) -> f64 {
    let ([mut plain, mut drafting], mut counts) = (runners(), [0; 2]);
    for index in 0..12 {
        let prompt = ["the fox jumps over the", "the quick cat", "a fish swims. the"][index / 3 % 3];
        let off = GenerateOptions { speculation: Speculation::Off, logprobs: Some(2), ..options(index) };
        let (expected, _) = written(&mut plain, prompt, &off);
        for speculation in
            [Speculation::Exactly(1), Speculation::Exactly(3), Speculation::Exactly(8), Speculation::Auto]
        {
            let options = GenerateOptions { speculation, ..off.clone() };
            let (found, drafts) = written(&mut drafting, prompt, &options);
            assert_eq!(found, expected, "{prompt:?} with {options:?}");
            counts = [counts[0] + drafts[0], counts[1] + drafts[1]];
        }
    }
    assert!(counts[0] > 100, "{counts:?}");
    counts[1] as f64 / counts[0] as f64
}

#[test]
fn stop_strings_end_drafted_texts_alike() {
    let stops = [vec![" over"], vec!["r.", "s."], vec!["e"], vec!["jumps over the", ". the qu"]];
    let accepted = assert_same(|index| GenerateOptions {
        sampler: sampled(index),
        stop: stops[index % 4].iter().map(|stop| stop.to_string()).collect(),
        max_tokens: Some(40),
        ..Default::default()
    });
    assert!(accepted > 0.2, "{accepted}");
}

#[test]
fn penalties_see_the_accepted_drafts() {
    let tokenizer = tokenizer();
    let accepted = assert_same(|index| {
        let sampler = SamplerOptions {
            repetition_penalty: [1.0, 1.3][index % 2],
            frequency_penalty: [0.0, 0.1, 0.3][index / 2 % 3],
            presence_penalty: [0.2, 0.0][index / 6],
            penalty_window: 24,
            dry: (index % 4 == 3).then(|| Dry::new(&tokenizer)),
            logit_bias: vec![(100 + index as u32, 3.0)],
            ..sampled(index)
        };
        GenerateOptions { sampler, max_tokens: Some(60), ..Default::default() }
    });
    assert!(accepted > 0.1, "{accepted}");
}

#[cfg(feature = "constrained")]
#[test]
fn grammars_see_the_accepted_drafts() {
    let tokenizer = tokenizer();
    let grammars = inkstone::grammar::Grammars::new(&tokenizer).unwrap();
    let expressions =
        ["( (the|a|fox|river|jumps|over|quick|stones)){3,12}\\.", "[a-z ]{10,50}(\\.|!)", "[^ ]( ?[^ ]){20}"];
    let grammars = expressions.map(|expression| grammars.regex(expression).unwrap());
    let accepted = assert_same(|index| GenerateOptions {
        sampler: sampled(index),
        grammar: Some(grammars[index / 2 % 3].clone()),
        max_tokens: Some(if index % 2 == 0 { 60 } else { 9 }),
        ..Default::default()
    });
    assert!(accepted > 0.2, "{accepted}");
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(path()).unwrap()).unwrap()
}

/// Continues the tokens of a sequence, and checks the text and the logits after it with those of a
/// model without a head that computes all again.
fn go_on(decoder: &mut Decoder, sequence: SequenceId, plain: &mut Runner, options: &GenerateOptions) -> [usize; 2] {
    let prompt = [decoder.tokens(sequence).unwrap(), &[7]].concat();
    let mut generation =
        Generation::new(decoder, sequence, prompt.clone(), &tokenizer(), options).unwrap().past_the_end();
    generation.by_ref().for_each(|piece| drop(piece.unwrap()));
    let ids = generation.ids().to_vec();
    let speculation = generation.summary().speculation.clone();
    plain.reset();
    let off = GenerateOptions { speculation: Speculation::Off, ..options.clone() };
    let mut generation = plain.generate(&prompt[..], &off).unwrap().past_the_end();
    generation.by_ref().for_each(|piece| drop(piece.unwrap()));
    assert_eq!(ids, generation.ids());
    let all = [decoder.tokens(sequence).unwrap(), &[9]].concat();
    let logits = decoder.step(&[(sequence, &[9], LogitsFor::Last)]).unwrap();
    assert!(*logits == *plain.predict_logits(&all).unwrap(), "the sequence has another state");
    [speculation.drafted, speculation.accepted]
}

/// Sequences are continued, forked, truncated to any length and closed, in any order.
#[test]
fn sequences_with_heads_go_on_after_forks_and_truncation() {
    let ([mut plain, mut drafting], mut random) = (runners(), Random::new(6));
    let decoder = drafting.decoder_mut();
    let (mut sequences, mut counts) = (vec![decoder.open()], [0; 2]);
    for turn in 0..60 {
        let chosen = random.below(sequences.len());
        let sequence = sequences[chosen];
        let len = decoder.tokens(sequence).unwrap().len();
        match random.below(6) {
            0 => decoder.truncate(sequence, random.below(len + 1)).unwrap(),
            1 => decoder.truncate(sequence, len.saturating_sub(random.below(4))).unwrap(),
            2 if sequences.len() < 4 => sequences.push(decoder.fork(sequence).unwrap()),
            2 => decoder.close(sequences.swap_remove(chosen)).unwrap(),
            _ if len > 250 => decoder.truncate(sequence, 40).unwrap(),
            _ => {
                let options = GenerateOptions {
                    sampler: sampled(turn),
                    max_tokens: Some(4 + random.below(40)),
                    speculation: Speculation::Exactly(1 + random.below(6)),
                    ..Default::default()
                };
                let drafts = go_on(decoder, sequence, &mut plain, &options);
                counts = [counts[0] + drafts[0], counts[1] + drafts[1]];
            }
        }
    }
    let [drafted, accepted] = counts;
    assert!(accepted > 100 && drafted - accepted > 50, "{accepted} of {drafted} accepted");
}

/// Texts that draft as many tokens as they want share their steps with texts that draft none, and
/// fork a common beginning.
#[test]
fn texts_with_heads_are_the_same_beside_others() {
    let [mut plain, mut drafting] = runners();
    let options = |index: usize, speculation| GenerateOptions {
        sampler: SamplerOptions { presence_penalty: (index % 2) as f32, ..sampled(index) },
        max_tokens: Some([30, 7, 45, 21, 1, 38, 16][index]),
        stop: if index == 3 { vec![" over".into()] } else { vec![] },
        logprobs: (index == 2).then_some(1),
        speculation,
        ..Default::default()
    };
    let ends = [" jumps", "", " sleeps. the", " and the quick cat", ". a", " jumps", "."];
    let prompt = |common: &str, index: usize| format!("{common}{}", ends[index]);
    let wanted = |step: usize, index: usize| match (step + index) % 4 {
        0 => Speculation::Off,
        1 => Speculation::Exactly(1 + index),
        2 => Speculation::Exactly(2),
        _ => Speculation::Auto,
    };
    for (step, common) in ["the quick fox", "", "the river. the fox jumps over the stones. the fox"].iter().enumerate()
    {
        let requests = (0..7).map(|index| {
            let prompt = if common.is_empty() { format!("{index}the") } else { prompt(common, index) };
            (prompt, options(index, wanted(step, index)))
        });
        let requests: Vec<_> = requests.collect();
        let texts = drafting.generate_many(requests.clone().into_iter().map(request), |_, _| true).unwrap();
        for (index, (text, (prompt, options))) in texts.iter().zip(requests).enumerate() {
            let off = GenerateOptions { speculation: Speculation::Off, ..options.clone() };
            let expected = plain.generate_many([(prompt.as_str(), off)], |_, _| true).unwrap().remove(0);
            let shown = |text: &Completion| {
                (text.ids.clone(), text.text.clone(), text.logprobs.clone(), text.summary.stop.clone())
            };
            assert_eq!(shown(text), shown(&expected), "{prompt:?} with {options:?}");
            let speculation = &text.summary.speculation;
            let drafts = matches!(options.speculation, Speculation::Exactly(_)) && text.ids.len() > 5;
            assert!(!drafts || speculation.drafted > 0, "{index}: {speculation:?}");
            assert!(options.speculation != Speculation::Off || speculation.drafted == 0);
        }
    }
}

fn request((prompt, options): (String, GenerateOptions)) -> GenerateRequest<'static> {
    GenerateRequest::new(prompt, options)
}
