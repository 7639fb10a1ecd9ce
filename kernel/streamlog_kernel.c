/* The records of a batch, checked and decoded in one pass over the bytes: for nodes under load, and for programs that read
 * record by record.
 *
 *     valid_times   of the records that a client sends: the extremes of their timestamps
 *     rows          of the records that a log holds: an iterator over tuples, or over objects of a named tuple
 *
 * Both know one answer, "valid". For all else they return None, and the caller looks again in Python
 * (streamlog/records/checks/record_check.py, streamlog/records/record_loop.py), which finds the same and names the fault. So
 * this file has no messages, and what it must never do is accept what Python refuses, or read another value:
 * tests/records/checks/test_kernel.py and test_kernel_rows.py compare them.
 *
 *     length            varint     of what follows, at least 6
 *     attributes        i8         no bit has a meaning yet
 *     timestamp delta   varlong    against the batch's base timestamp
 *     offset delta      varint     0, 1, 2 ... as sent; rising, in a log that was compacted
 *     key               varint length, -1 for null, and that many bytes
 *     value             likewise
 *     headers           varint count, and for each: name (length, UTF-8), value (length or -1, bytes)
 *
 * The bytes come from anyone. Every read is bounded by the end of its record, which is bounded by the end of the
 * buffer; every size is compared with the bytes that are left before it is added to a pointer. The checks allocate
 * nothing; `rows` makes the objects of a record when it is taken, from bytes that were checked as a whole before the
 * first, and that are checked again as they are read. The interpreter's lock is kept while up to 1 MiB is checked (0.1 to
 * 0.5 ms), because to get it back can take longer than the check; it is released for more.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define INTERFACE 3
#define LENGTH_MIN 6
#define HEADERS_MAX (1 << 20) /* of a batch: see record_check */
#define NO_TIMESTAMP (-1)
#define LOCKED_BYTES_MAX (1 << 20)
#define HEAD_MAX 8 /* values before the fields of a row */
#define FIELDS 5   /* offset, timestamp, key, value, headers */

typedef const unsigned char *Bytes;

typedef struct { /* of the module */
    PyObject *rows_type, *no_headers;
} State;

typedef struct {
    int64_t smallest, largest;
    int stamped; /* whether any record has a timestamp */
} Times;

/* A zigzag varint at *at, before `end`. 0 where it is incomplete, or has more than 32 bits (bytes_max 5, last_max 15) or
 * 64 bits (10, 1). */
static inline int read_number(Bytes *at, Bytes end, int bytes_max, unsigned last_max, int64_t *number)
{
    uint64_t raw = 0;
    for (int index = 0; index < bytes_max; index++) {
        if (*at >= end)
            return 0;
        unsigned byte = *(*at)++;
        if (index == bytes_max - 1 && byte > last_max)
            return 0;
        raw |= (uint64_t)(byte & 0x7F) << (7 * index);
        if (byte < 0x80) {
            *number = (int64_t)(raw >> 1) ^ -(int64_t)(raw & 1);
            return 1;
        }
    }
    return 0;
}

static inline int read_int(Bytes *at, Bytes end, int64_t *number)
{
    return read_number(at, end, 5, 0x0F, number);
}

static inline int read_long(Bytes *at, Bytes end, int64_t *number)
{
    return read_number(at, end, 10, 0x01, number);
}

/* A length and that many bytes; -1 is null, with no bytes. */
static inline int skip_bytes(Bytes *at, Bytes end, int64_t *size)
{
    if (!read_int(at, end, size) || *size < -1 || *size > end - *at)
        return 0;
    if (*size > 0)
        *at += *size;
    return 1;
}

