//! Tests of the decode loop, with an executable whose logits are an exact function of the ids in
//! its cache.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use inkstone::{
    Decoder, Error, GenerateOptions, Generation, LogitsFor, Prefill, SamplerOptions, SequenceId, Speculation,
    StopReason,
    gguf::Gguf,
    internals::generate::Limits,
    tokenizer::{SpecialTokens, Tokenizer},
};
use proptest::prelude::*;

use crate::support::{
    data,
    recorder::{Recorder, best_of},
};

const VOCAB: usize = 320;
const LIMITS: Limits = Limits { vocab_size: VOCAB, max_tokens: 7, max_outputs: 3 };
const CONTEXT: usize = 150;

/// Logits that differ for different histories.
fn fingerprint(ids: &[u32]) -> Vec<f32> {
    let hash = ids.iter().fold(17u32, |hash, &id| hash.wrapping_mul(31).wrapping_add(id + 1));
    (0..VOCAB as u32).map(|i| (hash.wrapping_mul(2 * i + 1) >> 8) as f32 / (1 << 24) as f32).collect()
}

fn decoder() -> Decoder {
    Recorder::new(LIMITS, fingerprint).into_decoder(CONTEXT)
}

/// Logits for which the next ids of the sequence spell `script`, after a prompt of `prompt` ids.
fn scripted(prompt: usize, script: &[u32], context: usize) -> Decoder {
    let script = script.to_vec();
    let next = move |ids: &[u32]| {
        let mut logits = vec![0.0; VOCAB];
        let chosen = script.get(ids.len().saturating_sub(prompt)).copied().unwrap_or(b'?'.into());
        logits[chosen as usize] = 9.0;
        logits
    };
    Recorder::new(LIMITS, next).into_decoder(context)
}

/// Returns a tokenizer whose first 256 ids are the bytes.
fn tokenizer() -> Tokenizer {
    Tokenizer::from_gguf(&Gguf::open(data("models/qwen3.gguf")).unwrap()).unwrap()
}

fn bytes(text: &str) -> Vec<u32> {
    text.bytes().map(u32::from).collect()
}

fn greedy() -> GenerateOptions {
    GenerateOptions { sampler: SamplerOptions::greedy(), ..Default::default() }
}

#[derive(Clone, Debug)]
enum Action {
    Open,
    Fork(usize),
    Close(usize),
    Truncate(usize, usize),
    /// Runs for some sequences: the number of new tokens, and the tokens with logits.
    Step(Vec<(usize, usize, LogitsFor)>),
}

/// Returns actions on sequences of up to [`CONTEXT`] times `scale` tokens.
fn actions(scale: usize) -> impl Strategy<Value = Vec<Action>> {
    let wanted = prop_oneof![Just(LogitsFor::None), Just(LogitsFor::Last), Just(LogitsFor::All)];
    let step = prop::collection::vec((0..8usize, 1..40 * scale, wanted), 1..4).prop_map(Action::Step);
    let action = prop_oneof![
        1 => Just(Action::Open),
        1 => (0..8usize).prop_map(Action::Fork),
        1 => (0..8usize).prop_map(Action::Close),
        1 => (0..8usize, 0..CONTEXT * scale).prop_map(|(which, len)| Action::Truncate(which, len)),
        4 => step,
    ];
    prop::collection::vec(action, 1..40)
}

/// A model of the decoder in plain vectors.
#[derive(Default)]
struct Reference {
    order: Vec<SequenceId>,
    tokens: HashMap<SequenceId, Vec<u32>>,
    made: u32,
}

impl Reference {
    fn pick(&self, which: usize) -> Option<SequenceId> {
        (!self.order.is_empty()).then(|| self.order[which % self.order.len()])
    }

    fn add(&mut self, id: SequenceId, tokens: Vec<u32>) {
        self.order.push(id);
        self.tokens.insert(id, tokens);
    }

    fn apply(&mut self, decoder: &mut Decoder, action: &Action) {
        match action {
            Action::Open => self.add(decoder.open(), vec![]),
            Action::Fork(which) => {
                let Some(id) = self.pick(*which) else { return };
                self.add(decoder.fork(id).unwrap(), self.tokens[&id].clone());
            }
            Action::Close(which) => {
                let Some(id) = self.pick(*which) else { return };
                decoder.close(id).unwrap();
                self.order.retain(|other| *other != id);
                self.tokens.remove(&id);
            }
            Action::Truncate(which, len) => {
                let Some(id) = self.pick(*which) else { return };
                decoder.truncate(id, *len).unwrap();
                self.tokens.get_mut(&id).unwrap().truncate(*len);
            }
            Action::Step(runs) => self.step(decoder, runs),
        }
    }

