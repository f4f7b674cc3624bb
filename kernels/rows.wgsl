// Computes rows, applies a norm if there is one, and writes the rows in one or several forms.
//
// A workgroup computes a row. Its invocations take turns at blocks of 32 columns.
//
// Parameters (`RowsKernel`):
//   workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   width: u32 - elements of a row
//   source: RowSource - the computation of a row
//   source.kind: str - "copy", "select", "sum", "glu" or "embed"
//   source.a: RowInput - the rows, or the first operand
//   source.a.name: InputName - the buffer: "a", or the output that overwrites it
//   source.a.stride: u32 - elements from row to row
//   source.b: RowInput - the second operand ("sum", "glu")
//   source.b.name: InputName - the buffer: "b", or the output that overwrites it
//   source.b.stride: u32 - elements from row to row
//   source.records: Records - the tokens' records ("select")
//   source.function: GluFunction - the activation of the first operand, or "clamped_glu" ("glu")
//   source.table: MatrixPlanes - the table that ids are looked up in, `[vocabulary, width]`
//     ("embed")
//   source.ids: IdRange? - the ids of the rows in the table, if it is a part of the vocabulary
//     ("embed")
//   source.ids.first: u32 - the first id
//   source.ids.end: u32 - the id after the last
//   norm: Norm? - the norm of a row
//   sum: Strided? - the rows before the norm, as f32
//   y: Strided? - the rows as f32
//   y_q8: BoundBuffer? - the rows as int8 (`shared/q8.wgsl`)
//   y_f16: F16Output? - the rows as f16, each divided by a power of two so that it does not
//     overflow
//   y_f16.stride: u32 - elements from row to row
//
// Buffers:
//   a: vec4<f32>
//   b: vec4<f32>
//   ids: u32 - the tokens' ids
//   wide{n}: vec4<u32> - the planes of the table
//   small{n}: u32 - the planes of the table, word by word
//   norm_weight: vec4<f32> - the norm's weights, `[width]`
//   sum: vec4<f32>, written
//   y: vec4<f32>, written
//   y_q8: u32, written
//   y_f16: u32, written - two elements a word
//   y_scales: f32, written - the power of two of each row

