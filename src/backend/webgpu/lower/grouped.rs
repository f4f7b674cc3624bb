//! Lowers experts in steps of more than 16 rows: rows are grouped by expert, so that an expert's
//! matrices are read once for each tile of its rows.
//!
//! Each (row, expert) has a slot, and the slots of an expert are consecutive. Tiles of slots are
//! multiplied as other products multiply tiles of tokens.

use super::{
    Form, Forms, GpuLowering, OutputForms,
    experts::Stacked,
    rows::{RowOp, RowTarget},
    stride, strided, workgroups,
};
use crate::{
    backend::webgpu::{
        kernel::{Kernel, Resource, Workgroups},
        kernels::{
            Combine, F16Output, GroupKernel, MatrixPlanes, RowCount, Strided, TiledExperts, TiledPart, TiledProduct,
        },
        tiles::{self, ProductTile, TileRows},
    },
    graph::{ExpertsSpec, Rows},
    plan::Place,
    quant::UNIT,
};

/// Largest number of workgroups along a dimension, in WebGPU.
const MAX_WORKGROUPS: usize = 65_535;
const WORKGROUP: u32 = 256;

/// The rows that a product of experts reads.
struct ProductInput {
    /// The rows as f32.
    rows: Strided,
    /// The rows as f16, and the scale of each row.
    f16: [Resource; 2],
    /// Elements of a row.
    width: usize,
    /// Whether there is a row for each token, which slots gather, rather than a row for each slot.
    gathers: bool,
}

/// A layer of experts whose rows are grouped.
pub(super) struct Grouped<'a> {
    pub op: &'static str,
    pub spec: ExpertsSpec,
    pub x: &'a Place,
    /// The list of each row's active experts.
    pub selected: Resource,
    /// The matrices gate, up and down.
    pub stacks: &'a [Stacked],
}

