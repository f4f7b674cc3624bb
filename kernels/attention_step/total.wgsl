// Sums the weights of all subgroups; part of `attention_step.wgsl`, whose parameters it reads.
    {% if subgroup %}
    {% set count = shape.workgroup // subgroup %}
    {% if count <= subgroup %}
    total = subgroupAdd(select(Heads(0.0), totals[min(lane, {{count - 1}}u)], lane < {{count}}u));
    {% else %}
    total = totals[0];
    for (var i = 1u; i < {{count}}u; i++) {
        total += totals[i];
    }
    {% endif %}
    {% endif %}
    workgroupBarrier();
