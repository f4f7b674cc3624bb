// NVFP4: 16 bytes of codes a unit, then an index of a scale for each half, then half of each scale.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let scales = vec2(small{{matrix.number}}[{{matrix.planes[1]}}u + i / 2u] >> (i % 2u * 16u)) >> vec2(0u, 8u);
    let x = bitcast<f32>({{matrix.table}}[{{matrix.table_at}}u + (scales.x & 255u)]);
    let y = bitcast<f32>({{matrix.table}}[{{matrix.table_at}}u + (scales.y & 255u)]);
    return looked_up(four_bits(wide{{matrix.number}}[i], vec2(x, y), vec2(0.0)), DOUBLED);
}
