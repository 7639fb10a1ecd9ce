/* The check of a record batch's records, for nodes that are under load: one pass over the bytes.
 *
 * It knows one answer, "valid", with the extremes of the timestamps. For all else it returns None, and the caller
 * checks again in Python (streamlog/records/checks/record_check.py), which finds the same and names the fault. So this file has
 * no messages, and what it must never do is accept what Python refuses: tests/records/checks/test_kernel.py compares them.
 *
 *     length            varint     of what follows, at least 6
 *     attributes        i8         no bit has a meaning yet
 *     timestamp delta   varlong    against the batch's base timestamp
 *     offset delta      varint     0, 1, 2 ...
 *     key               varint length, -1 for null, and that many bytes
 *     value             likewise
 *     headers           varint count, and for each: name (length, UTF-8), value (length or -1, bytes)
 *
 * The bytes come from anyone. Every read is bounded by the end of its record, which is bounded by the end of the
 * buffer; every size is compared with the bytes that are left before it is added to a pointer. No memory is allocated.
 * The interpreter's lock is kept for what a node checks on its event loop (1 MiB take 0.1 to 0.5 ms), because to get it
 * back can take longer than the check; it is released for more.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>

#define INTERFACE 1
#define LENGTH_MIN 6
#define NO_TIMESTAMP (-1)
#define LOCKED_BYTES_MAX (1 << 20)

typedef const unsigned char *Bytes;

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

static int skip_headers(Bytes *at, Bytes end)
{
    int64_t count, size;
    if (!read_int(at, end, &count) || count < 0 || count > (end - *at) / 2)
        return 0;
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
        if (!skip_bytes(&at, record_end, &size) || !skip_headers(&at, record_end) || at != record_end)
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

static PyMethodDef methods[] = {{"valid_times", valid_times, METH_VARARGS, valid_times_doc}, {NULL, NULL, 0, NULL}};

static int add_constants(PyObject *module)
{
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, add_constants}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "streamlog_kernel",
    .m_doc = "The check of a batch's records in C, for streamlog.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_streamlog_kernel(void)
{
    return PyModuleDef_Init(&definition);
}
