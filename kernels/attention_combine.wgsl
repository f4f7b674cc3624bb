// Joins what attention left for each span of {{span}} positions: a maximum, a total and sums for each head.

{{bindings}}

{{reduce}}
{% if emits %}
{{codes}}
{% endif %}

var<workgroup> sums: array<f32, {{groups * dim}}>;

// Where a span's part of the head lies, the first one's at `first`.
fn part_at(first: u32, span: u32) -> u32 {
    return first + span * {{heads * (dim + 2)}}u;
}

{# Over all that find the spans' common maximum and total: each subgroup for itself, so that none waits for another. #}
{% set reduced_by = ["subgroupMax(", "subgroupAdd("] if subgroup else ["workgroup_max_one(", "workgroup_sum_one("] %}
{% set at = "" if subgroup else ", at" %}

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
    {% if window %}
    // Spans before this are out of sight.
    let sight = (max(length, {{window}}u) - {{window}}u) / {{span}}u;
    {% endif %}
    let spans = (length + {{span - 1}}u) / {{span}}u{{ " - sight" if window }};
    let first = ({{ "(token * step[2] + sight)" if window else "token * step[2]" }} * {{heads}}u + head) * {{dim + 2}}u;
    // Several sum a share of the spans each for every element. The first of those are on their way from now on.
    let d = index % {{dim}}u;
    let group_of = index / {{dim}}u;
    {% for j in range(at_once) %}
    var value{{j}} = parts[part_at(first, min(group_of + {{j * groups}}u, spans - 1u)) + 2u + d];
    {% endfor %}
    {% set each = "for (var s = " ~ ("lane" if subgroup else "index") ~ "; s < spans; s += " ~ (subgroup or workgroup) ~ "u)" %}
    var most = {{lowest}};
    {{each}} {
        most = max(most, parts[part_at(first, s)]);
    }
    most = {{reduced_by[0]}}most{{at}});
    var total = 0.0;
    {{each}} {
        total += exp(parts[part_at(first, s)] - most) * parts[part_at(first, s) + 1u];
    }
    total = {{reduced_by[1]}}total{{at}});
    var sum = 0.0;
    if group_of < {{groups}}u {
        for (var start = group_of; start < spans; start += {{groups * at_once}}u) {
            {% for j in range(at_once) %}
            let s{{j}} = start + {{j * groups}}u;
            if s{{j}} < spans {
                sum += exp(parts[part_at(first, s{{j}})] - most) * value{{j}};
            }
            {% endfor %}
            if start + {{groups * at_once}}u < spans {
                {% for j in range(at_once) %}
                value{{j}} = parts[part_at(first, min(start + {{(j + at_once) * groups}}u, spans - 1u)) + 2u + d];
                {% endfor %}
            }
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
