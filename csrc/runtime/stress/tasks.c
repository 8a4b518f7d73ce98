/* SPDX-License-Identifier: MIT */
/*
 * Random programs of tasks on overlapping regions of views of one array: slices, transposed, reversed, reshaped, stepped.
 * The order that the graph keeps is compared with that of a model that looks at every byte, and the memory after a run
 * (recorded and live, 1 to 4 threads, random delays) with that of a serial execution.
 */
#include "../pto_runtime.h"
#include "check.h"

#include <string.h>

enum { BYTES = 192, TASKS = 48, ACCESSES = 4, VIEWS = 5, RANK = 3 };

typedef struct view {
    int64_t offset; /* of element 0 in the array */
    int64_t element_bytes;
    int32_t rank;
    int64_t extents[RANK];
    int64_t strides[RANK];
    int32_t number;
} view;

typedef struct task {
    int32_t count;
    int32_t accesses[ACCESSES];
    int32_t views[ACCESSES];
    int64_t regions[ACCESSES * (1 + 2 * RANK)];
    uint64_t delay;
    pto_task_kind kind;
} task;

typedef struct program {
    unsigned char memory[BYTES];
    view views[VIEWS];
    task tasks[TASKS];
    int num_tasks;
    int one_lattice; /* all views are slices of one array: the edges are known, not only the order */
} program;

static uint64_t below(uint64_t *random, uint64_t n) { return next_random(random) % n; }

/* ---- views ---- */

static void random_view(uint64_t *random, program *p, view *v) {
    memset(v, 0, sizeof *v);
    uint64_t kind = p->one_lattice ? below(random, 4) : below(random, 12);
    /* the array is 8 rows of 12 elements of 2 bytes */
    v->element_bytes = 2;
    v->rank = 2;
    v->extents[0] = 8;
    v->extents[1] = 12;
    v->strides[0] = 24;
    v->strides[1] = 2;
    if (kind >= 1 && kind <= 3) { /* a slice, perhaps transposed or reversed */
        int64_t row = (int64_t)below(random, 7);
        int64_t col = (int64_t)below(random, 11);
        v->extents[0] = 1 + (int64_t)below(random, (uint64_t)(8 - row));
        v->extents[1] = 1 + (int64_t)below(random, (uint64_t)(12 - col));
        if (p->one_lattice && (v->extents[0] < 2 || v->extents[1] < 2)) {
            v->extents[0] = 8; /* without its dimensions it would be another lattice */
            v->extents[1] = 12;
            row = 0;
            col = 0;
        }
        v->offset = row * 24 + col * 2;
    }
    if (kind == 2) {
        int64_t extent = v->extents[0];
        v->extents[0] = v->extents[1];
        v->extents[1] = extent;
        v->strides[0] = 2;
        v->strides[1] = 24;
    }
    if (kind == 3) {
        v->offset += (v->extents[1] - 1) * 2;
        v->strides[1] = -2;
    }
    if (kind == 4) { /* reshaped: one dimension */
        v->rank = 1;
        v->extents[0] = 96;
        v->strides[0] = 2;
    }
    if (kind == 5) { /* three dimensions */
        v->rank = 3;
        v->extents[0] = 4;
        v->extents[1] = 3;
        v->extents[2] = 8;
        v->strides[0] = 48;
        v->strides[1] = 16;
        v->strides[2] = 2;
    }
    if (kind == 6) { /* steps */
        v->offset = (int64_t)below(random, 2) * 2;
        v->extents[0] = 4;
        v->extents[1] = 6;
        v->strides[0] = 48;
        v->strides[1] = 4;
    }
    if (kind == 7) { /* another pitch and element */
        v->element_bytes = 4;
        v->extents[0] = 6;
        v->extents[1] = 6;
        v->strides[0] = 28;
        v->strides[1] = 4;
        v->offset = (int64_t)below(random, 4) * 2;
    }
    if (kind == 8) { /* windows over the array: elements that overlap */
        v->extents[0] = 10;
        v->extents[1] = 8;
        v->strides[0] = 6;
        v->strides[1] = 2;
        v->offset = (int64_t)below(random, 30) * 2;
    }
    if (kind > 8) { /* any strides and extents, axes in any order, some reversed */
        v->element_bytes = (int64_t)1 << below(random, 3);
        v->rank = 1 + (int32_t)below(random, RANK);
        int64_t stride = v->element_bytes;
        int64_t left = BYTES - v->element_bytes;
        for (int32_t a = v->rank - 1; a >= 0; a--) {
            stride += (int64_t)below(random, 3) * (1 + (int64_t)below(random, 6));
            stride = a == 0 && stride < 24 && below(random, 2) == 0 ? 24 : stride; /* the array's own pitch */
            v->strides[a] = stride;
            v->extents[a] = 1 + (int64_t)below(random, (uint64_t)(1 + left / stride < 7 ? 1 + left / stride : 7));
            left -= (v->extents[a] - 1) * stride;
            stride *= v->extents[a];
        }
        v->offset = (int64_t)below(random, (uint64_t)left + 1);
        for (int32_t a = 0; a < v->rank; a++) {
            if (below(random, 4) == 0) {
                v->offset += (v->extents[a] - 1) * v->strides[a];
                v->strides[a] = -v->strides[a];
            }
        }
        if (v->rank > 1 && below(random, 2) == 0) {
            int64_t extent = v->extents[0];
            int64_t first = v->strides[0];
            v->extents[0] = v->extents[1];
            v->strides[0] = v->strides[1];
            v->extents[1] = extent;
            v->strides[1] = first;
        }
    }
}

