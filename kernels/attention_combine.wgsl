// Merges the partial results that `attention_step.wgsl` writes for each split of a token's
// positions.
//
// Parameters (`AttentionCombine`):
//   workgroup: u32 - invocations of a workgroup, which computes a head of a token
//   subgroup: u32? - the smallest subgroup in invocations, if subgroup operations are used
//   heads: u32 - number of query heads
//   head_dim: u32 - elements of a head
//   dim: u32 - elements of a head in the partial results, a multiple of 16
//   window: AttentionWindow? - the limit of the positions that a token sees, if there is one
//   unsplit_positions: u32 - largest number of positions of a token that are not split
//   split: u32 - positions of a split
//   groups: u32 - partial results that are summed at the same time
//   at_once: u32 - partial results that an invocation reads ahead
//   records: Records - the tokens' records
//   sinks: BoundBuffer? - a further score of each head, of a value of 0, if there are sinks
//   output: AttentionOutput - the result
//
// Buffers:
//   partials: f32 - for each split and head the maximum score, the sum of the weights, and the
//     weighted sum of the values, `[tokens, splits, heads, dim + 2]`
//   y: f32, written - the result, `[tokens, heads, head_dim]`
//   y_q8: u32, written - the result as int8 (`shared/q8.wgsl`)
//   sinks: f32 - `[heads]`

{% from "shared/entry" import entry, index, invocation %}
{% from "shared/q8" import write_q8 %}
{% from "shared/reduce" import invocation_struct, reductions %}
{% from "shared/window" import first_seen %}
{% include "shared/bindings" %}
{{ invocation_struct(subgroup) }}
{{ reductions("", "f32", workgroup, subgroup) }}
{% if output.kind == "q8" %}
{{ write_q8(output.blocks, dim, subgroup) }}
{% endif %}

var<workgroup> sums: array<f32, {{groups * dim}}>;

// Where a split's part of the head lies; that of the first split lies at `first`.
fn partial_at(first: u32, split: u32) -> u32 {
    return first + split * {{heads * (dim + 2)}}u;
}

{# The maximum and the total of all splits. Every subgroup computes them, which saves a barrier. #}
{% set maximum = "subgroupMax(most)" if subgroup else "workgroup_max(most, at)" %}
{% set sum_of_total = "subgroupAdd(total)" if subgroup else "workgroup_sum(total, at)" %}
{% set own = "lane" if subgroup else "index" %}
{% set each = "for (var s = " ~ own ~ "; s < splits; s += " ~ (subgroup or workgroup) ~ "u)" %}

{{ entry(workgroup, subgroup, numbered=true) }} {
    let index = {{ index(subgroup) }};
    let at = {{ invocation(subgroup) }};
    let head = group.x;
    let token = group.y;
    let length = step[{{records.at}}u + token * {{records.words}}u + TOKEN_POSITION] + 1u;
    if length <= {{unsplit_positions}}u {
        return;
    }
    {% if window %}
    // The first split that the attention window reaches.
    let sight = {{ first_seen(window, "length") }} / {{split}}u;
    {% endif %}
    let splits = (length + {{split - 1}}u) / {{split}}u{{ " - sight" if window }};
    let first_split = token * step[SPLITS]{{ " + sight" if window }};
    let first = (first_split * {{heads}}u + head) * {{dim + 2}}u;
    // Several invocations each sum a share of the splits for every element. Loading of the first
    // partial results starts here.
    let d = index % {{dim}}u;
    let group_of = index / {{dim}}u;
    {% for j in range(at_once) %}
    var value{{j}} = partials[partial_at(first, min(group_of + {{j * groups}}u, splits - 1u)) + 2u + d];
    {% endfor %}
    var most = -3.0e38f;
    {{each}} {
        most = max(most, partials[partial_at(first, s)]);
    }
    most = {{maximum}};
    var total = 0.0;
    {{each}} {
        total += exp(partials[partial_at(first, s)] - most) * partials[partial_at(first, s) + 1u];
    }
    total = {{sum_of_total}};
    {% if sinks %}
    // A sink that exceeds all scores by so much leaves nothing either way.
    total += exp(min(sinks[head] - most, 80.0));
    {% endif %}
    var sum = 0.0;
    if group_of < {{groups}}u {
        for (var start = group_of; start < splits; start += {{groups * at_once}}u) {
            {% for j in range(at_once) %}
            let s{{j}} = start + {{j * groups}}u;
            if s{{j}} < splits {
                sum += exp(partials[partial_at(first, s{{j}})] - most) * value{{j}};
            }
            {% endfor %}
            if start + {{groups * at_once}}u < splits {
                {% for j in range(at_once) %}
                value{{j}} = partials[partial_at(first, min(start + {{(j + at_once) * groups}}u, splits - 1u)) + 2u + d];
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
    {% if output.kind == "q8" %}
    write_q8(sum / total, 1.0, token, head * {{head_dim // 32}}u + d / 32u, index, index < {{dim}}u);
    {% else %}
    if index < {{head_dim}}u {
        y[token * {{output.stride}}u + head * {{head_dim}}u + d] = sum / total;
    }
    {% endif %}
}
