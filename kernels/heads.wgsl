// Norms heads, rotates them, or both. A workgroup computes a head of a token.
//
// Parameters (`Heads`):
//   workgroup: u32 - invocations of a workgroup
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   head_dim: u32 - elements of a head
//   x: Strided? - the heads, `[tokens, heads, head_dim]`; none if they are `y` itself
//   y: Strided - the result, `[tokens, heads, head_dim]`
//   norm: Norm? - the norm of each head
//   rotation: Rotation? - the rotation after it
//   records: Records - the tokens' records
//
// Buffers:
//   y: f32, written
//   x: f32
//   weight: f32 - the norm's weights, `[head_dim]`

{% from "shared/entry" import entry, invocation %}
{% from "shared/reduce" import head_squares, invocation_struct, reductions %}
{% from "shared/rotation" import is_first, pair, partner, rotated %}
{% include "shared/bindings" %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}

{% if rotation %}
var<workgroup> head: array<f32, {{head_dim}}>;
{% endif %}

{{ entry(workgroup, subgroup) }} {
    let at = {{ invocation(subgroup) }};
    let token = group.y;
    {% if x %}
    let start = token * {{x.stride}}u + group.x * {{head_dim}}u;
    {% endif %}
    let to = token * {{y.stride}}u + group.x * {{head_dim}}u;
    {% set element = "x[start + d]" if x else "y[to + d]" %}
    {% if norm %}
    {% if subgroup %}
    {{ head_squares("squares", "f32", element, head_dim, subgroup) }}
    {% else %}
    var squares = 0.0;
    for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
        let value = {{element}};
        squares += value * value;
    }
    squares = workgroup_sum(squares, at);
    {% endif %}
    let factor = inverseSqrt(fma(squares, {{norm.reciprocal}}, {{norm.eps}}));
    {% endif %}
    {% if norm and subgroup and not x and not rotation %}
    // All invocations have read the head by now.
    workgroupBarrier();
    {% endif %}
    for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
        {{ "head[d]" if rotation else "y[to + d]" }} = {{element}}{{ " * (factor * weight[d])" if norm }};
    }
    {% if rotation %}
    workgroupBarrier();
    for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
        if d >= {{2 * rotation.pairs}}u {
            y[to + d] = head[d];
            continue;
        }
        let record = {{records.at}}u + token * {{records.words}}u;
        let angle = record + {{rotation.angles_at}}u + 2u * ({{ pair(rotation) }});
        let turn = bitcast<vec2<f32>>(vec2(step[angle], step[angle + 1u]));
        let other = head[{{ partner(rotation) }}];
        y[to + d] = {{ rotated("head[d]", "other", "turn.x", "select(turn.y, -turn.y, " ~ is_first(rotation) ~ ")") }};
    }
    {% endif %}
}