/* Calls `each` for every byte of a region. */
static void for_bytes(const view *v, const int64_t *region, void (*each)(void *, int64_t), void *context) {
    const int64_t *offsets = region + 1;
    const int64_t *extents = offsets + v->rank;
    int64_t total = v->element_bytes;
    for (int32_t a = 0; a < v->rank; a++) {
        total *= extents[a];
    }
    for (int64_t i = 0; i < total; i++) {
        int64_t left = i / v->element_bytes;
        int64_t at = v->offset + i % v->element_bytes;
        for (int32_t a = v->rank - 1; a >= 0; a--) {
            at += (offsets[a] + left % extents[a]) * v->strides[a];
            left /= extents[a];
        }
        each(context, at);
    }
}

/* ---- what a task does ---- */

typedef struct effect {
    unsigned char *memory;
    uint64_t hash;
    uint64_t salt;
} effect;

static void read_byte(void *context, int64_t at) {
    effect *e = context;
    CHECK(at >= 0 && at < BYTES);
    e->hash = (e->hash ^ e->memory[at]) * 0x100000001b3u;
}

static void write_byte(void *context, int64_t at) {
    effect *e = context;
    CHECK(at >= 0 && at < BYTES);
    e->memory[at] = (unsigned char)((e->hash + e->salt * (uint64_t)at) >> 11);
}

static void perform(program *p, int64_t number) {
    const task *t = &p->tasks[number];
    effect e = {p->memory, 0xcbf29ce484222325u, (uint64_t)number * 2654435761u + 1};
    for (int pass = 0; pass < 2; pass++) {
        const int64_t *region = t->regions;
        for (int32_t i = 0; i < t->count; i++) {
            const view *v = &p->views[t->views[i]];
            if (t->accesses[i] & (pass == 0 ? PTO_READ : PTO_WRITE)) {
                for_bytes(v, region, pass == 0 ? read_byte : write_byte, &e);
            }
            region += 1 + 2 * v->rank;
        }
    }
}

static int32_t body(pto_worker *w, const int64_t *slots) {
    program *p = (program *)(intptr_t)slots[0];
    for (volatile uint64_t i = 0; i < p->tasks[slots[1]].delay; i++) {
    }
    void *scratch = pto_scratch_push(w, 100);
    CHECK(scratch != NULL);
    memset(scratch, 1, 100);
    perform(p, slots[1]);
    pto_scratch_pop(w, scratch);
    return 0;
}

/* ---- the model: every byte, its last writer and its readers since ---- */

typedef struct byte_state {
    int writer; /* -1: none */
    uint64_t readers;
} byte_state;

