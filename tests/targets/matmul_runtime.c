/* SPDX-License-Identifier: MIT */
/* The run-time functions a matrix product calls, as the tests need them: a scratch stack per worker that can be told to fail,
 * counts of what is live and of the bytes held, a parallel loop that takes its ranges in a shuffled order on a settable number of threads, and
 * packed matrices that are kept until they are forgotten. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    int nested;
    int64_t depth;
} pto_worker;
typedef int32_t (*pto_range_fn)(pto_worker *, void *, int64_t, int64_t);
typedef struct {
    pto_range_fn fn;
    void *context;
    int64_t begin, end, grain, count;
    _Atomic int64_t next;
    _Atomic int32_t status;
} job;

static int threads = 1;
static _Atomic int64_t live, pushes, fail_after = -1, held, most_held;

void standin_threads(int n) { threads = n; }
void standin_fail_after(int64_t n) { fail_after = n; pushes = 0; }
int64_t standin_live(void) { return live; }
int64_t standin_pushes(void) { return pushes; }
int64_t standin_most_held(void) { return most_held; }
void standin_forget_most(void) { most_held = held; }
pto_worker *standin_worker(void) { return calloc(1, sizeof(pto_worker)); }

void *pto_scratch_push(pto_worker *w, int64_t bytes)
{
    char *room;
    if (fail_after >= 0 && pushes >= fail_after)
        return NULL;
    pushes++;
    if (posix_memalign((void **)&room, 64, (size_t)(bytes + 64)))
        return NULL;
    *(int64_t *)room = bytes;
    int64_t now = (held += bytes);
    for (int64_t most = most_held; most < now && !atomic_compare_exchange_weak(&most_held, &most, now);)
        ;
    for (int64_t i = 0; i < bytes; i++)
        room[i + 64] = (char)0xFF; /* NaN: what is read before it is written shows */
    w->depth++;
    live++;
    return room + 64;
}

void pto_scratch_pop(pto_worker *w, void *block)
{
    char *room = (char *)block - 64;
    held -= *(int64_t *)room;
    free(room);
    w->depth--;
    live--;
}

static void drain(job *j, pto_worker *w)
{
    w->nested++;
    for (int64_t i; (i = j->next++) < j->count;) {
        int64_t k = j->count - 1 - i; /* backwards: order must not matter */
        int64_t b = j->begin + k * j->grain, e = b + j->grain < j->end ? b + j->grain : j->end;
        int32_t s = j->fn(w, j->context, b, e);
        if (s)
            j->status = s;
    }
    w->nested--;
}

static job *current;

static void *thread(void *unused)
{
    pto_worker mine = {0, 0};
    (void)unused;
    drain(current, &mine);
    return NULL;
}

int32_t pto_parallel_width(const pto_worker *w) { return w->nested ? 1 : threads; }

int32_t pto_parallel_for(pto_worker *w, pto_range_fn fn, void *context, int64_t begin, int64_t end, int64_t grain)
{
    job j = {fn, context, begin, end, grain, (end - begin + grain - 1) / grain, 0, 0};
    pthread_t ids[16];
    int extra = w->nested ? 0 : threads - 1;
    if (extra)
        current = &j;
    for (int i = 0; i < extra; i++)
        pthread_create(&ids[i], NULL, thread, NULL);
    drain(&j, w);
    for (int i = 0; i < extra; i++)
        pthread_join(ids[i], NULL);
    return j.status;
}

/* ---- what is kept: matrices by their keys, packed when they are met for the second time ---- */

typedef struct {
    void *copy;
    int64_t key[6];
    int met, packed;
} matrix;

static matrix kept[16];
static int count_kept;
static int64_t found;
static pthread_mutex_t keeping = PTHREAD_MUTEX_INITIALIZER;

void standin_forget(void)
{
    for (int i = 0; i < count_kept; i++)
        free(kept[i].copy);
    memset(kept, 0, sizeof kept);
    count_kept = 0;
}

int64_t standin_found(void) { return found; }

static matrix *matrix_of(const int64_t *key)
{
    for (int i = 0; i < count_kept; i++)
        if (!memcmp(kept[i].key, key, sizeof kept[i].key))
            return &kept[i];
    if (count_kept == 16)
        abort();
    memcpy(kept[count_kept].key, key, sizeof kept[count_kept].key);
    return &kept[count_kept++];
}

void *pto_kept_find(pto_worker *w, const int64_t *key, int64_t bytes, void **room)
{
    void *copy = NULL;
    (void)w;
    *room = NULL;
    pthread_mutex_lock(&keeping);
    matrix *m = matrix_of(key);
    if (m->packed) {
        found++;
        copy = m->copy;
    } else if (++m->met == 2 && !posix_memalign(&m->copy, 64, (size_t)bytes)) {
        memset(m->copy, 0xFF, (size_t)bytes);
        *room = &m->copy;
    }
    pthread_mutex_unlock(&keeping);
    return copy;
}

void pto_kept_done(void *room)
{
    matrix *m = room; /* its first field */
    pthread_mutex_lock(&keeping);
    m->packed = 1;
    pthread_mutex_unlock(&keeping);
}
