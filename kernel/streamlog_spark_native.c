/* streamlog-spark-native: what Spark may start instead of streamlog-spark-python. Where a fork server starts the process,
 * this takes 2 ms; streamlog-spark-python, which is a Python, takes some 50.
 *
 * It is the launcher's side (streamlog/spark/launcher/fork_client.py), and does not decide what may be forked: it says to
 * each server of its Java process with what the process is to be started, and the server refuses what would not be the
 * process that Python would make. Where none forks, and for all that is no worker of Spark, it becomes the
 * streamlog-spark-python beside it, or, where only Python's version is asked for, a bare Python.
 *
 *     name of a server's socket    PROTOCOL-PIDNS-PID-STARTED-...    in DIRECTORY/streamlog-spark-UID (address.py)
 *     this program sends           directory of this program, module, number of arguments, arguments, variables, each
 *                                  ended by a zero byte; with it descriptors 0, 1, 2
 *     the forked process answers   "PROCESS OWN_GROUP"; or the server closes the connection: refused
 *     this program sends           "go", once signals are passed on
 *     the server sends             the exit code of the process, negative for a signal
 *
 * tests/spark/launcher/test_launcher.py puts both to the same cases.
 */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#ifndef SYS_pidfd_send_signal /* newer than the headers of some systems that run on newer kernels */
#define SYS_pidfd_send_signal 424
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

#define PROTOCOL "2"
#define PYTHON "/streamlog-spark-python"
#define DIRECTORY "/streamlog-spark-"
#define DIRECTORY_MAX 64
#define MODULES_OF_SPARK "pyspark."
#define MODULES_OF_STREAMLOG "streamlog.spark."
/* Spark asks for it twice, before it looks for data sources and before it starts them. */
#define VERSION "import sys; print('%d.%d' % sys.version_info[:2])"
#define MESSAGE_MAX (1 << 20)
#define ANSWER_MAX 64
/* For all servers, but for twice that in one that takes its time to accept and then to answer. Then streamlog-spark-python
 * asks the one that it knows, for 2 s more; Java waits 10. */
#ifndef ANSWERS_MS
#define ANSWERS_MS 1000
#endif
/* How long the server may take for an import, before it says how a process has ended. */
#define PRELOAD_MS 30000
#define STANDARD_STREAMS 3

extern char **environ;

typedef struct {
    char *bytes;
    size_t size;
} Message;

typedef struct {
    int connection; /* to the server */
    int descriptor; /* pidfd */
    int own_group;  /* it will leave this process group: signals to the group are not for it */
} Process;

static int append(Message *message, const char *text)
{
    size_t size = strlen(text) + 1;
    if (size > MESSAGE_MAX - message->size)
        return 0;
    memcpy(message->bytes + message->size, text, size);
    message->size += size;
    return 1;
}

/* 0 where it is too long. */
static int encode(Message *message, const char *directory, char **arguments)
{
    char count[16];
    int number = 0;
    while (arguments[number + 1] != NULL)
        number++;
    snprintf(count, sizeof count, "%d", number);
    if (!append(message, directory) || !append(message, arguments[0]) || !append(message, count))
        return 0;
    for (char **one = arguments + 1; *one != NULL; one++)
        if (!append(message, *one))
            return 0;
    for (char **one = environ; *one != NULL; one++)
        if (strchr(*one, '=') != NULL && !append(message, *one))
            return 0;
    return 1;
}

/* When, in ticks since the machine's start. 0 where there is no such process. */
static unsigned long long started(pid_t process)
{
    char path[64], facts[4096];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return 0;
    size_t size = fread(facts, 1, sizeof facts - 1, file);
    fclose(file);
    facts[size] = 0;
    /* proc(5): field 22; the second one, the program's name in parentheses, may contain anything */
    char *field = strrchr(facts, ')');
    for (int number = 2; field != NULL && number < 22; number++)
        field = strchr(field + 1, ' ');
    return field == NULL ? 0 : strtoull(field, NULL, 10);
}

/* Of the sockets of this Java process's servers. */
static int name_prefix(char *prefix, size_t size)
{
    struct stat namespace;
    pid_t java = getppid();
    unsigned long long since = started(java);
    if (since == 0 || stat("/proc/self/ns/pid", &namespace) < 0)
        return 0;
    snprintf(prefix, size, PROTOCOL "-%llu-%d-%llu-", (unsigned long long)namespace.st_ino, (int)java, since);
    return 1;
}

/* Whether it is a directory of this user's alone. */
static int is_private(const char *path)
{
    struct stat found;
    return lstat(path, &found) == 0 && S_ISDIR(found.st_mode) && found.st_uid == getuid() && (found.st_mode & 077) == 0;
}

