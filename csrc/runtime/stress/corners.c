/* SPDX-License-Identifier: MIT */
/*
 * Corners of task graphs, one by one: who runs what (long lanes, helpers that are called again, an owner that sleeps,
 * limits on threads), failures, arguments that are refused, tasks in steps, traces and dumps.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static int64_t cells[4096];
static const int64_t cell_extent = 4096;
static const int64_t cell_stride = 8;
static const int32_t read_one[1] = {PTO_READ};
static const int32_t write_one[1] = {PTO_WRITE};
static const int32_t update_one[1] = {PTO_READ_WRITE};
static const int32_t write_two[2] = {PTO_WRITE, PTO_WRITE};
static const int32_t read_two[2] = {PTO_READ, PTO_READ};

static pto_runtime *runtime(int32_t threads) {
    pto_options options;
    pto_options_default(&options);
    options.num_threads = threads;
    options.spin_microseconds = 0; /* idle threads sleep at once */
    pto_runtime *rt;
    CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
    return rt;
}

static void pause_ms(long milliseconds) {
    struct timespec pause = {milliseconds / 1000, milliseconds % 1000 * 1000000};
    nanosleep(&pause, NULL);
}

/* An empty recorded graph, or a live one, that knows the cells as tensor 0. */
static pto_graph *graph_of(pto_runtime *rt, pto_worker *w, int64_t window) {
    pto_graph *g = w != NULL ? pto_graph_open(w, window) : NULL;
    int32_t tensor;
    CHECK(w != NULL ? g != NULL : pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, cells, 8, 1, &cell_extent, &cell_stride, &tensor) == PTO_OK && tensor == 0);
    return g;
}

static int32_t submit(pto_graph *g, const pto_task_kind *kind, int64_t a, int64_t b, int64_t first, int64_t count) {
    const int64_t slots[2] = {a, b};
    const int64_t region[3] = {0, first, count};
    return pto_task(g, kind, slots, region);
}

/* ---- who runs what ---- */

enum { MANY = FEWER(3000, 400) }; /* more than a lane's first ring holds */
static atomic_int ran[4096];
static atomic_uint workers; /* a bit for each that was seen */

static int32_t count_run(pto_worker *w, const int64_t *slots) {
    atomic_fetch_add(&ran[slots[0]], 1);
    atomic_fetch_or(&workers, 1u << pto_worker_index(w));
    return 0;
}

static const pto_task_kind count_kind = {"count", count_run, 0, 2, 0, NULL};
static const pto_task_kind count_update = {"count", count_run, 0, 2, 1, update_one};
static const pto_task_kind count_read = {"count", count_run, 0, 2, 1, read_one};

static unsigned seen(int tasks) {
    for (int i = 0; i < tasks; i++) {
        CHECK(atomic_exchange(&ran[i], 0) == 1);
    }
    return atomic_exchange(&workers, 0);
}

/* Many tasks are ready at once: the lanes' rings grow while thieves look at them. */
static void long_lanes(pto_runtime *rt) {
    for (int fan = 0; fan < 2; fan++) { /* all from the beginning, or after the first task */
        pto_graph *g = graph_of(rt, NULL, 0);
        CHECK(submit(g, fan ? &count_update : &count_kind, 0, 0, 0, 1) == PTO_OK);
        for (int64_t i = 1; i < MANY; i++) {
            CHECK(submit(g, fan ? &count_read : &count_kind, i, 0, 0, 1) == PTO_OK);
        }
        for (int again = 0; again < 3; again++) {
            CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_OK);
            (void)seen(MANY);
        }
        CHECK(pto_graph_execute(g, NULL, 1, 0, NULL) == PTO_OK);
        CHECK(seen(MANY) == 1); /* one thread: the caller's */
        pto_graph_destroy(g);
    }
}

static int32_t long_live(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    pto_graph *g = graph_of(NULL, w, 0);
    CHECK(submit(g, &count_update, 0, 0, 0, 1) == PTO_OK);
    for (int64_t i = 1; i < MANY; i++) {
        CHECK(submit(g, &count_read, i, 0, 0, 1) == PTO_OK);
    }
    return pto_graph_close(w, g);
}

/* Returns once two threads are here; fails when the other one does not come for half a minute. */
static atomic_int arrived[16];
static int32_t meet(pto_worker *w, const int64_t *slots) {
    (void)w;
    atomic_fetch_add(&arrived[slots[0]], 1);
    for (int i = 0; i < 60000 && atomic_load(&arrived[slots[0]]) < 2; i++) {
        struct timespec pause = {0, 500000};
        nanosleep(&pause, NULL);
    }
    return atomic_load(&arrived[slots[0]]) < 2;
}

