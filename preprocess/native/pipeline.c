/* One image through the passes, a few rows at a time: source rows -> horizontal pass -> a ring of
 * rows -> vertical pass -> one row of patches -> values. No intermediate image exists; what is
 * between two steps stays in the caches. */

#include "kernel.h"

#include <stdlib.h>
#include <string.h>
#if HAVE_X86
#include <immintrin.h>
#endif

enum { STAGE_BYTES = 9600 };

const Level *const kernel_levels[] = {
#ifdef HAVE_X86
    &level_avx512,
    &level_avx2,
#endif
#ifdef HAVE_NEON
    &level_neon,
#endif
    &level_plain,
};
const int kernel_level_count = sizeof kernel_levels / sizeof *kernel_levels;

typedef struct {
    uint8_t *bytes;
    size_t stride;
} Rows;

typedef struct {
    const Job *job;
    int resizes_x, resizes_y, channels; /* channels of a finished row */
    Filter across, down;
    Columns columns;
    int main_steps;                /* steps that read inside a row; the others read its tail */
    size_t tail_from, tail_bytes;
    Rows tails, middle, ring, strip;
    int ring_rows, ring_filled;    /* source rows [.., ring_filled) went through the ring */
    uint8_t *sunk, *zeros;         /* where surplus rows of a batch go; a row of padding */
    const uint8_t **taps, **lines; /* row pointers of a vertical pass, of a strip */
    int32_t *scratch;
    uint8_t *stage;                /* bytes in patch order that wait for conversion */
    size_t stage_filled, chunk;    /* chunk: patches that are cut at once */
    size_t emitted;                /* values written so far */
    Sink sink;
} Run;

static size_t rounded(size_t bytes) { return (bytes + 63) / 64 * 64; }

static int allocate(Rows *rows, size_t count, size_t bytes) {
    rows->stride = rounded(bytes + SLACK);
    rows->bytes = aligned_alloc(64, count * rows->stride);
    return rows->bytes ? 0 : -1;
}

static const uint8_t *source_row(const Run *run, int y) {
    return run->job->source + (size_t)y * run->job->stride;
}

/* -- passes ------------------------------------------------------------------------------- */

static void horizontal(Run *run, const uint8_t **rows, uint8_t **out, int count) {
    const Columns *columns = &run->columns;
    const uint8_t *tails[BATCH];
    for (int i = count; i < BATCH; i++) {
        rows[i] = rows[count - 1];
        out[i] = run->sunk;
    }
    run->job->level->horizontal(columns, rows, out, 0, run->main_steps, 0);
    if (run->main_steps == columns->steps)
        return;
    for (int i = 0; i < BATCH; i++) {
        uint8_t *tail = run->tails.bytes + (size_t)i * run->tails.stride;
        memcpy(tail, rows[i] + run->tail_from, run->tail_bytes);
        tails[i] = tail;
    }
    run->job->level->horizontal(columns, tails, out, run->main_steps, columns->steps,
                                      (int)run->tail_from);
}

static void vertical(Run *run, int y, size_t bytes, uint8_t *out) {
    const Filter *down = &run->down;
    const int32_t *weights = down->weights + (size_t)y * (size_t)down->taps;
    for (int i = 0; i < down->taps; i++) {
        /* Beyond the count the weights are zero; any row will do. */
        int row = down->first[y] + (i < down->count[y] ? i : 0);
        run->taps[i] = run->ring.bytes
            ? run->ring.bytes + (size_t)(row % run->ring_rows) * run->ring.stride
            : source_row(run, row);
    }
    int taps = (down->count[y] + 3) / 4 * 4;
    run->job->level->vertical(run->taps, weights, taps, bytes, out, run->scratch);
}

static void fill_ring(Run *run, int until) {
    const uint8_t *rows[BATCH];
    uint8_t *out[BATCH];
    while (run->ring_filled < until) {
        int left = run->job->height - run->ring_filled;
        int count = left < BATCH ? left : BATCH;
        for (int i = 0; i < count; i++, run->ring_filled++) {
            rows[i] = source_row(run, run->ring_filled);
            out[i] = run->ring.bytes
                + (size_t)(run->ring_filled % run->ring_rows) * run->ring.stride;
        }
        horizontal(run, rows, out, count);
    }
}