/* Strict: no overlong forms, no surrogates, nothing above U+10FFFF (RFC 3629, 4). */
static int is_utf8(Bytes at, Bytes end)
{
    while (at < end) {
        unsigned lead = *at++;
        if (lead < 0x80)
            continue;
        int more;
        unsigned low = 0x80, high = 0xBF; /* of the second byte */
        if (lead >= 0xC2 && lead <= 0xDF) {
            more = 1;
        } else if (lead >= 0xE0 && lead <= 0xEF) {
            more = 2;
            if (lead == 0xE0)
                low = 0xA0;
            if (lead == 0xED)
                high = 0x9F;
        } else if (lead >= 0xF0 && lead <= 0xF4) {
            more = 3;
            if (lead == 0xF0)
                low = 0x90;
            if (lead == 0xF4)
                high = 0x8F;
        } else {
            return 0;
        }
        if (end - at < more || *at < low || *at > high)
            return 0;
        for (at++; --more > 0; at++)
            if (*at < 0x80 || *at > 0xBF)
                return 0;
    }
    return 1;
}

static int skip_headers(Bytes *at, Bytes end, int64_t *left)
{
    int64_t count, size;
    if (!read_int(at, end, &count) || count < 0 || count > (end - *at) / 2 || count > *left)
        return 0;
    *left -= count;
    for (; count > 0; count--) {
        if (!skip_bytes(at, end, &size) || size < 0 || !is_utf8(*at - size, *at) || !skip_bytes(at, end, &size))
            return 0;
    }
    return 1;
}

/* base + delta, if it lies within 64 bits and is no negative time, about which Python decides. */
static inline int add_time(Times *times, int64_t base, int64_t delta)
{
    if (base < NO_TIMESTAMP || delta < NO_TIMESTAMP - base || (delta > 0 && base > INT64_MAX - delta))
        return 0;
    int64_t time = base + delta;
    if (time == NO_TIMESTAMP)
        return 1;
    if (!times->stamped || time < times->smallest)
        times->smallest = time;
    if (time > times->largest)
        times->largest = time;
    times->stamped = 1;
    return 1;
}

static int are_valid(Bytes at, Bytes end, int64_t count, int64_t base, int keys_required, Times *times)
{
    int64_t headers_left = HEADERS_MAX;
    for (int64_t index = 0; index < count; index++) {
        int64_t length, timestamp_delta, offset_delta, size;
        if (!read_int(&at, end, &length) || length < LENGTH_MIN || length > end - at)
            return 0;
        Bytes record_end = at + length;
        at++; /* attributes */
        if (!read_long(&at, record_end, &timestamp_delta) || !add_time(times, base, timestamp_delta))
            return 0;
        if (!read_int(&at, record_end, &offset_delta) || offset_delta != index)
            return 0;
        if (!skip_bytes(&at, record_end, &size) || (size < 0 && keys_required))
            return 0;
        if (!skip_bytes(&at, record_end, &size) || !skip_headers(&at, record_end, &headers_left) || at != record_end)
            return 0;
    }
    return at == end;
}

PyDoc_STRVAR(valid_times_doc, "valid_times(records, count, base_timestamp, keys_required, /)\n--\n\n"
                              "Smallest and largest timestamp of the `count` records that fill the buffer, or None.");

static PyObject *valid_times(PyObject *Py_UNUSED(module), PyObject *args)
{
    Py_buffer records;
    long long count, base;
    int keys_required, valid;
    if (!PyArg_ParseTuple(args, "y*LLp:valid_times", &records, &count, &base, &keys_required))
        return NULL;
    Times times = {NO_TIMESTAMP, NO_TIMESTAMP, 0};
    Bytes start = records.buf;
    if (records.len <= LOCKED_BYTES_MAX) {
        valid = are_valid(start, start + records.len, count, base, keys_required, &times);
    } else {
        Py_BEGIN_ALLOW_THREADS
        valid = are_valid(start, start + records.len, count, base, keys_required, &times);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&records);
    if (!valid)
        Py_RETURN_NONE;
    return Py_BuildValue("(LL)", (long long)times.smallest, (long long)times.largest);
}

/* ---- rows ---- */

/* A record, its strings as pointers into the buffer; a size of -1 is null. */
typedef struct {
    int64_t timestamp_delta, offset_delta, key_size, value_size, header_count;
    Bytes key, value, headers; /* `headers`: behind their count */
} Fields;

