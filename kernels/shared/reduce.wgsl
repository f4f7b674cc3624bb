// Computes sums and maxima over a workgroup, for all of its invocations.
//
// Macros:
//   invocation_struct(subgroup) - declares `Invocation`: the place of an invocation in its
//     workgroup
//   reductions(suffix, type, workgroup, subgroup) - declares `workgroup_sum{suffix}` and
//     `workgroup_max{suffix}` for values of a type of WGSL; `workgroup` is the number of
//     invocations, `subgroup` the smallest subgroup, if subgroup operations are used
//   head_squares(name, type, element, head_dim, subgroup) - declares the sum of the squares of a head
//     whose element `d` is `element`. Every subgroup computes it, in the same order in all kernels,
//     which saves a barrier
{% macro invocation_struct(subgroup) %}
struct Invocation {
    // The index in the workgroup.
    local: u32,
    {% if subgroup %}
    // The index of the subgroup, the number of subgroups, and the index in the subgroup.
    subgroup: u32,
    subgroups: u32,
    lane: u32,
    {% endif %}
}
{% endmacro %}

{% macro reductions(suffix, type, workgroup, subgroup) %}
{% set parts = workgroup // subgroup + 1 if subgroup else workgroup %}
var<workgroup> reduced{{suffix}}: array<{{type}}, {{parts}}>;
{% for op in ["sum", "max"] %}
fn workgroup_{{op}}{{suffix}}(value: {{type}}, at: Invocation) -> {{type}} {
    workgroupBarrier();
    {% if subgroup %}
    let part = {{ "subgroupAdd" if op == "sum" else "subgroupMax" }}(value);
    if at.lane == 0u {
        reduced{{suffix}}[at.subgroup] = part;
    }
    workgroupBarrier();
    {% if workgroup <= subgroup * subgroup %}
    // A subgroup has an invocation for each partial result.
    let other = reduced{{suffix}}[min(at.lane, at.subgroups - 1u)];
    {% if op == "sum" %}
    return subgroupAdd(select({{type}}(0.0), other, at.lane < at.subgroups));
    {% else %}
    return subgroupMax(other);
    {% endif %}
    {% else %}
    var total = reduced{{suffix}}[0];
    for (var i = 1u; i < at.subgroups; i++) {
        {% if op == "sum" %}
        total += reduced{{suffix}}[i];
        {% else %}
        total = max(total, reduced{{suffix}}[i]);
        {% endif %}
    }
    return total;
    {% endif %}
    {% else %}
    reduced{{suffix}}[at.local] = value;
    for (var half = {{workgroup // 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if at.local < half {
            let other = reduced{{suffix}}[at.local + half];
            let own = reduced{{suffix}}[at.local];
            reduced{{suffix}}[at.local] = {{ "own + other" if op == "sum" else "max(own, other)" }};
        }
    }
    workgroupBarrier();
    return reduced{{suffix}}[0];
    {% endif %}
}
{% endfor %}
{% endmacro %}

{% macro head_squares(name, type, element, head_dim, subgroup) %}
    var {{name}} = {{type}}(0.0);
    {% for first in range(0, head_dim, subgroup) %}
    {{ "if lane < " ~ (head_dim - first) ~ "u " if first + subgroup > head_dim }}{
        let d = {{first}}u + lane;
        let value = {{element}};
        {{name}} = fma(value, value, {{name}});
    }
    {% endfor %}
    {{name}} = subgroupAdd({{name}});
{% endmacro %}
