/* AVX2 with FMA (Haswell, Zen and later). A coefficient is high * 2^15 + low with 0 <= low;
 * `vpmaddwd` sums two products of a pixel and one half. */

#include "kernel.h"

#ifdef HAVE_X86

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { GROUP_BYTES = 64, LOW_BITS = 15, QUARTER = 4 };

static int is_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

static void split(int32_t weight, int16_t *low, int16_t *high) {
    *low = (int16_t)(weight & ((1 << LOW_BITS) - 1));
    *high = (int16_t)(weight >> LOW_BITS);
}

/* A step makes one pixel. A group is four taps: sixteen bytes are loaded to both halves of a
 * vector; taps 0 and 1 are summed in the low half and 2 and 3 in the high one. */
static int plan_columns(Columns *columns, const Filter *filter, int channels) {
    columns->filter = filter;
    columns->channels = channels;
    columns->step_bytes = 3;
    columns->steps = filter->out;
    columns->groups = filter->taps / 4;
    columns->reach = 16;
    if (columns_allocate(columns, GROUP_BYTES) < 0)
        return -1;
    for (int step = 0; step < columns->steps; step++)
        for (int group = 0; group < columns->groups; group++) {
            const int32_t *weights = filter->weights
                + (size_t)step * (size_t)filter->taps + (size_t)(4 * group);
            /* A group past the count has no weights: it reads the first taps again. */
            int from = 4 * group < filter->count[step] ? 4 * group : 0;
            int index = step * columns->groups + group;
            columns->offsets[index] = (filter->first[step] + from) * channels;
            int16_t low[16], high[16];
            for (int i = 0; i < 16; i++)
                split(weights[i / 8 * 2 + i % 2], &low[i], &high[i]);
            uint8_t *data = columns->data + (size_t)index * GROUP_BYTES;
            memcpy(data, low, 32);
            memcpy(data + 32, high, 32);
        }
    return 0;
}

INLINE __m256i tap_order(int channels) {
    uint8_t order[32];
    memset(order, 0x80, sizeof order);
    for (int i = 0; i < 16; i++) { /* sixteen-bit places: four channels of two taps, twice */
        int tap = i / 8 * 2 + i % 2, channel = i % 8 / 2;
        if (channel < 3)
            order[2 * i] = (uint8_t)(tap * channels + channel);
    }
    return _mm256_loadu_si256((const void *)order);
}

INLINE void horizontal_quarter(const Columns *columns, const uint8_t *const *rows,
                               uint8_t *const *out, int begin, int end, int shift) {
    const __m256i order = tap_order(columns->channels);
    const __m256i rounding = _mm256_setr_epi32(ROUNDING, ROUNDING, ROUNDING, 0, 0, 0, 0, 0);
    const int groups = columns->groups;
    const uint8_t *data = columns->data + (size_t)begin * (size_t)groups * GROUP_BYTES;
    const int32_t *offset = columns->offsets + (size_t)begin * (size_t)groups;
/* The accumulators are variables of their own: gcc keeps an array of them on the stack. */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3)
#define START(i) __m256i low##i = rounding, high##i = _mm256_setzero_si256();
#define ADD(i) \
    bytes = _mm256_broadcastsi128_si256(_mm_loadu_si128((const void *)(rows[i] + at))); \
    bytes = _mm256_shuffle_epi8(bytes, order); \
    low##i = _mm256_add_epi32(low##i, _mm256_madd_epi16(bytes, a)); \
    high##i = _mm256_add_epi32(high##i, _mm256_madd_epi16(bytes, b));
