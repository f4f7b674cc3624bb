// Selects the active experts of each row, with their weights: the experts with the largest logits,
// or the experts whose weight is not 0.
//
// Parameters (`Route`):
//   workgroup: u32 - invocations of a workgroup, which computes a row
//   experts: u32 - number of experts in the layer
//   top_k: u32 - largest number of active experts of a row
//   weights: RouteWeights? - the computation of weights from logits, if `x` are not weights
//   weights.score: RouteScore? - "softmax" or "sigmoid", the probabilities that experts are selected by;
//     none for a softmax over the selected experts
//   weights.normalized: bool - whether the weights are divided by their sum
//   weights.groups: RouteGroups? - the groups that are selected before experts are
//   weights.groups.count: u32 - the number of groups
//   weights.groups.size: u32 - the experts of a group
//   weights.groups.top_k: u32 - the number of groups that are selected
//   weights.scale: F32 - the factor of the weights
//   weights.bias: BoundBuffer? - added to the probabilities when experts are selected
//   x: Strided - the logits or weights, `[rows, experts]`
//   selected: BoundBuffer? - the list of each row's experts, if it is written
//   y: Strided? - the weights of all experts, `[rows, experts]`, if they are written
//
// Buffers:
//   x: f32
//   selected: vec2<u32>, written - the expert and the bits of its weight, `[rows, top_k]`
//   y: f32, written
//   bias: f32 - `[experts]`

{% include "shared/bindings" %}
{% include "shared/none" %}

// No number is larger.
const LARGEST = 3.4028234e38;

var<workgroup> numbers: array<f32, {{experts}}>;
var<workgroup> found: array<vec2<u32>, {{top_k}}>;
{% set score = weights.score if weights else none %}
{% set groups = weights.groups if score else none %}
{% if score %}
var<workgroup> probabilities: array<f32, {{experts}}>;
{% endif %}
{% if groups %}
var<workgroup> group_scores: array<f32, {{groups.count}}>;
{% endif %}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let row = group.x;
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        numbers[e] = x[row * {{x.stride}}u + e];
    }
    for (var rank = index; rank < {{top_k}}u; rank += {{workgroup}}u) {
        found[rank] = vec2(NONE, 0u);
    }
    workgroupBarrier();
    {% if score %}
    {% if score == "softmax" %}
    var largest = numbers[0];
    for (var i = 1u; i < {{experts}}u; i++) {
        largest = max(largest, numbers[i]);
    }
    var total = 0.0;
    for (var i = 0u; i < {{experts}}u; i++) {
        total += exp(numbers[i] - largest);
    }
    {% endif %}
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        {% if score == "softmax" %}
        probabilities[e] = exp(numbers[e] - largest) / total;
        {% else %}
        // exp stays finite; below, the quotient rounds to 0 beside any other.
        probabilities[e] = 1.0 / (1.0 + exp(-max(numbers[e], -88.0)));
        {% endif %}
    }
    workgroupBarrier();
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        numbers[e] = probabilities[e]{{ " + bias[e]" if weights.bias }};
    }
    workgroupBarrier();
    {% endif %}
    {% if groups %}
    for (var g = index; g < {{groups.count}}u; g += {{workgroup}}u) {
        var best = vec2(numbers[g * {{groups.size}}u], -LARGEST);
        for (var i = 1u; i < {{groups.size}}u; i++) {
            let own = numbers[g * {{groups.size}}u + i];
            best = vec2(max(best.x, own), max(best.y, min(best.x, own)));
        }
        group_scores[g] = best.x + best.y;
    }
    workgroupBarrier();
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        let g = e / {{groups.size}}u;
        let own = group_scores[g];
        var rank = 0u;
        for (var i = 0u; i < {{groups.count}}u; i++) {
            rank += u32(group_scores[i] > own || (group_scores[i] == own && i < g));
        }
        if rank >= {{groups.top_k}}u {
            numbers[e] = -LARGEST;
        }
    }
    workgroupBarrier();
    {% endif %}
    // Each invocation counts the numbers that precede its own, which needs no barriers.
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        let own = numbers[e];
        {% if weights %}
        // NaN precedes all numbers, so that it reaches the result.
        var rank = 0u;
        for (var i = 0u; i < {{experts}}u; i++) {
            rank += u32(numbers[i] > own || (numbers[i] == own && i < e));
        }
        {% else %}
        var rank = select({{top_k}}u, 0u, own != 0.0);
        for (var i = 0u; i < e; i++) {
            rank += u32(numbers[i] != 0.0);
        }
        {% endif %}
        if rank < {{top_k}}u {
            found[rank] = vec2(e, bitcast<u32>({{ "probabilities[e]" if score else "own" }}));
        }
    }
    workgroupBarrier();
    {% set power = "bitcast<f32>(one.y)" if score else "exp(bitcast<f32>(one.y) - best)" %}
    {% if weights %}
    let best = bitcast<f32>(found[0].y);
    var sum = 0.0;
    for (var rank = 0u; rank < {{top_k}}u; rank++) {
        let one = found[rank];
        sum += select({{power}}, 0.0, one.x == NONE);
    }
    {% if weights.normalized %}
    let factor = {{weights.scale}} / max(sum, 1e-20);
    {% else %}
    let factor = {{weights.scale}};
    {% endif %}
    {% endif %}
    {% if y %}
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        numbers[e] = 0.0;
    }
    workgroupBarrier();
    {% endif %}
    for (var rank = index; rank < {{top_k}}u; rank += {{workgroup}}u) {
        let one = found[rank];
        let weight = {{ power ~ " * factor" if weights else "bitcast<f32>(one.y)" }};
        {% if selected %}
        selected[row * {{top_k}}u + rank] = vec2(one.x, bitcast<u32>(weight));
        {% endif %}
        {% if y %}
        if one.x != NONE {
            numbers[one.x] = weight;
        }
        {% endif %}
    }
    {% if y %}
    workgroupBarrier();
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        y[row * {{y.stride}}u + e] = numbers[e];
    }
    {% endif %}
}