typedef struct model {
    byte_state bytes[BYTES];
    int t;
    uint64_t edges;    /* of t: from these */
    uint64_t ordered;  /* of t: conflicts, whatever came in between */
    uint64_t wrote[BYTES];
    uint64_t touched[BYTES];
} model;

static void model_read(void *context, int64_t at) {
    model *m = context;
    byte_state *b = &m->bytes[at];
    if (b->writer >= 0 && b->writer != m->t) {
        m->edges |= (uint64_t)1 << b->writer;
    }
    b->readers |= (uint64_t)1 << m->t;
    m->ordered |= m->wrote[at];
    m->touched[at] |= (uint64_t)1 << m->t;
}

static void model_write(void *context, int64_t at) {
    model *m = context;
    byte_state *b = &m->bytes[at];
    uint64_t self = (uint64_t)1 << m->t;
    if (b->readers != 0) {
        m->edges |= b->readers & ~self;
    } else if (b->writer >= 0 && b->writer != m->t) {
        m->edges |= (uint64_t)1 << b->writer;
    }
    b->readers = 0;
    b->writer = m->t;
    m->ordered |= m->touched[at];
    m->touched[at] |= self;
    m->wrote[at] |= self;
}

/* ---- programs ---- */

static void random_program(uint64_t *random, program *p) {
    memset(p, 0, sizeof *p);
    p->one_lattice = below(random, 2) == 0;
    for (int i = 0; i < VIEWS; i++) {
        random_view(random, p, &p->views[i]);
    }
    if (p->one_lattice) {
        uint64_t none = 2; /* the first is the whole array */
        view whole = {0, 2, 2, {8, 12, 0}, {24, 2, 0}, 0};
        p->views[0] = whole;
        (void)none;
    }
    p->num_tasks = 1 + (int)below(random, TASKS);
    int tiled = below(random, 3) == 0; /* mostly whole tiles of 2 x 4 */
    int single = below(random, 3) == 0; /* one view only */
    for (int n = 0; n < p->num_tasks; n++) {
        task *t = &p->tasks[n];
        t->count = (int32_t)below(random, ACCESSES + 1);
        t->delay = below(random, 4) == 0 ? below(random, 3000) : 0;
        int64_t *region = t->regions;
        for (int32_t i = 0; i < t->count; i++) {
            t->accesses[i] = (int32_t)below(random, 3) + 1;
            t->views[i] = single ? 0 : (int32_t)below(random, VIEWS);
            view *v = &p->views[t->views[i]];
            for (int32_t a = 0; a < v->rank; a++) {
                int64_t unit = tiled && below(random, 40) != 0 ? (a == 0 ? 2 : 4) : 1;
                int64_t most = (v->extents[a] + unit - 1) / unit;
                int64_t low = (int64_t)below(random, (uint64_t)most) * unit;
                int64_t length = unit > 1 && below(random, 6) != 0
                                     ? unit
                                     : unit * (int64_t)below(random, (uint64_t)((v->extents[a] - low) / unit + 2));
                region[1 + a] = low;
                region[1 + v->rank + a] = length < v->extents[a] - low ? length : v->extents[a] - low;
            }
            region += 1 + 2 * v->rank;
        }
        pto_task_kind kind = {"random", body, 16, 2, t->count, t->accesses};
        t->kind = kind;
    }
}

static int32_t add_tensors(program *p, pto_graph *g, int first, int last) {
    for (int i = first; i < last; i++) {
        view *v = &p->views[i];
        int32_t status = pto_graph_tensor(g, p->memory + v->offset, v->element_bytes, v->rank, v->extents, v->strides,
                                          &v->number);
        if (status != PTO_OK) {
            return status;
        }
    }
    return PTO_OK;
}

