/* What the parts of the kernel share: one image's job, the filter tables, and what a level of
 * CPU instructions has to offer. Licence and origin of the arithmetic: module.c.
 *
 * Every level gives the same bytes. All sums are exact in 32-bit arithmetic (modulo 2^32, and
 * the true sum fits), so a level may split and order them as its instructions like it.
 */
#ifndef KIMI_SERVE_KERNEL_H
#define KIMI_SERVE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)
#define HAVE_X86 1
#elif defined(__aarch64__) && defined(__ARM_NEON) && !defined(__AARCH64EB__)
#define HAVE_NEON 1
#endif

#define PRECISION_BITS 22 /* fractional bits of a filter coefficient */
#define ROUNDING (1 << (PRECISION_BITS - 1))

#define BATCH 8       /* rows that a horizontal pass takes at once, so that tables are read once */
#define SLACK 64      /* bytes that a level may read or write past a row of our own memory */
#define MAX_SIDE (1 << 20) /* of images, before and after */
#define MAX_PATCH 256 /* pixels along one side of a patch */

enum { DTYPE_FLOAT32, DTYPE_BFLOAT16, DTYPE_UINT8, DTYPE_COUNT };

/* One pass of the antialiased bicubic filter: output i is made of `count[i]` inputs from
 * `first[i]` on, with the weights `weights[i * taps ...]`, padded with zeros to `taps`, which
 * is a multiple of four. */
typedef struct {
    int in, out, taps;
    int32_t *first, *count, *weights;
} Filter;

/* A filter laid out for the horizontal pass of one level. A step makes `step_bytes` bytes of the
 * output; its loads begin at `offsets[step * groups + group]` and read `reach` bytes. */
typedef struct {
    const Filter *filter;
    int channels, step_bytes, steps, groups, reach;
    int32_t *offsets;
    uint8_t *data;
} Columns;

/* Where the values go: bytes of consecutive patches in, values of `dtype` out. */
typedef struct {
    int dtype, plane;      /* plane: bytes of one channel of one patch */
    const uint8_t *table;  /* [3][256] values; not used for uint8 */
    float divisor, offset; /* v / divisor - offset equals a table that the channels share ... */
    int is_arithmetic;     /* ... when this was checked for every byte */
    int is_streamed;       /* non-temporal stores: the output would only push out the caches */
    uint8_t *out;
} Sink;

typedef struct {
    const char *name;
    int (*is_supported)(void);
    /* Lays out `filter`; -1 without memory. */
    int (*plan_columns)(Columns *columns, const Filter *filter, int channels);
    /* Makes the steps [begin, end) of BATCH rows as RGB; `shift` is subtracted from offsets. */
    void (*horizontal)(const Columns *columns, const uint8_t *const *rows, uint8_t *const *out,
                       int begin, int end, int shift);
    /* Makes one row of n bytes from `taps` rows (a multiple of four); `scratch` has 4 * taps. */
    void (*vertical)(const uint8_t *const *rows, const int32_t *weights, int taps, size_t n,
                     uint8_t *out, int32_t *scratch);
    /* Cuts columns [begin, end) of patches out of `side` rows, as [column][3][side][side]; may
     * read and write SLACK bytes too far. */
    void (*cut)(const uint8_t *const *rows, int channels, int side, int begin, int end,
                uint8_t *out);
    /* Turns n bytes (a multiple of 64) into values at sink->out, by the arithmetic. */
    void (*convert)(const Sink *sink, const uint8_t *bytes, size_t n);
} Level;

extern const Level level_plain;
#ifdef HAVE_X86
extern const Level level_avx2, level_avx512;
#endif
#ifdef HAVE_NEON
extern const Level level_neon;
#endif

/* Best first; `plain` is the last and always there. */
extern const Level *const kernel_levels[];
extern const int kernel_level_count;

typedef struct {
    const Level *level;
    const uint8_t *source;
    size_t stride;
    int width, height, channels, new_width, new_height, vertical_first;
    /* Patches, or the resized RGB rows as they are when side is 0. */
    int side, columns, rows;
    size_t stream_from; /* bytes of output from which on stores are non-temporal */
    Sink sink;
} Job;

int filter_make(Filter *filter, int in, int out);
void filter_free(Filter *filter);
int columns_allocate(Columns *columns, size_t group_bytes);
void columns_free(Columns *columns);

/* The pieces of the plain level that others finish their remainders with. */
void plain_vertical(const uint8_t *const *rows, const int32_t *weights, int taps, size_t begin,
                    size_t end, uint8_t *out);
void plain_cut(const uint8_t *const *rows, int channels, int side, int begin, int end,
               uint8_t *out);
void plain_convert(const Sink *sink, const uint8_t *bytes, size_t n);

/* 0, or -1 without memory. The caller has checked every size. */
int kernel_run(Job *job);

static inline uint8_t clip_sum(int32_t sum) {
    int32_t value = sum >> PRECISION_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Undoes the filters of `count` PNG rows of `channels` bytes a pixel, 3 or 4. Before every row stands
 * its filter; before the first of them one more row, the unfiltered one above. Writes `count` rows
 * of RGB. Returns whether every alpha is 255, -1 at an unknown filter. */
int png_unfilter(uint8_t *rows, int width, int channels, int count, uint8_t *out);

#endif
