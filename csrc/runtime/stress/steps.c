/* SPDX-License-Identifier: MIT */
/* Task graphs looked at: tasks that were submitted in steps, traces, dumps. */
#include "../pto_runtime.h"
#include "check.h"

#include <string.h>

static int64_t matrix[16][8];

static pto_graph *graph_of(pto_runtime *rt) {
    const int64_t extents[2] = {16, 8};
    const int64_t strides[2] = {sizeof matrix[0], sizeof matrix[0][0]};
    const int64_t row_extent = 128;
    pto_graph *g;
    int32_t tensor;
    CHECK(pto_graph_create(rt, &g) == PTO_OK);
    CHECK(pto_graph_tensor(g, matrix, 8, 2, extents, strides, &tensor) == PTO_OK && tensor == 0);
    CHECK(pto_graph_tensor(g, matrix, 8, 1, &row_extent, &strides[1], &tensor) == PTO_OK && tensor == 1);
    return g;
}

static int64_t failing = -1;

static int32_t fine(pto_worker *w, const int64_t *slots) {
    (void)w;
    return slots[0] == failing ? PTO_FAILED : PTO_OK;
}

static int32_t other(pto_worker *w, const int64_t *slots) {
    (void)w;
    (void)slots;
    return PTO_OK;
}

/* ---- tasks in steps ---- */

/* Each differs from the first in one thing; what is read back is what was given. */
static void steps(pto_runtime *rt) {
    static const char name[] = "task";
    pto_graph *g = graph_of(rt);
    for (int64_t variant = 0; variant < 6; variant++) {
        const int64_t slots[3] = {variant, 2, 3};
        int64_t t = pto_task_alloc(g, name, variant == 1 ? other : fine, variant == 2 ? 99 : 8, slots,
                                   variant == 3 ? 3 : 2);
        CHECK(t == variant);
        CHECK((variant == 4 ? pto_task_add_output : pto_task_add_input)(g, t, 0, 2, 0, 1, 8) == PTO_OK);
        CHECK(pto_task_add_output(g, t, 1, 0, 40 + 8 * variant, 1, 8) == PTO_OK);
        if (variant == 5) {
            const int64_t box[4] = {9, 1, 2, 3};
            CHECK(pto_task_add_input_box(g, t, 0, box, box + 2) == PTO_OK);
        }
        CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_BAD_ARGUMENT); /* a task is begun */
        CHECK(pto_task_submit(g, t) == PTO_OK);
    }
    for (int64_t variant = 0; variant < 6; variant++) {
        pto_task_facts facts;
        CHECK(pto_graph_task(g, variant, &facts) == PTO_OK);
        CHECK(facts.kind->name == name && facts.kind->function == (variant == 1 ? other : fine));
        CHECK(facts.kind->buffer_bytes == (variant == 2 ? 99 : 8));
        CHECK(facts.kind->num_slots == (variant == 3 ? 3 : 2) && facts.slots[0] == variant && facts.slots[1] == 2);
        CHECK(facts.kind->num_accesses == (variant == 5 ? 3 : 2));
        CHECK(facts.kind->accesses[0] == (variant == 4 ? PTO_WRITE : PTO_READ));
        CHECK(facts.kind->accesses[1] == PTO_WRITE);
        int32_t tensor;
        int64_t offsets[2];
        int64_t extents[2];
        CHECK(pto_graph_region(g, variant, 1, &tensor, offsets, extents) == PTO_OK);
        CHECK(tensor == 1 && offsets[0] == 40 + 8 * variant && extents[0] == 8);
    }
    CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_OK);
    pto_graph_destroy(g);
}

static const int32_t update[1] = {PTO_READ_WRITE};
static const int32_t odd_access[1] = {9};
static const pto_task_kind odd_kind = {"odd", other, 0, 0, 1, odd_access};
static const pto_task_kind empty_kind = {"empty", other, 0, 0, 0, NULL};