/* Submits the tasks; half of the time some views become known only when others have been used. */
static int32_t submit(program *p, pto_graph *g, int late) {
    int known = late ? 1 : VIEWS;
    int32_t status = add_tensors(p, g, 0, known);
    for (int n = 0; n < p->num_tasks && status == PTO_OK; n++) {
        task *t = &p->tasks[n];
        int64_t *region = t->regions;
        for (int32_t i = 0; i < t->count && status == PTO_OK; i++) {
            if (t->views[i] >= known) {
                status = add_tensors(p, g, known, t->views[i] + 1);
                known = t->views[i] + 1;
            }
            region[0] = p->views[t->views[i]].number;
            region += 1 + 2 * p->views[t->views[i]].rank;
        }
        const int64_t slots[2] = {(int64_t)(intptr_t)p, n};
        if (status == PTO_OK) {
            status = pto_task(g, &t->kind, slots, t->regions);
        }
    }
    return status;
}

/* Counted from the edges. */
static void check_measures(pto_graph *g, int num_tasks, const uint64_t *preds) {
    int64_t level[TASKS];
    int64_t width[TASKS + 1] = {0};
    pto_graph_facts wanted = {num_tasks, 0, 0, 0, 0, 0};
    for (int n = 0; n < num_tasks; n++) {
        level[n] = 0;
        for (int k = 0; k < n; k++) {
            if (preds[n] >> k & 1) {
                level[n] = level[k] + 1 > level[n] ? level[k] + 1 : level[n];
            }
        }
        int64_t now = ++width[level[n]];
        wanted.edges += __builtin_popcountll(preds[n]);
        wanted.ready += preds[n] == 0;
        wanted.critical_path = level[n] + 1 > wanted.critical_path ? level[n] + 1 : wanted.critical_path;
        wanted.max_width = now > wanted.max_width ? now : wanted.max_width;
    }
    pto_graph_facts facts;
    CHECK(pto_graph_measure(g, &facts) == PTO_OK);
    CHECK(facts.tasks == wanted.tasks && facts.edges == wanted.edges && facts.ready == wanted.ready);
    CHECK(facts.critical_path == wanted.critical_path && facts.max_width == wanted.max_width);
}

static void check_order(program *p, pto_graph *g, int late) {
    uint64_t preds[TASKS] = {0};
    for (int n = 0; n < p->num_tasks; n++) {
        pto_task_facts facts;
        int64_t successors[TASKS];
        CHECK(pto_graph_task(g, n, &facts) == PTO_OK && facts.fanout <= TASKS);
        CHECK(pto_graph_successors(g, n, successors) == PTO_OK);
        for (int64_t i = 0; i < facts.fanout; i++) {
            CHECK(successors[i] > n && successors[i] < p->num_tasks && (i == 0 || successors[i] > successors[i - 1]));
            preds[successors[i]] |= (uint64_t)1 << n;
        }
    }
    check_measures(g, p->num_tasks, preds);
    static model m;
    memset(&m, 0, sizeof m);
    for (int i = 0; i < BYTES; i++) {
        m.bytes[i].writer = -1;
    }
    uint64_t before[TASKS]; /* by the graph */
    uint64_t wanted[TASKS]; /* by the model */
    for (int n = 0; n < p->num_tasks; n++) {
        const task *t = &p->tasks[n];
        m.t = n;
        m.edges = 0;
        m.ordered = 0;
        const int64_t *region = t->regions;
        for (int32_t i = 0; i < t->count; i++) {
            const view *v = &p->views[t->views[i]];
            if (t->accesses[i] & PTO_READ) {
                for_bytes(v, region, model_read, &m);
            }
            if (t->accesses[i] & PTO_WRITE) {
                for_bytes(v, region, model_write, &m);
            }
            region += 1 + 2 * v->rank;
        }
        uint64_t conflicts = m.ordered & ~((uint64_t)1 << n);
        pto_task_facts facts;
        CHECK(pto_graph_task(g, n, &facts) == PTO_OK);
        CHECK(facts.fanin == __builtin_popcountll(preds[n]));
        CHECK((preds[n] & ~conflicts) == 0); /* no edge without a common element */
        CHECK((m.edges & ~conflicts) == 0);
        before[n] = preds[n];
        wanted[n] = conflicts;
        for (int k = 0; k < n; k++) {
            before[n] |= preds[n] >> k & 1 ? before[k] : 0;
            wanted[n] |= conflicts >> k & 1 ? wanted[k] : 0;
        }
        CHECK(before[n] == wanted[n]);
        if (p->one_lattice && !late) {
            CHECK(preds[n] == m.edges);
        }
        /* the regions that are kept are the ones that were given */
        region = t->regions;
        for (int32_t i = 0; i < t->count; i++) {
            const view *v = &p->views[t->views[i]];
            int32_t tensor;
            int64_t offsets[RANK];
            int64_t extents[RANK];
            CHECK(pto_graph_region(g, n, i, &tensor, offsets, extents) == PTO_OK);
            int empty = 0;
            for (int32_t a = 0; a < v->rank; a++) {
                empty |= region[1 + v->rank + a] == 0;
            }
            CHECK(tensor == (empty ? -1 : v->number));
            for (int32_t a = 0; a < v->rank && !empty; a++) {
                CHECK(offsets[a] == region[1 + a] && extents[a] == region[1 + v->rank + a]);
            }
            region += 1 + 2 * v->rank;
        }
    }
}

