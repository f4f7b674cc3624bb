//! Tests Qwen3.5: the errors for bad files, and its recurrent states.

use inkstone::{
    CacheType, Error,
    gguf::Gguf,
    internals::{
        graph::{LayerState, Op},
        kv_cache::{CHECKPOINTS, CacheLayout, KvCache, RUN_CHECKPOINTS, SEQUENCE_STATES, Stage},
        models::Model,
        weights::Weights,
    },
};

use super::families::{Stored, load, u32, zeros};
use crate::support::{
    gguf_file::{Folder, GgufFile},
    on_cpu,
    tiny::{RECURRENT, nmse},
};

/// Returns a model of two layers, the second with attention, with zero weights and some keys
/// changed; `None` removes a key.
fn file(changes: &[(&str, Option<Stored>)]) -> GgufFile {
    let mut keys = vec![
        ("block_count", u32(2)),
        ("context_length", u32(64)),
        ("embedding_length", u32(8)),
        ("feed_forward_length", u32(12)),
        ("attention.head_count", u32(4)),
        ("attention.head_count_kv", u32(2)),
        ("attention.key_length", u32(6)),
        ("attention.layer_norm_rms_epsilon", crate::models::families::f32(1e-5)),
        ("full_attention_interval", u32(2)),
        ("ssm.conv_kernel", u32(3)),
        ("ssm.state_size", u32(16)),
        ("ssm.group_count", u32(1)),
        ("ssm.time_step_rank", u32(2)),
        ("ssm.inner_size", u32(32)),
    ];
    keys.retain(|(key, _)| changes.iter().all(|(changed, _)| changed != key));
    keys.extend(changes.iter().cloned());
    let mut file = GgufFile::new().string("general.architecture", "qwen35");
    for (key, value) in keys {
        if let Some((number, value)) = value {
            file = file.key(&format!("qwen35.{key}"), number, value);
        }
    }
    let tensors: [(&str, &[u64]); 26] = [
        ("token_embd.weight", &[8, 5]),
        ("output_norm.weight", &[8]),
        ("blk.0.attn_norm.weight", &[8]),
        ("blk.0.attn_qkv.weight", &[8, 64]),
        ("blk.0.attn_gate.weight", &[8, 32]),
        ("blk.0.ssm_alpha.weight", &[8, 2]),
        ("blk.0.ssm_beta.weight", &[8, 2]),
        ("blk.0.ssm_conv1d.weight", &[3, 64]),
        ("blk.0.ssm_a", &[2]),
        ("blk.0.ssm_dt.bias", &[2]),
        ("blk.0.ssm_norm.weight", &[16]),
        ("blk.0.ssm_out.weight", &[32, 8]),
        ("blk.0.post_attention_norm.weight", &[8]),
        ("blk.0.ffn_gate.weight", &[8, 12]),
        ("blk.0.ffn_up.weight", &[8, 12]),
        ("blk.0.ffn_down.weight", &[12, 8]),
        ("blk.1.attn_norm.weight", &[8]),
        ("blk.1.attn_q.weight", &[8, 48]),
        ("blk.1.attn_k.weight", &[8, 12]),
        ("blk.1.attn_v.weight", &[8, 12]),
        ("blk.1.attn_q_norm.weight", &[6]),
        ("blk.1.attn_k_norm.weight", &[6]),
        ("blk.1.attn_output.weight", &[24, 8]),
        ("blk.1.post_attention_norm.weight", &[8]),
        ("blk.1.ffn_gate.weight", &[8, 12]),
        ("blk.1.ffn_up.weight", &[8, 12]),
    ];
    let file = tensors.iter().fold(file, |file, (name, dimensions)| zeros(file, name, dimensions));
    zeros(file, "blk.1.ffn_down.weight", &[12, 8])
}

#[test]
fn keys_out_of_range_are_named() {
    let cases = [
        ("full_attention_interval", u32(0)),
        ("attention.recurrent_layers", u32(1)),
        ("nextn_predict_layers", u32(2)),
        ("ssm.conv_kernel", None),
        ("ssm.conv_kernel", u32(0)),
        ("ssm.conv_kernel", u32(1)),
        ("ssm.conv_kernel", u32(u32::MAX)),
        ("ssm.state_size", None),
        ("ssm.state_size", u32(0)),
        ("ssm.state_size", u32(24)),
        ("ssm.state_size", u32(512)),
        ("ssm.group_count", None),
        ("ssm.group_count", u32(0)),
        ("ssm.group_count", u32(3)),
        ("ssm.time_step_rank", None),
        ("ssm.time_step_rank", u32(0)),
        ("ssm.inner_size", None),
        ("ssm.inner_size", u32(33)),
        ("ssm.inner_size", u32(u32::MAX)),
    ];
    load(&file(&[])).unwrap();
    for (key, value) in cases {
        let error = load(&file(&[(key, value.clone())])).unwrap_err();
        let named = matches!(&error, Error::Metadata { key: named, .. } if *named == format!("qwen35.{key}"));
        assert!(named, "{key} {value:?}: {error:?}");
    }
}