static int32_t slow_write(pto_worker *w, const int64_t *slots) {
    (void)w;
    pause_ms(slots[0]);
    atomic_fetch_add(&ran[slots[1]], 1);
    return 0;
}

static const pto_task_kind meet_kind = {"meet", meet, 0, 2, 0, NULL};
static const pto_task_kind meet_read = {"meet", meet, 0, 2, 1, read_one};
static const pto_task_kind slow_kind = {"slow", slow_write, 0, 2, 1, write_one};

/* Two threads at a time, although helpers sleep in between, and the owner too. */
static int32_t meetings(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    pto_graph *g = graph_of(NULL, w, 0);
    for (int64_t round = 0; round < 3; round++) {
        pause_ms(5); /* the helper has found nothing and sleeps */
        CHECK(submit(g, &meet_kind, round, 0, 0, 1) == PTO_OK && submit(g, &meet_kind, round, 0, 0, 1) == PTO_OK);
        CHECK(pto_graph_wait(g) == PTO_OK);
    }
    for (int64_t round = 3; round < 6; round++) {
        CHECK(submit(g, &slow_kind, 20, 0, 0, 1) == PTO_OK);
        CHECK(submit(g, &meet_read, round, 0, 0, 1) == PTO_OK && submit(g, &meet_read, round, 0, 0, 1) == PTO_OK);
        pause_ms(5); /* the helper has begun the first, the owner sleeps until it is over */
        CHECK(pto_graph_wait(g) == PTO_OK);
    }
    return pto_graph_close(w, g);
}

static int32_t here(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)end;
    pause_ms(1);
    CHECK(pto_parallel_width(w) == 1 && pto_in_piece(w) == 1);
    ((int32_t *)ctx)[begin] = pto_worker_index(w);
    return 0;
}

static int32_t loop_task(pto_worker *w, const int64_t *slots) {
    int32_t by[8];
    CHECK(pto_parallel_for(w, here, by, 0, 8, 1) == 0);
    for (int i = 0; i < 8; i++) {
        CHECK(by[i] == pto_worker_index(w));
    }
    atomic_fetch_add(&ran[slots[0]], 1);
    return 0;
}

static const pto_task_kind loop_kind = {"loop", loop_task, 0, 2, 0, NULL};

static int32_t meet_piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)begin;
    (void)end;
    return meet(w, ctx);
}

/* A loop in a task belongs to its thread; after the graph was waited for and closed, loops are divided again. */
static int32_t loops_and_graphs(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    int64_t meeting = 6;
    for (int64_t i = 0; i < 10; i++) { /* one task, so that the helper has nothing else to do */
        pto_graph *g = graph_of(NULL, w, 0);
        CHECK(submit(g, &loop_kind, i, 0, 0, 1) == PTO_OK);
        CHECK(pto_graph_close(w, g) == PTO_OK);
    }
    pto_graph *g = graph_of(NULL, w, 0);
    CHECK(submit(g, &loop_kind, 10, 0, 0, 1) == PTO_OK && pto_graph_wait(g) == PTO_OK);
    CHECK(pto_in_piece(w) == 0);
    CHECK(pto_parallel_for(w, meet_piece, &meeting, 0, 2, 1) == 0);
    CHECK(pto_graph_close(w, g) == PTO_OK);
    meeting = 7;
    return pto_parallel_for(w, meet_piece, &meeting, 0, 2, 1);
}

static int32_t graph_piece(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)ctx;
    (void)end;
    pto_graph *g = graph_of(NULL, w, 0);
    for (int64_t i = 0; i < 20; i++) {
        CHECK(submit(g, &count_kind, 20 * begin + i, 0, 0, 1) == PTO_OK);
    }
    return pto_graph_close(w, g);
}

static int32_t graphs_in_pieces(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    return pto_parallel_for(w, graph_piece, NULL, 0, 30, 1);
}

/* ---- windows and waiting, on one thread: what runs when is known ---- */

static int64_t total;
static int32_t tally(pto_worker *w, const int64_t *slots) {
    (void)w;
    (void)slots;
    total++;
    return 0;
}
static const pto_task_kind tally_kind = {"tally", tally, 0, 2, 0, NULL};
static const pto_task_kind tally_write = {"tally", tally, 0, 2, 1, write_one};
static const pto_task_kind two_writes = {"two", NULL, 0, 0, 2, write_two};
static const pto_task_kind two_reads = {"two", NULL, 0, 0, 2, read_two};