/* Makes resized rows [y, y + count), at most BATCH, in `out`. */
static void make_rows(Run *run, int y, int count, uint8_t **out) {
    const Job *job = run->job;
    const uint8_t *rows[BATCH];
    size_t finished = (size_t)job->new_width * (size_t)run->channels;
    if (run->ring.bytes) {
        for (int i = 0; i < count; i++) {
            fill_ring(run, run->down.first[y + i] + run->down.count[y + i]);
            vertical(run, y + i, finished, out[i]);
        }
        return;
    }
    if (run->resizes_y && !run->resizes_x) {
        for (int i = 0; i < count; i++)
            vertical(run, y + i, finished, out[i]);
        return;
    }
    for (int i = 0; i < count; i++) {
        uint8_t *middle = run->middle.bytes + (size_t)i * run->middle.stride;
        if (run->resizes_y)
            vertical(run, y + i, (size_t)job->width * (size_t)job->channels, middle);
        rows[i] = run->resizes_y ? middle : source_row(run, y + i);
    }
    horizontal(run, rows, out, count);
}

/* -- output ------------------------------------------------------------------------------- */

static size_t value_bytes(int dtype) {
    return dtype == DTYPE_FLOAT32 ? 4 : dtype == DTYPE_BFLOAT16 ? 2 : 1;
}

/* By the table, with the channel of every value. */
static void look_up(const Run *run, const uint8_t *bytes, size_t n, uint8_t *out) {
    const Sink *sink = &run->sink;
    size_t size = value_bytes(sink->dtype), plane = (size_t)sink->plane;
    if (size == 1) {
        memcpy(out, bytes, n);
        return;
    }
    for (size_t at = 0; at < n;) {
        size_t index = run->emitted + at, left = plane - index % plane;
        size_t end = n - at < left ? n : at + left;
        const uint8_t *table = sink->table + index / plane % 3 * 256 * size;
        if (size == 4)
            for (; at < end; at++)
                memcpy(out + 4 * at, table + 4 * (size_t)bytes[at], 4);
        else
            for (; at < end; at++)
                memcpy(out + 2 * at, table + 2 * (size_t)bytes[at], 2);
    }
}

static void emit(Run *run, const uint8_t *bytes, size_t n, int by_arithmetic) {
    if (by_arithmetic)
        run->job->level->convert(&run->sink, bytes, n);
    else
        look_up(run, bytes, n, run->sink.out);
    run->sink.out += n * value_bytes(run->sink.dtype);
    run->emitted += n;
}

/* Converts what waits in whole vectors; everything when it is the end. */
static void flush(Run *run, int is_end) {
    size_t at = 0, n = run->stage_filled;
    size_t size = value_bytes(run->sink.dtype);
    if (run->sink.is_arithmetic) {
        size_t odd = (uintptr_t)run->sink.out % 64;
        if (run->sink.is_streamed && odd) {
            at = (64 - odd) / size < n ? (64 - odd) / size : n;
            emit(run, run->stage, at, 0);
        }
        size_t whole = (n - at) / 64 * 64;
        if (whole)
            emit(run, run->stage + at, whole, 1);
        at += whole;
    }
    if (is_end || !run->sink.is_arithmetic) {
        emit(run, run->stage + at, n - at, 0);
        at = n;
    }
    memmove(run->stage, run->stage + at, n - at);
    run->stage_filled = n - at;
}

static void cut(Run *run, int begin, int end) {
    const Job *job = run->job;
    size_t patch = 3 * (size_t)job->side * (size_t)job->side;
    for (int column = begin; column < end;) {
        int until = end - column < (int)run->chunk ? end : column + (int)run->chunk;
        job->level->cut(run->lines, run->channels, job->side, column, until,
                        run->stage + run->stage_filled);
        run->stage_filled += (size_t)(until - column) * patch;
        column = until;
        flush(run, 0);
    }
}

