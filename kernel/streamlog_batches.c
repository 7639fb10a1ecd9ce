/* Batches of a log that join, checked in one pass over the bytes: for nodes that read what they have not written since they
 * started.
 *
 *     joined   each batch begins where the one before ends, in one leader epoch, and its CRC is right
 *
 * It finds how far they do. What follows is looked at in Python (streamlog/storage/segments/batch_checks.py), which names
 * the fault; streamlog/storage/segments/plain_run.py does the same where this package is not installed, and
 * tests/storage/segments/test_plain_run.py compares the two.
 *
 *     base offset i64 | length i32 | leader epoch i32 | magic i8 | CRC u32 | attributes i16 | last offset delta i32 | ...
 *                                                       the CRC covers what follows it: >
 *
 * The bytes come from a disk that may be damaged. Every size is compared with the bytes that are left before it is added to
 * a pointer, every offset with its bound before it is added. The interpreter's lock is kept: a call ends after 1 MiB, some
 * 0.1 ms.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

#define INTERFACE 1
#define LOG_OVERHEAD 12
#define CRC_START 21
#define HEADER_SIZE 61
#define MAGIC 2
#define CALL_BYTES_MAX (1 << 20)
/* Longer ones are left to the library, which computes three parts at a time. */
#define BY_INSTRUCTION_MAX 2048

typedef const unsigned char *Bytes;

static inline uint32_t read_u32(Bytes at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t read_i32(Bytes at)
{
    return (int32_t)read_u32(at);
}

static inline int64_t read_i64(Bytes at)
{
    return (int64_t)((uint64_t)read_u32(at) << 32 | read_u32(at + 4));
}

#if defined(__x86_64__) && defined(__GNUC__)
/* CRC-32C by the processor's instruction: to call the library takes longer than a short batch. */
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(Bytes at, Py_ssize_t size)
{
    uint64_t crc = 0xFFFFFFFF, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    for (; size > 0; at++, size--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *at);
    return ~(uint32_t)crc;
}

static int has_instruction(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("sse4.2") != 0;
}
#else
static uint32_t crc_by_instruction(Bytes at, Py_ssize_t size)
{
    (void)at, (void)size;
    return 0;
}

static int has_instruction(void)
{
    return 0;
}
#endif

static int by_instruction; /* of this processor, set when the module is loaded */

/* 1, 0 for another CRC, -1 with an exception set. */
static int has_crc(Bytes at, Py_ssize_t size, uint32_t expected, PyObject *crc32c)
{
    if (by_instruction && size <= BY_INSTRUCTION_MAX)
        return crc_by_instruction(at, size) == expected;
    PyObject *view = PyMemoryView_FromMemory((char *)at, size, PyBUF_READ);
    if (view == NULL)
        return -1;
    PyObject *found = PyObject_CallFunctionObjArgs(crc32c, view, NULL);
    Py_DECREF(view);
    if (found == NULL)
        return -1;
    unsigned long crc = PyLong_AsUnsignedLong(found);
    Py_DECREF(found);
    return PyErr_Occurred() ? -1 : crc == expected;
}

PyDoc_STRVAR(
    joined_doc,
    "joined(data: bytes, position, stop, expected, bound, epoch, asked, crc32c) -> (position, offset, offset_at)\n\n"
    "How far the batches from `position` on join: the first begins at offset `expected`, all have leader epoch `epoch`,\n"
    "none ends above offset `bound` or behind `stop`. `offset`: after the last one. `offset_at`: of the batch at\n"
    "`asked`; -1: none that was looked at begins there. Returns after some 1 MiB, or at the first that does not join.");

static PyObject *joined(PyObject *module, PyObject *args)
{
    PyObject *raw, *crc32c;
    Py_ssize_t position, stop, asked;
    long long expected, bound, offset_at = -1;
    int epoch;
    if (!PyArg_ParseTuple(args, "SnnLLinO:joined", &raw, &position, &stop, &expected, &bound, &epoch, &asked, &crc32c))
        return NULL;
    if (position < 0 || stop > PyBytes_Size(raw) || expected < 0 || bound < 0) {
        PyErr_SetString(PyExc_ValueError, "position, stop, expected and bound are not negative, stop is in the bytes");
        return NULL;
    }
    Bytes data = (Bytes)PyBytes_AsString(raw);
    Py_ssize_t begin = position;
    while (position <= stop && stop - position >= HEADER_SIZE && position - begin < CALL_BYTES_MAX) {
        Bytes at = data + position;
        int32_t length = read_i32(at + 8), delta = read_i32(at + 23);
        if (position == asked)
            offset_at = expected;
        if (read_i64(at) != expected || read_i32(at + 12) != epoch || at[16] != MAGIC)
            break;
        if (delta < 0 || bound <= expected || delta >= bound - expected)
            break;
        if (length < HEADER_SIZE - LOG_OVERHEAD || length > stop - position - LOG_OVERHEAD)
            break;
        Py_ssize_t size = LOG_OVERHEAD + (Py_ssize_t)length;
        int is_right = has_crc(at + CRC_START, size - CRC_START, read_u32(at + 17), crc32c);
        if (is_right < 0)
            return NULL;
        if (!is_right)
            break;
        position += size;
        expected += (int64_t)delta + 1;
    }
    if (position == asked)
        offset_at = expected;
    return Py_BuildValue("nLL", position, expected, offset_at);
}

static PyMethodDef methods[] = {
    {"joined", joined, METH_VARARGS, joined_doc},
    {NULL, NULL, 0, NULL},
};

static int make_module(PyObject *module)
{
    by_instruction = has_instruction();
    return PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, make_module}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "streamlog_batches",
    .m_doc = "Batches of a log, checked in C, for streamlog.",
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_streamlog_batches(void)
{
    return PyModuleDef_Init(&definition);
}
