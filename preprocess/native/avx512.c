/* AVX-512 with VNNI and VBMI (Ice Lake, Zen 4 and later). A coefficient is three signed bytes;
 * `vpdpbusd` sums four products of a pixel byte and a coefficient byte into 32 bits, so four taps
 * of sixteen bytes take three of them. */

#include "kernel.h"

#ifdef HAVE_X86

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512vnni")))
#define INLINE static inline __attribute__((always_inline)) TARGET

enum { GROUP_BYTES = 256 };

static int is_supported(void) {
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw")
        && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vbmi")
        && __builtin_cpu_supports("avx512vnni");
}

/* weight = low + 256 middle + 65536 high, each a signed byte. */
static void split(int32_t weight, int8_t parts[3]) {
    for (int i = 0; i < 3; i++) {
        parts[i] = (int8_t)(weight & 255);
        weight = (weight - parts[i]) >> 8;
    }
}

/* Lays out four taps of the bytes that one step makes: a permutation that brings the four source
 * bytes of every output byte together out of 64 loaded ones, and three vectors of coefficient
 * bytes. 0 when the source pixels lie too far apart for one load. */
static int lay_group(Columns *columns, int step, int group) {
    const Filter *filter = columns->filter;
    const int bytes = columns->step_bytes, index = step * columns->groups + group;
    const int begin = step * bytes;
    const int end = begin + bytes < 3 * filter->out ? begin + bytes : 3 * filter->out;
    int lowest = filter->in, highest = 0;
    for (int i = begin / 3; i <= (end - 1) / 3; i++) {
        int from = filter->first[i] + 4 * group, last = filter->first[i] + filter->count[i] - 1;
        int to = from + 3 < last ? from + 3 : last; /* beyond the last the weights are zero */
        from = from < last ? from : last;
        lowest = from < lowest ? from : lowest;
        highest = to > highest ? to : highest;
    }
    if ((highest - lowest + 1) * columns->channels > 64)
        return 0;
    columns->offsets[index] = lowest * columns->channels;
    uint8_t *data = columns->data + (size_t)index * GROUP_BYTES;
    for (int i = begin / 3; i <= (end - 1) / 3; i++) {
        const int32_t *weights = filter->weights + (size_t)i * (size_t)filter->taps + 4 * group;
        int last = filter->first[i] + filter->count[i] - 1;
        uint32_t words[4] = {0}; /* the permutation and three parts, one byte a tap */
        for (int tap = 0; tap < 4; tap++) {
            int at = filter->first[i] + 4 * group + tap;
            int8_t parts[3];
            split(weights[tap], parts);
            at = ((at < last ? at : last) - lowest) * columns->channels;
            words[0] |= (uint32_t)at << (8 * tap);
            for (int part = 0; part < 3; part++)
                words[part + 1] |= (uint32_t)(uint8_t)parts[part] << (8 * tap);
        }
        for (int channel = 0; channel < 3; channel++, words[0] += 0x01010101) {
            int lane = 3 * i + channel - begin;
            if (lane >= 0 && lane < end - begin)
                for (int word = 0; word < 4; word++)
                    memcpy(data + 64 * word + 4 * lane, &words[word], 4);
        }
    }
    return 1;
}

/* A step makes sixteen bytes of the output, or fewer where the scale is too steep for that; one
 * pixel always works. */
static int plan_columns(Columns *columns, const Filter *filter, int channels) {
    static const int step_bytes[] = {16, 12, 6, 3};
    columns->filter = filter;
    columns->channels = channels;
    columns->groups = filter->taps / 4;
    columns->reach = 64;
    for (int i = 0, fits = 0; !fits; i++) {
        columns_free(columns);
        columns->step_bytes = step_bytes[i];
        columns->steps = (3 * filter->out + step_bytes[i] - 1) / step_bytes[i];
        if (columns_allocate(columns, GROUP_BYTES) < 0)
            return -1;
        fits = 1;
        for (int step = 0; fits && step < columns->steps; step++)
            for (int group = 0; fits && group < columns->groups; group++)
                fits = lay_group(columns, step, group);
    }
    return 0;
}

/* _mm512_dpbusd_epi32, in place: gcc makes copies of the sums and spills them. */
#define DOT(sums, bytes, parts) \
    __asm__("vpdpbusd %2, %1, %0" : "+v"(sums) : "v"(bytes), "v"(parts));

INLINE __m512i joined(__m512i low, __m512i middle, __m512i high) {
    __m512i sum = _mm512_add_epi32(low, _mm512_slli_epi32(middle, 8));
    sum = _mm512_add_epi32(sum, _mm512_slli_epi32(high, 16));
    return _mm512_srai_epi32(sum, PRECISION_BITS);
}

