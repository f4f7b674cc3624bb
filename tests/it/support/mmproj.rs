//! Writes tiny vision encoders of every projector, with pseudo-random weights.

use super::{gguf_file::GgufFile, graphs::Random};

/// The sizes of the encoders: all as small as their graphs allow.
pub const HIDDEN: usize = 16;
pub const TEXT: usize = 24;
const FFN: usize = 20;
const LAYERS: usize = 2;
const HEADS: u32 = 2;
const PATCH: usize = 4;

/// The names of all projectors.
pub const PROJECTORS: [&str; 7] =
    ["gemma3", "gemma4v", "idefics3", "internvl", "qwen2.5vl_merger", "qwen2vl_merger", "qwen3vl_merger"];

/// Returns the file of an encoder.
pub fn mmproj(projector: &str) -> GgufFile {
    let block: u32 = match projector {
        "gemma4v" => 3,
        _ => 2,
    };
    let floats = |numbers: [f32; 3]| numbers.map(|number| number.to_le_bytes().to_vec());
    let file = GgufFile::new()
        .string("general.architecture", "clip")
        .string("clip.projector_type", projector)
        .u32("clip.vision.projection_dim", TEXT as u32)
        .u32("clip.vision.image_size", 24)
        .u32("clip.vision.patch_size", PATCH as u32)
        .u32("clip.vision.embedding_length", HIDDEN as u32)
        .u32("clip.vision.feed_forward_length", FFN as u32)
        .u32("clip.vision.block_count", LAYERS as u32)
        .u32("clip.vision.attention.head_count", HEADS)
        .u32("clip.vision.projector.scale_factor", block)
        .u32("clip.vision.preproc_image_size", 48)
        .u32("clip.vision.n_wa_pattern", 2)
        .u32("clip.vision.window_size", 16)
        .key("clip.vision.attention.layer_norm_epsilon", 6, 1e-6f32.to_le_bytes())
        .array("clip.vision.image_mean", 6, &floats([0.5, 0.4, 0.3]))
        .array("clip.vision.image_std", 6, &floats([0.5, 0.3, 0.2]))
        .key("clip.use_gelu", 7, [1]);
    tensors(projector).into_iter().fold(file, |file, (name, dimensions, data)| file.tensor(&name, &dimensions, 0, data))
}

type Tensor = (String, Vec<u64>, Vec<u8>);

struct Writer {
    random: Random,
    tensors: Vec<Tensor>,
}

impl Writer {
    /// Adds a tensor of these dimensions, the innermost first.
    fn add(&mut self, name: impl Into<String>, dimensions: &[usize], spread: f32) {
        let count: usize = dimensions.iter().product();
        let data = (0..count).flat_map(|_| self.random.between(-spread, spread).to_le_bytes()).collect();
        self.tensors.push((name.into(), dimensions.iter().map(|n| *n as u64).collect(), data));
    }

    fn linear(&mut self, name: &str, columns: usize, rows: usize) {
        self.add(format!("{name}.weight"), &[columns, rows], (3.0 / columns as f32).sqrt());
        self.add(format!("{name}.bias"), &[rows], 0.3);
    }

    fn norm(&mut self, name: &str, width: usize, with_bias: bool) {
        self.add(format!("{name}.weight"), &[width], 1.5);
        if with_bias {
            self.add(format!("{name}.bias"), &[width], 0.3);
        }
    }
}

fn tensors(projector: &str) -> Vec<Tensor> {
    let mut w = Writer { random: Random::new(7), tensors: vec![] };
    let (qwen, rms) = (projector.starts_with("qwen"), matches!(projector, "gemma4v" | "qwen2.5vl_merger"));
    let side = 24 / PATCH;
    w.add("v.patch_embd.weight", &[PATCH, PATCH, 3, HIDDEN], 0.3);
    if qwen {
        w.add("v.patch_embd.weight.1", &[PATCH, PATCH, 3, HIDDEN], 0.3);
    }
    if !matches!(projector, "gemma4v" | "qwen2.5vl_merger" | "qwen2vl_merger") {
        w.add("v.patch_embd.bias", &[HIDDEN], 0.3);
    }
    match projector {
        "gemma4v" => w.add("v.position_embd.weight", &[HIDDEN, 64, 2], 0.5),
        "internvl" => {
            w.add("v.class_embd", &[HIDDEN], 0.5);
            w.add("v.position_embd.weight", &[HIDDEN, side * side + 1], 0.5);
        }
        "qwen2.5vl_merger" | "qwen2vl_merger" => {}
        _ => w.add("v.position_embd.weight", &[HIDDEN, side * side], 0.5),
    }
    for layer in 0..LAYERS {
        layer_tensors(&mut w, projector, &format!("v.blk.{layer}."), rms);
    }
    if !matches!(projector, "gemma4v" | "internvl") {
        w.norm("v.post_ln", HIDDEN, !rms);
    }
    projector_tensors(&mut w, projector);
    w.tensors
}

