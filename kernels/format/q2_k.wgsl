// Q2_K: 8 bytes of codes a unit, then scale and minimum of each half in four bits each, then the
// scales of both for eight units.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = unpack2x16float(small{{matrix.number}}[{{matrix.planes[2]}}u + i / 8u]);
    let pairs = unpack4xU8(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 2u]);
    let pair = select(pairs.xy, pairs.zw, i % 2u == 1u);
    let words = wide{{matrix.number}}[i / 2u];
    let codes = select(words.xy, words.zw, i % 2u == 1u);
    let scale = d.x * vec2<f32>(pair & vec2(15u));
    return Unit(two_bits(codes.x), two_bits(codes.y), scale, d.y * vec2<f32>(pair >> vec2(4u)));
}
