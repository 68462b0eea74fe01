/* Random images through every level of the kernel that this machine has, compared with `plain`.
 *
 *     make sanitize            builds this with address and undefined-behaviour sanitizers
 *     kernel_fuzz SEED ROUNDS
 *
 * Source, table and output lie in heap blocks of exactly their size, so that a sanitizer sees a
 * byte too many. No Python: this also runs under qemu for other machines. */

#include "../../preprocess/native/kernel.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t state, digest = 14695981039346656037u;

static uint32_t random_below(uint32_t bound) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((state >> 33) % bound);
}

/* Small sides are as likely as large ones. */
static int random_side(void) {
    int side = 1 + (int)random_below(1u << (1 + random_below(9)));
    return random_below(60) == 0 ? side + 3000 : side;
}

static void fill(uint8_t *bytes, size_t n) {
    int is_extreme = random_below(3) == 0;
    for (size_t i = 0; i < n; i++) {
        bytes[i] = (uint8_t)random_below(256);
        if (is_extreme)
            bytes[i] = bytes[i] < 128 ? 0 : 255;
    }
}

/* v / 127.5 - 1, or any table. */
static void make_table(uint8_t *table, int dtype) {
    int is_odd = random_below(4) == 0;
    for (int i = 0; i < 768; i++) {
        float value = (float)(i % 256) / 127.5f - 1.0f + (is_odd ? (float)(i / 256) : 0.0f);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        uint16_t half = (uint16_t)((bits + 0x7FFF + (bits >> 16 & 1)) >> 16);
        if (dtype == DTYPE_FLOAT32)
            memcpy(table + 4 * i, &bits, 4);
        else
            memcpy(table + 2 * i, &half, 2);
    }
}

static size_t describe(Job *job) {
    static const size_t sizes[] = {4, 2, 1};
    static const int sides[] = {14, 14, 14, 16, 8, 7, 28, 1};
    memset(job, 0, sizeof *job);
    job->width = random_side();
    job->height = random_side();
    if (job->width > 1000 && job->height > 1000)
        job->height = 10;
    job->channels = 3 + (int)random_below(2);
    job->new_width = random_below(3) ? 1 + (int)random_below((uint32_t)job->width) : job->width;
    job->new_height = random_below(3) ? 1 + (int)random_below((uint32_t)job->height) : job->height;
    if (random_below(20) == 0)
        job->new_width = 2 * job->width + 1;
    job->vertical_first = (int)random_below(2);
    job->stride = (size_t)(job->width * job->channels) + (random_below(3) ? 0 : random_below(70));
    job->sink.dtype = (int)random_below(3);
    job->sink.divisor = 127.5f;
    job->sink.offset = 1.0f;
    if (random_below(4) == 0) {
        job->sink.dtype = DTYPE_UINT8;
        return 3 * (size_t)job->new_width * (size_t)job->new_height;
    }
    job->stream_from = random_below(2) ? 0 : 4 << 20;
    job->side = sides[random_below(8)];
    job->columns = (job->new_width + job->side - 1) / job->side + (int)random_below(2);
    job->rows = (job->new_height + job->side - 1) / job->side + (int)random_below(2);
    job->sink.plane = job->side * job->side;
    return (size_t)(job->columns * job->rows * job->sink.plane) * 3 * sizes[job->sink.dtype];
}

static int run_once(unsigned round) {
    Job job;
    size_t needed = describe(&job);
    size_t length = (size_t)(job.height - 1) * job.stride + (size_t)(job.width * job.channels);
    uint8_t *source = malloc(length), *expected = malloc(needed);
    uint8_t *table = malloc(768 * (job.sink.dtype == DTYPE_FLOAT32 ? 4 : 2));
    size_t shift = random_below(2) ? 0 : random_below(64);
    uint8_t *block = malloc(needed + shift), *out = block + shift;
    int faults = 0;
    fill(source, length);
    make_table(table, job.sink.dtype);
    job.source = source;
    job.sink.table = table;
    job.level = kernel_levels[kernel_level_count - 1];
    job.sink.out = expected;
    memset(expected, 0xEE, needed);
    faults += kernel_run(&job) != 0;
    for (size_t i = 0; i < needed; i++)
        digest = (digest ^ expected[i]) * 1099511628211u;
    for (int i = 0; i < kernel_level_count - 1; i++) {
        if (!kernel_levels[i]->is_supported())
            continue;
        job.level = kernel_levels[i];
        job.sink.out = out;
        memset(out, 0xDD, needed);
        faults += kernel_run(&job) != 0 || memcmp(out, expected, needed) != 0;
        if (faults)
            printf("round %u: %s differs: %dx%d (%d) -> %dx%d, side %d, dtype %d\n", round,
                   job.level->name, job.width, job.height, job.channels, job.new_width,
                   job.new_height, job.side, job.sink.dtype);
    }
    free(source);
    free(expected);
    free(table);
    free(block);
    return faults;
}