static void strip_lines(const Run *run, uint8_t **lines, int from, int count) {
    for (int i = 0; i < count; i++)
        lines[i] = run->strip.bytes + (size_t)(from + i) * run->strip.stride;
}

/* Rows of the source itself, for as many columns as can be read without leaving a row; the rest
 * through padded copies of the rows' ends. */
static void unresized_strip(Run *run, int y, int count) {
    const Job *job = run->job;
    size_t row = (size_t)job->width * (size_t)job->channels;
    size_t block = (size_t)job->side * (size_t)job->channels;
    int direct = row > SLACK ? (int)((row - SLACK) / block) : 0;
    size_t copied = (size_t)direct * block, padded = (size_t)job->columns * block;
    for (int i = 0; i < count; i++)
        run->lines[i] = source_row(run, y + i);
    cut(run, 0, direct);
    for (int i = 0; i < count; i++) {
        uint8_t *line;
        strip_lines(run, &line, i, 1);
        memcpy(line + copied, run->lines[i] + copied, row - copied);
        memset(line + row, 0, padded - row);
        run->lines[i] = line;
    }
    cut(run, direct, job->columns);
}

static void resized_strip(Run *run, int y, int count) {
    const Job *job = run->job;
    size_t row = (size_t)job->new_width * (size_t)run->channels;
    size_t padded = (size_t)(job->columns * job->side) * (size_t)run->channels;
    uint8_t *out[BATCH];
    for (int from = 0; from < count; from += BATCH) {
        int n = count - from < BATCH ? count - from : BATCH;
        strip_lines(run, out, from, n);
        make_rows(run, y + from, n, out);
        for (int i = 0; i < n; i++) {
            uint8_t *line = run->strip.bytes + (size_t)(from + i) * run->strip.stride;
            memset(line + row, 0, padded - row);
            run->lines[from + i] = line;
        }
    }
    cut(run, 0, job->columns);
}

static void write_patches(Run *run) {
    const Job *job = run->job;
    for (int strip = 0; strip < job->rows; strip++) {
        int y = strip * job->side, left = job->new_height - y;
        int count = left < 0 ? 0 : left < job->side ? left : job->side;
        for (int i = count; i < job->side; i++)
            run->lines[i] = run->zeros;
        if (run->resizes_x || run->resizes_y)
            resized_strip(run, y, count);
        else
            unresized_strip(run, y, count);
    }
    flush(run, 1);
}

static void write_rows(Run *run) {
    const Job *job = run->job;
    uint8_t *to = job->sink.out, *out[BATCH];
    for (int y = 0; y < job->new_height; y += BATCH) {
        int n = job->new_height - y < BATCH ? job->new_height - y : BATCH;
        strip_lines(run, out, 0, n);
        if (run->resizes_x || run->resizes_y)
            make_rows(run, y, n, out);
        for (int i = 0; i < n; i++) {
            const uint8_t *row = run->strip.bytes + (size_t)i * run->strip.stride;
            if (!run->resizes_x && !run->resizes_y)
                row = source_row(run, y + i);
            for (int x = 0; run->channels == 4 && x < job->new_width; x++)
                memcpy(to + 3 * (size_t)x, row + 4 * (size_t)x, 3);
            if (run->channels == 3)
                memcpy(to, row, 3 * (size_t)job->new_width);
            to += 3 * (size_t)job->new_width;
        }
    }
}

/* -- one job ------------------------------------------------------------------------------ */

static int plan_horizontal(Run *run) {
    const Job *job = run->job;
    if (filter_make(&run->across, job->width, job->new_width) < 0)
        return -1;
    if (job->level->plan_columns(&run->columns, &run->across, job->channels) < 0)
        return -1;
    /* A step that would read past the end of a row reads a copy of the row's tail instead. */
    const Columns *columns = &run->columns;
    int row = job->width * job->channels, step = 0, groups = columns->groups;
    for (int i = 0; i < columns->steps * groups && columns->offsets[i] + columns->reach <= row; i++)
        step = (i + 1) / groups;
    run->main_steps = columns->reach ? step : columns->steps;
    int from = row;
    for (int i = run->main_steps * groups; i < columns->steps * groups; i++)
        from = columns->offsets[i] < from ? columns->offsets[i] : from;
    run->tail_from = (size_t)from;
    run->tail_bytes = (size_t)(row - from);
    run->sunk = aligned_alloc(64, rounded(3 * (size_t)job->new_width + SLACK));
    return run->sunk ? allocate(&run->tails, BATCH, run->tail_bytes) : -1;
}

