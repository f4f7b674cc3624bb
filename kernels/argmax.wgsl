// Finds the largest of a row of logits. Of equal logits it is the one with the lowest id; if a
// logit is NaN, the result is NONE.
//
// Each workgroup of the first dispatch finds the largest of its share of the logits. A second
// dispatch finds the largest of their results.
//
// Parameters (`Argmax`):
//   workgroup: u32 - invocations of a workgroup
//   count: u32 - candidates of a row: logits, or results of the first dispatch
//   share: u32 - candidates of a workgroup
//   round: ArgmaxRound - the dispatch
//   round.kind: str - "shares" for the first, "join" for the second
//   round.groups: u32 - workgroups of a row ("shares")
//   round.stride: u32 - elements from row to row of the logits ("shares")
//
// Buffers:
//   logits: f32 - `[rows, count]` ("shares")
//   candidates: vec2<u32> - the bits of the logit and the id, `[rows, count]` ("join")
//   result: u32 or vec2<u32>, written - candidates, `[rows, groups]` ("shares"), or ids, `[rows]`
//     ("join")

{% include "shared/bindings" %}
{% include "shared/none" %}

struct Candidate {
    logit: f32,
    id: u32,
}

var<workgroup> best: array<Candidate, {{workgroup}}>;

fn better(a: Candidate, b: Candidate) -> Candidate {
    if a.id == NONE || b.id == NONE {
        return Candidate(0.0, NONE);
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
    // Starts below all logits, with the lowest finite f32.
    var candidate = Candidate(-3.4028235e38f, {{count}}u);
    for (var i = begin + index; i < min(begin + {{share}}u, {{count}}u); i += {{workgroup}}u) {
        {% if round.kind == "shares" %}
        let logit = logits[row * {{round.stride}}u + i];
        // NaN has all bits of the exponent and some of the mantissa set.
        let is_number = (bitcast<u32>(logit) & 0x7fffffffu) <= 0x7f800000u;
        candidate = better(candidate, Candidate(logit, select(NONE, i, is_number)));
        {% else %}
        let other = candidates[row * {{count}}u + i];
        candidate = better(candidate, Candidate(bitcast<f32>(other.x), other.y));
        {% endif %}
    }
    best[index] = candidate;
    for (var half = {{workgroup // 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if index < half {
            best[index] = better(best[index], best[index + half]);
        }
    }
    if index == 0u {
        {% if round.kind == "shares" %}
        result[row * {{round.groups}}u + group.x] = vec2(bitcast<u32>(best[0].logit), best[0].id);
        {% else %}
        result[row] = best[0].id;
        {% endif %}
    }
}