#[test]
fn missing_misshapen_and_unused_tensors_are_named() {
    let refused = |file: GgufFile, name: &str| {
        let error = load(&file).unwrap_err();
        assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == name), "{name}: {error:?}");
    };
    for index in 0..file(&[]).tensors.len() {
        let mut missing = file(&[]);
        let name = missing.tensors.remove(index).name;
        refused(missing, &name);
        let mut wider = file(&[]);
        let tensor = &mut wider.tensors[index];
        tensor.dimensions[0] *= 2;
        tensor.data = vec![0; 2 * tensor.data.len()];
        refused(wider, &name);
    }
    refused(zeros(file(&[]), "blk.0.attn_q.weight", &[8, 48]), "blk.0.attn_q.weight");
    refused(zeros(file(&[]), "blk.0.ffn_norm.weight", &[8]), "blk.0.ffn_norm.weight");
}

/// Without its projection, a layer that predicts further tokens is left out, and no other tensor
/// is. With it, the layer's tensors are looked up.
#[test]
fn layers_that_predict_further_tokens_are_left_out() {
    let with = |tensor: &str| {
        let keys = [("block_count", u32(3)), ("nextn_predict_layers", u32(1))];
        load(&zeros(file(&keys), tensor, &[8]))
    };
    let model = with("blk.2.nextn.enorm.weight").unwrap();
    assert!(model.mtp.is_none() && model.graph.hidden().is_none());
    assert_eq!((model.config.layers.len(), model.config.left_out.as_slice()), (2, &["blk.2.".to_string()][..]));
    let error = with("blk.2.nextn.eh_proj.weight").unwrap_err();
    assert!(matches!(error, Error::Tensor { tensor, .. } if tensor == "blk.2.nextn.enorm.weight"));
    for name in ["blk.1.nextn.eh_proj.weight", "blk.3.nextn.eh_proj.weight", "blk.20.attn_norm.weight"] {
        assert!(matches!(with(name).unwrap_err(), Error::Tensor { tensor, .. } if tensor == name));
    }
    refused_without_the_key();
}

/// A file with only the head says so.
#[test]
fn heads_without_their_model_are_refused() {
    let keys = [("block_count", u32(3)), ("nextn_predict_layers", u32(1))];
    let mut head = zeros(file(&keys), "blk.2.nextn.eh_proj.weight", &[16, 8]);
    head.tensors.retain(|tensor| !tensor.name.starts_with("blk.0.") && !tensor.name.starts_with("blk.1."));
    let error = load(&head).unwrap_err().to_string();
    assert!(error.contains("blk.0.attn_norm.weight") && error.contains("only the head"), "{error}");
}

fn refused_without_the_key() {
    let error = load(&zeros(file(&[]), "blk.2.nextn.eh_proj.weight", &[8])).unwrap_err();
    assert!(error.to_string().contains("blk.2.nextn.eh_proj.weight"), "{error}");
}

#[test]
fn recurrent_layers_have_states_of_fixed_size() {
    let graph = load(&file(&[])).unwrap().graph;
    assert_eq!(graph.states(), [LayerState { rows: 2, width: 64 }, LayerState { rows: 32, width: 16 }]);
    assert_eq!(graph.nodes().iter().filter(|node| matches!(node.op, Op::Attention(_))).count(), 1);
    let layout = CacheLayout::new(&graph, CacheType::F32).unwrap();
    assert_eq!((layout.state_offsets.as_slice(), layout.state_bytes), ([0, 512].as_slice(), 512 + 2048));
    // Keys and values of one layer, padded to 16 elements.
    assert_eq!(layout.bytes_per_token(), 2 * 2 * 16 * 4);
}