static int32_t windows(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    int64_t window = args[0] == 0 ? 4096 : args[0]; /* as one thread has it */
    pto_graph *g = graph_of(NULL, w, args[0]);
    total = 0;
    for (int64_t i = 0; i < 2 * window + 10; i++) {
        CHECK(submit(g, &tally_kind, 0, 0, 0, 1) == PTO_OK);
        CHECK(i + 1 - total <= window); /* unfinished */
        CHECK(i + 1 > window || total == 0); /* a full window makes room, not before */
    }
    CHECK(pto_graph_wait(g) == PTO_OK && total == 2 * window + 10);
    return pto_graph_close(w, g);
}

static int32_t waiting(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    const int64_t two[3] = {0, 10, 2};
    pto_graph *g = graph_of(NULL, w, 0);
    pto_graph_facts facts;
    total = 0;
    /* the newest runs first, and is the first that the region's tasks are looked up by */
    CHECK(submit(g, &tally_write, 0, 0, 11, 1) == PTO_OK && submit(g, &tally_write, 0, 0, 10, 1) == PTO_OK);
    CHECK(pto_graph_wait_region(g, PTO_READ, two) == PTO_OK && total == 2);
    CHECK(pto_graph_wait_region(g, 0, two) == PTO_BAD_ARGUMENT && pto_graph_wait_region(g, 4, two) == PTO_BAD_ARGUMENT);
    /* looking changes nothing: a task that reads afterwards is ordered by what was there */
    CHECK(submit(g, &tally_write, 0, 0, 20, 1) == PTO_OK && submit(g, &tally_kind, 0, 0, 0, 1) == PTO_OK);
    int64_t both[6] = {0, 30, 1, 0, 40, 1};
    CHECK(pto_task(g, &two_writes, NULL, both) == PTO_OK && pto_graph_measure(g, &facts) == PTO_OK);
    int64_t edges = facts.edges;
    CHECK(pto_task(g, &two_reads, NULL, both) == PTO_OK); /* two reasons, one edge */
    CHECK(pto_graph_measure(g, &facts) == PTO_OK && facts.edges == edges + 1 && facts.ready == 0);
    char text[8];
    CHECK(pto_graph_dump(g, text, 8) == -PTO_BAD_ARGUMENT);
    CHECK(pto_graph_wait(g) == PTO_OK);
    int64_t outside[3] = {1, 0, 1};
    CHECK(pto_task(g, &tally_write, two, outside) == PTO_BAD_ARGUMENT); /* there is no tensor 1 */
    CHECK(submit(g, &tally_kind, 0, 0, 0, 1) == PTO_BAD_ARGUMENT);
    CHECK(pto_graph_wait(g) == PTO_BAD_ARGUMENT);
    return pto_graph_close(w, g) == PTO_BAD_ARGUMENT ? PTO_OK : PTO_FAILED;
}

/* Looking at regions of a recorded graph leaves what is known of them as it was. */
static void looking(pto_runtime *rt) {
    const int64_t tile[3] = {0, 8, 4};
    const int64_t odd[3] = {0, 9, 5};
    for (int boxes = 0; boxes < 2; boxes++) {
        pto_graph *g = graph_of(rt, NULL, 0);
        pto_graph_facts facts;
        if (boxes) {
            CHECK(submit(g, &tally_write, 0, 0, 1, 5) == PTO_OK && submit(g, &tally_write, 0, 0, 3, 9) == PTO_OK);
        }
        for (int i = 0; i < 3; i++) {
            CHECK(pto_graph_wait_region(g, PTO_READ_WRITE, boxes ? odd : tile) == (boxes ? PTO_NOT_RUN : PTO_OK));
        }
        CHECK(submit(g, &tally_write, 0, 0, 8, 4) == PTO_OK); /* 0 */
        CHECK(pto_graph_wait_region(g, PTO_WRITE, tile) == PTO_NOT_RUN);
        CHECK(pto_graph_wait_region(g, PTO_READ, tile) == PTO_NOT_RUN);
        CHECK(submit(g, &count_read, 0, 0, 8, 4) == PTO_OK); /* 1: after 0 */
        CHECK(pto_graph_wait_region(g, PTO_WRITE, tile) == PTO_NOT_RUN);
        CHECK(pto_graph_wait_region(g, PTO_READ, tile) == PTO_NOT_RUN);
        CHECK(pto_graph_measure(g, &facts) == PTO_OK);
        int64_t edges = facts.edges;
        CHECK(submit(g, &count_read, 0, 0, 8, 4) == PTO_OK); /* 2: after 0 */
        CHECK(submit(g, &tally_write, 0, 0, 8, 4) == PTO_OK); /* 3: after 1 and 2, through them after 0 */
        CHECK(pto_graph_measure(g, &facts) == PTO_OK && facts.edges == edges + 3);
        CHECK(facts.tasks == 4 + 2 * boxes);
        pto_graph_destroy(g);
    }
}

