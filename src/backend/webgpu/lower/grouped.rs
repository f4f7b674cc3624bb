//! Experts in steps of many rows: every expert's rows together, in tiles, so that its matrices are read once for all.
//!
//! What an expert makes of a row lies in a slot, the slots of one expert side by side. Tiles of slots are multiplied as
//! tiles of tokens are otherwise.

use serde_json::{Value, json};

use super::{
    Form, Forms, Lowering, Made, count,
    experts::Stacked,
    function,
    product::{Part, count_at},
    rows::Target,
    slot, stride, with,
};
use crate::{
    backend::webgpu::{
        kernel::{Bound, Count, Kernel, Resource, reads, writes},
        tiles::{self, Tile},
    },
    graph::{ExpertsSpec, Rows},
    plan::Place,
    quant::UNIT,
};

/// The most workgroups along a dimension.
const MOST_GROUPS: usize = 65_535;
const WORKGROUP: u32 = 256;

/// Rows that a product reads, in the forms that they may have.
struct Input {
    plain: Resource,
    half: [Resource; 2],
    stride: usize,
    width: usize,
    /// Whether they are the tokens', not the slots'.
    gathers: bool,
}

/// A layer of experts in a step of many rows.
pub(super) struct Grouped<'a> {
    pub op: &'static str,
    pub spec: ExpertsSpec,
    pub x: &'a Place,
    /// The list of who takes what.
    pub taken: Resource,
    /// Gate, up and down.
    pub stacks: &'a [Stacked],
}

