/* NEON, which every 64-bit ARM has: 32-bit multiply-adds. */

#include "kernel.h"

#ifdef HAVE_NEON

#include <arm_neon.h>
#include <string.h>

static int is_supported(void) { return 1; }

/* A step makes one pixel; a group is four taps, sixteen loaded bytes. */
static int plan_columns(Columns *columns, const Filter *filter, int channels) {
    columns->filter = filter;
    columns->channels = channels;
    columns->step_bytes = 3;
    columns->steps = filter->out;
    columns->groups = filter->taps / 4;
    columns->reach = 16;
    if (columns_allocate(columns, 0) < 0)
        return -1;
    for (int step = 0; step < columns->steps; step++)
        for (int group = 0; group < columns->groups; group++) {
            /* A group past the count has no weights: it reads the first taps again. */
            int from = 4 * group < filter->count[step] ? 4 * group : 0;
            columns->offsets[step * columns->groups + group] =
                (filter->first[step] + from) * channels;
        }
    return 0;
}

static void horizontal(const Columns *columns, const uint8_t *const *rows, uint8_t *const *out,
                       int begin, int end, int shift) {
    uint8x16_t orders[4]; /* the channels of one tap, each in the low byte of 32 bits */
    for (int tap = 0; tap < 4; tap++) {
        uint8_t order[16];
        memset(order, 0xFF, sizeof order);
        for (int channel = 0; channel < 3; channel++)
            order[4 * channel] = (uint8_t)(tap * columns->channels + channel);
        orders[tap] = vld1q_u8(order);
    }
    const size_t groups = (size_t)columns->groups;
    for (int row = 0; row < BATCH; row++)
        for (int step = begin; step < end; step++) {
            const int32_t *weights = columns->filter->weights + (size_t)step * groups * 4;
            const int32_t *offsets = columns->offsets + (size_t)step * groups;
            int32x4_t sum = vdupq_n_s32(ROUNDING), other = vdupq_n_s32(0);
            for (size_t group = 0; group < groups; group++, weights += 4) {
                uint8x16_t bytes = vld1q_u8(rows[row] + (offsets[group] - shift));
                int32x4_t weight = vld1q_s32(weights);
#define TAP(i) vreinterpretq_s32_u8(vqtbl1q_u8(bytes, orders[i]))
                sum = vmlaq_laneq_s32(sum, TAP(0), weight, 0);
                other = vmlaq_laneq_s32(other, TAP(1), weight, 1);
                sum = vmlaq_laneq_s32(sum, TAP(2), weight, 2);
                other = vmlaq_laneq_s32(other, TAP(3), weight, 3);
#undef TAP
            }
            sum = vshrq_n_s32(vaddq_s32(sum, other), PRECISION_BITS);
            uint16x4_t words = vqmovun_s32(sum);
            uint8x8_t pixel = vqmovn_u16(vcombine_u16(words, words));
            /* Four bytes are stored of which three count; the next step overwrites the other. */
            uint32_t word = vget_lane_u32(vreinterpret_u32_u8(pixel), 0);
            memcpy(out[row] + 3 * (size_t)step, &word, 4);
        }
}

static inline void vertical_block(const uint8_t *const *rows, const int32_t *weights, int taps,
                                  size_t at, uint8_t *out) {
    int32x4_t sums[4];
    for (int i = 0; i < 4; i++)
        sums[i] = vdupq_n_s32(ROUNDING);
    for (int tap = 0; tap < taps; tap++) {
        uint8x16_t bytes = vld1q_u8(rows[tap] + at);
        uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
        uint32x4_t words[4] = {vmovl_u16(vget_low_u16(low)), vmovl_high_u16(low),
                               vmovl_u16(vget_low_u16(high)), vmovl_high_u16(high)};
        for (int i = 0; i < 4; i++)
            sums[i] = vmlaq_n_s32(sums[i], vreinterpretq_s32_u32(words[i]), weights[tap]);
    }
    uint16x4_t narrow[4];
    for (int i = 0; i < 4; i++)
        narrow[i] = vqmovun_s32(vshrq_n_s32(sums[i], PRECISION_BITS));
    vst1q_u8(out + at, vcombine_u8(vqmovn_u16(vcombine_u16(narrow[0], narrow[1])),
                                   vqmovn_u16(vcombine_u16(narrow[2], narrow[3]))));
}