static inline int read_bytes(Bytes *at, Bytes end, Bytes *start, int64_t *size)
{
    if (!skip_bytes(at, end, size))
        return 0;
    *start = *at - (*size > 0 ? *size : 0);
    return 1;
}

/* The record at *at, whose offset delta is above `before` and at most `last`. */
static int read_row(Bytes *at, Bytes end, int64_t before, int64_t last, Fields *row)
{
    int64_t length, size;
    if (!read_int(at, end, &length) || length < LENGTH_MIN || length > end - *at)
        return 0;
    Bytes record_end = *at + length;
    ++*at; /* attributes */
    if (!read_long(at, record_end, &row->timestamp_delta) || !read_int(at, record_end, &row->offset_delta))
        return 0;
    if (row->offset_delta <= before || row->offset_delta > last)
        return 0;
    if (!read_bytes(at, record_end, &row->key, &row->key_size))
        return 0;
    if (!read_bytes(at, record_end, &row->value, &row->value_size))
        return 0;
    if (!read_int(at, record_end, &row->header_count) || row->header_count < 0 ||
        row->header_count > (record_end - *at) / 2)
        return 0;
    row->headers = *at;
    for (int64_t left = row->header_count; left > 0; left--) /* names are any bytes in a log */
        if (!skip_bytes(at, record_end, &size) || size < 0 || !skip_bytes(at, record_end, &size))
            return 0;
    return *at == record_end;
}

/* Both within 64 bits, symmetrically, as in Python. */
static inline int add_within(int64_t base, int64_t delta, int64_t *sum)
{
    return !__builtin_add_overflow(base, delta, sum) && *sum != INT64_MIN;
}

typedef struct {
    int64_t base_offset, last_delta, base_timestamp;
    int appended; /* base_timestamp is the timestamp of every record */
} Batch;

static int are_rows(Bytes at, Bytes end, int64_t count, const Batch *batch)
{
    int64_t before = -1, sum;
    Fields row;
    for (; count > 0; count--) {
        if (!read_row(&at, end, before, batch->last_delta, &row))
            return 0;
        if (!batch->appended && !add_within(batch->base_timestamp, row.timestamp_delta, &sum))
            return 0;
        before = row.offset_delta;
    }
    return at == end;
}

typedef struct {
    PyObject_HEAD
    PyObject *raw;  /* bytes */
    PyObject *head; /* tuple */
    PyTypeObject *kind;
    PyObject *no_headers;
    PyObject *timestamp; /* the object for `last_timestamp`; NULL: none yet */
    int64_t last_timestamp;
    Py_ssize_t position, left, head_size;
    int64_t before;
    Batch batch;
} Rows;

static PyObject *bytes_or_none(Bytes start, int64_t size)
{
    if (size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)start, (Py_ssize_t)size);
}

static PyObject *make_headers(const Fields *row, Bytes end)
{
    PyObject *headers = PyTuple_New((Py_ssize_t)row->header_count);
    if (headers == NULL)
        return NULL;
    Bytes at = row->headers, start;
    int64_t size;
    for (Py_ssize_t index = 0; index < row->header_count; index++) {
        PyObject *name = NULL, *value = NULL, *pair = NULL;
        if (!read_bytes(&at, end, &start, &size) || size < 0)
            PyErr_SetString(PyExc_RuntimeError, "the records have changed since they were checked");
        else
            name = PyUnicode_DecodeUTF8((const char *)start, (Py_ssize_t)size, "surrogateescape");
        if (name != NULL) {
            if (!read_bytes(&at, end, &start, &size))
                PyErr_SetString(PyExc_RuntimeError, "the records have changed since they were checked");
            else
                value = bytes_or_none(start, size);
        }
        if (value != NULL)
            pair = PyTuple_Pack(2, name, value);
        Py_XDECREF(name);
        Py_XDECREF(value);
        if (pair == NULL || PyTuple_SetItem(headers, index, pair) < 0) {
            Py_DECREF(headers);
            return NULL;
        }
    }
    return headers;
}

