//! Loads directories of safetensors and compares logits, graphs, tokenizers and generated ids with
//! the GGUF files of the same models.

use std::{borrow::Cow, fs};

use inkstone::{
    CacheType, Error, LogitsFor, Runner, RunnerBuilder,
    gguf::Gguf,
    internals::{
        models::{self, Model},
        weights::Weights,
    },
    tokenizer::{SpecialTokens, Tokenizer},
};
use serde_json::json;

use crate::support::{
    checkpoint::{Checkpoint, Tensor, is_there},
    data,
    gguf_file::Folder,
    on_cpu,
    tiny::{MODELS, Tiny, argmax, nmse},
};

fn tinies() -> impl Iterator<Item = Tiny> {
    MODELS.into_iter().filter(|tiny| is_there(*tiny))
}

fn exact() -> RunnerBuilder {
    on_cpu().cache_type(CacheType::F32)
}

/// Compares the logits after the prompt, and after the greedy continuation, with llama.cpp's.
fn assert_logits(tiny: Tiny, runner: &mut Runner, tolerance: f64) {
    let expected = tiny.expected();
    let ids = [expected.prompt.clone(), expected.greedy].concat();
    for (ids, reference) in [(&expected.prompt, &expected.prompt_logits), (&ids, &expected.end_logits)] {
        let error = nmse(&runner.predict_logits(ids).unwrap(), reference);
        assert!(error <= tolerance, "{}: {error:.1e}", tiny.0);
    }
}

#[test]
fn logits_match_llama_cpp() {
    assert!(tinies().count() >= 18);
    for tiny in tinies() {
        let folder = Folder::new();
        let directory = Checkpoint::of(tiny).write(&folder);
        assert_logits(tiny, &mut exact().from_safetensors(&directory).unwrap(), tiny.1);
        let folder = Folder::new();
        let directory = Checkpoint::of(tiny).write_sharded(&folder, 3);
        assert_logits(tiny, &mut exact().from_path(&directory).unwrap(), tiny.1);
    }
}

/// Stores all weights as F16 (11 significant bits) and BF16 (8 significant bits).
#[test]
fn logits_match_llama_cpp_in_every_float_format() {
    for (dtype, tolerance) in [("F32", 0.0), ("F16", 1e-3), ("BF16", 2e-2)] {
        for tiny in tinies() {
            let folder = Folder::new();
            let checkpoint = Checkpoint::of(tiny).stored_as(dtype, |_| true);
            let layers = checkpoint.json("config.json")["num_hidden_layers"].as_f64().unwrap();
            let directory = checkpoint.write(&folder);
            // The tolerance is for up to 32 layers. The squares of what layers round off add up.
            let tolerance = tolerance * (layers / 32.0).max(1.0);
            assert_logits(tiny, &mut exact().from_path(&directory).unwrap(), tiny.1 + tolerance);
        }
    }
}

/// Returns the text of a model's graph, without the attributes that depend on the order of rows and
/// heads.
fn graph(gguf: &Gguf) -> String {
    let model = Model::from_gguf(gguf, &Weights::from_gguf(gguf)).unwrap();
    let text = model.graph.without_hidden().to_string();
    ["style=halves", "style=adjacent", "order=grouped", "order=tiled"]
        .iter()
        .fold(text, |text, attribute| text.replace(attribute, ""))
}

#[test]
fn graphs_and_configs_match_gguf_files() {
    for tiny in tinies() {
        let folder = Folder::new();
        let directory = models::open(Checkpoint::of(tiny).write(&folder)).unwrap();
        let file = models::open(tiny.path()).unwrap();
        assert_eq!(graph(&directory), graph(&file), "{}", tiny.0);
        let config = |gguf: &Gguf| Model::from_gguf(gguf, &Weights::from_gguf(gguf)).unwrap().config;
        let (mut ours, theirs) = (config(&directory), config(&file));
        ours.reference_layout = theirs.reference_layout;
        ours.name = theirs.name.clone();
        ours.left_out = theirs.left_out.clone();
        // These directories have no heads for multi-token prediction.
        ours.mtp = theirs.mtp.clone();
        assert_eq!(ours, theirs);
    }
}

#[test]
fn configs_of_older_transformers_versions_are_read() {
    for tiny in tinies() {
        let checkpoint = Checkpoint::of(tiny);
        let mut parameters = checkpoint.json("config.json")["rope_parameters"].as_object().unwrap().clone();
        let local = parameters.get("sliding_attention").map(|windows| windows["rope_theta"].clone());
        if let Some(full) = parameters.remove("full_attention") {
            parameters = full.as_object().unwrap().clone();
        }
        if parameters["rope_type"] == "proportional" {
            // Older versions did not support it.
            continue;
        }
        let theta = parameters.remove("rope_theta");
        if let Some(kind) = parameters.remove("rope_type") {
            parameters.insert("type".into(), kind);
        }
        let old = checkpoint
            .with("config.json", "rope_parameters", None)
            .with("config.json", "rope_theta", theta)
            .with("config.json", "rope_local_base_freq", local)
            .with("config.json", "rope_scaling", json!(parameters));
        let folder = Folder::new();
        assert_logits(tiny, &mut exact().from_path(old.write(&folder)).unwrap(), tiny.1);
    }
}

