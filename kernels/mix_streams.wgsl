// Computes weighted sums of the parts of rows: part `o` of a row of `y` is the sum over `s` of
// weights[o, s] times part `s` of the row of `x`.
//
// Parameters (`MixStreamsKernel`):
//   workgroup: u32 - invocations of a workgroup, each of which computes a column
//   width: u32 - columns of a row of `y`
//   part: u32 - columns of a part
//   streams: u32 - parts of a row of `x`
//   x: Strided - the rows, `[rows, streams * part]`
//   weights: Strided - the weights, `[rows, width / part * streams]`
//   y: Strided - the result, `[rows, width]`
//
// Buffers:
//   y: f32, written
//   x: f32
//   weights: f32

{% include "shared/bindings" %}

@compute @workgroup_size({{workgroup}})
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) index: u32) {
    let column = group.x * {{workgroup}}u + index;
    let row = group.y;
    if column >= {{width}}u {
        return;
    }
    let first = row * {{x.stride}}u + column % {{part}}u;
    let weights_at = row * {{weights.stride}}u + column / {{part}}u * {{streams}}u;
    var sum = 0.0;
    for (var s = 0u; s < {{streams}}u; s++) {
        sum = fma(weights[weights_at + s], x[first + s * {{part}}u], sum);
    }
    y[row * {{y.stride}}u + column] = sum;
}
