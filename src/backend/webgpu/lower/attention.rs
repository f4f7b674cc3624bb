//! Attention: in one go for single tokens, and otherwise in its parts.

use serde_json::{Value, json};

use super::{Form, Forms, Lowering, Made, place, product::float, rotation, slot, soft_cap, stride, with};
use crate::{
    Result,
    backend::webgpu::{
        context::Traits,
        kernel::{Count, Kernel, Resource, When, reads, writes},
        step::SPLIT,
        tiles,
    },
    graph::{AttentionSpec, RopeSpec, Rows},
    kv_cache::{CacheType, PAGE_POSITIONS},
    plan::{Place, PlanStep},
};

/// What stands for a score of nothing.
const LOWEST: &str = "-3.0e38f";

/// Rows with the distance between them.
type Lines = (Resource, usize);

/// What is appended first: keys and values, the rotation, and the weights and eps of the norms before it.
#[derive(Clone, Copy)]
struct Turn<'a> {
    new: [Lines; 2],
    spec: &'a RopeSpec,
    angles: (usize, usize),
    norms: Option<([Resource; 2], f32)>,
}

impl Lowering<'_> {
    pub(super) fn attention(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        made: &Made,
        spec: &AttentionSpec,
        rotation: Option<(&RopeSpec, Option<f32>)>,
    ) -> Result<()> {
        let at = |place: &Place| (slot(place), stride(place));
        if let [q] = &step.inputs[..] {
            self.attend(op, made, spec, at(&place(q)?));
            return Ok(());
        }
        let [q, k, v] = [place(&step.inputs[0])?, place(&step.inputs[1])?, place(&step.inputs[2])?];
        let new = [at(&k), at(&v)];
        let Some((rope, norm)) = rotation else {
            self.append(op, When::Always, spec, new);
            self.attend(op, made, spec, at(&q));
            return Ok(());
        };
        let norms = match norm {
            Some(eps) => Some(([self.vector_resource(&step.inputs[4])?, self.vector_resource(&step.inputs[5])?], eps)),
            None => None,
        };
        let turn = Turn { new, spec: rope, angles: self.angles(&step.inputs[3])?, norms };
        let fuses = self.few && fuses(self.traits, spec, self.cache.cache_type);
        if fuses {
            self.step_kernels(op, [When::SingleWithinSpan, When::SingleBeyondSpan], made, spec, at(&q), Some(turn));
        }
        let when = if fuses { When::Several } else { When::Always };
        let turned = [q, k].map(|x| (x, stride(&x)));
        let turned = [(0, turned[0]), (1, turned[1])].map(|(number, (x, stride))| {
            let to = Resource::Temp(number);
            let norm = turn.norms.map(|(weights, eps)| (weights[number], eps));
            let kernel = self.heads(&x, Rows::Tokens, to, stride, spec.head_dim, norm, Some((rope, turn.angles)));
            self.push_when(op, when, kernel);
            (to, stride)
        });
        self.append(op, when, spec, [turned[1], new[1]]);
        if fuses {
            self.step_kernels(op, [When::SeveralWithinSpan, When::SeveralBeyondSpan], made, spec, turned[0], None);
        } else {
            self.attend(op, made, spec, turned[0]);
        }
        self.convert_result(op, made, spec);
        Ok(())
    }

    /// Attention over keys and values that are all in the cache.
    fn attend(&mut self, op: &'static str, made: &Made, spec: &AttentionSpec, q: Lines) {
        if self.few {
            self.step_kernels(op, [When::WithinSpan, When::BeyondSpan], made, spec, q, None);
        } else {
            let kernel = self.prefill_kernel(made, spec, q);
            self.push(op, kernel);
        }
        self.convert_result(op, made, spec);
    }

    fn convert_result(&mut self, op: &'static str, made: &Made, spec: &AttentionSpec) {
        if !(self.few && emits(made, spec)) {
            self.convert(op, made);
        }
    }

    /// What kernels are told of a layer's cache.
    fn of_cache(&self, spec: &AttentionSpec) -> Value {
        let dim = padded(spec.head_dim);
        let codes = 2 * spec.kv_heads * PAGE_POSITIONS * dim;
        let (name, page_words, scales_at) = match self.cache.cache_type {
            CacheType::F32 => ("f32", codes, 0),
            CacheType::F16 => ("f16", codes / 2, 0),
            CacheType::Q8_0 => ("q8_0", codes / 32 * 34 / 4, codes / 4),
        };
        json!({
            "cache": name, "per_word": tiles::per_word(self.cache.cache_type), "page_words": page_words, "scales_at": scales_at,
            "table": self.cache.layers[spec.layer].group, "tables": self.cache.groups.len(),
            "heads": spec.heads, "kv_heads": spec.kv_heads, "head_dim": spec.head_dim, "dim": dim,
            "scale": float(spec.scores.scale), "window": spec.scores.window, "lowest": LOWEST,
        })
    }

    fn append(&mut self, op: &'static str, when: When, spec: &AttentionSpec, [k, v]: [Lines; 2]) {
        let values = json!({ "k_stride": k.1, "v_stride": v.1 });
        let kernel = Kernel {
            template: "append",
            values: with(with(self.common(64), self.of_cache(spec)), values),
            bindings: vec![
                reads("k", "f32", k.0),
                reads("v", "f32", v.0),
                writes("cache", "u32", Resource::Cache(spec.layer)),
            ],
            groups: [Count::Quads, Count::Fixed(spec.kv_heads), Count::Fixed(1)],
        };
        self.push_when(op, when, kernel);
    }

    /// The kernels for single tokens, within a span and beyond it.
    fn step_kernels(
        &mut self,
        op: &'static str,
        [within, beyond]: [When; 2],
        made: &Made,
        spec: &AttentionSpec,
        q: Lines,
        turn: Option<Turn<'_>>,
    ) {
        let whole = self.step_kernel(made, spec, q, turn, false);
        self.push_when(op, within, whole);
        let split = self.step_kernel(made, spec, q, turn, true);
        self.push_when(op, beyond, split);
        let combine = self.combine_kernel(made, spec);
        self.push_when(op, beyond, combine);
    }

    fn step_kernel(&self, made: &Made, spec: &AttentionSpec, q: Lines, turn: Option<Turn<'_>>, split: bool) -> Kernel {
        let group_heads = spec.heads / spec.kv_heads;
        // Within a span there is work for few processors, so that each head has its own; beyond it keys and values are
        // read once for several.
        let lanes = match group_heads {
            _ if !split => 1,
            1 | 2 => group_heads,
            _ => 4,
        };
        let span = if split { SPLIT } else { self.layout.span };
        let chunks = group_heads.div_ceil(lanes);
        let dim = padded(spec.head_dim);
        let per_word = tiles::per_word(self.cache.cache_type);
        let workgroup = tiles::step_workgroup(self.traits, split, span / per_word, per_word * lanes);
        let words = dim / per_word;
        let words_at_once = words.min(workgroup);
        // A power of two, so that a batch of positions lies in whole pages or in one.
        let groups = 1 << (workgroup / words_at_once).ilog2();
        // Loads under way together: many of few invocations, fewer of many.
        let at_once = if split { 16 } else { 8 };
        let emits = emits(made, spec) && !split;
        let (result, element) = match (split, emits) {
            (true, _) => (Resource::Parts, "f32"),
            (false, true) => (Resource::Codes(made.place.slot.index()), "u32"),
            (false, false) => (slot(&made.place), "f32"),
        };
        let cache = Resource::Cache(spec.layer);
        let mut bindings = vec![reads("q", "f32", q.0)];
        bindings.push(if turn.is_some() { writes("cache", "u32", cache) } else { reads("cache", "u32", cache) });
        bindings.push(writes(if emits { "y_codes" } else { "y" }, element, result));
        let heads = if lanes == 1 { "f32".into() } else { format!("vec{lanes}<f32>") };
        let mut reduced = vec![json!({ "name": "heads", "wgsl": &heads })];
        let mut values = json!({
            "fused": turn.is_some(), "split": split, "emits": emits,
            "lanes": lanes, "chunks": chunks, "group_heads": group_heads,
            "words": words, "words_at_once": words_at_once, "passes": words.div_ceil(words_at_once), "groups": groups,
            "at_once": at_once, "values_at_once": at_once.min(span / groups),
            "fewest_words": (workgroup * at_once / dim).next_power_of_two().clamp(1, span / per_word),
            "span": span, "shared": (workgroup * per_word).max(span).max(groups * dim), "emitting": dim,
            "q_stride": q.1, "out_stride": stride(&made.place),
            "out_blocks": made.place.shape.width / 32,
        });
        if let Some(turn) = turn {
            let [k, v] = turn.new;
            bindings.push(reads("k", "f32", k.0));
            bindings.push(reads("v", "f32", v.0));
            if let Some(([q_norm, k_norm], _)) = turn.norms {
                bindings.push(reads("q_norm", "f32", q_norm));
                bindings.push(reads("k_norm", "f32", k_norm));
                reduced.push(json!({ "name": "one", "wgsl": "f32" }));
            }
            let more = json!({
                "k_stride": k.1, "v_stride": v.1, "norm": turn.norms.is_some(), "eps": float(turn.norms.map_or(0.0, |(_, eps)| eps)),
                "reciprocal": float(1.0 / spec.head_dim as f32),
            });
            values = with(with(values, rotation(turn.spec, turn.angles)), more);
        }
        values = with(with(values, json!({ "reduced": reduced })), soft_cap(spec.scores.softcap, &heads));
        Kernel {
            template: "attention_step",
            values: with(with(self.common(workgroup as u32), self.of_cache(spec)), values),
            bindings,
            groups: [Count::Spans, Count::Fixed(spec.kv_heads * chunks), Count::Tokens(1)],
        }
    }

    fn combine_kernel(&self, made: &Made, spec: &AttentionSpec) -> Kernel {
        let emits = emits(made, spec);
        let (result, element) = match emits {
            true => (Resource::Codes(made.place.slot.index()), "u32"),
            false => (slot(&made.place), "f32"),
        };
        // A head's elements once at least: no adapter has fewer invocations than half of the longest heads.
        let dim = padded(spec.head_dim);
        let workgroup = ((8 * dim) as u32).next_power_of_two().min(self.traits.workgroup);
        let values = json!({
            "groups": workgroup as usize / dim, "at_once": 8,
            "emits": emits, "out_stride": stride(&made.place), "out_blocks": made.place.shape.width / 32,
            "span": SPLIT, "emitting": padded(spec.head_dim),
            "reduced": [{ "name": "one", "wgsl": "f32" }],
        });
        Kernel {
            template: "attention_combine",
            values: with(with(self.common(workgroup), self.of_cache(spec)), values),
            bindings: vec![
                reads("parts", "f32", Resource::Parts),
                writes(if emits { "y_codes" } else { "y" }, element, result),
            ],
            groups: [Count::Fixed(spec.heads), Count::Tokens(1), Count::Fixed(1)],
        }
    }

    fn prefill_kernel(&self, made: &Made, spec: &AttentionSpec, q: Lines) -> Kernel {
        let shape = tiles::prefill(self.traits, spec.head_dim, self.cache.cache_type);
        let values = json!({ "q_stride": q.1, "out_stride": stride(&made.place), "scale": spec.scores.scale });
        let values = with(values, soft_cap(spec.scores.softcap, "vec4<f32>"));
        let values = with(with(self.common(128), self.of_cache(spec)), with(shape.values(self.traits), values));
        // As many at a time as lie side by side.
        let elements = match (shape.with_matrices(), self.cache.cache_type) {
            (true, _) => ["vec4<f32>", "vec4<f16>", "vec4<f32>"],
            (false, cache) => {
                let four = match cache {
                    CacheType::F32 => "vec4<u32>",
                    CacheType::F16 => "vec2<u32>",
                    CacheType::Q8_0 => "u32",
                };
                [if spec.head_dim.is_multiple_of(4) { "vec4<f32>" } else { "f32" }, four, "f32"]
            }
        };
        Kernel {
            template: shape.template,
            values,
            bindings: vec![
                reads("q", elements[0], q.0),
                reads("kv", elements[1], Resource::Cache(spec.layer)),
                writes("out", elements[2], slot(&made.place)),
            ],
            groups: [Count::Blocks, Count::Fixed(spec.heads), Count::Fixed(1)],
        }
    }
}

/// Whether the kernel for single tokens makes their keys and values too: it has an invocation for each element then.
pub(in crate::backend::webgpu) fn fuses(traits: &Traits, spec: &AttentionSpec, cache: CacheType) -> bool {
    cache != CacheType::Q8_0 && padded(spec.head_dim) <= (traits.workgroup as usize).min(tiles::SPLIT_WORKGROUP)
}

/// Whether the result is written in 8 bits alone: blocks must not straddle heads.
fn emits(made: &Made, spec: &AttentionSpec) -> bool {
    made.forms == Forms::from([Form::Codes]) && spec.head_dim.is_multiple_of(32)
}

/// A head's elements in the cache, as [`CacheType::row_bytes`] has them.
fn padded(head_dim: usize) -> usize {
    head_dim.next_multiple_of(16)
}
