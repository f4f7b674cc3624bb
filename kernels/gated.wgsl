// Multiplies rows with an activated gate. The groups of a row may be normed before.
//
// A workgroup computes a group of a row.
//
// Parameters (`GatedKernel`):
//   workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   width: u32 - elements of a row
//   len: u32 - elements of a group; without a norm the last group may have fewer
//   function: Function - the activation of the gate
//   norm: Norm? - the norm of each group
//   x: Strided - the rows
//   gate: Strided - the rows of the gate
//   y: Strided? - the result as f32
//   y_q8: BoundBuffer? - the result as int8 (`shared/q8.wgsl`); a group then has whole blocks
//
// Buffers:
//   x: f32
//   gate: f32
//   weight: f32 - the norm's weights, `[len]`
//   y: f32, written
//   y_q8: u32, written

{% from "shared/entry" import entry, index %}
{% from "shared/q8" import write_q8 %}
{% from "shared/reduce" import head_squares, invocation_struct, reductions %}
{% include "shared/bindings" %}
{% include "shared/activations" %}
{% if norm and not subgroup %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}
{% endif %}
{% if y_q8 %}
{{ write_q8(width // 32, workgroup, subgroup) }}
{% endif %}

{{ entry(workgroup, subgroup, numbered=true, counted=false) }} {
    let local = {{ index(subgroup) }};
    let row = group.y;
    let start = row * {{x.stride}}u + group.x * {{len}}u;
    {% if norm %}
    {% if subgroup %}
    {{ head_squares("squares", "f32", "x[start + d]", len, subgroup) }}
    {% else %}
    var squares = 0.0;
    for (var d = local; d < {{len}}u; d += {{workgroup}}u) {
        squares += x[start + d] * x[start + d];
    }
    squares = workgroup_sum(squares, Invocation(local));
    {% endif %}
    let factor = inverseSqrt(fma(squares, {{norm.reciprocal}}, {{norm.eps}}));
    {% endif %}
    {% for first in range(0, len, workgroup) %}
    {
        let d = {{first}}u + local;
        let column = group.x * {{len}}u + d;
        let is_active = d < {{len}}u{{ " && column < " ~ width ~ "u" if width % len }};
        var value = 0.0;
        if is_active {
            let open = {{function}}(vec4(gate[row * {{gate.stride}}u + column])).x;
            value = x[start + d]{{ " * (factor * weight[d])" if norm }} * open;
            {% if y %}
            y[row * {{y.stride}}u + column] = value;
            {% endif %}
        }
        {% if y_q8 %}
        write_q8(value, 1.0, row, column / 32u, local, is_active);
        {% endif %}
    }
    {% endfor %}
}
