// Computes the layer norm of groups of the elements of rows: y = (x - mean(x)) / sqrt(variance(x) +
// eps) * weight + bias. A workgroup computes a group.
//
// Parameters (`LayerNormKernel`):
//   workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   width: u32 - elements of a group
//   eps: F32 - added to the variance
//   reciprocal: F32 - 1 / the elements of a group
//   x: Strided? - the rows; none if they are `y` itself
//   y: Strided - the result
//
// Buffers:
//   y: f32, written
//   x: f32
//   weight: f32 - `[groups, width]`
//   bias: f32 - `[groups, width]`

{% from "shared/entry" import entry, invocation %}
{% from "shared/reduce" import invocation_struct, reductions %}
{% include "shared/bindings" %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}

{{ entry(workgroup, subgroup) }} {
    let at = {{ invocation(subgroup) }};
    let row = group.x;
    let first = group.y * {{width}}u;
    let to = row * {{y.stride}}u + first;
    {% if x %}
    let start = row * {{x.stride}}u + first;
    {% endif %}
    {% set element = "x[start + column]" if x else "y[to + column]" %}
    var sum = 0.0;
    for (var column = index; column < {{width}}u; column += {{workgroup}}u) {
        sum += {{element}};
    }
    let mean = workgroup_sum(sum, at) * {{reciprocal}};
    var squares = 0.0;
    for (var column = index; column < {{width}}u; column += {{workgroup}}u) {
        let centered = {{element}} - mean;
        squares += centered * centered;
    }
    let factor = inverseSqrt(workgroup_sum(squares, at) * {{reciprocal}} + {{eps}});
    for (var column = index; column < {{width}}u; column += {{workgroup}}u) {
        y[to + column] = ({{element}} - mean) * factor * weight[first + column] + bias[first + column];
    }
}
