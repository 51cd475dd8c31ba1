// Vectors, exponentials and matrix products of kernel.cpp, which is compiled once per instruction set.
//
// Everything is in an unnamed namespace and no function of the standard library is instantiated: the linker would keep
// one copy of it for all instruction sets, possibly one that this processor cannot run.
#pragma once
#include "call.h"

namespace {

#if defined(__AVX512F__)
constexpr int BYTES = 32, WIDE_BYTES = 64, BLOCK_ROWS = 8;  // per vector; per vector of matrix products and exponentials
#elif defined(__AVX2__)
constexpr int BYTES = 32, WIDE_BYTES = 32, BLOCK_ROWS = 4;
#elif defined(__aarch64__)
constexpr int BYTES = 16, WIDE_BYTES = 16, BLOCK_ROWS = 8;
#else
constexpr int BYTES = 16, WIDE_BYTES = 16, BLOCK_ROWS = 4;
#endif

template <class S, int SIZE> struct Simd;
template <int SIZE> struct Simd<float, SIZE> {
    typedef float V __attribute__((vector_size(SIZE), may_alias));
    typedef int32_t I __attribute__((vector_size(SIZE), may_alias));
    typedef int16_t N __attribute__((vector_size(SIZE / 2)));
};
template <int SIZE> struct Simd<double, SIZE> {
    typedef double V __attribute__((vector_size(SIZE), may_alias));
    typedef int64_t I __attribute__((vector_size(SIZE), may_alias));
    typedef int16_t N __attribute__((vector_size(SIZE / 4)));
};
template <class S> constexpr Int LANES = BYTES / sizeof(S);
template <class S> constexpr Int WIDE_LANES = WIDE_BYTES / sizeof(S);
template <class S> using Vec = typename Simd<S, BYTES>::V;
template <class S> using Wide = typename Simd<S, WIDE_BYTES>::V;
template <class S> using Mask = typename Simd<S, BYTES>::I;
template <class S> using Numbers = typename Simd<S, BYTES>::N;  // random numbers, one per lane

template <class S> inline Vec<S>& at(S* p) { return *reinterpret_cast<Vec<S>*>(p); }
template <class S> inline Vec<S> at(const S* p) { return *reinterpret_cast<const Vec<S>*>(p); }
template <class S, int SIZE> struct __attribute__((packed, may_alias)) Unaligned {
    typename Simd<S, SIZE>::V value;
};
template <class S, int SIZE = WIDE_BYTES> inline typename Simd<S, SIZE>::V load(const S* p) {
    return reinterpret_cast<const Unaligned<S, SIZE>*>(p)->value;
}
template <class S, int SIZE = WIDE_BYTES> inline void store(typename Simd<S, SIZE>::V v, S* p) {
    reinterpret_cast<Unaligned<S, SIZE>*>(p)->value = v;
}

template <class T> inline T smaller(T a, T b) { return b < a ? b : a; }
template <class T> inline T larger(T a, T b) { return a < b ? b : a; }
inline Int up(Int n, Int multiple) { return (n + multiple - 1) / multiple * multiple; }

template <class S> inline S sum(Vec<S> v) {
    S total[LANES<S>];
    for (int i = 0; i < LANES<S>; i++) total[i] = v[i];
    for (int by = LANES<S> / 2; by; by /= 2)
        for (int i = 0; i < by; i++) total[i] += total[i + by];
    return total[0];
}
template <class V, class S> inline S largest(V v, S first) {
    for (unsigned i = 0; i < sizeof(V) / sizeof(S); i++) first = larger<S>(first, v[i]);
    return first;
}
template <class I> inline I lanes() {
    I lane;
    for (unsigned i = 0; i < sizeof(I) / sizeof(lane[0]); i++) lane[i] = i;
    return lane;
}
template <class I> inline I inside(Int u, Int lo, Int hi) {  // which keys from u on are in [lo, hi)
    using Lane = decltype(I{}[0] + 0);
    const I key = lanes<I>() + Lane(u);
    return (key >= Lane(lo)) & (key < Lane(hi));
}

struct All {};  // the mask of a vector whose keys are all inside
template <class S> inline Vec<S> kept(Mask<S> within, Vec<S> v) { return within ? v : Vec<S>{}; }
template <class S> inline Vec<S> kept(All, Vec<S> v) { return v; }

// exp for x <= 0: range reduction by powers of two, then a polynomial (relative errors below 2e-7 and 1e-15).
template <int SIZE> inline typename Simd<float, SIZE>::V exponential_of(typename Simd<float, SIZE>::V x, float) {
    typedef typename Simd<float, SIZE>::V V;
    typedef typename Simd<float, SIZE>::I I;
    x = x < -87.0f ? V{} - 87.0f : x;  // NaN is kept
    const V shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low bits of the sum are the rounded quotient
    const V n = shifted - 12582912.0f;
    const V r = x - n * 0.693145752f - n * 1.42860677e-6f;
    V y = r * 1.3888889e-3f + 8.3333333e-3f;
    y = y * r + 4.1666667e-2f;
    y = y * r + 1.6666667e-1f;
    y = y * r + 0.5f;
    y = y * r + 1.0f;
    y = y * r + 1.0f;
    const I power = ((I)shifted - 0x4B400000 + 127) << 23;
    return y * (V)power;
}
template <int SIZE> inline typename Simd<double, SIZE>::V exponential_of(typename Simd<double, SIZE>::V x, double) {
    typedef typename Simd<double, SIZE>::V V;
    typedef typename Simd<double, SIZE>::I I;
    x = x < -708.0 ? V{} - 708.0 : x;
    const V shifted = x * 1.4426950408889634 + 6755399441055744.0;  // 1.5 * 2^52
    const V n = shifted - 6755399441055744.0;
    const V r = x - n * 0.6931471803691238 - n * 1.9082149292705877e-10;
    constexpr double FACTORIALS[] = {479001600., 39916800., 3628800., 362880., 40320., 5040., 720., 120., 24., 6., 2., 1., 1.};
    V y = V{} + 1 / 6227020800.;
    for (const double factorial : FACTORIALS) y = y * r + 1 / factorial;
    const I power = ((I)shifted - 0x4338000000000000 + 1023) << 52;
    return y * (V)power;
}
template <class S, class V> inline V exponential(V x) { return exponential_of<sizeof(V)>(x, S()); }

// c[R, columns] (+)= a[R, depth] b[depth, columns] for N wide vectors of columns, then a narrow one if HALF; `row` and
// `step` are the strides of a's rows and columns
template <class S, int R, int N, bool HALF, bool ADD>
inline void block(const S* a, Int row, Int step, const S* b, Int ldb, S* c, Int ldc, Int depth) {
    constexpr Int REST = N * WIDE_LANES<S>;
    Wide<S> total[R][N + !N];
    Vec<S> rest[R];
    for (int i = 0; i < R; i++) {
        for (int j = 0; j < N; j++) total[i][j] = ADD ? load(c + i * ldc + j * WIDE_LANES<S>) : Wide<S>{};
        if (HALF) rest[i] = ADD ? at(c + i * ldc + REST) : Vec<S>{};
    }
    for (Int k = 0; k < depth; k++) {
        Wide<S> right[N + !N];
        Vec<S> last;
        for (int j = 0; j < N; j++) right[j] = load(b + k * ldb + j * WIDE_LANES<S>);
        if (HALF) last = at(b + k * ldb + REST);
        for (int i = 0; i < R; i++) {
            const S left = a[i * row + k * step];
            for (int j = 0; j < N; j++) total[i][j] += left * right[j];
            if (HALF) rest[i] += left * last;
        }
    }
    for (int i = 0; i < R; i++) {
        for (int j = 0; j < N; j++) store(total[i][j], c + i * ldc + j * WIDE_LANES<S>);
        if (HALF) at(c + i * ldc + REST) = rest[i];
    }
}

// c[rows, columns] (+)= a b; rows in blocks, as many as the registers hold, columns in vectors
template <class S, bool ADD>
void multiply(Int rows, Int columns, Int depth, const S* a, Int row, Int step, const S* b, Int ldb, S* c, Int ldc) {
    constexpr bool HALVES = WIDE_BYTES > BYTES;
    for (Int j = 0; j < columns;) {
        const Int left = (columns - j) / LANES<S>, wide = left * LANES<S> / WIDE_LANES<S>;
        const bool half = HALVES && left % 2;
        Int done = 0;
        for (Int i = 0; i < rows; i += BLOCK_ROWS) {
            const S *from = a + i * row, *right = b + j;
            S* to = c + i * ldc + j;
#define BLOCK(N, HALF) (block<S, BLOCK_ROWS, N, HALF, ADD>(from, row, step, right, ldb, to, ldc, depth), done = N * WIDE_LANES<S> + HALF * LANES<S>)
            if (wide >= 3) BLOCK(3, false);
            else if (wide == 2) half ? BLOCK(2, HALVES) : BLOCK(2, false);
            else if (wide == 1) half ? BLOCK(1, HALVES) : BLOCK(1, false);
            else BLOCK(0, true);
#undef BLOCK
        }
        j += done;
    }
}

// Copy a row of a head. (A loop over scalars would be compiled into a call of memcpy, for a few bytes.)
template <class S> inline void copy(const S* from, Int n, S* to) {
    constexpr Int SOME = 16 / sizeof(S);
    Int c = 0;
    for (; c + SOME <= n; c += SOME) store<S, 16>(load<S, 16>(from + c), to + c);
    for (; c < n; c++) to[c] = from[c];
}
template <class S> inline void clear(S* p, Int n) { __builtin_memset(p, 0, n * sizeof(S)); }

}  // namespace
