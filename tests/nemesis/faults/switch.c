/* An Ethernet switch in user space between TAP devices, whose links can be cut, slowed down and made to lose.

   nemswitch TAP...            port i is the i-th device; its MAC address ends in i (`switch.py` gives them out)

   Commands on standard input, one a line; each is answered with a line on standard output, "ok" or "error ...".
   The end of the input ends the program, and with it go the devices.

     cut A B 0|1               frames from port A to port B are dropped, or not (one way)
     shape A B MS PERMILLE KBIT    delay, loss and rate of the link from A to B; 0: none
     reset A B MS              for so long each TCP segment from A to B arrives as a RST: connections break
     clear                     all links as they were
     count                     frames passed on and dropped

   One thread and one poll loop. Each direction of each pair of ports is a link with a queue of its own. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

enum { PORTS_MAX = 16, FRAME_MAX = 65600, QUEUE_MAX_BYTES = 1 << 20, RATE_QUEUE_MAX_MS = 400, BURST = 64 };
enum { ETHERNET = 14, ETHERTYPE_IP = 0x0800, PROTOCOL_TCP = 6, TCP_SYN = 2, TCP_RST = 4, TCP_ACK = 16 };

struct frame {
    struct frame *next;
    double due;
    int size;
    unsigned char data[];
};

struct link {
    int cut, loss_permille;
    double delay_s, rate_bytes_s, busy_until, reset_until;
    struct frame *first, *last; /* rising in `due`, for the delay of one link changes seldom */
    long queued_bytes;
};

static struct link links[PORTS_MAX][PORTS_MAX];
static int taps[PORTS_MAX], ports;
static long passed, dropped;
static uint64_t dice = 88172645463325252ull;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec / 1e9;
}

static unsigned chance(unsigned below) { /* xorshift64 */
    dice ^= dice << 13, dice ^= dice >> 7, dice ^= dice << 17;
    return (unsigned)((dice >> 11) % below);
}

static void deliver(int to, const unsigned char *data, int size) {
    if (write(taps[to], data, size) == size) passed++;
    else dropped++; /* the device is down or its queue is full: as on a wire */
}

static uint16_t get16(const unsigned char *p) { return (uint16_t)(p[0] << 8 | p[1]); }
static void put16(unsigned char *p, uint32_t value) { p[0] = value >> 8 & 255, p[1] = value & 255; }

static uint32_t sum16(const unsigned char *p, int size, uint32_t sum) {
    for (int i = 0; i + 1 < size; i += 2) sum += get16(p + i);
    return sum;
}

static uint16_t folded(uint32_t sum) {
    while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)~sum;
}

/* Make a TCP segment a bare RST of the same sequence number, which its receiver takes for its peer's. Returns the size
   of the frame; that of anything else, and of a SYN or RST, is as it was. */
static int made_reset(unsigned char *frame, int size) {
    unsigned char *ip = frame + ETHERNET, *tcp;
    if (size < ETHERNET + 40 || get16(frame + 12) != ETHERTYPE_IP || ip[0] >> 4 != 4) return size;
    int header = (ip[0] & 15) * 4;
    if (ip[9] != PROTOCOL_TCP || header < 20 || size < ETHERNET + header + 20) return size;
    tcp = ip + header;
    if (tcp[13] & (TCP_SYN | TCP_RST)) return size;
    put16(ip + 2, header + 20);
    put16(ip + 10, 0);
    put16(ip + 10, folded(sum16(ip, header, 0)));
    tcp[12] = 5 << 4, tcp[13] = TCP_RST | TCP_ACK;
    memset(tcp + 14, 0, 6); /* window, checksum, urgent pointer */
    put16(tcp + 16, folded(sum16(tcp, 20, sum16(ip + 12, 8, PROTOCOL_TCP + 20))));
    return ETHERNET + header + 20;
}

static void forward(int from, int to, const unsigned char *data, int size) {
    struct link *link = &links[from][to];
    double now = now_s(), due = now;
    unsigned char reset[FRAME_MAX];
    if (link->cut || (link->loss_permille && (int)chance(1000) < link->loss_permille)) {
        dropped++;
        return;
    }
    if (now < link->reset_until) {
        memcpy(reset, data, size);
        size = made_reset(reset, size), data = reset;
    }
    if (link->delay_s == 0 && link->rate_bytes_s == 0 && !link->first) {
        deliver(to, data, size);
        return;
    }
    if (link->rate_bytes_s > 0) {
        double begins = link->busy_until > now ? link->busy_until : now;
        if (begins - now > RATE_QUEUE_MAX_MS / 1e3) {
            dropped++;
            return;
        }
        due = link->busy_until = begins + size / link->rate_bytes_s;
    }
    struct frame *frame = NULL;
    if (link->queued_bytes + size <= QUEUE_MAX_BYTES) frame = malloc(sizeof *frame + size);
    if (!frame) {
        dropped++;
        return;
    }
    frame->next = NULL, frame->due = due + link->delay_s, frame->size = size;
    memcpy(frame->data, data, size);
    if (link->last) link->last->next = frame;
    else link->first = frame;
    link->last = frame;
    link->queued_bytes += size;
}

