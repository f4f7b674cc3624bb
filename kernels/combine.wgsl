// Adds up what a token's experts made of it, times their weights.

{{prelude}}

{{bindings}}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.x * {{workgroup}}u + index;
    let row = group.y;
    if column >= {{width}}u {
        return;
    }
    var sum = 0.0;
    for (var i = row * {{used}}u; i < (row + 1u) * {{used}}u; i++) {
        let slot = slot_of[i];
        if slot != 0xffffffffu {
            sum += bitcast<f32>(taken[i].y) * results[slot * {{x_stride}}u + column];
        }
    }
    y[row * {{y_stride}}u + column] = sum;
}