/// Loads the text part of a multimodal model, as Gemma 3 models from 4B up are stored.
#[test]
fn vision_tensors_of_multimodal_models_are_ignored() {
    let tiny = MODELS.into_iter().find(|tiny| tiny.0 == "gemma3").unwrap();
    let mut checkpoint = Checkpoint::of(tiny);
    let mut text = checkpoint.json("config.json");
    let config = json!({ "model_type": "gemma3", "text_config": text, "vision_config": { "hidden_size": 7 } });
    for tensor in &mut checkpoint.tensors {
        tensor.name.insert_str(0, "language_model.");
    }
    let vision_names =
        ["vision_tower.vision_model.post_layernorm.bias", "multi_modal_projector.mm_soft_emb_norm.weight"];
    for name in vision_names {
        checkpoint.tensors.push(Tensor { name: name.into(), ..checkpoint.tensors[0].clone() });
    }
    let folder = Folder::new();
    let directory = checkpoint.clone().with_file("config.json", config.to_string()).write(&folder);
    assert_logits(tiny, &mut exact().from_path(&directory).unwrap(), tiny.1);
    // In a text-only model the same tensors are unexpected.
    text.insert("text_config".into(), json!(null));
    let directory = checkpoint.with_file("config.json", json!(text).to_string()).write(&folder);
    let error = exact().from_path(&directory).unwrap_err();
    assert!(matches!(&error, Error::Tensor { tensor, .. } if vision_names.contains(&tensor.as_str())), "{error}");
}

/// Loads a Qwen3.5 model, which is stored with a vision encoder, and with a head for multi-token
/// prediction of a kind that is not known.
#[test]
fn vision_and_unknown_heads_are_ignored() {
    let tiny = MODELS.into_iter().find(|tiny| tiny.0 == "qwen35").unwrap();
    let mut checkpoint = Checkpoint::of(tiny);
    for tensor in checkpoint.tensors.iter_mut().filter(|tensor| tensor.name.starts_with("model.")) {
        tensor.name = tensor.name.replacen("model.", "model.language_model.", 1);
    }
    for name in ["model.visual.merger.norm.bias", "mtp.fc.weight", "mtp.layers.1.mlp.up_proj.weight"] {
        checkpoint.tensors.push(Tensor { name: name.into(), ..checkpoint.tensors[0].clone() });
    }
    let config = json!({ "model_type": "qwen3_5", "text_config": checkpoint.json("config.json") });
    let folder = Folder::new();
    let directory = checkpoint.with_file("config.json", config.to_string()).write(&folder);
    assert_logits(tiny, &mut exact().from_path(&directory).unwrap(), tiny.1);
}

/// Adds the head of a Qwen3.5 model with three layers.
fn with_head(tiny: Tiny) -> Checkpoint {
    let norms = [
        ["mtp.pre_fc_norm_embedding", "nextn.enorm"],
        ["mtp.pre_fc_norm_hidden", "nextn.hnorm"],
        ["mtp.norm", "nextn.shared_head_norm"],
        ["mtp.layers.0.input_layernorm", "attn_norm"],
        ["mtp.layers.0.post_attention_layernorm", "post_attention_norm"],
        ["mtp.layers.0.self_attn.q_norm", "attn_q_norm"],
        ["mtp.layers.0.self_attn.k_norm", "attn_k_norm"],
    ];
    let matrices = [
        ["mtp.fc", "nextn.eh_proj"],
        ["mtp.layers.0.self_attn.q_proj", "attn_q"],
        ["mtp.layers.0.self_attn.k_proj", "attn_k"],
        ["mtp.layers.0.self_attn.v_proj", "attn_v"],
        ["mtp.layers.0.self_attn.o_proj", "attn_output"],
        ["mtp.layers.0.mlp.gate_proj", "ffn_gate"],
        ["mtp.layers.0.mlp.up_proj", "ffn_up"],
        ["mtp.layers.0.mlp.down_proj", "ffn_down"],
    ];
    let line = |[name, gguf]: [&str; 2], change: &str| format!("{name}.weight blk.3.{gguf}.weight {change}");
    let lines =
        norms.map(|norm| line(norm, "plus-one")).into_iter().chain(matrices.map(|matrix| line(matrix, "as-is")));
    let mut checkpoint = Checkpoint::of(tiny);
    checkpoint.add(tiny, lines);
    checkpoint
}

