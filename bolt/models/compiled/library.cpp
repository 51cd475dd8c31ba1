// Entry points of the library: choose the copy of kernel.cpp for this processor and run it on several threads.
#include "call.h"

// Copies of kernel.cpp in this library, best first, and whether the processor can run them; see build.py for their flags.
#if defined(__x86_64__)
#define HAS(feature) __builtin_cpu_supports(feature)
#define LEVELS(X)                                                                                    \
    X(avx512, HAS("avx512f") && HAS("avx512bw") && HAS("avx512dq") && HAS("avx512vl") && HAS("fma")) \
    X(avx2, HAS("avx2") && HAS("fma"))                                                               \
    X(baseline, true)
#elif defined(__aarch64__)
#define LEVELS(X) X(neon, true)
#else
#define LEVELS(X) X(baseline, true)
#endif

#define DECLARE(level, supported)   \
    extern "C" Work level##_float;  \
    extern "C" Work level##_double; \
    extern "C" WriteMask level##_mask;
LEVELS(DECLARE)

namespace {

struct Level {
    bool supported;
    Work *in_single, *in_double;
    WriteMask* mask;
};

struct Worker {
    const Call* call;
    Queue* queue;
    Work* work;
    Int thread;
    bool done;
    unsigned long id;  // a pthread_t on Linux and macOS

    void run() { done = work(*call, *queue, thread); }
};

struct Team {
    Worker* workers;
    Int n, next;
};

void* start(void* worker) {
    static_cast<Worker*>(worker)->run();
    return nullptr;
}

void join(void* team) {  // there may be fewer threads than workers
    Team& of = *static_cast<Team*>(team);
    for (Int i; (i = __atomic_fetch_add(&of.next, 1, __ATOMIC_RELAXED)) < of.n;) of.workers[i].run();
}

bool run(const Call& call, Work* work) {
    constexpr Int MOST = 256;
    Int threads = call.threads;
    if (threads > call.n_scans * call.n_heads) threads = call.n_scans * call.n_heads;
    if (threads > MOST) threads = MOST;
    if (threads < 1) threads = 1;
    Queue queue(call, threads);
    Worker workers[MOST];
    for (Int i = 0; i < threads; i++) workers[i] = {&call, &queue, work, i, false, 0};
    Int started = 1;  // the first is this thread
    if (call.GOMP_parallel && threads > 1) {
        Team team = {workers, threads, 0};
        call.GOMP_parallel(join, &team, threads, 0);
        for (Int i = 0; i < threads; i++)
            if (!workers[i].done) return false;
        return true;
    }
    while (started < threads && !call.pthread_create(&workers[started].id, nullptr, start, &workers[started])) started++;
    workers[0].run();
    bool done = started == threads;
    for (Int i = 1; i < started; i++) call.pthread_join(reinterpret_cast<void*>(workers[i].id), nullptr);
    for (Int i = 0; i < started; i++) done = done && workers[i].done;
    return done;
}

}  // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

// The names of all levels, best first; `supported` tells of one by its place whether this processor has it.
EXPORT const char* levels() {
#define NAME(level, supported) #level " "
    return LEVELS(NAME);
}

static Level level_at(Int place) {
#if defined(__x86_64__)
    __builtin_cpu_init();
#endif
#define LEVEL(level, supported) {bool(supported), level##_float, level##_double, level##_mask},
    const Level all[] = {LEVELS(LEVEL)};
    return all[place];
}

EXPORT int supported(Int place) { return level_at(place).supported; }

// Return 1 if memory or threads ran out.
EXPORT int compute(const Call* call, Int place) {
    const Level level = level_at(place);
    return !run(*call, call->is_double ? level.in_double : level.in_single);
}

EXPORT void write_mask(const MaskCall* call, Int place) { level_at(place).mask(*call); }