typedef struct live_run {
    program *p;
    int late;
    int64_t window;
} live_run;

static int32_t live_entry(pto_worker *w, const int64_t *args, int64_t *results) {
    (void)results;
    live_run *run = (live_run *)(intptr_t)args[0];
    pto_graph *g = pto_graph_open(w, run->window);
    CHECK(g != NULL);
    int32_t status = submit(run->p, g, run->late);
    int32_t closed = pto_graph_close(w, g);
    return status != PTO_OK ? status : closed;
}

int main(int argc, char **argv) {
    long programs = argc > 1 ? atol(argv[1]) : FEWER(3000, 1000);
    uint64_t random = argc > 2 ? (uint64_t)atoll(argv[2]) : 88172645463325252u;
    pto_runtime *rts[4];
    for (int i = 0; i < 4; i++) {
        pto_options options;
        pto_options_default(&options);
        options.num_threads = i + 1;
        options.spin_microseconds = i % 2 == 0 ? 50 : 0;
        CHECK(pto_runtime_create(&options, &rts[i]) == PTO_OK);
    }
    static program p;
    for (long k = 0; k < programs; k++) {
        uint64_t seed = random;
        random_program(&random, &p);
        unsigned char start[BYTES];
        unsigned char serial[BYTES];
        for (int i = 0; i < BYTES; i++) {
            start[i] = (unsigned char)(next_random(&random) >> 20);
        }
        memcpy(p.memory, start, BYTES);
        for (int n = 0; n < p.num_tasks; n++) {
            perform(&p, n);
        }
        memcpy(serial, p.memory, BYTES);

        pto_runtime *rt = rts[below(&random, 4)];
        int late = below(&random, 2) == 0;
        pto_graph *g;
        CHECK(pto_graph_create(rt, &g) == PTO_OK);
        CHECK(submit(&p, g, late) == PTO_OK);
        check_order(&p, g, late);
        for (int again = 0; again < 2; again++) {
            pto_failure failure;
            memcpy(p.memory, start, BYTES);
            CHECK(pto_graph_execute(g, NULL, 0, again, &failure) == PTO_OK);
            if (memcmp(p.memory, serial, BYTES) != 0) {
                fprintf(stderr, "program %ld, seed %llu: another result than serially\n", k, (unsigned long long)seed);
                exit(1);
            }
        }
        pto_graph_destroy(g);

        live_run run = {&p, late, 1 + (int64_t)below(&random, TASKS)};
        const int64_t args[1] = {(int64_t)(intptr_t)&run};
        memcpy(p.memory, start, BYTES);
        CHECK(pto_launch(rt, live_entry, args, NULL, NULL, 0, NULL) == PTO_OK);
        if (memcmp(p.memory, serial, BYTES) != 0) {
            fprintf(stderr, "program %ld, seed %llu: another result than serially, live\n", k, (unsigned long long)seed);
            exit(1);
        }
    }
    for (int i = 0; i < 4; i++) {
        pto_statistics s;
        pto_runtime_statistics(rts[i], &s);
        CHECK(s.buffers_live == 0);
        pto_runtime_release(rts[i]);
    }
    puts("tasks: ok");
    return 0;
}
