//! Tests of drafts: they never change a text, and are counted.

mod batches;
mod distribution;
mod same_text;

use std::{
    fs,
    sync::{Arc, Mutex},
};

use inkstone::{
    CacheType, Decoder, Drafter, Error, GenerateOptions, Generation, LogitsFor, Result, Runner, RunnerBuilder,
    SamplerOptions, SequenceId, Speculation, SpeculationSummary, StopReason, gguf::Gguf, internals::generate::Limits,
    tokenizer::Tokenizer,
};
use proptest::prelude::*;
use serde_json::Value;

use crate::support::{
    data,
    gguf_file::{Folder, GgufFile},
    on_cpu,
    recorder::{Recorder, best_of, history},
    tiny::{MODELS, RECURRENT, Tiny},
};

const VOCAB: usize = 320;
const LIMITS: Limits = Limits { vocab_size: VOCAB, max_tokens: 9, max_outputs: 7 };
const CONTEXT: usize = 60;

/// Logits that differ for different histories; few tokens are probable, and some end the text.
fn fingerprint(ids: &[u32]) -> Vec<f32> {
    logits_of(history(ids))
}

fn logits_of(hash: u32) -> Vec<f32> {
    let logit = |i: u32| (hash.wrapping_mul(2 * i + 1) >> 8) as f32 / (1 << 24) as f32;
    (0..VOCAB as u32).map(|i| logit(i) + if (97..101).contains(&i) { 1.5 } else { 0.0 }).collect()
}

fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(data("models/qwen3.gguf")).unwrap()).unwrap()
}

/// Proposes the tokens of a text that it knows, and spoils some.
#[derive(Clone)]
struct Knowing {
    prompt: usize,
    text: Vec<u32>,
    /// The drafts of this many tokens are right, one after the other.
    right: Vec<usize>,
    drafts: usize,
}

impl Drafter for Knowing {
    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        let right = self.right[self.drafts % self.right.len()];
        self.drafts += 1;
        let known = self.text.get(ids.len() - self.prompt..).unwrap_or_default();
        draft.extend_from_slice(&known[..right.min(known.len())]);
        // Beyond the vocabulary and beyond `max`, too.
        draft.extend((draft.len()..max + 2).map(|index| 95 + index as u32 * 60));
        Ok(())
    }
}

/// What a generation shows.
#[derive(Debug, PartialEq)]
struct Shown {
    ids: Vec<u32>,
    pieces: Vec<String>,
    logprobs: String,
    stop: StopReason,
    /// The tokens of the sequence afterwards.
    held: Vec<u32>,
}

fn generate(decoder: &mut Decoder, prompt: &[u32], options: &GenerateOptions, drafter: Option<Knowing>) -> Shown {
    let sequence = decoder.open();
    let generation = Generation::new(decoder, sequence, prompt.to_vec(), &tokenizer(), options).unwrap();
    let mut generation = match drafter {
        Some(drafter) => generation.with_drafter(drafter),
        None => generation,
    };
    let pieces = generation.by_ref().map(Result::unwrap).collect();
    let speculation = generation.summary().speculation.clone();
    assert_eq!(speculation.drafted_by_position.iter().sum::<usize>(), speculation.drafted);
    assert_eq!(speculation.accepted_by_position.iter().sum::<usize>(), speculation.accepted);
    assert_eq!(speculation.off.is_some(), speculation.steps == 0);
    let (ids, logprobs) = (generation.ids().to_vec(), format!("{:?}", generation.logprobs()));
    let stop = generation.summary().stop.clone();
    let held = decoder.tokens(sequence).unwrap().to_vec();
    Shown { ids, pieces, logprobs, stop, held }
}

fn options() -> impl Strategy<Value = GenerateOptions> {
    let stops = prop::collection::vec("[a-d]{1,3}", 0..2);
    let sampler = (any::<u64>(), 0..4usize, 0..2u8, prop::option::of(1.0..3.0f32));
    let others = (prop::option::of(0..45usize), stops, prop::option::of(0..3usize));
    (sampler, others).prop_map(|((seed, temperature, penalty, mirostat), (max_tokens, stop, logprobs))| {
        let sampler = SamplerOptions {
            seed: Some(seed),
            temperature: [0.0, 0.0, 0.3, 1.0][temperature],
            presence_penalty: f32::from(penalty),
            mirostat: mirostat.map(|tau| inkstone::sampler::Mirostat {
                version: inkstone::sampler::MirostatVersion::Two,
                tau,
                eta: 0.1,
            }),
            ..Default::default()
        };
        GenerateOptions { max_tokens, stop, logprobs, sampler, ..Default::default() }
    })
}

