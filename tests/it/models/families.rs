//! Tests the logits of every family against llama.cpp and transformers, and the errors for bad
//! files.

use inkstone::{
    CacheType, Config, DType, Error,
    gguf::Gguf,
    internals::{
        graph::{Op, Source},
        models::{FAMILIES, Model, RopeScaling},
        weights::Weights,
    },
};

use crate::support::{
    gguf_file::{Folder, GgufFile},
    interpret::{self, Interpreter, Run, Step},
    on_cpu,
    tiny::{EXACT, MODELS, Tiny, nmse},
};

pub fn open(tiny: Tiny) -> (Gguf, Weights, Model) {
    let gguf = Gguf::open(tiny.path()).unwrap();
    let weights = Weights::from_gguf(&gguf);
    // The context length that llama.cpp's logits were computed with.
    let model = Model::for_positions(&gguf, &weights, 8192, None).unwrap();
    (gguf, weights, model)
}

/// Returns a file's weights as f32, read without the crate's decoders.
pub fn dense(gguf: &Gguf) -> interpret::Weights {
    let decode = |dtype, bytes: &[u8]| match dtype {
        DType::F32 => bytes.chunks(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect(),
        DType::F16 => bytes.chunks(2).map(|b| half::f16::from_le_bytes(b.try_into().unwrap()).to_f32()).collect(),
        // A shared exponent, then numbers of 4 bits
        // ([Rouhani et al. 2023](https://arxiv.org/abs/2310.10537)).
        DType::MXFP4 => bytes
            .chunks(17)
            .flat_map(|block| {
                let number = move |code: u8| {
                    let size = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0][usize::from(code & 7)];
                    let sign = if code & 8 == 0 { 1.0 } else { -1.0 };
                    sign * size * 2f32.powi(i32::from(block[0]) - 127)
                };
                let codes = block[1..].iter().map(|byte| byte & 15).chain(block[1..].iter().map(|byte| byte >> 4));
                codes.map(number)
            })
            .collect(),
        // Numbers of 2 bits around 0, and their scale.
        DType::TQ2_0 => bytes
            .chunks(66)
            .flat_map(|block| {
                let scale = half::f16::from_le_bytes([block[64], block[65]]).to_f32();
                let number = move |i: usize| f32::from(block[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3) - 1.0;
                (0..256).map(move |i| scale * number(i))
            })
            .collect(),
        other => panic!("{other}"),
    };
    let tensors = gguf.tensors().iter();
    tensors.map(|t| (t.name.clone(), decode(t.dtype.dtype().unwrap(), &gguf.bytes(t)))).collect()
}

#[test]
fn logits_are_llama_cpps_and_transformers() {
    let mut failures = vec![];
    for tiny in MODELS {
        let (gguf, _, model) = open(tiny);
        let weights = dense(&gguf);
        let expected = tiny.expected();
        let tokens = [expected.prompt, expected.greedy].concat();
        let step = Step {
            runs: vec![Run::new(0, 0, tokens.len())],
            outputs: vec![69, tokens.len() - 1],
            tokens,
            ..Step::default()
        };
        let logits = Interpreter::new(&weights).run(&model.graph, &step);
        for (number, reference) in [expected.prompt_logits, expected.end_logits].iter().enumerate() {
            let row: Vec<_> = logits.row(number).iter().map(|&x| x as f32).collect();
            let error = nmse(&row, reference);
            let exact = expected.transformers.as_ref().map_or(0.0, |rows| nmse(&row, &rows[number]));
            if error > tiny.1 || exact > EXACT {
                failures.push(format!("{}: {error:.1e} from llama.cpp, {exact:.1e} from transformers", tiny.0));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn configs_have_the_files_sizes_and_constants() {
    let [qwen3, yarn, llama, biased, ..] = MODELS.map(|tiny| open(tiny).2.config);
    assert_eq!((qwen3.architecture.as_str(), qwen3.name.as_deref()), ("qwen3", Some("tiny qwen3")));
    let sizes = |c: &Config| {
        let layer = &c.layers[0];
        let [heads, kv_heads, head_dim, ffn] = [layer.heads, layer.kv_heads, layer.head_dim, layer.ffn];
        [c.layers.len(), c.hidden, heads, kv_heads, head_dim, ffn, c.vocab_size, c.context_length]
    };
    let rope = |c: &Config| c.layers[1].rope.unwrap();
    assert_eq!(sizes(&qwen3), [2, 64, 3, 1, 32, 96, 320, 512]);
    assert_eq!(sizes(&llama), [2, 96, 6, 2, 16, 128, 320, 512]);
    assert_eq!((qwen3.rms_eps, rope(&qwen3).base, rope(&qwen3).dim), (1e-6, 1e6, 32));
    assert_eq!((llama.rms_eps, rope(&llama).scaling), (1e-5, RopeScaling::None));
    assert_eq!(
        rope(&yarn).scaling,
        RopeScaling::Yarn { factor: 4.0, original_context: 128, betas: [32.0, 1.0], log_multiplier: 0.0 }
    );
    assert_eq!(rope(&biased).scaling, RopeScaling::Linear { factor: 4.0 });
}

/// The value of a key as a file stores it: the number of its type, and its bytes.
pub type Stored = (u32, Vec<u8>);

/// Returns a model of one layer with zero weights and some keys changed; `None` removes a key.
pub fn file(architecture: &str, changes: &[(&str, Option<Stored>)]) -> GgufFile {
    let (u32_type, f32_type) = (4, 6);
    let u32 = |n: u32| (u32_type, n.to_le_bytes().to_vec());
    let mut keys = vec![
        ("block_count", u32(1)),
        ("context_length", u32(64)),
        ("embedding_length", u32(8)),
        ("feed_forward_length", u32(12)),
        ("attention.head_count", u32(4)),
        ("attention.head_count_kv", u32(2)),
        ("attention.key_length", u32(6)),
        ("attention.layer_norm_rms_epsilon", (f32_type, 1e-5f32.to_le_bytes().to_vec())),
    ];
    keys.retain(|(key, _)| changes.iter().all(|(changed, _)| changed != key));
    keys.extend(changes.iter().filter_map(|(key, value)| Some((*key, value.clone()?))));
    let mut file = GgufFile::new().string("general.architecture", architecture);
    for (key, (number, value)) in keys {
        file = file.key(&format!("{architecture}.{key}"), number, value);
    }
    let norms: &[(&str, u64)] = match architecture {
        "qwen3" | "qwen3moe" => &[("attn_q_norm", 6), ("attn_k_norm", 6)],
        "gemma3" => &[("attn_q_norm", 6), ("attn_k_norm", 6), ("post_attention_norm", 8), ("post_ffw_norm", 8)],
        _ => &[],
    };
    for (name, n) in norms {
        file = zeros(file, &format!("blk.0.{name}.weight"), &[*n]);
    }
    let matrices: [(&str, &[u64]); 12] = [
        ("token_embd", &[8, 5]),
        ("output_norm", &[8]),
        ("blk.0.attn_norm", &[8]),
        ("blk.0.attn_q", &[8, 24]),
        ("blk.0.attn_k", &[8, 12]),
        ("blk.0.attn_v", &[8, 12]),
        ("blk.0.attn_output", &[24, 8]),
        ("blk.0.ffn_norm", &[8]),
        ("blk.0.ffn_gate", &[8, 12]),
        ("blk.0.ffn_up", &[8, 12]),
        ("blk.0.ffn_down", &[12, 8]),
        ("output", &[8, 5]),
    ];
    matrices.iter().fold(file, |file, (name, dimensions)| zeros(file, &format!("{name}.weight"), dimensions))
}

pub fn zeros(file: GgufFile, name: &str, dimensions: &[u64]) -> GgufFile {
    let bytes = 4 * dimensions.iter().product::<u64>() as usize;
    file.tensor(name, dimensions, 0, vec![0; bytes])
}

pub fn load(file: &GgufFile) -> Result<Model, Error> {
    let folder = Folder::new();
    let gguf = Gguf::open(folder.write("model.gguf", file.bytes())).unwrap();
    Model::from_gguf(&gguf, &Weights::from_gguf(&gguf))
}

pub fn u32(n: u32) -> Option<Stored> {
    Some((4, n.to_le_bytes().to_vec()))
}

fn u32s(numbers: &[u32]) -> Option<Stored> {
    let elements: Vec<_> = numbers.iter().map(|n| n.to_le_bytes().to_vec()).collect();
    Some((9, crate::support::gguf_file::array(4, &elements)))
}

pub fn f32(x: f32) -> Option<Stored> {
    Some((6, x.to_le_bytes().to_vec()))
}

pub fn text(text: &str) -> Option<Stored> {
    Some((8, crate::support::gguf_file::string(text)))
}

#[test]
fn keys_out_of_range_are_named() {
    let cases: Vec<(&str, Option<Stored>)> = vec![
        ("block_count", None),
        ("block_count", u32(0)),
        ("block_count", u32(u32::MAX)),
        ("block_count", f32(1.0)),
        ("context_length", None),
        ("context_length", u32(0)),
        ("embedding_length", u32(1 << 30)),
        ("feed_forward_length", None),
        ("feed_forward_length", u32s(&[12, 12])),
        ("feed_forward_length", u32s(&[0])),
        ("feed_forward_length", u32s(&[])),
        ("attention.head_count", u32(0)),
        ("attention.head_count_kv", u32(3)),
        ("attention.head_count_kv", u32(0)),
        ("attention.key_length", u32(7)),
        ("attention.value_length", u32(8)),
        ("attention.layer_norm_rms_epsilon", None),
        ("attention.layer_norm_rms_epsilon", f32(f32::NAN)),
        ("attention.layer_norm_rms_epsilon", f32(-1e-5)),
        ("attention.causal", Some((7, vec![0]))),
        ("attention.sliding_window", u32(4)),
        ("rope.freq_base", f32(0.0)),
        ("rope.freq_base", f32(f32::INFINITY)),
        ("rope.dimension_count", u32(8)),
        ("rope.dimension_count", u32(3)),
        ("rope.scaling.type", text("longrope")),
        ("rope.scaling.type", u32(1)),
        ("rope.scaling.factor", f32(-2.0)),
        ("rope.scaling.attn_factor", f32(-1.0)),
        ("rope.scaling.attn_factor", u32(1)),
    ];
    for architecture in ["qwen3", "llama"] {
        for (key, value) in &cases {
            let error = load(&file(architecture, &[(key, value.clone())])).unwrap_err();
            let named =
                matches!(&error, Error::Metadata { key: named, .. } if *named == format!("{architecture}.{key}"));
            assert!(named, "{key} {value:?}: {error:?}");
        }
    }
    let yarn =
        [("rope.scaling.type", text("yarn")), ("rope.scaling.factor", f32(2.0)), ("rope.dimension_count", u32(4))];
    load(&file("llama", &yarn)).unwrap();
    let yarn = [("rope.scaling.type", text("yarn")), ("rope.scaling.factor", f32(2.0))];
    load(&file("llama", &yarn)).unwrap();
    for (key, built) in [("beta_fast", 32.0), ("beta_slow", 1.0), ("ext_factor", 1.0), ("attn_factor", 1.0)] {
        let key = format!("rope.scaling.yarn_{key}");
        let with = |x: f32| load(&file("llama", &[&yarn[..], &[(key.as_str(), f32(x))]].concat()));
        with(built).unwrap();
        assert!(with(built + 0.5).unwrap_err().to_string().contains(&format!("`llama.{key}`")));
    }
}

#[test]
fn windows_caps_and_scales_out_of_range_are_named() {
    let pattern = Some((9, crate::support::gguf_file::array(7, &[vec![1], vec![0]])));
    let cases: Vec<(&str, &str, Option<Stored>)> = vec![
        ("gemma2", "attention.sliding_window", u32(0)),
        ("gemma2", "attention.sliding_window", f32(32.0)),
        ("gemma2", "attention.sliding_window_pattern", u32(0)),
        ("gemma2", "attention.sliding_window_pattern", pattern),
        ("gemma2", "attention.sliding_window_pattern", u32s(&[1])),
        ("gemma2", "attn_logit_softcapping", f32(-1.0)),
        ("gemma2", "final_logit_softcapping", f32(f32::NAN)),
        ("gemma3", "attention.sliding_window", u32(0)),
        ("gemma3", "rope.freq_base_swa", f32(0.0)),
        ("gemma3", "attn_logit_softcapping", f32(50.0)),
        ("gemma4", "attention.sliding_window", None),
        ("gemma4", "attention.sliding_window_pattern", None),
        ("gemma4", "attention.key_length_swa", u32(7)),
        ("gemma4", "attention.value_length_swa", u32(8)),
        ("gemma4", "rope.dimension_count_swa", u32(8)),
        ("gemma4", "attention.shared_kv_layers", u32(1)),
        ("gemma4", "embedding_length_per_layer_input", u32(1 << 30)),
        ("granite", "logit_scale", None),
        ("granite", "logit_scale", f32(0.0)),
        ("granite", "residual_scale", f32(-0.5)),
        ("granite", "attention.scale", f32(f32::INFINITY)),
        ("granite", "rope.scaling.finetuned", u32(1)),
        ("llama", "embedding_scale", f32(2.0)),
        ("qwen3", "expert_count", u32(8)),
        ("llama", "final_logit_softcapping", f32(30.0)),
    ];
    for (architecture, key, value) in cases {
        // Keys that the family requires.
        let mut changes = match architecture {
            "gemma3" => vec![("attention.sliding_window", u32(4))],
            "gemma4" => vec![
                ("attention.sliding_window", u32(4)),
                ("attention.sliding_window_pattern", Some((9, crate::support::gguf_file::array(7, &[vec![1]])))),
                ("attention.key_length_swa", u32(6)),
            ],
            "granite" => vec![("logit_scale", f32(2.0))],
            _ => vec![],
        };
        changes.retain(|(required, _)| *required != key);
        changes.push((key, value.clone()));
        let error = load(&file(architecture, &changes)).unwrap_err();
        let named = matches!(&error, Error::Metadata { key: named, .. } if *named == format!("{architecture}.{key}"));
        assert!(named, "{key} {value:?}: {error:?}");
    }
}

#[test]
fn absent_keys_have_the_defaults_of_gguf() {
    // The default of the key length is the width over the heads, which the matrices here do not
    // have.
    let error = load(&file("llama", &[("attention.key_length", None)])).unwrap_err();
    assert!(error.to_string().contains("blk.0.attn_q.weight"), "{error}");
    let error = load(&file("llama", &[("attention.head_count_kv", None)])).unwrap_err();
    assert!(error.to_string().contains("blk.0.attn_k.weight"), "{error}");
    let config = load(&file("llama", &[])).unwrap().config;
    let rope = config.layers[0].rope.unwrap();
    assert_eq!((rope.base, rope.dim, rope.scaling), (10_000.0, 6, RopeScaling::None));
    let same = [("attention.head_count_kv", u32s(&[2])), ("feed_forward_length", u32s(&[12]))];
    assert_eq!(load(&file("llama", &same)).unwrap().config, config);
}

#[test]
fn part_of_a_head_may_be_rotated() {
    let changes = [("rope.dimension_count", u32(4)), ("rope.freq_base", f32(100.0)), ("rope.scaling.factor", f32(2.0))];
    let graph = load(&file("llama", &changes)).unwrap().graph;
    let rope = graph.nodes().iter().find(|node| matches!(node.op, Op::Rope(_))).unwrap();
    let Source::Constant(frequencies) = &graph.value(rope.inputs[1]).source else { panic!() };
    // 100^(-2i/4), divided by the factor: scaling without a type is linear.
    assert_eq!(frequencies[..], [0.5, 0.05]);
}

/// The file's factor applies to queries and to keys, so the scores have its square.
#[test]
fn scores_are_scaled_by_the_square_of_the_attention_factor() {
    let scale = |changes: &[(&str, Option<Stored>)]| {
        let graph = load(&file("llama", changes)).unwrap().graph;
        let mut ops = graph.nodes().iter().map(|node| &node.op);
        ops.find_map(|op| if let Op::Attention(spec) = op { Some(spec.scores.scale) } else { None }).unwrap()
    };
    let plain = scale(&[]);
    let close = |found: f32, wanted: f64| assert!((f64::from(found / plain) - wanted).abs() < 1e-6, "{found}");
    close(scale(&[("rope.scaling.attn_factor", f32(1.5))]), 2.25);
    let yarn = [("rope.scaling.type", text("yarn")), ("rope.scaling.factor", f32(4.0))];
    close(scale(&yarn), (1.0 + 0.1 * 4_f64.ln()).powi(2));
    let both = [&yarn[..], &[("rope.scaling.attn_factor", f32(0.5))]].concat();
    close(scale(&both), (0.5 + 0.05 * 4_f64.ln()).powi(2));
}

#[test]
fn longrope_factors_depend_on_the_context_length() {
    const LONG: &str = "rope_factors_long";
    const SHORT: &str = "rope_factors_short";
    let tiny = MODELS.into_iter().find(|tiny| tiny.0 == "phi3_long").unwrap();
    let (gguf, weights, model) = open(tiny);
    assert!(model.graph.to_string().contains(LONG));
    for (positions, used, unused) in [(64, SHORT, LONG), (65, LONG, SHORT), (1 << 20, LONG, SHORT)] {
        let text = Model::for_positions(&gguf, &weights, positions, None).unwrap().graph.to_string();
        assert!(text.contains(used) && !text.contains(unused), "{positions}: {text}");
    }
    let logits = |context: usize| {
        let builder = on_cpu().cache_type(CacheType::F32).context_length(context);
        let mut runner = builder.from_gguf(tiny.path()).unwrap();
        runner.predict_logits(&tiny.expected().prompt[..60]).unwrap()
    };
    assert_eq!(logits(65), logits(512));
    assert!(nmse(&logits(64), &logits(65)) > 1e-3);
    // Both sets of factors are required.
    for [present, missing] in [[LONG, SHORT], [SHORT, LONG]] {
        let changes = [("rope.scaling.original_context_length", u32(8))];
        let changes = if missing == LONG { &changes[..] } else { &[] };
        let file = zeros(file("phi3", changes), &format!("{present}.weight"), &[3]);
        let error = load(&file).unwrap_err();
        let named = format!("{missing}.weight");
        assert!(matches!(&error, Error::Tensor { tensor, .. } if *tensor == named), "{error}");
    }
}

#[test]
fn missing_misshapen_and_unused_tensors_are_named() {
    let valid = || file("qwen3", &[]);
    load(&valid()).unwrap();
    let refused = |file: GgufFile, name: &str| {
        let error = load(&file).unwrap_err();
        assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == name), "{name}: {error:?}");
    };
    for index in 0..valid().tensors.len() {
        let mut missing = valid();
        let name = missing.tensors.remove(index).name;
        if name == "output.weight" {
            load(&missing).unwrap();
        } else {
            refused(missing, &name);
        }
        let mut wider = valid();
        let tensor = &mut wider.tensors[index];
        tensor.dimensions[0] *= 2;
        tensor.data = vec![0; 2 * tensor.data.len()];
        refused(wider, &name);
    }
    refused(zeros(valid(), "blk.0.attn_gate.weight", &[8]), "blk.0.attn_gate.weight");
    refused(zeros(valid(), "rope_freqs.weight", &[3]), "rope_freqs.weight");
    refused(zeros(valid(), "blk.0.attn_q.bias", &[8]), "blk.0.attn_q.bias");
    // A format without kernels: Q8_K, with blocks of 256 elements.
    let mut packed = file("llama", &[("embedding_length", u32(256))]);
    packed.tensors[0] = GgufFile::new().tensor("token_embd.weight", &[256, 5], 15, vec![0; 1460]).tensors.remove(0);
    refused(packed, "token_embd.weight");
}

/// Returns a model like [`file`] with four experts of six elements and a top-k of 2.
pub fn mixture(architecture: &str, changes: &[(&str, Option<Stored>)]) -> GgufFile {
    let keys = [("expert_count", u32(4)), ("expert_used_count", u32(2)), ("expert_feed_forward_length", u32(6))];
    let mut keys: Vec<_> =
        keys.into_iter().filter(|(key, _)| changes.iter().all(|(changed, _)| changed != key)).collect();
    keys.extend_from_slice(changes);
    let mut file = file(architecture, &keys);
    file.tensors.retain(|tensor| !tensor.name.starts_with("blk.0.ffn_") || tensor.name == "blk.0.ffn_norm.weight");
    let tensors: [(&str, &[u64]); 4] =
        [("gate_inp", &[8, 4]), ("gate_exps", &[8, 6, 4]), ("up_exps", &[8, 6, 4]), ("down_exps", &[6, 8, 4])];
    tensors.iter().fold(file, |file, (name, dimensions)| zeros(file, &format!("blk.0.ffn_{name}.weight"), dimensions))
}

#[test]
fn expert_keys_out_of_range_are_named() {
    let cases: Vec<(&str, Option<Stored>)> = vec![
        ("expert_count", u32(1 << 20)),
        ("expert_used_count", None),
        ("expert_used_count", u32(0)),
        ("expert_used_count", u32(5)),
        ("expert_feed_forward_length", u32(0)),
        ("expert_feed_forward_length", u32(1 << 30)),
        ("expert_gating_func", u32(2)),
        ("expert_group_count", u32(2)),
        ("expert_weights_norm", Some((7, vec![0]))),
        ("expert_weights_scale", f32(2.5)),
    ];
    let refused = |architecture: &str, key: &str, value: &Option<Stored>| {
        let error = load(&mixture(architecture, &[(key, value.clone())])).unwrap_err();
        let named = matches!(&error, Error::Metadata { key: named, .. } if *named == format!("{architecture}.{key}"));
        assert!(named, "{key} {value:?}: {error:?}");
    };
    for architecture in ["qwen3moe", "llama"] {
        cases.iter().for_each(|(key, value)| refused(architecture, key, value));
        let plain = [("expert_gating_func", u32(1)), ("expert_weights_scale", f32(0.0)), ("feed_forward_length", None)];
        load(&mixture(architecture, &plain)).unwrap();
    }
    [None, u32(0)].iter().for_each(|value| refused("qwen3moe", "expert_count", value));
}

#[test]
fn settings_of_routers_out_of_range_are_named() {
    let flag = |flag: u8| Some((7, vec![flag]));
    let groups = ("expert_group_count", u32(2));
    type Changes = Vec<(&'static str, Option<Stored>)>;
    let cases: [(&str, &str, Changes); 9] = [
        ("glm4moe", "expert_gating_func", vec![("expert_gating_func", u32(7))]),
        ("glm4moe", "expert_group_count", vec![("expert_group_count", u32(3))]),
        ("glm4moe", "expert_group_count", vec![("expert_group_count", u32(4))]),
        ("glm4moe", "expert_group_used_count", vec![groups.clone()]),
        ("glm4moe", "expert_group_used_count", vec![groups.clone(), ("expert_group_used_count", u32(3))]),
        ("glm4moe", "leading_dense_block_count", vec![("leading_dense_block_count", u32(2))]),
        ("qwen2moe", "expert_weights_norm", vec![("expert_weights_norm", flag(1))]),
        ("qwen2moe", "expert_group_count", vec![groups]),
        ("gpt-oss", "attention.sliding_window", vec![]),
    ];
    for (architecture, key, changes) in cases {
        let error = load(&mixture(architecture, &changes)).unwrap_err();
        let named = matches!(&error, Error::Metadata { key: named, .. } if *named == format!("{architecture}.{key}"));
        assert!(named, "{key} {changes:?}: {error:?}");
    }
}

#[test]
fn width_of_experts_has_a_default() {
    let absent = [("expert_feed_forward_length", None)];
    // The width of two experts together is 12.
    load(&mixture("qwen3moe", &absent)).unwrap();
    let error = load(&mixture("llama", &absent)).unwrap_err();
    assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == "blk.0.ffn_gate_exps.weight"), "{error:?}");
    load(&mixture("llama", &[("expert_feed_forward_length", None), ("feed_forward_length", u32(6))])).unwrap();
    let thin = [("expert_feed_forward_length", None), ("feed_forward_length", u32(1))];
    let error = load(&mixture("qwen3moe", &thin)).unwrap_err();
    assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == "blk.0.ffn_gate_exps.weight"), "{error:?}");
}

