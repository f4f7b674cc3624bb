// Joins what attention left for each span of {{span}} positions: a maximum, a total and sums for each head.

{{bindings}}

{{reduce}}
{% if emits %}
{{codes}}
{% endif %}

var<workgroup> span_shares: array<f32, {{shares}}>;
var<workgroup> sums: array<f32, {{groups * dim}}>;

@compute @workgroup_size({{workgroup}})
fn main(
    @builtin(workgroup_id) group: vec3<u32>,
    @builtin(local_invocation_index) index_: u32,
    {% if subgroup %}
    @builtin(subgroup_id) subgroup: u32,
    @builtin(subgroup_size) subgroup_size: u32,
    @builtin(num_subgroups) subgroups: u32,
    @builtin(subgroup_invocation_id) lane: u32,
    {% endif %}
) {
    let index = {{ "subgroup * subgroup_size + lane" if subgroup else "index_" }};
    let at = Invocation(index{{ ", subgroup, subgroups, lane" if subgroup }});
    let head = group.x;
    let token = group.y;
    let length = step[{{records_at}}u + token * {{record_words}}u + 1u] + 1u;
    let spans = (length + {{span - 1}}u) / {{span}}u;
    let first = (token * step[2] * {{heads}}u + head) * {{dim + 2}}u;
    // Each span's share of the whole, by its maximum and total.
    var most = {{lowest}};
    for (var s = index; s < spans; s += {{workgroup}}u) {
        most = max(most, parts[first + s * {{heads * (dim + 2)}}u]);
    }
    most = workgroup_max_one(most, at);
    var total = 0.0;
    for (var s = index; s < spans; s += {{workgroup}}u) {
        let at_part = first + s * {{heads * (dim + 2)}}u;
        let share = exp(parts[at_part] - most);
        total += share * parts[at_part + 1u];
        if s < {{shares}}u {
            span_shares[s] = share;
        }
    }
    total = workgroup_sum_one(total, at);
    workgroupBarrier();
    // Several sum a share of the spans each for every element, and the first of them adds these up.
    let d = index % {{dim}}u;
    let group_of = index / {{dim}}u;
    var sum = 0.0;
    if group_of < {{groups}}u {
        for (var s = group_of; s < spans; s += {{groups * at_once}}u) {
            {% for j in range(at_once) %}
            let s{{j}} = min(s + {{j * groups}}u, spans - 1u);
            let value{{j}} = parts[first + s{{j}} * {{heads * (dim + 2)}}u + 2u + d];
            {% endfor %}
            {% for j in range(at_once) %}
            if s + {{j * groups}}u < spans {
                var share = span_shares[min(s{{j}}, {{shares - 1}}u)];
                if s{{j}} >= {{shares}}u {
                    share = exp(parts[first + s{{j}} * {{heads * (dim + 2)}}u] - most);
                }
                sum += share * value{{j}};
            }
            {% endfor %}
        }
        sums[index] = sum;
    }
    workgroupBarrier();
    if index < {{dim}}u {
        for (var g = 1u; g < {{groups}}u; g++) {
            sum += sums[g * {{dim}}u + d];
        }
    }
    {% if emits %}
    write_codes(sum / total, 1.0, token, head * {{head_dim // 32}}u + d / 32u, index, index < {{dim}}u);
    {% else %}
    if index < {{head_dim}}u {
        y[token * {{out_stride}}u + head * {{head_dim}}u + d] = sum / total;
    }
    {% endif %}
}