/* The wrong step of a task that was begun, by number; its status. */
static int32_t wrong_step(pto_graph *g, int64_t t, int which) {
    const int64_t box[4] = {0, 7, 1, 2};
    switch (which) {
    case 0: return (int32_t)-pto_task_alloc(g, "second", fine, 8, NULL, 0); /* one at a time */
    case 1: return pto_task_add_input(g, t + 1, 0, 0, 0, 1, 1);
    case 2: return pto_task_submit(g, t + 1);
    case 3: return pto_task_add_input(g, t, 0, 15, 0, 2, 8); /* outside */
    case 4: return pto_task_add_input(g, t, 1, 1, 0, 1, 8);  /* rank 1 has row 0 */
    case 5: return pto_task_add_output(g, t, 1, 0, 0, 2, 8);
    case 6: return pto_task_add_output(g, t, 2, 0, 0, 1, 1);
    case 7: return pto_task_add_input_box(g, t, 0, box, box + 2);
    case 8: return pto_task(g, &empty_kind, NULL, NULL) == PTO_OK ? pto_task_submit(g, t) : PTO_OK; /* has its number */
    default: return -1;
    }
}

/* After a wrong step neither the begun task nor another one is accepted, and the graph does not run. */
static void wrong_steps(pto_runtime *rt) {
    const int64_t region[5] = {0, 3, 0, 1, 8};
    for (int which = 0; which < 9; which++) {
        pto_graph *g = graph_of(rt);
        int64_t t = pto_task_alloc(g, "task", other, 8, NULL, 0);
        CHECK(t == 0 && wrong_step(g, t, which) == PTO_BAD_ARGUMENT);
        CHECK(pto_task_add_input(g, t, 0, 0, 0, 1, 8) == PTO_BAD_ARGUMENT);
        CHECK(pto_task_submit(g, t) == PTO_BAD_ARGUMENT);
        CHECK(pto_task(g, &empty_kind, NULL, region) == PTO_BAD_ARGUMENT);
        CHECK(pto_task_alloc(g, "later", other, 8, NULL, 0) == -PTO_BAD_ARGUMENT);
        CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_BAD_ARGUMENT);
        pto_graph_destroy(g);
    }
    pto_graph *g = graph_of(rt);
    CHECK(pto_task_alloc(g, "task", fine, 8, NULL, -1) == -PTO_BAD_ARGUMENT);
    pto_graph_destroy(g);
    g = graph_of(rt);
    CHECK(pto_task_submit(g, 0) == PTO_BAD_ARGUMENT); /* none was begun */
    pto_graph_destroy(g);
    for (int known = 0; known < 2; known++) { /* also where the tensor knows the tile */
        g = graph_of(rt);
        const int64_t slots[1] = {0};
        const pto_task_kind first = {"first", fine, 0, 1, 1, update};
        CHECK(known == 0 || pto_task(g, &first, slots, region) == PTO_OK);
        CHECK(known == 0 || pto_task(g, &first, slots, region) == PTO_OK);
        CHECK(pto_task(g, &odd_kind, NULL, region) == PTO_BAD_ARGUMENT);
        pto_graph_destroy(g);
    }
}

static int32_t open_and_begin(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)args;
    pto_graph *g = pto_graph_open(w, 0);
    CHECK(g != NULL);
    CHECK(pto_task(g, &empty_kind, NULL, NULL) == PTO_OK);
    CHECK(pto_task_alloc(g, "task", other, 8, NULL, 0) == 1);
    results[0] = pto_graph_close(w, g);
    return (int32_t)results[0];
}

static void begun_tasks(pto_runtime *rt) {
    int64_t closed = PTO_OK;
    pto_failure failure;
    CHECK(pto_launch(rt, open_and_begin, NULL, &closed, NULL, 0, &failure) == PTO_BAD_ARGUMENT);
    CHECK(closed == PTO_BAD_ARGUMENT && failure.site == PTO_SITE_BAD_TASK);
}

/* ---- traces ---- */

static const pto_task_kind fine_kind = {"fine", fine, 0, 1, 1, update};
static const pto_task_kind none_kind = {"none", NULL, 0, 1, 1, update};

static void add(pto_graph *g, int64_t from, int64_t to) {
    for (int64_t i = from; i < to; i++) {
        const int64_t region[5] = {0, 3, 0, 1, 8};
        CHECK(pto_task(g, i % 2 == 0 ? &fine_kind : &none_kind, &i, region) == PTO_OK);
    }
}

