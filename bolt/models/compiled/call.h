// What Python passes to the library (`_Call` in attention/native.py), and what library.cpp passes to each copy of kernel.cpp.
#pragma once
#include <cstdint>

using Int = int64_t;
enum ClsKind : Int { NONE = 0, LOCAL = 1, GLOBAL = 2 };
enum Pass : Int { FORWARD = 0, BACKWARD = 1, RELEVANCE = 2 };

struct Scan {  // a row of `Windows.table`; offsets are rows of the packed arrays, CLS tokens first
    Int first_token, n_tokens, first_key, n_keys, first_cls, first_window, n_windows;
};

struct Call {
    Int n_scans, n_heads, head_dim, window, fringe, reach, cls_positions, window_positions, cls_kind, bold_rows, n_cls;
    Int threads, pass, is_double;
    Int dropped;  // share of weights that dropout sets to zero, of 2^16
    uint64_t seed;
    // From the running process, because a library that links them needs a C library as new as the compiler's. torch's
    // own threads, if they are OpenMP's: they wait for its next operation in a loop, and would take cores from others.
    void (*GOMP_parallel)(void (*)(void*), void*, unsigned threads, unsigned flags);
    int (*pthread_create)(void*, const void*, void* (*)(void*), void*);
    int (*pthread_join)(void*, void**);
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

struct MaskCall {  // `_MaskCall` in parts/masks.py
    uint64_t seed;
    Int dropped, n_lines, n_groups;
    const void* lines;  // (lines, 4), see philox.h
    uint8_t* kept;      // (lines, 8 groups)
};

// Scans and heads, handed out to threads. Neighbouring heads share cache lines, so each thread takes several in a row:
// the next in the queue, or for relevance, whose maps are summed by thread, the same ones in every call.
struct Queue {
    Int n, threads, some, next;
    bool in_order;

    Queue(const Call& call, Int n_threads) : n(call.n_scans * call.n_heads), threads(n_threads), next(0) {
        in_order = call.pass == RELEVANCE;
        some = in_order ? (n + threads - 1) / threads : n / (threads * 8);
        if (some < 1) some = 1;
    }
    Int first(Int thread) { return in_order ? thread * some : take(); }
    Int following() { return in_order ? n : take(); }
    Int take() { return __atomic_fetch_add(&next, some, __ATOMIC_RELAXED); }
};

// Work through the queue; return false if there is not enough memory.
using Work = bool(const Call&, Queue&, Int thread);
using WriteMask = void(const MaskCall&);
