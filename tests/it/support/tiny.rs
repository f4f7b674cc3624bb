//! The tiny models of tests/data/models with what llama.cpp computes with them, or transformers
//! where llama.cpp cannot, and how far apart logits are.

use std::{fs, path::PathBuf};

use super::{data, gguf_file::string};

/// Every model.
pub const MODELS: [Tiny; 91] = [
    Tiny("qwen3", EXACT),
    Tiny("qwen3_yarn", ROUNDED),
    Tiny("llama", ROUNDED),
    Tiny("llama_biased", EXACT),
    Tiny("qwen2", EXACT),
    Tiny("qwen2vl", EXACT),
    Tiny("smollm3", EXACT),
    Tiny("gemma", ROUNDED),
    Tiny("gemma2", ROUNDED),
    Tiny("gemma3", ROUNDED),
    Tiny("gemma4", ROUNDED),
    Tiny("granite", EXACT),
    Tiny("phi3", EXACT),
    Tiny("phi3_long", EXACT),
    Tiny("phi3_short", EXACT),
    Tiny("qwen3moe", EXACT),
    Tiny("qwen3vl", EXACT),
    Tiny("qwen3vlmoe", EXACT),
    Tiny("mixtral", EXACT),
    RECURRENT,
    Tiny("qwen35_ungrouped", EXACT),
    Tiny("qwen35moe", EXACT),
    Tiny("gemma4_moe", ROUNDED),
    Tiny("gemma4_uneven", ROUNDED),
    Tiny("olmo2", EXACT),
    Tiny("olmo3", EXACT),
    Tiny("exaone4", EXACT),
    Tiny("exaone4_windows", EXACT),
    Tiny("glm4", EXACT),
    Tiny("glm4_tied", EXACT),
    Tiny("glm4moe", EXACT),
    Tiny("glm4moe_groups", EXACT),
    Tiny("qwen2moe", EXACT),
    Tiny("qwen2moe_two", EXACT),
    Tiny("ernie4_5", EXACT),
    Tiny("ernie4_5_biased", EXACT),
    Tiny("ernie4_5moe", EXACT),
    Tiny("ernie4_5moe_alone", EXACT),
    Tiny("hunyuan", EXACT),
    Tiny("hunyuan_untied", EXACT),
    Tiny("hunyuanmoe", EXACT),
    Tiny("hunyuanmoe_one", EXACT),
    Tiny("seed_oss", EXACT),
    Tiny("seed_oss_tied", EXACT),
    Tiny("cohere2", EXACT),
    Tiny("cohere2_halved", EXACT),
    Tiny("command_r", EXACT),
    Tiny("command_r_norms", EXACT),
    Tiny("starcoder2", ROUNDED),
    Tiny("starcoder2_untied", ROUNDED),
    Tiny("stablelm", EXACT),
    Tiny("stablelm_parallel", EXACT),
    Tiny("phi2", ROUNDED),
    Tiny("phi2_grouped", ROUNDED),
    Tiny("internlm2", EXACT),
    Tiny("internlm2_biased", EXACT),
    Tiny("arcee", EXACT),
    Tiny("arcee_yarn", EXACT),
    Tiny("granitemoe", EXACT),
    Tiny("granitemoe_alone", EXACT),
    Tiny("minimax_m2", EXACT),
    Tiny("minimax_m2_whole", EXACT),
    Tiny("lfm2", EXACT),
    Tiny("lfm2_attention", EXACT),
    Tiny("lfm2moe", EXACT),
    Tiny("lfm2moe_alone", EXACT),
    Tiny("gpt_oss", EXACT),
    Tiny("gpt_oss_mxfp4", EIGHT_BITS),
    Tiny("qwen3next", EXACT),
    Tiny("qwen3next_pairs", EXACT),
    Tiny("mistral3", EXACT),
    Tiny("mistral3_betas", EXACT),
    Tiny("deepseek2", EXACT),
    Tiny("deepseek2_lite", EXACT),
    Tiny("granitehybrid", EXACT),
    Tiny("granitehybrid_dense", EXACT),
    Tiny("nemotron_h", EXACT),
    Tiny("nemotron_h_tied", EXACT),
    Tiny("nemotron_h_moe", EXACT),
    Tiny("nemotron_h_moe_latent", EXACT),
    Tiny("falcon_h1", EXACT),
    Tiny("falcon_h1_norms", EXACT),
    Tiny("llama4", EXACT),
    Tiny("llama4_wide", ROUNDED),
    Tiny("nanbeige", EXACT),
    Tiny("nanbeige_thrice", EXACT),
    Tiny("muse_glimmer", EXACT),
    Tiny("muse_glimmer_listed", EXACT),
    Tiny("llama4_chunks", EXACT),
    Tiny("gemma3n", ROUNDED),
    Tiny("gemma3n_shared", EXACT),
];

