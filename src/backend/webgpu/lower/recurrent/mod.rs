//! Lowers recurrent ops.
//!
//! A convolution reads the state at the start of a run, so the chunks of a run are computed in
//! parallel. A gated delta rule updates its state token by token, in registers, or chunk by chunk
//! in long runs, with products of matrices.

mod chunked;

pub(in crate::backend::webgpu) use chunked::MIX;

use super::{GpuLowering, OutputForms, place, strided};
use crate::{
    Result,
    backend::webgpu::{
        kernel::{Kernel, Resource, Workgroups},
        kernels::{BoundBuffer, Delta, GatedDeltaKernel, RunTable, ShortConv, StateScanKernel},
    },
    graph::{ConvSpec, DeltaSpec, ScanSpec},
    plan::PlanStep,
};

const WORKGROUP: usize = 64;
/// Approximate number of inputs of a channel that an invocation of a convolution has in registers:
/// `kernel` inputs for each of up to 8 tokens that are loaded at the same time.
const CONV_REGISTERS: usize = 32;

impl GpuLowering<'_> {
    pub(super) fn short_conv(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: &ConvSpec,
    ) -> Result<()> {
        let x = place(&step.inputs[0])?;
        let weights = self.vector_resource(&step.inputs[1])?;
        let bias = step.inputs.get(2).map(|bias| self.vector_resource(bias)).transpose()?;
        let conv = ShortConv {
            workgroup: WORKGROUP,
            chunked: !self.is_few(),
            channels: spec.channels,
            taps: spec.kernel,
            silu: spec.silu,
            at_once: (CONV_REGISTERS / spec.kernel).clamp(1, 8),
            runs: self.runs(),
            state: self.state_elements(spec.state),
            x: strided(&x),
            y: strided(&output.place),
            weights,
            bias: bias.map(BoundBuffer),
            states: Resource::State(spec.state),
        };
        let pieces = if self.is_few() { Workgroups::Runs } else { Workgroups::Chunks };
        let groups = [Workgroups::Fixed(spec.channels.div_ceil(WORKGROUP)), pieces, Workgroups::Fixed(1)];
        self.push(op, Kernel::new(conv, groups));
        self.convert(op, output);
        Ok(())
    }

    pub(super) fn gated_delta(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: &DeltaSpec,
    ) -> Result<()> {
        let [qkv, alpha, beta] = [place(&step.inputs[0])?, place(&step.inputs[1])?, place(&step.inputs[2])?];
        let [a, dt] = [self.vector_resource(&step.inputs[3])?, self.vector_resource(&step.inputs[4])?];
        let gates = [strided(&alpha), strided(&beta)];
        let delta = Delta::new(spec, strided(&qkv), gates, [a, dt], strided(&output.place));
        let chunked = if self.is_few() { None } else { self.chunked(spec, delta) };
        let kernel = self.by_token(spec, delta, chunked.is_some());
        self.push(op, kernel);
        chunked.into_iter().flatten().for_each(|kernel| self.push(op, kernel));
        self.convert(op, output);
        Ok(())
    }

    /// Returns the kernel that updates the state token by token, in all runs, or with `after_long`
    /// in the runs that are not long.
    fn by_token(&self, spec: &DeltaSpec, delta: Delta, after_long: bool) -> Kernel {
        let DeltaSpec { state, value_heads, head_dim, .. } = *spec;
        // Each invocation of a column has whole vectors of four elements.
        let lanes = lanes(head_dim);
        let columns = WORKGROUP / lanes;
        let kernel = GatedDeltaKernel {
            workgroup: WORKGROUP,
            lanes,
            after_long,
            shuffles: self.traits.subgroup.is_some_and(|least| least as usize >= lanes),
            delta,
            runs: self.runs(),
            state: self.state_elements(state),
            states: Resource::State(state),
        };
        let runs = if after_long { Workgroups::ShortRuns } else { Workgroups::Runs };
        Kernel::new(kernel, [Workgroups::Fixed(value_heads * head_dim / columns), runs, Workgroups::Fixed(1)])
    }

    pub(super) fn state_scan(
        &mut self,
        op: &'static str,
        step: &PlanStep,
        output: &OutputForms,
        spec: &ScanSpec,
    ) -> Result<()> {
        let [x, dt] = [place(&step.inputs[0])?, place(&step.inputs[1])?];
        let [a, bias, d] = [2, 3, 4].map(|index| self.vector_resource(&step.inputs[index]));
        // Each invocation of a row has whole vectors of four elements.
        let lanes = lanes(spec.size);
        let kernel = StateScanKernel {
            workgroup: WORKGROUP,
            lanes,
            shuffles: self.traits.subgroup.is_some_and(|least| least as usize >= lanes),
            scan: spec.into(),
            runs: self.runs(),
            state: self.state_elements(spec.state),
            x: strided(&x),
            dt: strided(&dt),
            y: strided(&output.place),
            rows: [a?, bias?, d?],
            states: Resource::State(spec.state),
        };
        let rows = spec.heads * spec.head_dim / (WORKGROUP / lanes);
        self.push(op, Kernel::new(kernel, [Workgroups::Fixed(rows), Workgroups::Runs, Workgroups::Fixed(1)]));
        self.convert(op, output);
        Ok(())
    }

    fn runs(&self) -> RunTable {
        self.layout.into()
    }

    /// Returns the elements of a state.
    fn state_elements(&self, number: usize) -> usize {
        let state = self.cache.states[number];
        state.rows * state.width
    }
}

/// Returns the invocations that share `elements` elements, a multiple of 16.
fn lanes(elements: usize) -> usize {
    if (elements / 4).is_multiple_of(8) { 8 } else { 4 }
}
