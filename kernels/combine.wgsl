// Sums the results of a row's experts: y[row] = sum over i of weight[row, i] *
// results[slot_of[row, i]].
//
// Parameters (`Combine`):
//   workgroup: u32 - invocations of a workgroup, each of which computes a column
//   width: u32 - columns of a row
//   top_k: u32 - largest number of active experts of a row
//   results: Strided - the experts' results, `[slots, width]`
//   y: Strided - the sums, `[rows, width]`
//
// Buffers:
//   selected: vec2<u32> - the expert and the bits of its weight, `[rows, top_k]`
//   slot_of: u32 - the slot, or NONE, `[rows, top_k]`
//   results: f32
//   y: f32, written

{% include "shared/bindings" %}
{% include "shared/none" %}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.x * {{workgroup}}u + index;
    let row = group.y;
    if column >= {{width}}u {
        return;
    }
    var sum = 0.0;
    for (var i = row * {{top_k}}u; i < (row + 1u) * {{top_k}}u; i++) {
        let slot = slot_of[i];
        if slot != NONE {
            sum += bitcast<f32>(selected[i].y) * results[slot * {{results.stride}}u + column];
        }
    }
    y[row * {{y.stride}}u + column] = sum;
}