/* The predictor of the PNG specification, byte by byte: what `filter` adds. */
static int predicted(int filter, int left, int above, int corner) {
    int estimate = left + above - corner, to_left = abs(estimate - left);
    int to_above = abs(estimate - above), to_corner = abs(estimate - corner);
    switch (filter) {
    case 1:
        return left;
    case 2:
        return above;
    case 3:
        return (left + above) / 2;
    case 4:
        if (to_left <= to_above && to_left <= to_corner)
            return left;
        return to_above <= to_corner ? above : corner;
    default:
        return 0;
    }
}

/* PNG rows against the specification; one filter in sixty is none. */
static int unfilter_once(unsigned round) {
    int width = 1 + (int)random_below(200), channels = 3 + (int)random_below(2);
    int count = 1 + (int)random_below(20), is_opaque = 1, is_known = 1;
    size_t row = (size_t)(width * channels), stride = 1 + row;
    size_t length = (size_t)(count + 1) * stride, needed = 3 * (size_t)(width * count);
    uint8_t *rows = malloc(length), *expected = malloc(length), *out = malloc(needed);
    fill(rows, length);
    for (int y = 1; y <= count; y++) {
        rows[(size_t)y * stride] = (uint8_t)(random_below(60) ? random_below(5) : random_below(256));
        for (size_t i = 0; channels == 4 && round % 2 && i < (size_t)width; i++) {
            uint8_t *alpha = rows + (size_t)y * stride + 4 + 4 * i;
            *alpha = y == 1 && i == 0 ? 255 : 0; /* Sub and Up keep the first */
        }
    }
    memcpy(expected, rows, length);
    for (size_t y = 1; y <= (size_t)count && is_known; y++) {
        uint8_t *line = expected + y * stride + 1, *above = line - stride;
        int filter = line[-1];
        is_known = filter <= 4;
        for (size_t i = 0; i < row && is_known; i++) {
            size_t back = (size_t)channels;
            int left = i < back ? 0 : line[i - back], corner = i < back ? 0 : above[i - back];
            line[i] = (uint8_t)(line[i] + predicted(filter, left, above[i], corner));
            is_opaque &= channels == 3 || i % 4 != 3 || line[i] == 255;
        }
    }
    int result = png_unfilter(rows, width, channels, count, out);
    int faults = is_known ? result != is_opaque : result != -1;
    for (size_t i = 0; i < needed && is_known; i++) {
        size_t pixel = i / 3 % (size_t)width, y = i / 3 / (size_t)width;
        faults += out[i] != expected[(y + 1) * stride + 1 + pixel * (size_t)channels + i % 3];
    }
    if (faults)
        printf("round %u: PNG rows differ: %dx%d, %d channels\n", round, width, count, channels);
    free(rows);
    free(expected);
    free(out);
    return faults;
}

int main(int count, char **words) {
    unsigned rounds = count > 2 ? (unsigned)strtoul(words[2], NULL, 10) : 1000;
    int faults = 0;
    state = count > 1 ? strtoull(words[1], NULL, 10) : 1;
    for (unsigned round = 0; round < rounds && faults < 10; round++)
        faults += run_once(round) + unfilter_once(round);
    for (int i = 0; i < kernel_level_count; i++)
        printf("%s %s\n", kernel_levels[i]->name,
               kernel_levels[i]->is_supported() ? "ran" : "is not supported here");
    /* The same on every machine: floating point is the same everywhere too. */
    printf("%u rounds, %d faults, digest %016llx\n", rounds, faults, (unsigned long long)digest);
    return faults != 0;
}
