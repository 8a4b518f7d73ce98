/* SPDX-License-Identifier: MIT */
/* See platform.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "platform.h"

#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif
#ifndef MADV_HUGEPAGE
#define MADV_HUGEPAGE 14
#endif

static void futex_wait(atomic_uint *word, unsigned expected) {
    /* Returns early on a signal or when *word differs; every caller looks again. */
    (void)syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

static void futex_wake(atomic_uint *word, unsigned count) {
    (void)syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count > INT_MAX ? INT_MAX : (int)count, NULL, NULL, 0);
}
#endif

/* ---- lock ---- */

#ifdef __linux__

void pto__lock_init(pto_lock *lock) { atomic_init(&lock->word, 0); }

void pto__lock(pto_lock *lock) {
    unsigned expected = 0;
    /* acquire: pairs with the release exchange in pto__unlock */
    if (PTO_LIKELY(atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                           memory_order_relaxed))) {
        return;
    }
    for (int i = 0; i < 100; i++) {
        pto__pause();
        expected = 0;
        /* acquire, as above */
        if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 &&
            atomic_compare_exchange_strong_explicit(&lock->word, &expected, 1, memory_order_acquire,
                                                    memory_order_relaxed)) {
            return;
        }
    }
    /* acquire, as above; 2 tells the holder that somebody may sleep */
    while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) {
        futex_wait(&lock->word, 2);
    }
}

void pto__unlock(pto_lock *lock) {
    /* release: pairs with the acquires in pto__lock */
    if (PTO_UNLIKELY(atomic_exchange_explicit(&lock->word, 0, memory_order_release) == 2)) {
        futex_wake(&lock->word, 1);
    }
}

bool pto__lock_after_fork(pto_lock *lock) {
    /* relaxed: nobody else may touch it yet */
    return atomic_exchange_explicit(&lock->word, 0, memory_order_relaxed) != 0;
}

#else

void pto__lock_init(pto_lock *lock) {
    (void)pthread_mutex_init(&lock->mutex, NULL);
    atomic_init(&lock->held, 0);
}

void pto__lock(pto_lock *lock) {
    (void)pthread_mutex_lock(&lock->mutex);
    atomic_store_explicit(&lock->held, 1, memory_order_relaxed); /* relaxed: read after a fork only */
}

void pto__unlock(pto_lock *lock) {
    atomic_store_explicit(&lock->held, 0, memory_order_relaxed); /* relaxed: read after a fork only */
    (void)pthread_mutex_unlock(&lock->mutex);
}

bool pto__lock_after_fork(pto_lock *lock) {
    bool held = atomic_load_explicit(&lock->held, memory_order_relaxed) != 0; /* relaxed: one thread is left */
    pto__lock_init(lock);
    return held;
}

#endif

/* ---- gate ---- */

void pto__gate_init(pto_gate *gate) {
    atomic_init(&gate->epoch, 0);
    atomic_init(&gate->sleepers, 0);
#ifndef __linux__
    (void)pthread_mutex_init(&gate->mutex, NULL);
    (void)pthread_cond_init(&gate->cond, NULL);
#endif
}

void pto__gate_wait(pto_gate *gate, unsigned epoch) {
    /* seq_cst on both: see pto__gate_announce */
    atomic_fetch_add_explicit(&gate->sleepers, 1, memory_order_seq_cst);
#ifdef __linux__
    if (atomic_load_explicit(&gate->epoch, memory_order_seq_cst) == epoch) {
        futex_wait(&gate->epoch, epoch);
    }
#else
    (void)pthread_mutex_lock(&gate->mutex);
    if (atomic_load_explicit(&gate->epoch, memory_order_seq_cst) == epoch) {
        (void)pthread_cond_wait(&gate->cond, &gate->mutex);
    }
    (void)pthread_mutex_unlock(&gate->mutex);
#endif
    /* relaxed: a count that is too high costs the announcer a needless wake and nothing else */
    atomic_fetch_sub_explicit(&gate->sleepers, 1, memory_order_relaxed);
}

void pto__gate_wake(pto_gate *gate, unsigned count) {
    unsigned sleepers = pto__gate_sleepers(gate);
    if (sleepers == 0) {
        return;
    }
    if (count > sleepers) {
        count = sleepers;
    }
#ifdef __linux__
    futex_wake(&gate->epoch, count);
#else
    (void)pthread_mutex_lock(&gate->mutex); /* a sleeper is either before its epoch test or inside the wait */
    (void)pthread_mutex_unlock(&gate->mutex);
    for (unsigned i = 0; i < count; i++) {
        (void)pthread_cond_signal(&gate->cond);
    }
#endif
}

/* ---- spinning ---- */

#define YIELD_AFTER_NS 4000

bool pto__spin_check(pto_spin *spin) {
    int64_t now = pto__now_ns();
    if (spin->begin_ns == 0) {
        spin->begin_ns = now;
    }
    int64_t spent = now - spin->begin_ns;
    if (spent >= spin->limit_ns) {
        return false;
    }
    if (spent >= YIELD_AFTER_NS) {
        (void)sched_yield();
    }
    return true;
}

/* ---- fork ---- */