static void flush_due(void) {
    double now = now_s();
    for (int a = 0; a < ports; a++)
        for (int b = 0; b < ports; b++)
            for (struct link *link = &links[a][b]; link->first && link->first->due <= now;) {
                struct frame *frame = link->first;
                link->first = frame->next;
                if (!link->first) link->last = NULL;
                link->queued_bytes -= frame->size;
                if (link->cut) dropped++;
                else deliver(b, frame->data, frame->size);
                free(frame);
            }
}

static double wait_s(void) {
    double now = now_s(), first = now + 1;
    for (int a = 0; a < ports; a++)
        for (int b = 0; b < ports; b++)
            if (links[a][b].first && links[a][b].first->due < first) first = links[a][b].first->due;
    return first > now ? first - now : 0;
}

static void receive(int from) {
    static unsigned char frame[FRAME_MAX];
    for (int i = 0; i < BURST; i++) {
        int size = (int)read(taps[from], frame, sizeof frame);
        if (size < ETHERNET) return;
        int to = frame[0] & 1 ? -1 : frame[5]; /* group addresses go to all, others by the last byte of the address */
        if (to >= 0 && to < ports) {
            if (to != from) forward(from, to, frame, size);
        } else if (to < 0) {
            for (int b = 0; b < ports; b++)
                if (b != from) forward(from, b, frame, size);
        }
    }
}

static int in_range(int a, int b) { return a >= 0 && b >= 0 && a < ports && b < ports && a != b; }

static void obey(const char *line) {
    int a, b, flag, permille;
    double ms, kbit;
    if (sscanf(line, "cut %d %d %d", &a, &b, &flag) == 3 && in_range(a, b)) {
        links[a][b].cut = flag;
    } else if (sscanf(line, "shape %d %d %lf %d %lf", &a, &b, &ms, &permille, &kbit) == 5 && in_range(a, b)) {
        links[a][b].delay_s = ms / 1e3, links[a][b].loss_permille = permille, links[a][b].rate_bytes_s = kbit * 125;
    } else if (sscanf(line, "reset %d %d %lf", &a, &b, &ms) == 3 && in_range(a, b)) {
        links[a][b].reset_until = now_s() + ms / 1e3;
    } else if (!strcmp(line, "clear")) {
        for (a = 0; a < ports; a++)
            for (b = 0; b < ports; b++) {
                struct link *link = &links[a][b];
                link->cut = link->loss_permille = 0;
                link->delay_s = link->rate_bytes_s = link->busy_until = link->reset_until = 0;
            }
    } else if (!strcmp(line, "count")) {
        printf("ok %ld %ld\n", passed, dropped);
        return;
    } else {
        printf("error %s\n", line);
        return;
    }
    puts("ok");
}

/* Whole lines of what has come; 0 at the end of the input. */
static int read_commands(void) {
    static char text[4096];
    static int held;
    int got = (int)read(0, text + held, sizeof text - 1 - held);
    if (got == 0) return 0;
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    held += got, text[held] = 0;
    char *line = text, *end;
    while ((end = strchr(line, '\n'))) {
        *end = 0;
        obey(line);
        line = end + 1;
    }
    fflush(stdout);
    held -= (int)(line - text);
    memmove(text, line, held + 1);
    if (held == sizeof text - 1) held = 0; /* no command is so long */
    return 1;
}

int main(int count, char **names) {
    struct pollfd waits[PORTS_MAX + 1];
    ports = count - 1;
    if (ports < 2 || ports > PORTS_MAX) {
        fprintf(stderr, "nemswitch: 2 to %d devices\n", PORTS_MAX);
        return 2;
    }
    for (int i = 0; i < ports; i++) {
        struct ifreq request = {.ifr_flags = IFF_TAP | IFF_NO_PI};
        strncpy(request.ifr_name, names[i + 1], IFNAMSIZ - 1);
        taps[i] = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (taps[i] < 0 || ioctl(taps[i], TUNSETIFF, &request)) {
            perror("nemswitch: /dev/net/tun");
            return 1;
        }
        waits[i] = (struct pollfd){.fd = taps[i], .events = POLLIN};
    }
    waits[ports] = (struct pollfd){.fd = 0, .events = POLLIN};
    puts("ready");
    fflush(stdout);
    for (;;) {
        double wait = wait_s();
        struct timespec timeout = {(time_t)wait, (long)((wait - (double)(time_t)wait) * 1e9)};
        if (ppoll(waits, ports + 1, &timeout, NULL) < 0 && errno != EINTR) return 1;
        for (int i = 0; i < ports; i++)
            if (waits[i].revents & POLLIN) receive(i);
        flush_due();
        if (waits[ports].revents && !read_commands()) return 0;
    }
}
