/* The coefficients of Pillow's resampling, from its published arithmetic: an antialiased bicubic
 * filter (a = -0.5), widened by the scale, normalised in double precision and rounded to 22
 * fractional bits. The order of the floating-point steps is part of the result, so this file must
 * be compiled without contraction into fused multiply-adds. */

#include "kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double bicubic(double x) {
    const double a = -0.5;
    x = fabs(x);
    if (x < 1.0)
        return ((a + 2.0) * x - (a + 3.0)) * x * x + 1;
    if (x < 2.0)
        return (((x - 5) * x + 8) * x - 4) * a;
    return 0.0;
}

/* Writes the weights of one output and gives their number. */
static int weigh(double center, double support, double inverse, int in, int32_t *first,
                 double *weights) {
    int from = (int)(center - support + 0.5);
    int to = (int)(center + support + 0.5);
    if (from < 0)
        from = 0;
    if (to > in)
        to = in;
    double total = 0.0;
    int count = to - from;
    for (int i = 0; i < count; i++) {
        weights[i] = bicubic((i + from - center + 0.5) * inverse);
        total += weights[i];
    }
    if (total != 0.0)
        for (int i = 0; i < count; i++)
            weights[i] /= total;
    *first = from;
    return count;
}

int filter_make(Filter *filter, int in, int out) {
    double scale = (double)in / out;
    double widened = scale < 1.0 ? 1.0 : scale;
    double support = 2.0 * widened;
    int most = (int)ceil(support) * 2 + 1;
    int taps = (most + 3) / 4 * 4;
    double *row = malloc((size_t)taps * sizeof *row);
    filter->in = in;
    filter->out = out;
    filter->taps = taps;
    filter->first = malloc((size_t)out * sizeof(int32_t));
    filter->count = malloc((size_t)out * sizeof(int32_t));
    filter->weights = calloc((size_t)out * (size_t)taps, sizeof(int32_t));
    if (!row || !filter->first || !filter->count || !filter->weights) {
        free(row);
        filter_free(filter);
        return -1;
    }
    int used = 1;
    for (int i = 0; i < out; i++) {
        double center = (i + 0.5) * scale;
        int count = weigh(center, support, 1.0 / widened, in, &filter->first[i], row);
        for (int j = 0; j < count; j++) {
            double fixed = row[j] * (1 << PRECISION_BITS);
            filter->weights[(size_t)i * (size_t)taps + (size_t)j] =
                (int32_t)(row[j] < 0 ? -0.5 + fixed : 0.5 + fixed);
        }
        filter->count[i] = count;
        if (count > used)
            used = count;
    }
    free(row);
    /* The bound on taps is loose: pack the rows to what is really used. */
    int packed = (used + 3) / 4 * 4;
    for (int i = 0; packed < taps && i < out; i++)
        for (int j = 0; j < packed; j++)
            filter->weights[(size_t)i * (size_t)packed + (size_t)j] =
                filter->weights[(size_t)i * (size_t)taps + (size_t)j];
    filter->taps = packed;
    return 0;
}

void filter_free(Filter *filter) {
    free(filter->first);
    free(filter->count);
    free(filter->weights);
    filter->first = filter->count = filter->weights = NULL;
}

int columns_allocate(Columns *columns, size_t group_bytes) {
    size_t count = (size_t)columns->steps * (size_t)columns->groups;
    size_t bytes = (count * group_bytes + 63) / 64 * 64;
    columns->offsets = malloc(count * sizeof(int32_t));
    columns->data = bytes ? aligned_alloc(64, bytes) : NULL;
    if (!columns->offsets || (bytes && !columns->data)) {
        columns_free(columns);
        return -1;
    }
    if (bytes)
        memset(columns->data, 0, bytes);
    return 0;
}

void columns_free(Columns *columns) {
    free(columns->offsets);
    free(columns->data);
    columns->offsets = NULL;
    columns->data = NULL;
}