void pto__fork_guard_init(pto_fork_guard *guard) {
    guard->page = NULL;
    atomic_init(&guard->pid, getpid());
    atomic_init(&guard->repairing, 0);
#ifdef __linux__
    size_t size = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page != MAP_FAILED) {
        if (madvise(page, size, MADV_WIPEONFORK) == 0) {
            guard->page = page;
            atomic_init(guard->page, 1);
        } else {
            (void)munmap(page, size);
        }
    }
#endif
}

void pto__fork_guard_destroy(pto_fork_guard *guard) {
    if (guard->page != NULL) {
        (void)munmap((void *)guard->page, (size_t)sysconf(_SC_PAGESIZE));
        guard->page = NULL;
    }
}

bool pto__fork_guard_pid_differs(pto_fork_guard *guard) {
    return atomic_load_explicit(&guard->pid, memory_order_acquire) != getpid(); /* acquire: pairs with _end */
}

bool pto__fork_guard_begin(pto_fork_guard *guard) {
    if (guard->page != NULL) {
        unsigned state = 0;
        /* acquire: pairs with the release in _end, for the thread that finds the repair done */
        if (atomic_compare_exchange_strong_explicit(guard->page, &state, 2, memory_order_acquire,
                                                    memory_order_acquire)) {
            return true;
        }
    } else {
        unsigned idle = 0;
        /* acquire: pairs with the release of `repairing` in _end */
        if (atomic_compare_exchange_strong_explicit(&guard->repairing, &idle, 1, memory_order_acquire,
                                                    memory_order_relaxed)) {
            if (pto__fork_guard_pid_differs(guard)) {
                return true;
            }
            atomic_store_explicit(&guard->repairing, 0, memory_order_release); /* pairs with the exchange above */
            return false;
        }
    }
    while (pto__forked(guard)) {
        pto__pause(); /* another thread of this child is at it; it takes a microsecond */
    }
    return false;
}

void pto__fork_guard_end(pto_fork_guard *guard) {
    /* release, all three: pairs with the acquire loads in pto__forked and _begin */
    atomic_store_explicit(&guard->pid, getpid(), memory_order_release);
    if (guard->page != NULL) {
        atomic_store_explicit(guard->page, 1, memory_order_release);
    } else {
        atomic_store_explicit(&guard->repairing, 0, memory_order_release);
    }
}

/* ---- machine ---- */

int64_t pto__now_ns(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + (int64_t)t.tv_nsec;
}

int32_t pto__cpu_count(void) {
#ifdef __linux__
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) {
        int count = CPU_COUNT(&set);
        if (count > 0) {
            return count;
        }
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 && online < INT32_MAX ? (int32_t)online : 1;
}

int64_t pto__physical_memory(void) {
#ifdef _SC_PHYS_PAGES
    long pages = sysconf(_SC_PHYS_PAGES);
    long size = sysconf(_SC_PAGESIZE);
    if (pages > 0 && size > 0 && (int64_t)pages <= INT64_MAX / (int64_t)size) {
        return (int64_t)pages * (int64_t)size;
    }
#endif
    return 0;
}

void pto__name_this_thread(int32_t index) {
#ifdef __linux__
    char name[16]; /* the kernel's limit */
    (void)snprintf(name, sizeof name, "pto-worker-%d", (int)(index % 1000));
    (void)pthread_setname_np(pthread_self(), name);
#else
    (void)index;
#endif
}

/* ---- default allocator ---- */

#define HUGE_PAGE ((size_t)2 << 20)

void *pto__default_allocate(void *context, size_t bytes, size_t alignment) {
    (void)context;
#ifdef __linux__
    if (bytes >= HUGE_PAGE && alignment <= HUGE_PAGE) {
        /* Over-map by one huge page and cut both ends, so that the kernel can back the block with huge pages. */
        if (bytes > SIZE_MAX - 2 * HUGE_PAGE) {
            return NULL;
        }
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        size_t size = (bytes + page - 1) & ~(page - 1);
        size_t mapped = size + HUGE_PAGE;
        char *start = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if ((void *)start == MAP_FAILED) {
            return NULL;
        }
        size_t before = (HUGE_PAGE - ((uintptr_t)start & (HUGE_PAGE - 1))) & (HUGE_PAGE - 1);
        if (before != 0) {
            (void)munmap(start, before);
        }
        if (mapped - before - size != 0) {
            (void)munmap(start + before + size, mapped - before - size);
        }
        (void)madvise(start + before, size, MADV_HUGEPAGE); /* advice: small pages are right too */
        return start + before;
    }
#endif
    void *memory = NULL;
    return posix_memalign(&memory, alignment, bytes) == 0 ? memory : NULL;
}

void pto__default_release(void *context, void *memory, size_t bytes, size_t alignment) {
    (void)context;
#ifdef __linux__
    if (bytes >= HUGE_PAGE && alignment <= HUGE_PAGE) {
        size_t page = (size_t)sysconf(_SC_PAGESIZE);
        (void)munmap(memory, (bytes + page - 1) & ~(page - 1));
        return;
    }
#endif
    (void)alignment;
    (void)bytes;
    free(memory);
}