/// The head of a directory drafts as the one of the GGUF file.
#[test]
fn heads_are_those_of_gguf_files() {
    let named = |name: &str| MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap();
    assert_same_head(named("qwen35"), &with_head(named("qwen35")));
    assert_same_head(named("glm4moe"), &with_further_layer(named("glm4moe")));
}

/// Returns the directory of GLM-4.5 with its head, which is stored as the layer after the last.
fn with_further_layer(tiny: Tiny) -> Checkpoint {
    let lines = fs::read_to_string(data(&format!("checkpoints/{}/tensors.txt", tiny.0))).unwrap();
    let last = lines.lines().filter(|line| line.starts_with("model.layers.2."));
    let layer = last.map(|line| line.replace("layers.2.", "layers.3.").replace("blk.2.", "blk.3."));
    let own =
        [("eh_proj", "eh_proj"), ("enorm", "enorm"), ("hnorm", "hnorm"), ("shared_head.norm", "shared_head_norm")];
    let own = own.map(|(name, gguf)| format!("model.layers.3.{name}.weight blk.3.nextn.{gguf}.weight as-is"));
    let mut checkpoint = Checkpoint::of(tiny);
    checkpoint.add(tiny, layer.chain(own));
    checkpoint
}

fn assert_same_head(tiny: Tiny, checkpoint: &Checkpoint) {
    let folder = Folder::new();
    let directory = models::open(checkpoint.write(&folder)).unwrap();
    let model = |gguf: &Gguf| Model::from_gguf(gguf, &Weights::from_gguf(gguf)).unwrap();
    let file = models::open(tiny.path()).unwrap();
    let [ours, theirs] = [&directory, &file].map(|gguf| model(gguf).mtp.unwrap().to_string());
    assert_eq!(ours, theirs);
    assert_eq!(model(&directory).config.mtp, model(&file).config.mtp);
    let [ours, theirs] = [folder.path(), &tiny.path()].map(|path| {
        let mut runner = exact().from_path(path).unwrap();
        let decoder = runner.decoder_mut();
        let sequence = decoder.open();
        decoder.step(&[(sequence, &[3, 7, 11], LogitsFor::None)]).unwrap();
        decoder.mtp_logits(sequence, 4).unwrap()
    });
    assert!(nmse(&ours, &theirs) < 1e-10);
}

/// A tensor of the head that is missing or has another shape is an error with its name in the
/// directory.
#[test]
fn errors_about_heads_have_the_names_of_the_directory() {
    let tiny = MODELS.into_iter().find(|tiny| tiny.0 == "qwen35").unwrap();
    let refused = |name: &str, change: &dyn Fn(&mut Vec<Tensor>)| {
        let mut checkpoint = with_head(tiny);
        change(&mut checkpoint.tensors);
        let folder = Folder::new();
        let error = exact().from_path(checkpoint.write(&folder)).unwrap_err();
        assert!(matches!(&error, Error::Tensor { tensor, .. } if tensor == name), "{name}: {error}");
    };
    let layer = ["input_layernorm", "post_attention_layernorm", "self_attn.k_norm", "self_attn.q_proj", "mlp.up_proj"];
    let of_layer = layer.map(|part| format!("mtp.layers.0.{part}.weight"));
    let others = ["mtp.pre_fc_norm_hidden.weight", "model.layers.2.input_layernorm.weight"].map(String::from);
    for name in of_layer.iter().chain(&others) {
        refused(name, &|tensors| tensors.retain(|tensor| tensor.name != *name));
        let name = name.as_str();
        refused(name, &|tensors| {
            let tensor = tensors.iter_mut().find(|tensor| tensor.name == name).unwrap();
            tensor.shape[0] /= 2;
            tensor.data.truncate(tensor.data.len() / 2);
        });
    }
}