static void vertical(const uint8_t *const *rows, const int32_t *weights, int taps, size_t n,
                     uint8_t *out, int32_t *scratch) {
    (void)scratch;
    if (n < 16) {
        plain_vertical(rows, weights, taps, 0, n, out);
        return;
    }
    size_t at = 0;
    for (; at + 16 <= n; at += 16)
        vertical_block(rows, weights, taps, at, out);
    if (at < n) /* once more over bytes that are done: the same result */
        vertical_block(rows, weights, taps, n - 16, out);
}

/* Patches of up to sixteen pixels a side. Sixteen bytes are stored where `side` count, in
 * ascending order, so the surplus is overwritten. */
static void cut(const uint8_t *const *rows, int channels, int side, int begin, int end,
                uint8_t *out) {
    if (side > 16 || side < 8) {
        plain_cut(rows, channels, side, begin, end, out);
        return;
    }
    for (int column = begin; column < end; column++) {
        const size_t at = (size_t)column * (size_t)(side * channels);
        uint8x16_t lines[3][16];
        for (int y = 0; y < side; y++)
            if (channels == 3) {
                uint8x16x3_t planes = vld3q_u8(rows[y] + at);
                for (int i = 0; i < 3; i++)
                    lines[i][y] = planes.val[i];
            } else {
                uint8x16x4_t planes = vld4q_u8(rows[y] + at);
                for (int i = 0; i < 3; i++)
                    lines[i][y] = planes.val[i];
            }
        for (int i = 0; i < 3; i++)
            for (int y = 0; y < side; y++, out += side)
                vst1q_u8(out, lines[i][y]);
    }
}

/* v / divisor - offset, the quotient corrected to the rounded one by its own remainder. */
static inline float32x4_t normalised(uint16x4_t bytes, float32x4_t divisor, float32x4_t inverse,
                                     float32x4_t offset) {
    float32x4_t value = vcvtq_f32_u32(vmovl_u16(bytes));
    float32x4_t quotient = vmulq_f32(value, inverse);
    float32x4_t remainder = vfmsq_f32(value, quotient, divisor);
    return vsubq_f32(vfmaq_f32(quotient, remainder, inverse), offset);
}

/* To the nearest bfloat16, ties to even. */
static inline uint16x4_t shortened(float32x4_t values) {
    uint32x4_t bits = vreinterpretq_u32_f32(values);
    uint32x4_t odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    return vshrn_n_u32(vaddq_u32(vaddq_u32(bits, vdupq_n_u32(0x7FFF)), odd), 16);
}

static void convert(const Sink *sink, const uint8_t *bytes, size_t n) {
    const float32x4_t divisor = vdupq_n_f32(sink->divisor), offset = vdupq_n_f32(sink->offset);
    const float32x4_t inverse = vdupq_n_f32(1.0f / sink->divisor);
    uint8_t *out = sink->out;
    if (sink->dtype == DTYPE_UINT8) {
        memcpy(out, bytes, n);
        return;
    }
    for (size_t i = 0; i < n; i += 8) {
        uint16x8_t words = vmovl_u8(vld1_u8(bytes + i));
        float32x4_t low = normalised(vget_low_u16(words), divisor, inverse, offset);
        float32x4_t high = normalised(vget_high_u16(words), divisor, inverse, offset);
        if (sink->dtype == DTYPE_FLOAT32) {
            vst1q_u8(out + 4 * i, vreinterpretq_u8_f32(low));
            vst1q_u8(out + 4 * i + 16, vreinterpretq_u8_f32(high));
        } else {
            uint16x8_t both = vcombine_u16(shortened(low), shortened(high));
            vst1q_u8(out + 2 * i, vreinterpretq_u8_u16(both));
        }
    }
}

const Level level_neon = {
    .name = "neon",
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
