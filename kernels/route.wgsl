// Which experts take a row, and with what weights: those with the largest logits, or those whose weight is not 0.
//
// An invocation finds the places of its own numbers among all, so that nobody has to wait for who comes before.

{{prelude}}

{{bindings}}

// Stands where there is no expert.
const NONE = 0xffffffffu;

var<workgroup> numbers: array<f32, {{width}}>;
var<workgroup> found: array<vec2<u32>, {{used}}>;

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let row = group.x;
    for (var e = index; e < {{width}}u; e += {{workgroup}}u) {
        numbers[e] = x[row * {{x_stride}}u + e];
    }
    for (var place = index; place < {{used}}u; place += {{workgroup}}u) {
        found[place] = vec2(NONE, 0u);
    }
    workgroupBarrier();
    for (var e = index; e < {{width}}u; e += {{workgroup}}u) {
        let own = numbers[e];
        {% if softmax %}
        // One that is not a number comes before all others, so that it is seen.
        var place = 0u;
        for (var i = 0u; i < {{width}}u; i++) {
            place += u32(numbers[i] > own || (numbers[i] == own && i < e));
        }
        {% else %}
        var place = select({{used}}u, 0u, own != 0.0);
        for (var i = 0u; i < e; i++) {
            place += u32(numbers[i] != 0.0);
        }
        {% endif %}
        if place < {{used}}u {
            found[place] = vec2(e, bitcast<u32>(own));
        }
    }
    workgroupBarrier();
    {% if softmax %}
    let largest = bitcast<f32>(found[0].y);
    var sum = 0.0;
    for (var place = 0u; place < {{used}}u; place++) {
        let one = found[place];
        sum += select(exp(bitcast<f32>(one.y) - largest), 0.0, one.x == NONE);
    }
    {% endif %}
    {% if plain %}
    for (var e = index; e < {{width}}u; e += {{workgroup}}u) {
        numbers[e] = 0.0;
    }
    workgroupBarrier();
    {% endif %}
    for (var place = index; place < {{used}}u; place += {{workgroup}}u) {
        let one = found[place];
        let weight = {{ "exp(bitcast<f32>(one.y) - largest) / sum" if softmax else "bitcast<f32>(one.y)" }};
        {% if taken %}
        taken[row * {{used}}u + place] = vec2(one.x, bitcast<u32>(weight));
        {% endif %}
        {% if plain %}
        if one.x != NONE {
            numbers[one.x] = weight;
        }
        {% endif %}
    }
    {% if plain %}
    workgroupBarrier();
    for (var e = index; e < {{width}}u; e += {{workgroup}}u) {
        y[row * {{y_stride}}u + e] = numbers[e];
    }
    {% endif %}
}