/* ---- failures ---- */

static int32_t fail_task(pto_worker *w, const int64_t *slots) {
    void *left = pto_scratch_push(w, 64);
    CHECK(left != NULL);
    return slots[0] == 0 ? 0 : slots[0] == 1 ? 9 : pto_fail(w, 42, slots[0], 0, 0);
}
static const pto_task_kind fail_write = {"fail", fail_task, 0, 2, 1, write_one};
static const pto_task_kind fail_read = {"fail", fail_task, 0, 2, 1, read_one};

/* A later task fails first on the same thread; the earlier one, which records nothing, is the one that is told. */
static void two_failures(pto_runtime *rt) {
    pto_graph *g = graph_of(rt, NULL, 0);
    pto_failure failure;
    CHECK(submit(g, &fail_write, 0, 0, 0, 1) == PTO_OK);
    CHECK(submit(g, &fail_read, 1, 0, 0, 1) == PTO_OK);
    for (int i = 0; i < 3; i++) {
        CHECK(submit(g, &fail_read, i == 2 ? 2 : 0, 0, 0, 1) == PTO_OK);
    }
    CHECK(pto_graph_execute(g, NULL, 1, 0, &failure) == 9);
    CHECK(failure.task == 2 && failure.site == PTO_SITE_UNRECORDED && failure.v0 == 9 && failure.graph == NULL);
    pto_graph_destroy(g);
}

/* A graph that a task opens fails: the failure is the task's, and the inner graph is not lost. */
static int32_t inner(pto_worker *w, const int64_t *slots) {
    (void)slots;
    pto_graph *g = graph_of(NULL, w, 0);
    CHECK(submit(g, &fail_write, 7, 0, 0, 1) == PTO_OK);
    return pto_graph_close(w, g);
}
static const pto_task_kind inner_kind = {"inner", inner, 0, 2, 0, NULL};

static int32_t nested(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    pto_graph *g = graph_of(NULL, w, 0);
    CHECK(submit(g, &count_kind, 0, 0, 0, 1) == PTO_OK && submit(g, &inner_kind, 0, 0, 0, 1) == PTO_OK);
    return pto_graph_close(w, g);
}

static void nested_failures(pto_runtime *rt) {
    pto_failure failure;
    pto_task_facts facts;
    CHECK(pto_launch(rt, nested, NULL, NULL, NULL, 0, &failure) == PTO_FAILED);
    CHECK(failure.task == 2 && failure.site == 42 && failure.v0 == 7 && failure.graph != NULL);
    CHECK(pto_graph_task(failure.graph, 1, &facts) == PTO_OK && facts.kind == &inner_kind);
    CHECK(pto_graph_task(failure.graph, 0, &facts) == PTO_BAD_ARGUMENT); /* only the failed one */
    pto_graph_destroy(failure.graph);
    pto_graph *g = graph_of(rt, NULL, 0);
    CHECK(submit(g, &inner_kind, 0, 0, 0, 1) == PTO_OK);
    CHECK(pto_graph_execute(g, NULL, 0, 0, &failure) == PTO_FAILED);
    CHECK(failure.task == 1 && failure.site == 42 && failure.graph == NULL);
    pto_graph_destroy(g);
    (void)seen(1);
}

static int32_t waits_for_failure(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    const int64_t cell[3] = {0, 5, 1};
    pto_graph *g = graph_of(NULL, w, 0);
    CHECK(submit(g, &fail_write, 3, 0, 5, 1) == PTO_OK);
    CHECK(pto_graph_wait_region(g, PTO_READ, cell) == PTO_FAILED);
    CHECK(submit(g, &tally_kind, 0, 0, 0, 1) == PTO_FAILED);
    return pto_graph_close(w, g);
}

/* Pieces of a loop after a failed one are not begun any more. */
static atomic_int pieces;
static int32_t fail_first(pto_worker *w, void *ctx, int64_t begin, int64_t end) {
    (void)ctx;
    (void)end;
    if (begin == 0) {
        return pto_fail(w, 1, 0, 0, 0);
    }
    atomic_fetch_add(&pieces, 1);
    pause_ms(1);
    return 0;
}
static int32_t failing_loop(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    (void)results;
    return pto_parallel_for(w, fail_first, NULL, 0, 2000, 1);
}