static PyObject *make_timestamp(Rows *self, int64_t delta)
{
    int64_t timestamp = self->batch.base_timestamp;
    if (!self->batch.appended)
        timestamp += delta; /* checked by are_rows */
    if (self->timestamp == NULL || timestamp != self->last_timestamp) {
        PyObject *made = PyLong_FromLongLong((long long)timestamp);
        if (made == NULL)
            return NULL;
        Py_XDECREF(self->timestamp);
        self->timestamp = made;
        self->last_timestamp = timestamp;
    }
    return Py_NewRef(self->timestamp);
}

static PyObject *rows_next(PyObject *object)
{
    Rows *self = (Rows *)object;
    if (self->left == 0)
        return NULL;
    Bytes start = (Bytes)PyBytes_AsString(self->raw);
    Bytes end = start + PyBytes_Size(self->raw), at = start + self->position;
    Fields row;
    if (!read_row(&at, end, self->before, self->batch.last_delta, &row)) {
        PyErr_SetString(PyExc_RuntimeError, "the records have changed since they were checked");
        return NULL;
    }
    PyObject *items[FIELDS] = {0};
    items[0] = PyLong_FromLongLong((long long)(self->batch.base_offset + row.offset_delta));
    items[1] = make_timestamp(self, row.timestamp_delta);
    items[2] = bytes_or_none(row.key, row.key_size);
    items[3] = bytes_or_none(row.value, row.value_size);
    items[4] = row.header_count == 0 ? Py_NewRef(self->no_headers) : make_headers(&row, end);
    PyObject *made = NULL;
    int complete = 1;
    for (int index = 0; index < FIELDS; index++)
        complete = complete && items[index] != NULL;
    /* Nothing is allocated between the tuple and its last item: the garbage collector never sees a part of it. */
    if (complete)
        made = self->kind == &PyTuple_Type ? PyTuple_New(self->head_size + FIELDS)
                                           : PyType_GenericAlloc(self->kind, self->head_size + FIELDS);
    if (made == NULL) {
        for (int index = 0; index < FIELDS; index++)
            Py_XDECREF(items[index]);
        return NULL;
    }
    for (Py_ssize_t index = 0; index < self->head_size; index++)
        PyTuple_SetItem(made, index, Py_NewRef(PyTuple_GetItem(self->head, index)));
    for (int index = 0; index < FIELDS; index++)
        PyTuple_SetItem(made, self->head_size + index, items[index]);
    self->position = at - start;
    self->before = row.offset_delta;
    self->left--;
    return made;
}

static PyObject *rows_length_hint(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromSsize_t(((Rows *)object)->left);
}

static int rows_traverse(PyObject *object, visitproc visit, void *arg)
{
    Rows *self = (Rows *)object;
    Py_VISIT(Py_TYPE(object));
    Py_VISIT(self->raw);
    Py_VISIT(self->head);
    Py_VISIT(self->kind);
    Py_VISIT(self->no_headers);
    Py_VISIT(self->timestamp);
    return 0;
}

static void rows_dealloc(PyObject *object)
{
    Rows *self = (Rows *)object;
    PyTypeObject *type = Py_TYPE(object);
    PyObject_GC_UnTrack(object);
    Py_XDECREF(self->raw);
    Py_XDECREF(self->head);
    Py_XDECREF((PyObject *)self->kind);
    Py_XDECREF(self->no_headers);
    Py_XDECREF(self->timestamp);
    PyObject_GC_Del(object);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"__length_hint__", rows_length_hint, METH_NOARGS, "How many are left."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "The records of a batch, as tuples."},
    {Py_tp_iter, PyObject_SelfIter},
    {Py_tp_iternext, rows_next},
    {Py_tp_methods, rows_methods},
    {Py_tp_traverse, rows_traverse},
    {Py_tp_dealloc, rows_dealloc},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "streamlog_kernel.Rows",
    .basicsize = sizeof(Rows),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = rows_slots,
};

