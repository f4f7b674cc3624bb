// Computes products of up to 16 rows with packed matrices, y[t, n] = sum over k of x[t, k] w[n, k].
// The speed of memory limits them.
//
// A team of `shape.team` invocations multiplies `shape.rows` rows w at a time with up to `tokens`
// rows x. Quantized matrices are multiplied with rows of int8 (`shared/q8.wgsl`), float matrices
// with rows of f32. Rows x with a pending norm are multiplied by its weights already; the kernel
// divides their products by the root mean square.
//
// With experts, a matrix is the stack of all experts' matrices, and a slot is one active expert of
// a row x. The product with gate and up has a row of the result for each slot; the product with
// down sums the slots of a row, times their weights. A head of the rows x takes the place of an
// expert: it has its own matrix of a stack.
//
// Parameters (`MatMulFew`):
//   shape: GemvShape - the division of the work
//   shape.team: u32 - invocations that share a row w
//   shape.rows: u32 - rows w that a team computes at a time
//   shape.passes: u32 - number of times that a team computes `shape.rows` rows
//   shape.unrolled: u32 - units of a row w that an invocation reads ahead
//   shape.workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   tokens: u32 - rows x that a workgroup multiplies
//   rows: RowCount - "tokens" or "outputs": the number of rows x
//   columns: u32 - elements of a row x, or of each head of it
//   heads: u32 - number of heads of a row x; 1 for whole rows
//   x_q8: Q8Input? - the rows x as int8, if a matrix is quantized or the rows lack a norm
//   x_q8.norm: PendingNorm? - the norm that is not complete in the rows
//   x_q8.norm.eps: F32 - added to the mean square
//   x_q8.norm.reciprocal: F32 - 1 / the elements of a row
//   x_stride: u32 - elements from row to row of `x_f32`
//   parts: GemvPart[] - the matrices w
//   parts[].matrix: MatrixPlanes - the matrix
//   parts[].rows: u32 - rows of the part, or of the matrix of each expert or head
//   parts[].stack: ExpertStack? - the rows of each expert or head
//   parts[].first_block: u32 - the first workgroup of the part
//   parts[].end_block: u32 - the workgroup after the last of the part
//   parts[].out_at: u32 - the first column of the result that the part computes
//   parts[].out_stride: u32 - elements from row to row of the result
//   parts[].out: BoundBuffer? - the result, if f32 is written
//   parts[].bias_at: u32 - the first of the part's elements in `expert_biases`, `[experts, rows]`
//   tables: SharedTable[] - the tables that a workgroup copies to its memory first
//   tables[].name: str - the name of the array
//   tables[].number: u32 - the number of a matrix that the table follows
//   tables[].at: u32 - the first word of the table, in the words of that matrix
//   tables[].words: u32 - the number of words
//   finish: Finish - the last operation on the products
//   finish.kind: str - "store": stores the products; "add_in_place": adds them to `out0`; "add":
//     adds them to `residual`; "glu": multiplies the product of the first part, after an
//     activation, with the product of the second
//   finish.stride: u32 - elements from row to row of `residual` ("add")
//   finish.function: GluFunction - the activation, or "clamped_glu" ("glu")
//   biases: BoundBuffer? - the biases of experts, if there are any
//   y_q8: Q8Output? - the int8 result; a workgroup then computes 32 rows w
//   y_q8.blocks: u32 - blocks of a row
//   y_q8.norm: BoundBuffer? - the weights that the result is multiplied by
//   y_q8.floats: Strided? - the same result before it is rounded
//   experts: GemvExperts? - the experts
//   experts.count: u32 - number of experts in the layer
//   experts.top_k: u32 - largest number of active experts of a row
//   experts.sums: bool - whether the slots of a row are summed
//
// Buffers:
//   selected: vec2<u32> - the expert and the bits of its weight, `[rows, top_k]`
//   x_q8: vec4<u32>
//   x_f32: vec4<f32>
//   wide{n}: vec4<u32> - the planes of a matrix
//   small{n}: u32 - the planes of a matrix, word by word
//   residual: f32
//   out{n}: f32, written
//   norm: f32
//   y: f32, written
//   y_q8: u32, written
//   expert_biases: f32