TARGET static void horizontal(const Columns *columns, const uint8_t *const *rows,
                              uint8_t *const *out, int begin, int end, int shift) {
    const __m512i zero = _mm512_setzero_si512(), rounding = _mm512_set1_epi32(ROUNDING);
    const __m512i turns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    const int groups = columns->groups;
    const uint8_t *data = columns->data + (size_t)begin * (size_t)groups * GROUP_BYTES;
    const int32_t *offset = columns->offsets + (size_t)begin * (size_t)groups;
/* The accumulators are variables of their own: gcc keeps an array of them on the stack. */
#define EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define START(i) __m512i low##i = rounding, middle##i = zero, high##i = zero;
#define ADD(i) \
    bytes = _mm512_permutexvar_epi8(order, _mm512_loadu_si512(rows[i] + at)); \
    DOT(low##i, bytes, a) \
    DOT(middle##i, bytes, b) \
    DOT(high##i, bytes, c)
#define JOIN(i) low##i = joined(low##i, middle##i, high##i);
/* Four rows to bytes, which come in turns of four, and back in a row each. Sixteen are stored;
 * where fewer count, the next step overwrites the others. */
#define STORE(i, j, k, l) \
    bytes = _mm512_packus_epi16(_mm512_packs_epi32(low##i, low##j), \
                                _mm512_packs_epi32(low##k, low##l)); \
    bytes = _mm512_permutexvar_epi32(turns, bytes); \
    _mm_storeu_si128((void *)(out[i] + to), _mm512_castsi512_si128(bytes)); \
    _mm_storeu_si128((void *)(out[j] + to), _mm512_extracti32x4_epi32(bytes, 1)); \
    _mm_storeu_si128((void *)(out[k] + to), _mm512_extracti32x4_epi32(bytes, 2)); \
    _mm_storeu_si128((void *)(out[l] + to), _mm512_extracti32x4_epi32(bytes, 3));
    for (int step = begin; step < end; step++) {
        const size_t to = (size_t)step * (size_t)columns->step_bytes;
        __m512i bytes;
        EACH_ROW(START)
        for (int group = 0; group < groups; group++, data += GROUP_BYTES, offset++) {
            const __m512i order = _mm512_load_si512(data);
            const __m512i a = _mm512_load_si512(data + 64), b = _mm512_load_si512(data + 128);
            const __m512i c = _mm512_load_si512(data + 192);
            const size_t at = (size_t)(*offset - shift);
            EACH_ROW(ADD)
        }
        EACH_ROW(JOIN)
        STORE(0, 1, 2, 3)
        STORE(4, 5, 6, 7)
    }
#undef EACH_ROW
#undef START
#undef ADD
#undef JOIN
#undef STORE
}

/* 64 bytes of the output; `parts` holds three words of four coefficient bytes per four rows. */
INLINE void vertical_block(const uint8_t *const *rows, const int32_t *parts, int taps, size_t at,
                           uint8_t *out) {
    const __m512i zero = _mm512_setzero_si512(), rounding = _mm512_set1_epi32(ROUNDING);
#define EACH_QUARTER(DO) DO(0) DO(1) DO(2) DO(3)
#define START(i) __m512i low##i = rounding, middle##i = zero, high##i = zero;
#define ADD(i) \
    DOT(low##i, bytes##i, x) \
    DOT(middle##i, bytes##i, y) \
    DOT(high##i, bytes##i, z)
    EACH_QUARTER(START)
    for (int tap = 0; tap < taps; tap += 4, parts += 3) {
        __m512i first = _mm512_loadu_si512(rows[tap] + at);
        __m512i second = _mm512_loadu_si512(rows[tap + 1] + at);
        __m512i third = _mm512_loadu_si512(rows[tap + 2] + at);
        __m512i fourth = _mm512_loadu_si512(rows[tap + 3] + at);
        __m512i a = _mm512_unpacklo_epi8(first, second), b = _mm512_unpackhi_epi8(first, second);
        __m512i c = _mm512_unpacklo_epi8(third, fourth), d = _mm512_unpackhi_epi8(third, fourth);
        __m512i bytes0 = _mm512_unpacklo_epi16(a, c), bytes1 = _mm512_unpackhi_epi16(a, c);
        __m512i bytes2 = _mm512_unpacklo_epi16(b, d), bytes3 = _mm512_unpackhi_epi16(b, d);
        __m512i x = _mm512_set1_epi32(parts[0]), y = _mm512_set1_epi32(parts[1]);
        __m512i z = _mm512_set1_epi32(parts[2]);
        EACH_QUARTER(ADD)
    }
    __m512i words0 = _mm512_packs_epi32(joined(low0, middle0, high0), joined(low1, middle1, high1));
    __m512i words1 = _mm512_packs_epi32(joined(low2, middle2, high2), joined(low3, middle3, high3));
#undef EACH_QUARTER
#undef START
#undef ADD
    /* Packing puts back in order what unpacking took apart, lane by lane. */
    _mm512_storeu_si512(out + at, _mm512_packus_epi16(words0, words1));
}

TARGET static void vertical(const uint8_t *const *rows, const int32_t *weights, int taps, size_t n,
                            uint8_t *out, int32_t *scratch) {
    if (n < 64) {
        plain_vertical(rows, weights, taps, 0, n, out);
        return;
    }
    for (int tap = 0; tap < taps; tap++) {
        int8_t parts[3];
        split(weights[tap], parts);
        for (int part = 0; part < 3; part++)
            memcpy((uint8_t *)scratch + 12 * (tap / 4) + 4 * part + tap % 4, &parts[part], 1);
    }
    size_t at = 0;
    for (; at + 64 <= n; at += 64)
        vertical_block(rows, scratch, taps, at, out);
    if (at < n) /* once more over bytes that are done: the same result */
        vertical_block(rows, scratch, taps, n - 64, out);
}

/* Patches of up to sixteen pixels a side: a row of one is a permutation of one load. Sixteen
 * bytes are stored where `side` count, in ascending order, so the surplus is overwritten. */
TARGET static void cut(const uint8_t *const *rows, int channels, int side, int begin, int end,
                       uint8_t *out) {
    if (side > 16 || side < 8) {
        plain_cut(rows, channels, side, begin, end, out);
        return;
    }
    uint8_t order[64] = {0};
    for (int channel = 0; channel < 3; channel++)
        for (int x = 0; x < side; x++)
            order[16 * channel + x] = (uint8_t)(x * channels + channel);
    const __m512i planes = _mm512_loadu_si512(order);
    const size_t plane = (size_t)side * (size_t)side;
    for (int column = begin; column < end; column++, out += 3 * plane) {
        const size_t at = (size_t)column * (size_t)(side * channels);
        __m512i lines[16];
        for (int y = 0; y < side; y++)
            lines[y] = _mm512_permutexvar_epi8(planes, _mm512_loadu_si512(rows[y] + at));
        for (int y = 0; y < side; y++)
            _mm_storeu_si128((__m128i *)(out + (size_t)(y * side)),
                             _mm512_castsi512_si128(lines[y]));
        for (int y = 0; y < side; y++)
            _mm_storeu_si128((__m128i *)(out + plane + (size_t)(y * side)),
                             _mm512_extracti32x4_epi32(lines[y], 1));
        for (int y = 0; y < side; y++)
            _mm_storeu_si128((__m128i *)(out + 2 * plane + (size_t)(y * side)),
                             _mm512_extracti32x4_epi32(lines[y], 2));
    }
}

/* v / divisor - offset, the quotient corrected to the rounded one by its own remainder. */
INLINE __m512 normalised(const uint8_t *bytes, __m512 divisor, __m512 inverse, __m512 offset) {
    __m512 value = _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)bytes)));
    __m512 quotient = _mm512_mul_ps(value, inverse);
    __m512 remainder = _mm512_fnmadd_ps(quotient, divisor, value);
    return _mm512_sub_ps(_mm512_fmadd_ps(remainder, inverse, quotient), offset);
}

/* To the nearest bfloat16, ties to even, as sixteen bits each. */
INLINE __m256i shortened(__m512 values) {
    __m512i bits = _mm512_castps_si512(values);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7FFF)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

INLINE void put(uint8_t *out, __m512i values, int is_streamed) {
    if (is_streamed)
        _mm512_stream_si512((void *)out, values);
    else
        _mm512_storeu_si512(out, values);
}

TARGET static void convert(const Sink *sink, const uint8_t *bytes, size_t n) {
    const __m512 divisor = _mm512_set1_ps(sink->divisor), offset = _mm512_set1_ps(sink->offset);
    const __m512 inverse = _mm512_set1_ps(1.0f / sink->divisor);
    const int is_streamed = sink->is_streamed;
    uint8_t *out = sink->out;
    if (sink->dtype == DTYPE_UINT8)
        for (size_t i = 0; i < n; i += 64, out += 64)
            put(out, _mm512_loadu_si512(bytes + i), is_streamed);
    else if (sink->dtype == DTYPE_FLOAT32)
        for (size_t i = 0; i < n; i += 16, out += 64)
            put(out, _mm512_castps_si512(normalised(bytes + i, divisor, inverse, offset)),
                is_streamed);
    else
        for (size_t i = 0; i < n; i += 32, out += 64) {
            __m256i low = shortened(normalised(bytes + i, divisor, inverse, offset));
            __m256i high = shortened(normalised(bytes + i + 16, divisor, inverse, offset));
            put(out, _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1), is_streamed);
        }
}

const Level level_avx512 = {
    .name = "avx512vnni",
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
