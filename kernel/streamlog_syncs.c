/* Syncs of files and of whole file systems, in threads that never take the interpreter's lock.
 *
 *     start -> waiting -> a thread: fdatasync or syncfs -> ended, eventfd -> collect
 *
 * A record that is produced alone is synced on each of its replicas before it is acknowledged. A thread of Python needs the
 * interpreter's lock to begin a sync and again to report its end, and waits for the event loop to release it both times;
 * these threads need it at neither end. streamlog/ports/threads/syncs.py has the same in Python, for where this is not installed.
 *
 * All Python objects are made by the caller's thread, with the interpreter's lock. What the threads share is guarded by
 * `lock`, which is not held while a thread waits for the disk.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define INTERFACE 1
#define THREADS_MAX 64
#define STACK_BYTES (256 << 10)

typedef struct Sync {
    struct Sync *next;
    unsigned long long number;
    int descriptor, of_file_system;
    int error; /* errno; 0: synced */
} Sync;

typedef struct {
    Sync *first, *last;
} Queue;

typedef struct {
    PyObject_HEAD
    pthread_mutex_t lock;
    pthread_cond_t given; /* something waits, or `closing` */
    Queue waiting, ended;
    int closing;
    unsigned long long started; /* the number of the last one; used with the interpreter's lock */
    int wake_up;                /* eventfd, readable while some have ended */
    pid_t process;              /* that has the threads: a forked one has none of them */
    int thread_count;
    pthread_t threads[THREADS_MAX];
} Syncs;

static void put(Queue *queue, Sync *sync)
{
    sync->next = NULL;
    if (queue->last == NULL)
        queue->first = sync;
    else
        queue->last->next = sync;
    queue->last = sync;
}

static Sync *take(Queue *queue)
{
    Sync *sync = queue->first;
    if (sync != NULL) {
        queue->first = sync->next;
        if (queue->first == NULL)
            queue->last = NULL;
    }
    return sync;
}

static int synced(const Sync *sync)
{
    int failed;
    do
        failed = sync->of_file_system ? syncfs(sync->descriptor) : fdatasync(sync->descriptor);
    while (failed && errno == EINTR);
    return failed ? errno : 0;
}

static void wake(int wake_up)
{
    uint64_t one = 1;
    while (write(wake_up, &one, sizeof one) < 0 && errno == EINTR)
        ;
}

static void *work(void *argument)
{
    Syncs *self = argument;
    pthread_mutex_lock(&self->lock);
    for (;;) {
        while (self->waiting.first == NULL && !self->closing)
            pthread_cond_wait(&self->given, &self->lock);
        Sync *sync = take(&self->waiting);
        if (sync == NULL)
            break;
        pthread_mutex_unlock(&self->lock);
        sync->error = synced(sync);
        pthread_mutex_lock(&self->lock);
        put(&self->ended, sync);
        wake(self->wake_up);
    }
    pthread_mutex_unlock(&self->lock);
    return NULL;
}

/* errno where not even one thread can be created. Signals are left to the threads of Python. */
static int create_threads(Syncs *self, int count)
{
    sigset_t all, before;
    pthread_attr_t attributes;
    int error = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_BYTES);
    while (error == 0 && self->thread_count < count) {
        error = pthread_create(&self->threads[self->thread_count], &attributes, work, self);
        if (error == 0)
            self->thread_count++;
    }
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return self->thread_count > 0 ? 0 : error;
}

static void end_threads(Syncs *self)
{
    if (self->process != getpid()) { /* to wait for them would never end */
        self->thread_count = 0;
        return;
    }
    pthread_mutex_lock(&self->lock);
    self->closing = 1;
    pthread_cond_broadcast(&self->given);
    pthread_mutex_unlock(&self->lock);
    int count = self->thread_count;
    self->thread_count = 0;
    Py_BEGIN_ALLOW_THREADS
    for (int index = 0; index < count; index++)
        pthread_join(self->threads[index], NULL);
    Py_END_ALLOW_THREADS
}

static PyObject *syncs_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int count;
    if (keywords != NULL && PyDict_Size(keywords) != 0) {
        PyErr_SetString(PyExc_TypeError, "Syncs() takes no keyword arguments");
        return NULL;
    }
    if (!PyArg_ParseTuple(args, "i:Syncs", &count))
        return NULL;
    if (count < 1 || count > THREADS_MAX) {
        PyErr_Format(PyExc_ValueError, "1 to %d threads, not %d", THREADS_MAX, count);
        return NULL;
    }
    Syncs *self = (Syncs *)PyType_GenericAlloc(type, 0); /* all zeros */
    if (self == NULL)
        return NULL;
    pthread_mutex_init(&self->lock, NULL);
    pthread_cond_init(&self->given, NULL);
    self->process = getpid();
    self->wake_up = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    int error = self->wake_up < 0 ? errno : create_threads(self, count);
    if (error) {
        Py_DECREF(self);
        errno = error;
        return PyErr_SetFromErrno(PyExc_OSError);
    }
    return (PyObject *)self;
}