fn speculation() -> impl Strategy<Value = Speculation> {
    prop_oneof![
        (0..20usize).prop_map(Speculation::Exactly),
        (0..20usize).prop_map(Speculation::AtMost),
        Just(Speculation::Auto)
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// For all samplers, limits and stop strings, with right and wrong drafts.
    #[test]
    fn drafts_do_not_change_the_text(
        prompt in prop::collection::vec(0..256u32, 1..20),
        options in options(),
        speculation in speculation(),
        right in prop::collection::vec(0..9usize, 1..6),
        kind in 0..4u8,
    ) {
        let decoder = || {
            let recorder = Recorder::new(LIMITS, fingerprint);
            match kind {
                0 => recorder,
                1 => recorder.windowed(9).sorting(),
                2 => recorder.recurrent().sorting(),
                _ => recorder.recurrent().running_pipelined(),
            }.into_decoder(CONTEXT)
        };
        let off = GenerateOptions { speculation: Speculation::Off, ..options.clone() };
        let plain = generate(&mut decoder(), &prompt, &off, None);
        let drafter = Knowing { prompt: prompt.len(), text: plain.ids.clone(), right, drafts: 0 };
        let options = GenerateOptions { speculation, ..options };
        let mut decoder = decoder();
        prop_assert_eq!(&generate(&mut decoder, &prompt, &options, Some(drafter.clone())), &plain);
        // Again, with what the decoder has learnt.
        prop_assert_eq!(&generate(&mut decoder, &prompt, &options, Some(drafter)), &plain);
        prop_assert_eq!(&generate(&mut decoder, &prompt, &options, None), &plain);
    }
}

/// A generation that ends early leaves no drafted tokens behind, and the next prompt goes on.
#[test]
fn unread_drafts_are_removed() {
    for recurrent in [false, true] {
        let recorder = || {
            let recorder = Recorder::new(LIMITS, fingerprint);
            if recurrent { recorder.recurrent() } else { recorder }
        };
        let off = GenerateOptions {
            sampler: SamplerOptions::greedy(),
            max_tokens: Some(30),
            speculation: Speculation::Off,
            ..Default::default()
        };
        let prompt = [5, 6, 7];
        let plain = generate(&mut recorder().into_decoder(CONTEXT), &prompt, &off, None);
        assert!(plain.ids.len() > 12, "{}", plain.ids.len());
        for read in 1..12 {
            let mut decoder = recorder().into_decoder(CONTEXT);
            let sequence = decoder.open();
            let options = GenerateOptions { speculation: Speculation::Exactly(5), ..off.clone() };
            let drafter = Knowing { prompt: 3, text: plain.ids.clone(), right: vec![9], drafts: 0 };
            let generation = Generation::new(&mut decoder, sequence, prompt.to_vec(), &tokenizer(), &options).unwrap();
            let mut generation = generation.with_drafter(drafter);
            let tokens: Vec<_> = generation.tokens().take(read).map(|token| token.unwrap().id).collect();
            assert_eq!(tokens, plain.ids[..read]);
            let (before_last, last) = (&plain.ids[..read - 1], plain.ids[read - 1]);
            assert_eq!(decoder.tokens(sequence).unwrap(), [&prompt, before_last].concat());
            let fork = decoder.fork(sequence).unwrap();
            for sequence in [sequence, fork] {
                assert_eq!(decoder.greedy(sequence, last).unwrap(), plain.ids[read]);
            }
        }
    }
}

/// Real models draft for themselves: their own tokens are all accepted.
#[test]
fn drafted_texts_of_models_are_the_same() {
    MODELS.iter().for_each(|tiny| check_drafts_of(*tiny, &on_cpu()));
}

/// The same on GPUs, whose steps of up to 16 tokens compute a token alike: with windows, recurrent
/// layers and experts.
#[cfg(feature = "wgpu")]
#[test]
fn drafted_texts_of_models_are_the_same_on_gpus() {
    for info in inkstone::Device::gpus() {
        let builder = Runner::builder().device(inkstone::Device::Gpu(inkstone::Adapter::Named(info.name)));
        for tiny in [Tiny("qwen3", 0.0), Tiny("gemma3", 0.0), Tiny("qwen3moe", 0.0), Tiny("qwen35", 0.0)] {
            check_drafts_of(tiny, &builder);
        }
    }
}

fn check_drafts_of(tiny: Tiny, builder: &RunnerBuilder) {
    let mut runner = builder.from_gguf(tiny.path()).unwrap();
    for temperature in [0.0, 1.0] {
        let sampler = SamplerOptions { temperature, seed: Some(3), ..Default::default() };
        let off =
            GenerateOptions { sampler, max_tokens: Some(24), speculation: Speculation::Off, ..Default::default() };
        let prompt = [3, 7, 11, 4];
        let mut plain = runner.generate(&prompt[..], &off).unwrap().past_the_end();
        plain.by_ref().for_each(|piece| drop(piece.unwrap()));
        let ids = plain.ids().to_vec();
        for right in [vec![15], vec![0, 3, 1, 15]] {
            let all = right == [15];
            let drafter = Knowing { prompt: prompt.len(), text: ids.clone(), right, drafts: 0 };
            let options = GenerateOptions { speculation: Speculation::Exactly(4), ..off.clone() };
            let generation = runner.generate(&prompt[..], &options).unwrap().past_the_end();
            let mut generation = generation.with_drafter(drafter);
            generation.by_ref().for_each(|piece| drop(piece.unwrap()));
            assert_eq!(generation.ids(), ids, "{}", tiny.0);
            let speculation = &generation.summary().speculation;
            assert_eq!(speculation.acceptance() == 1.0, all, "{}: {speculation:?}", tiny.0);
        }
    }
}

fn storyteller() -> std::path::PathBuf {
    data("storyteller/storyteller.gguf")
}

fn story(runner: &mut Runner, options: &GenerateOptions) -> (String, inkstone::SpeculationSummary) {
    let mut generation = runner.generate("Once upon a time", options).unwrap();
    let text = generation.by_ref().map(Result::unwrap).collect();
    (text, generation.summary().speculation.clone())
}

#[test]
fn a_draft_model_drafts() {
    let mut plain = on_cpu().from_gguf(storyteller()).unwrap();
    let mut drafting = on_cpu().draft(storyteller()).without_ngrams().from_gguf(storyteller()).unwrap();
    assert!(drafting.memory().draft > 5_000_000 && plain.memory().draft == 0);
    let sampler = SamplerOptions { seed: Some(5), ..Default::default() };
    let greedy = SamplerOptions::greedy();
    for sampler in [greedy, sampler] {
        let options = GenerateOptions { sampler: sampler.clone(), speculation: Speculation::Off, ..Default::default() };
        let (expected, off) = story(&mut plain, &options);
        assert_eq!(off.off.as_deref(), Some("the options switch drafts off"));
        let options = GenerateOptions { speculation: Speculation::Exactly(4), ..options };
        // Twice: the draft model's sequence has the first text then.
        for _ in 0..2 {
            let (text, speculation) = story(&mut drafting, &options);
            assert_eq!(text, expected);
            if sampler.temperature == 0.0 {
                assert_eq!(speculation.accepted, speculation.drafted);
                assert!(speculation.tokens_per_step() > 4.5);
            }
        }
    }
    let clone_text =
        story(&mut drafting.clone(), &GenerateOptions { sampler: SamplerOptions::greedy(), ..Default::default() });
    assert_eq!(
        clone_text.0,
        story(&mut plain, &GenerateOptions { sampler: SamplerOptions::greedy(), ..Default::default() }).0
    );
}

/// A draft model with recurrent layers does not compute the text again after each draft.
#[test]
fn a_recurrent_draft_model_drafts() {
    let path = RECURRENT.path();
    let mut runner = on_cpu().draft(&path).without_ngrams().from_gguf(&path).unwrap();
    let prompt: Vec<u32> = (3..40).collect();
    let options = |speculation| GenerateOptions {
        sampler: SamplerOptions { temperature: 1.0, seed: Some(2), ..Default::default() },
        max_tokens: Some(30),
        speculation,
        ..Default::default()
    };
    let mut plain = runner.generate(&prompt[..], &options(Speculation::Off)).unwrap().past_the_end();
    plain.by_ref().for_each(|piece| drop(piece.unwrap()));
    let ids = plain.ids().to_vec();
    for drafts in 1..6 {
        let options = options(Speculation::Exactly(drafts));
        let mut generation = runner.generate(&prompt[..], &options).unwrap().past_the_end();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        assert_eq!(generation.ids(), ids);
        let summary = &generation.summary().speculation;
        assert!(summary.drafted > summary.accepted, "{summary:?}");
    }
}

/// Several texts are drafted in the same steps, of which some end early.
#[test]
fn texts_of_a_batch_are_drafted() {
    let mut runner = on_cpu().draft(storyteller()).from_gguf(storyteller()).unwrap();
    for temperature in [0.0, 0.9] {
        let options = |index: usize, speculation| GenerateOptions {
            sampler: SamplerOptions { temperature, seed: Some(index as u64), ..Default::default() },
            max_tokens: Some([30, 7, 21][index]),
            speculation,
            ..Default::default()
        };
        let prompts = ["Once upon a time", "The fox", "A lantern"];
        let mut texts = |speculation: [Speculation; 3]| {
            let requests = (0..3).map(|index| (prompts[index], options(index, speculation[index])));
            runner.generate_many(requests, |_, _| true).unwrap()
        };
        let plain = texts([Speculation::Off; 3]);
        for speculation in [
            [Speculation::Exactly(4); 3],
            [Speculation::Exactly(3), Speculation::Off, Speculation::Exactly(1)],
            [Speculation::Auto; 3],
        ] {
            let drafted = texts(speculation);
            for (text, plain) in drafted.iter().zip(&plain) {
                assert_eq!((&text.ids, &text.text), (&plain.ids, &plain.text));
                assert_eq!(text.summary.stop, plain.summary.stop);
            }
            if temperature == 0.0 && speculation[0] != Speculation::Auto {
                let summary = &drafted[0].summary.speculation;
                assert!(summary.accepted > 0 && summary.off.is_none(), "{summary:?}");
            }
        }
    }
}

#[test]
fn draft_models_that_do_not_fit_are_refused() {
    let refusal = |path: &std::path::Path| match on_cpu().draft(path).from_gguf(storyteller()) {
        Err(Error::Argument { what, .. }) => what,
        other => panic!("{:?}", other.map(drop)),
    };
    let other = refusal(&data("models/qwen3.gguf"));
    assert!(other.contains("qwen3.gguf`: has 320 tokens, but the model has"), "{other}");
    let missing = refusal("nowhere.gguf".as_ref());
    assert!(missing.contains("nowhere.gguf"), "{missing}");
    let limit = on_cpu().draft(storyteller()).plan(storyteller()).unwrap().total();
    let builder = on_cpu().draft(storyteller());
    assert!(builder.clone().memory_limit(limit).from_gguf(storyteller()).is_ok());
    assert!(matches!(builder.memory_limit(limit - 1).from_gguf(storyteller()), Err(Error::Memory { .. })));
}

/// Records the drafts that it is asked for, and proposes the same token again and again.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<(usize, usize)>>>);

impl Drafter for Asked {
    fn draft(&mut self, ids: &[u32], max: usize, draft: &mut Vec<u32>) -> Result<()> {
        self.0.lock().unwrap().push((ids.len(), max));
        draft.extend(vec![1; max]);
        Ok(())
    }
}

/// Drafts end where the text or the context must end.
#[test]
fn drafts_have_room() {
    for (max_tokens, context) in [(Some(12), CONTEXT), (None, 15)] {
        let mut decoder = Recorder::new(LIMITS, |ids| {
            let mut logits = vec![0.0; VOCAB];
            logits[98 + ids.len() % 2] = 9.0;
            logits
        })
        .into_decoder(context);
        let sequence = decoder.open();
        let options = GenerateOptions {
            sampler: SamplerOptions::greedy(),
            max_tokens,
            speculation: Speculation::Exactly(100),
            ..Default::default()
        };
        let asked = Asked::default();
        let generation = Generation::new(&mut decoder, sequence, vec![5; 4], &tokenizer(), &options).unwrap();
        let mut generation = generation.with_drafter(asked.clone());
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        assert_eq!(generation.ids().len(), 12);
        // A step has seven rows: the last token and six drafts. Near the end of the text or of the
        // context, fewer drafts have room.
        let expected: Vec<_> = (5..15).map(|len| (len, (15 - len).min(6))).collect();
        assert_eq!(*asked.0.lock().unwrap(), expected, "{max_tokens:?}");
    }
}

#[cfg(feature = "constrained")]
#[test]
fn drafts_that_the_grammar_forbids_are_not_verified() {
    let mut runner = on_cpu().from_gguf(storyteller()).unwrap();
    let ids = |runner: &Runner, text: &str| runner.tokenizer().encode_continuation(text).unwrap();
    let grammars = inkstone::grammar::Grammars::new(runner.tokenizer()).unwrap();
    let options = GenerateOptions {
        grammar: Some(grammars.regex("(yes|no|maybe)( (yes|no|maybe)){5}").unwrap()),
        sampler: SamplerOptions { temperature: 2.0, seed: Some(9), ..Default::default() },
        speculation: Speculation::Off,
        ..Default::default()
    };
    let mut plain = runner.generate("Well?", &options).unwrap();
    let expected: String = plain.by_ref().map(Result::unwrap).collect();
    let known = plain.ids().to_vec();
    let prompt = plain.prompt().len();
    let wrong = ids(&runner, "the fox");
    let options = GenerateOptions { speculation: Speculation::Exactly(4), ..options };
    for text in [known.clone(), [&known[..2], &[wrong[0]; 30]].concat()] {
        let drafter = Knowing { prompt, text, right: vec![9], drafts: 0 };
        let mut generation = runner.generate("Well?", &options).unwrap().with_drafter(drafter);
        assert_eq!(generation.by_ref().map(Result::unwrap).collect::<String>(), expected);
        let speculation = &generation.summary().speculation;
        assert_eq!(speculation.accepted, speculation.drafted, "{speculation:?}");
    }
}

/// Generates a text with the drafts of a head, and checks it.
fn text_with_head(
    decoder: &mut Decoder,
    sequence: SequenceId,
    prompt: Vec<u32>,
    tokens: usize,
    speculation: Speculation,
) -> SpeculationSummary {
    let options = GenerateOptions {
        sampler: SamplerOptions::greedy(),
        max_tokens: Some(tokens),
        speculation,
        ..Default::default()
    };
    let mut generation = Generation::new(decoder, sequence, prompt.clone(), &tokenizer(), &options).unwrap();
    generation.by_ref().for_each(|piece| drop(piece.unwrap()));
    let mut ids = prompt;
    for id in generation.ids() {
        assert_eq!(*id, best_of(&fingerprint(&ids), 1)[0].id);
        ids.push(*id);
    }
    let is_forced = matches!(speculation, Speculation::Exactly(_));
    let speculation = generation.summary().speculation.clone();
    assert!(!is_forced || generation.ids().len() < 4 || speculation.drafted > 0, "{speculation:?}");
    speculation
}

/// What happens to a sequence.
#[derive(Clone, Debug)]
enum Turn {
    /// Appends this number of tokens, and generates this number.
    Generate(usize, usize, Speculation),
    /// Shortens the sequence to this share of its tokens, in percent.
    Truncate(usize),
    /// Goes on with a fork, and keeps the sequence for a later turn.
    Fork,
    /// Goes on with an earlier sequence.
    Return(usize),
}

fn turn() -> impl Strategy<Value = Turn> {
    let speculation = prop_oneof![
        4 => (1..8usize).prop_map(Speculation::Exactly),
        1 => Just(Speculation::Auto),
        1 => Just(Speculation::Off),
    ];
    prop_oneof![
        4 => (1..80usize, 1..70usize, speculation).prop_map(|(prompt, text, speculation)| {
            Turn::Generate(prompt, text, speculation)
        }),
        1 => (0..120usize).prop_map(Turn::Truncate),
        2 => Just(Turn::Fork),
        1 => (0..9usize).prop_map(Turn::Return),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    /// Whatever happens to sequences, a perfect head stays perfect: all its rows follow one another
    /// (which the recorder checks), so all its drafts are accepted.
    #[test]
    fn heads_keep_up_with_their_sequences(
        turns in prop::collection::vec(turn(), 1..12),
        recurrent in any::<bool>(),
        pipelined in any::<bool>(),
        spoils in any::<bool>(),
    ) {
        const LIMITS: Limits = Limits { vocab_size: VOCAB, max_tokens: 40, max_outputs: 16 };
        let recorder = Recorder::new(LIMITS, fingerprint);
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let recorder = if pipelined { recorder.running_pipelined() } else { recorder };
        // A head that knows less has its drafts rejected, at other lengths in each step.
        let spoiled = |history: u32| logits_of(history ^ u32::from(history.is_multiple_of(3)));
        let mut decoder = recorder.with_head(700, if spoils { spoiled } else { logits_of }).without_ngrams();
        let mut sequences = vec![decoder.open()];
        for turn in turns {
            let sequence = *sequences.last().unwrap();
            let held = decoder.tokens(sequence).unwrap().to_vec();
            match turn {
                Turn::Generate(prompt, text, speculation) if held.len() + prompt + text < 600 => {
                    let new = (0..prompt as u32).map(|token| (token * 7 + held.len() as u32) % 256);
                    let prompt: Vec<u32> = held.iter().copied().chain(new).collect();
                    let speculation = text_with_head(&mut decoder, sequence, prompt, text, speculation);
                    prop_assert!(spoils || speculation.accepted == speculation.drafted);
                }
                Turn::Generate(..) => {}
                Turn::Truncate(percent) => decoder.truncate(sequence, held.len() * percent / 100).unwrap(),
                Turn::Fork => sequences.push(decoder.fork(sequence).unwrap()),
                Turn::Return(index) => {
                    let other = sequences.remove(index % sequences.len());
                    sequences.push(other);
                }
            }
        }
    }
}

/// The head's row of the last token, which is computed with the next one, is in a page that forks
/// share, even if the page is full.
#[test]
fn heads_of_forks_do_not_share_their_last_row() {
    for len in 60..70 {
        let mut decoder = Recorder::new(LIMITS, fingerprint).with_head(200, logits_of).without_ngrams();
        let first = decoder.open();
        decoder.step(&[(first, &vec![5; len], LogitsFor::Last)]).unwrap();
        let second = decoder.fork(first).unwrap();
        for (sequence, token) in [(first, 7), (second, 8), (first, 9), (second, 10)] {
            let prompt = [decoder.tokens(sequence).unwrap(), &[token]].concat();
            let speculation = text_with_head(&mut decoder, sequence, prompt, 6, Speculation::Exactly(3));
            assert_eq!(speculation.accepted, speculation.drafted, "{len}");
        }
    }
}

/// The head of a trained model: its logits, and the accepted drafts of each step.
#[test]
fn heads_draft_as_the_reference_does() {
    let expected: Value =
        serde_json::from_slice(&fs::read(data("speculation/correlated-blurred.json")).unwrap()).unwrap();
    let numbers = |value: &Value| -> Vec<u32> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
    };
    let rows = head_logits("correlated-blurred");
    let ids = numbers(&expected["ids"]);
    for builder in everywhere() {
        let path = data("speculation/correlated-blurred.gguf");
        let mut runner = builder.clone().without_ngrams().from_gguf(path).unwrap();
        check_head(&mut runner, &ids, &rows);
        let greedy = &expected["greedy"];
        let text = numbers(&greedy["ids"]);
        let options = GenerateOptions {
            sampler: SamplerOptions::greedy(),
            max_tokens: Some(text.len()),
            speculation: Speculation::Exactly(3),
            ..Default::default()
        };
        let mut generation = runner.generate(&ids[..], &options).unwrap().past_the_end();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        assert_eq!(generation.ids(), text);
        let accepted =
            greedy["steps"].as_array().unwrap().iter().map(|step| step["accepted"].as_u64().unwrap() as usize);
        assert_eq!(generation.accepted_per_step(), accepted.collect::<Vec<_>>());
    }
}

/// The heads of other families, of random weights: their logits, beside llama.cpp's.
#[test]
fn heads_of_other_families_have_llama_cpps_logits() {
    // The prompt of `heads.py`.
    let ids: Vec<u32> = (0..12).map(|index| (index * 7919 + 13) % 300).collect();
    for name in ["deepseek2", "glm4moe", "nemotron_h_moe", "qwen3next_pairs"] {
        for builder in everywhere() {
            let builder = builder.cache_type(CacheType::F32);
            let mut runner = builder.from_gguf(data(&format!("models/{name}.gguf"))).unwrap();
            println!("{name}");
            check_head(&mut runner, &ids, &head_logits(name));
        }
    }
}

/// Returns the expected logits of a model's head, `[tokens, vocab_size]`.
fn head_logits(name: &str) -> Vec<f32> {
    let rows = fs::read(data(&format!("speculation/{name}.mtp.f32"))).unwrap();
    rows.chunks(4).map(|bytes| f32::from_le_bytes(bytes.try_into().unwrap())).collect()
}

/// Compares the logits of a model's head for every token but the first.
fn check_head(runner: &mut Runner, ids: &[u32], expected: &[f32]) {
    let vocab_size = runner.config().vocab_size;
    assert_eq!(expected.len(), (ids.len() - 1) * vocab_size);
    let decoder = runner.decoder_mut();
    let sequence = decoder.open();
    for (pair, expected) in ids.windows(2).zip(expected.chunks(vocab_size)) {
        decoder.step(&[(sequence, &pair[..1], LogitsFor::None)]).unwrap();
        let logits = decoder.mtp_logits(sequence, pair[1]).unwrap();
        let error: f32 = logits.iter().zip(expected).map(|(a, b)| (a - b).powi(2)).sum();
        let power: f32 = expected.iter().map(|x| x.powi(2)).sum();
        assert!(error <= 1e-6 * power, "{error} of {power}");
    }
}

/// Returns builders for the CPU and all GPUs.
fn everywhere() -> Vec<RunnerBuilder> {
    let gpus = inkstone::Device::gpus().into_iter();
    let on_gpu = |info: inkstone::DeviceInfo| {
        Runner::builder().device(inkstone::Device::Gpu(inkstone::Adapter::Named(info.name)))
    };
    [on_cpu()].into_iter().chain(gpus.map(on_gpu)).collect()
}

/// With its head, a model writes the same texts, and a text of another sequence, a continued one
/// and a model without its head have the same tokens.
#[test]
fn texts_with_heads_are_the_same() {
    let load = || on_cpu().without_ngrams();
    let path = || data("speculation/correlated-blurred.gguf");
    let mut plain = load().without_mtp().from_gguf(path()).unwrap();
    let mut runner = load().from_gguf(path()).unwrap();
    for seed in 0..40u64 {
        let prompt: Vec<u32> = (0..3 + seed as u32 % 60).map(|token| (token * 37 + seed as u32) % 256).collect();
        let sampler = SamplerOptions {
            temperature: (seed % 3) as f32 / 2.0,
            presence_penalty: (seed % 2) as f32,
            seed: Some(seed),
            ..Default::default()
        };
        let off =
            GenerateOptions { sampler, max_tokens: Some(30), speculation: Speculation::Off, ..Default::default() };
        let text = |runner: &mut Runner, options: &GenerateOptions| {
            let mut generation = runner.generate(&prompt[..], options).unwrap().past_the_end();
            generation.by_ref().for_each(|piece| drop(piece.unwrap()));
            (generation.ids().to_vec(), generation.summary().speculation.drafted)
        };
        let (expected, _) = text(&mut plain, &off);
        assert_eq!(text(&mut runner, &off), (expected.clone(), 0));
        for drafts in [1, 2, 5, 15] {
            let options = GenerateOptions { speculation: Speculation::Exactly(drafts), ..off.clone() };
            let (ids, drafted) = text(&mut runner, &options);
            assert!(ids == expected && drafted > 0, "{seed}, {drafts}: {drafted}");
        }
    }
}

/// A file that has only a head, beside a file of its model without one.
#[test]
fn heads_in_their_own_file_draft() {
    let whole = Gguf::open(data("speculation/correlated-blurred.gguf")).unwrap();
    let is_of_head = |name: &str| name.starts_with("blk.2.");
    let part = |keeps: &dyn Fn(&str) -> bool| {
        let mut file = GgufFile::of(&whole);
        file.tensors.retain(|tensor| keeps(&tensor.name));
        file
    };
    let without_key = |mut file: GgufFile| {
        file.keys.retain(|(key, ..)| ![&b"qwen35.nextn_predict_layers"[..], b"qwen35.block_count"].contains(&&key[..]));
        file.u32("qwen35.block_count", 2)
    };
    let trunk = || part(&|name| !is_of_head(name));
    let head = || part(&|name| !name.starts_with("blk.") || is_of_head(name));
    let folder = Folder::new();
    let head_path = folder.write("mtp-model.gguf", head().bytes());
    let accepted = |runner: &mut Runner| {
        let options = GenerateOptions {
            sampler: SamplerOptions::greedy(),
            max_tokens: Some(60),
            speculation: Speculation::Exactly(3),
            ..Default::default()
        };
        let ids: Vec<u32> = (0..40).map(|token| (token * 37) % 256).collect();
        let mut generation = runner.generate(&ids[..], &options).unwrap().past_the_end();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        (generation.ids().to_vec(), generation.accepted_per_step().to_vec())
    };
    let load = |builder: RunnerBuilder, file: &GgufFile| {
        builder.without_ngrams().from_gguf(folder.write("model.gguf", file.bytes()))
    };
    let expected = accepted(&mut load(on_cpu(), &GgufFile::of(&whole)).unwrap());
    assert!(expected.1.iter().sum::<usize>() > 0);
    for trunk in [trunk(), without_key(trunk())] {
        assert_eq!(accepted(&mut load(on_cpu().draft(&head_path), &trunk).unwrap()), expected);
        assert_eq!(accepted(&mut load(on_cpu(), &trunk).unwrap()).1.iter().sum::<usize>(), 0);
    }
    let path = folder.write("model.gguf", trunk().bytes());
    let [plan, without] = [on_cpu().draft(&head_path), on_cpu()].map(|builder| builder.plan(&path).unwrap());
    assert!(plan.cache_per_token > without.cache_per_token && plan.scratch > without.scratch && plan.draft == 0);
    // The head's matrices of floats stay in the file.
    let matrices = whole.tensors().iter().filter(|tensor| is_of_head(&tensor.name) && tensor.shape.len() == 2);
    let bytes: usize = matrices.map(|tensor| tensor.byte_len()).sum();
    assert_eq!(plan.mapped - without.mapped, bytes as u64);

    let refused = |builder: RunnerBuilder, model: GgufFile, head: GgufFile, expected: &str| {
        let head = folder.write("other.gguf", head.bytes());
        let error = load(builder.draft(head), &model).unwrap_err().to_string();
        assert!(error.contains("other.gguf") && error.contains(expected), "{error}");
    };
    refused(on_cpu(), GgufFile::of(&whole), head(), "has one already");
    refused(on_cpu().without_mtp(), trunk(), head(), "`without_mtp`");
    let with_key = |key: &str, number: u32| {
        let mut file = head();
        file.keys.retain(|(known, ..)| known != key.as_bytes());
        file.u32(key, number)
    };
    refused(on_cpu(), trunk(), with_key("qwen35.embedding_length", 96), "96 columns");
    let mut shorter = head();
    let table = shorter.tensors.iter_mut().find(|tensor| tensor.name == "token_embd.weight").unwrap();
    let columns = table.dimensions[0] as usize;
    table.dimensions[1] -= 1;
    table.data.truncate(table.data.len() - columns * 2);
    refused(on_cpu(), trunk(), shorter, "383 tokens");
    let mut renamed = head();
    let (.., tokens) = renamed.keys.iter_mut().find(|(key, ..)| key == b"tokenizer.ggml.tokens").unwrap();
    let last = tokens.len() - 1;
    tokens[last] = b'~';
    refused(on_cpu(), trunk(), renamed, "its token 383 is");
}
