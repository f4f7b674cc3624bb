// Norm and rotation of heads, in place where input and result are one: a workgroup for each head of each token.

{{bindings}}

{{reduce}}

{% if pairs %}
var<workgroup> head: array<f32, {{head_dim}}>;
{% endif %}

@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index: u32,
    {% if subgroup %}
    @builtin(subgroup_id) subgroup: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    {% endif %}
) {
    let at = Invocation(index{{ ", subgroup, subgroups, lane" if subgroup }});
    let token = group.y;
    let start = token * {{x_stride}}u + group.x * {{head_dim}}u;
    let to = token * {{y_stride}}u + group.x * {{head_dim}}u;
    {% set source = "y[to + d]" if in_place else "x[start + d]" %}
    var factor = 1.0;
    {% if norm %}
    var squares = 0.0;
    for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
        let value = {{source}};
        squares += value * value;
    }
    factor = inverseSqrt(workgroup_sum_one(squares, at) * {{reciprocal}} + {{eps}});
    {% endif %}
    for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
        {{ "head[d]" if pairs else "y[to + d]" }} = factor * {{source}}{{ " * weight[d]" if norm }};
    }
    {% if pairs %}
    workgroupBarrier();
    for (var d = index; d < {{head_dim}}u; d += {{workgroup}}u) {
        if d >= {{2 * pairs}}u {
            y[to + d] = head[d];
            continue;
        }
        let angle = {{records_at}}u + token * {{record_words}}u + {{angles_at}}u + 2u * ({{pair}});
        let turn = bitcast<vec2<f32>>(vec2(step[angle], step[angle + 1u]));
        y[to + d] = head[d] * turn.x + head[{{partner}}] * select(turn.y, -turn.y, {{is_first}});
    }
    {% endif %}
}
