/* kimi_serve.preprocess.native._kernel: one image from RGB pixels to patches, in one pass.
 *
 * Copyright the kimi-serve authors; Apache-2.0. The resize follows the published arithmetic of
 * Pillow's ImagingResample (MIT-CMU licence, https://github.com/python-pillow/Pillow, by Secret
 * Labs AB, Fredrik Lundh, Alexander Karpinsky and contributors): antialiased bicubic, 22
 * fractional bits, rounded to bytes between the passes. The code is our own.
 *
 * This file is the border to Python. Every size is checked here, in arithmetic that cannot
 * overflow, before the interpreter lock is given up; behind it nothing is checked again. There is
 * no state: calls from several threads do not see each other. Stable ABI of Python 3.11. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "kernel.h"

#include <math.h>
#include <string.h>

/* What Pillow hands out without a copy: the Arrow C data interface, as far as it is used here. */
typedef struct ArrowArray {
    int64_t length, null_count, offset, n_buffers, n_children;
    const void **buffers;
    struct ArrowArray **children;
    struct ArrowArray *dictionary;
    void (*release)(struct ArrowArray *);
    void *private_data;
} ArrowArray;

static int fail(const char *format, long long a, long long b) {
    PyErr_Format(PyExc_ValueError, format, a, b);
    return -1;
}

static int check_range(const char *name, long long value, long long lowest, long long highest) {
    if (value >= lowest && value <= highest)
        return 0;
    PyErr_Format(PyExc_ValueError, "%s is %lld; it must be from %lld to %lld", name, value, lowest,
                 highest);
    return -1;
}

/* The pixels inside an "arrow_array" capsule of Pillow: a list of four bytes a pixel. */
static int arrow_pixels(PyObject *capsule, const void **pixels, size_t *length) {
    ArrowArray *array = PyCapsule_GetPointer(capsule, "arrow_array");
    if (!array)
        return -1;
    ArrowArray *child = array->n_children == 1 && array->children ? array->children[0] : NULL;
    if (!array->release || !child || child->n_buffers != 2 || !child->buffers || !child->buffers[1]
        || array->offset != 0 || child->offset != 0 || child->length < 0) {
        PyErr_SetString(PyExc_ValueError, "not an Arrow array of pixels with four bytes each");
        return -1;
    }
    *pixels = child->buffers[1];
    *length = (size_t)child->length;
    return 0;
}

/* Takes `object` as the source; `view` is filled, and to be released, when it was a buffer. */
static int open_source(PyObject *object, Job *job, Py_buffer *view) {
    const void *pixels;
    size_t length;
    if (PyCapsule_CheckExact(object)) {
        if (arrow_pixels(object, &pixels, &length) < 0)
            return -1;
    } else {
        if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
            return -1;
        pixels = view->buf;
        length = (size_t)view->len;
    }
    /* Sides are at most 2^20, so no product of two of them and four overflows 64 bits. */
    size_t row = (size_t)job->width * (size_t)job->channels;
    if (job->stride < row || job->stride > PY_SSIZE_T_MAX / MAX_SIDE)
        return fail("a stride of %lld bytes does not fit rows of %lld", (long long)job->stride,
                    (long long)row);
    size_t needed = ((size_t)job->height - 1) * job->stride + row;
    if (length < needed)
        return fail("the source needs %lld bytes; it has %lld", (long long)needed,
                    (long long)length);
    job->source = pixels;
    return 0;
}

static int check_sizes(const Job *job) {
    if (check_range("width", job->width, 1, MAX_SIDE) < 0
        || check_range("height", job->height, 1, MAX_SIDE) < 0
        || check_range("channels", job->channels, 3, 4) < 0
        || check_range("new_width", job->new_width, 1, MAX_SIDE) < 0
        || check_range("new_height", job->new_height, 1, MAX_SIDE) < 0)
        return -1;
    return 0;
}

static int open_output(PyObject *object, size_t needed, Job *job, Py_buffer *view) {
    if (PyObject_GetBuffer(object, view, PyBUF_WRITABLE) < 0)
        return -1;
    if ((size_t)view->len < needed)
        return fail("the output buffer needs %lld bytes; it has %lld", (long long)needed,
                    (long long)view->len);
    job->sink.out = view->buf;
    return 0;
}