{% from "shared/entry" import entry, invocation %}
{% from "shared/q8" import q8_word %}
{% from "shared/reduce" import invocation_struct, reductions %}
{% set embeds = source.kind == "embed" %}
{% set blocks = (width + 31) // 32 %}
{% include "shared/bindings" %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}

{% if source.kind == "glu" %}
{% include "shared/activations" %}
{% endif %}
{% if embeds %}
{% include "shared/units" %}
{% set matrix = source.table %}
{% include matrix.format %}
{% set unit_of_block = "values_of(unit0(start, block))" if matrix.coded else "values0(start, block)" %}

fn four_of(unit: Values, k: u32) -> vec4<f32> {
    switch k {
        {% for k in range(8) %}
        case {{k}}u{{ ", default" if loop.last }}: {
            return unit.v{{k}};
        }
        {% endfor %}
    }
}
{% else %}
// Columns `column` to `column + 3` of the row that starts at `start`; 0 beyond its end.
fn four_of(row: u32, start: u32, column: u32) -> vec4<f32> {
    let at = start + column / 4u;
    {% if source.kind == "sum" %}
    let x = {{source.a.name}}[at] + {{source.b.name}}[row * {{source.b.stride // 4}}u + column / 4u];
    {% elif source.kind == "glu" %}
    let other = {{source.b.name}}[row * {{source.b.stride // 4}}u + column / 4u];
    {% if source.function == "clamped_glu" %}
    let x = clamped_glu({{source.a.name}}[at], other);
    {% else %}
    let x = {{source.function}}({{source.a.name}}[at]) * other;
    {% endif %}
    {% else %}
    let x = {{source.a.name}}[at];
    {% endif %}
    {% if width % 4 %}
    return select(vec4(0.0), x, vec4(column) + vec4(0u, 1u, 2u, 3u) < vec4({{width}}u));
    {% else %}
    return x;
    {% endif %}
}
{% endif %}
{% set four = "four_of(unit, k)" if embeds else "four_of(row, start, column)" %}
{% set weighted = " * norm_weight[column / 4u]" if norm else "" %}

{{ entry(workgroup, subgroup) }} {
    let at = {{ invocation(subgroup) }};
    let row = group.x;
    {% if embeds %}
    {% if source.ids %}
    // Other dispatches write the rows of the other parts of the table.
    if ids[row] < {{source.ids.first}}u || ids[row] >= {{source.ids.end}}u {
        return;
    }
    let start = ids[row] - {{source.ids.first}}u;
    {% else %}
    let start = ids[row];
    {% endif %}
    {% elif source.kind == "select" %}
    let record = {{source.records.at}}u + row * {{source.records.words}}u;
    let start = step[record + TOKEN_OF_OUTPUT] * {{source.a.stride // 4}}u;
    {% else %}
    let start = row * {{source.a.stride // 4}}u;
    {% endif %}
    var factor = 1.0;
    {% if norm or y_f16 %}
    var squares = 0.0;
    var peak = 0.0;
    for (var block = index; block < {{blocks}}u; block += {{workgroup}}u) {
        {% if embeds %}
        let unit = {{unit_of_block}};
        {% endif %}
        for (var k = 0u; k < 8u; k++) {
            let column = block * 32u + 4u * k;
            if column < {{width}}u {
                let x = {{four}};
                squares += dot(x, x);
                {% if y_f16 %}
                let most = abs(x{{weighted}});
                peak = max(peak, max(max(most.x, most.y), max(most.z, most.w)));
                {% endif %}
            }
        }
    }
    {% endif %}
    {% if norm %}
    factor = inverseSqrt(workgroup_sum(squares, at) * {{norm.reciprocal}} + {{norm.eps}});
    {% endif %}
    {% if y_f16 %}
    // A power of two, so that the largest becomes about 256: f16 does not overflow then.
    peak = workgroup_max(peak * factor, at);
    let exponent = clamp(bitcast<u32>(peak) >> 23u, 9u, 246u) - 8u;
    let unscale = bitcast<f32>(exponent << 23u);
    let rescale = bitcast<f32>((254u - exponent) << 23u);
    if index == 0u {
        y_scales[row] = unscale;
    }
    {% endif %}
    for (var block = index; block < {{blocks}}u; block += {{workgroup}}u) {
        {% if embeds %}
        let unit = {{unit_of_block}};
        {% endif %}
        {% if y_q8 %}
        var values = array<vec4<f32>, 8>();
        var most = vec4(0.0);
        {% endif %}
        for (var k = 0u; k < 8u; k++) {
            let column = block * 32u + 4u * k;
            if column < {{width}}u {
                let x = {{four}};
                {% if sum %}
                sum[row * {{sum.stride // 4}}u + column / 4u] = x;
                {% endif %}
                let normed = factor * x{{weighted}};
                {% if y %}
                y[row * {{y.stride // 4}}u + column / 4u] = normed;
                {% endif %}
                {% if y_f16 %}
                let scaled = normed * rescale;
                y_f16[(row * {{y_f16.stride // 4}}u + column / 4u) * 2u] = pack2x16float(scaled.xy);
                y_f16[(row * {{y_f16.stride // 4}}u + column / 4u) * 2u + 1u] = pack2x16float(scaled.zw);
                {% endif %}
                {% if y_q8 %}
                values[k] = normed;
                most = max(most, abs(normed));
                {% endif %}
            }
        }
        {% if y_q8 %}
        let largest = max(max(most.x, most.y), max(most.z, most.w));
        let inverse = select(127.0 / largest, 0.0, largest == 0.0);
        var sums = vec2(0.0);
        for (var k = 0u; k < 8u; k++) {
            let code = round(inverse * values[k]);
            y_q8[row * {{12 * blocks}}u + {{ q8_word(blocks, "block", "k") }}] = pack4xI8(vec4<i32>(code));
            sums[k / 4u] += dot(code, vec4(1.0));
        }
        let scale = largest / 127.0;
        let head = row * {{12 * blocks}}u + {{8 * blocks}}u + 4u * block;
        y_q8[head] = bitcast<u32>(scale);
        y_q8[head + 1u] = bitcast<u32>(scale * sums.x);
        y_q8[head + 2u] = bitcast<u32>(scale * sums.y);
        {% endif %}
    }
}