    fn step(&mut self, decoder: &mut Decoder, runs: &[(usize, usize, LogitsFor)]) {
        let context = decoder.context_length();
        let mut batch: Vec<(SequenceId, Vec<u32>, LogitsFor)> = vec![];
        for &(which, len, wanted) in runs {
            let Some(id) = self.pick(which).filter(|id| batch.iter().all(|run| run.0 != *id)) else { continue };
            let new = (0..len as u32).map(|i| (self.made + i) * 7 % VOCAB as u32).collect();
            self.made += len as u32;
            batch.push((id, new, wanted));
        }
        let borrowed: Vec<_> = batch.iter().map(|(id, new, wanted)| (*id, new.as_slice(), *wanted)).collect();
        let fits = batch.iter().all(|(id, new, _)| self.tokens[id].len() + new.len() <= context);
        let logits = decoder.step(&borrowed);
        if !fits {
            assert!(matches!(logits, Err(Error::ContextFull { .. })));
            return;
        }
        let mut wanted_logits = vec![];
        for (id, new, wanted) in batch {
            for (index, token) in new.iter().enumerate() {
                let tokens = self.tokens.get_mut(&id).unwrap();
                tokens.push(*token);
                if wanted == LogitsFor::All || wanted == LogitsFor::Last && index + 1 == new.len() {
                    wanted_logits.extend(fingerprint(tokens));
                }
            }
        }
        assert!(logits.unwrap() == wanted_logits.as_slice(), "other logits than those of the histories");
    }
}