static int is_ours(int connection)
{
    struct ucred other;
    socklen_t size = sizeof other;
    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &other, &size) == 0 && other.uid == getuid();
}

static int send_start(int connection, const Message *message)
{
    union {
        struct cmsghdr head;
        char bytes[CMSG_SPACE(STANDARD_STREAMS * sizeof(int))];
    } control = {0};
    const int streams[STANDARD_STREAMS] = {0, 1, 2};
    struct iovec part = {message->bytes, message->size};
    struct msghdr sent = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control.bytes};
    control.head.cmsg_level = SOL_SOCKET;
    control.head.cmsg_type = SCM_RIGHTS;
    control.head.cmsg_len = CMSG_LEN(sizeof streams);
    memcpy(CMSG_DATA(&control.head), streams, sizeof streams);
    return sendmsg(connection, &sent, MSG_NOSIGNAL) == (ssize_t)message->size;
}

static long long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (long long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Whether the server has made a process of it, which waits. */
static int is_forked(int connection, const struct sockaddr_un *address, const Message *message, long long left_ms,
                     Process *process)
{
    const struct timeval limit = {.tv_sec = left_ms / 1000, .tv_usec = left_ms % 1000 * 1000};
    char answer[ANSWER_MAX + 1];
    int number;
    if (setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit) < 0 ||
        setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) < 0 ||
        connect(connection, (const struct sockaddr *)address, sizeof *address) < 0 || !is_ours(connection) ||
        !send_start(connection, message))
        return 0;
    ssize_t size = recv(connection, answer, ANSWER_MAX, 0);
    if (size <= 0)
        return 0;
    answer[size] = 0;
    if (sscanf(answer, "%d %d", &number, &process->own_group) != 2)
        return 0;
    process->descriptor = (int)syscall(SYS_pidfd_open, number, 0);
    process->connection = connection;
    return process->descriptor >= 0;
}

/* As above, by one of the servers in this directory. */
static int asked_in(const char *directory, const char *prefix, const Message *message, Process *process)
{
    DIR *servers = opendir(directory);
    struct dirent *entry;
    long long deadline_ms = now_ms() + ANSWERS_MS, left_ms;
    int found = 0;
    while (servers != NULL && !found && (left_ms = deadline_ms - now_ms()) > 0 && (entry = readdir(servers)) != NULL) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if (strncmp(entry->d_name, prefix, strlen(prefix)) != 0)
            continue;
        int size = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", directory, entry->d_name);
        if (size >= (int)sizeof address.sun_path)
            continue;
        int connection = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
        if (connection < 0)
            continue;
        found = is_forked(connection, &address, message, left_ms, process);
        if (!found)
            close(connection);
    }
    if (servers != NULL)
        closedir(servers);
    return found;
}

static int ask(const Message *message, Process *process)
{
    const char *bases[] = {getenv("XDG_RUNTIME_DIR"), getenv("TMPDIR"), "/tmp"};
    char prefix[96], directory[DIRECTORY_MAX + 1];
    for (int stream = 0; stream < STANDARD_STREAMS; stream++)
        if (fcntl(stream, F_GETFD) < 0) /* closed: another descriptor would take its place */
            return 0;
    if (!name_prefix(prefix, sizeof prefix))
        return 0;
    for (size_t number = 0; number < sizeof bases / sizeof *bases; number++) {
        if (bases[number] == NULL || *bases[number] == 0)
            continue;
        int size = snprintf(directory, sizeof directory, "%s" DIRECTORY "%u", bases[number], (unsigned)getuid());
        if (size <= DIRECTORY_MAX && is_private(directory))
            return asked_in(directory, prefix, message, process);
    }
    return 0;
}

/* Until one of the first `count` is readable, or `limit_ms` has passed. Signals, which come by the last descriptor, are
 * passed on; one ends a wait that has a limit: its process has ended. */
static void await(struct pollfd *descriptors, int count, int signals, const Process *process, int limit_ms)
{
    descriptors[count] = (struct pollfd){.fd = signals, .events = POLLIN};
    for (;;) {
        int ready = poll(descriptors, (nfds_t)count + 1, limit_ms);
        if (ready < 0 && errno != EINTR)
            return;
        if (ready == 0)
            return;
        struct signalfd_siginfo received;
        int is_signal = ready > 0 && descriptors[count].revents != 0;
        if (is_signal && read(signals, &received, sizeof received) == sizeof received)
            syscall(SYS_pidfd_send_signal, process->descriptor, (int)received.ssi_signo, NULL, 0);
        if (ready > is_signal || (is_signal && limit_ms >= 0))
            return;
    }
}

