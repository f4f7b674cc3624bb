// Computes the deviation of each row: y = sqrt(mean((x - c)^2)). A workgroup computes a row.
//
// Parameters (`DeviationKernel`):
//   workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   width: u32 - elements of a row
//   reciprocal: F32 - 1 / the elements of a row
//   centered: bool - whether `c` is the mean of the row; otherwise it is 0
//   x: Strided - the rows
//   y: Strided - the result, `[rows, 1]`
//
// Buffers:
//   y: f32, written
//   x: f32

{% from "shared/entry" import entry, invocation %}
{% from "shared/reduce" import invocation_struct, reductions %}
{% include "shared/bindings" %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}

{{ entry(workgroup, subgroup) }} {
    let at = {{ invocation(subgroup) }};
    let row = group.x;
    let start = row * {{x.stride}}u;
    {% if centered %}
    var sum = 0.0;
    for (var column = index; column < {{width}}u; column += {{workgroup}}u) {
        sum += x[start + column];
    }
    let center = workgroup_sum(sum, at) * {{reciprocal}};
    {% else %}
    let center = 0.0;
    {% endif %}
    var squares = 0.0;
    for (var column = index; column < {{width}}u; column += {{workgroup}}u) {
        let distance = x[start + column] - center;
        squares += distance * distance;
    }
    let total = workgroup_sum(squares, at);
    if index == 0u {
        y[row * {{y.stride}}u] = sqrt(total * {{reciprocal}});
    }
}
