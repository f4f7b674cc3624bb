// Sums and maxima over a workgroup, for all of it.
{% for type in reduced %}
var<workgroup> reduced_{{type.name}}: array<{{type.wgsl}}, {{ workgroup if not subgroup else workgroup // subgroup + 1 }}>;
{% for op in ["sum", "max"] %}
fn workgroup_{{op}}_{{type.name}}(value: {{type.wgsl}}, at: Invocation) -> {{type.wgsl}} {
    workgroupBarrier();
    {% if subgroup %}
    let part = {{ "subgroupAdd" if op == "sum" else "subgroupMax" }}(value);
    if at.lane == 0u {
        reduced_{{type.name}}[at.subgroup] = part;
    }
    workgroupBarrier();
    {% if workgroup <= subgroup * subgroup %}
    let other = reduced_{{type.name}}[min(at.lane, at.subgroups - 1u)];
    {% if op == "sum" %}
    return subgroupAdd(select({{type.wgsl}}(0.0), other, at.lane < at.subgroups));
    {% else %}
    return subgroupMax(other);
    {% endif %}
    {% else %}
    var total = reduced_{{type.name}}[0];
    for (var i = 1u; i < at.subgroups; i++) {
        total = {{ "total + reduced_" ~ type.name ~ "[i]" if op == "sum" else "max(total, reduced_" ~ type.name ~ "[i])" }};
    }
    return total;
    {% endif %}
    {% else %}
    reduced_{{type.name}}[at.local] = value;
    for (var half = {{workgroup // 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if at.local < half {
            let other = reduced_{{type.name}}[at.local + half];
            let own = reduced_{{type.name}}[at.local];
            reduced_{{type.name}}[at.local] = {{ "own + other" if op == "sum" else "max(own, other)" }};
        }
    }
    workgroupBarrier();
    return reduced_{{type.name}}[0];
    {% endif %}
}
{% endfor %}
{% endfor %}

// Where an invocation stands in its workgroup.
struct Invocation {
    local: u32,
    {% if subgroup %}
    subgroup: u32,
    subgroups: u32,
    lane: u32,
    {% endif %}
}
