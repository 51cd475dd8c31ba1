// FW-MSA on the CPU: attention within overlapping windows and fusion of its outputs; forward pass, backward pass, and the
// gradient-weighted maps of Algorithm 1. `native.py` compiles this file, `window.py` documents inputs and outputs.
//
// The score of a query and a BOLD key does not depend on the window, and fusion is a mean. So for a token t in P windows
//
//     fused[t] = sum_u E[t,u] C[t,u] v[u] + CLS terms,   E = exp(score),   C[t,u] = 1/P sum_{i: u in window i} 1/Z[t,i]
//
// where Z[t,i] sums E over the keys of window i and its CLS key. Scores, exponentials and products with values are thus
// computed once per pair, in tiles of `ROWS` queries against the union of their keys; each window adds only its
// normaliser and its dropout mask. The backward pass recomputes E instead of storing it.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <thread>
#include <type_traits>
#include <vector>

namespace {

using Int = int64_t;
enum ClsKind : Int { NONE = 0, LOCAL = 1, GLOBAL = 2 };
constexpr int BYTES = 32;  // per vector; the compiler splits vectors that the machine does not have
constexpr int ROWS = 8;    // queries per tile

template <class S> struct Simd;
template <> struct Simd<float> {
    typedef float V __attribute__((vector_size(BYTES), may_alias));
    typedef float Loose __attribute__((vector_size(BYTES), may_alias, aligned(4)));
    typedef int32_t I __attribute__((vector_size(BYTES), may_alias));
    typedef uint32_t U __attribute__((vector_size(BYTES)));
};
template <> struct Simd<double> {
    typedef double V __attribute__((vector_size(BYTES), may_alias));
    typedef double Loose __attribute__((vector_size(BYTES), may_alias, aligned(8)));
    typedef int64_t I __attribute__((vector_size(BYTES), may_alias));
    typedef uint32_t U __attribute__((vector_size(BYTES / 2)));
};
template <class S> constexpr Int LANES = BYTES / sizeof(S);
template <class S> using Vec = typename Simd<S>::V;
template <class S> using Mask = typename Simd<S>::I;
template <class S> using Bits = typename Simd<S>::U;

template <class S> inline Vec<S>& at(S* p) { return *reinterpret_cast<Vec<S>*>(p); }
template <class S> inline Vec<S> at(const S* p) { return *reinterpret_cast<const Vec<S>*>(p); }
template <class S> inline Vec<S> loose(const S* p) { return *reinterpret_cast<const typename Simd<S>::Loose*>(p); }
template <class S> inline void add_loose(S* p, Vec<S> v) { *reinterpret_cast<typename Simd<S>::Loose*>(p) += v; }
inline Vec<float> turned(Vec<float> v, int by) {  // swaps lanes that are `by` apart, a power of two
    if (by == 4) return __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
    if (by == 2) return __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
    return __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
}
inline Vec<double> turned(Vec<double> v, int by) {
    if (by == 2) return __builtin_shufflevector(v, v, 2, 3, 0, 1);
    return __builtin_shufflevector(v, v, 1, 0, 3, 2);
}
template <class S> inline S sum(Vec<S> v) {
    for (int by = LANES<S> / 2; by; by /= 2) v += turned(v, by);
    return v[0];
}
template <class S> inline S largest(Vec<S> v) {
    for (int by = LANES<S> / 2; by; by /= 2) {
        const Vec<S> other = turned(v, by);
        v = v > other ? v : other;
    }
    return v[0];
}
template <class S> inline Mask<S> lanes() {
    Mask<S> lane;
    for (int i = 0; i < LANES<S>; i++) lane[i] = i;
    return lane;
}

// exp for x <= 0: range reduction by powers of two, then a polynomial of degree 6 (relative error below 2e-7).
inline Vec<float> exponential(Vec<float> x) {
    typedef Vec<float> V;
    typedef Mask<float> I;
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
inline Vec<double> exponential(Vec<double> x) {
    for (Int i = 0; i < LANES<double>; i++) x[i] = std::exp(x[i]);
    return x;
}

inline uint64_t mixed(uint64_t a, uint64_t b) {  // splitmix64 hash of two numbers
    uint64_t z = (a ^ (b * 0xD1B54A32D192ED03ull)) + 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// One xorshift generator per lane, seeded for every tile: the same masks in both passes, for any number of threads.
template <class S> struct Random {
    Bits<S> state;
    void seed(uint64_t key) {
        for (Int i = 0; i < LANES<S>; i += 2) {
            const uint64_t bits = mixed(key, i);
            state[i] = uint32_t(bits) | 1;
            state[i + 1] = uint32_t(bits >> 32) | 1;
        }
    }
    inline Bits<S> next() {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        return state;
    }
};

// c[4, N vectors] (+)= a[4, depth] b[depth, N vectors]; `row` and `step` are the strides of a's rows and columns
template <class S, int N, bool ADD>
inline void block(const S* a, Int row, Int step, const S* b, Int ldb, S* c, Int ldc, Int depth) {
    Vec<S> total[4][N];
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < N; j++) total[i][j] = ADD ? at(c + i * ldc + j * LANES<S>) : Vec<S>{};
    for (Int k = 0; k < depth; k++) {
        Vec<S> right[N];
        for (int j = 0; j < N; j++) right[j] = at(b + k * ldb + j * LANES<S>);
        for (int i = 0; i < 4; i++) {
            const S left = a[i * row + k * step];
            for (int j = 0; j < N; j++) total[i][j] += left * right[j];
        }
    }
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < N; j++) at(c + i * ldc + j * LANES<S>) = total[i][j];
}

// c[rows, columns] (+)= a b; rows in groups of four, columns in vectors
template <class S, bool ADD>
void multiply(Int rows, Int columns, Int depth, const S* a, Int row, Int step, const S* b, Int ldb, S* c, Int ldc) {
    for (Int j = 0; j < columns;) {
        const Int left = (columns - j) / LANES<S>;
        for (Int i = 0; i < rows; i += 4) {
            const S* from = a + i * row;
            S* to = c + i * ldc + j;
            if (left >= 3) block<S, 3, ADD>(from, row, step, b + j, ldb, to, ldc, depth);
            else if (left == 2) block<S, 2, ADD>(from, row, step, b + j, ldb, to, ldc, depth);
            else block<S, 1, ADD>(from, row, step, b + j, ldb, to, ldc, depth);
        }
        j += std::min<Int>(left, 3) * LANES<S>;
    }
}

inline Int up(Int n, Int multiple) { return (n + multiple - 1) / multiple * multiple; }

template <class S> class Array {  // aligned to vectors
  public:
    void zeros(Int n) {
        resize(n);
        std::fill(data_, data_ + n, S(0));
    }
    void resize(Int n) {
        const Int padded = n + BYTES / Int(sizeof(S));
        if (padded > Int(own_.size())) own_.resize(padded);
        const auto address = reinterpret_cast<uintptr_t>(own_.data());
        data_ = own_.data() + (up(address, BYTES) - address) / sizeof(S);
    }
    operator S*() { return data_; }

  private:
    std::vector<S> own_;
    S* data_ = nullptr;
};

struct Scan {  // a row of `Windows.table`; offsets are rows of the packed arrays, CLS tokens first
    Int first_token, n_tokens, first_key, n_keys, first_cls, first_window, n_windows;
};

struct Call {
    Int n_scans, n_heads, head_dim, window, fringe, reach, cls_positions, window_positions, cls_kind, bold_rows, n_cls;
    Int threads;
    double dropout;
    uint64_t seed;
    const Scan* scans;
    const Int* starts;  // first volume of every window, scan by scan
    // q (rows, h d); kv (keys, 2 h d); bias (h, near | CLS to BOLD | BOLD to CLS | CLS to CLS); gradients have the same
    // shapes, dbias one copy per scan
    const void *q, *kv, *bias, *gradient;
    void *out, *dq, *dkv, *dbias;
    // relevance, one copy per thread: (tokens, near), (CLS, positions), (windows, positions), (CLS)
    void *near_map, *cls_bold_map, *bold_cls_map, *cls_cls_map;