#define JOIN(i) low##i = _mm256_add_epi32(low##i, _mm256_slli_epi32(high##i, LOW_BITS));
    for (int step = begin; step < end; step++) {
        __m256i bytes;
        EACH_ROW(START)
        for (int group = 0; group < groups; group++, data += GROUP_BYTES, offset++) {
            const __m256i a = _mm256_load_si256((const void *)data);
            const __m256i b = _mm256_load_si256((const void *)(data + 32));
            const size_t at = (size_t)(*offset - shift);
            EACH_ROW(ADD)
        }
        EACH_ROW(JOIN)
        __m256i sums0 = _mm256_add_epi32(_mm256_permute2x128_si256(low0, low1, 0x20),
                                         _mm256_permute2x128_si256(low0, low1, 0x31));
        __m256i sums1 = _mm256_add_epi32(_mm256_permute2x128_si256(low2, low3, 0x20),
                                         _mm256_permute2x128_si256(low2, low3, 0x31));
        /* Rows 0 and 2 in the low half, 1 and 3 in the high one. Four bytes are stored of which
         * three count; the next step overwrites the other. */
        bytes = _mm256_packs_epi32(_mm256_srai_epi32(sums0, PRECISION_BITS),
                                   _mm256_srai_epi32(sums1, PRECISION_BITS));
        bytes = _mm256_packus_epi16(bytes, bytes);
        __m128i even = _mm256_castsi256_si128(bytes), odd = _mm256_extracti128_si256(bytes, 1);
        const size_t to = 3 * (size_t)step;
        _mm_storeu_si32(out[0] + to, even);
        _mm_storeu_si32(out[1] + to, odd);
        _mm_storeu_si32(out[2] + to, _mm_srli_epi64(even, 32));
        _mm_storeu_si32(out[3] + to, _mm_srli_epi64(odd, 32));
    }
#undef EACH_ROW
#undef START
#undef ADD
#undef JOIN
}

TARGET static void horizontal(const Columns *columns, const uint8_t *const *rows,
                              uint8_t *const *out, int begin, int end, int shift) {
    for (int row = 0; row < BATCH; row += QUARTER)
        horizontal_quarter(columns, rows + row, out + row, begin, end, shift);
}

/* 32 bytes of the output; `halves` holds two pairs of half coefficients per two rows. */
INLINE void vertical_block(const uint8_t *const *rows, const int32_t *halves, int taps, size_t at,
                           uint8_t *out) {
    const __m256i zero = _mm256_setzero_si256();
    const __m256i rounding = _mm256_set1_epi32(ROUNDING);
#define EACH_QUARTER(DO) DO(0) DO(1) DO(2) DO(3)
#define START(i) __m256i low##i = rounding, high##i = zero;
#define ADD(i, unpack, pairs) \
    words = unpack(pairs, zero); \
    low##i = _mm256_add_epi32(low##i, _mm256_madd_epi16(words, a)); \
    high##i = _mm256_add_epi32(high##i, _mm256_madd_epi16(words, b));
#define JOIN(i) \
    low##i = _mm256_add_epi32(low##i, _mm256_slli_epi32(high##i, LOW_BITS)); \
    low##i = _mm256_srai_epi32(low##i, PRECISION_BITS);
    EACH_QUARTER(START)
    for (int tap = 0; tap < taps; tap += 2, halves += 2) {
        const __m256i a = _mm256_set1_epi32(halves[0]), b = _mm256_set1_epi32(halves[1]);
        __m256i first = _mm256_loadu_si256((const void *)(rows[tap] + at));
        __m256i second = _mm256_loadu_si256((const void *)(rows[tap + 1] + at));
        __m256i c = _mm256_unpacklo_epi8(first, second), d = _mm256_unpackhi_epi8(first, second);
        __m256i words;
        ADD(0, _mm256_unpacklo_epi8, c)
        ADD(1, _mm256_unpackhi_epi8, c)
        ADD(2, _mm256_unpacklo_epi8, d)
        ADD(3, _mm256_unpackhi_epi8, d)
    }
    EACH_QUARTER(JOIN)
#undef EACH_QUARTER
#undef START
#undef ADD
#undef JOIN
    /* Packing puts back in order what unpacking took apart, half by half. */
    __m256i packed = _mm256_packus_epi16(_mm256_packs_epi32(low0, low1),
                                         _mm256_packs_epi32(low2, low3));
    _mm256_storeu_si256((void *)(out + at), packed);
}

TARGET static void vertical(const uint8_t *const *rows, const int32_t *weights, int taps, size_t n,
                            uint8_t *out, int32_t *scratch) {
    if (n < 32) {
        plain_vertical(rows, weights, taps, 0, n, out);
        return;
    }
    for (int tap = 0; tap < taps; tap += 2) {
        int16_t halves[4];
        split(weights[tap], &halves[0], &halves[2]);
        split(weights[tap + 1], &halves[1], &halves[3]);
        memcpy(scratch + tap, halves, 8);
    }
    size_t at = 0;
    for (; at + 32 <= n; at += 32)
        vertical_block(rows, scratch, taps, at, out);
    if (at < n) /* once more over bytes that are done: the same result */
        vertical_block(rows, scratch, taps, n - 32, out);
}

