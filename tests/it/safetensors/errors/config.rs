//! Tests errors about settings of config.json that are out of range, of another type, or not
//! supported: the message names the setting.

use serde_json::{Value, json};

use super::{CONFIG, message_in, message_of, open, setting, tiny};
use crate::support::gguf_file::Folder;

#[test]
fn unknown_model_types_are_refused() {
    assert_eq!(setting("qwen3", "model_type", None), "config.json: `model_type` is missing");
    assert_eq!(setting("qwen3", "model_type", json!(7)), "config.json: `model_type` is `7`, but a name is expected");
    let message = setting("qwen3", "model_type", json!("mamba"));
    assert!(message.starts_with("architecture `mamba` is not supported yet; supported: arcee, "), "{message}");
    assert!(setting("qwen3", "model_type", json!("olmo")).contains("not supported yet"));
    assert!(setting("qwen3", "model_type", json!("qwen9")).starts_with("architecture `qwen9` is unknown; "));
    // Qwen2 has no norms of queries and keys, and biases that Qwen3 lacks.
    assert!(setting("qwen3", "model_type", json!("qwen2")).contains("model.layers.0.self_attn"));
}

#[test]
fn sizes_and_constants_out_of_range_are_refused() {
    let sizes =
        ["num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "max_position_embeddings"];
    for key in sizes {
        assert_eq!(setting("qwen3", key, None), format!("config.json: `{key}` is missing"));
        for value in [json!(-1), json!(1.5), json!("2"), json!([2]), json!(true), json!(1_u64 << 40)] {
            let message = setting("qwen3", key, value.clone());
            let start = format!("config.json: `{key}` is `");
            assert!(message.starts_with(&start) && message.contains("an integer from 0 to"), "{value}: {message}");
        }
        for value in [0, u32::MAX] {
            let message = setting("qwen3", key, json!(value));
            let start = format!("config.json: `{key}` is {value}, but must be from 1 to ");
            assert!(message.starts_with(&start), "{message}");
        }
    }
    for (key, value) in [
        ("head_dim", json!(7)),
        ("head_dim", json!(1 << 20)),
        ("num_key_value_heads", json!(2)),
        ("rms_norm_eps", json!(-1.0)),
        ("rms_norm_eps", json!(1e300)),
        ("rms_norm_eps", json!("small")),
        ("tie_word_embeddings", json!("yes")),
        ("rope_theta", json!("large")),
    ] {
        let folder = Folder::new();
        // A `rope_theta` within `rope_parameters` would take precedence.
        let plain = tiny("qwen3").with(CONFIG, "rope_parameters", None);
        plain.with(CONFIG, key, value.clone()).write(&folder);
        let message = message_in(&folder);
        assert!(message.starts_with(&format!("config.json: `{key}` is ")), "{key} {value}: {message}");
    }
}

#[test]
fn unsupported_settings_are_refused_by_name() {
    let cases = [
        ("qwen3", "hidden_act", json!("relu")),
        ("qwen3", "use_sliding_window", json!(true)),
        ("qwen3", "layer_types", json!(["full_attention", "sliding_attention"])),
        ("qwen3", "attention_bias", json!(true)),
        ("qwen3", "partial_rotary_factor", json!(0.5)),
        ("qwen3", "quantization_config", json!({ "quant_method": "fp8" })),
        ("llama", "sliding_window", json!(128)),
        ("llama", "mlp_bias", json!(true)),
        ("llama_biased", "attention_bias", json!(false)),
        ("llama_biased", "mlp_bias", json!(null)),
        ("smollm3", "no_rope_layers", json!([1, 1, 1, 1, 1])),
        ("gemma", "hidden_act", json!("silu")),
        ("gemma2", "use_bidirectional_attention", json!(true)),
        ("gemma2", "layer_types", json!("full_attention")),
        ("gemma2", "layer_types", json!(["linear_attention"])),
        ("gemma3", "attn_logit_softcapping", json!(50.0)),
        ("qwen3moe", "norm_topk_prob", json!(false)),
        ("qwen3moe", "norm_topk_prob", json!(null)),
        ("qwen3moe", "decoder_sparse_step", json!(2)),
        ("qwen3moe", "mlp_only_layers", json!([0])),
        ("mixtral", "sliding_window", json!(128)),
        ("qwen35", "layer_types", json!(["full_attention"])),
        ("qwen35", "layer_types", json!(["sliding_attention"])),
        ("gemma4", "use_bidirectional_attention", json!("all")),
        ("gemma4", "layer_types", json!(["full_attention"])),
        ("gemma4", "layer_types", json!(["sliding_attention"].repeat(6))),
        ("gemma4", "per_layer_config", json!([])),
        ("gemma4", "attention_k_eq_v", json!(true)),
        ("gemma4_uneven", "attention_k_eq_v", json!(false)),
    ];
    for (name, key, value) in cases {
        let message = setting(name, key, value);
        let named =
            ["", "rope_parameters."].iter().any(|of| message.starts_with(&format!("config.json: `{of}{key}` ")));
        assert!(named, "{name}: {message}");
    }
    assert!(setting("qwen3", "quantization_config", json!({})).ends_with("use a GGUF file"));
    let relu = "config.json: `hidden_act` is `relu`, but only silu or swish is supported for this architecture";
    assert_eq!(setting("qwen3", "hidden_act", json!("relu")), relu);
    // The list has another length than the number of layers.
    assert!(
        setting("gemma2", "layer_types", json!(["full_attention"]))
            .starts_with("config.json: `layer_types` is not an array")
    );
}

#[test]
fn invalid_per_layer_sizes_are_refused() {
    let cases = [
        ("6", json!({}), "per_layer_config.6"),
        ("01", json!({ "head_dim": 2 }), "per_layer_config.01"),
        ("0", json!(7), "per_layer_config.0"),
        ("0", json!({ "head_dim": -1 }), "per_layer_config.0.head_dim"),
        ("0", json!({ "num_key_value_heads": 0.5 }), "per_layer_config.0.num_key_value_heads"),
        ("0", json!({ "intermediate_size": 64 }), "per_layer_config.0.intermediate_size"),
        ("0", json!({ "head_dim": 32 }), "per_layer_config"),
    ];
    for (layer, value, named) in cases {
        let message = setting("gemma4", "per_layer_config", json!({ layer: value, "3": { "head_dim": 32 } }));
        assert!(message.starts_with(&format!("config.json: `{named}` ")), "{message}");
    }
    for key in ["layer_types", "rope_parameters", "intermediate_size"] {
        assert_eq!(setting("gemma4", key, None), format!("config.json: `{key}` is missing"));
    }
    for key in ["num_experts", "top_k_experts", "moe_intermediate_size"] {
        assert_eq!(setting("gemma4_uneven", key, None), format!("config.json: `{key}` is missing"));
    }
    for value in [0.0, -1.0, 1.5] {
        let message = setting("qwen35", "rope_parameters", json!({ "partial_rotary_factor": value }));
        assert!(message.starts_with("config.json: `rope_parameters.partial_rotary_factor` is "), "{message}");
    }
}

/// Reads the older form of Gemma 4's config, from before `per_layer_config`.
#[test]
fn sizes_per_layer_type_are_read() {
    let folder = Folder::new();
    let checkpoint = tiny("gemma4_uneven").with(CONFIG, "per_layer_config", None);
    let checkpoint = checkpoint.with(CONFIG, "global_head_dim", json!(32));
    open(&checkpoint.clone().with(CONFIG, "num_global_key_value_heads", json!(1)).write(&folder)).unwrap();
    let message = message_of(&checkpoint);
    assert!(message.starts_with("tensor `model.layers.1.self_attn.k_proj.weight`: has shape [32, 32]"), "{message}");
}

#[test]
fn unsupported_rope_parameters_are_refused() {
    let plain = json!({ "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 128 });
    let with = |key: &str, value: Value| {
        let mut parameters = plain.as_object().unwrap().clone();
        parameters.insert(key.into(), value);
        json!(parameters)
    };
    let llama3 = |low: f64, high: f64, factor: f64| {
        json!({ "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
            "original_max_position_embeddings": 64 })
    };
    let cases = [
        ("rope_type", with("rope_type", json!("dynamic"))),
        ("short_factor", with("rope_type", json!("longrope"))),
        ("rope_type", with("rope_type", json!(7))),
        ("factor", with("factor", json!(0))),
        ("factor", with("factor", json!(null))),
        ("factor", with("factor", json!(0.5))),
        ("beta_fast", with("beta_fast", json!(16))),
        ("attention_factor", with("attention_factor", json!(1.0))),
        ("mscale", with("mscale", json!(1.0))),
        ("truncate", with("truncate", json!(false))),
        ("original_max_position_embeddings", with("original_max_position_embeddings", json!(-5))),
        ("full_attention", json!({ "full_attention": { "rope_type": "default" } })),
        ("factor", llama3(1.0, 4.0, 0.0)),
        ("low_freq_factor", llama3(0.0, 4.0, 8.0)),
        ("factor", json!({ "type": "linear" })),
    ];
    for (key, parameters) in cases {
        for name in ["rope_scaling", "rope_parameters"] {
            let message =
                message_of(&tiny("llama").with(CONFIG, "rope_parameters", None).with(CONFIG, name, parameters.clone()));
            let named = message.starts_with("config.json: `rope_") && message.contains(&format!(".{key}` "));
            assert!(named, "{parameters}: {message}");
        }
    }
    assert_eq!(setting("llama", "rope_parameters", json!([])), "config.json: `rope_parameters` is not an object");
    let stretched = |key: &str, value: Value| {
        let mut parameters = tiny("phi3_long").json(CONFIG)["rope_parameters"].clone();
        parameters[key] = value;
        setting("phi3_long", "rope_parameters", parameters)
    };
    for (key, value) in [
        ("short_factor", json!(null)),
        ("long_factor", json!([])),
        ("long_factor", json!([1.0, 0.0, 1.0, 1.0, 1.0, 1.0])),
        ("long_factor", json!([1.0, 1e300, 1.0, 1.0, 1.0, 1.0])),
        ("short_factor", json!(["1"])),
        ("factor", json!(-1.0)),
        ("attention_factor", json!(0.0)),
        ("attention_factor", json!("1")),
        ("partial_rotary_factor", json!(2.0)),
    ] {
        let message = stretched(key, value);
        assert!(message.starts_with(&format!("config.json: `rope_parameters.{key}` is ")), "{message}");
    }
    let few = stretched("long_factor", json!([1.0]));
    assert_eq!(few, "tensor `rope_factors_long.weight`: has shape [1], but [1, 6] is expected");
    let beside = "original_max_position_embeddings";
    assert_eq!(setting("phi3_long", beside, json!(0)), format!("config.json: `{beside}` is 0, but must be above 0"));
    // YaRN's default value is accepted.
    let default_factor = with("attention_factor", json!(1.138_629_436_111_989));
    let folder = Folder::new();
    open(&tiny("qwen3").with(CONFIG, "rope_parameters", default_factor).write(&folder)).unwrap();
}
