/* The level that every machine has: plain C, also the remainders of the other levels. */

#include "kernel.h"

#include <string.h>

static int always(void) { return 1; }

static int plan_columns(Columns *columns, const Filter *filter, int channels) {
    columns->filter = filter;
    columns->channels = channels;
    columns->step_bytes = 3;
    columns->steps = filter->out;
    columns->groups = 1;
    columns->reach = 0; /* a step reads what its filter covers, so nothing is a tail */
    if (columns_allocate(columns, 0) < 0)
        return -1;
    for (int i = 0; i < filter->out; i++)
        columns->offsets[i] = filter->first[i] * channels;
    return 0;
}

static void horizontal(const Columns *columns, const uint8_t *const *rows, uint8_t *const *out,
                       int begin, int end, int shift) {
    const Filter *filter = columns->filter;
    int channels = columns->channels;
    for (int row = 0; row < BATCH; row++)
        for (int i = begin; i < end; i++) {
            const uint8_t *pixel = rows[row] + (columns->offsets[i] - shift);
            const int32_t *weights = filter->weights + (size_t)i * (size_t)filter->taps;
            int32_t red = ROUNDING, green = ROUNDING, blue = ROUNDING;
            for (int j = 0; j < filter->count[i]; j++, pixel += channels) {
                red += weights[j] * pixel[0];
                green += weights[j] * pixel[1];
                blue += weights[j] * pixel[2];
            }
            uint8_t *to = out[row] + 3 * (size_t)i;
            to[0] = clip_sum(red);
            to[1] = clip_sum(green);
            to[2] = clip_sum(blue);
        }
}

void plain_vertical(const uint8_t *const *rows, const int32_t *weights, int taps, size_t begin,
                    size_t end, uint8_t *out) {
    enum { BLOCK = 256 };
    int32_t sums[BLOCK];
    for (size_t at = begin; at < end; at += BLOCK) {
        size_t n = end - at < BLOCK ? end - at : BLOCK;
        for (size_t i = 0; i < n; i++)
            sums[i] = ROUNDING;
        for (int tap = 0; tap < taps; tap++) {
            const uint8_t *row = rows[tap] + at;
            int32_t weight = weights[tap];
            for (size_t i = 0; i < n; i++)
                sums[i] += weight * row[i];
        }
        for (size_t i = 0; i < n; i++)
            out[at + i] = clip_sum(sums[i]);
    }
}

static void vertical(const uint8_t *const *rows, const int32_t *weights, int taps, size_t n,
                     uint8_t *out, int32_t *scratch) {
    (void)scratch;
    plain_vertical(rows, weights, taps, 0, n, out);
}

void plain_cut(const uint8_t *const *rows, int channels, int side, int begin, int end,
               uint8_t *out) {
    size_t plane = (size_t)side * (size_t)side;
    for (int column = begin; column < end; column++, out += 3 * plane)
        for (int y = 0; y < side; y++) {
            const uint8_t *pixel = rows[y] + (size_t)column * (size_t)(side * channels);
            uint8_t *to = out + (size_t)y * (size_t)side;
            for (int x = 0; x < side; x++, pixel += channels) {
                to[x] = pixel[0];
                to[plane + (size_t)x] = pixel[1];
                to[2 * plane + (size_t)x] = pixel[2];
            }
        }
}

/* Only ever asked for what needs no channel: shared tables and plain bytes. */
void plain_convert(const Sink *sink, const uint8_t *bytes, size_t n) {
    switch (sink->dtype) {
    case DTYPE_FLOAT32:
        for (size_t i = 0; i < n; i++)
            memcpy(sink->out + 4 * i, sink->table + 4 * (size_t)bytes[i], 4);
        break;
    case DTYPE_BFLOAT16:
        for (size_t i = 0; i < n; i++)
            memcpy(sink->out + 2 * i, sink->table + 2 * (size_t)bytes[i], 2);
        break;
    default:
        memcpy(sink->out, bytes, n);
    }
}

const Level level_plain = {
    .name = "plain",
    .is_supported = always,
    .plan_columns = plan_columns,
    .horizontal = horizontal,
    .vertical = vertical,
    .cut = plain_cut,
    .convert = plain_convert,
};