static void traces(pto_runtime *rt) {
    int64_t count = -1;
    pto_graph *g = graph_of(rt);
    add(g, 0, 10);
    CHECK(pto_graph_trace(g, &count) == NULL && count == 0);
    CHECK(pto_graph_execute(g, NULL, 0, 1, NULL) == PTO_OK);
    const pto_trace_event *events = pto_graph_trace(g, &count);
    CHECK(count == 10);
    for (int i = 0; i < 10; i++) { /* one after the other, those without a function too */
        CHECK(events[i].begin_ns > 0 && events[i].begin_ns <= events[i].end_ns && events[i].worker >= 0);
        CHECK(i == 0 || events[i - 1].end_ns <= events[i].begin_ns);
    }
    CHECK(pto_graph_execute(g, NULL, 0, 0, NULL) == PTO_OK);
    CHECK(pto_graph_trace(g, &count) == NULL && count == 0); /* the last run has none */
    CHECK(pto_graph_execute(g, NULL, 0, 1, NULL) == PTO_OK);
    add(g, 10, 200);
    CHECK(pto_graph_execute(g, NULL, 0, 1, NULL) == PTO_OK);
    events = pto_graph_trace(g, &count);
    CHECK(count == 200 && events[199].begin_ns > 0); /* also of tasks that were added since */
    failing = 14;
    for (int again = 0; again < 2; again++) {
        CHECK(pto_graph_execute(g, NULL, 0, 1, NULL) == PTO_FAILED);
        events = pto_graph_trace(g, &count);
        CHECK(count == 200);
        for (int i = 0; i < 200; i++) {
            CHECK((events[i].begin_ns != 0) == (i <= 14)); /* what did not run has no time, also not an older one */
        }
    }
    failing = -1;
    pto_graph_destroy(g);
}

/* ---- dumps ---- */

static void dumps(pto_runtime *rt) {
    static char whole[4096];
    static char part[4096];
    pto_graph *g = graph_of(rt);
    add(g, 0, 12);
    int64_t length = pto_graph_dump(g, NULL, 0);
    CHECK(length > 0 && length < (int64_t)sizeof whole);
    CHECK(pto_graph_dump(g, whole, sizeof whole) == length && memchr(whole, 0, sizeof whole) == whole + length);
    for (int64_t room = 0; room <= length; room += 7) {
        memset(part, '#', sizeof part);
        CHECK(pto_graph_dump(g, part, room) == length);
        CHECK(memcmp(part, whole, (size_t)room) == 0 && part[room] == '#');
    }
    pto_graph *odd = graph_of(rt);
    CHECK(pto_task_submit(odd, pto_task_alloc(odd, "two\nlines\x7f", fine, 0, NULL, 0)) == PTO_OK);
    length = pto_graph_dump(odd, whole, sizeof whole - 1);
    CHECK(length > 0 && length < (int64_t)sizeof whole);
    whole[length] = 0;
    CHECK(strstr(whole, "  Task 0: two?lines?      [READY]") != NULL); /* a task is a line */
    pto_graph_destroy(odd);
    CHECK(pto_runtime_dump(g, "/dev/null/dump.txt") == PTO_NO_FILE);
    FILE *full = fopen("/dev/full", "w"); /* takes nothing */
    if (full != NULL) {
        fclose(full);
        CHECK(pto_runtime_dump(g, "/dev/full") == PTO_NO_FILE);
        add(g, 12, 400); /* more than the C library keeps before it writes */
        CHECK(pto_runtime_dump(g, "/dev/full") == PTO_NO_FILE);
    }
    pto_graph_destroy(g);
}

int main(void) {
    for (int32_t threads = 1; threads <= 2; threads++) {
        pto_options options;
        pto_options_default(&options);
        options.num_threads = threads;
        pto_runtime *rt;
        CHECK(pto_runtime_create(&options, &rt) == PTO_OK);
        steps(rt);
        wrong_steps(rt);
        begun_tasks(rt);
        traces(rt);
        dumps(rt);
        pto_statistics s;
        pto_runtime_statistics(rt, &s);
        CHECK(s.buffers_live == 0);
        pto_runtime_release(rt);
    }
    puts("steps: ok");
    return 0;
}