/* ---- arguments that are refused ---- */

static void refusals(pto_runtime *rt) {
    pto_graph *g = graph_of(rt, NULL, 0);
    int32_t tensor;
    const int64_t huge[3] = {(int64_t)1 << 40, (int64_t)1 << 40, 2};
    const int64_t steps[3] = {(int64_t)1 << 20, (int64_t)1 << 19, 1};
    const int64_t negative[1] = {-1};
    CHECK(pto_graph_tensor(g, cells, 8, 2, huge, steps, &tensor) == PTO_BAD_ARGUMENT && tensor == -1);
    CHECK(pto_graph_tensor(g, cells, 8, 1, negative, steps, &tensor) == PTO_BAD_ARGUMENT);
    CHECK(pto_graph_tensor(g, cells, 0, 1, &cell_extent, &cell_stride, &tensor) == PTO_BAD_ARGUMENT);
    CHECK(pto_graph_tensor(g, cells, 8, -1, NULL, NULL, &tensor) == PTO_BAD_ARGUMENT);
    for (int64_t k = 0; k < 200; k++) { /* many that differ in one number only */
        const int64_t extents[3] = {2, 3, 2};
        const int64_t strides[3] = {8 * (k % 100 + 7), 8, 8000};
        CHECK(pto_graph_tensor(g, cells, 8, k < 100 ? 2 : 3, extents, strides, &tensor) == PTO_OK && tensor == k + 1);
        CHECK(pto_graph_tensor(g, cells, 8, k < 100 ? 2 : 3, extents, strides, &tensor) == PTO_OK && tensor == k + 1);
    }
    CHECK(pto_graph_tensor_facts(g, 201, NULL, NULL, NULL, NULL, NULL) == PTO_BAD_ARGUMENT);
    CHECK(submit(g, &tally_write, 0, 0, 0, 1) == PTO_OK);
    CHECK(pto_graph_region(g, 0, 1, &tensor, NULL, NULL) == PTO_BAD_ARGUMENT);
    CHECK(pto_graph_region(g, 0, -1, &tensor, NULL, NULL) == PTO_BAD_ARGUMENT);
    CHECK(pto_graph_region(g, 1, 0, &tensor, NULL, NULL) == PTO_BAD_ARGUMENT);
    const int64_t slots[2] = {0, 0};
    const int64_t unknown[3] = {201, 0, 1};
    CHECK(pto_task(g, &tally_write, slots, unknown) == PTO_BAD_ARGUMENT);
    CHECK(submit(g, &tally_write, 0, 0, 0, 1) == PTO_BAD_ARGUMENT); /* none after an error */
    CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_BAD_ARGUMENT);
    pto_graph_destroy(g);
}

static void launched(pto_runtime *rt, pto_entry_fn entry, const int64_t *args, int32_t max_threads, int32_t status) {
    pto_failure failure;
    CHECK(pto_launch(rt, entry, args, NULL, NULL, max_threads, &failure) == status);
    if (status != PTO_OK) {
        pto_graph_destroy(failure.graph);
    }
}

int main(void) {
    pto_runtime *rts[4];
    for (int32_t i = 0; i < 4; i++) {
        rts[i] = runtime(i + 1);
        long_lanes(rts[i]);
        for (int round = 0; round < 3; round++) {
            launched(rts[i], long_live, NULL, 0, PTO_OK);
            (void)seen(MANY);
        }
        launched(rts[i], long_live, NULL, 1, PTO_OK);
        CHECK(seen(MANY) == 1);
        launched(rts[i], graphs_in_pieces, NULL, 0, PTO_OK);
        (void)seen(600);
        for (int64_t window = FEWER(0, 13); window < 40; window += 13) {
            launched(rts[i], windows, &window, 1, PTO_OK);
        }
        launched(rts[i], waiting, NULL, 1, PTO_OK);
        launched(rts[i], waits_for_failure, NULL, 0, PTO_FAILED);
        looking(rts[i]);
        two_failures(rts[i]);
        nested_failures(rts[i]);
    }
    refusals(rts[0]);
    launched(rts[1], meetings, NULL, 0, PTO_OK);
    launched(rts[1], loops_and_graphs, NULL, 0, PTO_OK);
    launched(rts[1], failing_loop, NULL, 0, PTO_FAILED);
    CHECK(atomic_load(&pieces) < 1900);
    for (int i = 0; i < 4; i++) {
        pto_statistics s;
        pto_runtime_statistics(rts[i], &s);
        CHECK(s.buffers_live == 0);
        pto_runtime_release(rts[i]);
    }
    puts("corners: ok");
    return 0;
}