/* Rows are read while others are written. */
static int check_apart(const Job *job, size_t written) {
    size_t row = (size_t)job->width * (size_t)job->channels;
    size_t read = ((size_t)job->height - 1) * job->stride + row;
    uintptr_t source = (uintptr_t)job->source, out = (uintptr_t)job->sink.out;
    if (out + written <= source || source + read <= out)
        return 0;
    PyErr_SetString(PyExc_ValueError, "the output lies in the source");
    return -1;
}

static int find_level(const char *name, Job *job) {
    for (int i = 0; i < kernel_level_count; i++)
        if (strcmp(kernel_levels[i]->name, name) == 0 && kernel_levels[i]->is_supported()) {
            job->level = kernel_levels[i];
            return 0;
        }
    PyErr_Format(PyExc_ValueError, "this machine has no level '%s'", name);
    return -1;
}

static PyObject *run(Job *job) {
    int result;
    Py_BEGIN_ALLOW_THREADS
    result = kernel_run(job);
    Py_END_ALLOW_THREADS
    return result < 0 ? PyErr_NoMemory() : Py_NewRef(Py_None);
}

static PyObject *kernel_patches(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *level;
    PyObject *source, *table, *out, *result = NULL;
    Py_ssize_t stride, stream_from;
    Job job = {0};
    if (!PyArg_ParseTuple(arguments, "sOn(iii)(ii)p(iii)iOffnO:patches", &level, &source, &stride,
                          &job.width, &job.height, &job.channels, &job.new_width, &job.new_height,
                          &job.vertical_first, &job.side, &job.columns, &job.rows, &job.sink.dtype,
                          &table, &job.sink.divisor, &job.sink.offset, &stream_from, &out))
        return NULL;
    if (find_level(level, &job) < 0 || check_sizes(&job) < 0
        || check_range("stride", stride, 1, PY_SSIZE_T_MAX) < 0
        || check_range("side", job.side, 1, MAX_PATCH) < 0
        || check_range("columns", job.columns, 1, MAX_SIDE / job.side) < 0
        || check_range("rows", job.rows, 1, MAX_SIDE / job.side) < 0
        || check_range("dtype", job.sink.dtype, 0, DTYPE_COUNT - 1) < 0
        || check_range("stream_from", stream_from, 0, PY_SSIZE_T_MAX) < 0
        || check_range("the padded width", job.columns * job.side, job.new_width, MAX_SIDE) < 0
        || check_range("the padded height", job.rows * job.side, job.new_height, MAX_SIDE) < 0)
        return NULL;
    if (!isfinite(job.sink.divisor) || job.sink.divisor == 0 || !isfinite(job.sink.offset)) {
        PyErr_SetString(PyExc_ValueError, "divisor and offset must be finite, divisor not 0");
        return NULL;
    }
    job.stride = (size_t)stride;
    job.stream_from = (size_t)stream_from;
    job.sink.plane = job.side * job.side;
    static const size_t sizes[DTYPE_COUNT] = {4, 2, 1};
    size_t size = sizes[job.sink.dtype];
    /* At most 2^40 padded pixels of three values: no overflow. */
    size_t needed = (size_t)job.columns * (size_t)job.rows * (size_t)job.sink.plane * 3 * size;
    Py_buffer source_view = {0}, table_view = {0}, out_view = {0};
    if (open_source(source, &job, &source_view) < 0
        || open_output(out, needed, &job, &out_view) < 0 || check_apart(&job, needed) < 0)
        goto done;
    if (size > 1) {
        if (PyObject_GetBuffer(table, &table_view, PyBUF_SIMPLE) < 0)
            goto done;
        if ((size_t)table_view.len != 768 * size) {
            fail("the table needs %lld bytes; it has %lld", (long long)(768 * size),
                 (long long)table_view.len);
            goto done;
        }
        job.sink.table = table_view.buf;
    }
    result = run(&job);
done:
    PyBuffer_Release(&source_view);
    PyBuffer_Release(&table_view);
    PyBuffer_Release(&out_view);
    return result;
}