impl GpuLowering<'_> {
    /// Returns whether these rows are grouped by expert.
    pub(super) fn groups(&self, rows: Rows, top_k: usize) -> bool {
        !self.is_gemv(rows) && self.layout.max_tokens.saturating_mul(top_k) <= MAX_WORKGROUPS
    }

    pub(super) fn grouped(&mut self, layer: &Grouped<'_>, output: &OutputForms) {
        let Grouped { op, spec, x, stacks, .. } = *layer;
        let ffn = stacks[0].rows;
        let between = Strided { stride: ffn.next_multiple_of(64), rows: Resource::Slots(0) };
        let number = x.slot.index();
        let tokens = ProductInput {
            rows: strided(x),
            f16: [Resource::F16(number), Resource::F16Scale(number)],
            width: x.shape.width,
            gathers: true,
        };
        let slots = ProductInput {
            rows: between,
            f16: [Resource::SlotF16, Resource::SlotF16Scale],
            width: ffn,
            gathers: false,
        };
        let kernel = self.grouping(layer);
        self.push(op, kernel);
        let outs = [Resource::Slots(0), Resource::Slots(1)];
        self.slots_products(layer, &stacks[..2], &tokens, &outs, between.stride);
        let form = self.form_for(&stacks[2].matrix, x.shape.rows);
        let kernel = self.gated(layer, form, between.stride);
        self.push(op, kernel);
        self.slots_products(layer, &stacks[2..], &slots, &[Resource::Slots(1)], stride(&output.place));
        let combine = Combine {
            workgroup: 64,
            width: output.place.shape.width,
            top_k: spec.top_k,
            results: Strided { stride: stride(&output.place), rows: Resource::Slots(1) },
            y: strided(&output.place),
            selected: layer.selected,
        };
        let groups = [
            Workgroups::Fixed(output.place.shape.width.div_ceil(64)),
            workgroups(x.shape.rows, 1),
            Workgroups::Fixed(1),
        ];
        self.push(op, Kernel::new(combine, groups));
        self.convert(op, output);
    }

    fn grouping(&self, layer: &Grouped<'_>) -> Kernel {
        let ExpertsSpec { experts, top_k, .. } = layer.spec;
        let group = GroupKernel {
            workgroup: WORKGROUP.min(self.traits.workgroup),
            experts,
            top_k,
            tile: tiles::SMALL_TILE_TOKENS,
            rows: layer.x.shape.rows.into(),
            selected: layer.selected,
        };
        Kernel::new(group, [Workgroups::Fixed(1); 3])
    }

    /// Pushes the products of all slots with these stacks. Stacks that read the same form share a
    /// kernel.
    fn slots_products(
        &mut self,
        layer: &Grouped<'_>,
        stacks: &[Stacked],
        x: &ProductInput,
        outs: &[Resource],
        out_stride: usize,
    ) {
        for form in [Form::F16, Form::F32] {
            let of_form = |stack: &Stacked| self.form_for(&stack.matrix, layer.x.shape.rows) == form;
            let parts: Vec<_> = stacks.iter().zip(outs).filter(|(stack, _)| of_form(stack)).collect();
            if !parts.is_empty() {
                let kernel = self.slots_product(layer, &parts, x, form, out_stride);
                self.push(layer.op, kernel);
            }
        }
    }

    fn slots_product(
        &self,
        layer: &Grouped<'_>,
        stacks: &[(&Stacked, &Resource)],
        x: &ProductInput,
        form: Form,
        out_stride: usize,
    ) -> Kernel {
        let ExpertsSpec { experts, top_k, .. } = layer.spec;
        // 0 rows select the small tile, because an expert has few slots.
        let (coop_tile, patch) = tiles::coop_tile(self.traits, 0, x.width, TileRows::Largest);
        let tile = if form == Form::F16 { coop_tile } else { tiles::tile(self.traits) };
        let (parts, blocks) = slots_parts(stacks, &tile, out_stride);
        let product = TiledProduct {
            tile,
            columns: stacks[0].0.matrix.units * UNIT,
            width: x.width,
            x_stride: x.rows.stride,
            heads: 1,
            rows: RowCount::Tokens,
            parts,
            experts: Some(TiledExperts { count: experts, gathers: x.gathers }),
        };
        let tiles = Workgroups::Tiles { rows: layer.x.shape.rows, top_k, tile: tile.tokens, experts };
        let groups = [tiles, Workgroups::Fixed(blocks), Workgroups::Fixed(1)];
        self.tiled(product, (form == Form::F16).then_some((patch, x.f16)), x.rows.rows, groups)
    }

    /// Returns the kernel of `activation(gate) * up`, written in the form that down reads.
    fn gated(&self, layer: &Grouped<'_>, form: Form, stride: usize) -> Kernel {
        let [gate, up] = [0, 1].map(|number| Strided { stride, rows: Resource::Slots(number) });
        let forms = Forms::from([form]);
        let target = RowTarget {
            forms: &forms,
            width: layer.stacks[0].rows,
            count: Workgroups::Slots { rows: layer.x.shape.rows, top_k: layer.spec.top_k },
            y: gate,
            y_q8: Resource::SlotQ8,
            y_f16: F16Output { stride, rows: Resource::SlotF16, scales: Resource::SlotF16Scale },
        };
        self.rows_to(RowOp::Glu(layer.spec.glu, [gate, up]), &target, None, None)
    }
}

/// Returns the parameters of the parts of a product of slots, and the number of workgroups of all
/// parts.
fn slots_parts(stacks: &[(&Stacked, &Resource)], tile: &ProductTile, out_stride: usize) -> (Vec<TiledPart>, usize) {
    let (mut parts, mut block) = (vec![], 0);
    for (number, (stacked, out)) in stacks.iter().enumerate() {
        parts.push(TiledPart {
            matrix: MatrixPlanes::new(number, &stacked.matrix, &stacked.matrix.parts[0]),
            rows: stacked.rows,
            stack: Some(stacked.stack),
            first_block: block,
            out_at: 0,
            out_stride,
            bias: stacked.biases.map(|(biases, _)| biases),
            bias_at: stacked.biases.map_or(0, |(_, at)| at),
            function: None,
            adds: false,
            out: **out,
        });
        block += stacked.rows.div_ceil(tile.rows);
    }
    (parts, block)
}
