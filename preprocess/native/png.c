/* Undoes the row filters of PNG (W3C recommendation, chapter 9) for 8-bit RGB and RGBA. */

#include "kernel.h"

#include <stdlib.h>
#include <string.h>

enum { FILTER_NONE, FILTER_SUB, FILTER_UP, FILTER_AVERAGE, FILTER_PAETH };

static inline uint8_t nearest(int left, int above, int corner) {
    int to_left = abs(above - corner), to_above = abs(left - corner);
    int to_corner = abs(left + above - 2 * corner);
    int other = to_above <= to_corner ? above : corner;
    return (uint8_t)(to_left <= to_above && to_left <= to_corner ? left : other);
}

/* `channels` is a constant where this is inlined, so that the loops over it are unrolled. */
static inline int unfilter_row(int filter, uint8_t *row, const uint8_t *above, size_t size,
                               size_t channels) {
    uint8_t left[4] = {0}, corner[4] = {0};
    switch (filter) {
    case FILTER_NONE:
        return 0;
    case FILTER_UP:
        for (size_t i = 0; i < size; i++)
            row[i] = (uint8_t)(row[i] + above[i]);
        return 0;
    case FILTER_SUB:
        for (size_t i = 0; i < size; i += channels)
            for (size_t k = 0; k < channels; k++)
                row[i + k] = left[k] = (uint8_t)(row[i + k] + left[k]);
        return 0;
    case FILTER_AVERAGE:
        for (size_t i = 0; i < size; i += channels)
            for (size_t k = 0; k < channels; k++)
                row[i + k] = left[k] = (uint8_t)(row[i + k] + (left[k] + above[i + k]) / 2);
        return 0;
    case FILTER_PAETH:
        for (size_t i = 0; i < size; i += channels)
            for (size_t k = 0; k < channels; k++) {
                uint8_t up = above[i + k];
                left[k] = (uint8_t)(row[i + k] + nearest(left[k], up, corner[k]));
                row[i + k] = left[k];
                corner[k] = up;
            }
        return 0;
    default:
        return -1;
    }
}

int png_unfilter(uint8_t *rows, int width, int channels, int count, uint8_t *out) {
    size_t size = (size_t)width * (size_t)channels;
    uint8_t opaque = 255;
    for (int y = 0; y < count; y++, out += 3 * (size_t)width) {
        const uint8_t *above = rows + (size_t)y * (1 + size) + 1;
        uint8_t *row = rows + ((size_t)y + 1) * (1 + size) + 1;
        int fault = channels == 3 ? unfilter_row(row[-1], row, above, size, 3)
                                  : unfilter_row(row[-1], row, above, size, 4);
        if (fault < 0)
            return -1;
        if (channels == 3) {
            memcpy(out, row, size);
            continue;
        }
        for (size_t x = 0; x < (size_t)width; x++) {
            out[3 * x] = row[4 * x];
            out[3 * x + 1] = row[4 * x + 1];
            out[3 * x + 2] = row[4 * x + 2];
            opaque &= row[4 * x + 3];
        }
    }
    return opaque == 255;
}
