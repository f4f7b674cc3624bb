//! Lowers attention. For single tokens, one kernel norms and rotates heads, appends the keys and
//! values, and attends; in runs of several tokens, another kernel appends before.

use super::{Command, Form, Forms, GEMV_ROWS, GpuLowering, OutputForms, place, stride, strided};
use crate::{
    Result,
    backend::webgpu::{
        context::Traits,
        kernel::{Kernel, Resource, StepCondition, Workgroups},
        kernels::{
            Append, AttentionCombine, AttentionOutput, AttentionPrefill, AttentionPrefillCoop, AttentionStep,
            BoundBuffer, CacheShape, F32, FEWEST_TOKENS, HeadNorms, KeyRotation, NewToken, Norm, NormedRotation,
            PagedCache, RowCount, SeenRange, StepShape, Strided, padded,
        },
        step::SPLIT,
        tiles::{self, PrefillShape},
    },
    graph::{AttentionSpec, RopeSpec, Rows, Sees},
    kv_cache::CacheType,
    plan::PlanStep,
};

/// The rotation before attention and the epsilon of the norms before the rotation, if the op has
/// them.
type FusedRotation<'a> = Option<(&'a RopeSpec, Option<f32>)>;

/// An attention op that is being lowered.
struct AttentionOp<'a> {
    op: &'static str,
    output: &'a OutputForms,
    spec: &'a AttentionSpec,
    /// The buffer of the sinks, if there are any.
    sinks: Option<BoundBuffer>,
}

/// The conditions of steps with a token whose positions are not split, and of steps with a token
/// whose positions are.
struct Splits {
    without: StepCondition,
    with: StepCondition,
}