/* Patches of up to sixteen pixels a side: each channel of a row of one is put together from the
 * three or four vectors that hold the row. Sixteen bytes are stored where `side` count, in
 * ascending order, so the surplus is overwritten. */
TARGET static void cut(const uint8_t *const *rows, int channels, int side, int begin, int end,
                       uint8_t *out) {
    if (side > 16 || side < 8) {
        plain_cut(rows, channels, side, begin, end, out);
        return;
    }
    uint8_t order[3][4][16];
    memset(order, 0x80, sizeof order);
    for (int channel = 0; channel < 3; channel++)
        for (int x = 0; x < side; x++) {
            int from = x * channels + channel;
            order[channel][from / 16][x] = (uint8_t)(from % 16);
        }
    const size_t plane = (size_t)side * (size_t)side;
    const int parts = channels;
    for (int column = begin; column < end; column++) {
        const size_t at = (size_t)column * (size_t)(side * channels);
        for (int channel = 0; channel < 3; channel++, out += plane) {
            __m128i masks[4];
            for (int i = 0; i < 4; i++)
                masks[i] = _mm_loadu_si128((const void *)order[channel][i]);
            for (int y = 0; y < side; y++) {
                const uint8_t *pixels = rows[y] + at;
                __m128i line = _mm_setzero_si128();
                for (int i = 0; i < parts; i++) {
                    __m128i part = _mm_loadu_si128((const void *)(pixels + 16 * i));
                    line = _mm_or_si128(line, _mm_shuffle_epi8(part, masks[i]));
                }
                _mm_storeu_si128((void *)(out + (size_t)(y * side)), line);
            }
        }
    }
}

/* v / divisor - offset, the quotient corrected to the rounded one by its own remainder. */
INLINE __m256 normalised(const uint8_t *bytes, __m256 divisor, __m256 inverse, __m256 offset) {
    __m256 value = _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)bytes)));
    __m256 quotient = _mm256_mul_ps(value, inverse);
    __m256 remainder = _mm256_fnmadd_ps(quotient, divisor, value);
    return _mm256_sub_ps(_mm256_fmadd_ps(remainder, inverse, quotient), offset);
}

/* To the nearest bfloat16, ties to even, in the low half of 32 bits. */
INLINE __m256i shortened(__m256 values) {
    __m256i bits = _mm256_castps_si256(values);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7FFF)), odd);
    return _mm256_srli_epi32(bits, 16);
}

INLINE void put(uint8_t *out, __m256i values, int is_streamed) {
    if (is_streamed)
        _mm256_stream_si256((void *)out, values);
    else
        _mm256_storeu_si256((void *)out, values);
}

TARGET static void convert(const Sink *sink, const uint8_t *bytes, size_t n) {
    const __m256 divisor = _mm256_set1_ps(sink->divisor), offset = _mm256_set1_ps(sink->offset);
    const __m256 inverse = _mm256_set1_ps(1.0f / sink->divisor);
    const int is_streamed = sink->is_streamed;
    uint8_t *out = sink->out;
    if (sink->dtype == DTYPE_UINT8)
        for (size_t i = 0; i < n; i += 32, out += 32)
            put(out, _mm256_loadu_si256((const void *)(bytes + i)), is_streamed);
    else if (sink->dtype == DTYPE_FLOAT32)
        for (size_t i = 0; i < n; i += 8, out += 32)
            put(out, _mm256_castps_si256(normalised(bytes + i, divisor, inverse, offset)),
                is_streamed);
    else
        for (size_t i = 0; i < n; i += 16, out += 32) {
            __m256i low = shortened(normalised(bytes + i, divisor, inverse, offset));
            __m256i high = shortened(normalised(bytes + i + 8, divisor, inverse, offset));
            __m256i both = _mm256_packus_epi32(low, high); /* quarters 0 2 1 3 */
            put(out, _mm256_permute4x64_epi64(both, 0xD8), is_streamed);
        }
}

const Level level_avx2 = {
    .name = "avx2",
    .is_supported = is_supported,
    .plan_columns = plan_columns,
    .horizontal = horizontal,
    .vertical = vertical,
    .cut = cut,
    .convert = convert,
};

#else
typedef int not_this_machine;
#endif