/// Stacks the experts of each layer in one tensor, with the gate and up projections of an expert in
/// one matrix, as some versions of transformers save them.
fn stack_experts(mut checkpoint: Checkpoint) -> Checkpoint {
    let is_of_expert = |tensor: &Tensor| tensor.name.contains(".experts.");
    let mut experts: Vec<_> = checkpoint.tensors.iter().filter(|tensor| is_of_expert(tensor)).cloned().collect();
    checkpoint.tensors.retain(|tensor| !is_of_expert(tensor));
    // Ordered by expert, gate before up.
    let number = |tensor: &Tensor| tensor.name.split('.').nth(5).unwrap().parse::<usize>().unwrap();
    experts.sort_by_key(|tensor| (number(tensor), tensor.name.clone()));
    for tensor in experts {
        let layer = tensor.name.split("experts").next().unwrap();
        let part = if tensor.name.contains("down_proj") { "down_proj" } else { "gate_up_proj" };
        let name = format!("{layer}experts.{part}");
        let is_new = !checkpoint.tensors.iter().any(|other| other.name == name);
        if is_new {
            let [rows, columns] = tensor.shape[..] else { panic!() };
            let shape = vec![0, if part == "down_proj" { rows } else { 2 * rows }, columns];
            checkpoint.tensors.push(Tensor { name: name.clone(), shape, data: vec![], ..tensor.clone() });
        }
        let stack = checkpoint.tensors.iter_mut().find(|other| other.name == name).unwrap();
        stack.shape[0] += usize::from(tensor.name.contains("down_proj") || tensor.name.contains("gate_proj"));
        stack.data.extend(tensor.data);
    }
    checkpoint
}

#[test]
fn stacked_experts_are_loaded() {
    for name in ["qwen3moe", "qwen35moe"] {
        let tiny = MODELS.into_iter().find(|tiny| tiny.0 == name).unwrap();
        let folder = Folder::new();
        let directory = stack_experts(Checkpoint::of(tiny)).write(&folder);
        assert_logits(tiny, &mut exact().from_path(&directory).unwrap(), tiny.1);
    }
}

/// Compares a stack of separate expert tensors with the GGUF file's stack, and checks that reading
/// one expert copies nothing.
#[test]
fn separate_experts_are_stacked_without_a_copy() {
    let tiny = MODELS.into_iter().find(|tiny| tiny.0 == "mixtral").unwrap();
    let folder = Folder::new();
    let directory = models::open(Checkpoint::of(tiny).write(&folder)).unwrap();
    let file = Gguf::open(tiny.path()).unwrap();
    let weights = Weights::from_gguf(&directory);
    for name in ["blk.0.ffn_gate_exps.weight", "blk.1.ffn_down_exps.weight"] {
        let theirs = file.tensor(name).unwrap();
        let weight = weights.get(name, &theirs.shape).unwrap();
        assert_eq!(weight.bytes(), file.bytes(theirs));
        let expert_len = weight.byte_len() / theirs.shape[0];
        for start in (0..weight.byte_len()).step_by(expert_len) {
            assert!(matches!(weight.bytes_of(start..start + expert_len), Cow::Borrowed(_)));
            let across = weight.bytes_of(start + 8..weight.byte_len());
            assert_eq!(*across, file.bytes(theirs)[start + 8..]);
        }
        weight.will_need(8..weight.byte_len());
        weight.done_with(8..usize::MAX);
    }
}

#[test]
fn tokenizers_match_gguf_files() {
    let texts = ["the fox and the dog", "  two  spaces\n\n", "naïve 狐 🦊", "it's 1234 o'clock", "<s>a</s><|im_end|>b"];
    for tiny in tinies() {
        let folder = Folder::new();
        let ours = Tokenizer::from_gguf(&models::open(Checkpoint::of(tiny).write(&folder)).unwrap()).unwrap();
        let theirs = Tokenizer::from_gguf(&Gguf::open(tiny.path()).unwrap()).unwrap();
        assert_eq!((ours.bos(), ours.eos()), (theirs.bos(), theirs.eos()), "{}", tiny.0);
        assert_eq!(ours.end_of_generation(), theirs.end_of_generation(), "{}", tiny.0);
        assert_eq!(ours.vocab_size(), theirs.vocab_size());
        for id in 0..ours.vocab_size() as u32 {
            assert_eq!(ours.token_bytes(id).unwrap(), theirs.token_bytes(id).unwrap(), "{}: {id}", tiny.0);
        }
        for text in texts {
            for special in [SpecialTokens::Parse, SpecialTokens::Plain] {
                let ids = theirs.encode(text, special).unwrap();
                assert_eq!(ours.encode(text, special).unwrap(), ids, "{}: {text:?}", tiny.0);
                assert_eq!(ours.decode(&ids).unwrap(), theirs.decode(&ids).unwrap());
            }
            assert_eq!(ours.encode_prompt(text).unwrap(), theirs.encode_prompt(text).unwrap(), "{}: {text:?}", tiny.0);
        }
    }
}

#[test]
fn generated_ids_match_llama_cpp() {
    let tiny = MODELS[0];
    let folder = Folder::new();
    let mut runner = exact().from_path(Checkpoint::of(tiny).write(&folder)).unwrap();
    let expected = tiny.expected();
    assert_eq!(runner.generate_ids(&expected.prompt, 40, |_| true).unwrap(), expected.greedy);
    assert_eq!(argmax(&runner.predict_logits(&expected.prompt).unwrap()), expected.greedy[0]);
}
