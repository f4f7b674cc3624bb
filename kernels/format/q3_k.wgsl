// Q3_K: 8 bytes of low bits a unit, then a word of high bits, then the scales' low bits (two words)
// and high bits (one) for eight units, then their f16 scale.
//
// Parameters:
//   matrix: MatrixPlanes - the matrix
fn unit{{matrix.number}}(row: u32, u: u32) -> Unit {
    let i = row * {{matrix.units}}u + u;
    let block = i / 8u;
    let half = i % 8u * 2u;
    let d = half_of(small{{matrix.number}}[{{matrix.planes[3]}}u + block / 2u], block);
    let low = vec2(small{{matrix.number}}[{{matrix.planes[2]}}u + block * 3u + half / 8u])
        >> (vec2(half % 8u, half % 8u + 1u) * 4u);
    let high = vec2(small{{matrix.number}}[{{matrix.planes[2]}}u + block * 3u + 2u]) >> (vec2(half, half + 1u) * 2u);
    let scale = d * (vec2<f32>((low & vec2(15u)) | ((high & vec2(3u)) << vec2(4u))) - 32.0);
    let words = wide{{matrix.number}}[i / 2u];
    let codes = select(words.xy, words.zw, i % 2u == 1u);
    let top = small{{matrix.number}}[{{matrix.planes[1]}}u + i];
    let lo = two_bits(codes.x) | (one_bit(top) << vec4(2u));
    let hi = two_bits(codes.y) | (one_bit(top >> 4u) << vec4(2u));
    return Unit(lo, hi, scale, 4.0 * scale);
}