PyDoc_STRVAR(start_doc, "start(descriptor, of_file_system, /)\n--\n\n"
                        "Begin fdatasync, or syncfs, in a thread. Its number, which `collect` returns. The descriptor must\n"
                        "stay open until then.");

static PyObject *start(PyObject *object, PyObject *args)
{
    Syncs *self = (Syncs *)object;
    int descriptor, of_file_system;
    if (!PyArg_ParseTuple(args, "ip:start", &descriptor, &of_file_system))
        return NULL;
    if (self->thread_count == 0 || self->process != getpid()) {
        PyErr_SetString(PyExc_RuntimeError, "the threads have been closed, or are another process's");
        return NULL;
    }
    Sync *sync = PyMem_Malloc(sizeof *sync);
    if (sync == NULL)
        return PyErr_NoMemory();
    unsigned long long number = ++self->started;
    *sync = (Sync){NULL, number, descriptor, of_file_system, 0};
    pthread_mutex_lock(&self->lock);
    put(&self->waiting, sync);
    pthread_cond_signal(&self->given);
    pthread_mutex_unlock(&self->lock);
    return PyLong_FromUnsignedLongLong(number);
}

PyDoc_STRVAR(collect_doc, "collect()\n--\n\n"
                          "Those that have ended since the last call, in the order of their ends: (number, errno) of each, 0 for\n"
                          "no error. `fileno()` is not readable after it.");

static PyObject *collect(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    Syncs *self = (Syncs *)object;
    PyObject *found = PyList_New(0);
    if (found == NULL)
        return NULL;
    uint64_t count;
    while (read(self->wake_up, &count, sizeof count) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&self->lock);
    Queue ended = self->ended;
    self->ended = (Queue){NULL, NULL};
    pthread_mutex_unlock(&self->lock);
    for (Sync *sync = take(&ended); sync != NULL; sync = take(&ended)) {
        PyObject *one = Py_BuildValue("(Ki)", sync->number, sync->error);
        PyMem_Free(sync);
        if (one == NULL || PyList_Append(found, one) < 0) /* out of memory: the rest is lost, as the caller is */
            Py_CLEAR(found);
        Py_XDECREF(one);
        if (found == NULL) {
            while ((sync = take(&ended)) != NULL)
                PyMem_Free(sync);
            return NULL;
        }
    }
    return found;
}

static PyObject *number_of_file(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    return PyLong_FromLong(((Syncs *)object)->wake_up);
}

PyDoc_STRVAR(close_doc, "close()\n--\n\n"
                        "Wait for all that were started, and end the threads. `collect` may be called once more. Idempotent.");

static PyObject *close_threads(PyObject *object, PyObject *Py_UNUSED(ignored))
{
    end_threads((Syncs *)object);
    Py_RETURN_NONE;
}

static void syncs_dealloc(PyObject *object)
{
    Syncs *self = (Syncs *)object;
    PyTypeObject *type = Py_TYPE(object);
    end_threads(self);
    for (Sync *sync = take(&self->ended); sync != NULL; sync = take(&self->ended))
        PyMem_Free(sync);
    if (self->wake_up >= 0)
        close(self->wake_up);
    pthread_cond_destroy(&self->given);
    pthread_mutex_destroy(&self->lock);
    PyObject_Free(object);
    Py_DECREF(type);
}

static PyMethodDef syncs_methods[] = {
    {"start", start, METH_VARARGS, start_doc},
    {"collect", collect, METH_NOARGS, collect_doc},
    {"fileno", number_of_file, METH_NOARGS, "Readable while some have ended that were not collected."},
    {"close", close_threads, METH_NOARGS, close_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot syncs_slots[] = {
    {Py_tp_doc, "Syncs(threads, /)\n--\n\nSo many threads that sync. OSError where not even one can be created."},
    {Py_tp_new, syncs_new},
    {Py_tp_methods, syncs_methods},
    {Py_tp_dealloc, syncs_dealloc},
    {0, NULL},
};

static PyType_Spec syncs_spec = {
    .name = "streamlog_syncs.Syncs",
    .basicsize = sizeof(Syncs),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = syncs_slots,
};

static int make_module(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &syncs_spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    Py_DECREF(type);
    return failed ? failed : PyModule_AddIntConstant(module, "INTERFACE", INTERFACE);
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, make_module}, {0, NULL}};

static struct PyModuleDef definition = {
    .m_base = PyModuleDef_HEAD_INIT,
    .m_name = "streamlog_syncs",
    .m_doc = "Syncs in threads that never take the interpreter's lock, for streamlog.",
    .m_slots = slots,
};

PyMODINIT_FUNC PyInit_streamlog_syncs(void)
{
    return PyModuleDef_Init(&definition);
}