impl GpuLowering<'_> {
    pub(super) fn attention(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: &AttentionSpec,
        rotation: FusedRotation<'_>,
    ) -> Result<()> {
        let sinks = step.inputs.get(3).filter(|_| rotation.is_none());
        let sinks = sinks.map(|sinks| self.vector_resource(sinks)).transpose()?.map(BoundBuffer);
        let layer = AttentionOp { op, output, spec, sinks };
        if let [q] = &step.inputs[..] {
            self.attend(&layer, strided(&place(q)?));
            return Ok(());
        }
        let (k, others) = (&step.inputs[1], &step.inputs[2..]);
        // Keys that are values too stand for these.
        let v = if spec.keys_only { k } else { others.first().unwrap_or(k) };
        let [q, k, v] = [place(&step.inputs[0])?, place(k)?, place(v)?];
        let [k, v] = [strided(&k), strided(&v)];
        let Some((rope, norm)) = rotation else {
            self.append(&layer, StepCondition::Always, k, v, None);
            self.attend(&layer, strided(&q));
            return Ok(());
        };
        let rotation = self.rotation(rope, &step.inputs[3])?;
        let norms = match norm {
            Some(eps) => Some(HeadNorms {
                eps: F32(eps),
                reciprocal: F32(1.0 / spec.head_dim as f32),
                q: self.vector_resource(&step.inputs[4])?,
                k: self.vector_resource(&step.inputs[5])?,
            }),
            None => None,
        };
        let norm_of = |weight: fn(HeadNorms) -> Resource| Some(Norm::new(spec.head_dim, norm?, weight(norms?)));
        let of_keys = KeyRotation { norm: norm_of(|norms| norms.k), rotation, records: self.records() };
        let new = |appends| NewToken { k, v, appends, before: NormedRotation { norms, rotation } };
        let fuses = self.has_step_kernels(spec) && fuses(self.traits, spec, self.cache.cache_type);
        if fuses {
            let splits = Splits { without: StepCondition::SingleUnsplit, with: StepCondition::SingleSplit };
            self.step_kernels(&layer, &splits, strided(&q), Some(new(true)));
        }
        let condition = if fuses { StepCondition::Several } else { StepCondition::Always };
        self.append(&layer, condition, k, v, Some(of_keys));
        if fuses && self.is_few() {
            // The kernel of single tokens, so that a token's result is the same in every run. It
            // norms and rotates the token's own key again.
            let splits = Splits { without: StepCondition::SeveralUnsplit, with: StepCondition::SeveralSplit };
            self.step_kernels(&layer, &splits, strided(&q), Some(new(false)));
            self.convert_result(&layer);
            return Ok(());
        }
        let rotated_q = Strided { stride: stride(&q), rows: Resource::Temp(0) };
        let kernel = self.heads(&q, Rows::Tokens, rotated_q, spec.head_dim, norm_of(|norms| norms.q), Some(rotation));
        self.push_if(op, condition, kernel);
        if fuses {
            let kernel = self.prefill_kernel(&layer, rotated_q);
            self.push_if(op, condition, kernel);
            self.convert_result(&layer);
        } else {
            self.attend(&layer, rotated_q);
        }
        Ok(())
    }

    /// Pushes the kernels that attend to keys and values in the cache.
    fn attend(&mut self, layer: &AttentionOp<'_>, q: Strided) {
        if self.is_few() {
            let splits = Splits { without: StepCondition::Unsplit, with: StepCondition::Split };
            self.step_kernels(layer, &splits, q, None);
        } else if self.has_step_kernels(layer.spec) {
            let splits = Splits { without: StepCondition::SingleUnsplit, with: StepCondition::SingleSplit };
            self.step_kernels(layer, &splits, q, None);
            let kernel = self.prefill_kernel(layer, q);
            self.push_if(layer.op, StepCondition::Several, kernel);
        } else {
            let kernel = self.prefill_kernel(layer, q);
            self.push(layer.op, kernel);
        }
        self.convert_result(layer);
    }

    /// Returns whether steps whose runs all have one token attend with the kernels for single
    /// tokens, which see no later position.
    fn has_step_kernels(&self, spec: &AttentionSpec) -> bool {
        self.is_few() || matches!(spec.scores.sees, Sees::Past | Sees::PastAndSpan)
    }

    fn convert_result(&mut self, layer: &AttentionOp<'_>) {
        if !(self.is_few() && writes_q8(layer.output, layer.spec)) {
            self.convert(layer.op, layer.output);
        }
    }

    fn paged_cache(&self, spec: &AttentionSpec) -> PagedCache {
        let shape = CacheShape {
            cache_type: self.cache.cache_type,
            layer: spec.layer,
            table: self.cache.layers[spec.layer].group,
            tables: self.cache.groups.len(),
            kv_heads: spec.kv_heads,
            head_dim: spec.head_dim,
            keys_only: spec.keys_only,
        };
        shape.into()
    }

    fn append(
        &mut self,
        layer: &AttentionOp<'_>,
        condition: StepCondition,
        k: Strided,
        v: Strided,
        before: Option<KeyRotation>,
    ) {
        let append = Append {
            workgroup: self.head_workgroup(layer.spec.head_dim).max(64),
            subgroup: self.traits.subgroup,
            cache: self.paged_cache(layer.spec),
            append_ranges_at: self.layout.append_ranges_at(),
            k,
            v,
            before,
        };
        let groups = [Workgroups::AppendRanges, Workgroups::Fixed(layer.spec.kv_heads), Workgroups::Fixed(1)];
        self.push_if(layer.op, condition, Kernel::new(append, groups));
    }

    /// Pushes the kernels for single tokens: one for tokens without splits, and two for tokens with
    /// splits. The number of a token's own positions decides, so that a token's result does not
    /// depend on other tokens.
    fn step_kernels(&mut self, layer: &AttentionOp<'_>, splits: &Splits, q: Strided, new: Option<NewToken>) {
        let output = attention_output(layer);
        let most = if self.is_few() { GEMV_ROWS } else { usize::MAX };
        let limits: &[usize] = if self.is_few() { &[FEWEST_TOKENS] } else { &[] };
        let tokens = limits.iter().copied().chain([most]);
        let variants = tokens.map(|tokens| self.step_kernel(layer, q, new, Some(output), tokens)).collect();
        self.commands.push(Command {
            op: layer.op,
            step: self.step,
            condition: splits.without,
            variants,
            variant_limits: limits.to_vec(),
            variant_rows: RowCount::Tokens,
        });
        let split = self.step_kernel(layer, q, new, None, most);
        self.push_if(layer.op, splits.with, split);
        let combine = self.combine_kernel(layer, output);
        self.push_if(layer.op, splits.with, combine);
    }

    fn step_kernel(
        &self,
        layer: &AttentionOp<'_>,
        q: Strided,
        new: Option<NewToken>,
        output: Option<AttentionOutput>,
        tokens: usize,
    ) -> Kernel {
        let spec = layer.spec;
        let cache = self.paged_cache(spec);
        let unsplit_positions = self.layout.unsplit_positions;
        let unsplit = output.map(|_| unsplit_positions);
        let shape = StepShape::new(self.traits, &cache, spec.heads / spec.kv_heads, unsplit, tokens);
        let step = AttentionStep {
            shape,
            unsplit_positions,
            subgroup: self.traits.subgroup,
            cache,
            heads: spec.heads,
            scores: spec.scores.into(),
            records: self.records(),
            tables_at: self.layout.tables_at(),
            sinks: layer.sinks,
            q,
            output,
            new,
        };
        let splits = if output.is_some() { Workgroups::Fixed(1) } else { Workgroups::Splits };
        Kernel::new(step, [splits, Workgroups::Fixed(spec.kv_heads * shape.chunks), Workgroups::Tokens(1)])
    }

    fn combine_kernel(&self, layer: &AttentionOp<'_>, output: AttentionOutput) -> Kernel {
        let spec = layer.spec;
        // At least one invocation for each element of a head: `prepare::check_heads` has checked
        // that the adapter's workgroups are that large.
        let dim = padded(spec.head_dim);
        let workgroup = ((8 * dim) as u32).next_power_of_two().min(self.traits.workgroup);
        let combine = AttentionCombine {
            workgroup,
            subgroup: self.traits.subgroup,
            heads: spec.heads,
            head_dim: spec.head_dim,
            dim,
            window: spec.scores.window.map(Into::into),
            unsplit_positions: self.layout.unsplit_positions,
            split: SPLIT,
            groups: workgroup as usize / dim,
            at_once: 8,
            records: self.records(),
            sinks: layer.sinks,
            output,
        };
        Kernel::new(combine, [Workgroups::Fixed(spec.heads), Workgroups::Tokens(1), Workgroups::Fixed(1)])
    }

    fn prefill_kernel(&self, layer: &AttentionOp<'_>, q: Strided) -> Kernel {
        let spec = layer.spec;
        let (cache, heads, scores) = (self.paged_cache(spec), spec.heads, spec.scores.into());
        let (query_blocks_at, y) = (self.layout.query_blocks_at(), strided(&layer.output.place));
        let (seen_range, records) = (self.seen_range(spec), self.records());
        let groups = [Workgroups::QueryBlocks, Workgroups::Fixed(spec.heads), Workgroups::Fixed(1)];
        match tiles::prefill(self.traits, spec, self.cache.cache_type) {
            PrefillShape::Plain { threads, block } => {
                let prefill = AttentionPrefill {
                    threads,
                    block,
                    query_blocks_at,
                    cache,
                    heads,
                    scores,
                    seen_range,
                    records,
                    sinks: layer.sinks,
                    q,
                    y,
                };
                Kernel::new(prefill, groups)
            }
            PrefillShape::Coop { block, tile, subgroup_size } => {
                let prefill = AttentionPrefillCoop {
                    block,
                    tile,
                    subgroup_size,
                    query_blocks_at,
                    cache,
                    heads,
                    scores,
                    seen_range,
                    records,
                    sinks: layer.sinks,
                    q,
                    y,
                };
                Kernel::new(prefill, groups)
            }
        }
    }

    /// Returns the place of the positions that tokens see, if these do not end with their own.
    fn seen_range(&self, spec: &AttentionSpec) -> Option<SeenRange> {
        let spans_at = self.layout.spans_at();
        match spec.scores.sees {
            Sees::Past => None,
            Sees::PastAndSpan => Some(SeenRange { at: spans_at, past: true }),
            Sees::Span => Some(SeenRange { at: spans_at, past: false }),
            // The run's positions follow the span's.
            Sees::Run => Some(SeenRange { at: spans_at + 2, past: false }),
        }
    }
}

/// Returns the output of the kernels for single tokens.
fn attention_output(layer: &AttentionOp<'_>) -> AttentionOutput {
    let place = &layer.output.place;
    if writes_q8(layer.output, layer.spec) {
        AttentionOutput::Q8 { blocks: place.shape.width / 32, rows: Resource::Q8(place.slot.index()) }
    } else {
        let Strided { stride, rows } = strided(place);
        AttentionOutput::F32 { stride, rows }
    }
}

/// Returns whether the kernel for single tokens can also rotate and append their keys and values,
/// which takes an invocation for each element of a head.
pub(in crate::backend::webgpu) fn fuses(traits: &Traits, spec: &AttentionSpec, cache: CacheType) -> bool {
    cache != CacheType::Q8_0 && padded(spec.head_dim) <= (traits.workgroup as usize).min(tiles::SPLIT_WORKGROUP)
}

/// Returns whether the kernels write the result as int8 and not as f32. Blocks of int8 must not
/// straddle heads.
fn writes_q8(output: &OutputForms, spec: &AttentionSpec) -> bool {
    output.forms == Forms::from([Form::Q8]) && spec.head_dim.is_multiple_of(32)
}