PyDoc_STRVAR(rows_doc, "rows(records, count, base_offset, last_offset_delta, base_timestamp, appended, head, kind, /)\n--\n\n"
                       "An iterator over the `count` records that fill the bytes, or None.\n\n"
                       "Each is a `kind`, a tuple or a subclass of it: the values of `head`, offset, timestamp, key,\n"
                       "value, headers. `appended`: the base timestamp is that of every record.");

static PyObject *rows(PyObject *module, PyObject *args)
{
    PyObject *raw, *head, *kind;
    long long count, base_offset, last_delta, base_timestamp;
    int appended, valid;
    if (!PyArg_ParseTuple(args, "SLLLLpO!O!:rows", &raw, &count, &base_offset, &last_delta, &base_timestamp, &appended,
                          &PyTuple_Type, &head, &PyType_Type, &kind))
        return NULL;
    Py_ssize_t head_size = PyTuple_Size(head);
    if (!PyType_IsSubtype((PyTypeObject *)kind, &PyTuple_Type) || head_size > HEAD_MAX || count < 0) {
        PyErr_SetString(PyExc_ValueError, "kind is a tuple's type, head has at most 8 values, count is not negative");
        return NULL;
    }
    Batch batch = {base_offset, last_delta, base_timestamp, appended};
    int64_t last_offset;
    if (last_delta < -1 || base_offset < 0 || !add_within(base_offset, last_delta, &last_offset))
        Py_RETURN_NONE;
    Bytes start = (Bytes)PyBytes_AsString(raw);
    Py_ssize_t size = PyBytes_Size(raw);
    if (size <= LOCKED_BYTES_MAX) {
        valid = are_rows(start, start + size, count, &batch);
    } else {
        Py_BEGIN_ALLOW_THREADS
        valid = are_rows(start, start + size, count, &batch);
        Py_END_ALLOW_THREADS
    }
    if (!valid)
        Py_RETURN_NONE;
    State *state = PyModule_GetState(module);
    Rows *self = PyObject_GC_New(Rows, (PyTypeObject *)state->rows_type);
    if (self == NULL)
        return NULL;
    self->raw = Py_NewRef(raw);
    self->head = Py_NewRef(head);
    self->kind = (PyTypeObject *)Py_NewRef(kind);
    self->no_headers = Py_NewRef(state->no_headers);
    self->timestamp = NULL;
    self->last_timestamp = 0;
    self->position = 0;
    self->left = (Py_ssize_t)count; /* as many as were read */
    self->head_size = head_size;
    self->before = -1;
    self->batch = batch;
    PyObject_GC_Track((PyObject *)self);
    return (PyObject *)self;
}

static PyMethodDef methods[] = {
    {"valid_times", valid_times, METH_VARARGS, valid_times_doc},
    {"rows", rows, METH_VARARGS, rows_doc},
    {NULL, NULL, 0, NULL},
};

static int make_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    state->no_headers = PyTuple_New(0);
    state->rows_type = PyType_FromModuleAndSpec(module, &rows_spec, NULL);
    if (state->no_headers == NULL || state->rows_type == NULL)
        return -1;
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static int traverse_module(PyObject *module, visitproc visit, void *arg)
{
    State *state = PyModule_GetState(module);
    Py_VISIT(state->rows_type);
    Py_VISIT(state->no_headers);
    return 0;
}

static int clear_module(PyObject *module)
{
    State *state = PyModule_GetState(module);
    Py_CLEAR(state->rows_type);
    Py_CLEAR(state->no_headers);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, make_module}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "streamlog_kernel",
    .m_doc = "The records of a batch, checked and decoded in C, for streamlog.",
    .m_size = sizeof(State),
    .m_methods = methods,
    .m_slots = slots,
    .m_traverse = traverse_module,
    .m_clear = clear_module,
};

PyMODINIT_FUNC PyInit_streamlog_kernel(void)
{
    return PyModuleDef_Init(&definition);
}