proptest! {
    /// After any actions in ragged batches, every row of logits is that of its history.
    #[test]
    fn sequences_are_independent(actions in actions(1), recompute: bool, recurrent: bool) {
        let recorder = Recorder::new(LIMITS, fingerprint);
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let mut decoder = recorder.into_decoder(CONTEXT).with_recompute(recompute);
        let mut reference = Reference::default();
        for action in &actions {
            reference.apply(&mut decoder, action);
            for (&id, tokens) in &reference.tokens {
                prop_assert_eq!(decoder.tokens(id).unwrap(), tokens.as_slice());
            }
        }
    }

    /// Stop strings end the text at the same place for any pieces, and are not returned.
    #[test]
    fn stop_strings_are_removed_from_the_text(
        text in "( the| and|th|he|an|é){0,9}",
        stops in prop::collection::vec(stop_string(), 0..6),
    ) {
        // Pieces of one character and of several.
        let script = tokenizer().encode(&text, SpecialTokens::Plain).unwrap();
        let mut decoder = scripted(1, &script, CONTEXT);
        let sequence = decoder.open();
        let options = GenerateOptions { stop: stops.clone(), max_tokens: Some(script.len()), ..greedy() };
        let mut generation = Generation::new(&mut decoder, sequence, vec![b'>'.into()], &tokenizer(), &options).unwrap();
        let given: String = generation.by_ref().map(Result::unwrap).collect();
        match ended_by_stop(&text, &stops) {
            Some((before, stop)) => {
                prop_assert_eq!(given, before);
                prop_assert_eq!(&generation.summary().stop, &StopReason::StopString(stop.into()));
            }
            None => {
                prop_assert_eq!(given, text);
                prop_assert_eq!(&generation.summary().stop, &StopReason::TokenLimit);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// The same test with layers that attend to a window and free the pages before it.
    #[test]
    fn windowed_sequences_match_their_reference(actions in actions(12), window in 1..200usize, recurrent: bool) {
        let recorder = Recorder::new(Limits { max_tokens: 70, ..LIMITS }, fingerprint).windowed(window);
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let mut decoder = recorder.into_decoder(12 * CONTEXT);
        let mut reference = Reference::default();
        for action in &actions {
            reference.apply(&mut decoder, action);
        }
    }
}

/// Parts of the words above, some within others and some across two.
fn stop_string() -> impl Strategy<Value = String> {
    let parts =
        [" the", " th", "the", "th", "h", "he", "e", " and", "nd", "n", "d", "an", "é", "éa", "e a", "hean", "d "];
    prop::sample::select(parts.to_vec()).prop_map(String::from)
}

/// Returns the text up to the first stop string, searched character by character; the longest of
/// several.
fn ended_by_stop<'a>(text: &'a str, stops: &'a [String]) -> Option<(&'a str, &'a str)> {
    text.char_indices().map(|(at, c)| &text[..at + c.len_utf8()]).find_map(|read| {
        let stop = stops.iter().filter(|stop| read.ends_with(stop.as_str())).max_by_key(|stop| stop.len())?;
        Some((&read[..read.len() - stop.len()], stop.as_str()))
    })
}

#[test]
fn failed_step_leaves_sequences_unchanged() {
    let long: Vec<u32> = (0..30).collect();
    // 30 tokens take five steps: one for each of the next call's steps, before and after the copy
    // of the fork.
    for (steps, recurrent) in (5..10).flat_map(|steps| [(steps, false), (steps, true)]) {
        let recorder = Recorder::new(LIMITS, fingerprint).failing_after(steps);
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let mut decoder = recorder.into_decoder(CONTEXT);
        let first = decoder.open();
        decoder.step(&[(first, &long, LogitsFor::None)]).unwrap();
        let twin = decoder.fork(first).unwrap();
        assert!(matches!(decoder.step(&[(twin, &long, LogitsFor::Last)]), Err(Error::Unsupported(_))));
        assert_eq!(decoder.tokens(twin).unwrap(), long);
        for id in [twin, first] {
            let logits = decoder.step(&[(id, &[5], LogitsFor::Last)]).unwrap();
            assert_eq!(logits, fingerprint(&[long.as_slice(), &[5]].concat()));
        }
    }
}

#[test]
fn invalid_runs_are_refused_and_leave_sequences_unchanged() {
    let mut decoder = decoder();
    let (first, closed) = (decoder.open(), decoder.open());
    decoder.close(closed).unwrap();
    decoder.step(&[(first, &[1, 2, 3], LogitsFor::None)]).unwrap();
    let too_many = vec![0; CONTEXT - 2];
    type Batch<'a> = &'a [(SequenceId, &'a [u32], LogitsFor)];
    let refused: [(Batch, &str); 5] = [
        (&[(closed, &[1], LogitsFor::Last)], "not open"),
        (&[(first, &[1], LogitsFor::Last), (first, &[2], LogitsFor::Last)], "twice"),
        (&[(first, &[], LogitsFor::Last)], "at least one"),
        (&[(first, &[VOCAB as u32], LogitsFor::Last)], "vocabulary"),
        (&[(first, &too_many, LogitsFor::Last)], "147 of the context's 150"),
    ];
    for (runs, what) in refused {
        let message = decoder.step(runs).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
        assert_eq!(decoder.tokens(first).unwrap(), [1, 2, 3]);
    }
    assert!(decoder.fork(closed).is_err() && decoder.close(closed).is_err() && decoder.truncate(closed, 0).is_err());
    assert_eq!(decoder.step(&[(first, &[4], LogitsFor::Last)]).unwrap(), fingerprint(&[1, 2, 3, 4]));
}

#[test]
fn prefill_reuses_the_common_prefix_and_can_be_stopped() {
    let mut decoder = decoder();
    let id = decoder.open();
    let ids: Vec<u32> = (0..20).collect();
    let mut seen = vec![];
    let whole = decoder.prefill(id, &ids, |done, total| {
        seen.push((done, total));
        true
    });
    assert_eq!(whole.unwrap(), Prefill { cached: 0, complete: true });
    assert_eq!(seen, [(0, 20), (7, 20), (14, 20), (20, 20)]);
    assert_eq!(decoder.logits_mut(), fingerprint(&ids));

    let other = [&ids[..10], &[99; 20]].concat();
    let stopped = decoder.prefill(id, &other, |done, _| done < 17).unwrap();
    assert_eq!(stopped, Prefill { cached: 10, complete: false });
    assert_eq!(decoder.tokens(id).unwrap(), &other[..17]);

    // The last id is computed even if the sequence has all of them.
    let again = decoder.prefill(id, &other[..15], |_, _| true).unwrap();
    assert_eq!(again, Prefill { cached: 14, complete: true });
    assert_eq!(decoder.logits_mut(), fingerprint(&other[..15]));
}

#[test]
fn pieces_are_whole_characters() {
    let text = "naïve – 😀\u{1F1F8}!";
    let mut decoder = scripted(3, &bytes(text), CONTEXT);
    let sequence = decoder.open();
    let options = GenerateOptions { max_tokens: Some(text.len()), ..greedy() };
    let mut generation = Generation::new(&mut decoder, sequence, bytes("abc"), &tokenizer(), &options).unwrap();
    let pieces: Vec<_> = generation.by_ref().map(Result::unwrap).collect();
    assert_eq!(pieces, text.chars().map(String::from).collect::<Vec<_>>());
    assert_eq!((generation.ids().len(), &generation.summary().stop), (text.len(), &StopReason::TokenLimit));
}

#[test]
fn character_cut_off_by_the_token_limit_is_replaced() {
    let mut decoder = scripted(1, &bytes("a😀"), CONTEXT);
    let sequence = decoder.open();
    let options = GenerateOptions { max_tokens: Some(3), ..greedy() };
    let generation = Generation::new(&mut decoder, sequence, vec![0], &tokenizer(), &options).unwrap();
    assert_eq!(generation.map(Result::unwrap).collect::<String>(), "a\u{FFFD}");
}

#[test]
fn every_end_of_generation_token_ends_the_text() {
    let tokenizer = tokenizer();
    assert!(tokenizer.end_of_generation().len() > 1);
    for &end in tokenizer.end_of_generation() {
        let script = [bytes("stop here"), vec![end], bytes("never")].concat();
        let mut decoder = scripted(2, &script, CONTEXT);
        let sequence = decoder.open();
        // Text that may become a stop string is returned at the end.
        let options = GenerateOptions { stop: vec!["here!".into()], ..greedy() };
        let mut generation = Generation::new(&mut decoder, sequence, vec![1, 2], &tokenizer, &options).unwrap();
        assert_eq!(generation.by_ref().map(Result::unwrap).collect::<String>(), "stop here");
        assert_eq!(generation.summary().stop, StopReason::EndOfGeneration(end));
        assert_eq!(generation.summary().generated_tokens, 9);
        assert!(generation.next().is_none());
        assert_eq!(decoder.tokens(sequence).unwrap(), [vec![1, 2], bytes("stop here")].concat());
    }
}

#[test]
fn default_token_limit_is_1024() {
    let run = |options: GenerateOptions| {
        let mut decoder = scripted(1, &[], 1100);
        let sequence = decoder.open();
        let mut generation = Generation::new(&mut decoder, sequence, vec![0], &tokenizer(), &options).unwrap();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        (generation.ids().len(), generation.summary().stop.clone())
    };
    assert_eq!(run(greedy()), (1024, StopReason::TokenLimit));
    assert_eq!(run(GenerateOptions { max_tokens: None, ..greedy() }), (1100, StopReason::ContextEnd));
}

#[test]
fn text_ends_at_the_end_of_the_context() {
    let mut decoder = scripted(4, &bytes("0123456789"), 8);
    let sequence = decoder.open();
    let mut generation = Generation::new(&mut decoder, sequence, vec![0; 4], &tokenizer(), &greedy()).unwrap();
    // The last of the five tokens is chosen by the logits of the last position, and is not
    // computed.
    assert_eq!(generation.by_ref().map(Result::unwrap).collect::<String>(), "01234");
    assert_eq!(generation.summary().stop, StopReason::ContextEnd);
    assert!(matches!(
        Generation::new(&mut decoder, sequence, vec![0; 9], &tokenizer(), &greedy()),
        Err(Error::ContextFull { tokens: 9, free: 8, context: 8, .. })
    ));
}

#[test]
fn continued_prompt_computes_only_new_tokens() {
    let mut decoder = scripted(5, &bytes("hello"), CONTEXT);
    let sequence = decoder.open();
    let options = GenerateOptions { max_tokens: Some(5), ..greedy() };
    let prompt = vec![7; 5];
    Generation::new(&mut decoder, sequence, prompt.clone(), &tokenizer(), &options).unwrap().for_each(drop);
    // The last token was returned and never computed.
    assert_eq!(decoder.tokens(sequence).unwrap(), [prompt.clone(), bytes("hell")].concat());
    let next = [prompt, bytes("hello"), vec![8; 3]].concat();
    let mut generation = Generation::new(&mut decoder, sequence, next, &tokenizer(), &options).unwrap();
    generation.prefill(|_, _| true).unwrap();
    let summary = generation.summary();
    assert_eq!((summary.prompt_tokens, summary.cached_tokens, summary.generated_tokens), (13, 9, 0));
}

/// Tests a conversation of twenty turns with recurrent layers. Its prompts end with an assistant
/// header that every other next prompt lacks. Then earlier turns are continued.
#[test]
fn recurrent_layers_reuse_checkpoints() {
    const CONTEXT: usize = 4000;
    let recorder = Recorder::new(LIMITS, fingerprint).recurrent();
    let computed = recorder.computed();
    let mut decoder = recorder.into_decoder(CONTEXT);
    let sequence = decoder.open();
    let token = |i: usize| (i * i % 251) as u32;
    let cost = |decoder: &mut Decoder, ids: &[u32]| {
        computed.store(0, Relaxed);
        let prefill = decoder.prefill(sequence, ids, |_, _| true).unwrap();
        assert_eq!(decoder.logits_mut(), fingerprint(ids));
        let cost = computed.load(Relaxed);
        assert_eq!(cost, ids.len() - prefill.cached);
        cost
    };
    let mut text: Vec<u32> = vec![];
    let mut turns = vec![];
    for turn in 0..20 {
        let before = text.len();
        text.extend((0..40).map(|i| token(before + i)));
        let head = if turn % 2 == 0 { [299; 4].as_slice() } else { &[] };
        let prompt = [text.as_slice(), head].concat();
        let new = cost(&mut decoder, &prompt);
        // The earlier answer had a header, so the sequence differs.
        let again = if turn % 2 == 1 { 60 + 16 } else { 0 };
        assert!(new <= 40 + head.len() + 1 + again, "turn {turn} cost {new}");
        assert!(new < prompt.len() || turn == 0);
        for i in 0..60 {
            decoder.step(&[(sequence, &[token(before + 40 + i)], LogitsFor::Last)]).unwrap();
            text.push(token(before + 40 + i));
        }
        // Another answer to the same prompt.
        assert_eq!(cost(&mut decoder, &prompt), 1, "turn {turn}");
        for i in 0..60 {
            decoder.step(&[(sequence, &[token(before + 40 + i)], LogitsFor::Last)]).unwrap();
        }
        turns.push(prompt.len());
    }
    // Prompts that differ in the last word, and then in earlier and earlier words, are not computed
    // from the start.
    for (back, turn) in turns.iter().enumerate().rev().step_by(3).map(|(turn, len)| (turns.len() - turn, *len)) {
        let other = [&text[..turn - 20], &[255; 25]].concat();
        let new = cost(&mut decoder, &other);
        assert!(new <= 100 * back + 45, "{back} turns back cost {new}");
    }
}

#[test]
fn truncated_recurrent_sequences_are_recomputed_from_checkpoints() {
    let recorder = Recorder::new(LIMITS, fingerprint).recurrent();
    let computed = recorder.computed();
    let mut decoder = recorder.into_decoder(CONTEXT);
    let id = decoder.open();
    let ids: Vec<u32> = (0..50).collect();
    decoder.step(&[(id, &ids, LogitsFor::Last)]).unwrap();
    // Checkpoints are after 34 and 49 tokens.
    for (len, new) in [(49, 1), (40, 7), (34, 1), (33, 34)] {
        decoder.truncate(id, len).unwrap();
        assert_eq!(decoder.tokens(id).unwrap(), &ids[..len]);
        computed.store(0, Relaxed);
        let twin = decoder.fork(id).unwrap();
        assert_eq!(decoder.step(&[(twin, &[9], LogitsFor::Last)]).unwrap(), fingerprint(&[&ids[..len], &[9]].concat()));
        assert_eq!(computed.load(Relaxed), new);
        decoder.close(twin).unwrap();
    }
}

/// Tests long answers with a small attention window: another answer computes one token, a prompt
/// without the answer's reasoning its new tokens, and an earlier turn everything.
#[test]
fn windows_return_to_the_end_of_the_prompt() {
    let recorder = Recorder::new(LIMITS, fingerprint).windowed(100);
    let computed = recorder.computed();
    let mut decoder = recorder.into_decoder(4000);
    let sequence = decoder.open();
    let cost = |decoder: &mut Decoder, ids: &[u32]| {
        computed.store(0, Relaxed);
        decoder.prefill(sequence, ids, |_, _| true).unwrap();
        assert_eq!(decoder.logits_mut(), fingerprint(ids));
        computed.load(Relaxed)
    };
    let mut text: Vec<u32> = (0..300).collect();
    for turn in 0..3 {
        let head = text.len();
        let prompt = [text.as_slice(), &[300; 10]].concat();
        let new = cost(&mut decoder, &prompt);
        assert_eq!(new, if turn == 0 { 310 } else { 60 }, "turn {turn}");
        let answer = |decoder: &mut Decoder| {
            for i in 0..900 {
                decoder.step(&[(sequence, &[i % 256], LogitsFor::Last)]).unwrap();
            }
        };
        answer(&mut decoder);
        assert_eq!(cost(&mut decoder, &prompt), 1, "turn {turn}, another answer");
        answer(&mut decoder);
        // The next prompt has neither the header of the answer nor its reasoning.
        text.extend((0..50).map(|i| (i + turn) % 256));
        assert_eq!(text.len(), head + 50);
    }
    // At a position that is not the end of a prompt, everything is computed.
    assert_eq!(cost(&mut decoder, &text[..350]), 350);
}

/// Tests two clones that decode greedily in turn on a device that pipelines steps, and sometimes
/// take another token, truncate or fork. Each clone keeps its pipelined step: a turn computes one
/// token, and one additional step each time a clone leaves the most probable path.
#[test]
fn alternating_clones_keep_their_pipelined_steps() {
    for recurrent in [false, true] {
        let recorder = Recorder::new(LIMITS, fingerprint).running_pipelined();
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let computed = recorder.computed();
        let decoder = recorder.into_decoder(CONTEXT);
        let mut clones: Vec<_> = (0..2u32)
            .map(|clone| {
                let mut decoder = decoder.clone();
                let (id, ids) = (decoder.open(), vec![clone + 1]);
                decoder.step(&[(id, &ids, LogitsFor::Last)]).unwrap();
                (decoder, id, ids)
            })
            .collect();
        let (before, mut left_the_path) = (computed.load(Relaxed), 0);
        for turn in 0..100 {
            let (decoder, id, ids) = &mut clones[turn * 5 / 3 % 2];
            let mut token = best_of(&fingerprint(ids), 1)[0].id;
            if turn % 11 == 10 {
                token = (token + 1) % VOCAB as u32;
                left_the_path += 1;
            }
            ids.push(token);
            assert_eq!(decoder.greedy(*id, token).unwrap(), best_of(&fingerprint(ids), 1)[0].id, "turn {turn}");
            assert_eq!(decoder.tokens(*id).unwrap(), ids);
            if turn % 17 == 16 {
                let twin = decoder.fork(*id).unwrap();
                assert_eq!(
                    decoder.step(&[(twin, &[7], LogitsFor::Last)]).unwrap(),
                    fingerprint(&[&ids[..], &[7]].concat())
                );
                decoder.close(twin).unwrap();
                left_the_path += 1;
            }
            if turn % 23 == 22 {
                ids.pop();
                decoder.truncate(*id, ids.len()).unwrap();
                left_the_path += 2;
            }
        }
        let steps = computed.load(Relaxed) - before;
        let most = 100 + clones.len() + 2 * left_the_path;
        // A recurrent sequence that returns further than its pipelined step computes the tokens
        // after a checkpoint again.
        assert!(recurrent || steps <= most, "{steps} tokens were computed where {most} are enough");
    }
}

/// Tests three threads with one sequence each, whose steps run in any order, and that their memory
/// is free afterwards.
#[test]
fn clones_have_separate_sequences() {
    for recurrent in [false, true] {
        let recorder = Recorder::new(LIMITS, fingerprint).windowed(20);
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let decoder = recorder.into_decoder(CONTEXT);
        std::thread::scope(|scope| {
            for thread in 0..3u32 {
                let mut decoder = decoder.clone();
                scope.spawn(move || {
                    let id = decoder.open();
                    let mut ids: Vec<u32> = (0..20 + thread).map(|i| 7 * i + thread).collect();
                    decoder.prefill(id, &ids, |_, _| true).unwrap();
                    for turn in 0..60 {
                        assert_eq!(decoder.logits_mut(), fingerprint(&ids));
                        if turn % 10 == 9 {
                            ids.truncate(ids.len() - 5);
                            decoder.truncate(id, ids.len()).unwrap();
                        }
                        ids.push(turn + 100 * thread);
                        decoder.step(&[(id, &ids[ids.len() - 1..], LogitsFor::Last)]).unwrap();
                        assert_eq!(decoder.tokens(id).unwrap(), ids);
                    }
                });
            }
        });
        // A sequence is only known to the clone that opened it.
        let (mut first, mut second) = (decoder.clone(), decoder.clone());
        let id = first.open();
        assert!(second.step(&[(id, &[1], LogitsFor::Last)]).is_err() && second.tokens(id).is_err());
        drop(first);
        assert_eq!(second.open(), id, "what a clone held is free when it is gone");
    }
}

#[test]
fn stop_handle_works_during_prefill_and_decode() {
    let tokenizer = tokenizer();
    let mut decoder = scripted(20, &bytes("hello"), CONTEXT);
    let sequence = decoder.open();
    let prompt: Vec<u32> = (0..20).collect();

    let mut generation = Generation::new(&mut decoder, sequence, prompt.clone(), &tokenizer, &greedy()).unwrap();
    generation.prefill(|done, _| done == 0).unwrap();
    assert!(generation.next().is_none());
    assert_eq!(generation.summary().stop, StopReason::Caller);
    assert_eq!(decoder.tokens(sequence).unwrap(), &prompt[..7]);

    let mut generation = Generation::new(&mut decoder, sequence, prompt.clone(), &tokenizer, &greedy()).unwrap();
    let handle = generation.stop_handle();
    let stopper = handle.clone();
    generation
        .prefill(move |done, _| {
            if done == 14 {
                std::thread::scope(|scope| _ = scope.spawn(|| stopper.stop()));
            }
            true
        })
        .unwrap();
    // The stop came during that call, so the chunk after it was still computed.
    assert!(handle.is_stopped() && generation.next().is_none());
    assert_eq!(generation.summary().stop, StopReason::Caller);

    let mut generation = Generation::new(&mut decoder, sequence, prompt.clone(), &tokenizer, &greedy()).unwrap();
    assert_eq!(generation.next().unwrap().unwrap(), "h");
    assert_eq!(generation.next().unwrap().unwrap(), "e");
    generation.stop_handle().stop();
    assert!(generation.next().is_none());
    assert_eq!((generation.summary().stop.clone(), generation.summary().generated_tokens), (StopReason::Caller, 2));
    assert_eq!(decoder.tokens(sequence).unwrap(), [prompt, bytes("h")].concat());
}

#[test]
fn seed_of_the_summary_reproduces_the_text() {
    let tokenizer = tokenizer();
    let run = |seed| {
        let mut decoder = decoder();
        let sequence = decoder.open();
        let sampler = SamplerOptions { seed, temperature: 1.0, top_k: 0, top_p: 1.0, min_p: 0.0, ..Default::default() };
        let options = GenerateOptions { sampler, max_tokens: Some(30), ..Default::default() };
        let mut generation = Generation::new(&mut decoder, sequence, vec![1], &tokenizer, &options).unwrap();
        generation.by_ref().for_each(|piece| drop(piece.unwrap()));
        (generation.ids().to_vec(), generation.summary().seed)
    };
    let (ids, seed) = run(None);
    assert_eq!(run(Some(seed)), (ids.clone(), seed));
    assert_ne!(run(Some(seed + 1)).0, ids);
}

#[test]
fn device_top_k_gives_the_same_text() {
    let samplers = [
        SamplerOptions::default(),
        SamplerOptions { top_k: 5, temperature: 3.0, ..SamplerOptions::default() },
        SamplerOptions { top_p: 0.3, min_p: 0.0, ..SamplerOptions::default() },
        SamplerOptions { top_k: VOCAB + 1, min_p: 0.9, ..SamplerOptions::default() },
        SamplerOptions { top_k: 0, ..SamplerOptions::default() },
        SamplerOptions { presence_penalty: 0.5, ..SamplerOptions::default() },
        SamplerOptions { presence_penalty: -0.5, ..SamplerOptions::default() },
        SamplerOptions { repetition_penalty: 1.5, ..SamplerOptions::greedy() },
        SamplerOptions { repetition_penalty: 0.5, ..SamplerOptions::default() },
        SamplerOptions { logit_bias: vec![(7, 0.5)], ..SamplerOptions::default() },
        SamplerOptions { logit_bias: vec![(7, 30.0), (8, -30.0)], ..SamplerOptions::default() },
        SamplerOptions {
            logit_bias: (0..300).map(|id| (id, f32::NEG_INFINITY)).collect(),
            ..SamplerOptions::default()
        },
        SamplerOptions { dry: Some(inkstone::sampler::Dry::new(&tokenizer())), ..SamplerOptions::greedy() },
        SamplerOptions::greedy(),
    ];
    // Coarse logits, so that many are equal.
    let coarse = |ids: &[u32]| fingerprint(ids).iter().map(|x| (8.0 * x).floor()).collect();
    for (seed, sampler) in
        samplers.into_iter().enumerate().flat_map(|(seed, sampler)| [(seed, sampler.clone()), (seed + 100, sampler)])
    {
        let logprobs = (seed >= 100).then_some(3);
        let sampler = SamplerOptions { seed: Some(seed as u64), ..sampler };
        let options = GenerateOptions { sampler, max_tokens: Some(60), logprobs, ..Default::default() };
        let text = |recorder: Recorder| {
            let mut decoder = recorder.into_decoder(CONTEXT);
            let id = decoder.open();
            let mut generation = Generation::new(&mut decoder, id, bytes("once"), &tokenizer(), &options).unwrap();
            generation.by_ref().for_each(|piece| drop(piece.unwrap()));
            let logprobs = generation.logprobs().iter().flat_map(|of| [&of.token].into_iter().chain(&of.top));
            // Rounded, because the logarithm of the sum of exponentials is rounded to f32.
            let logprobs: Vec<_> = logprobs.map(|of| (of.id, (of.logprob * 1e3).round())).collect();
            (generation.ids().to_vec(), logprobs, generation.summary().stop.clone())
        };
        assert_eq!(text(Recorder::new(LIMITS, coarse).sorting()), text(Recorder::new(LIMITS, coarse)), "{options:?}");
    }
}

/// Penalties and biases that leave the largest logits among the candidates read no other logits.
#[test]
fn changed_logits_are_read_only_if_the_largest_do_not_suffice() {
    let reads = |sampler: SamplerOptions| {
        let recorder = Recorder::new(LIMITS, fingerprint).sorting();
        let reads = recorder.rows_read();
        let mut decoder = recorder.into_decoder(CONTEXT);
        let id = decoder.open();
        let options = GenerateOptions { sampler, max_tokens: Some(40), ..Default::default() };
        let generation = Generation::new(&mut decoder, id, bytes("once"), &tokenizer(), &options).unwrap();
        generation.for_each(|piece| drop(piece.unwrap()));
        reads.load(Relaxed)
    };
    assert_eq!(reads(SamplerOptions { presence_penalty: 0.5, ..SamplerOptions::default() }), 0);
    assert_eq!(reads(SamplerOptions { logit_bias: vec![(7, -1.0)], ..SamplerOptions::greedy() }), 0);
    // A bias on a token that is not among the largest may make it the largest.
    assert!(reads(SamplerOptions { logit_bias: vec![(7, 30.0)], ..SamplerOptions::greedy() }) > 20);
}

/// Several sequences are decoded greedily in one step, while others join and leave. The device
/// starts the next step itself.
#[test]
fn steps_of_several_sequences_are_pipelined() {
    let limits = Limits { max_outputs: 7, ..LIMITS };
    for recurrent in [false, true] {
        let recorder = Recorder::new(limits, fingerprint).running_pipelined();
        let recorder = if recurrent { recorder.recurrent() } else { recorder };
        let computed = recorder.computed();
        let mut decoder = recorder.into_decoder(CONTEXT);
        let mut texts: Vec<_> = (0..5u32)
            .map(|text| {
                let (id, ids) = (decoder.open(), vec![text + 1; 1 + text as usize]);
                decoder.step(&[(id, &ids, LogitsFor::Last)]).unwrap();
                (id, ids)
            })
            .collect();
        let (before, mut needed, mut left_the_path) = (computed.load(Relaxed), 0, 0);
        for turn in 0..60 {
            // All but one text in most turns; the order changes.
            texts.rotate_left(turn % 3);
            let running = if turn % 4 == 3 { 5 } else { 4 };
            let next = |(id, ids): &mut (SequenceId, Vec<u32>)| {
                let mut token = best_of(&fingerprint(ids), 1)[0].id;
                if (turn + ids.len()) % 29 == 28 {
                    token = (token + 1) % VOCAB as u32;
                    left_the_path += 1;
                }
                ids.push(token);
                (*id, token)
            };
            let tokens: Vec<_> = texts[..running].iter_mut().map(next).collect();
            needed += tokens.len();
            let expected: Vec<_> =
                texts[..running].iter().map(|(_, ids)| best_of(&fingerprint(ids), 1)[0].id).collect();
            assert_eq!(decoder.greedy_many(&tokens).unwrap(), expected, "turn {turn}");
        }
        for (id, ids) in &texts {
            assert_eq!(decoder.tokens(*id).unwrap(), ids);
            let twin = decoder.fork(*id).unwrap();
            decoder.close(twin).unwrap();
        }
        let tokens = computed.load(Relaxed) - before;
        let most = needed + texts.len() + 2 * left_the_path;
        assert!(left_the_path > 3 && (recurrent || tokens <= most), "{tokens} computed where {most} are enough");
    }
}

#[test]
fn nan_in_device_top_k_is_refused() {
    for (logit, what) in [(f32::NAN, "NaN"), (f32::INFINITY, "infinity"), (f32::NEG_INFINITY, "negative infinity")] {
        let late = move |ids: &[u32]| {
            let other = if logit == f32::NEG_INFINITY { logit } else { 1.0 };
            if ids.len() < 3 { vec![1.0; VOCAB] } else { [vec![other; VOCAB - 1], vec![logit]].concat() }
        };
        let mut decoder = Recorder::new(LIMITS, late).sorting().into_decoder(CONTEXT);
        let id = decoder.open();
        let generation =
            Generation::new(&mut decoder, id, bytes("a"), &tokenizer(), &GenerateOptions::default()).unwrap();
        let error = generation.filter_map(Result::err).next().expect("an error").to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn device_errors_end_the_text() {
    let tokenizer = tokenizer();
    for steps in 0..3 {
        let mut decoder = Recorder::new(LIMITS, |_| vec![0.0; VOCAB]).failing_after(steps).into_decoder(CONTEXT);
        let sequence = decoder.open();
        let mut generation = Generation::new(&mut decoder, sequence, vec![1; 10], &tokenizer, &greedy()).unwrap();
        let results: Vec<_> = generation.by_ref().collect();
        assert!(matches!(results.last(), Some(Err(Error::Unsupported(_)))));
        assert_eq!(generation.summary().stop, StopReason::Error);
    }
}

#[test]
fn invalid_requests_are_refused() {
    let tokenizer = tokenizer();
    let mut decoder = decoder();
    let sequence = decoder.open();
    let mut refuse = |prompt: Vec<u32>, options: GenerateOptions, what: &str| {
        let message = Generation::new(&mut decoder, sequence, prompt, &tokenizer, &options).unwrap_err().to_string();
        assert!(message.contains(what), "{message}");
    };
    refuse(vec![], greedy(), "at least one");
    refuse(vec![VOCAB as u32], greedy(), "vocabulary");
    refuse(vec![1], GenerateOptions { stop: vec![String::new()], ..greedy() }, "stop");
    let hot = SamplerOptions { temperature: f32::NAN, ..Default::default() };
    refuse(vec![1], GenerateOptions { sampler: hot, ..Default::default() }, "temperature");
}

/// Tokens have the ids and log-probabilities of the generation, and their texts add up to its text:
/// with an incomplete character at the end, a stop string, and text that only begins like one.
#[test]
fn tokens_have_the_ids_texts_and_logprobs_of_the_generation() {
    let script = bytes("añob stoc stop!");
    let prompt = bytes("x");
    let cases = [
        (3, vec!["st"], "añ"),
        (2, vec![], "a\u{fffd}"),
        (8, vec!["stop"], "añob st"),
        (99, vec!["stop"], "añob stoc "),
    ];
    for (max_tokens, stops, expected) in cases {
        let stop = stops.iter().map(|stop| (*stop).to_owned()).collect();
        let options = GenerateOptions { max_tokens: Some(max_tokens), stop, logprobs: Some(2), ..greedy() };
        let mut decoder = scripted(prompt.len(), &script, CONTEXT);
        let sequence = decoder.open();
        let mut generation = Generation::new(&mut decoder, sequence, prompt.clone(), &tokenizer(), &options).unwrap();
        let tokens: Vec<_> = generation.tokens().map(Result::unwrap).collect();
        let text: String = tokens.iter().map(|token| token.text.as_str()).collect();
        assert_eq!(text, expected, "{max_tokens} {stops:?}");
        let ids: Vec<_> = tokens.iter().map(|token| token.id).collect();
        assert_eq!(ids, generation.ids());
        assert_eq!(ids, script[..ids.len()]);
        let logprobs: Vec<_> = tokens.iter().map(|token| token.logprobs.clone().unwrap()).collect();
        assert_eq!(logprobs, generation.logprobs());
        assert!(tokens.iter().all(|token| token.logprobs.as_ref().unwrap().token.id == token.id));
        assert!(generation.tokens().next().is_none());

        let mut decoder = scripted(prompt.len(), &script, CONTEXT);
        let sequence = decoder.open();
        let generation = Generation::new(&mut decoder, sequence, prompt.clone(), &tokenizer(), &options).unwrap();
        assert_eq!(generation.into_text().unwrap(), expected);
    }
}

/// Text that is held back when the caller changes between the iterators is returned by the other
/// one, in each order, with and without a token after it.
#[test]
fn pieces_and_tokens_together_have_the_whole_text() {
    let script = bytes("añob stoc stop");
    for (max_tokens, expected) in [(13, "añob stoc st"), (15, "añob stoc "), (9, "añob sto")] {
        let options = GenerateOptions { max_tokens: Some(max_tokens), stop: vec!["stop".into()], ..greedy() };
        for (pieces, tokens) in (0..8).flat_map(|pieces| (0..8).map(move |tokens| (pieces, tokens))) {
            let mut decoder = scripted(1, &script, CONTEXT);
            let sequence = decoder.open();
            let mut generation = Generation::new(&mut decoder, sequence, bytes("x"), &tokenizer(), &options).unwrap();
            let mut text: String = generation.by_ref().take(pieces).map(Result::unwrap).collect();
            text.extend(generation.tokens().take(tokens).map(|token| token.unwrap().text));
            text.extend(generation.by_ref().take(1).map(Result::unwrap));
            text.extend(generation.tokens().map(|token| token.unwrap().text));
            text += &generation.into_text().unwrap();
            assert_eq!(text, expected, "{pieces} pieces, then {tokens} tokens");
        }
    }
}

/// A token is returned before the next step is computed, unless its text may become a stop string.
#[test]
fn tokens_are_returned_as_soon_as_their_text_is_certain() {
    let options = GenerateOptions { stop: vec!["stop".into()], speculation: Speculation::Off, ..greedy() };
    let steps = Arc::new(AtomicUsize::new(0));
    let (counter, script) = (steps.clone(), bytes("ab star stop"));
    let next = move |ids: &[u32]| {
        counter.fetch_add(1, Relaxed);
        let mut logits = vec![0.0; VOCAB];
        logits[script[ids.len() - 1] as usize] = 9.0;
        logits
    };
    let mut decoder = Recorder::new(LIMITS, next).into_decoder(CONTEXT);
    let sequence = decoder.open();
    let mut generation = Generation::new(&mut decoder, sequence, bytes("x"), &tokenizer(), &options).unwrap();
    let tokens = generation.tokens().map(|token| (token.unwrap().text, steps.load(Relaxed)));
    let expected = [
        ("a", 1),
        ("b", 2),
        (" ", 3),
        ("", 5),
        ("", 6),
        ("sta", 6),
        ("r", 7),
        (" ", 8),
        ("", 10),
        ("", 11),
        ("", 12),
        ("", 12),
    ];
    assert_eq!(tokens.collect::<Vec<_>>(), expected.map(|(text, steps)| (text.to_owned(), steps)));
}
