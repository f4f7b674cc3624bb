// Q6_K: 16 bytes of low bits a unit, then 8 of high bits, then two signed scales, then a
// f16 scale of the scales for eight units.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[3]}}u + i / 16u], i / 8u);
    let scales = unpack4xI8(small{{matrix.number}}[{{matrix.planes[2]}}u + i / 2u]);
    let scale = d * vec2<f32>(select(scales.xy, scales.zw, i % 2u == 1u));
    let low = four_bits(wide{{matrix.number}}[i], scale, 32.0 * scale);
    let pair = wide{{matrix.number}}[{{matrix.planes[1] // 4}}u + i / 2u];
    let high = select(pair.xy, pair.zw, i % 2u == 1u);
    return Unit(low.lo | (two_bits(high.x) << vec4(4u)), low.hi | (two_bits(high.y) << vec4(4u)), low.scale, low.min);
}