/// Drafted tokens are removed without computing the tokens before them again.
#[test]
fn a_sequence_returns_to_any_token_of_a_short_draft() {
    let gguf = Gguf::open(RECURRENT.path()).unwrap();
    let graph = Model::from_gguf(&gguf, &Weights::from_gguf(&gguf)).unwrap().graph;
    let mut cache = KvCache::new(&CacheLayout::new(&graph, CacheType::F32).unwrap(), 1000);
    let id = cache.open();
    let extended = |cache: &mut KvCache, count, stage: fn(usize) -> Stage| {
        let start = cache.extend(id, count).unwrap();
        let update = cache.advance(id, start + count, stage(start)).unwrap().unwrap();
        cache.take_copies();
        (start, update)
    };
    extended(&mut cache, 8, |_| Stage::Within);
    for drafted in 1..=RUN_CHECKPOINTS {
        for accepted in 0..=drafted {
            let (start, update) = extended(&mut cache, 1 + drafted, |start| Stage::Tentative { kept: start + 1 });
            assert_eq!((update.from, update.checkpoints.len()), (Some(update.to), drafted));
            let len = start + 1 + accepted;
            assert_eq!(cache.truncate(id, len).unwrap(), len, "{accepted} of {drafted}");
        }
    }
    // Of a long draft, the nearest state before.
    for (accepted, reached) in [(0, 0), (4, 0), (5, 5), (9, 5), (14, 10), (15, 15)] {
        let (start, _) = extended(&mut cache, 16, |start| Stage::Tentative { kept: start + 1 });
        assert_eq!(cache.truncate(id, start + 1 + accepted).unwrap(), start + 1 + reached, "{accepted}");
    }
    // The first of several steps may end before the tokens that may be removed.
    let (_, update) = extended(&mut cache, 4, |start| Stage::Tentative { kept: start + 9 });
    assert!(update.checkpoints.is_empty());
    // If the first token may be removed, too, its state is not written over the one before.
    let (start, update) = extended(&mut cache, 1, |start| Stage::Tentative { kept: start });
    assert_ne!(update.from, Some(update.to));
    assert_eq!(cache.truncate(id, start).unwrap(), start);
}

/// Checkpoints make room for the states within a draft, and come back without drafts.
#[test]
fn drafts_take_one_state_more() {
    let gguf = Gguf::open(RECURRENT.path()).unwrap();
    let graph = Model::from_gguf(&gguf, &Weights::from_gguf(&gguf)).unwrap().graph;
    let mut cache = KvCache::new(&CacheLayout::new(&graph, CacheType::F32).unwrap(), 20_000);
    let id = cache.open();
    let mut states = std::collections::HashSet::new();
    let mut advance = |count: usize, stage: fn(usize) -> Stage| {
        let start = cache.extend(id, count).unwrap();
        let update = cache.advance(id, start + count, stage(start)).unwrap().unwrap();
        cache.take_copies();
        states.extend(update.ids());
        (cache.checkpoints(id).unwrap().count(), states.len())
    };
    let without = (0..40).map(|_| advance(300, |_| Stage::Within)).last().unwrap();
    assert_eq!(without, (CHECKPOINTS, 1 + CHECKPOINTS));
    let with = (0..400).map(|_| advance(4, |start| Stage::Tentative { kept: start + 1 })).last().unwrap();
    assert_eq!(with.1, SEQUENCE_STATES);
    assert!(with.0 + 2 >= SEQUENCE_STATES - RUN_CHECKPOINTS, "{with:?}");
}

#[test]
fn memory_plans_count_states() {
    let plan = on_cpu().plan(RECURRENT.path()).unwrap();
    let layers = [[3 * 128, 4 * 16 * 16]; 2];
    let state: usize = layers.iter().flatten().map(|floats| 4 * floats).sum();
    let states = SEQUENCE_STATES;
    assert_eq!(plan.states, (state * states) as u64);
    assert_eq!(plan.total(), plan.weights + plan.scratch + plan.cache() + plan.states);
    assert!(plan.to_string().contains("recurrent states"), "{plan}");
    let limit = plan.total();
    let mut runner = on_cpu().memory_limit(limit).from_gguf(RECURRENT.path()).unwrap();
    assert!(matches!(on_cpu().memory_limit(limit - 1).from_gguf(RECURRENT.path()), Err(Error::Memory { .. })));
    // More sequences than there are states do not fit in a step; one after the other does.
    let decoder = runner.decoder_mut();
    let ids: Vec<_> = (0..2 * states).map(|_| decoder.open()).collect();
    let runs: Vec<_> = ids.iter().map(|id| (*id, &[1, 2][..], inkstone::LogitsFor::Last)).collect();
    let error = decoder.step(&runs).unwrap_err();
    assert!(matches!(error, Error::Memory { what: "the recurrent states of all sequences", .. }), "{error}");
    let first = decoder.step(&runs[..1]).unwrap().to_vec();
    for run in &runs[1..] {
        assert!(decoder.step(std::slice::from_ref(run)).unwrap() == first);
    }
    assert!(decoder.statistics().evictions > 0);
}

