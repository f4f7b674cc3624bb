// Selects the active experts of each row, with their weights: the experts with the largest logits,
// or the experts whose weight is not 0.
//
// Parameters (`Route`):
//   workgroup: u32 - invocations of a workgroup, which computes a row
//   experts: u32 - number of experts in the layer
//   top_k: u32 - largest number of active experts of a row
//   softmax: bool - whether `x` are logits, whose `top_k` largest become weights by a softmax,
//     rather than weights
//   x: Strided - the logits or weights, `[rows, experts]`
//   selected: BoundBuffer? - the list of each row's experts, if it is written
//   y: Strided? - the weights of all experts, `[rows, experts]`, if they are written
//
// Buffers:
//   x: f32
//   selected: vec2<u32>, written - the expert and the bits of its weight, `[rows, top_k]`
//   y: f32, written

{% include "shared/bindings" %}
{% include "shared/none" %}

var<workgroup> numbers: array<f32, {{experts}}>;
var<workgroup> found: array<vec2<u32>, {{top_k}}>;

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
    // Each invocation counts the numbers that precede its own, which needs no barriers.
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        let own = numbers[e];
        {% if softmax %}
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
            found[rank] = vec2(e, bitcast<u32>(own));
        }
    }
    workgroupBarrier();
    {% if softmax %}
    let largest = bitcast<f32>(found[0].y);
    var sum = 0.0;
    for (var rank = 0u; rank < {{top_k}}u; rank++) {
        let one = found[rank];
        sum += select(exp(bitcast<f32>(one.y) - largest), 0.0, one.x == NONE);
    }
    {% endif %}
    {% if y %}
    for (var e = index; e < {{experts}}u; e += {{workgroup}}u) {
        numbers[e] = 0.0;
    }
    workgroupBarrier();
    {% endif %}
    for (var rank = index; rank < {{top_k}}u; rank += {{workgroup}}u) {
        let one = found[rank];
        let weight = {{ "exp(bitcast<f32>(one.y) - largest) / sum" if softmax else "bitcast<f32>(one.y)" }};
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