fn layer_tensors(w: &mut Writer, projector: &str, prefix: &str, rms: bool) {
    let name = |part: &str| format!("{prefix}{part}");
    w.norm(&name("ln1"), HIDDEN, !rms);
    w.norm(&name("ln2"), HIDDEN, !rms);
    if projector == "gemma4v" {
        for (part, columns, rows) in [
            ("attn_q", HIDDEN, HIDDEN),
            ("attn_k", HIDDEN, HIDDEN),
            ("attn_v", HIDDEN, HIDDEN),
            ("attn_out", HIDDEN, HIDDEN),
            ("ffn_gate", HIDDEN, FFN),
            ("ffn_up", HIDDEN, FFN),
            ("ffn_down", FFN, HIDDEN),
        ] {
            w.add(name(&format!("{part}.weight")), &[columns, rows], (3.0 / columns as f32).sqrt());
        }
        for (part, width) in [
            ("attn_q_norm", HIDDEN / 2),
            ("attn_k_norm", HIDDEN / 2),
            ("attn_post_norm", HIDDEN),
            ("ffn_post_norm", HIDDEN),
        ] {
            w.norm(&name(part), width, false);
        }
        for (side, limit) in [("input_min", -0.8f32), ("input_max", 0.7), ("output_min", -0.5), ("output_max", 0.6)] {
            w.tensors.push((name(&format!("ffn_up.{side}")), vec![1], limit.to_le_bytes().to_vec()));
        }
        return;
    }
    if projector == "qwen3vl_merger" {
        w.linear(&name("attn_qkv"), HIDDEN, 3 * HIDDEN);
    } else {
        ["attn_q", "attn_k", "attn_v"].iter().for_each(|part| w.linear(&name(part), HIDDEN, HIDDEN));
    }
    w.linear(&name("attn_out"), HIDDEN, HIDDEN);
    if projector == "qwen2.5vl_merger" {
        w.linear(&name("ffn_gate"), HIDDEN, FFN);
    }
    w.linear(&name("ffn_up"), HIDDEN, FFN);
    w.linear(&name("ffn_down"), FFN, HIDDEN);
    if projector == "internvl" {
        w.norm(&name("ls1"), HIDDEN, false);
        w.norm(&name("ls2"), HIDDEN, false);
    }
}

fn projector_tensors(w: &mut Writer, projector: &str) {
    let joined = 4 * HIDDEN;
    match projector {
        "gemma3" => {
            w.norm("mm.soft_emb_norm", HIDDEN, false);
            // The columns of the matrix.
            w.add("mm.input_projection.weight", &[TEXT, HIDDEN], 0.4);
        }
        "gemma4v" => w.add("mm.input_projection.weight", &[HIDDEN, TEXT], 0.4),
        "idefics3" => w.add("mm.model.fc.weight", &[joined, TEXT], 0.2),
        "internvl" => {
            w.norm("mm.model.mlp.0", joined, true);
            w.linear("mm.model.mlp.1", joined, TEXT);
            w.linear("mm.model.mlp.3", TEXT, TEXT);
        }
        _ => {
            w.linear("mm.0", joined, joined);
            w.linear("mm.2", joined, TEXT);
            if projector == "qwen3vl_merger" {
                w.norm("v.deepstack.0.norm", joined, true);
                w.linear("v.deepstack.0.fc1", joined, joined);
                w.linear("v.deepstack.0.fc2", joined, TEXT);
            }
        }
    }
}