/// After truncation, and in a fork, the logits are the same as in a new sequence.
#[test]
fn truncated_and_forked_sequences_have_the_logits_of_new_ones() {
    let expected = RECURRENT.expected();
    let builder = on_cpu().cache_type(CacheType::F32).prefill_chunk(24);
    let mut runner = builder.from_gguf(RECURRENT.path()).unwrap();
    let mut fresh = builder.from_gguf(RECURRENT.path()).unwrap();
    runner.prefill(&expected.prompt).unwrap();
    for id in &expected.greedy {
        runner.decode(*id).unwrap();
    }
    for len in [100, 69, 60, 54, 30, 3, 0] {
        runner.truncate(len).unwrap();
        let kept = runner.tokens().to_vec();
        let sequence = runner.sequence();
        let twin = runner.decoder_mut().fork(sequence).unwrap();
        for other in [[7, 8], [9, 10]] {
            let all = [kept.as_slice(), &other].concat();
            let reference = fresh.predict_logits(&all).unwrap();
            runner.truncate(len).unwrap();
            assert!(nmse(runner.prefill(&other).unwrap(), &reference) < 1e-10, "back to {len}");
        }
        let wanted = inkstone::LogitsFor::Last;
        let reference = fresh.predict_logits(&[kept.as_slice(), &[11]].concat()).unwrap();
        let logits = runner.decoder_mut().step(&[(twin, &[11], wanted)]).unwrap();
        assert!(nmse(logits, &reference) < 1e-10, "a fork at {len}");
        runner.decoder_mut().close(twin).unwrap();
        runner.truncate(len).unwrap();
    }
}

/// Invalid states are refused before any computation.
#[test]
fn steps_with_invalid_states_are_refused() {
    use inkstone::{
        gguf::Gguf,
        internals::{
            backend::{Backend, Run, Step, cpu::Cpu},
            kv_cache::{KvCache, Stage, StateUpdate},
            models::Model,
            weights::Weights,
        },
    };
    let folder = Folder::new();
    let gguf = Gguf::open(folder.write("model.gguf", file(&[]).bytes())).unwrap();
    let weights = Weights::from_gguf(&gguf);
    let graph = Model::from_gguf(&gguf, &weights).unwrap().graph;
    let layout = CacheLayout::new(&graph, CacheType::F32).unwrap();
    let mut executable = Cpu::new(Some(1)).unwrap().compile(&graph, &weights, &layout, 8, 8).unwrap();
    let mut cache = KvCache::new(&layout, 64);
    let [a, b] = [(); 2].map(|()| cache.open());
    let mut advance = |id, to, stage| {
        let start = cache.extend(id, 3).unwrap();
        assert_eq!(start + 3, to);
        cache.advance(id, to, stage).unwrap().unwrap()
    };
    let first = advance(a, 3, Stage::Within);
    let second = advance(b, 3, Stage::Within);
    let pages = [a, b].map(|id| cache.pages(id).unwrap());
    let mut run = |states: [Option<&StateUpdate>; 2]| {
        let runs = [0, 1].map(|n| Run { len: 3, start: 0, pages: pages[n], state: states[n], ..Default::default() });
        executable
            .run(&Step { tokens: &[0; 6], runs: &runs, outputs: &[], copies: &[], ..Default::default() })
            .map(|_| ())
    };
    let late = StateUpdate { checkpoints: vec![(3, second.to)], ..first.clone() };
    let onto = StateUpdate { checkpoints: vec![(2, second.to)], ..first.clone() };
    let from = StateUpdate { from: Some(first.to), ..second.clone() };
    let cases = [
        ([None, Some(&second)], "has a run with no state, and the graph has a recurrent op"),
        ([Some(&first), Some(&first)], "has runs that write one state twice"),
        ([Some(&onto), Some(&second)], "has runs that write one state twice"),
        ([Some(&late), Some(&second)], "has a run with checkpoints that are not a few ascending positions within it"),
        ([Some(&first), Some(&from)], "has a run that reads a state which is a checkpoint or another run's"),
    ];
    for (states, expected) in cases {
        assert_eq!(run(states).unwrap_err().to_string(), format!("step: {expected}"));
    }
    run([Some(&first), Some(&second)]).unwrap();
}