/* Of the process, once it has ended; negative for a signal. */
static int exit_code(const Process *process, int signals)
{
    struct pollfd first[3] = {{.fd = process->connection, .events = POLLIN}, {.fd = process->descriptor, .events = POLLIN}};
    char code[ANSWER_MAX + 1], *end;
    await(first, 2, signals, process, -1);
    if (first[0].revents == 0)
        await(first, 1, signals, process, PRELOAD_MS);
    ssize_t size = recv(process->connection, code, ANSWER_MAX, MSG_DONTWAIT);
    if (size > 0) {
        code[size] = 0;
        long number = strtol(code, &end, 10);
        if (*end == 0)
            return (int)number;
    }
    struct pollfd last[2] = {{.fd = process->descriptor, .events = POLLIN}};
    await(last, 1, signals, process, -1); /* the server has failed, the process may go on */
    return 1;
}

/* Stands for the process until it ends, and ends likewise. Returns where it was not started. */
static void stand_for(const Process *process)
{
    const int passed_on[] = {SIGTERM, SIGINT, SIGHUP};
    sigset_t set, before;
    sigemptyset(&set);
    for (size_t number = 0; number < sizeof passed_on / sizeof *passed_on; number++) {
        struct sigaction action; /* what is ignored here, the process ignores too */
        if (sigaction(passed_on[number], NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, passed_on[number]);
    }
    sigprocmask(SIG_BLOCK, &set, &before);
    int signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (signals < 0 || (process->own_group && getpgrp() != getpid() && setpgid(0, 0) < 0) || send(process->connection, "go", 2, MSG_NOSIGNAL) != 2) {
        close(process->connection); /* without "go" the process ends */
        sigprocmask(SIG_SETMASK, &before, NULL);
        return;
    }
    int code = exit_code(process, signals);
    if (code < 0) {
        sigemptyset(&set);
        sigaddset(&set, -code);
        signal(-code, SIG_DFL);
        sigprocmask(SIG_UNBLOCK, &set, NULL);
        kill(getpid(), -code);
    }
    _exit(code);
}

/* Becomes the Python that streamlog-spark-python names in its first line, which answers without reading what it would read
 * for a program: 10 ms instead of some 60. Returns where it cannot. */
static void answer_version(const char *launcher)
{
    char line[PATH_MAX + 3], *interpreter = line + 2;
    FILE *file = fopen(launcher, "re");
    int is_read = file != NULL && getenv("PYTHONHOME") == NULL && fgets(line, sizeof line, file) != NULL;
    if (file != NULL)
        fclose(file);
    char *end = is_read ? strchr(line, '\n') : NULL;
    if (end == NULL || strncmp(line, "#!/", 3) != 0)
        return;
    *end = 0;
    char *arguments[] = {interpreter, "-I", "-S", "-c", VERSION, NULL};
    if (strncmp(strrchr(interpreter, '/'), "/python", strlen("/python")) == 0) /* pip may write a script of a shell */
        execv(interpreter, arguments);
}

int main(int count, char **arguments)
{
    char python[PATH_MAX + sizeof PYTHON];
    ssize_t size = readlink("/proc/self/exe", python, PATH_MAX);
    char *slash = size < 0 ? NULL : memrchr(python, '/', (size_t)size);
    if (slash == NULL) {
        fprintf(stderr, "streamlog-spark-native: where this program is, is not known: %s\n", strerror(errno));
        return 127;
    }
    *slash = 0;
    if (count >= 3 && strcmp(arguments[1], "-m") == 0 &&
        (strncmp(arguments[2], MODULES_OF_SPARK, strlen(MODULES_OF_SPARK)) == 0 ||
         strncmp(arguments[2], MODULES_OF_STREAMLOG, strlen(MODULES_OF_STREAMLOG)) == 0)) {
        Message message = {.bytes = malloc(MESSAGE_MAX)};
        Process process;
        if (message.bytes != NULL && encode(&message, python, arguments + 2) && ask(&message, &process))
            stand_for(&process);
    }
    strcpy(slash, PYTHON);
    if (count == 3 && strcmp(arguments[1], "-c") == 0 && strcmp(arguments[2], VERSION) == 0)
        answer_version(python);
    arguments[0] = python;
    execv(python, arguments);
    fprintf(stderr, "streamlog-spark-native: %s: %s; install streamlog where this program is, or set PYSPARK_PYTHON to"
                    " another Python\n", python, strerror(errno));
    return 127;
}
