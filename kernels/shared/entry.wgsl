// Declares the entry point of kernels that can use subgroup operations.
//
// Macros:
//   entry(workgroup, subgroup, numbered, counted) - the head of `main`, up to its body. It binds
//     `group`, the index of the workgroup; `index`, the index of the invocation, or with `numbered`
//     the index of `index(subgroup)`; and with subgroups `subgroup`, `lane`, and if `counted` the
//     number of `subgroups`
//   index(subgroup) - the index of the invocation in the workgroup, such that the invocations of a
//     subgroup are consecutive
//   invocation(subgroup) - the `Invocation` (`shared/reduce.wgsl`)
{% macro entry(workgroup, subgroup, numbered=false, counted=true) %}
@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) {{ "local_index" if numbered else "index" }}: u32,
    {% if subgroup %}
    @builtin(subgroup_id) subgroup: u32,
    {% if numbered %}
    @builtin(subgroup_size) subgroup_size: u32,
    {% endif %}
    {% if counted %}
    @builtin(num_subgroups) subgroups: u32,
    {% endif %}
    @builtin(subgroup_invocation_id) lane: u32,
    {% endif %}
)
{%- endmacro %}

{% macro index(subgroup) %}{{ "subgroup * subgroup_size + lane" if subgroup else "local_index" }}{% endmacro %}

{% macro invocation(subgroup) %}Invocation(index{{ ", subgroup, subgroups, lane" if subgroup }}){% endmacro %}
