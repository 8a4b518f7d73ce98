/* SPDX-License-Identifier: MIT */
/* The dump of a recorded graph. */
#include "tasks.h"

#include <stdio.h>
#include <string.h>

/* Where a dump goes: memory with a capacity, or a file. */
typedef struct sink {
    char *text;
    int64_t capacity;
    FILE *file;
    int64_t length; /* of everything so far */
    bool failed;
} sink;

static void put(sink *s, const char *text) {
    size_t length = strlen(text);
    if (s->file != NULL) {
        s->failed |= fwrite(text, 1, length, s->file) != length;
    } else if (s->length < s->capacity) {
        size_t left = (size_t)(s->capacity - s->length);
        memcpy(s->text + s->length, text, length < left ? length : left);
    }
    s->length += (int64_t)length;
}

/* A name on one line: control characters are written as "?".  Returns its length in bytes. */
static size_t put_name(sink *s, const char *name) {
    size_t length = strlen(name);
    for (const char *at = name; *at != 0; at++) {
        const char one[2] = {(unsigned char)*at < 32 || *at == 127 ? '?' : *at, 0};
        put(s, one);
    }
    return length;
}

static void put_number(sink *s, const char *before, int64_t number, const char *after) {
    char text[24];
    (void)snprintf(text, sizeof text, "%lld", (long long)number);
    put(s, before);
    put(s, text);
    put(s, after);
}

#define NAME_COLUMNS 15u
#define RULE "================================================================================\n"

static int32_t dump(pto_graph *g, sink *s) {
    if (g->state != PTO_RECORDING) {
        return PTO_BAD_ARGUMENT;
    }
    int64_t widest = 0;
    for (uint32_t t = 1; t <= (uint64_t)g->num_tasks; t++) {
        int64_t fanout = pto__fanout(g, t);
        widest = fanout > widest ? fanout : widest;
    }
    int64_t *successors = pto__supply_block(&g->supply, ((size_t)widest + 1) * sizeof *successors);
    if (successors == NULL) {
        return PTO_NO_MEMORY;
    }
    put(s, RULE "PTO RUNTIME DUMP\n" RULE "\nSUMMARY\n");
    put_number(s, "  Total tasks scheduled:  ", g->num_tasks, "\n");
    put_number(s, "  Ready queue size:      ", g->num_roots, "\n\nTASK TABLE\n");
    for (uint32_t t = 1; t <= (uint64_t)g->num_tasks; t++) {
        const pto_task_record *record = pto__task(g, t);
        put_number(s, "  Task ", (int64_t)t - 1, ": ");
        for (size_t column = put_name(s, record->kind->name); column < NAME_COLUMNS; column++) {
            put(s, " ");
        }
        put(s, record->fanin == 0 ? " [READY]" : " [WAIT]");
        put_number(s, " fanin=", record->fanin, "");
        put_number(s, " buf=", record->kind->buffer_bytes, "B fanout=[");
        int64_t count = pto__successors(g, t, successors);
        for (int64_t i = 0; i < count; i++) {
            put_number(s, i == 0 ? "" : ",", successors[i], "");
        }
        put(s, "]\n");
    }
    put(s, "\nDEPENDENCY GRAPH\n");
    for (uint32_t t = 1; t <= (uint64_t)g->num_tasks; t++) {
        int64_t count = pto__successors(g, t, successors);
        for (int64_t i = 0; i < count; i++) {
            put_number(s, "  Task ", (int64_t)t - 1, "");
            put_number(s, " -> Task ", successors[i], "\n");
        }
    }
    pto__supply_release(&g->supply, successors);
    return s->failed ? PTO_NO_FILE : PTO_OK;
}

int64_t pto_graph_dump(pto_graph *g, char *text, int64_t capacity) {
    sink s = {text, capacity, NULL, 0, false};
    int32_t status = dump(g, &s);
    return status == PTO_OK ? s.length : -(int64_t)status;
}

int32_t pto_runtime_dump(pto_graph *g, const char *path) {
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return PTO_NO_FILE;
    }
    sink s = {NULL, 0, file, 0, false};
    int32_t status = dump(g, &s);
    return fclose(file) != 0 && status == PTO_OK ? PTO_NO_FILE : status;
}

int32_t pto_runtime_dump_stdout(pto_graph *g) {
    sink s = {NULL, 0, stdout, 0, false};
    int32_t status = dump(g, &s);
    return fflush(stdout) != 0 && status == PTO_OK ? PTO_NO_FILE : status;
}
