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
    for (var i = index; i < {{pairs}}u; i += {{workgroup}}u) {
        let angle_at = {{records_at}}u + token * {{record_words}}u + {{angles_at}}u + 2u * i;
        let turn = bitcast<vec2<f32>>(vec2(step[angle_at], step[angle_at + 1u]));
        let a = head[{{first_of_pair}}];
        let b = head[{{second_of_pair}}];
        y[to + {{first_of_pair}}] = a * turn.x - b * turn.y;
        y[to + {{second_of_pair}}] = a * turn.y + b * turn.x;
    }
    for (var d = {{2 * pairs}}u + index; d < {{head_dim}}u; d += {{workgroup}}u) {
        y[to + d] = head[d];
    }
    {% endif %}
}