{% from "matmul_few/multiply" import multiply %}
{% from "shared/entry" import entry, index %}
{% from "shared/q8" import write_q8 %}
{% from "shared/row_count" import row_count %}
{% from "shared/stack" import stack_row %}
{% set team = shape.team %}
{% set team_rows = shape.rows %}
{% set group_rows = shape.workgroup // team * team_rows * shape.passes %}
{% set x_norm = x_q8.norm if x_q8 else none %}
{% set glu = finish.kind == "glu" %}
{% set is_one_product = glu or parts | length == 1 %}
{% include "shared/bindings" %}
{% include "shared/units" %}
{% if glu %}
{% include "shared/activations" %}
{% endif %}
{% if y_q8 %}
{{ write_q8(y_q8.blocks, 32 * tokens, subgroup) }}
{% endif %}

{% if not subgroup %}
var<workgroup> lanes: array<f32, {{shape.workgroup}}>;
{% endif %}
{% if y_q8 %}
var<workgroup> results: array<f32, {{32 * tokens}}>;
{% endif %}

// The sum over a team, for all of it.
fn team_sum(value: f32, local: u32) -> f32 {
    {% if subgroup %}
    var sum = value;
    {% for shift in [1, 2, 4, 8, 16] if shift < team %}
    sum += subgroupShuffleXor(sum, {{shift}}u);
    {% endfor %}
    return sum;
    {% else %}
    workgroupBarrier();
    lanes[local] = value;
    workgroupBarrier();
    var sum = 0.0;
    for (var i = 0u; i < {{team}}u; i++) {
        sum += lanes[local / {{team}}u * {{team}}u + i];
    }
    return sum;
    {% endif %}
}

{% for table in tables %}
var<workgroup> {{table.name}}: array<u32, {{table.words}}>;
{% endfor %}

// By row w, then by row x.
struct Sums {
    {% for n in range(team_rows * (2 if glu else 1)) %}{% for t in range(tokens) %}
    s{{n}}_{{t}}: f32,
    {% endfor %}{% endfor %}
    {% if x_norm %}{% for t in range(tokens) %}squares{{t}}: f32,{% endfor %}{% endif %}
}

{% for part in parts %}
{% set matrix = part.matrix %}
{% include matrix.format %}
{% endfor %}

{% for joined in parts | batch(2 if glu else 1) %}
{% set units = joined[0].matrix.units %}
fn products{{joined[0].matrix.number}}(
    first: u32,
    token: u32,
    last: u32,
    lane: u32{{ ", expert: u32" if experts or heads > 1 }},
) -> Sums {
    var sums = Sums();
    {% for part in joined %}{% set before = loop.index0 * team_rows %}{% for r in range(team_rows) %}
    let row{{before + r}} = {{ stack_row(part.stack, "min(first + " ~ r ~ "u, " ~ (part.rows - 1) ~ "u)") }};
    {% endfor %}{% endfor %}
    {% for t in range(tokens) %}
    {% if heads > 1 %}
    let q8_{{t}} = min(token + {{t}}u, last) * {{3 * units * heads}}u + expert * {{units}}u;
    let f32_{{t}} = min(token + {{t}}u, last) * {{x_stride // 4}}u + expert * {{columns // 4}}u;
    {% else %}
    let q8_{{t}} = min(token + {{t}}u, last) * {{3 * units}}u;
    let f32_{{t}} = min(token + {{t}}u, last) * {{x_stride // 4}}u;
    {% endif %}
    {% endfor %}
    {% set stretch = shape.unrolled * team %}
    {% set whole = units // stretch * stretch %}
    {% if whole %}
    for (var start = 0u; start < {{whole}}u; start += {{stretch}}u) {
        {% for k in range(shape.unrolled) %}
        {
            let u = start + {{k * team}}u + lane;
            {{ multiply(joined, team_rows, tokens, columns, units * heads, x_norm) }}
        }
        {% endfor %}
    }
    {% endif %}
    {% if whole < units %}
    for (var u = {{whole}}u + lane; u < {{units}}u; u += {{team}}u) {
        {{ multiply(joined, team_rows, tokens, columns, units * heads, x_norm) }}
    }
    {% endif %}
    return sums;
}
{% endfor %}

fn dot_half(codes: vec4<u32>, x: vec4<u32>) -> i32 {
    return dot4I8Packed(codes.x, x.x) + dot4I8Packed(codes.y, x.y)
        + dot4I8Packed(codes.z, x.z) + dot4I8Packed(codes.w, x.w);
}

{% if columns % 32 %}
// The elements of a row x; 0 beyond its end.
fn only_columns(x: vec4<f32>, u: u32, column: u32) -> vec4<f32> {
    let columns = vec4(u * 32u + column) + vec4(0u, 1u, 2u, 3u);
    return select(vec4(0.0), x, columns < vec4({{columns}}u));
}
{% endif %}

{% if not is_one_product %}
fn rows_of(part: u32) -> u32 {
    return array<u32, {{parts | length}}>({% for part in parts %}{{part.rows}}u, {% endfor %})[part];
}
{% endif %}

{% if not y_q8 %}
fn store(token: u32, row: u32, part: u32, value: f32) {
    {% if is_one_product %}
    let at = token * {{parts[0].out_stride}}u + {{parts[0].out_at}}u + row;
    {% if finish.kind == "add_in_place" %}
    out0[at] += value;
    {% elif finish.kind == "add" %}
    out0[at] = value + residual[token * {{finish.stride}}u + {{parts[0].out_at}}u + row];
    {% else %}
    out0[at] = value;
    {% endif %}
    {% else %}
    switch part {
        {% for part in parts %}
        case {{loop.index0}}u{{ ", default" if loop.last }}: {
            out{{part.matrix.number}}[token * {{part.out_stride}}u + {{part.out_at}}u + row] = value;
        }
        {% endfor %}
    }
    {% endif %}
}
{% endif %}

{% include "matmul_few/main" %}