static PyObject *kernel_resize(PyObject *module, PyObject *arguments) {
    (void)module;
    const char *level;
    PyObject *source, *out, *result = NULL;
    Py_ssize_t stride;
    Job job = {0};
    if (!PyArg_ParseTuple(arguments, "sOn(iii)(ii)pO:resize", &level, &source, &stride, &job.width,
                          &job.height, &job.channels, &job.new_width, &job.new_height,
                          &job.vertical_first, &out))
        return NULL;
    if (find_level(level, &job) < 0 || check_sizes(&job) < 0
        || check_range("stride", stride, 1, PY_SSIZE_T_MAX) < 0)
        return NULL;
    job.stride = (size_t)stride;
    job.sink.dtype = DTYPE_UINT8;
    size_t needed = (size_t)job.new_width * (size_t)job.new_height * 3;
    Py_buffer source_view = {0}, out_view = {0};
    if (open_source(source, &job, &source_view) == 0
        && open_output(out, needed, &job, &out_view) == 0 && check_apart(&job, needed) == 0)
        result = run(&job);
    PyBuffer_Release(&source_view);
    PyBuffer_Release(&out_view);
    return result;
}

static PyObject *kernel_unfilter(PyObject *module, PyObject *arguments) {
    (void)module;
    PyObject *rows, *out, *result = NULL;
    int width, channels, count;
    if (!PyArg_ParseTuple(arguments, "OiiiO:unfilter", &rows, &width, &channels, &count, &out))
        return NULL;
    if (check_range("width", width, 1, MAX_SIDE) < 0
        || check_range("channels", channels, 3, 4) < 0
        || check_range("count", count, 1, MAX_SIDE) < 0)
        return NULL;
    /* At most 2^20 * (2^22 + 1): no overflow. */
    size_t needed = ((size_t)count + 1) * (1 + (size_t)width * (size_t)channels);
    Job job = {0};
    Py_buffer rows_view = {0}, out_view = {0};
    if (PyObject_GetBuffer(rows, &rows_view, PyBUF_WRITABLE) < 0)
        return NULL;
    if ((size_t)rows_view.len < needed)
        fail("the rows need %lld bytes; there are %lld", (long long)needed,
             (long long)rows_view.len);
    else if (open_output(out, 3 * (size_t)width * (size_t)count, &job, &out_view) == 0) {
        int opaque;
        Py_BEGIN_ALLOW_THREADS
        opaque = png_unfilter(rows_view.buf, width, channels, count, job.sink.out);
        Py_END_ALLOW_THREADS
        if (opaque < 0)
            PyErr_SetString(PyExc_ValueError, "a row has an unknown filter");
        else
            result = PyBool_FromLong(opaque);
    }
    PyBuffer_Release(&rows_view);
    PyBuffer_Release(&out_view);
    return result;
}

static PyObject *kernel_supported_levels(PyObject *module, PyObject *none) {
    (void)module;
    (void)none;
    PyObject *names = PyList_New(0);
    for (int i = 0; names && i < kernel_level_count; i++) {
        if (!kernel_levels[i]->is_supported())
            continue;
        PyObject *name = PyUnicode_FromString(kernel_levels[i]->name);
        if (!name || PyList_Append(names, name) < 0)
            Py_CLEAR(names);
        Py_XDECREF(name);
    }
    return names;
}

static PyMethodDef methods[] = {
    {"patches", kernel_patches, METH_VARARGS, "Resize, pad, cut into patches and normalise."},
    {"unfilter", kernel_unfilter, METH_VARARGS, "Undo the filters of PNG rows; is it all opaque?"},
    {"resize", kernel_resize, METH_VARARGS, "Resize to RGB rows."},
    {"supported_levels", kernel_supported_levels, METH_NOARGS,
     "Name the levels that this CPU has, best first."},
    {NULL, NULL, 0, NULL},
};

static int add_limits(PyObject *module) {
    return PyModule_AddIntConstant(module, "MAX_PATCH", MAX_PATCH);
}

/* Multi-phase initialisation: every interpreter has a module of its own. */
static PyModuleDef_Slot slots[] = {{Py_mod_exec, (void *)add_limits}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "kimi_serve.preprocess.native._kernel",
    .m_doc = "The native image kernel; use kimi_serve.preprocess.native.kernel.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit__kernel(void) { return PyModuleDef_Init(&definition); }