impl Lowering<'_> {
    /// Whether steps of these rows group them by expert.
    pub(super) fn groups(&self, rows: Rows, used: usize) -> bool {
        !self.is_few(rows) && self.layout.max_tokens.saturating_mul(used) <= MOST_GROUPS
    }

    pub(super) fn grouped(&mut self, layer: &Grouped<'_>, made: &Made) {
        let Grouped { op, spec, x, stacks, .. } = *layer;
        let ffn = stacks[0].rows;
        let between = ffn.next_multiple_of(64);
        let number = x.slot.index();
        let tokens = Input {
            plain: slot(x),
            half: [Resource::Half(number), Resource::HalfScale(number)],
            stride: stride(x),
            width: x.shape.width,
            gathers: true,
        };
        let slots = Input {
            plain: Resource::Slots(0),
            half: [Resource::SlotHalf, Resource::SlotHalfScale],
            stride: between,
            width: ffn,
            gathers: false,
        };
        let kernel = self.grouping(layer);
        self.push(op, kernel);
        let outs = [Resource::Slots(0), Resource::Slots(1)];
        self.slots_products(layer, &stacks[..2], &tokens, &outs, between);
        let form = self.form_for(&stacks[2].matrix, x.shape.rows);
        let kernel = self.gated(layer, form, between);
        self.push(op, kernel);
        self.slots_products(layer, &stacks[2..], &slots, &[Resource::Slots(1)], stride(&made.place));
        let values = json!({
            "workgroup": 64, "width": made.place.shape.width, "used": spec.top_k,
            "x_stride": stride(&made.place), "y_stride": stride(&made.place),
        });
        let bindings = vec![
            reads("taken", "vec2<u32>", layer.taken),
            reads("slot_of", "u32", Resource::SlotOf),
            reads("results", "f32", Resource::Slots(1)),
            writes("y", "f32", slot(&made.place)),
        ];
        let groups = [Count::Fixed(made.place.shape.width.div_ceil(64)), count(x.shape.rows, 1), Count::Fixed(1)];
        self.push(op, Kernel { template: "combine", values, bindings, groups });
        self.convert(op, made);
    }

    /// The tile that both products of a layer are cut into: small, since an expert has few rows.
    fn slots_tile(&self, form: Form, columns: usize) -> Tile {
        tiles::choose(self.traits, form == Form::Half, 0, columns)
    }

    fn grouping(&self, layer: &Grouped<'_>) -> Kernel {
        let ExpertsSpec { experts, top_k: used, .. } = layer.spec;
        let values = json!({
            "workgroup": WORKGROUP.min(self.traits.workgroup), "experts": experts, "used": used,
            "tile": tiles::SLOTS, "count_at": count_at(layer.x.shape.rows),
        });
        let bindings = vec![
            reads("taken", "vec2<u32>", layer.taken),
            writes("slot_of", "u32", Resource::SlotOf),
            writes("token_of", "u32", Resource::TokenOf),
            writes("tiles", "vec4<u32>", Resource::Tiles),
        ];
        Kernel { template: "group", values, bindings, groups: [Count::Fixed(1); 3] }
    }

    /// Products of all slots with each of these stacks; those that read one form together.
    fn slots_products(
        &mut self,
        layer: &Grouped<'_>,
        stacks: &[Stacked],
        x: &Input,
        outs: &[Resource],
        out_stride: usize,
    ) {
        for form in [Form::Half, Form::Plain] {
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
        parts: &[(&Stacked, &Resource)],
        x: &Input,
        form: Form,
        out_stride: usize,
    ) -> Kernel {
        let ExpertsSpec { experts, top_k: used, .. } = layer.spec;
        let half = form == Form::Half;
        let tile = self.slots_tile(form, x.width);
        let mut bindings = match half {
            true => vec![reads("x", "vec4<f16>", x.half[0]), reads("x_scale", "f32", x.half[1])],
            false => vec![reads("x", "vec4<f32>", x.plain)],
        };
        bindings.push(reads("tiles", "vec4<u32>", Resource::Tiles));
        if x.gathers {
            bindings.push(reads("token_of", "u32", Resource::TokenOf));
        }
        let (values, blocks) = self.slots_parts(parts, &tile, out_stride, &mut bindings);
        Kernel {
            template: if half { "matmul_coop" } else { "matmul_tiled" },
            values: with(
                tile.values(self.traits),
                json!({
                    "parts": values, "columns": parts[0].0.matrix.units * UNIT, "x_stride": x.stride, "last": x.width,
                    "count_at": 0, "mixture": { "experts": experts, "gathers": x.gathers },
                }),
            ),
            bindings,
            groups: [
                Count::Tiles(layer.x.shape.rows, used, tile.tokens, experts),
                Count::Fixed(blocks),
                Count::Fixed(1),
            ],
        }
    }

    fn slots_parts(
        &self,
        parts: &[(&Stacked, &Resource)],
        tile: &Tile,
        out_stride: usize,
        bindings: &mut Vec<Bound>,
    ) -> (Vec<Value>, usize) {
        let (mut values, mut block) = (vec![], 0);
        for (number, (stack, out)) in parts.iter().enumerate() {
            let part = Part::of(&stack.matrix);
            values.push(with(
                with(self.part(number, &part), stack.values()),
                json!({ "first_block": block, "stride": out_stride, "add": false }),
            ));
            block += stack.rows.div_ceil(tile.rows);
            self.bind_part(bindings, number, &part);
            bindings.push(writes(&format!("out{number}"), "f32", **out));
        }
        (values, block)
    }

    /// What gate and up come to together, in the form in which down wants it.
    fn gated(&self, layer: &Grouped<'_>, form: Form, stride: usize) -> Kernel {
        let overwritten = form == Form::Plain;
        let values = json!({
            "source": "glu", "activation": function(layer.spec.activation),
            "a": if overwritten { "plain" } else { "a" }, "a_stride": stride, "b": "b", "b_stride": stride,
        });
        let mut bindings = vec![reads("b", "vec4<f32>", Resource::Slots(1))];
        if !overwritten {
            bindings.push(reads("a", "vec4<f32>", Resource::Slots(0)));
        }
        let target = Target {
            forms: &Forms::from([form]),
            plain: Resource::Slots(0),
            codes: Resource::SlotCodes,
            half: [Resource::SlotHalf, Resource::SlotHalfScale],
            width: layer.stacks[0].rows,
            stride,
            count: Count::Slots(layer.x.shape.rows, layer.spec.top_k),
        };
        self.rows_to(values, bindings, &target, None, None)
    }
}