#[test]
fn missing_and_misshapen_tensors_of_experts_are_named() {
    let valid = || mixture("qwen3moe", &[]);
    let parts = ["gate_inp", "gate_exps", "up_exps", "down_exps"].map(|part| format!("blk.0.ffn_{part}.weight"));
    let refused = |file: &GgufFile, name: &str| {
        let error = load(file).unwrap_err();
        assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == name), "{name}: {error:?}");
    };
    for name in &parts {
        let change = |f: &dyn Fn(&mut GgufFile, usize)| {
            let mut file = valid();
            let index = file.tensors.iter().position(|tensor| tensor.name == *name).unwrap();
            f(&mut file, index);
            refused(&file, name);
        };
        change(&|file, index| drop(file.tensors.remove(index)));
        change(&|file, index| {
            let tensor = &mut file.tensors[index];
            tensor.dimensions[1] += 1;
            tensor.data = vec![0; 4 * tensor.dimensions.iter().product::<u64>() as usize];
        });
        // The same number of elements in another shape.
        change(&|file, index| {
            let dimensions = &mut file.tensors[index].dimensions;
            let last = dimensions.len() - 1;
            dimensions[last] /= 2;
            dimensions[last - 1] *= 2;
        });
    }
    let mut joined = valid();
    joined.tensors.retain(|tensor| !parts[1..3].contains(&tensor.name));
    load(&zeros(joined.clone(), "blk.0.ffn_gate_up_exps.weight", &[8, 12, 4])).unwrap();
    refused(&zeros(joined, "blk.0.ffn_gate_up_exps.weight", &[8, 6, 4]), "blk.0.ffn_gate_up_exps.weight");
    // Gate and up are there both joined and apart.
    refused(&zeros(valid(), "blk.0.ffn_gate_up_exps.weight", &[8, 12, 4]), &parts[1]);
}