static int plan_vertical(Run *run) {
    const Job *job = run->job;
    if (filter_make(&run->down, job->height, job->new_height) < 0)
        return -1;
    size_t taps = (size_t)run->down.taps;
    run->taps = malloc(taps * sizeof *run->taps);
    run->scratch = malloc(4 * taps * sizeof *run->scratch);
    if (!run->taps || !run->scratch)
        return -1;
    if (!run->resizes_x)
        return 0;
    if (job->vertical_first)
        return allocate(&run->middle, BATCH, (size_t)job->width * (size_t)job->channels);
    int most = (int)taps + BATCH;
    run->ring_rows = most < job->height ? most : job->height;
    return allocate(&run->ring, (size_t)run->ring_rows, 3 * (size_t)job->new_width);
}

static int check_arithmetic(Sink *sink, const Level *level) {
    if (sink->dtype == DTYPE_UINT8)
        return 1;
    size_t size = value_bytes(sink->dtype);
    if (memcmp(sink->table, sink->table + 256 * size, 512 * size) != 0)
        return 0;
    uint8_t every[256], values[1024];
    for (int i = 0; i < 256; i++)
        every[i] = (uint8_t)i;
    Sink probe = *sink;
    probe.is_streamed = 0;
    probe.out = values;
    level->convert(&probe, every, sizeof every);
    return memcmp(values, sink->table, 256 * size) == 0;
}

static int plan_output(Run *run) {
    const Job *job = run->job;
    size_t side = job->side ? (size_t)job->side : BATCH;
    size_t padded = job->side ? (size_t)(job->columns * job->side) : (size_t)job->new_width;
    size_t row = padded * 4, patch = 3 * side * side;
    run->chunk = patch < STAGE_BYTES ? STAGE_BYTES / patch : 1;
    run->stage = aligned_alloc(64, rounded(64 + run->chunk * patch + SLACK));
    run->zeros = calloc(1, row + SLACK);
    run->lines = malloc(side * sizeof *run->lines);
    if (!run->stage || !run->zeros || !run->lines || allocate(&run->strip, side, row) < 0)
        return -1;
    run->sink = job->sink;
    size_t size = value_bytes(run->sink.dtype);
    size_t total = (size_t)job->rows * (size_t)job->columns * patch * size;
    run->sink.is_arithmetic = job->side && check_arithmetic(&run->sink, job->level);
    run->sink.is_streamed = total >= job->stream_from && (uintptr_t)job->sink.out % size == 0;
    return 0;
}

int kernel_run(Job *job) {
    Run run = {.job = job};
    run.resizes_x = job->width != job->new_width;
    run.resizes_y = job->height != job->new_height;
    run.channels = run.resizes_x ? 3 : job->channels;
    int result = plan_output(&run);
    if (result == 0 && run.resizes_x)
        result = plan_horizontal(&run);
    if (result == 0 && run.resizes_y)
        result = plan_vertical(&run);
    if (result == 0 && job->side)
        write_patches(&run);
    else if (result == 0)
        write_rows(&run);
#if HAVE_X86
    _mm_sfence(); /* streamed values are seen by whoever is told about them */
#endif
    filter_free(&run.across);
    filter_free(&run.down);
    columns_free(&run.columns);
    free(run.tails.bytes);
    free(run.middle.bytes);
    free(run.ring.bytes);
    free(run.strip.bytes);
    free(run.sunk);
    free(run.zeros);
    free(run.taps);
    free(run.lines);
    free(run.scratch);
    free(run.stage);
    return result;
}
