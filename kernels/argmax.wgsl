// Finds the largest of a row of logits: the lowest id among equals, and NONE if one of them is NaN.
//
// Each workgroup finds the largest of its share; a second dispatch joins what those found.
//
// Parameters (`Argmax`):
//   workgroup: u32 - invocations of a workgroup
//   count: u32 - candidates of a row: logits, or what workgroups found
//   share: u32 - candidates of a workgroup
//   round: ArgmaxRound - the dispatch
//   round.kind: str - "shares" or "join"
//   round.groups: u32 - workgroups of a row ("shares")
//   round.stride: u32 - elements from row to row of the logits ("shares")
//
// Buffers:
//   logits: f32 - `[rows, count]` ("shares")
//   finds: vec2<u32> - the bits of the logit and the id, `[rows, count]` ("join")
//   chosen: u32 or vec2<u32>, written - what was found, `[rows, groups]` ("shares"), or ids,
//     `[rows]` ("join")

{% include "shared/bindings" %}
{% include "shared/none" %}

struct Find {
    logit: f32,
    id: u32,
}

var<workgroup> best: array<Find, {{workgroup}}>;

fn better(a: Find, b: Find) -> Find {
    if a.id == NONE || b.id == NONE {
        return Find(0.0, NONE);
    }
    if b.logit > a.logit || (b.logit == a.logit && b.id < a.id) {
        return b;
    }
    return a;
}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let row = group.y;
    let begin = group.x * {{share}}u;
    // Begins below all logits: the least number that an f32 has.
    var find = Find(-3.4028235e38f, {{count}}u);
    for (var i = begin + index; i < min(begin + {{share}}u, {{count}}u); i += {{workgroup}}u) {
        {% if round.kind == "shares" %}
        let logit = logits[row * {{round.stride}}u + i];
        // NaN has all bits of the exponent and some of the mantissa set.
        let is_number = (bitcast<u32>(logit) & 0x7fffffffu) <= 0x7f800000u;
        find = better(find, Find(logit, select(NONE, i, is_number)));
        {% else %}
        let other = finds[row * {{count}}u + i];
        find = better(find, Find(bitcast<f32>(other.x), other.y));
        {% endif %}
    }
    best[index] = find;
    for (var half = {{workgroup // 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if index < half {
            best[index] = better(best[index], best[index + half]);
        }
    }
    if index == 0u {
        {% if round.kind == "shares" %}
        chosen[row * {{round.groups}}u + group.x] = vec2(bitcast<u32>(best[0].logit), best[0].id);
        {% else %}
        chosen[row] = best[0].id;
        {% endif %}
    }
}