#[test]
fn biases_are_added_if_the_file_has_them() {
    let plain = load(&file("llama", &[])).unwrap().graph.nodes().len();
    let names = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let widths = [24, 12, 12, 8, 12, 12, 8];
    let biased = names
        .iter()
        .zip(widths)
        .fold(file("llama", &[]), |file, (name, width)| zeros(file, &format!("blk.0.{name}.bias"), &[width]));
    assert_eq!(load(&biased).unwrap().graph.nodes().len(), plain + names.len());
}

#[test]
fn unsupported_architectures_are_refused_by_name() {
    let families: Vec<_> = FAMILIES.iter().map(|family| family.architecture).collect();
    let refused = |architecture: &str| match load(&file(architecture, &[])).unwrap_err() {
        Error::Architecture { name, known, supported } => {
            assert_eq!((name.as_str(), supported.as_str()), (architecture, families.join(", ").as_str()));
            known
        }
        other => panic!("{other:?}"),
    };
    assert!(["rwkv7", "mamba", "t5", "bert"].into_iter().all(refused));
    assert!(!["", "Llama", "qwen9"].into_iter().any(refused));
    assert!(
        matches!(load(&GgufFile::new()).unwrap_err(), Error::Metadata { key, .. } if key == "general.architecture")
    );
}
