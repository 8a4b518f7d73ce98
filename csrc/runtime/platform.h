/* SPDX-License-Identifier: MIT */
/* What the operating system gives: a lock, an event count to sleep on, time, CPUs, and knowing that we were forked. */
#ifndef PTO_PLATFORM_H
#define PTO_PLATFORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#ifndef __linux__
#include <pthread.h>
#endif

#define PTO_CACHE_LINE 64

#if defined(__GNUC__) || defined(__clang__)
#define PTO_LIKELY(x) __builtin_expect(!!(x), 1)
#define PTO_UNLIKELY(x) __builtin_expect(!!(x), 0)
#else
#define PTO_LIKELY(x) (x)
#define PTO_UNLIKELY(x) (x)
#endif

/* One step of a busy wait. */
static inline void pto__pause(void) {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("isb" ::: "memory");
#endif
}

/*
 * A bounded busy wait: while (!condition && pto__spin(&spin)) {}.  Pure spinning for a few microseconds, then with the
 * processor offered to others in between: the thread that is waited for may be queued behind this one.
 */
typedef struct pto_spin {
    int64_t limit_ns;
    int64_t begin_ns;
    unsigned rounds;
} pto_spin;

static inline pto_spin pto__spin_start(int64_t limit_ns) {
    pto_spin spin = {limit_ns, 0, 0};
    return spin;
}

bool pto__spin_check(pto_spin *spin);

/* One step; false when the time is up. */
static inline bool pto__spin(pto_spin *spin) {
    if (++spin->rounds % 32 != 0) {
        pto__pause();
        return spin->limit_ns != 0;
    }
    return pto__spin_check(spin);
}

/*
 * A lock for short sections.  Linux: one futex word, 0 free, 1 held, 2 held and somebody may sleep.
 * Unlike a pthread mutex it can be told to be free again in a forked child, whoever held it.
 */
typedef struct pto_lock {
#ifdef __linux__
    atomic_uint word;
#else
    pthread_mutex_t mutex;
    atomic_uint held; /* read in a forked child only */
#endif
} pto_lock;

void pto__lock_init(pto_lock *lock);
void pto__lock(pto_lock *lock);
void pto__unlock(pto_lock *lock);

/* In a forked child: frees the lock; true when another thread of the parent held it, so what it guards is half-done. */
bool pto__lock_after_fork(pto_lock *lock);

/*
 * An event count: a place to sleep until something was announced.
 * Sleeper:   e = pto__gate_epoch(g); look for work; none: pto__gate_wait(g, e).
 * Announcer: make the work visible; pto__gate_announce(g); pto__gate_wake(g, n).
 * A wait returns at once when anything was announced after `e` was read, so no announcement is missed; it may also
 * return for no reason.
 */
typedef struct pto_gate {
    atomic_uint epoch;
    atomic_uint sleepers;
#ifndef __linux__
    pthread_mutex_t mutex;
    pthread_cond_t cond;
#endif
} pto_gate;

void pto__gate_init(pto_gate *gate);

static inline unsigned pto__gate_epoch(pto_gate *gate) {
    /* acquire: pairs with the increment in pto__gate_announce, so that work announced before is seen after */
    return atomic_load_explicit(&gate->epoch, memory_order_acquire);
}

static inline void pto__gate_announce(pto_gate *gate) {
    /* seq_cst: with the load of `sleepers` in pto__gate_wake against the increment and the epoch test in
     * pto__gate_wait, either the sleeper sees the new epoch or the announcer sees the sleeper */
    atomic_fetch_add_explicit(&gate->epoch, 1, memory_order_seq_cst);
}

static inline unsigned pto__gate_sleepers(pto_gate *gate) {
    return atomic_load_explicit(&gate->sleepers, memory_order_seq_cst); /* partner: see pto__gate_announce */
}

void pto__gate_wait(pto_gate *gate, unsigned epoch);
void pto__gate_wake(pto_gate *gate, unsigned count); /* wakes up to `count` sleepers, if there are any */

/*
 * Whether this process is the one that made the object.  On Linux a page that the kernel zeroes in a forked child, so
 * the test is one load; elsewhere (or when the kernel is too old) the process id.
 */
typedef struct pto_fork_guard {
    atomic_uint *page; /* NULL: compare pids */
    _Atomic(pid_t) pid;
    atomic_uint repairing;
} pto_fork_guard;

void pto__fork_guard_init(pto_fork_guard *guard);
void pto__fork_guard_destroy(pto_fork_guard *guard);
bool pto__fork_guard_begin(pto_fork_guard *guard); /* true: the caller must repair, then call _end */
void pto__fork_guard_end(pto_fork_guard *guard);
bool pto__fork_guard_pid_differs(pto_fork_guard *guard);

static inline bool pto__forked(pto_fork_guard *guard) {
    if (PTO_LIKELY(guard->page != NULL)) {
        /* acquire: pairs with the release store in pto__fork_guard_end */
        return PTO_UNLIKELY(atomic_load_explicit(guard->page, memory_order_acquire) != 1);
    }
    return pto__fork_guard_pid_differs(guard);
}

int64_t pto__now_ns(void); /* monotonic */
int32_t pto__cpu_count(void); /* CPUs this process may run on, at least 1 */
int64_t pto__physical_memory(void); /* bytes; 0 when unknown */
void pto__name_this_thread(int32_t index);

/* The allocator used when the host gives none: huge pages on Linux from 2 MiB on. */
void *pto__default_allocate(void *context, size_t bytes, size_t alignment);
void pto__default_release(void *context, void *memory, size_t bytes, size_t alignment);

#endif