    Int near() const { return 2 * reach - 1; }
    Int n_bias() const { return near() + cls_positions + window_positions + 1; }
};

template <class S> struct Member {  // a query in one of its windows
    Int lo, hi, cls, slot;          // range of its keys; its CLS key (-1: none); index of its BOLD-to-CLS bias
    // of the CLS key: score, e = E, mixed = weight after fusion, gv = its gradient; of the window: z = Z, weight = 1/(P Z), d = D
    S score, e, z, weight, mixed, gv, d;
    S top;                          // the window's largest score, if `apart`
};

template <class S> struct Row {  // a query
    Int token, lo, hi, first, last;  // row in q; union of its keys; range of its members
    Int shift;                       // the bias of key u is at shift + u in the padded table
    bool cls;
    bool apart;  // scores differ so much between windows that they cannot share exponentials
};

// All queries of one scan and head.
template <class S> class Head {
  public:
    explicit Head(const Call& call) : call_(call), inner_(call.n_heads * call.head_dim), d_(call.head_dim) {
        wide_ = up(d_, LANES<S>);
        margin_ = ROWS * std::max(call.window, Int(LANES<S>)) + 4 * LANES<S> + ROWS;
        scale_ = S(1) / std::sqrt(S(d_));
        threshold_ = uint32_t(std::min(call.dropout * 4294967296.0, 4294967295.0));
        kept_ = S(1) / S(1 - call.dropout);
    }

    void forward(Int scan, Int head) {
        open(scan, head, false);
        tiles([this](Int rows) {
            S* out = static_cast<S*>(call_.out) + head_ * d_;
            for (const auto& row : rows_) prefetch(out + row.token * inner_);
            score(rows);
            mix(rows, false);
            multiply<S, false>(ROWS, wide_, width_, weights_, width_, 1, v_ + lo_ * wide_, wide_, result_, wide_);
            for (Int r = 0; r < rows; r++) {
                for (Int p = rows_[r].first; p < rows_[r].last; p++)
                    if (members_[p].cls >= 0) axpy(members_[p].mixed, cls_v_ + members_[p].cls * wide_, result_ + r * wide_);
                std::copy_n(result_ + r * wide_, d_, out + rows_[r].token * inner_);
            }
        });
    }

    void backward(Int scan, Int head) {
        open(scan, head, true);
        dk_.zeros((keys_ + ROWS) * wide_);
        dv_.zeros((keys_ + ROWS) * wide_);
        dcls_k_.zeros((n_cls_ + 1) * wide_);
        dcls_v_.zeros((n_cls_ + 1) * wide_);
        dnear_.zeros(call_.near() + 2 * margin_);
        dcls_near_.zeros(call_.cls_positions + 2 * margin_);
        dslots_ = static_cast<S*>(call_.dbias) + (scan * call_.n_heads + head) * call_.n_bias() + call_.near() + call_.cls_positions;
        std::fill_n(dslots_, call_.window_positions + 1, S(0));
        tiles([this](Int rows) { backward_tile(rows); });
        close(scan, head);
    }

    // the windowed maps of Algorithm 1 (equation 5), summed over windows and, by the caller, over heads
    void relevance(Int scan, Int head, Int thread) {
        open(scan, head, true);
        tiles([this, thread](Int rows) {
            score(rows);
            gradients(rows);
            mix(rows, true);
            for (Int r = 0; r < rows; r++) write_maps(rows_[r], r, thread);
        });
    }

  private:
    // ---- copy one scan and head in and out ----
    void open(Int scan, Int head, bool gradients) {
        scan_ = call_.scans[scan];
        head_ = head;
        task_ = mixed(call_.seed, scan * call_.n_heads + head);
        n_cls_ = call_.cls_kind == NONE ? 0 : call_.cls_kind == LOCAL ? scan_.n_windows : 1;
        keys_ = up(scan_.n_keys, LANES<S>) + ROWS + 4 * LANES<S>;  // tiles are padded to whole vectors and groups of four rows
        keys_ = up(keys_, LANES<S>);
        kt_.zeros(d_ * keys_);
        (gradients ? k_ : v_).zeros(keys_ * wide_);
        if (gradients) vt_.zeros(d_ * keys_);
        const S* kv = static_cast<const S*>(call_.kv) + head * d_;
        for (Int u = 0; u < scan_.n_keys; u++) {
            const S* key = kv + (scan_.first_key + u) * 2 * inner_;
            const S* value = key + inner_;
            prefetch(key + ROWS * 2 * inner_);
            prefetch(value + ROWS * 2 * inner_);
            std::copy_n(gradients ? key : value, d_, (gradients ? k_ : v_) + u * wide_);
            for (Int c = 0; c < d_; c++) kt_[c * keys_ + u] = key[c];
            if (gradients)
                for (Int c = 0; c < d_; c++) vt_[c * keys_ + u] = value[c];
        }
        cls_k_.zeros((n_cls_ + 1) * wide_);
        cls_v_.zeros((n_cls_ + 1) * wide_);
        for (Int i = 0; i < n_cls_; i++) {
            std::copy_n(kv + (scan_.first_cls + i) * 2 * inner_, d_, cls_k_ + i * wide_);
            std::copy_n(kv + (scan_.first_cls + i) * 2 * inner_ + inner_, d_, cls_v_ + i * wide_);
        }
        const S* bias = static_cast<const S*>(call_.bias) + head * call_.n_bias();
        near_.zeros(call_.near() + 2 * margin_);
        std::copy_n(bias, call_.near(), near_ + margin_);
        cls_near_.zeros(call_.cls_positions + 2 * margin_);
        std::copy_n(bias + call_.near(), call_.cls_positions, cls_near_ + margin_);
        slots_ = bias + call_.near() + call_.cls_positions;  // BOLD to CLS, by position in the window; then CLS to CLS
    }

    // The rows of a head are far apart in memory, where the hardware does not prefetch them.
    void prefetch(const S* p) const {
        for (Int c = 0; c < d_ + 15; c += 64 / sizeof(S)) __builtin_prefetch(p + c);
    }

    void close(Int scan, Int head) {
        S* dkv = static_cast<S*>(call_.dkv) + head * d_;
        for (Int u = 0; u < scan_.n_keys; u++) {
            std::copy_n(dk_ + u * wide_, d_, dkv + (scan_.first_key + u) * 2 * inner_);
            std::copy_n(dv_ + u * wide_, d_, dkv + (scan_.first_key + u) * 2 * inner_ + inner_);
        }
        for (Int i = 0; i < n_cls_; i++) {
            std::copy_n(dcls_k_ + i * wide_, d_, dkv + (scan_.first_cls + i) * 2 * inner_);
            std::copy_n(dcls_v_ + i * wide_, d_, dkv + (scan_.first_cls + i) * 2 * inner_ + inner_);
        }
        S* dbias = static_cast<S*>(call_.dbias) + (scan * call_.n_heads + head) * call_.n_bias();
        std::copy_n(dnear_ + margin_, call_.near(), dbias);
        std::copy_n(dcls_near_ + margin_, call_.cls_positions, dbias + call_.near());
    }

    // ---- which queries meet which keys ----
    template <class Work> void tiles(Work work) {
        const Int* starts = call_.starts + scan_.first_window;
        const Int n_bold = call_.bold_rows ? scan_.n_tokens : 0;
        Int from = 0;  // first window that has not ended before t
        for (Int t = 0; t < n_bold; t += ROWS) {
            clear();
            for (Int r = 0; r < std::min<Int>(ROWS, n_bold - t); r++) {
                while (starts[from] + call_.window <= t + r) from++;
                add_bold(t + r, from);
            }
            fill();
            work(rows_.size());
        }
        for (Int i = 0; i < n_cls_; i += ROWS) {
            clear();
            for (Int j = i; j < std::min(i + ROWS, n_cls_); j++) add_cls(j);
            fill();
            work(rows_.size());
        }
    }

    void clear() {
        rows_.clear();
        members_.clear();
    }

    Member<S> member(Int window, Int cls, Int slot) const {
        const Int start = call_.starts[scan_.first_window + window];
        Member<S> m{};
        m.lo = std::max<Int>(0, start - call_.fringe);
        m.hi = std::min(scan_.n_keys, start + call_.window + call_.fringe);
        m.cls = cls;
        m.slot = slot;
        return m;
    }

    void add_bold(Int t, Int window) {
        const Int first = members_.size();
        for (; window < scan_.n_windows; window++) {
            const Int start = call_.starts[scan_.first_window + window];
            if (start > t) break;
            const Int cls = call_.cls_kind == LOCAL ? window : call_.cls_kind == GLOBAL ? 0 : -1;
            members_.push_back(member(window, cls, t - start));
        }
        finish({call_.n_cls + scan_.first_token + t, 0, 0, first, 0, margin_ + call_.reach - 1 - t, false, false});
    }

    void add_cls(Int i) {
        const Int first = members_.size();
        Int shift = margin_;
        if (call_.cls_kind == LOCAL) {
            members_.push_back(member(i, i, call_.window_positions));
            shift -= call_.starts[scan_.first_window + i] - call_.fringe;
        } else {
            members_.push_back(member(0, 0, call_.window_positions));
            members_.back().lo = 0;
            members_.back().hi = scan_.n_keys;
        }
        finish({scan_.first_cls + i, 0, 0, first, 0, shift, true, false});
    }

    void finish(Row<S> row) {
        row.last = members_.size();
        row.lo = scan_.n_keys;
        for (Int p = row.first; p < row.last; p++) {
            row.lo = std::min(row.lo, members_[p].lo);
            row.hi = std::max(row.hi, members_[p].hi);
        }
        rows_.push_back(row);
    }

    void fill() {  // load the keys and queries of a tile
        lo_ = scan_.n_keys;
        Int hi = 0;
        for (const auto& row : rows_) {
            lo_ = std::min(lo_, row.lo);
            hi = std::max(hi, row.hi);
        }
        lo_ = lo_ / LANES<S> * LANES<S>;
        width_ = up(hi - lo_, std::max<Int>(LANES<S>, 4));
        scores_.resize(ROWS * width_);
        e_.resize(ROWS * width_);
        gv_.resize(ROWS * width_);
        weights_.zeros(ROWS * width_);
        for (auto* array : {&query_, &given_, &result_}) array->zeros(ROWS * wide_);
        for (Int r = 0; r < Int(rows_.size()); r++) {
            const S* from = static_cast<const S*>(call_.q) + rows_[r].token * inner_ + head_ * d_;
            prefetch(from + ROWS * inner_);
            for (Int c = 0; c < d_; c++) query_[r * wide_ + c] = from[c] * scale_;
        }
    }

    // ---- one tile ----
    Mask<S> inside(Int u, Int lo, Int hi) const {
        using Lane = std::decay_t<decltype(Mask<S>{}[0])>;
        const Mask<S> key = lanes<S>() + Lane(u);
        return (key >= Lane(lo)) & (key < Lane(hi));
    }

    S dot(const S* a, const S* b) const {
        Vec<S> total{};
        for (Int c = 0; c < wide_; c += LANES<S>) total += at(a + c) * at(b + c);
        return sum<S>(total);
    }

    void axpy(S factor, const S* x, S* y) const {
        for (Int c = 0; c < wide_; c += LANES<S>) at(y + c) += factor * at(x + c);
    }

    void score(Int rows) {  // scores, E and Z
        const S low = S(-1e30);
        multiply<S, false>(ROWS, width_, d_, query_, wide_, 1, kt_ + lo_, keys_, scores_, width_);
        for (Int r = 0; r < rows; r++) {
            const Row<S>& row = rows_[r];
            const S* bias = (row.cls ? cls_near_ : near_) + row.shift + lo_;
            S* s = scores_ + r * width_;
            Vec<S> most = Vec<S>{} + low;
            for (Int j = 0; j < width_; j += LANES<S>) {
                const Vec<S> here = inside(lo_ + j, row.lo, row.hi) ? at(s + j) + loose(bias + j) : Vec<S>{} + low;
                at(s + j) = here;
                most = here > most ? here : most;
            }
            S top = largest<S>(most);
            for (Int p = row.first; p < row.last; p++) {
                Member<S>& m = members_[p];
                m.score = m.cls < 0 ? low : dot(query_ + r * wide_, cls_k_ + m.cls * wide_) + slots_[m.slot];
                top = std::max(top, m.score);
            }
            S* e = e_ + r * width_;
            for (Int j = 0; j < width_; j += LANES<S>) at(e + j) = exponential(at(s + j) - top);
            S least = 1;
            for (Int p = row.first; p < row.last; p++) {
                normalise<false>(members_[p], r, top);
                least = std::min(least, members_[p].z);
            }
            if (least < S(1e-20)) separate(rows_[r], r);
        }
    }

    template <bool APART> void normalise(Member<S>& m, Int r, S top) {
        m.e = m.cls < 0 ? S(0) : std::exp(m.score - top);
        Vec<S> total{};
        const S* e = e_ + r * width_;
        for (Int j = begin(m); j < m.hi - lo_; j += LANES<S>)
            total += inside(lo_ + j, m.lo, m.hi) ? exponentials<APART>(e + j, m) : Vec<S>{};
        m.z = m.e + sum<S>(total);
    }

    template <bool APART> static Vec<S> exponentials(const S* e, const Member<S>& m) {
        return APART ? exponential(at(e) - m.top) : at(e);
    }

    // A score in one window is so large that the exponentials of another vanish: each window uses its own maximum.
    void separate(Row<S>& row, Int r) {
        row.apart = true;
        const S* s = scores_ + r * width_;
        std::copy_n(s, width_, e_ + r * width_);
        for (Int p = row.first; p < row.last; p++) {
            Member<S>& m = members_[p];
            m.top = m.score;
            for (Int u = m.lo; u < m.hi; u++) m.top = std::max(m.top, s[u - lo_]);
            normalise<true>(m, r, m.top);
        }
    }

    Int begin(const Member<S>& m) const { return (m.lo - lo_) / LANES<S> * LANES<S>; }

    void mix(Int rows, bool gradients) {  // E C, the mean of the windows' weights after dropout; and D of each window
        const bool drop = call_.dropout > 0;
        if (drop) random_.seed(mixed(task_, rows_[0].token));
        for (Int r = 0; r < rows; r++) {
            const Row<S>& row = rows_[r];
            for (Int p = row.first; p < row.last; p++) {
                Member<S>& m = members_[p];
                m.weight = kept_ / (m.z * (row.last - row.first));
                if (row.apart) drop ? window_weights<true, true>(m, r, gradients) : window_weights<false, true>(m, r, gradients);
                else drop ? window_weights<true, false>(m, r, gradients) : window_weights<false, false>(m, r, gradients);
            }
        }
    }

    template <bool DROP, bool APART> void window_weights(Member<S>& m, Int r, bool gradients) {
        const S *e = e_ + r * width_, *gv = gv_ + r * width_;
        S* a = weights_ + r * width_;
        Random<S> random = random_;  // a copy, to stay in registers
        const bool keep_cls = !DROP || random.next()[0] >= threshold_;
        m.mixed = keep_cls ? m.e * m.weight : S(0);
        Vec<S> d{};
        for (Int j = begin(m); j < m.hi - lo_; j += LANES<S>) {
            Mask<S> kept = inside(lo_ + j, m.lo, m.hi);
            if (DROP) kept &= __builtin_convertvector(random.next() >= threshold_, Mask<S>);
            const Vec<S> w = kept ? exponentials<APART>(e + j, m) * m.weight : Vec<S>{};
            at(a + j) += w;
            if (gradients) d += w * at(gv + j);
        }
        random_ = random;
        if (gradients) m.d = sum<S>(d) + m.mixed * m.gv;
    }

    void gradients(Int rows) {  // with respect to the weight of each pair
        const S* gradient = static_cast<const S*>(call_.gradient) + head_ * d_;
        for (Int r = 0; r < rows; r++) {
            const S* from = gradient + rows_[r].token * inner_;
            prefetch(from + ROWS * inner_);
            std::copy_n(from, d_, given_ + r * wide_);
        }
        multiply<S, false>(ROWS, width_, d_, given_, wide_, 1, vt_ + lo_, keys_, gv_, width_);
        for (Int r = 0; r < rows; r++)
            for (Int p = rows_[r].first; p < rows_[r].last; p++) {
                Member<S>& m = members_[p];
                m.gv = m.cls < 0 ? S(0) : dot(given_ + r * wide_, cls_v_ + m.cls * wide_);
            }
    }

    void backward_tile(Int rows) {
        score(rows);
        gradients(rows);
        mix(rows, true);
        multiply<S, true>(width_, wide_, ROWS, weights_, 1, width_, given_, wide_, dv_ + lo_ * wide_, wide_);
        // overwrite the weights by the gradient of the scores, E C gv - E sum_i D[i]/Z[i]
        for (Int r = 0; r < rows; r++) {
            S* a = weights_ + r * width_;
            const S* gv = gv_ + r * width_;
            for (Int j = 0; j < width_; j += LANES<S>) at(a + j) *= at(gv + j);
            for (Int p = rows_[r].first; p < rows_[r].last; p++) {
                const Member<S>& m = members_[p];
                rows_[r].apart ? take_share<true>(m, r) : take_share<false>(m, r);
                if (m.cls >= 0) backward_cls(m, r, m.mixed * m.gv - m.e * m.d / m.z);
            }
            S* dbias = (rows_[r].cls ? dcls_near_ : dnear_) + rows_[r].shift + lo_;
            for (Int j = 0; j < width_; j += LANES<S>) add_loose<S>(dbias + j, at(a + j));
        }
        multiply<S, true>(width_, wide_, ROWS, weights_, 1, width_, query_, wide_, dk_ + lo_ * wide_, wide_);
        multiply<S, true>(ROWS, wide_, width_, weights_, width_, 1, k_ + lo_ * wide_, wide_, result_, wide_);
        for (Int r = 0; r < rows; r++) {
            S* to = static_cast<S*>(call_.dq) + rows_[r].token * inner_ + head_ * d_;
            for (Int c = 0; c < d_; c++) to[c] = result_[r * wide_ + c] * scale_;
        }
    }

    template <bool APART> void take_share(const Member<S>& m, Int r) {
        const S share = m.d / m.z, *e = e_ + r * width_;
        S* a = weights_ + r * width_;
        for (Int j = begin(m); j < m.hi - lo_; j += LANES<S>)
            at(a + j) -= inside(lo_ + j, m.lo, m.hi) ? exponentials<APART>(e + j, m) * share : Vec<S>{};
    }

    void backward_cls(const Member<S>& m, Int r, S ds) {
        dslots_[m.slot] += ds;
        axpy(ds, cls_k_ + m.cls * wide_, result_ + r * wide_);
        axpy(ds, query_ + r * wide_, dcls_k_ + m.cls * wide_);
        axpy(m.mixed, given_ + r * wide_, dcls_v_ + m.cls * wide_);
    }

    void write_maps(const Row<S>& row, Int r, Int thread) {
        const S *a = weights_ + r * width_, *gv = gv_ + r * width_;
        S* to;
        if (row.cls) to = static_cast<S*>(call_.cls_bold_map) + (thread * call_.n_cls + row.token) * call_.cls_positions;
        else {
            const Scan& end = call_.scans[call_.n_scans - 1];
            const Int tokens = end.first_token + end.n_tokens;
            to = static_cast<S*>(call_.near_map) + (thread * tokens + row.token - call_.n_cls) * call_.near();
        }
        to += row.shift - margin_;
        for (Int u = row.lo; u < row.hi; u++) {
            Int windows = 0;
            for (Int p = row.first; p < row.last; p++) windows += u >= members_[p].lo && u < members_[p].hi;
            to[u] += std::max(S(0), a[u - lo_] * gv[u - lo_]) / std::max<Int>(windows, 1);
        }
        const Scan& end = call_.scans[call_.n_scans - 1];
        const Int windows = end.first_window + end.n_windows;
        for (Int p = row.first; p < row.last; p++) {
            const Member<S>& m = members_[p];
            if (m.cls < 0) continue;
            const S value = std::max(S(0), m.mixed * m.gv);
            if (row.cls) static_cast<S*>(call_.cls_cls_map)[thread * call_.n_cls + row.token] += value;
            else {
                const Int window = scan_.first_window + window_of(row, m);
                static_cast<S*>(call_.bold_cls_map)[(thread * windows + window) * call_.window_positions + m.slot] += value;
            }
        }
    }

    Int window_of(const Row<S>& row, const Member<S>& m) const {
        const Int start = row.token - call_.n_cls - scan_.first_token - m.slot;
        const Int* starts = call_.starts + scan_.first_window;
        return std::lower_bound(starts, starts + scan_.n_windows, start) - starts;
    }

    const Call& call_;
    Int inner_, d_, wide_, margin_;
    S scale_, kept_;
    uint32_t threshold_;
    Scan scan_{};
    Int head_ = 0, keys_ = 0, n_cls_ = 0, lo_ = 0, width_ = 0;
    uint64_t task_ = 0;
    Random<S> random_{};
    const S* slots_ = nullptr;
    S* dslots_ = nullptr;
    Array<S> kt_, vt_, k_, v_, cls_k_, cls_v_, dk_, dv_, dcls_k_, dcls_v_, near_, cls_near_, dnear_, dcls_near_;
    Array<S> scores_, e_, weights_, gv_, query_, given_, result_;
    std::vector<Row<S>> rows_;
    std::vector<Member<S>> members_;
};

// Call work(head, scan, head number, thread) for every scan and head; return whether memory or threads ran out.
// Neighbouring heads share cache lines, so each thread takes several in a row: the next in the queue, or (in_order) the
// same ones in every call.
template <class S, class Work> bool for_each_head(const Call& call, bool in_order, Work work) {
    const Int n = call.n_scans * call.n_heads, threads = std::max<Int>(1, std::min(call.threads, n));
    const Int some = in_order ? (n + threads - 1) / threads : std::max<Int>(1, n / (threads * 8));
    std::atomic<Int> next{0};
    const auto loop = [&](Int thread) {
        Head<S> head(call);
        for (Int first = in_order ? thread * some : next.fetch_add(some); first < n;
             first = in_order ? n : next.fetch_add(some))
            for (Int i = first; i < std::min(first + some, n); i++) work(head, i / call.n_heads, i % call.n_heads, thread);
    };
    std::atomic<bool> failed{false};
    const auto guarded = [&](Int thread) {
        try {
            loop(thread);
        } catch (...) {
            failed = true;
        }
    };
    std::vector<std::thread> others;
    try {
        for (Int thread = 1; thread < threads; thread++) others.emplace_back(guarded, thread);
    } catch (...) {
        failed = true;
    }
    guarded(0);
    for (auto& other : others) other.join();
    return failed;
}

template <class S> bool run_forward(const Call& call) {
    return for_each_head<S>(call, false, [](Head<S>& head, Int scan, Int number, Int) { head.forward(scan, number); });
}
template <class S> bool run_backward(const Call& call) {
    return for_each_head<S>(call, false, [](Head<S>& head, Int scan, Int number, Int) { head.backward(scan, number); });
}
template <class S> bool run_relevance(const Call& call) {
    return for_each_head<S>(call, true, [](Head<S>& head, Int scan, Int number, Int thread) { head.relevance(scan, number, thread); });
}

}  // namespace

extern "C" {  // each returns 1 if memory or threads ran out
int forward_float(const Call* call) { return run_forward<float>(*call); }
int forward_double(const Call* call) { return run_forward<double>(*call); }
int backward_float(const Call* call) { return run_backward<float>(*call); }
int backward_double(const Call* call) { return run_backward<double>(*call); }
int relevance_float(const Call* call) { return run_relevance<float>(*call); }
int relevance_double(const Call* call) { return run_relevance<double>(*call); }
}
