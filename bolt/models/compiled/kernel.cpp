// FW-MSA on the CPU: attention within overlapping windows and fusion of its outputs; forward pass, backward pass, and the
// gradient-weighted maps of Algorithm 1. Compiled once per instruction set (build.py), chosen by library.cpp; `attention/window.py`
// documents inputs and outputs.
//
// The score of a query and a BOLD key does not depend on the window, and fusion is a mean. So for a token t in P windows
//
//     fused[t] = sum_u E[t,u] C[t,u] v[u] + CLS terms,   E = exp(score),   C[t,u] = 1/P sum_{i: u in window i} 1/Z[t,i]
//
// where Z[t,i] sums E over the keys of window i and its CLS key. Scores, exponentials and products with values are thus
// computed once per pair, in tiles of `ROWS` queries against the union of their keys; each window adds only its
// normaliser and its dropout mask. The backward pass computes E and the masks again instead of storing them.
#include <cmath>
#include <cstdlib>
#include <initializer_list>
#include "philox.h"

namespace {

constexpr int ROWS = 8;  // queries per tile

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
        margin_ = ROWS * larger(call.window, ALIGN) + 4 * ALIGN + ROWS;
        scale_ = S(1) / std::sqrt(S(d_));
        least_ = int16_t(call.dropped - 32768);
        kept_ = S(65536) / S(65536 - call.dropped);
        Int n_keys = 0, n_windows = 0;
        for (Int i = 0; i < call.n_scans; i++) {
            n_keys = larger(n_keys, call.scans[i].n_keys);
            n_windows = larger(n_windows, call.scans[i].n_windows);
        }
        const Int sizes = allocate(n_keys, n_windows);
        memory_ = static_cast<char*>(std::calloc(1, sizes + ALIGNMENT));
        if (memory_) allocate(n_keys, n_windows);
    }
    ~Head() { std::free(memory_); }
    Head(const Head&) = delete;
    bool ready() const { return memory_; }

    void run(Int scan, Int head, Int thread) {
        if (call_.pass == FORWARD) forward(scan, head);
        else if (call_.pass == BACKWARD) backward(scan, head);
        else relevance(scan, head, thread);
    }

  private:
    void forward(Int scan, Int head) {
        open(scan, head, false);
        tiles([this](Int rows) {
            S* out = static_cast<S*>(call_.out) + head_ * d_;
            for (Int r = 0; r < rows; r++) prefetch(out + rows_[r].token * inner_);
            score(rows);
            mix(rows, false);
            multiply<S, false>(ROWS, wide_, width_, weights_, width_, 1, v_ + lo_ * wide_, wide_, result_, wide_);
            for (Int r = 0; r < rows; r++) {
                for (Int p = rows_[r].first; p < rows_[r].last; p++)
                    if (members_[p].cls >= 0) axpy(members_[p].mixed, cls_v_ + members_[p].cls * wide_, result_ + r * wide_);
                copy<S>(result_ + r * wide_, d_, out + rows_[r].token * inner_);
            }
        });
    }

    void backward(Int scan, Int head) {
        open(scan, head, true);
        for (S* sums : {dk_, dv_}) clear(sums, keys_ * wide_);
        for (S* sums : {dcls_k_, dcls_v_}) clear(sums, n_cls_ * wide_);
        clear(dnear_, call_.near() + 2 * margin_);
        clear(dcls_near_, call_.cls_positions + 2 * margin_);
        dslots_ = static_cast<S*>(call_.dbias) + (scan * call_.n_heads + head) * call_.n_bias() + call_.near() + call_.cls_positions;
        clear(dslots_, call_.window_positions + 1);
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

    static constexpr Int MOST = NUMBERS > WIDE_LANES<S> ? NUMBERS : WIDE_LANES<S>;
    static constexpr Int ALIGN = MOST > BLOCK_ROWS ? MOST : BLOCK_ROWS;  // of a tile's first key and width
    static constexpr Int ALIGNMENT = 64;  // bytes

    static Int padded(Int n_keys) { return up(n_keys + ROWS, ALIGN) + 4 * ALIGN; }

    // Place the arrays in `memory_`; return the number of bytes.
    Int allocate(Int n_keys, Int n_windows) {
        char* next = memory_ + up(reinterpret_cast<uintptr_t>(memory_), ALIGNMENT) - reinterpret_cast<uintptr_t>(memory_);
        const char* const first = next;
        const auto take = [&next](auto*& array, Int n) {
            array = reinterpret_cast<decltype(&*array)>(next);
            next += up(n * sizeof(*array), ALIGNMENT);
        };
        const Int keys = padded(n_keys), n_cls = n_windows + 1;
        for (S** array : {&kt_, &vt_, &k_, &v_, &dk_, &dv_}) take(*array, keys * wide_);
        for (S** array : {&cls_k_, &cls_v_, &dcls_k_, &dcls_v_}) take(*array, n_cls * wide_);
        for (S** array : {&near_, &dnear_}) take(*array, call_.near() + 2 * margin_);
        for (S** array : {&cls_near_, &dcls_near_}) take(*array, call_.cls_positions + 2 * margin_);
        for (S** array : {&scores_, &e_, &weights_, &gv_}) take(*array, ROWS * keys);
        for (S** array : {&query_, &given_, &result_}) take(*array, ROWS * wide_);
        take(numbers_, keys + AT_ONCE * NUMBERS);
        take(cls_numbers_, n_cls + 2 * AT_ONCE * NUMBERS);
        take(all_rows_, n_keys + n_cls);
        take(members_, n_windows * (call_.window + 1));
        return next - first;
    }

    // ---- copy one scan and head in and out ----
    void open(Int scan, Int head, bool gradients) {
        scan_ = call_.scans[scan];
        head_ = head;
        n_cls_ = call_.cls_kind == NONE ? 0 : call_.cls_kind == LOCAL ? scan_.n_windows : 1;
        plan(scan);
        keys_ = padded(scan_.n_keys);
        S* rows = gradients ? k_ : v_;
        clear(rows + scan_.n_keys * wide_, (keys_ - scan_.n_keys) * wide_);
        for (Int c = 0; c < d_; c++) clear(kt_ + c * keys_ + scan_.n_keys, keys_ - scan_.n_keys);
        if (gradients)
            for (Int c = 0; c < d_; c++) clear(vt_ + c * keys_ + scan_.n_keys, keys_ - scan_.n_keys);
        const S* kv = static_cast<const S*>(call_.kv) + head * d_;
        for (Int u = 0; u < scan_.n_keys; u++) {
            const S* key = kv + (scan_.first_key + u) * 2 * inner_;
            const S* value = key + inner_;
            prefetch(key + ROWS * 2 * inner_);
            prefetch(value + ROWS * 2 * inner_);
            copy(gradients ? key : value, d_, rows + u * wide_);
            for (Int c = 0; c < d_; c++) kt_[c * keys_ + u] = key[c];
            if (gradients)
                for (Int c = 0; c < d_; c++) vt_[c * keys_ + u] = value[c];
        }
        for (Int i = 0; i < n_cls_; i++) {
            copy<S>(kv + (scan_.first_cls + i) * 2 * inner_, d_, cls_k_ + i * wide_);
            copy<S>(kv + (scan_.first_cls + i) * 2 * inner_ + inner_, d_, cls_v_ + i * wide_);
        }
        const S* bias = static_cast<const S*>(call_.bias) + head * call_.n_bias();
        copy<S>(bias, call_.near(), near_ + margin_);
        copy<S>(bias + call_.near(), call_.cls_positions, cls_near_ + margin_);
        slots_ = bias + call_.near() + call_.cls_positions;  // BOLD to CLS, by position in the window; then CLS to CLS
    }

    // The rows of a head are far apart in memory, where the hardware does not prefetch them.
    void prefetch(const S* p) const {
        for (Int c = 0; c < d_ + 15; c += 64 / sizeof(S)) __builtin_prefetch(p + c);
    }

    void close(Int scan, Int head) {
        S* dkv = static_cast<S*>(call_.dkv) + head * d_;
        for (Int u = 0; u < scan_.n_keys; u++) {
            copy<S>(dk_ + u * wide_, d_, dkv + (scan_.first_key + u) * 2 * inner_);
            copy<S>(dv_ + u * wide_, d_, dkv + (scan_.first_key + u) * 2 * inner_ + inner_);
        }
        for (Int i = 0; i < n_cls_; i++) {
            copy<S>(dcls_k_ + i * wide_, d_, dkv + (scan_.first_cls + i) * 2 * inner_);
            copy<S>(dcls_v_ + i * wide_, d_, dkv + (scan_.first_cls + i) * 2 * inner_ + inner_);
        }
        S* dbias = static_cast<S*>(call_.dbias) + (scan * call_.n_heads + head) * call_.n_bias();
        copy<S>(dnear_ + margin_, call_.near(), dbias);
        copy<S>(dcls_near_ + margin_, call_.cls_positions, dbias + call_.near());
    }

    // ---- which queries meet which keys ----
    template <class Work> void tiles(Work work) {
        for (Int first = 0; first < n_all_; first += n_rows_) {
            rows_ = all_rows_ + first;
            n_rows_ = smaller<Int>(ROWS, (first < n_bold_ ? n_bold_ : n_all_) - first);
            fill();
            work(n_rows_);
        }
    }

    void plan(Int scan) {  // list the queries, BOLD first, and their windows; they are the same for all heads
        if (scan == planned_) return;
        planned_ = scan;
        n_all_ = n_members_ = 0;
        n_bold_ = call_.bold_rows ? scan_.n_tokens : 0;
        const Int* starts = call_.starts + scan_.first_window;
        Int from = 0;  // first window that has not ended before t
        for (Int t = 0; t < n_bold_; t++) {
            while (starts[from] + call_.window <= t) from++;
            add_bold(t, from);
        }
        for (Int i = 0; i < n_cls_; i++) add_cls(i);
    }

    Member<S> member(Int window, Int cls, Int slot) const {
        const Int start = call_.starts[scan_.first_window + window];
        Member<S> m{};
        m.lo = larger<Int>(0, start - call_.fringe);
        m.hi = smaller(scan_.n_keys, start + call_.window + call_.fringe);
        m.cls = cls;
        m.slot = slot;
        return m;
    }

    void add_bold(Int t, Int window) {
        const Int first = n_members_;
        for (; window < scan_.n_windows; window++) {
            const Int start = call_.starts[scan_.first_window + window];
            if (start > t) break;
            const Int cls = call_.cls_kind == LOCAL ? window : call_.cls_kind == GLOBAL ? 0 : -1;
            members_[n_members_++] = member(window, cls, t - start);
        }
        finish({call_.n_cls + scan_.first_token + t, 0, 0, first, 0, margin_ + call_.reach - 1 - t, false, false});
    }

    void add_cls(Int i) {
        const Int first = n_members_;
        Int shift = margin_;
        if (call_.cls_kind == LOCAL) {
            members_[n_members_++] = member(i, i, call_.window_positions);
            shift -= call_.starts[scan_.first_window + i] - call_.fringe;
        } else {
            members_[n_members_++] = member(0, 0, call_.window_positions);
            members_[first].lo = 0;
            members_[first].hi = scan_.n_keys;
        }
        finish({scan_.first_cls + i, 0, 0, first, 0, shift, true, false});
    }

    void finish(Row<S> row) {
        row.last = n_members_;
        row.lo = scan_.n_keys;
        for (Int p = row.first; p < row.last; p++) {
            row.lo = smaller(row.lo, members_[p].lo);
            row.hi = larger(row.hi, members_[p].hi);
        }
        all_rows_[n_all_++] = row;
    }

    void fill() {  // load the keys and queries of a tile
        lo_ = scan_.n_keys;
        Int hi = 0;
        for (Int r = 0; r < n_rows_; r++) {
            lo_ = smaller(lo_, rows_[r].lo);
            hi = larger(hi, rows_[r].hi);
        }
        lo_ = lo_ / ALIGN * ALIGN;
        width_ = up(hi - lo_, ALIGN);
        clear(weights_, ROWS * width_);
        for (S* array : {query_, given_, result_}) clear(array, ROWS * wide_);
        for (Int r = 0; r < n_rows_; r++) {
            const S* from = static_cast<const S*>(call_.q) + rows_[r].token * inner_ + head_ * d_;
            prefetch(from + ROWS * inner_);
            for (Int c = 0; c < d_; c++) query_[r * wide_ + c] = from[c] * scale_;
        }
    }

    // ---- one tile ----
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
            Row<S>& row = rows_[r];
            row.apart = false;
            const S* bias = (row.cls ? cls_near_ : near_) + row.shift + lo_;
            S* s = scores_ + r * width_;
            Wide<S> most = Wide<S>{} + low;
            for (Int j = 0; j < width_; j += WIDE_LANES<S>) {
                const auto within = inside<typename Simd<S, WIDE_BYTES>::I>(lo_ + j, row.lo, row.hi);
                const Wide<S> here = within ? load(s + j) + load(bias + j) : Wide<S>{} + low;
                store(here, s + j);
                most = here > most ? here : most;
            }
            S top = largest<Wide<S>, S>(most, low);
            for (Int p = row.first; p < row.last; p++) {
                Member<S>& m = members_[p];
                m.score = m.cls < 0 ? low : dot(query_ + r * wide_, cls_k_ + m.cls * wide_) + slots_[m.slot];
                top = larger(top, m.score);
            }
            S* e = e_ + r * width_;
            for (Int j = 0; j < width_; j += WIDE_LANES<S>) store(exponential<S>(load(s + j) - top), e + j);
            S least = 1;
            for (Int p = row.first; p < row.last; p++) {
                normalise<false>(members_[p], r, top);
                least = smaller(least, members_[p].z);
            }
            if (least < S(1e-20)) separate(rows_[r], r);
        }
    }

    template <bool APART> void normalise(Member<S>& m, Int r, S top) {
        m.e = m.cls < 0 ? S(0) : exponential<S>(Vec<S>{} + (m.score - top))[0];
        Vec<S> total{};
        const S* e = e_ + r * width_;
        for_keys(m, [&](Int j, auto within) __attribute__((always_inline)) { total += kept<S>(within, exponentials<APART>(e + j, m)); });
        m.z = m.e + sum<S>(total);
    }

    template <bool APART> static Vec<S> exponentials(const S* e, const Member<S>& m) {
        return APART ? exponential<S>(at(e) - m.top) : at(e);
    }

    // A score in one window is so large that the exponentials of another vanish: each window uses its own maximum.
    void separate(Row<S>& row, Int r) {
        row.apart = true;
        const S* s = scores_ + r * width_;
        copy<S>(s, width_, e_ + r * width_);
        for (Int p = row.first; p < row.last; p++) {
            Member<S>& m = members_[p];
            m.top = m.score;
            for (Int u = m.lo; u < m.hi; u++) m.top = larger(m.top, s[u - lo_]);
            normalise<true>(m, r, m.top);
        }
    }

    // Call work(j, within) for the vectors of a window's keys; `within` masks both ends.
    template <class Work> void for_keys(const Member<S>& m, Work work) const {
        const Int first = m.lo - lo_, end = m.hi - lo_;
        Int j = first / LANES<S> * LANES<S>;
        for (; j < first; j += LANES<S>) work(j, inside<Mask<S>>(lo_ + j, m.lo, m.hi));
        for (; j + LANES<S> <= end; j += LANES<S>) work(j, All{});
        for (; j < end; j += LANES<S>) work(j, inside<Mask<S>>(lo_ + j, m.lo, m.hi));
    }

    void mix(Int rows, bool gradients) {  // E C, the mean of the windows' weights after dropout; and D of each window
        const bool drop = call_.dropped > 0;
        for (Int r = 0; r < rows; r++) {
            const Row<S>& row = rows_[r];
            if (drop && call_.cls_kind != NONE)  // the CLS keys of a query's windows are a line of their own
                draw(call_.seed, {0, row.token, head_, CLS_SLOT}, up(row.last - row.first, NUMBERS) / NUMBERS, cls_numbers_);
            for (Int p = row.first; p < row.last; p++) {
                Member<S>& m = members_[p];
                m.weight = kept_ / (m.z * (row.last - row.first));
                const Int slot = p - row.first;
                if (row.apart) drop ? window_weights<true, true>(m, r, slot, gradients) : window_weights<false, true>(m, r, slot, gradients);
                else drop ? window_weights<true, false>(m, r, slot, gradients) : window_weights<false, false>(m, r, slot, gradients);
            }
        }
    }

    template <bool DROP, bool APART> void window_weights(Member<S>& m, Int r, Int slot, bool gradients) {
        const S *e = e_ + r * width_, *gv = gv_ + r * width_;
        S* a = weights_ + r * width_;
        const Int group = m.lo / NUMBERS;
        const int16_t* numbers = numbers_ + lo_ - group * NUMBERS;  // by key of the tile
        if (DROP) draw(call_.seed, {group, rows_[r].token, head_, slot}, up(m.hi, NUMBERS) / NUMBERS - group, numbers_);
        const bool keep_cls = !DROP || cls_numbers_[slot] >= least_;
        m.mixed = keep_cls ? m.e * m.weight : S(0);
        Vec<S> d{};
        for_keys(m, [&](Int j, auto within) __attribute__((always_inline)) {
            Vec<S> w = kept<S>(within, exponentials<APART>(e + j, m) * m.weight);
            if (DROP) w = drawn<S>(numbers + j) >= Mask<S>{} + least_ ? w : Vec<S>{};
            at(a + j) += w;
            if (gradients) d += w * at(gv + j);
        });
        if (gradients) m.d = sum<S>(d) + m.mixed * m.gv;
    }

    void gradients(Int rows) {  // with respect to the weight of each pair
        const S* gradient = static_cast<const S*>(call_.gradient) + head_ * d_;
        for (Int r = 0; r < rows; r++) {
            const S* from = gradient + rows_[r].token * inner_;
            prefetch(from + ROWS * inner_);
            copy<S>(from, d_, given_ + r * wide_);
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
            for (Int j = 0; j < width_; j += WIDE_LANES<S>) store(load(a + j) * load(gv + j), a + j);
            for (Int p = rows_[r].first; p < rows_[r].last; p++) {
                const Member<S>& m = members_[p];
                rows_[r].apart ? take_share<true>(m, r) : take_share<false>(m, r);
                if (m.cls >= 0) backward_cls(m, r, m.mixed * m.gv - m.e * m.d / m.z);
            }
            S* dbias = (rows_[r].cls ? dcls_near_ : dnear_) + rows_[r].shift + lo_;
            for (Int j = 0; j < width_; j += WIDE_LANES<S>) store(load(dbias + j) + load(a + j), dbias + j);
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
        for_keys(m, [&](Int j, auto within) __attribute__((always_inline)) { at(a + j) -= kept<S>(within, exponentials<APART>(e + j, m) * share); });
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
            to[u] += larger(S(0), a[u - lo_] * gv[u - lo_]) / larger<Int>(windows, 1);
        }
        const Scan& end = call_.scans[call_.n_scans - 1];
        const Int windows = end.first_window + end.n_windows;
        for (Int p = row.first; p < row.last; p++) {
            const Member<S>& m = members_[p];
            if (m.cls < 0) continue;
            const S value = larger(S(0), m.mixed * m.gv);
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
        Int window = 0;
        while (starts[window] < start) window++;
        return window;
    }

    const Call& call_;
    Int inner_, d_, wide_, margin_;
    S scale_, kept_;
    int16_t least_;
    Scan scan_{};
    Int head_ = 0, keys_ = 0, n_cls_ = 0, lo_ = 0, width_ = 0;
    const S* slots_ = nullptr;
    S* dslots_ = nullptr;
    char* memory_ = nullptr;
    S *kt_, *vt_, *k_, *v_, *cls_k_, *cls_v_, *dk_, *dv_, *dcls_k_, *dcls_v_, *near_, *cls_near_, *dnear_, *dcls_near_;
    S *scores_, *e_, *weights_, *gv_, *query_, *given_, *result_;
    int16_t *numbers_, *cls_numbers_;  // random: by key, of a query in a window; by slot
    Row<S> *all_rows_, *rows_;  // of the scan, of the tile
    Member<S>* members_;
    Int planned_ = -1, n_all_ = 0, n_bold_ = 0, n_rows_ = 0, n_members_ = 0;
};

template <class S> bool work(const Call& call, Queue& queue, Int thread) {
    Head<S> head(call);
    if (!head.ready()) return false;
    for (Int first = queue.first(thread); first < queue.n; first = queue.following())
        for (Int i = first; i < smaller(first + queue.some, queue.n); i++)
            head.run(i / call.n_heads, i % call.n_heads, thread);
    return true;
}

}  // namespace

#define JOINED(a, b) a##b
#define NAMED(level, type) JOINED(level, type)
extern "C" {  // LEVEL is defined by the compiler's command line
bool NAMED(LEVEL, _float)(const Call& call, Queue& queue, Int thread) { return work<float>(call, queue, thread); }
bool NAMED(LEVEL, _double)(const Call& call, Queue& queue, Int thread) { return work<double>(call, queue, thread); }
void NAMED(LEVEL, _mask)(const MaskCall& call) {
    const Line* lines = static_cast<const Line*>(call.lines);
    for (Int i = 0; i < call.n_lines; i++)
        write_mask(call.seed, lines[i], call.n_groups, int(call.dropped - 32768), call.kept + i * call.n_groups * NUMBERS);
}
}
