//! Directories whose encoder cannot be used: the text loads, and the error of a prompt with an
//! image names the file and the setting, or the tensor.

use inkstone::{Error, LmRunner};
use serde_json::{Value, json};

use super::{Case, builder};
use crate::support::{
    checkpoint::{Checkpoint, Tensor},
    gguf_file::Folder,
    mmproj::mmproj,
};

const CONFIG: &str = "config.json";
const PROCESSOR: &str = "preprocessor_config.json";

/// Returns the error of a prompt with images, without the folder's path.
fn message(case: &Case, checkpoint: &Checkpoint) -> String {
    let folder = Folder::new();
    let mut runner = builder().from_safetensors(checkpoint.write(&folder)).unwrap();
    assert!(!runner.supports_multimodal());
    runner.prefill(&[1, 2, 3]).unwrap();
    let error = runner.prefill_images(case.prompt(), &case.images()).unwrap_err();
    let Error::VisionEncoder { error, .. } = &error else { panic!("{error}") };
    error.to_string().replace(&format!("{}/", folder.path().display()), "")
}

/// Returns a case and its files.
fn case(name: &str) -> (Case, Checkpoint) {
    let case = Case::new(name);
    let checkpoint = case.checkpoint();
    (case, checkpoint)
}

/// Returns the message for a setting of `vision_config` that is changed, or taken away.
fn setting(name: &str, key: &str, value: impl Into<Option<Value>>) -> String {
    let (case, checkpoint) = case(name);
    let mut encoder = checkpoint.json(CONFIG)["vision_config"].as_object().unwrap().clone();
    match value.into() {
        Some(value) => encoder.insert(key.into(), value),
        None => encoder.remove(key),
    };
    message(&case, &checkpoint.with(CONFIG, "vision_config", json!(encoder)))
}

/// Returns the message for a setting of the whole model.
fn model(name: &str, key: &str, value: Value) -> String {
    let (case, checkpoint) = case(name);
    message(&case, &checkpoint.with(CONFIG, key, value))
}

/// Returns the message for a setting of the image processor.
fn processor(name: &str, key: &str, value: impl Into<Option<Value>>) -> String {
    let (case, checkpoint) = case(name);
    message(&case, &checkpoint.with(PROCESSOR, key, value))
}

/// Returns the message for tensors after a change.
fn tensors(name: &str, change: impl FnOnce(&mut Vec<Tensor>)) -> String {
    let (case, mut checkpoint) = case(name);
    change(&mut checkpoint.tensors);
    message(&case, &checkpoint)
}

fn without(name: &str) -> impl FnOnce(&mut Vec<Tensor>) {
    move |tensors| {
        let count = tensors.len();
        tensors.retain(|tensor| tensor.name != name);
        assert_eq!(tensors.len() + 1, count, "{name}");
    }
}

#[test]
fn encoders_of_unknown_kinds_are_named() {
    let message = model("gemma3", "model_type", json!("llava"));
    assert!(message.contains("llava") && message.contains("qwen2_5_vl"), "{message}");
}

#[test]
fn settings_of_the_encoder_are_named() {
    let cases = [
        (setting("gemma3", "patch_size", json!("x")), "config.json: `vision_config.patch_size` is"),
        (setting("internvl", "patch_size", json!([4, 5])), "config.json: `vision_config.patch_size` is `[4,5]`"),
        (setting("gemma3", "hidden_size", json!(-1)), "config.json: `vision_config.hidden_size` is `-1`"),
        (setting("gemma3", "hidden_size", json!(0)), "config.json: `vision_config.hidden_size` is 0"),
        (setting("gemma3", "num_attention_heads", json!(3)), "config.json: `vision_config.num_attention_heads` is 3"),
        (setting("gemma3", "hidden_act", json!("relu")), "config.json: `vision_config.hidden_act` is `relu`"),
        (setting("gemma3", "layer_norm_eps", json!(2)), "config.json: `vision_config.layer_norm_eps` is 2"),
        (setting("gemma3", "num_channels", json!(1)), "config.json: `vision_config.num_channels` is `1`"),
        (setting("qwen2_vl", "mlp_ratio", json!("x")), "config.json: `vision_config.mlp_ratio` is"),
        (
            setting("qwen2_vl", "temporal_patch_size", json!(4)),
            "config.json: `vision_config.temporal_patch_size` is `4`",
        ),
        (setting("qwen2_5_vl", "fullatt_block_indexes", json!([0, 3])), "`vision_config.fullatt_block_indexes` must"),
        (setting("qwen2_5_vl", "fullatt_block_indexes", json!([])), "`vision_config.fullatt_block_indexes` must"),
        (setting("qwen3_vl", "num_position_embeddings", json!(35)), "`vision_config.num_position_embeddings` is 35"),
        (setting("qwen3_vl", "spatial_merge_size", json!(99)), "`merge_size` is 2, but the encoder's is 99"),
        (setting("gemma4", "head_dim", json!(8)), "config.json: `vision_config.head_dim` is 8"),
        (
            setting("gemma4", "rope_parameters", json!({"rope_theta": 7.0})),
            "`vision_config.rope_parameters.rope_theta`",
        ),
        (
            setting("internvl", "use_mean_pooling", json!(false)),
            "config.json: `vision_config.use_mean_pooling` is `false`",
        ),
        (model("internvl", "downsample_ratio", json!(0.4)), "config.json: `downsample_ratio` is 0.4"),
        (model("internvl", "vision_feature_layer", json!(-2)), "config.json: `vision_feature_layer` is `-2`"),
        (model("gemma3", "mm_tokens_per_image", json!(15)), "config.json: `mm_tokens_per_image` is 15"),
        (model("idefics3", "scale_factor", json!(0)), "config.json: `scale_factor` is 0"),
        (model("gemma3", "vision_config", json!(7)), "config.json: `vision_config` is `7`"),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected), "{expected}: {message}");
    }
}

