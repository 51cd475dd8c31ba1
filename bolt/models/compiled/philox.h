// Random numbers from a counter: Philox-4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405). The numbers of an
// address are the same in every pass, for any number of threads, any instruction set and any device (`parts/masks.py`).
#pragma once
#if defined(__SSE2__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <arm_neon.h>
#endif
#include "simd.h"

namespace {

typedef uint64_t Words __attribute__((vector_size(WIDE_BYTES), may_alias));  // 32-bit words, each in the low half of a lane
constexpr Int AT_ONCE = WIDE_BYTES / 8;  // counters of a vector
constexpr Int NUMBERS = 8;               // of 16 bits each, from one counter
constexpr uint32_t CLS_SLOT = 0xFFFFFFFF;

#if defined(__AVX512F__)
inline Words product(Words a, Words b) { return (Words)_mm512_mul_epu32((__m512i)a, (__m512i)b); }
inline Words evens(Words a, Words b) { return (Words)_mm512_unpacklo_epi64((__m512i)a, (__m512i)b); }
inline Words odds(Words a, Words b) { return (Words)_mm512_unpackhi_epi64((__m512i)a, (__m512i)b); }
#elif defined(__AVX2__)
inline Words product(Words a, Words b) { return (Words)_mm256_mul_epu32((__m256i)a, (__m256i)b); }
inline Words evens(Words a, Words b) { return (Words)_mm256_unpacklo_epi64((__m256i)a, (__m256i)b); }
inline Words odds(Words a, Words b) { return (Words)_mm256_unpackhi_epi64((__m256i)a, (__m256i)b); }
#elif defined(__SSE2__)
inline Words product(Words a, Words b) { return (Words)_mm_mul_epu32((__m128i)a, (__m128i)b); }
inline Words evens(Words a, Words b) { return (Words)_mm_unpacklo_epi64((__m128i)a, (__m128i)b); }
inline Words odds(Words a, Words b) { return (Words)_mm_unpackhi_epi64((__m128i)a, (__m128i)b); }
#else
#if defined(__aarch64__)
inline Words product(Words a, Words b) { return (Words)vmull_u32(vmovn_u64((uint64x2_t)a), vmovn_u64((uint64x2_t)b)); }
#else
inline Words product(Words a, Words b) { return (a & 0xFFFFFFFF) * (b & 0xFFFFFFFF); }
#endif
inline Words evens(Words a, Words b) { return Words{a[0], b[0]}; }
inline Words odds(Words a, Words b) { return Words{a[1], b[1]}; }
#endif
static_assert(AT_ONCE == 2 || sizeof(Words) >= 32, "evens and odds of vectors without intrinsics have two lanes");

inline void store_words(Words v, int16_t* p) { __builtin_memcpy(p, &v, sizeof(v)); }

struct Line {  // the address of a line of elements, but for their place in it; in the mask of a tensor all are 0
    Int first, row, head, slot;  // group of eight elements with which it begins; query, head, window
};

// Write the numbers of `n` groups of a line, rounded up to vectors.
inline void draw(uint64_t seed, const Line& line, Int n, int16_t* out) {
    const Words m0 = Words{} + 0xD2511F53, m1 = Words{} + 0xCD9E8D57;
    // even lanes first, then odd ones: then the first halves of the results, interleaved, are in order
    Words order;
    for (Int i = 0; i < AT_ONCE; i++) order[i] = i / 2 + i % 2 * (AT_ONCE / 2);
    for (Int group = 0; group < n; group += AT_ONCE) {
        Words x0 = order + uint64_t(line.first + group), x1 = Words{} + uint32_t(line.row);
        Words x2 = Words{} + uint32_t(line.head), x3 = Words{} + uint32_t(line.slot);
        uint32_t k0 = uint32_t(seed), k1 = uint32_t(seed >> 32);
        for (int round = 0; round < 10; round++) {  // the high halves of lanes may hold anything
            const Words p0 = product(x0, m0), p1 = product(x2, m1);
            x0 = (p1 >> 32) ^ x1 ^ (Words{} + k0);
            x2 = (p0 >> 32) ^ x3 ^ (Words{} + k1);
            x1 = p1;
            x3 = p0;
            k0 += 0x9E3779B9;
            k1 += 0xBB67AE85;
        }
        const Words low = (x0 & 0xFFFFFFFF) | (x1 << 32), high = (x2 & 0xFFFFFFFF) | (x3 << 32);
        store_words(evens(low, high), out + group * NUMBERS);
        store_words(odds(low, high), out + group * NUMBERS + AT_ONCE * NUMBERS / 2);
    }
}

template <class S> inline Mask<S> drawn(const int16_t* numbers) {
    Numbers<S> some;
    __builtin_memcpy(&some, numbers, sizeof(some));
    return __builtin_convertvector(some, Mask<S>);
}

// Write which elements of a line are kept, 0 or 1 in a byte: those whose number is at least `least`.
inline void write_mask(uint64_t seed, Line line, Int n, int least, uint8_t* out) {
    constexpr Int SOME = 128;
    int16_t numbers[(SOME + AT_ONCE) * NUMBERS];
    for (; n > 0; n -= SOME) {
        const Int some = smaller(n, SOME);
        draw(seed, line, some, numbers);
        for (Int i = 0; i < some * NUMBERS; i++) out[i] = numbers[i] >= least;
        line.first += SOME;
        out += SOME * NUMBERS;
    }
}

}  // namespace
