// Finds the largest of each row of logits, in descending order, and the sum of the exponentials of
// the row; of equal logits the one with the lower id comes first.
//
// A workgroup sorts its share of a row's candidates and keeps the first of them, and after them the
// pair of its largest logit and the sum of exponentials relative to it. A further dispatch does the
// same with all candidates that were kept, until one workgroup has all of a row.
//
// Parameters (`BestKernel`):
//   workgroup: u32 - invocations of a workgroup
//   count: u32 - candidates of a row: logits, or the candidates that the previous round kept
//   share: u32 - candidates of a workgroup, a power of two and a multiple of `kept`
//   kept: u32 - candidates that a workgroup keeps, a power of two
//   stride: u32 - elements from row to row of the logits, in the first round
//   logits: BoundBuffer? - the logits, in the first round
//
// Buffers:
//   logits: f32 - `[rows, count]`
//   found: vec2<u32> - the keys and ids that the previous round kept, and its pairs,
//     `[rows, count / kept, kept + 1]`
//   best: vec2<u32>, written - keys and ids, and pairs, `[rows, workgroups, kept + 1]`

{% include "shared/bindings" %}
{% include "shared/none" %}
{% set groups = (count + share - 1) // share %}

// Keys, ordered as the logits are; the key of NaN is the largest.
var<workgroup> keys: array<u32, {{share}}>;
var<workgroup> ids: array<u32, {{share}}>;

// A key and id that come after all logits.
const LAST = vec2(0u, NONE);
// The lowest finite f32: a difference to it is a number even if all logits are negative infinity.
const LOWEST = -3.4028235e38f;

{% if logits %}
var<workgroup> partial: array<f32, {{workgroup}}>;

fn key_of(logit: f32) -> u32 {
    let bits = bitcast<u32>(logit);
    // NaN has all bits of the exponent and some of the mantissa set.
    if (bits & 0x7fffffffu) > 0x7f800000u {
        return 0xffffffffu;
    }
    return select(bits | 0x80000000u, ~bits, bits >= 0x80000000u);
}

fn logit_of(key: u32) -> f32 {
    return bitcast<f32>(select(~key, key & 0x7fffffffu, key >= 0x80000000u));
}

// Returns the pair of a workgroup whose candidates are sorted.
fn pair_of(index: u32) -> vec2<u32> {
    let highest = max(logit_of(keys[0]), LOWEST);
    var sum = 0.0;
    for (var i = index; i < {{share}}u; i += {{workgroup}}u) {
        if ids[i] != NONE {
            sum += exp(logit_of(keys[i]) - highest);
        }
    }
    partial[index] = sum;
    for (var half = {{workgroup // 2}}u; half > 0u; half /= 2u) {
        workgroupBarrier();
        if index < half {
            partial[index] += partial[index + half];
        }
    }
    return vec2(bitcast<u32>(highest), bitcast<u32>(partial[0]));
}
{% else %}
// Joins the pairs of the previous round's workgroups from `first` on.
fn joined(row: u32, first: u32) -> vec2<u32> {
    let end = min(first + {{share // kept}}u, {{count // kept}}u);
    var highest = LOWEST;
    for (var g = first; g < end; g++) {
        highest = max(highest, bitcast<f32>(found[(row * {{count // kept}}u + g) * {{kept + 1}}u + {{kept}}u].x));
    }
    var sum = 0.0;
    for (var g = first; g < end; g++) {
        let pair = bitcast<vec2<f32>>(found[(row * {{count // kept}}u + g) * {{kept + 1}}u + {{kept}}u]);
        sum += pair.y * exp(pair.x - highest);
    }
    return vec2(bitcast<u32>(highest), bitcast<u32>(sum));
}
{% endif %}

fn comes_before(a: u32, b: u32) -> bool {
    return keys[a] > keys[b] || (keys[a] == keys[b] && ids[a] < ids[b]);
}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let row = group.y;
    for (var i = index; i < {{share}}u; i += {{workgroup}}u) {
        let at = group.x * {{share}}u + i;
        var entry = LAST;
        if at < {{count}}u {
            {% if logits %}
            entry = vec2(key_of(logits[row * {{stride}}u + at]), at);
            {% else %}
            entry = found[(row * {{count // kept}}u + at / {{kept}}u) * {{kept + 1}}u + at % {{kept}}u];
            {% endif %}
        }
        keys[i] = entry.x;
        ids[i] = entry.y;
    }
    // A bitonic sort, after Batcher 1968.
    for (var size = 2u; size <= {{share}}u; size *= 2u) {
        for (var distance = size / 2u; distance > 0u; distance /= 2u) {
            workgroupBarrier();
            for (var n = index; n < {{share // 2}}u; n += {{workgroup}}u) {
                let a = 2u * n - n % distance;
                let b = a + distance;
                let falls = (a & size) == 0u;
                if comes_before(b, a) == falls {
                    let entry = vec2(keys[a], ids[a]);
                    keys[a] = keys[b];
                    ids[a] = ids[b];
                    keys[b] = entry.x;
                    ids[b] = entry.y;
                }
            }
        }
    }
    workgroupBarrier();
    let to = (row * {{groups}}u + group.x) * {{kept + 1}}u;
    if index < {{kept}}u {
        best[to + index] = vec2(keys[index], ids[index]);
    }
    let pair = {{ "pair_of(index)" if logits else "joined(row, group.x * " ~ share // kept ~ "u)" }};
    if index == 0u {
        best[to + {{kept}}u] = pair;
    }
}