#[test]
fn settings_of_the_image_processor_are_named() {
    let file = |what: &str| format!("{PROCESSOR}: {what}");
    let cases = [
        (processor("gemma3", "image_mean", None), file("`image_mean` is missing")),
        (processor("gemma3", "image_std", json!([1, 2])), file("`image_std` is missing, or is not")),
        (processor("gemma3", "image_std", json!([0, 1, 1])), file("`image_std` is missing, or is not")),
        (processor("gemma3", "image_mean", json!("x")), file("`image_mean` is `x`")),
        (processor("gemma3", "resample", json!(3)), file("`resample` is `3`")),
        (processor("gemma3", "do_pan_and_scan", json!(true)), file("`do_pan_and_scan` is `true`")),
        (processor("gemma3", "rescale_factor", json!(1.0)), file("`rescale_factor` is 1")),
        (processor("gemma3", "size", json!({"height": 32, "width": 30})), file("`size.width` is 30")),
        (processor("qwen2_vl", "patch_size", json!(8)), file("`patch_size` is 8")),
        (
            processor("qwen2_vl", "size", json!({"shortest_edge": 9, "longest_edge": 8})),
            file("`size.longest_edge` is 8"),
        ),
        (processor("qwen2_vl", "size", json!({"longest_edge": "x"})), file("`size.longest_edge` is `x`")),
        (processor("qwen2_vl", "size", json!({"shortest_edge": 0})), file("`size.shortest_edge` is 0")),
        (processor("idefics3", "size", json!({})), file("`size.longest_edge` is missing")),
        (processor("idefics3", "max_image_size", json!({"longest_edge": 9})), file("`max_image_size` has")),
        (processor("idefics3", "do_image_splitting", json!(false)), file("`do_image_splitting` is `false`")),
    ];
    for (message, expected) in cases {
        assert!(message.contains(&expected), "{expected}: {message}");
    }
    let (case, mut checkpoint) = case("gemma3");
    checkpoint.files.retain(|(name, _)| name != PROCESSOR);
    assert!(message(&case, &checkpoint).starts_with(&file("is missing")));
    let broken = checkpoint.with_file(PROCESSOR, "{");
    assert!(message(&case, &broken).starts_with(&file("is not JSON")));
    // The file that transformers 5 writes has all processors.
    let nested = json!({ "image_processor": { "image_mean": [0, 0, 0] } });
    let nested = broken.with_file("processor_config.json", nested.to_string());
    assert_eq!(message(&case, &nested), "processor_config.json: `image_processor.image_std` is missing");
}

#[test]
fn tensors_are_named() {
    let prefix = "vision_tower.encoder.layers.1.self_attn";
    let renamed = |to: &'static str| {
        move |tensors: &mut Vec<Tensor>| {
            let copy =
                Tensor { name: to.into(), ..tensors.iter().find(|tensor| tensor.shape == [32]).unwrap().clone() };
            tensors.push(copy);
        }
    };
    let cases = [
        (tensors("gemma3", without(&format!("{prefix}.q_proj.weight"))), format!("tensor `{prefix}.q_proj.weight`")),
        (tensors("gemma3", without("multi_modal_projector.mm_soft_emb_norm.weight")), "mm_soft_emb_norm.weight".into()),
        (
            tensors("gemma3", renamed("vision_tower.head.weight")),
            "tensor `vision_tower.head.weight`: is in the file".into(),
        ),
        (
            tensors("gemma3", renamed("vision_tower.vision_model.post_layernorm.bias")),
            "`vision_tower.post_layernorm.bias`".into(),
        ),
        (
            tensors("qwen3_vl", without("model.visual.deepstack_merger_list.1.linear_fc2.weight")),
            "`visual.deepstack_merger_list.1.linear_fc2.weight`: is missing".into(),
        ),
        (
            tensors("gemma4", without("model.vision_tower.encoder.layers.0.mlp.up_proj.input_max")),
            "`model.vision_tower.encoder.layers.0.mlp.up_proj.input_max`: is missing".into(),
        ),
        (
            tensors("internvl", without("vision_tower.embeddings.cls_token")),
            "`vision_tower.embeddings.cls_token`: is missing".into(),
        ),
        (
            tensors("qwen2_vl", |tensors| {
                let patches =
                    tensors.iter_mut().find(|tensor| tensor.name == "visual.patch_embed.proj.weight").unwrap();
                patches.shape = vec![24, 3, 1, 8, 4];
            }),
            "tensor `visual.patch_embed.proj.weight`: has shape [24, 3, 1, 8, 4]".into(),
        ),
    ];
    for (message, expected) in cases {
        assert!(message.contains(&expected), "{expected}: {message}");
    }
}

#[test]
fn explicit_files_that_do_not_fit_are_refused_at_once() {
    let (case, folder) = (Case::new("gemma3"), Folder::new());
    let path = folder.write("mmproj.gguf", mmproj("gemma3").bytes());
    let error = builder().vision(path).from_safetensors(&case.folder).unwrap_err();
    assert!(error.to_string().contains("makes rows of 24 elements"), "{error}");
}

#[test]
fn images_for_a_text_model_are_refused() {
    let (case, checkpoint) = case("gemma3");
    let folder = Folder::new();
    let directory = checkpoint.with(CONFIG, "vision_config", None).write(&folder);
    let error =
        builder().from_safetensors(directory).unwrap().prefill_images(case.prompt(), &case.images()).unwrap_err();
    assert!(matches!(error, Error::Unsupported(_)), "{error}");
}