/// One with recurrent layers.
pub const RECURRENT: Tiny = Tiny("qwen35", EXACT);

/// An NMSE that sums in another order leave.
pub const EXACT: f64 = 1e-8;
/// Where llama.cpp itself rounds to half precision: the activations that it multiplies with F16
/// matrices, and what GELU makes of its operand.
const ROUNDED: f64 = 2e-5;

/// Where llama.cpp rounds activations to 8 bits.
pub const EIGHT_BITS: f64 = 5e-3;

/// A model by name; and the NMSE within which logits are to be llama.cpp's, with a cache in single
/// precision.
#[derive(Clone, Copy)]
pub struct Tiny(pub &'static str, pub f64);

impl Tiny {
    pub fn path(self) -> PathBuf {
        data(&format!("models/{}.gguf", self.0))
    }

    pub fn expected(self) -> Expected {
        let path = data(&format!("models/{}.expected", self.0));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let found = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "));
        let line = |key: &str| found(key).unwrap_or_else(|| panic!("{} has no `{key}`", path.display()));
        let ids = |key| line(key).split(',').map(|id| id.parse().unwrap()).collect();
        let numbers = |line: &str| line.split(',').map(|x| x.parse().unwrap()).collect();
        let floats = |key| numbers(line(key));
        Expected {
            prompt: ids("prompt"),
            greedy: ids("greedy"),
            gaps: floats("gaps"),
            prompt_logits: floats("prompt_logits"),
            end_logits: floats("end_logits"),
            transformers: found("transformers_prompt_logits").map(|prompt| {
                let end = found("transformers_end_logits").unwrap_or_else(|| panic!("{}", path.display()));
                [prompt, end].map(numbers)
            }),
        }
    }
}

/// What llama.cpp computes; tests/data/models/make.py says how.
pub struct Expected {
    pub prompt: Vec<u32>,
    pub greedy: Vec<u32>,
    pub gaps: Vec<f32>,
    pub prompt_logits: Vec<f32>,
    pub end_logits: Vec<f32>,
    /// What transformers computes in double precision after the prompt and in the end, where it has
    /// the model.
    pub transformers: Option<[Vec<f32>; 2]>,
}

/// The mean squared error over the variance of the reference.
pub fn nmse(found: &[f32], reference: &[f32]) -> f64 {
    assert_eq!(found.len(), reference.len());
    let n = reference.len() as f64;
    let pairs = || found.iter().zip(reference).map(|(a, b)| (f64::from(*a), f64::from(*b)));
    let mean = pairs().map(|(_, b)| b).sum::<f64>() / n;
    let variance = pairs().map(|(_, b)| (b - mean).powi(2)).sum::<f64>() / n;
    let error = pairs().map(|(a, b)| (a - b).powi(2)).sum::<f64>() / n;
    error / variance
}

/// The id of the largest logit.
pub fn argmax(logits: &[f32]) -> u32 {
    (0..logits.len()).fold(0, |best, id| if logits[id] > logits[best] { id } else { best }) as u32
}

/// The bytes of a model's file with a chat template put into its metadata.
pub fn with_template(tiny: Tiny, template: &str) -> Vec<u8> {
    let mut file = fs::read(tiny.path()).unwrap();
    let key = [string("tokenizer.chat_template"), 8u32.to_le_bytes().to_vec()].concat();
    // Tensors stay at multiples of 32 bytes.
    let len = (key.len() + 8 + template.len()).next_multiple_of(32) - key.len() - 8;
    let entry = [key, string(&format!("{template:<len$}"))].concat();
    let keys = u64::from_le_bytes(file[16..24].try_into().unwrap()) + 1;
    file[16..24].copy_from_slice(&keys.to_le_bytes());
    file.splice(24..24, entry);
    file
}
